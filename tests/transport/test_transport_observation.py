"""What an observer is told of a queue pair, in which order, and that without one nothing is different."""

from pathlib import Path

import pytest

from softhca.queues import cqe, wqe
from softhca.queues.control_fields import EVENT_COMM_EST, EVENT_SRQ_LIMIT_REACHED
from softhca.testing.transport_pair import Faults
from softhca.transport import observation as seen
from softhca.transport.states import ERR, RTR, RTS, SQD, SQE, UC, UD
from softhca.wire import opcodes as op
from softhca.wire.framing import NATIVE, ROCE_V4

DOCUMENT = Path(__file__).parents[2] / "docs" / "reliability.md"
FULL = b"f" * 256


def watch(p):
    """Both sides observed: rows (side, event, psn, state, reason) in the order in which they happened."""
    rows = []
    for side, node, end in (("a", p.a, p.left), ("b", p.b, p.right)):
        node.observer = lambda event, qp, psn, state, reason, side=side, end=end: (
            rows.append((side, event, psn, state, reason)) if qp == end.number else rows.append("not its own")
        )
    return rows


def lose(*which):
    """Lose the packets of these places among those from left to right."""
    count = iter(range(1 << 20))
    return Faults(rule=lambda way, packet: int(way == "ba" or next(count) not in which))


def write(p, psn, payload=b"w", **other):
    p.forge(
        op.RC_RDMA_WRITE_ONLY, psn, payload, va=p.target.va, rkey=p.target.key, length=len(payload), **other
    )


@pytest.fixture
def peer(pair):
    """A pair whose left side is played by the test."""
    p = pair(pmtu=256, left_psn=100, right_psn=500, rd_atomic=2)
    p.target = p.right.region(4096)
    return p


def test_packets_in_order_are_nobodys_business(pair):
    p = pair(pmtu=256)
    rows = watch(p)
    target = p.right.region(4096)
    source = p.left.region(4096, fill=b"x" * 4096)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    p.left.post(wqe.RDMA_READ, [source.sge()], remote=target)
    p.run()
    assert len(p.left.sent()) == 2
    assert rows == []


def test_a_connections_states_are_told_with_their_names(pair):
    p = pair(connect=False)
    rows = watch(p)
    p.connect(p.left, p.right, 1, 2)
    p.left.qp.modify({"qp_state": RTS}, p.now)
    p.left.qp.modify({"qp_state": SQD}, p.now)
    p.left.qp.modify({"qp_state": ERR}, p.now)
    p.left.qp.modify({"qp_state": 0}, p.now)
    p.connect(p.right, p.left, 2, 1)
    p.right.qp.close()
    p.right.qp.close()
    steps = ["RESET>INIT", "INIT>RTR", "RTR>RTS"]
    assert rows == [
        *(("a", "state_changed", -1, step, "modify") for step in [*steps, "RTS>SQD", "SQD>ERR", "ERR>RESET"]),
        *(("b", "state_changed", -1, step, "modify") for step in steps),
        ("b", "state_changed", -1, "RTS>RESET", "destroy"),
    ]


def test_a_lost_packet_is_a_gap_a_nak_and_a_retransmission_from_there(pair):
    p = pair(pmtu=256, left_psn=0xFFFFFF, faults=lose(1))
    rows = watch(p)
    source, target = p.left.region(1024), p.right.region(1024)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    p.run()
    assert rows == [
        ("b", "gap", 1, "RTS", "expected 0"),
        ("b", "nak_sent", 0, "RTS", "sequence_error"),
        ("a", "nak_received", 0, "RTS", "sequence_error"),
        ("a", "retransmission", 0, "RTS", "sequence_error"),
    ]


def test_one_gap_is_told_once(peer):
    rows = watch(peer)
    for psn in (103, 102, 105):
        write(peer, psn)
    assert rows == [("b", "gap", 103, "RTS", "expected 100")]


def test_retries_by_time_out_end_with_the_error_of_the_request(pair):
    p = pair(left_psn=7, retry_cnt=2, faults=Faults(rule=lambda way, packet: 0))
    rows = watch(p)
    for wr_id in (1, 2):
        p.left.post(wqe.SEND, inline=b"x", wr_id=wr_id)
    p.run()
    assert rows == [
        ("a", "retransmission", 7, "RTS", "timeout"),
        ("a", "retransmission", 7, "RTS", "timeout"),
        ("a", "retry_exhausted", 7, "RTS", "timeout"),
        ("a", "send_failed", 7, "RTS", "RETRY_EXC_ERR"),
        ("a", "state_changed", -1, "RTS>ERR", "completion_error"),
        ("a", "send_failed", -1, "ERR", "WR_FLUSH_ERR"),
    ]


