"""RDMA CM out of its order: every call in every state of an identifier, over IPv4 and IPv6, for connections
and for datagrams.  What cannot be is refused with an errno and a text, and what can be goes on as before.
"""

import errno

import pytest
from cm_identifiers import PORT, TCP, UDP, connected, expect, init_attr, listening, routed

from softhca.driver import registry
from softhca.runtime import devices
from softhca.verbs import cm_enums as ce
from softhca.verbs.addr import AH
from softhca.verbs.cmid import CMID, AddrInfo, CMEventChannel, ConnParam, JoinMCAttrEx, UDParam
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.qp import ECE

PLACES = {"ipv4": None, "ipv6": "::1"}
GROUPS = {"ipv4": "239.9.5.7", "ipv6": "ff0e::9:5:7"}


@pytest.fixture(params=list(PLACES))
def family(request):
    return request.param


@pytest.fixture
def here(family, loopback_address):
    """The address of the one device of this process."""
    registry.names()
    address = PLACES[family] or loopback_address()
    place = f"[{address}]" if ":" in address else address
    devices.add(f"cmorder0=udp:{place}?same_host=0", "embedded")
    yield address
    devices.remove("cmorder0")


def fresh(here, space, closing):
    return closing(CMID(creator=closing(CMEventChannel()), port_space=space))


def bound(here, space, closing):
    made = fresh(here, space, closing)
    made.bind_addr(AddrInfo(src=here, src_service="0", port_space=space, flags=ce.RAI_PASSIVE))
    return made


def resolved(here, space, closing):
    channel = closing(CMEventChannel())
    made = closing(CMID(creator=channel, port_space=space))
    made.resolve_addr(AddrInfo(src=here, dst=here, dst_service=PORT, port_space=space))
    expect(channel, ce.RDMA_CM_EVENT_ADDR_RESOLVED)
    return made


def with_route(here, space, closing):
    return routed(closing(CMEventChannel()), here, here, closing, space)


def with_queue_pair(here, space, closing):
    made = with_route(here, space, closing)
    made.create_qp(init_attr(space))
    return made


def listener(here, space, closing):
    return listening(closing(CMEventChannel()), here, closing, space)


def active_end(here, space, closing):
    return connected(here, here, closing, space)[0]


def passive_end(here, space, closing):
    return connected(here, here, closing, space)[1]


def ended(here, space, closing):
    made = active_end(here, space, closing)
    if space == TCP:
        made.disconnect()
    return made


def closed(here, space, closing):
    made = bound(here, space, closing)
    made.close()
    return made


STATES = (
    fresh, bound, resolved, with_route, with_queue_pair, listener, active_end, passive_end, ended, closed,
)  # fmt: skip


def calls(here, family, space, closing):
    """Everything that a program can do with an identifier, and its bad arguments."""
    info = AddrInfo(src=here, dst=here, dst_service=PORT, port_space=space)
    nowhere = AddrInfo(src=here, src_service="0", port_space=space, flags=ce.RAI_PASSIVE)
    group = AddrInfo(src=GROUPS[family], port_space=space, flags=ce.RAI_PASSIVE)
    other = AddrInfo(
        src=GROUPS["ipv6" if family == "ipv4" else "ipv4"], port_space=space, flags=ce.RAI_PASSIVE
    )
    memory = bytearray(64)
    return {
        "bind": lambda cmid: cmid.bind_addr(nowhere),
        "bind a group": lambda cmid: cmid.bind_addr(group),
        "resolve nowhere": lambda cmid: cmid.resolve_addr(nowhere),
        "accept too much": lambda cmid: cmid.accept(ConnParam(resources=254, depth=254)),
        "connect too much": lambda cmid: cmid.connect(ConnParam(resources=254)),
        "accept": lambda cmid: cmid.accept(ConnParam()),
        "reject": lambda cmid: cmid.reject(),
        "reject with too much": lambda cmid: cmid.reject(bytes(300)),
        "establish": lambda cmid: cmid.establish(),
        "leave": lambda cmid: cmid.leave_multicast(group),
        "join the other version": lambda cmid: cmid.join_multicast(other),
        "join nothing": lambda cmid: cmid.join_multicast(),
        "join without an address": lambda cmid: cmid.join_multicast(mc_attr=JoinMCAttrEx(group, comp_mask=0)),
        "INIT": lambda cmid: cmid.init_qp_attr(1), "RTR": lambda cmid: cmid.init_qp_attr(2),
        "RTS": lambda cmid: cmid.init_qp_attr(3), "a state that is none": lambda cmid: cmid.init_qp_attr(99),
        "query": lambda cmid: cmid.query_qp(1),
        "type of service": lambda cmid: cmid.set_option(0, 0, 256, 1),
        "reuse": lambda cmid: cmid.set_option(0, 1, 1, 4),
        "time-out": lambda cmid: cmid.set_option(0, 3, 99, 1),
        "option": lambda cmid: cmid.set_option(0, 77, 1, 1),
        "level": lambda cmid: cmid.set_option(9, 0, 1, 1),
        "request": lambda cmid: cmid.get_request(), "addrinfo": lambda cmid: cmid.query_addrinfo(),
        "ece": lambda cmid: cmid.set_local_ece(ECE(vendor_id=1)),
        "receive": lambda cmid: cmid.post_recv(cmid.reg_msgs(64), 64),
        "send": lambda cmid: cmid.post_send(cmid.reg_msgs(64), 0, 9999),
        "a closed channel": lambda cmid: cmid.migrate(_closed_channel()),
        "name": lambda cmid: cmid.dev_name, "resolve the route": lambda cmid: cmid.resolve_route(),
        "resolve": lambda cmid: cmid.resolve_addr(info), "listen": lambda cmid: cmid.listen(-1),
        "listen far": lambda cmid: cmid.listen(1 << 20),
        "make": lambda cmid: (cmid.create_qp(init_attr(space)), cmid.create_qp(init_attr(space))),
        "connect": lambda cmid: cmid.connect(ConnParam()), "disconnect": lambda cmid: cmid.disconnect(),
        "memory": lambda cmid: memory and cmid.reg_read(0),
    }  # fmt: skip


