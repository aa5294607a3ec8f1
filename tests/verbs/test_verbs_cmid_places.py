"""Identifiers of RDMA CM: groups, addresses and ports, options, event channels; with the adapter in this
process and in one of its own.
"""

import asyncio
import errno
import os
import select
import threading

import pytest
from cm_identifiers import (
    GRH,
    PORT,
    SIZE,
    TCP,
    UDP,
    code_of,
    devices_at,
    expect,
    init_attr,
    listening,
    routed,
)

from machine_speed import limit_s
from softhca.driver import registry
from softhca.driver.rdmacm.identifier import DEVICES
from softhca.verbs import cm_enums as ce
from softhca.verbs import enums as e
from softhca.verbs.addr import AH
from softhca.verbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, JoinMCAttrEx, UDParam
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError

GROUP = f"239.9.{os.getpid() >> 8 & 0xFF}.{os.getpid() & 0xFF}"
"""This process's own: a second run beside it talks to others."""


@pytest.fixture(params=["embedded", "process"])
def here(request, loopback_address, monkeypatch):
    """The address of the one device of this process."""
    monkeypatch.setenv("SOFTHCA_FAULTS", "")
    with devices_at([loopback_address()], request.param) as (address,):
        yield address


@pytest.fixture
def pair(loopback_address):
    """Addresses of two devices of this process, which speak by packets."""
    with devices_at([loopback_address(), loopback_address()], "embedded", "?same_host=0") as found:
        yield found


# groups


def member(address, closing, group=GROUP, **options):
    channel = closing(CMEventChannel())
    cmid = closing(CMID(creator=channel, port_space=UDP))
    cmid.bind_addr(AddrInfo(src=address, port_space=UDP))
    cmid.resolve_addr(AddrInfo(src=address, dst=group))
    expect(channel, ce.RDMA_CM_EVENT_ADDR_RESOLVED)
    cmid.create_qp(init_attr(UDP))
    info = AddrInfo(src=group)
    if options:
        cmid.join_multicast(mc_attr=JoinMCAttrEx(addr=info, **options))
    else:
        cmid.join_multicast(addr=info)
    return cmid, UDParam(expect(channel, ce.RDMA_CM_EVENT_MULTICAST_JOIN))


EXTENDED = {
    "comp_mask": ce.RDMA_CM_JOIN_MC_ATTR_ADDRESS | ce.RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
    "join_flags": ce.RDMA_MC_JOIN_FLAG_FULLMEMBER,
}


def send_to(cmid, param, text):
    mr = cmid.reg_msgs(SIZE)
    mr.write(text, len(text))
    ah = AH(cmid.pd, attr=param.ah_attr)
    cmid.post_ud_send(mr, ah, rqpn=param.qp_num, length=len(text))
    assert cmid.get_send_comp().status == e.IBV_WC_SUCCESS


@pytest.mark.parametrize("options", [{}, EXTENDED], ids=["plain", "extended"])
def test_members_of_a_group_on_one_device_hear_each_other(here, closing, options):
    sender, to_group = member(here, closing, **options)
    receiver, _ = member(here, closing, **options)
    assert to_group.qp_num == 0xFFFFFF
    mr = receiver.reg_msgs(SIZE + GRH)
    receiver.post_recv(mr)
    send_to(sender, to_group, "to all")
    receiver.get_recv_comp()
    assert mr.read(6, GRH) == b"to all"


def test_members_of_a_group_on_two_devices_hear_each_other_until_they_leave(pair, closing):
    sender, to_group = member(pair[0], closing)
    stays, _ = member(pair[1], closing)
    leaves, _ = member(pair[1], closing)
    first, second = stays.reg_msgs(SIZE + GRH), leaves.reg_msgs(SIZE + GRH)
    stays.post_recv(first)
    leaves.post_recv(second)
    send_to(sender, to_group, "all")
    stays.get_recv_comp()
    leaves.get_recv_comp()
    assert first.read(3, GRH) == second.read(3, GRH) == b"all"
    leaves.leave_multicast(AddrInfo(src=GROUP))
    stays.post_recv(first)
    leaves.post_recv(second)
    send_to(sender, to_group, "few")
    stays.get_recv_comp()
    assert first.read(3, GRH) == b"few"
    assert leaves._recv_queue.cq.poll() == (0, [])
    assert code_of(leaves.leave_multicast, AddrInfo(src=GROUP)) == errno.EADDRNOTAVAIL


def test_who_only_sends_receives_nothing(pair, closing):
    sender, to_group = member(
        pair[0], closing, comp_mask=EXTENDED["comp_mask"],
        join_flags=ce.RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
    )  # fmt: skip
    receiver, back = member(pair[1], closing)
    mr = receiver.reg_msgs(SIZE + GRH)
    receiver.post_recv(mr)
    ours = sender.reg_msgs(SIZE + GRH)
    sender.post_recv(ours)
    send_to(sender, to_group, "one way")
    receiver.get_recv_comp()
    before = sender.context.query_counters()["multicast_copies"]
    send_to(receiver, back, "nobody")
    assert sender._recv_queue.cq.poll() == (0, [])
    assert sender.context.query_counters()["multicast_copies"] == before