def test_a_lost_read_response_is_an_implied_nak_and_the_read_is_answered_again(pair):
    count = iter(range(100))
    p = pair(left_psn=7, faults=Faults(rule=lambda way, packet: int(way == "ab" or next(count) != 0)))
    rows = watch(p)
    local, target = p.left.region(8), p.right.region(8)
    p.left.post(wqe.RDMA_READ, [local.sge()], remote=target)
    p.left.post(wqe.ATOMIC_FETCH_AND_ADD, [local.sge()], remote=target, compare=1)
    p.left.post(wqe.RDMA_WRITE, [local.sge()], remote=target)
    p.run()
    assert rows == [
        ("a", "retransmission", 7, "RTS", "implied_nak"),
        ("b", "duplicate_answered", 7, "RTS", "read"),
        ("b", "duplicate_answered", 8, "RTS", "atomic"),
        ("b", "duplicate_answered", 9, "RTS", "acknowledged"),
    ]


def test_an_rnr_nak_is_told_on_both_sides_and_when_its_wait_is_over(pair):
    p = pair(left_psn=3, min_rnr_timer=2)
    rows = watch(p)
    inbox = p.right.region(8)
    p.left.post(wqe.SEND, inline=b"x")
    while len(rows) < 2:
        p.step()
    p.right.post_receive([inbox.sge()])
    p.run()
    assert rows == [
        ("b", "rnr_nak_sent", 3, "RTS", "wait_ns 20000"),
        ("a", "rnr_nak_received", 3, "RTS", "wait_ns 20000"),
        ("a", "rnr_wait_over", 3, "RTS", ""),
    ]
    assert inbox.data[:1] == b"x"


def test_an_rnr_nak_too_many_is_told(pair):
    p = pair(left_psn=3, rnr_retry=0)
    rows = watch(p)
    p.left.post(wqe.SEND, inline=b"x")
    p.run()
    assert rows == [
        ("b", "rnr_nak_sent", 3, "RTS", "wait_ns 10000"),
        ("a", "rnr_nak_received", 3, "RTS", "wait_ns 10000"),
        ("a", "rnr_retry_exhausted", 3, "RTS", ""),
        ("a", "send_failed", 3, "RTS", "RNR_RETRY_EXC_ERR"),
        ("a", "state_changed", -1, "RTS>ERR", "completion_error"),
    ]


def test_a_refused_key_is_told_on_both_sides(pair):
    p = pair(left_psn=3)
    rows = watch(p)
    p.right.post_receive()
    p.left.post(wqe.RDMA_WRITE, inline=b"x", va=8, rkey=8)
    p.run()
    assert rows == [
        ("b", "state_changed", -1, "RTS>ERR", "remote_access_error"),
        ("b", "receive_failed", -1, "ERR", "WR_FLUSH_ERR"),
        ("b", "nak_sent", 3, "ERR", "remote_access_error"),
        ("a", "nak_received", 3, "RTS", "remote_access_error"),
        ("a", "send_failed", 3, "RTS", "REM_ACCESS_ERR"),
        ("a", "state_changed", -1, "RTS>ERR", "completion_error"),
    ]


def test_a_reserved_nak_is_called_so_and_dropped(pair):
    p = pair(left_psn=3, faults=Faults(rule=lambda way, packet: 0))
    p.left.post(wqe.SEND, inline=b"x")
    p.step()
    rows = watch(p)
    p.forge(op.RC_ACKNOWLEDGE, 3, way="ba", syndrome=0x65)
    assert rows == [
        ("a", "nak_received", 3, "RTS", "reserved"),
        ("a", "packet_dropped", 3, "RTS", "unexpected_response"),
    ]


def test_a_response_to_nothing_is_a_ghost(pair):
    p = pair(left_psn=3)
    rows = watch(p)
    p.forge(op.RC_ACKNOWLEDGE, 9, way="ba")
    assert rows == [("a", "ghost_response", 9, "RTS", "")]


def test_a_repeated_read_that_nobody_remembers_is_dropped(peer):
    rows = watch(peer)
    peer.forge(op.RC_RDMA_READ_REQUEST, 99, va=peer.target.va, rkey=peer.target.key, length=4)
    assert rows == [("b", "packet_dropped", 99, "RTS", "resources")]