def _closed_channel():
    channel = CMEventChannel()
    channel.close()
    return channel


@pytest.mark.parametrize("space", [TCP, UDP], ids=["tcp", "udp"])
@pytest.mark.parametrize("state", STATES, ids=[each.__name__ for each in STATES])
def test_what_cannot_be_is_refused_with_an_errno(here, family, closing, space, state):
    made = state(here, space, closing)
    codes = {}
    for name, call in calls(here, family, space, closing).items():
        try:
            call(made)
        except PyverbsRDMAError as error:
            codes[name] = error.error_code
        except (PyverbsUserError, OverflowError):
            codes[name] = errno.EINVAL
    assert set(codes.values()) <= set(errno.errorcode), codes
    assert len(codes) > 10


@pytest.mark.parametrize("space", [TCP, UDP], ids=["tcp", "udp"])
def test_refused_calls_leave_the_connection_as_it_is(here, family, closing, space):
    """An identifier that has refused everything connects as if nobody had asked."""
    passive_channel, active_channel = closing(CMEventChannel()), closing(CMEventChannel())
    waiting = listening(passive_channel, here, closing, space)
    active = routed(active_channel, here, here, closing, space)
    active.create_qp(init_attr(space))
    wrong = calls(here, family, space, closing)
    for name in ("bind", "resolve nowhere", "accept", "reject", "establish", "join nothing", "leave",
                 "join the other version", "option", "level", "time-out",
                 *(["connect too much"] if space == TCP else [])):  # fmt: skip
        with pytest.raises((PyverbsRDMAError, PyverbsUserError)):
            wrong[name](active)
        with pytest.raises((PyverbsRDMAError, PyverbsUserError)):
            wrong[name](waiting)
    active.connect(ConnParam())
    asked = expect(passive_channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
    passive = closing(CMID(creator=asked, listen_id=waiting))
    passive.create_qp(init_attr(space))
    for name in ("bind", "listen", "resolve", "resolve the route", "establish",
                 *(["accept too much"] if space == TCP else [])):  # fmt: skip
        with pytest.raises((PyverbsRDMAError, PyverbsUserError)):
            wrong[name](passive)
    passive.accept(ConnParam())
    expect(active_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
    memory = passive.reg_msgs(64)
    if space == TCP:
        passive.post_recv(memory, 64)
        sent = active.reg_msgs(64)
        sent.write(b"still there", 11)
        active.post_send(sent, 0, 11)
        assert active.get_send_comp().status == 0
        assert passive.get_recv_comp().byte_len == 11
        assert memory.read(11, 0) == b"still there"


def member(here, family, closing):
    """A datagram identifier that is in the group, and where the group is."""
    channel = closing(CMEventChannel())
    made = closing(CMID(creator=channel, port_space=UDP))
    made.resolve_addr(AddrInfo(src=here, dst=here, dst_service=PORT, port_space=UDP))
    expect(channel, ce.RDMA_CM_EVENT_ADDR_RESOLVED)
    made.create_qp(init_attr(UDP))
    made.join_multicast(addr=AddrInfo(src=GROUPS[family], port_space=UDP, flags=ce.RAI_PASSIVE))
    return made, UDParam(expect(channel, ce.RDMA_CM_EVENT_MULTICAST_JOIN))


def test_members_of_a_group_hear_each_other_over_either_ip_version(here, family, closing):
    sender, group = member(here, family, closing)
    receiver, _ = member(here, family, closing)
    heard = receiver.reg_msgs(64 + 40)
    receiver.post_recv(heard)
    sent = sender.reg_msgs(64)
    sent.write(b"to all", 6)
    sender.post_ud_send(sent, AH(sender.pd, attr=group.ah_attr), rqpn=group.qp_num, length=6)
    assert sender.get_send_comp().status == 0
    assert receiver.get_recv_comp().status == 0
    assert heard.read(6, 40) == b"to all"


def test_a_request_is_rejected_with_a_reason_and_its_events_move(here, closing):
    """The refused side has its events on a channel that it was moved to meanwhile."""
    passive_channel, first, second = (closing(CMEventChannel()) for _ in range(3))
    waiting = listening(passive_channel, here, closing)
    active = routed(first, here, here, closing)
    active.create_qp(init_attr())
    active.connect(ConnParam())
    active.migrate(second)
    asked = expect(passive_channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
    passive = closing(CMID(creator=asked, listen_id=waiting))
    passive.reject(b"not today")
    refused = expect(second, ce.RDMA_CM_EVENT_REJECTED)
    assert refused.status == 28
    assert refused.private_data[:9] == b"not today"
    with pytest.raises(PyverbsRDMAError):
        passive.accept(ConnParam())