def test_a_group_is_joined_once_and_is_one(here, closing):
    cmid, _ = member(here, closing)
    assert code_of(cmid.join_multicast, AddrInfo(src=GROUP)) == errno.EADDRINUSE
    assert code_of(cmid.join_multicast, AddrInfo(src="10.0.0.1")) == errno.EINVAL
    with pytest.raises(PyverbsUserError):
        cmid.join_multicast()


# addresses and ports


def test_addresses_and_ports_that_cannot_be_had(here, closing):
    channel = closing(CMEventChannel())
    listening(channel, here, closing)
    other = closing(CMID(creator=channel, port_space=TCP))
    passive = {"port_space": TCP, "flags": ce.RAI_PASSIVE}
    assert code_of(other.bind_addr, AddrInfo(src=here, src_service=PORT, **passive)) == errno.EADDRINUSE
    with pytest.raises(PyverbsRDMAError) as refusal:  # of a device that cannot be opened it would say that
        other.bind_addr(AddrInfo(src="192.0.2.250", **passive))
    assert refusal.value.error_code == errno.EADDRNOTAVAIL, (refusal.value, registry.names())
    other.bind_addr(AddrInfo(src=here, src_service="7472", **passive))
    assert code_of(other.bind_addr, AddrInfo(src=here, **passive)) == errno.EINVAL