def test_a_packet_of_another_service_is_dropped(peer):
    rows = watch(peer)
    peer.forge(op.UC_SEND_ONLY, 100)
    assert rows == [("b", "packet_dropped", 100, "RTS", "service")]


def test_a_packet_in_a_state_without_receiving_is_dropped(peer):
    peer.right.qp.modify({"qp_state": ERR}, peer.now)
    rows = watch(peer)
    write(peer, 100)
    assert rows == [("b", "packet_dropped", 100, "ERR", "state")]


def test_a_response_in_a_state_without_sending_is_dropped(pair):
    p = pair(connect=False)
    p.connect(p.left, p.right, 3, 2, until=RTR)
    rows = watch(p)
    p.forge(op.RC_ACKNOWLEDGE, 3, way="ba")
    assert ("a", "packet_dropped", 3, "RTR", "state") in rows


def test_an_acknowledgement_of_a_reserved_kind_is_dropped(pair):
    p = pair(left_psn=3, faults=Faults(rule=lambda way, packet: 0))
    p.left.post(wqe.SEND, inline=b"x")
    p.step()
    rows = watch(p)
    p.forge(op.RC_ACKNOWLEDGE, 3, way="ba", syndrome=0x40)
    assert rows == [("a", "packet_dropped", 3, "RTS", "unexpected_response")]


def test_a_repeated_read_of_something_else_is_dropped(peer):
    where = {"va": peer.target.va, "rkey": peer.target.key}
    peer.forge(op.RC_RDMA_READ_REQUEST, 100, length=4, **where)
    rows = watch(peer)
    peer.forge(op.RC_RDMA_READ_REQUEST, 100, length=8, **where)
    peer.forge(op.RC_FETCH_ADD, 100, **where)
    assert rows == [
        ("b", "packet_dropped", 100, "RTS", "sequence"),
        ("b", "packet_dropped", 100, "RTS", "resources"),
    ]


def test_a_completion_that_finds_no_room_is_a_change_of_state(pair):
    p = pair(cq_entries=1)
    rows = watch(p)
    target = p.right.region(8)
    for _ in range(2):
        p.left.post(wqe.RDMA_WRITE, inline=b"x", remote=target)
    p.run()
    assert rows == [("a", "state_changed", -1, "RTS>ERR", "completion_lost")]


@pytest.fixture
def uc(pair):
    p = pair(service=UC, pmtu=256, right_psn=0, left_psn=50)
    p.inbox = p.right.region(1024)
    p.right.post_receive([p.inbox.sge()])
    return p, watch(p)


def test_a_gap_in_an_unreliable_message_drops_it_once_and_then_packets(uc):
    p, rows = uc
    p.forge(op.UC_SEND_FIRST, 50, FULL)
    p.forge(op.UC_SEND_MIDDLE, 52, FULL)
    p.forge(op.UC_SEND_LAST, 53, FULL)
    p.forge(op.UC_SEND_ONLY, 54, b"whole")
    assert rows == [
        ("b", "message_dropped", 51, "RTS", "sequence"),
        ("b", "packet_dropped", 53, "RTS", "sequence"),
    ]
    assert p.inbox.data[:5] == b"whole"


def test_an_unreliable_message_without_its_end_is_dropped_when_the_next_begins(uc):
    p, rows = uc
    p.forge(op.UC_SEND_FIRST, 50, FULL)
    p.forge(op.UC_SEND_ONLY, 52, b"whole")
    p.forge(op.UC_SEND_ONLY, 53, b"no receive is left")
    assert rows == [
        ("b", "message_dropped", 51, "RTS", "sequence"),
        ("b", "message_dropped", 53, "RTS", "no_receive"),
    ]


def test_an_unreliable_message_that_is_malformed_is_dropped(uc):
    p, rows = uc
    p.forge(op.UC_SEND_FIRST, 50, b"shor")
    p.forge(op.UC_SEND_ONLY, 51, b"l" * 260)
    assert rows == [
        ("b", "message_dropped", 50, "RTS", "length"),
        ("b", "message_dropped", 51, "RTS", "length"),
    ]


def test_an_unreliable_message_longer_than_its_receive_is_dropped_whole(uc):
    p, rows = uc
    for i in range(4):
        p.forge(op.UC_SEND_MIDDLE if i else op.UC_SEND_FIRST, 50 + i, FULL)
    p.forge(op.UC_SEND_LAST, 54, b"beyond")
    assert rows == [("b", "message_dropped", 54, "RTS", "receive_length")]


