"""Orders and ends of single steps of a reliable connection: what comes first, what stays, what is said."""

from itertools import pairwise

import pytest

from softhca.queues import wqe
from softhca.transport.congestion import CongestionControl, Dcqcn, DcqcnSettings
from softhca.transport.states import ERR
from softhca.transport.window import BURST_OVERHEAD_BYTES, FULL_BURST_BYTES, DestinationWindow
from softhca.wire import opcodes as op

BURST = FULL_BURST_BYTES + BURST_OVERHEAD_BYTES
FLUSHED = 5
RNR_NAK, SEQUENCE_NAK = 0x20, 0x60


def syndromes(p):
    """Of what the right end has said."""
    return [row["syndrome"] for row in p.decoded("ba")]


def test_what_waits_in_the_ring_is_flushed_behind_what_is_under_way(pair):
    p = pair(window=DestinationWindow(BURST, BURST))
    source, target = p.left.region(60_000), p.right.region(60_000)
    for number in range(4):
        p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target, wr_id=number)
    while p.transmit(p.a):
        pass
    sender = p.left.qp.send_engine()
    assert 0 < sender.tail - sender.head < 4
    p.left.qp.modify({"qp_state": ERR}, p.now)
    assert [(done.wr_id, done.status) for done in p.left.sent()] == [(number, FLUSHED) for number in range(4)]


def full(p):
    """The window, in which others have all that may be under way."""
    window = p.left.qp.flow.window
    window.charge(window.limit_bytes)
    return window


@pytest.mark.parametrize("opcode", [wqe.SEND, wqe.RDMA_WRITE, wqe.RDMA_READ, wqe.ATOMIC_FETCH_AND_ADD])
def test_one_probe_goes_beyond_the_window_and_no_more(pair, opcode):
    p = pair()
    full(p)
    p.left.qp.send_engine().probe = True
    source, target = p.left.region(8), p.right.region(8)
    for _ in range(3):
        p.left.post(opcode, [source.sge()], remote=target)
        while p.transmit(p.a):
            pass
    assert [row["psn"] for row in p.decoded("ab")] == [0]


def test_who_probes_keeps_its_place_among_those_that_wait(pair):
    p = pair(qps=2)
    window = full(p)
    source = p.left.region(2000)
    for left, right in zip(p.lefts, p.rights, strict=True):
        left.post(wqe.RDMA_WRITE, [source.sge()], remote=right.region(2000))
    while p.transmit(p.a):
        pass
    flows = [left.qp.flow for left in p.lefts]
    assert list(window.waiters) == flows
    sender = p.left.qp.send_engine()
    sender.probe = True
    p.a.schedule(p.left.qp.flow)
    while p.transmit(p.a):
        pass
    assert len(p.decoded("ab")) == 1
    assert list(window.waiters) == flows


def test_requests_in_a_burst_that_others_have_begun_count_as_what_they_are(pair):
    p = pair(qps=2)
    p.burst.reset()
    sizes = []
    for left in p.lefts:
        left.post(wqe.SEND, inline=b"twelve bytes", ring=True)
        before = p.burst.length
        assert left.qp.flow.produce(p.burst, p.now) == 1
        sizes.append(p.burst.length - before)
    assert [left.qp.counters.bytes_sent for left in p.lefts] == sizes


def test_of_a_long_message_no_more_than_half_a_window_is_unasked_for(pair):
    p = pair(window=DestinationWindow(12 * BURST, 12 * BURST))
    source, target = p.left.region(900_000), p.right.region(900_000)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    while p.transmit(p.a):
        pass
    rows = p.decoded("ab")
    asked = [0, *(number for number, row in enumerate(rows) if row["ack_request"])]
    assert len(rows) > 600
    assert max(after - before for before, after in pairwise(asked)) < len(rows) // 2


def test_an_answer_to_what_was_sent_before_a_loss_counts_although_less_was_sent_since(pair):
    p = pair()
    source, target = p.left.region(4096), p.right.region(4096)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    while p.transmit(p.a):
        pass
    sender = p.left.qp.send_engine()
    window = p.left.qp.flow.window
    sender.rewind(True)
    window.charge(window.limit_bytes - BURST_OVERHEAD_BYTES - 1500)
    p.transmit(p.a)
    assert [row["psn"] for row in p.decoded("ab")] == [0, 1, 2, 3, 0]
    p.forge(op.RC_ACKNOWLEDGE, 3, way="ba", syndrome=0x1F, msn=1)
    assert [done.status for done in p.left.sent()] == [0]


def test_another_path_has_all_retries(pair):
    p = pair(retry_cnt=3, rnr_retry=2)
    sender = p.left.qp.send_engine()
    assert sender.retry.spend_retry()
    assert sender.retry.spend_rnr_retry()
    sender.retry.retries_left = 1
    sender.path_changed(p.now)
    assert (sender.retry.retries_left, sender.retry.rnr_retries_left) == (3, 2)


def test_a_persist_timer_that_has_run_out_runs_no_more(pair):
    p = pair()
    sender = p.left.qp.send_engine()
    sender.retry.persist(p.now)
    deadline_ns = sender.retry.deadline_ns
    sender.expire(deadline_ns)
    assert sender.retry.deadline_ns == 0


