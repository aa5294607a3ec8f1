"""Reliable connections over a link that loses, repeats and reorders: nothing is lost, doubled or changed."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.queues import wqe
from softhca.testing.transport_pair import Faults, Pair
from softhca.transport.states import RTS
from suite_plan import random_inputs

SIZE = 1 << 16
PATTERN = random.Random(1).randbytes(SIZE)
KINDS = ("write", "send", "read", "add", "swap", "write_imm")


class Workload:
    """Random operations in both directions, and what memory must hold when they are done.

    Ranges do not overlap, so the result does not depend on the order of reads and writes; every atomic
    goes to a counter of its own direction.
    """

    def __init__(self, pair, operations):
        self.pair = pair
        self.operations = operations
        self.sides = []
        for end, peer in ((pair.left, pair.right), (pair.right, pair.left)):
            self.sides.append(
                {
                    "end": end,
                    "peer": peer,
                    "source": end.region(SIZE, fill=PATTERN),
                    "local": end.region(SIZE),
                    "remote": peer.region(SIZE),
                    "readable": peer.region(SIZE, fill=PATTERN[::-1]),
                    "counter": peer.region(8),
                    "results": end.region(8 * len(operations)),
                    "inbox": peer.region(SIZE),
                    "offset": 0,
                    "added": 0,
                    "expected": [],
                    "sent": 0,
                    "received": 0,
                }
            )

    def post(self):
        for i, (which, kind, size) in enumerate(self.operations):
            side = self.sides[which]
            offset = side["offset"]
            size = min(size, SIZE - offset)
            side["offset"] += size
            end, peer = side["end"], side["peer"]
            source = side["source"].sge(offset, size)
            if kind == "write":
                end.post(wqe.RDMA_WRITE, [source], remote=side["remote"], offset=offset, wr_id=i)
                side["expected"].append(("remote", offset, PATTERN[offset : offset + size]))
            elif kind == "write_imm":
                peer.post_receive(wr_id=i)
                end.post(
                    wqe.RDMA_WRITE_WITH_IMM, [source], remote=side["remote"], offset=offset, wr_id=i, imm=i
                )
                side["expected"].append(("remote", offset, PATTERN[offset : offset + size]))
                side["received"] += 1
            elif kind == "send":
                peer.post_receive([side["inbox"].sge(offset, size)], wr_id=i)
                end.post(wqe.SEND, [source], wr_id=i)
                side["expected"].append(("inbox", offset, PATTERN[offset : offset + size]))
                side["received"] += 1
            elif kind == "read":
                local = side["local"].sge(offset, size)
                end.post(wqe.RDMA_READ, [local], remote=side["readable"], offset=offset, wr_id=i)
                side["expected"].append(("local", offset, PATTERN[::-1][offset : offset + size]))
            else:
                result = side["results"].sge(8 * i, 8)
                old = side["added"]
                if kind == "add":
                    end.post(
                        wqe.ATOMIC_FETCH_AND_ADD, [result], remote=side["counter"], compare=i + 1, wr_id=i
                    )
                    side["added"] += i + 1
                else:
                    end.post(
                        wqe.ATOMIC_CMP_AND_SWP,
                        [result],
                        remote=side["counter"],
                        compare=old,
                        swap=old + 7,
                        wr_id=i,
                    )
                    side["added"] += 7
                side["expected"].append(("results", 8 * i, old.to_bytes(8, "little")))
            side["sent"] += 1

    def check(self):
        for which, side in enumerate(self.sides):
            sent = side["end"].sent()
            assert [c.wr_id for c in sent] == [i for i, row in enumerate(self.operations) if row[0] == which]
            assert not any(c.status for c in sent)
            received = side["peer"].received()
            assert len(received) == side["received"]
            assert not any(c.status for c in received)
            assert int.from_bytes(side["counter"].data, "little") == side["added"]
            for name, offset, data in side["expected"]:
                assert side[name].data[offset : offset + len(data)] == data
        assert self.pair.left.qp.state == self.pair.right.qp.state == RTS
        self.pair.at_rest()


operation = st.tuples(
    st.integers(0, 1),
    st.sampled_from(KINDS),
    st.one_of(st.sampled_from([0, 1, 255, 256, 257, 512, 4095, 4096, 4097]), st.integers(0, 9000)),
)


@settings(max_examples=random_inputs(60), deadline=None)
@given(
    operations=st.lists(operation, min_size=1, max_size=24),
    seed=st.integers(0, 1 << 32),
    loss=st.sampled_from([0, 0.01, 0.1, 0.3]),
    duplication=st.sampled_from([0, 0.1]),
    reordering=st.sampled_from([0, 0.1]),
    pmtu=st.sampled_from([256, 1024, 4096]),
    psn=st.sampled_from([0, 0xFFFFF0, 0x7FFFF8]),
    rd_atomic=st.integers(1, 4),
    slice_bytes=st.sampled_from([4096, 8192]),
    is_v6=st.booleans(),
)
def test_every_operation_survives_loss_duplication_and_reordering(
    operations, seed, loss, duplication, reordering, pmtu, psn, rd_atomic, slice_bytes, is_v6
):
    faults = Faults(seed, loss, duplication, reordering)
    pair = Pair(
        pmtu=pmtu,
        faults=faults,
        left_psn=psn,
        right_psn=psn + 3,
        rd_atomic=rd_atomic,
        slice_bytes=slice_bytes,
        v6=is_v6,
        retry_cnt=7,
        timeout=6,
    )
    for end in (pair.left, pair.right):
        end.qp.send_engine().retry.retry_count = 10_000  # a lossy link may need more than seven in a row
        end.qp.send_engine().retry.progress()
    try:
        workload = Workload(pair, operations)
        workload.post()
        pair.run()
        workload.check()
    finally:
        pair.close()


def drop_once(*numbers):
    """A rule that drops the packets of these numbers, counted from 0 over those sent from left to right."""
    seen = []

    def rule(way, packet):
        if way != "ab":
            return 1
        seen.append(1)
        return 0 if len(seen) - 1 in numbers else 1

    return rule


def drop_response_once(*numbers):
    seen = []

    def rule(way, packet):
        if way != "ba":
            return 1
        seen.append(1)
        return 0 if len(seen) - 1 in numbers else 1

    return rule


def test_sequence_nak_goes_back_to_the_lost_packet_without_waiting(pair):
    p = pair(pmtu=256, faults=Faults(rule=drop_once(3)), timeout=20)
    source, target = p.left.region(2048, fill=PATTERN[:2048]), p.right.region(2048)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    began = p.now
    p.run()
    assert p.left.sent()[0].status == 0
    assert target.data == source.data
    assert [row["psn"] for row in p.decoded("ab")] == [0, 1, 2, 3, 4, 5, 6, 7, 3, 4, 5, 6, 7]
    assert p.left.qp.counters.timeouts == 0
    assert p.now - began < 1_000_000 + p.left.qp.send_engine().retry.interval_ns
    assert [row["syndrome"] for row in p.decoded("ba")].count(0x60) == 1
    assert p.left.qp.counters.retransmissions == 1


def test_lost_last_packet_is_sent_again_after_the_time_out(pair):
    p = pair(pmtu=256, faults=Faults(rule=drop_once(7)), timeout=9)
    source, target = p.left.region(2048, fill=PATTERN[:2048]), p.right.region(2048)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    p.run()
    assert target.data == source.data
    assert p.left.qp.counters.timeouts == 1
    p.at_rest()


def test_lost_acknowledgement_executes_nothing_twice(pair):
    p = pair(pmtu=256, faults=Faults(rule=drop_response_once(0)))
    target = p.right.region(8)
    p.right.post_receive([target.sge()], wr_id=1)
    p.right.post_receive([target.sge()], wr_id=2)
    p.left.post(wqe.SEND, inline=b"x")
    p.run()
    assert [c.wr_id for c in p.right.received()] == [1]
    assert p.left.sent()[0].status == 0
    assert p.right.qp.counters.duplicates == 1


def test_lost_atomic_response_is_answered_from_the_saved_result(pair):
    p = pair(faults=Faults(rule=drop_response_once(0)))
    remote, local = p.right.region(8), p.left.region(8)
    p.left.post(wqe.ATOMIC_FETCH_AND_ADD, [local.sge()], remote=remote, compare=5)
    p.run()
    assert p.left.sent()[0].status == 0
    assert local.data == bytes(8)
    assert remote.data == (5).to_bytes(8, "little")


def test_only_the_missing_part_of_a_read_is_requested_again(pair):
    p = pair(pmtu=256, faults=Faults(rule=drop_response_once(5)), timeout=20)
    remote, local = p.right.region(2500, fill=PATTERN[:2500]), p.left.region(2500)
    p.left.post(wqe.RDMA_READ, [local.sge()], remote=remote)
    p.run()
    assert local.data == remote.data
    requests = p.decoded("ab")
    assert [(row["psn"], row["length"], row["va"] - remote.va) for row in requests] == [
        (0, 2500, 0),
        (5, 2500 - 5 * 256, 5 * 256),
    ]
    assert [row["psn"] for row in p.decoded("ba")] == [*range(10), 5, 6, 7, 8, 9]
    assert p.left.qp.counters.timeouts == 0
    p.at_rest()


def test_acknowledgement_beyond_an_unanswered_read_is_an_implied_nak(pair):
    p = pair(pmtu=256, faults=Faults(rule=drop_response_once(0)), timeout=20)
    remote, local = p.right.region(256, fill=PATTERN[:256]), p.left.region(256)
    p.left.post(wqe.RDMA_READ, [local.sge()], remote=remote, ring=False)
    p.left.post(wqe.RDMA_WRITE, inline=b"x", remote=remote)
    p.run()
    assert [c.status for c in p.left.sent()] == [0, 0]
    assert p.left.qp.counters.implied_naks == 1
    assert p.left.qp.counters.timeouts == 0


def test_many_answers_after_one_loss_cost_one_retry(pair):
    p = pair(pmtu=256, faults=Faults(rule=drop_response_once(1)), retry_cnt=1, timeout=20)
    remote, local = p.right.region(8000, fill=PATTERN[:8000]), p.left.region(8000)
    p.left.post(wqe.RDMA_READ, [local.sge()], remote=remote)
    p.run()
    assert p.left.sent()[0].status == 0
    assert p.left.qp.counters.retransmissions == 1


@pytest.mark.parametrize("pmtu", [256, 4096])
def test_long_message_survives_heavy_loss(pair, pmtu):
    p = pair(pmtu=pmtu, faults=Faults(7, 0.05, 0.02, 0.02), timeout=6)
    p.left.qp.send_engine().retry.retry_count = 1000
    source, target = p.left.region(SIZE, fill=PATTERN), p.right.region(SIZE)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    p.left.post(wqe.RDMA_READ, [source.sge()], remote=target)
    p.run()
    assert [c.status for c in p.left.sent()] == [0, 0]
    assert target.data == source.data == PATTERN
    p.at_rest()


@settings(max_examples=random_inputs(10), deadline=None)
@given(seed=st.integers(0, 1 << 32), loss=st.sampled_from([0, 0.05]), qps=st.sampled_from([8, 64]))
def test_many_queue_pairs_share_one_window_without_starving_or_leaking(seed, loss, qps):
    pair = Pair(pmtu=4096, faults=Faults(seed, loss), qps=qps, timeout=6)
    try:
        source, target = pair.left.region(SIZE, fill=PATTERN), pair.right.region(SIZE)
        window = pair.left.qp.flow.window
        for left in pair.lefts:
            left.qp.send_engine().retry.retry_count = 1000
            for _ in range(2):
                left.post(wqe.RDMA_WRITE, [source.sge()], remote=target, ring=False)
            left.post(wqe.RDMA_READ, [source.sge()], remote=target)
        moving = True
        while moving:
            moving = pair.step()
            assert window.in_flight_bytes <= max(window.limit_bytes, window.maximum_bytes)
        assert target.data == PATTERN
        for left in pair.lefts:
            assert [c.status for c in left.sent()] == [0, 0, 0]
        pair.at_rest()
    finally:
        pair.close()
