"""RDMA CM in pyverbs' shape, over real adapters on the loopback: synchronous, by events, datagrams, groups;
with the adapter in this process and in one of its own.
"""

import asyncio
import contextlib
import errno
import gc
import os
import select
import threading

import pytest
from cm_identifiers import PORT, TCP, UDP, code_of, connected, expect, init_attr, listening, routed

from machine_speed import limit_s
from softhca.driver import registry
from softhca.driver.rdmacm import queue_pairs
from softhca.driver.rdmacm.identifier import DEVICES
from softhca.runtime import devices
from softhca.transport.retry import RNR_TIMER_NS
from softhca.verbs import cm_contexts
from softhca.verbs import cm_enums as ce
from softhca.verbs import enums as e
from softhca.verbs.addr import AH
from softhca.verbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam, JoinMCAttrEx, UDParam
from softhca.verbs.cq import CQ
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.qp import ECE, QP, QPAttr
from softhca.verbs.wr import SGE, RecvWR, SendWR

SIZE = 256
GRH = 40
GROUP = f"239.9.{os.getpid() >> 8 & 0xFF}.{os.getpid() & 0xFF}"
"""This process's own: a second run beside it talks to others."""


@pytest.fixture(params=["embedded", "process"])
def here(request, loopback_address, monkeypatch):
    """The address of the one device of this process."""
    monkeypatch.setenv("SOFTHCA_FAULTS", "")
    registry.names()
    address = loopback_address()
    devices.add(f"cmid0=udp:{address}", request.param)
    yield address
    devices.remove("cmid0")


@pytest.fixture
def pair(loopback_address):
    """Addresses of two devices of this process, which speak by packets."""
    registry.names()
    found = [loopback_address(), loopback_address()]
    for number, address in enumerate(found):
        devices.add(f"cmid{number}=udp:{address}?same_host=0", "embedded")
    yield found
    for number in range(len(found)):
        devices.remove(f"cmid{number}")


def test_synchronous_identifiers_connect_and_talk(here, closing):
    listener = closing(
        CMID(
            creator=AddrInfo(src=here, src_service=PORT, port_space=TCP, flags=ce.RAI_PASSIVE),
            qp_init_attr=init_attr(),
        )
    )
    listener.listen()
    said = []

    def serve():
        with contextlib.closing(listener.get_request()) as passive:
            mr = passive.reg_msgs(SIZE)
            passive.post_recv(mr)
            passive.accept()
            passive.get_recv_comp()
            said.append(mr.read(5, 0))
            mr.write("again", 5)
            passive.post_send(mr, length=5)
            passive.get_send_comp()
            passive.disconnect()

    server = threading.Thread(target=serve)
    server.start()
    active = closing(
        CMID(creator=AddrInfo(src=here, dst=here, dst_service=PORT, port_space=TCP), qp_init_attr=init_attr())
    )
    assert active.dev_name == "cmid0"
    assert active.port_num == 1
    assert active.event_channel is None
    active.connect()
    mr = active.reg_msgs(SIZE)
    other = active.reg_msgs(SIZE)
    active.post_recv(other)
    mr.write("hello", 5)
    active.post_send(mr)
    assert active.get_send_comp().status == e.IBV_WC_SUCCESS
    assert active.get_recv_comp().byte_len == 5
    assert other.read(5, 0) == b"again"
    active.disconnect()
    server.join(limit_s(60))
    assert said == [b"hello"]


def test_events_of_a_connection_and_its_end(here, closing):
    active, passive, _ = connected(here, here, closing)
    for each in (active, passive):
        assert each.query_qp(e.IBV_QP_STATE)[0].qp_state == e.IBV_QPS_RTS
    passive.disconnect()
    assert passive.query_qp(e.IBV_QP_STATE)[0].qp_state == e.IBV_QPS_ERR
    expect(active.event_channel, ce.RDMA_CM_EVENT_DISCONNECTED)
    active.disconnect()
    assert active.query_qp(e.IBV_QP_STATE)[0].qp_state == e.IBV_QPS_ERR
    expect(passive.event_channel, ce.RDMA_CM_EVENT_DISCONNECTED)
    active.disconnect()