def test_a_gap_that_has_closed_before_it_was_told_is_acknowledged(pair):
    p = pair()
    for _ in range(2):
        p.right.post_receive()
    p.forge(op.RC_SEND_ONLY, 1, ack=False)
    p.forge(op.RC_SEND_ONLY, 0, ack=False)
    p.forge(op.RC_SEND_ONLY, 1, ack=False)
    p.transmit(p.b)
    (row,) = p.decoded("ba")
    assert (row["psn"], row["syndrome"] >> 5) == (1, 0)


def test_nothing_is_taken_before_a_nak_that_says_to_send_again_has_gone(pair):
    p = pair()
    p.forge(op.RC_SEND_ONLY, 0)
    p.right.post_receive(wr_id=7)
    p.forge(op.RC_SEND_ONLY, 0)
    assert not p.right.received()
    p.transmit(p.b)
    assert [each & 0x60 for each in syndromes(p)] == [RNR_NAK]
    p.forge(op.RC_SEND_ONLY, 0)
    assert [done.wr_id for done in p.right.received()] == [7]


def test_nothing_is_answered_again_before_such_a_nak(pair):
    p = pair()
    target = p.right.region(64)
    p.forge(op.RC_RDMA_READ_REQUEST, 0, va=target.va, rkey=target.key, length=64)
    p.transmit(p.b)
    p.forge(op.RC_SEND_ONLY, 1)
    p.forge(op.RC_RDMA_READ_REQUEST, 0, va=target.va, rkey=target.key, length=64)
    p.transmit(p.b)
    assert [row["opcode"] for row in p.decoded("ba")] == [op.RC_RDMA_READ_RESPONSE_ONLY, op.RC_ACKNOWLEDGE]


def test_an_atomic_operation_is_answered_once(pair):
    p = pair()
    target = p.right.region(8)
    p.forge(op.RC_FETCH_ADD, 0, va=target.va, rkey=target.key, swap_add=1)
    p.transmit(p.b)
    assert [row["opcode"] for row in p.decoded("ba")] == [op.RC_ATOMIC_ACKNOWLEDGE]


def refused_at_last(p, forge):
    """How many of these requests were accepted before there was no place for an answer more."""
    for number in range(64):
        forge(number)
        if p.right.qp.state == ERR:
            return number
    raise AssertionError("there is always a place")


def test_an_atomic_operation_without_a_place_for_its_answer_is_not_carried_out(pair):
    p = pair(rd_atomic=1)
    target = p.right.region(8)
    accepted = refused_at_last(
        p, lambda psn: p.forge(op.RC_FETCH_ADD, psn, va=target.va, rkey=target.key, swap_add=1)
    )
    assert accepted
    assert int.from_bytes(target.data, "little") == accepted


def test_a_word_without_a_place_for_its_answer_is_not_written(pair):
    p = pair(rd_atomic=1)
    target = p.right.region(8)

    def forge(psn):
        word = bytes([psn + 1]) * 8
        p.forge(op.RC_ATOMIC_WRITE, psn, word, va=target.va, rkey=target.key, length=8)

    accepted = refused_at_last(p, forge)
    assert accepted
    assert bytes(target.data) == bytes([accepted]) * 8


@pytest.mark.parametrize("ends", [True, False])
def test_a_write_without_a_receive_releases_its_key_until_it_comes_again_only_at_its_begin(pair, ends):
    """The first packet looks the key up anew; one behind it goes on with what the first has found."""
    p = pair(pmtu=256)
    target = p.right.region(512)
    length = 256 if ends else 512
    code = op.RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE if ends else op.RC_RDMA_WRITE_FIRST
    p.forge(code, 0, b"x" * 256, va=target.va, rkey=target.key, length=length)
    if not ends:
        p.forge(op.RC_RDMA_WRITE_LAST_WITH_IMMEDIATE, 1, b"y" * 256)
    p.transmit(p.b)
    assert [each & 0x60 for each in syndromes(p)][-1] == RNR_NAK
    assert (p.right.qp.receive_engine().execution.region is None) is ends
    p.right.post_receive()
    if ends:
        p.forge(code, 0, b"x" * 256, va=target.va, rkey=target.key, length=length)
    else:
        p.forge(op.RC_RDMA_WRITE_LAST_WITH_IMMEDIATE, 1, b"y" * 256)
    assert [done.status for done in p.right.received()] == [0]
    assert bytes(target.data) == b"x" * 256 + (bytes(256) if ends else b"y" * 256)


# congestion control


def test_a_further_notification_lets_nothing_leave_earlier():
    control = Dcqcn(DcqcnSettings())
    assert control.notified(1_000_000)
    control.sent(1_000_000, 250, 1_000_000)
    free_ns = control.departure(1_000_000)
    assert free_ns > 1_060_000
    assert control.notified(1_060_000)
    assert control.departure(1_060_000) == free_ns


def test_a_flow_that_rests_long_enough_is_not_limited_any_more():
    control = Dcqcn(DcqcnSettings())
    control.notified(0)
    control.sent(60_000, 15, 0)
    assert control.departure(1) > 1
    assert control.departure(10**10) == 0
    assert control.burst_limit() == CongestionControl.burst_limit(control)
