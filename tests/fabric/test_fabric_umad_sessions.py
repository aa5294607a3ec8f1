"""The simulator protocol of libumad2sim: control datagrams, packets, programs that come and go."""

from __future__ import annotations

import errno

import pytest
from mad_tools import smp

from softhca.fabric import umad_sessions as u
from softhca.fabric.generators import fat_tree
from softhca.fabric.mad_plane import Datagram, MadPlane
from softhca.fabric.notices import NEVER_NS
from softhca.fabric.topology import End, Link, NodeKind, Topology, make_node
from softhca.fabric.umad_requests import LIMIT_NS, MOST, UnansweredRequests
from softhca.management import constants as c
from softhca.management import rmpp
from softhca.management.administration_attributes import AdministrationHeader
from softhca.management.attributes import NodeInfo, PortInfo
from softhca.management.mad import Mad, MadHeader


def sessions() -> u.UmadSessions:
    return u.UmadSessions(MadPlane(fat_tree(4)))


def ask(
    at: u.UmadSessions, kind: int, session: int = 0, data: bytes = b"", origin: str = "a"
) -> tuple[int, bytes]:
    reply = at.control(u.CONTROL.pack(u.MAGIC, session, kind, len(data), data), origin, 0)
    assert reply is not None
    magic, _, told, _, answer = u.CONTROL.unpack(reply)
    assert magic == u.MAGIC
    return told, answer


def connect(at: u.UmadSessions, name: bytes = b"", origin: str = "a") -> u.Session:
    told, answer = ask(at, u.CONNECT, data=u._CONNECT.pack(4711, 0, 0, name), origin=origin)
    assert told == u.CONNECT
    return at.sessions[u._CONNECT.unpack_from(answer)[0]]


def packet(mad: Mad, dlid: int = 0xFFFF) -> bytes:
    return u.PACKET.pack(dlid, dlid, 0, 0, 0, 256, mad.encode())


def test_a_program_attaches_where_it_says() -> None:
    at = sessions()
    topology = at.plane.topology
    for name, node in ((b"", 0), (b"h5", 5), (topology.nodes[20].name.encode(), 20)):
        session = connect(at, name)
        assert session.endpoint.node.index == node
        assert session.peer_id == 4711
    assert ask(at, u.CONNECT, data=u._CONNECT.pack(1, 0, 0, b"nobody"))[0] == u.ERROR
    assert u.attachment(topology, "h5") == End(5, 1)
    assert u.attachment(topology, topology.nodes[20].name) == End(20, 0)


def test_numbers_of_the_protocol() -> None:
    """They are those of umad2sim's messages: programs that it was put in front of send them."""
    assert (u.CONNECT, u.DISCONNECT, u.GET_PORT, u.GET_VENDOR, u.GET_GID, u.GET_GUID) == (1, 2, 3, 4, 5, 6)
    assert (u.ERROR, u.GET_NODEINFO, u.GET_PORTINFO, u.SET_IS_SM, u.GET_PKEYS) == (0, 7, 8, 9, 10)
    assert u.TIMED_OUT == errno.ETIMEDOUT


def test_what_a_program_is_told_of_its_port() -> None:
    at = sessions()
    session = connect(at, b"h3")
    node, port = at.plane.nodes[3], at.plane.nodes[3].ports[1]
    assert port is not None
    assert NodeInfo.decode(ask(at, u.GET_NODEINFO)[1]).node_guid == node.node.guid
    for number in (0, 1):
        assert PortInfo.decode(ask(at, u.GET_PORTINFO, data=bytes([number]))[1]) == port.info
    assert ask(at, u.GET_PORTINFO, data=b"\2")[0] == u.ERROR
    assert ask(at, u.GET_PORT)[1][:3] == bytes([0, 0, 2])
    assert ask(at, u.GET_GUID)[1][:8] == node.node.port_guid(1).to_bytes(8, "big")
    assert ask(at, u.GET_GID)[1][:16] == bytes.fromhex("fe80000000000000") + node.node.port_guid(1).to_bytes(
        8, "big"
    )
    assert ask(at, u.GET_PKEYS)[1][:4] == b"\xff\xff\0\0"
    assert ask(at, u.GET_VENDOR)[0] == u.GET_VENDOR
    assert ask(at, u.SET_IS_SM, data=b"\1\0\0\0")[0] == u.SET_IS_SM
    assert session.endpoint.is_manager
    assert port.info.capability_mask & 2
    assert ask(at, u.SET_IS_SM, data=bytes(4))[0] == u.SET_IS_SM
    assert not port.info.capability_mask & 2
    assert ask(at, u.SET_IS_SM, data=b"\0\1\0\0")[0] == u.SET_IS_SM  # a number of four bytes
    assert session.endpoint.is_manager