def test_an_unreliable_request_that_fails_stops_the_send_side(pair):
    p = pair(service=UC, left_psn=50)
    rows = watch(p)
    p.left.post(wqe.RDMA_READ, [], wr_id=1)
    p.run()
    assert p.left.qp.state == SQE
    assert [row[1:] for row in rows] == [
        ("send_failed", -1, "RTS", "LOC_QP_OP_ERR"),
        ("state_changed", -1, "RTS>SQE", "completion_error"),
    ]


@pytest.mark.parametrize(
    ("reason", "changes", "receive"),
    [
        ("qkey", {"qkey": 1}, True),
        ("length", {"payload": b"l" * 260}, True),
        ("no_receive", {}, False),
        ("receive_length", {"payload": b"l" * 64}, True),
    ],
)
def test_a_datagram_that_cannot_be_delivered_is_a_dropped_message(pair, reason, changes, receive):
    p = pair(service=UD, pmtu=256)
    rows = watch(p)
    inbox = p.right.region(48)
    if receive:
        p.right.post_receive([inbox.sge()])
    p.forge(op.UD_SEND_ONLY, 9, **changes)
    assert rows == [("b", "message_dropped", 9, "RTS", reason)]


def test_statuses_and_events_have_the_verbs_names():
    for number, name in enumerate(seen.STATUS_NAMES):
        assert getattr(cqe, f"WC_{name}") == number
    assert seen.ASYNC_EVENT_NAMES[EVENT_COMM_EST] == "COMM_EST"
    assert seen.ASYNC_EVENT_NAMES[EVENT_SRQ_LIMIT_REACHED] == "SRQ_LIMIT_REACHED"
    assert len(seen.NAK_NAMES) == 32


BTH = bytes([0x0A, 0, 0xFF, 0xFF, 0, 0x12, 0x34, 0x56, 0, 0xAB, 0xCD, 0xEF])


@pytest.mark.parametrize(
    ("packet", "framing", "found"),
    [
        (BTH, ROCE_V4, (0x123456, 0xABCDEF)),
        (BTH[:11], ROCE_V4, (-1, -1)),
        (bytes([0, 2]) + bytes(6) + BTH, NATIVE, (0x123456, 0xABCDEF)),
        (bytes([0, 3]) + bytes(46) + BTH, NATIVE, (0x123456, 0xABCDEF)),
        (bytes([0, 3]) + bytes(6) + BTH, NATIVE, (-1, -1)),
        (b"", NATIVE, (-1, -1)),
    ],
)
def test_what_a_dropped_packet_says_of_itself(packet, framing, found):
    assert seen.addressed(packet, framing) == found


def test_the_document_lists_every_event():
    rows = [
        f"| `{event}` | {meaning} | {psn} | {reason} |"
        for event, (meaning, psn, reason) in seen.EVENTS.items()
    ]
    assert "\n".join(rows) in DOCUMENT.read_text()


@pytest.mark.parametrize(("lnh", "found"), [
    (0, (-1, -1)), (1, (-1, -1)), (2, (0x123456, 0xABCDEF)), (3, (0x654321, 0xFEDCBA)),
])  # fmt: skip
@pytest.mark.parametrize("level", [0, 1, 15])
def test_what_follows_the_lrh_is_told_by_two_bits_and_not_by_the_service_level(lnh, found, level):
    packet = bytearray(8 + 40 + 12)
    packet[1] = level << 4 | 0xC | lnh
    packet[8 + 5 : 8 + 8], packet[8 + 9 : 8 + 12] = b"\x12\x34\x56", b"\xab\xcd\xef"
    packet[48 + 5 : 48 + 8], packet[48 + 9 : 48 + 12] = b"\x65\x43\x21", b"\xfe\xdc\xba"
    assert seen.addressed(bytes(packet), NATIVE) == found


def test_an_event_of_a_queue_pair_is_told_of_it_and_any_other_by_its_element():
    told = []
    seen.observe_event(lambda *row: told.append(row), EVENT_COMM_EST, 7)
    seen.observe_event(lambda *row: told.append(row), EVENT_SRQ_LIMIT_REACHED, 8)
    assert told == [
        (seen.ASYNC_EVENT, 7, -1, "", "COMM_EST"), (seen.ASYNC_EVENT, -1, -1, "", "SRQ_LIMIT_REACHED 8"),
    ]  # fmt: skip