def test_a_listener_at_all_addresses_has_every_device(pair, closing):
    passive_channel, active_channel = closing(CMEventChannel()), closing(CMEventChannel())
    listener = listening(passive_channel, None, closing)
    assert listener.context is None
    for source, destination in (pair, reversed(pair)):
        active = routed(active_channel, source, destination, closing)
        active.create_qp(init_attr())
        active.connect()
        asked = expect(passive_channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
        passive = closing(CMID(creator=asked, listen_id=listener))
        assert passive.dev_name == ("cmid1" if destination == pair[1] else "cmid0")
        passive.create_qp(init_attr())
        passive.accept()
        expect(active_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
        expect(passive_channel, ce.RDMA_CM_EVENT_ESTABLISHED)


def test_a_port_that_another_program_of_the_adapter_listens_at_is_in_use(here, closing, monkeypatch):
    from softhca.driver.rdmacm import identifier
    from softhca.driver.rdmacm.port_numbers import PortNumbers

    listening(closing(CMEventChannel()), here, closing)
    init = identifier.Identifier.__init__
    others = PortNumbers()  # as in another process
    monkeypatch.setattr(
        identifier.Identifier,
        "__init__",
        lambda self, channel, space: init(self, channel, space, port_numbers=others),
    )
    channel = closing(CMEventChannel())
    other = closing(CMID(creator=channel, port_space=TCP))
    other.bind_addr(AddrInfo(src=here, src_service=PORT, port_space=TCP, flags=ce.RAI_PASSIVE))
    assert code_of(other.listen) == errno.EADDRINUSE


def test_addrinfo_by_an_identifier(here, closing):
    channel = closing(CMEventChannel())
    cmid = closing(CMID(creator=channel, port_space=UDP))
    assert code_of(cmid.query_addrinfo) == errno.ENODATA
    cmid.resolve_addrinfo(node=here, service=PORT, port_space=UDP)
    expect(channel, ce.RDMA_CM_EVENT_ADDRINFO_RESOLVED)
    cmid.resolve_addr(cmid.query_addrinfo())
    expect(channel, ce.RDMA_CM_EVENT_ADDR_RESOLVED)
    assert cmid.dev_name == "cmid0"


def test_localhost_is_the_device_at_a_loopback_address(here, closing):
    channel = closing(CMEventChannel())
    listener = listening(channel, "127.0.0.1", closing)
    active = routed(channel, None, "127.0.0.1", closing)
    assert listener.dev_name == active.dev_name
    active.create_qp(init_attr())
    active.connect()
    asked = expect(channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
    closing(CMID(creator=asked, listen_id=listener))


# options


def test_the_time_out_of_acknowledgements(here, closing):
    passive_channel, active_channel = closing(CMEventChannel()), closing(CMEventChannel())
    listener = listening(passive_channel, here, closing)
    active = routed(active_channel, here, here, closing)
    active.set_option(ce.RDMA_OPTION_ID, ce.RDMA_OPTION_ID_ACK_TIMEOUT, 21, 1)
    active.create_qp(init_attr())
    active.connect()
    asked = expect(passive_channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
    passive = closing(CMID(creator=asked, listen_id=listener))
    passive.create_qp(init_attr())
    passive.accept()
    expect(active_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
    for each in (active, passive):
        assert each.query_qp(e.IBV_QP_TIMEOUT)[0].timeout == 21


def test_options_that_cannot_be(here, closing):
    cmid = closing(CMID(creator=closing(CMEventChannel())))
    assert code_of(cmid.set_option, 0, 3, 32, 1) == errno.EINVAL
    assert code_of(cmid.set_option, 0, 9, 1, 1) == errno.ENOSYS
    assert code_of(cmid.set_option, 1, 1, 1, 1) == errno.ENOSYS
    cmid.set_option(0, 1, 1, 4)
    cmid.bind_addr(AddrInfo(src=here, flags=ce.RAI_PASSIVE))
    assert code_of(cmid.set_option, 0, 1, 1, 4) == errno.EINVAL


def test_the_type_of_service_is_in_the_path(here, closing):
    passive_channel, active_channel = closing(CMEventChannel()), closing(CMEventChannel())
    listener = listening(passive_channel, here, closing)
    active = routed(active_channel, here, here, closing)
    active.set_option(0, 0, 0x68, 1)
    active.create_qp(init_attr())
    active.connect()
    asked = expect(passive_channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
    passive = closing(CMID(creator=asked, listen_id=listener))
    passive.create_qp(init_attr())
    passive.accept()
    expect(active_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
    for each in (active, passive):
        vector = each.query_qp(e.IBV_QP_AV)[0].ah_attr
        assert vector.traffic_class == 0x68


# channels


def test_events_move_to_another_channel(here, closing):
    first, second = closing(CMEventChannel()), closing(CMEventChannel())
    cmid = closing(CMID(creator=first))
    cmid.resolve_addr(AddrInfo(src=here, dst=here, dst_service=PORT))
    cmid.migrate(second)
    expect(second, ce.RDMA_CM_EVENT_ADDR_RESOLVED)
    cmid.resolve_route()
    expect(second, ce.RDMA_CM_EVENT_ROUTE_RESOLVED)
    assert cmid.event_channel is second


def test_a_closed_channel_takes_no_identifiers(here, closing):
    closed = CMEventChannel()
    closed.close()
    assert code_of(CMID, closed) == errno.EBADF
    cmid = closing(CMID(creator=closing(CMEventChannel())))
    assert code_of(cmid.migrate, closed) == errno.EBADF


def test_a_channel_has_a_descriptor(here, closing):
    passive_channel, active_channel = closing(CMEventChannel()), closing(CMEventChannel())
    poll = select.epoll()
    poll.register(passive_channel.fd, select.EPOLLIN)
    os.set_blocking(passive_channel.fd, False)
    listener = listening(passive_channel, here, closing)
    assert code_of(CMEvent, passive_channel) == errno.EAGAIN
    assert poll.poll(0) == []
    active = routed(active_channel, here, here, closing)
    active.create_qp(init_attr())
    active.connect()
    assert poll.poll(limit_s(30))
    asked = expect(passive_channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
    assert poll.poll(0) == []
    closing(CMID(creator=asked, listen_id=listener)).reject()
    expect(active_channel, ce.RDMA_CM_EVENT_REJECTED)
    poll.close()


def test_an_event_loop_waits_for_events(here, closing):
    passive_channel, active_channel = closing(CMEventChannel()), closing(CMEventChannel())
    listening(passive_channel, here, closing)
    os.set_blocking(passive_channel.fd, False)
    active = routed(active_channel, here, here, closing)
    active.create_qp(init_attr())

    async def wait():
        loop = asyncio.get_running_loop()
        found = loop.create_future()
        loop.add_reader(
            passive_channel.fd, lambda: found.done() or found.set_result(CMEvent(passive_channel))
        )
        active.connect()
        event = await asyncio.wait_for(found, limit_s(30))
        loop.remove_reader(passive_channel.fd)
        return event

    event = asyncio.run(wait())
    assert event.event_str() == "RDMA_CM_EVENT_CONNECT_REQUEST"
    event.ack_cm_event()
    assert event.event_str() == ""
    with pytest.raises(PyverbsUserError):
        _ = event.event_type


def test_closing_a_channel_ends_waits(here, closing):
    channel = CMEventChannel()
    codes = []
    waiter = threading.Thread(target=lambda: codes.append(code_of(CMEvent, channel)))
    waiter.start()
    channel.close()
    waiter.join(limit_s(60))
    assert codes == [errno.EBADF]


def test_who_is_in_a_group_without_a_queue_pair_can_be_closed(here, closing):
    """A program has closed the context, and with it the queue pair; who comes then has a context again."""
    kept = closing(CMID(creator=closing(CMEventChannel())))
    kept.bind_addr(AddrInfo(src=here, src_service="0", flags=ce.RAI_PASSIVE))
    channel = closing(CMEventChannel())
    made = CMID(creator=channel, port_space=UDP)
    made.resolve_addr(AddrInfo(dst=here, dst_service=PORT, port_space=UDP))
    expect(channel, ce.RDMA_CM_EVENT_ADDR_RESOLVED)
    made.create_qp(init_attr(UDP))
    made.join_multicast(addr=AddrInfo(src=GROUP, port_space=UDP, flags=ce.RAI_PASSIVE))
    made.context.close()
    made.close()
    assert DEVICES.adapters.users(kept._id.local.device) == 1
    later = routed(channel, here, here, closing)
    later.create_qp(init_attr())
    assert later.qpn