def test_a_program_that_has_gone_gets_nothing_any_more() -> None:
    at = sessions()
    manager, session = manager_of(at), connect(at)
    at.disconnect(manager, 0)
    at.receive(session, manager_s_state(1), 1)
    assert not manager.outgoing
    assert transactions(session) == [(u.TIMED_OUT, 1)]


def test_only_who_has_connected_may_use_a_session() -> None:
    at = sessions()
    connect(at, b"h3", "a")
    for kind in (u.GET_NODEINFO, u.SET_IS_SM, u.DISCONNECT):
        assert ask(at, kind, origin="b")[0] == u.ERROR
        assert ask(at, kind, session=7)[0] == u.ERROR
    assert ask(at, 99)[0] == u.ERROR
    assert at.counters["control_bad"] == 7
    assert ask(at, u.DISCONNECT)[0] == u.DISCONNECT
    assert ask(at, u.GET_NODEINFO)[0] == u.ERROR


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 80, b"\xff" * 80, b"\xef\xbe\xad\xde" * 30, b"\xef\xbe\xad\xde"]
)
def test_what_is_no_control_datagram_has_no_reply(data: bytes) -> None:
    at = sessions()
    assert at.control(data, "a", 0) is None
    assert at.counters["control_bad"] == 1


def test_sessions_are_bounded_and_used_again() -> None:
    at = sessions()
    all_of_them = [connect(at, origin=f"{number}") for number in range(u.MOST_SESSIONS)]
    assert ask(at, u.CONNECT, data=u._CONNECT.pack(1, 0, 0, b""))[0] == u.ERROR
    assert at.opened == all_of_them
    at.disconnect(all_of_them[4], 0)
    assert at.closed == [all_of_them[4]]
    at.receive(all_of_them[3], manager_s_state(1), 0)  # it comes back: nobody answers
    assert at.ready == {all_of_them[3]}
    at.disconnect(all_of_them[3], 0)
    assert at.ready == set()
    assert connect(at).number == 3
    assert connect(at).number == 4


def test_a_request_is_answered_and_one_that_nobody_answers_comes_back() -> None:
    at = sessions()
    session = connect(at)
    mad = smp(c.CLASS_SUBN_DIRECTED, 1, c.ATTRIBUTE_NODE_INFO, 0, b"", 0, 0x0123_0004_0000_0009, [1], 0xFFFF)
    at.receive(session, packet(mad), 0)
    assert at.ready == {session}
    answer = u.PACKET.unpack(session.outgoing.popleft())
    assert answer[4:6] == (0, 256)
    told = Mad.decode(answer[6])
    assert (told.header.method, told.header.transaction_id) == (0x81, mad.header.transaction_id)
    lost = smp(c.CLASS_SUBN_DIRECTED, 1, c.ATTRIBUTE_NODE_INFO, 0, b"", 0, 7, [1, 3, 3, 3], 0xFFFF)
    lost = Mad(lost.header, lost.body[:106] + bytes([99]) + lost.body[107:])
    at.receive(session, packet(lost), 0)
    back = u.PACKET.unpack(session.outgoing.popleft())
    assert back[4] == u.TIMED_OUT
    assert back[6] == lost.encode()
    at.receive(session, packet(Mad.make(MadHeader(management_class=1, method=c.METHOD_TRAP)), 9), 0)
    assert not session.outgoing
    assert at.counters == {
        "control": 1, "control_bad": 0, "packets": 3, "packets_bad": 0, "timed_out": 1, "drops_full": 0,
    }  # fmt: skip


def manager_of(at: u.UmadSessions, number: int = 0) -> u.Session:
    """One more program, a subnet manager at the first host."""
    made = connect(at, origin=f"manager {number}")
    at.plane.set_manager(made.endpoint, True, 0)
    return made


def manager_s_state(transaction: int) -> bytes:
    """A request to the subnet manager at a program's own host."""
    mad = smp(c.CLASS_SUBN_DIRECTED, 1, c.ATTRIBUTE_SM_INFO, 0, b"", 0, transaction, [], 0xFFFF)
    return packet(mad)