@pytest.mark.parametrize("operation", ["read", "write"])
def test_remote_operations(here, closing, operation):
    active, passive, _ = connected(here, here, closing)
    theirs = passive.reg_read(SIZE) if operation == "read" else passive.reg_write(SIZE)
    theirs.write("theirs", 6)
    ours = active.reg_msgs(SIZE)
    ours.write("ours..", 6)
    post = active.post_read if operation == "read" else active.post_write
    post(ours, 6, theirs.buf, theirs.rkey, flags=e.IBV_SEND_SIGNALED)
    assert active.get_send_comp().status == e.IBV_WC_SUCCESS
    assert (ours if operation == "read" else theirs).read(6, 0) == (
        b"theirs" if operation == "read" else b"ours.."
    )


def test_private_data_reach_the_other_side(pair, closing):
    passive_channel, active_channel = closing(CMEventChannel()), closing(CMEventChannel())
    listener = listening(passive_channel, pair[1], closing)
    active = routed(active_channel, pair[0], pair[1], closing)
    active.create_qp(init_attr())
    asking = ConnParam(data_len=56)
    asking.set_private_data(b"asked for")
    active.connect(asking)
    asked = expect(passive_channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
    assert asked.private_data == b"asked for".ljust(56, b"\0")
    passive = closing(CMID(creator=asked, listen_id=listener))
    passive.create_qp(init_attr())
    for length in (200, 197):  # refused, and the queue pair is as before
        too_long = ConnParam(data_len=length)
        too_long.set_private_data(bytes(length))
        assert code_of(passive.accept, too_long) == errno.EINVAL
    answering = ConnParam(data_len=196)
    answering.set_private_data(b"answered")
    passive.accept(answering)
    found = expect(active_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
    assert found.private_data == b"answered".ljust(196, b"\0")


def test_a_request_with_too_many_private_data_is_refused(here, closing):
    active = routed(closing(CMEventChannel()), here, here, closing)
    active.create_qp(init_attr())
    param = ConnParam(data_len=57)
    param.set_private_data(bytes(57))
    assert code_of(active.connect, param) == errno.EINVAL


def test_a_rejected_request_says_why(here, closing):
    passive_channel, active_channel = closing(CMEventChannel()), closing(CMEventChannel())
    listener = listening(passive_channel, here, closing)
    active = routed(active_channel, here, here, closing)
    active.create_qp(init_attr())
    active.connect(ConnParam())
    asked = expect(passive_channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
    passive = closing(CMID(creator=asked, listen_id=listener))
    passive.reject(b"not today")
    refused = expect(active_channel, ce.RDMA_CM_EVENT_REJECTED)
    assert refused.status == 28
    assert refused.private_data.rstrip(b"\0") == b"not today"


def test_nobody_listens(here, closing):
    info = AddrInfo(src=here, dst=here, dst_service=PORT, port_space=TCP)
    active = closing(CMID(creator=info, qp_init_attr=init_attr()))
    assert code_of(active.connect) == errno.ECONNREFUSED


def test_a_queue_pair_of_the_programs_own(here, closing):
    passive_channel, active_channel = closing(CMEventChannel()), closing(CMEventChannel())
    listener = listening(passive_channel, here, closing)
    active = routed(active_channel, here, here, closing)
    queue_pairs, regions = [], []

    def make(cmid):
        cq = closing(CQ(cmid.context, 10))
        queue_pairs.append(closing(QP(cmid.pd, init_attr(scq=cq, rcq=cq), QPAttr())))
        regions.append(cmid.reg_msgs(SIZE))
        return queue_pairs[-1], cq

    def to_rts(cmid, qp):
        for state in (e.IBV_QPS_INIT, e.IBV_QPS_RTR, e.IBV_QPS_RTS):
            qp.modify(*cmid.init_qp_attr(state))

    ours, _ = make(active)
    assert code_of(active.init_qp_attr, e.IBV_QPS_RTR) == errno.EINVAL
    active.connect(ConnParam(qp_num=ours.qp_num))
    asked = expect(passive_channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
    passive = closing(CMID(creator=asked, listen_id=listener))
    theirs, their_cq = make(passive)
    to_rts(passive, theirs)
    passive.set_local_ece(ECE())
    passive.accept(ConnParam(qp_num=theirs.qp_num))
    expect(active_channel, ce.RDMA_CM_EVENT_CONNECT_RESPONSE)
    assert active.get_remote_ece().vendor_id == 0
    to_rts(active, ours)
    active.establish()
    timers = [qp.query(e.IBV_QP_MIN_RNR_TIMER | e.IBV_QP_RNR_RETRY)[0] for qp in queue_pairs]
    # so late may a receive be posted, also where others want the processors
    assert all(RNR_TIMER_NS[attr.min_rnr_timer] * attr.rnr_retry > 100_000_000 for attr in timers)
    expect(passive_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
    mine, others = regions
    theirs.post_recv(RecvWR(1, 1, [SGE(others.buf, SIZE, others.lkey)]))
    mine.write("external", 8)
    ours.post_send(SendWR(2, e.IBV_WR_SEND, 1, 0, [SGE(mine.buf, 8, mine.lkey)], e.IBV_SEND_SIGNALED))
    while not their_cq.poll()[0]:
        pass
    assert others.read(8, 0) == b"external"
    assert active.qpn is None
    assert code_of(active.post_send, mine) == errno.EINVAL
    assert code_of(active.get_send_comp) == errno.EINVAL


def test_datagram_services(here, closing):
    active, passive, established = connected(here, here, closing, UDP)
    found = UDParam(established)
    assert found.qp_num == passive.qpn
    assert found.qkey == 0x01234567
    theirs, ours = passive.reg_msgs(SIZE + GRH), active.reg_msgs(SIZE + GRH)
    passive.post_recv(theirs)
    ours.write("datagram", 8)
    there = AH(active.pd, attr=found.ah_attr)
    active.post_ud_send(ours, there, rqpn=found.qp_num, length=8)
    active.get_send_comp()
    wc = passive.get_recv_comp()
    assert theirs.read(8, GRH) == b"datagram"
    back = AH(passive.pd, wc=wc, port_num=1, grh=theirs.buf)
    active.post_recv(ours)
    passive.post_ud_send(theirs, back, rqpn=active.qpn, length=8)
    assert active.get_recv_comp().byte_len == 8 + GRH
    passive.post_recv(theirs)
    for each in (active, passive, active):
        each.disconnect()  # as with a kernel nobody is told; the queue pair goes to ERR, as librdmacm's does
    assert passive.get_recv_comp().status == e.IBV_WC_WR_FLUSH_ERR


def test_a_datagram_service_may_refuse(here, closing):
    passive_channel, active_channel = closing(CMEventChannel()), closing(CMEventChannel())
    listener = listening(passive_channel, here, closing, UDP)
    active = routed(active_channel, here, here, closing, UDP)
    active.create_qp(init_attr(UDP))
    active.connect()
    asked = expect(passive_channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
    closing(CMID(creator=asked, listen_id=listener)).reject(b"no")
    refused = expect(active_channel, ce.RDMA_CM_EVENT_UNREACHABLE)
    assert (refused.status, refused.private_data[:3]) == (2, b"no\0")
    assert active.query_qp(e.IBV_QP_STATE)[0].qp_state == e.IBV_QPS_RTS  # it may ask others


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


# the end


def test_the_device_is_closed_with_the_last_identifier(here):
    channel = CMEventChannel()
    one, other = CMID(creator=channel), CMID(creator=channel)
    for each in (one, other):
        each.bind_addr(AddrInfo(src=here, flags=ce.RAI_PASSIVE))
    assert one.context is other.context
    assert one.pd is other.pd
    driver = one.context.driver
    mr = one.reg_msgs(SIZE)
    one.close()
    one.close()
    assert driver.alive
    with pytest.raises(PyverbsUserError):
        mr.read(1, 0)
    other.close()
    assert not driver.alive


def test_a_peer_that_closes_is_gone(here, closing):
    active, passive, _ = connected(here, here, closing)
    passive.close()
    expect(active.event_channel, ce.RDMA_CM_EVENT_DISCONNECTED)


def test_a_listener_that_closes_refuses_who_waits(here, closing):
    passive_channel, active_channel = closing(CMEventChannel()), closing(CMEventChannel())
    listener = listening(passive_channel, here, closing)
    active = routed(active_channel, here, here, closing)
    active.create_qp(init_attr())
    active.connect()
    expect(passive_channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST).event.identifier.close()
    expect(active_channel, ce.RDMA_CM_EVENT_REJECTED)
    listener.close()


@pytest.mark.parametrize("begun", ["bound", "queue pair"])
def test_what_is_made_while_another_thread_closes_goes_with_it(here, closing, monkeypatch, begun):
    """The close finds all that there is: it waits for the call that makes something, or that is refused."""
    channel = closing(CMEventChannel())
    cmid = CMID(creator=channel)
    closer = threading.Thread(target=cmid.close)
    where, name = (cm_contexts, "join") if begun == "bound" else (queue_pairs, "begin")
    make = getattr(where, name)

    def meanwhile(*arguments):
        closer.start()
        closer.join(0.1)  # as far as it gets
        return make(*arguments)

    if begun == "bound":
        monkeypatch.setattr(where, name, meanwhile)
        with contextlib.suppress(PyverbsUserError):
            cmid.bind_addr(AddrInfo(src=here, src_service=PORT, flags=ce.RAI_PASSIVE))
    else:
        cmid.bind_addr(AddrInfo(src=here, src_service=PORT, flags=ce.RAI_PASSIVE))
        monkeypatch.setattr(where, name, meanwhile)
        with contextlib.suppress(PyverbsUserError):
            cmid.create_qp(init_attr())
    closer.join()
    assert cmid.qpn is None
    assert not cm_contexts._shared


# what cannot be


def test_identifiers_that_nothing_can_be_done_with():
    cmid = CMID()
    assert (cmid.context, cmid.pd, cmid.event_channel, cmid.qpn) == (None, None, None, None)
    cmid.close()
    for call in (cmid.listen, cmid.connect, cmid.accept, cmid.disconnect, cmid.get_recv_comp):
        with pytest.raises((PyverbsUserError, PyverbsRDMAError)):
            call()
    with pytest.raises(PyverbsRDMAError):
        CMID(5)
    with pytest.raises(TypeError):
        cmid.bind_addr(None)
    with pytest.raises(TypeError):
        JoinMCAttrEx(None)
    with pytest.raises(TypeError):
        UDParam(None)
    with pytest.raises(TypeError):
        cmid.create_qp(None)


def test_there_are_other_port_spaces_but_not_here(closing):
    assert code_of(CMID, closing(CMEventChannel()), port_space=ce.RDMA_PS_IPOIB) == errno.EPROTONOSUPPORT
    assert code_of(AddrInfo, src="::1", port_space=ce.RDMA_PS_IB) == errno.EOPNOTSUPP


def test_connection_parameters_are_a_structure():
    param = ConnParam(qp_num=17, srq=1.5)
    assert param.qpn == 17
    param.qpn = 18
    assert "qp number" in str(param)
    assert param.private_data == b""
    param.set_private_data(b"no room")
    assert param.private_data == b""
    room = ConnParam(data_len=4)
    room.set_private_data(b"longer")
    assert room.private_data == b"long"
    with pytest.raises(OverflowError):
        ConnParam(resources=300)
    with pytest.raises(OverflowError):
        ConnParam(qp_num=-1)


@pytest.mark.parametrize("argument", ["src", "src_service"])
def test_names_are_text(argument):
    with pytest.raises(TypeError, match="expected bytes, int found"):
        AddrInfo(**{argument: 5})


def test_a_domain_that_is_made_of_an_identifier_is_that_ones(here):
    cmid = CMID(creator=AddrInfo(src=here, src_service=PORT, port_space=TCP, flags=ce.RAI_PASSIVE))
    domain = PD(cmid)
    assert (domain.handle, domain.ctx) == (cmid.pd.handle, cmid.context)
    MR(domain, 64, e.IBV_ACCESS_LOCAL_WRITE).close()
    domain.close()
    MR(cmid.pd, 64, e.IBV_ACCESS_LOCAL_WRITE).close()  # it stands
    cmid.close()


def test_an_identifier_without_a_device_has_no_domain():
    with pytest.raises(PyverbsUserError, match="bound to no device"):
        PD(CMID())


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


@pytest.mark.parametrize("how", ["acknowledged", "dropped", "collected"])
def test_a_request_that_nobody_takes_is_rejected(here, closing, how):
    passive_channel, active_channel = closing(CMEventChannel()), closing(CMEventChannel())
    listening(passive_channel, here, closing)
    active = routed(active_channel, here, here, closing)
    active.create_qp(init_attr())
    active.connect(ConnParam())
    asked = expect(passive_channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
    if how == "acknowledged":
        asked.ack_cm_event()
    elif how == "collected":
        ring = [asked]
        ring.append(ring)
        del ring
    del asked
    gc.collect()
    expect(active_channel, ce.RDMA_CM_EVENT_REJECTED)
    assert DEVICES.adapters.users(active._id.local.device) == 2
