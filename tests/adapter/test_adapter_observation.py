"""What an adapter tells its observer: packets that it drops itself, and events that it tells a host."""

import pytest

from softhca.testing import SENT
from softhca.testing.ends import SEND, End, connect, pair, post
from softhca.testing.network import Network
from softhca.transport.states import ERR


def watch(node):
    rows = []
    node.adapter.observer = lambda *row: rows.append(row)
    return rows


@pytest.fixture
def ends():
    world, left, left_qp, right, right_qp = pair()
    yield world, left, left_qp, right, right_qp
    world.close()


def test_a_damaged_packet_is_told_with_what_it_says_of_itself(ends):
    world, left, left_qp, right, right_qp = ends
    rows = watch(right.node)
    world.tamper = lambda sent: sent.data[:-1] + bytes([sent.data[-1] ^ 1])
    sent = world.record(SENT)
    post(left_qp, SEND, [left.sge(0, 8)])
    world.run(lambda: bool(rows))
    psn = int.from_bytes(sent[0].data[9:12], "big")
    assert rows == [("packet_dropped", right_qp.number, psn, "", "icrc")]


def test_a_packet_that_is_no_packet_is_told_without_an_address(ends):
    world, left, _, right, _ = ends
    rows = watch(right.node)
    world.inject(right.node, b"12345678", left.node.gid)
    assert rows == [("packet_dropped", -1, -1, "", "truncated")]


def test_each_segment_of_a_burst_is_told_for_itself(ends):
    world, left, _, right, right_qp = ends
    rows = watch(right.node)
    bth = bytes([4, 0, 255, 255, 0]) + right_qp.number.to_bytes(3, "big") + bytes(1)
    burst = b"".join(bth + psn.to_bytes(3, "big") + bytes(4) for psn in (5, 6)) + bytes(8)
    world.inject(right.node, burst, left.node.gid, stride=16)
    assert rows == [
        ("packet_dropped", right_qp.number, 5, "", "icrc"),
        ("packet_dropped", right_qp.number, 6, "", "icrc"),
        ("packet_dropped", -1, -1, "", "truncated"),
    ]


def test_events_of_queue_pairs_and_of_other_elements_are_told_but_not_notifications():
    world = Network()
    left, right = End(world.add(1)), End(world.add(2))
    srq = right.device.create_srq(right.pd, 4, 1)
    left_qp, right_qp = left.qp(), right.qp(srq=srq)
    connect((left, left_qp), (right, right_qp))
    for _ in range(2):
        srq.post(1, [right.sge(0, 64)])
    srq.modify(limit=2)
    right.cq.arm(False)
    rows = watch(right.node)
    post(left_qp, SEND, [left.sge(0, 8)])
    world.run()
    right_qp.modify({"qp_state": ERR})
    assert rows == [
        ("async_event", -1, -1, "", f"SRQ_LIMIT_REACHED {srq.number}"),
        ("state_changed", right_qp.number, -1, "RTS>ERR", "modify"),
        ("async_event", right_qp.number, -1, "", "QP_LAST_WQE_REACHED"),
    ]
    world.close()