def answer_to(data: bytes) -> bytes:
    """What a manager answers to a request as it got it."""
    fields = list(u.PACKET.unpack(data))
    mad = bytearray(fields[6])
    mad[3] |= c.RESPONSE
    mad[4] |= 0x80
    return u.PACKET.pack(*fields[:6], bytes(mad))


def transactions(session: u.Session) -> list[tuple[int, int]]:
    """The status and the transaction of what a program would read now."""
    waiting = [u.PACKET.unpack(each) for each in session.outgoing]
    session.outgoing.clear()
    return [(each[4], int.from_bytes(each[6][8:16], "big")) for each in waiting]


def test_a_request_that_a_program_does_not_answer_comes_back_after_a_while() -> None:
    at = sessions()
    manager, session = manager_of(at), connect(at)
    assert at.next_deadline_ns == NEVER_NS
    for transaction, now in ((7, 100), (8, 200), (9, 300)):
        at.receive(session, manager_s_state(transaction), now)
    assert len(session.requests) == len(manager.outgoing) == 3
    at.receive(manager, answer_to(manager.outgoing[0]), 400)
    assert transactions(session) == [(0, 7)]
    assert at.next_deadline_ns == 200 + LIMIT_NS
    at.receive(session, manager_s_state(8), 500)  # asked again: it waits anew
    assert at.next_deadline_ns == 300 + LIMIT_NS
    at.expire(299 + LIMIT_NS)
    assert transactions(session) == []
    at.expire(300 + LIMIT_NS)
    assert transactions(session) == [(u.TIMED_OUT, 9)]
    assert at.next_deadline_ns == 500 + LIMIT_NS
    at.expire(500 + LIMIT_NS)
    assert transactions(session) == [(u.TIMED_OUT, 8)]
    assert (at.next_deadline_ns, at.counters["timed_out"]) == (NEVER_NS, 2)
    assert at.ready == {session, manager}
    at.receive(manager, answer_to(manager.outgoing[1]), 600 + LIMIT_NS)
    assert transactions(session) == [(0, 8)]  # late, but it is an answer


def test_requests_of_a_program_that_goes_come_back_at_once_and_no_others() -> None:
    at = sessions()
    first, session, other = manager_of(at), connect(at), connect(at)
    at.receive(session, manager_s_state(1), 0)
    at.receive(first, manager_s_state(5), 0)  # to itself
    at.plane.set_manager(first.endpoint, False, 0)
    second = manager_of(at, 1)
    at.receive(session, manager_s_state(2), 0)
    at.receive(other, manager_s_state(3), 0)
    assert len(first.requests) == 1
    at.disconnect(first, 9)
    assert (transactions(session), transactions(other)) == ([(u.TIMED_OUT, 1)], [])
    at.disconnect(second, 9)
    assert (transactions(session), transactions(other)) == ([(u.TIMED_OUT, 2)], [(u.TIMED_OUT, 3)])
    assert at.next_deadline_ns == NEVER_NS


def test_an_answer_that_finds_no_room_leaves_its_request_waiting() -> None:
    at = sessions()
    manager, session = manager_of(at), connect(at)
    at.receive(session, manager_s_state(1), 0)
    session.outgoing.extend([b""] * u.MOST_WAITING)
    at.receive(manager, answer_to(manager.outgoing[0]), 0)
    assert len(session.requests) == 1
    dropped = at.counters["drops_full"]
    at.expire(LIMIT_NS)  # no room for this, either: it is given up, and counted
    assert (len(session.requests), len(session.outgoing)) == (0, u.MOST_WAITING)
    assert (at.counters["timed_out"], at.counters["drops_full"]) == (0, dropped + 1)


def test_of_too_many_requests_the_oldest_comes_back() -> None:
    at = sessions()
    manager, session = manager_of(at), connect(at)
    for transaction in range(MOST):
        at.receive(session, manager_s_state(transaction), 0)
        manager.outgoing.clear()
    assert transactions(session) == []
    at.receive(session, manager_s_state(MOST), 0)
    assert transactions(session) == [(u.TIMED_OUT, 0)]
    assert len(session.requests) == MOST


def test_packets_that_are_none_are_counted_and_a_program_that_does_not_read_is_bounded() -> None:
    at = sessions()
    session = connect(at)
    for bad in (b"", bytes(287), bytes(289), bytes(288)):
        at.receive(session, bad, 0)
    assert at.counters["packets_bad"] == 4
    mad = packet(smp(c.CLASS_SUBN_DIRECTED, 1, c.ATTRIBUTE_NODE_INFO, 0, b"", 0, 1, [], 0xFFFF))
    for _ in range(u.MOST_WAITING + 5):
        at.receive(session, mad, 0)
    assert len(session.outgoing) == u.MOST_WAITING
    assert at.counters["drops_full"] >= 5


def test_who_answers_nobody_hears_nothing_of_it() -> None:
    at = sessions()
    session = connect(at)
    for method in (0x81, 0x92):
        at.receive(session, packet(Mad.make(MadHeader(management_class=3, method=method)), 9), 0)
    assert (at.counters["packets"], at.counters["timed_out"], len(session.outgoing)) == (2, 0, 0)


@pytest.mark.parametrize(
    ("record_bytes", "length", "told"),
    [(64, 100, 100), (64, 56 + 168, 224), (64, 56 + 169, 56 + 128), (112, 1000, 56 + 112),
     (168, 1000, 56 + 168), (176, 1000, 56 + 176), (200, 1000, 256), (0, 1000, 256)],
)  # fmt: skip
def test_a_program_is_told_of_whole_records_and_of_one_at_least(
    record_bytes: int, length: int, told: int
) -> None:
    header = AdministrationHeader(attribute_offset=record_bytes // 8).encode()
    assert u._shown_bytes(bytes(rmpp.HEADER_AT) + header + bytes(200), length) == told


def test_a_node_is_named_by_its_description_too() -> None:
    nodes = (
        make_node("a", NodeKind.SWITCH, 2, 0x100, description="the switch"),
        make_node("b", NodeKind.CHANNEL_ADAPTER, 2, 0x200, description="the host"),
    )
    topology = Topology(nodes, (Link(End(0, 1), End(1, 2)),))
    for name, end in (("", End(1, 2)), ("b", End(1, 2)), ("the host", End(1, 2)), ("the switch", End(0, 0))):
        assert u.attachment(topology, name) == end
    assert u.attachment(topology, "the") is None


def test_of_several_linked_ports_a_program_takes_the_first() -> None:
    nodes = (
        make_node("a", NodeKind.SWITCH, 2, 0x100),
        make_node("b", NodeKind.CHANNEL_ADAPTER, 3, 0x200),
    )
    topology = Topology(nodes, (Link(End(0, 1), End(1, 2)), Link(End(0, 2), End(1, 3))))
    assert u.attachment(topology, "b") == End(1, 2)


def test_a_long_name_is_told_with_its_end() -> None:
    name = "n" * 40
    nodes = (make_node(name, NodeKind.CHANNEL_ADAPTER, 1, 0x200),)
    at = u.UmadSessions(MadPlane(Topology(nodes, ())))
    answer = ask(at, u.CONNECT, data=u._CONNECT.pack(1, 0, 0, b""))[1]
    assert u._CONNECT.unpack_from(answer)[3] == b"n" * 31 + b"\0"


def test_an_answer_is_told_by_its_class_and_by_the_program_s_part_of_the_transaction() -> None:
    """The upper 16 bits are the plane's while a request is under way."""
    requests = UnansweredRequests()

    def mad(management_class: int, transaction: int) -> bytes:
        header = MadHeader(management_class=management_class, method=1, transaction_id=transaction)
        return Mad.make(header).encode()

    for management_class in (1, 3):
        requests.add(Datagram(1, 1, 0, 0, mad(management_class, 0x0123_0000_0000_0009)), None, 0)
    assert len(requests) == 2
    for other in (0x0123_0000_0001_0009, 0x0123_0001_0000_0009):
        requests.answered(mad(3, other))
        assert len(requests) == 2
    requests.answered(mad(3, 9))
    assert [each.data[1] for each in requests.expired(LIMIT_NS)] == [1]


def test_the_same_transaction_at_two_ports_is_two_requests() -> None:
    """Each is answered by the port that it went to, and the other one is still waited for."""
    at = sessions()
    beside = at.plane.topology.peer(1, 1)
    assert beside is not None
    near, far = manager_of(at), connect(at, b"h1", origin="far")
    at.plane.set_manager(far.endpoint, True, 0)
    session = connect(at)
    for now, way in enumerate(([], [1, beside.port])):
        mad = smp(c.CLASS_SUBN_DIRECTED, 1, c.ATTRIBUTE_SM_INFO, 0, b"", 0, 9, way, 0xFFFF)
        at.receive(session, packet(mad), now)
    assert [len(each) for each in (near.outgoing, far.outgoing, session.requests)] == [1, 1, 2]
    at.receive(far, answer_to(far.outgoing[0]), 5)
    assert transactions(session) == [(0, 9)]
    assert at.next_deadline_ns == LIMIT_NS
    at.disconnect(near, 6)
    assert transactions(session) == [(u.TIMED_OUT, 9)]
    assert at.next_deadline_ns == NEVER_NS


def test_a_request_that_no_program_has_does_not_come_back_with_another_one() -> None:
    """It has gone to an endpoint that is no program of this protocol."""
    at = sessions()
    manager, session = manager_of(at), connect(at)
    at.receive(session, manager_s_state(1), 0)
    at.plane.set_manager(manager.endpoint, False, 0)
    own = at.plane.attach(End(0, 1), lambda datagram: True)
    at.plane.set_manager(own, True, 0)
    at.receive(session, manager_s_state(2), 0)
    at.disconnect(manager, 5)
    assert transactions(session) == [(u.TIMED_OUT, 1)]


def administration(at: u.UmadSessions, *, slid: int = 0, length: int = 256) -> tuple[u.Session, u.Session]:
    """A manager, and a program beside it, both at LID 5, that has asked it for records from QP 3."""
    manager, session = manager_of(at), connect(at)
    manager.endpoint.port.change(lid=5)
    header = MadHeader(management_class=c.CLASS_SUBN_ADM, class_version=2, method=0x12, transaction_id=9)
    at.receive(session, u.PACKET.pack(5, slid, 1, 3, 0, length, Mad.make(header).encode()), 7)
    assert len(manager.outgoing) == 1
    return manager, session


@pytest.mark.parametrize(("slid", "seen"), [(0, 5), (5, 5), (0xFFFF, 0xFFFF)])
def test_whoever_names_no_lid_of_his_own_sends_from_his_port_s(slid: int, seen: int) -> None:
    manager, _ = administration(sessions(), slid=slid)
    assert u.PACKET.unpack(manager.outgoing[0])[:4] == (5, seen, 1, 3)


@pytest.mark.parametrize(("length", "seen"), [(200, 200), (256, 256), (257, 256), (1 << 31, 256)])
def test_no_datagram_is_longer_than_it_is(length: int, seen: int) -> None:
    manager, _ = administration(sessions(), length=length)
    assert u.PACKET.unpack(manager.outgoing[0])[5] == seen


@pytest.mark.parametrize(
    ("flags", "segment", "payload", "stopped"),
    [
        (rmpp.ACTIVE | rmpp.FIRST, 1, 440, True),
        (rmpp.ACTIVE | rmpp.FIRST, 1, 0, True),  # a sender need not say how much it will be
        (rmpp.ACTIVE | rmpp.FIRST | rmpp.LAST, 1, 220, False),
        (rmpp.ACTIVE | rmpp.FIRST | rmpp.LAST, 1, 221, True),
        (rmpp.ACTIVE, 2, 440, False),
    ],
)
def test_who_sends_more_than_a_segment_is_told_to_stop(
    flags: int, segment: int, payload: int, stopped: bool
) -> None:
    at = sessions()
    manager, session = administration(at)
    dlid, slid, dqpn, sqpn, _, _, mad = u.PACKET.unpack(manager.outgoing.popleft())
    answer = bytearray(mad)
    answer[3] |= c.RESPONSE
    front = AdministrationHeader(
        rmpp_version=rmpp.VERSION, rmpp_type=rmpp.DATA, rmpp_flags=flags, segment_number=segment,
        payload_length=payload,
    ).encode()  # fmt: skip
    answer[rmpp.HEADER_AT : rmpp.HEADER_AT + len(front)] = front
    at.receive(manager, u.PACKET.pack(slid, dlid, sqpn, dqpn, 0, 256, bytes(answer)), 30)
    assert len(session.outgoing) == 1
    assert len(manager.outgoing) == stopped
    if stopped:
        told = u.PACKET.unpack(manager.outgoing[0])
        assert told[:4] == (5, 5, 1, 3)
        assert AdministrationHeader.decode(told[6], rmpp.HEADER_AT).rmpp_type == rmpp.STOP
        assert at.plane.now_ns == 30
