"""A requester whose registered memory is held (−EAGAIN): nothing is lost but time."""

import itertools

import pytest
from held_memory import BUDGET_NS, DATA, FLUSHED, LONG, PMTU, before, hold, read, statuses, until, untroubled

from softhca.queues import cqe, wqe
from softhca.testing.timeline import NEVER
from softhca.testing.transport_pair import Faults
from softhca.transport.environment import MEMORY_RETRY_NS
from softhca.transport.window import BURST_OVERHEAD_BYTES, FULL_BURST_BYTES, DestinationWindow
from softhca.wire import opcodes as op

ONE_BURST = FULL_BURST_BYTES + BURST_OVERHEAD_BYTES


# the requester: its own data


@pytest.mark.parametrize("opcode", [wqe.RDMA_WRITE, wqe.SEND])
def test_nothing_is_sent_of_held_memory_and_no_time_out_counts(pair, opcode):
    p = pair(retry_cnt=0, rnr_retry=0)
    source, target = p.left.region(len(DATA), fill=DATA), p.right.region(len(DATA))
    p.right.post_receive([target.sge()])
    p.a.data_access(False)
    p.left.post(opcode, [source.sge()], remote=target)
    p.after(3 * BUDGET_NS, lambda: p.a.data_access(True))
    until(p, lambda: p.planned_ns() == NEVER)
    lifted = p.now
    assert p.log == []
    until(p, lambda: p.left.qp.send_engine().head == 1)
    assert p.now == lifted + 2 * p.DELAY_NS  # at once
    p.run()
    assert target.data == DATA
    assert statuses(p.left.sent()) == [0]
    untroubled(p)


def test_held_memory_is_tried_again_by_itself(pair):
    p = pair()
    source, target = p.left.region(8, fill=b"tryagain"), p.right.region(8)
    p.a.data_access(False)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    start = p.now
    until(p, lambda: p.a.held)
    p.a.regions.tpt.stopped = False
    until(p, lambda: p.left.qp.send_engine().head == 1)
    assert target.data == b"tryagain"
    assert p.now == start + MEMORY_RETRY_NS + 2 * p.DELAY_NS


def test_inline_data_and_reads_do_not_wait_for_the_senders_memory(pair):
    p = pair()
    target = p.right.region(8)
    p.a.data_access(False)
    p.left.post(wqe.RDMA_WRITE, inline=b"inline", remote=target)
    p.run()
    assert target.data[:6] == b"inline"
    assert p.a.held == {}


@pytest.mark.parametrize("v6", [False, True])
def test_the_last_packet_in_front_of_held_memory_asks_for_an_answer(pair, v6):
    p = pair(pmtu=PMTU, retry_cnt=0, v6=v6)
    data = LONG[: 5 * PMTU]
    there, missing = (
        p.left.region(4 * PMTU, fill=data[: 4 * PMTU]),
        p.left.region(PMTU, fill=data[4 * PMTU :]),
    )
    target = p.right.region(len(data))
    lift = hold(missing)
    p.left.post(wqe.RDMA_WRITE, [there.sge(), missing.sge()], remote=target)
    p.after(3 * BUDGET_NS, lift)
    until(p, lambda: p.decoded("ba"))
    assert [(row["psn"], row["ack_request"]) for row in p.decoded("ab")] == [
        (0, False), (1, False), (2, False), (3, True)
    ]  # fmt: skip
    assert p.decoded("ba")[0]["psn"] == 3
    p.run()
    assert target.data == data
    assert [row["psn"] for row in p.decoded("ab")] == [0, 1, 2, 3, 4]
    assert statuses(p.left.sent()) == [0]
    untroubled(p)


def test_the_mark_of_the_last_packet_is_right_behind_another_message_in_the_burst(pair):
    p = pair(pmtu=PMTU)
    there, missing = p.left.region(PMTU, fill=DATA[:PMTU]), p.left.region(PMTU, fill=DATA[:PMTU])
    target = p.right.region(3 * PMTU)
    lift = hold(missing)
    p.left.post(wqe.RDMA_WRITE, [there.sge()], remote=target, ring=False)
    p.left.post(wqe.RDMA_WRITE, [there.sge(), missing.sge()], remote=target, offset=PMTU, ring=False)
    p.left.post(wqe.SEND, inline=b"behind")
    until(p, lambda: p.left.qp.send_engine().una_psn == 2)
    assert [(row["psn"], row["ack_request"]) for row in p.decoded("ab")] == [(0, True), (1, True)]
    p.right.post_receive([p.right.region(8).sge()])
    lift()
    p.run()
    assert target.data == 3 * DATA[:PMTU]
    assert statuses(p.left.sent()) == [0] * 3


def test_a_message_held_between_its_bursts_spends_no_retry(pair):
    """Nobody asked for an answer to what is in flight, so that none can be missed."""
    p = pair(pmtu=1024, retry_cnt=0)
    source, target = p.left.region(len(LONG), fill=LONG), p.right.region(len(LONG))
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    p.step()
    assert 0 < len(p.log) < len(LONG) // 1024
    assert not any(row["ack_request"] for row in p.decoded("ab"))
    p.a.data_access(False)
    p.after(3 * BUDGET_NS, lambda: p.a.data_access(True))
    p.run()
    assert target.data == LONG
    assert statuses(p.left.sent()) == [0]
    untroubled(p)


def test_a_time_out_spends_no_retry_between_the_end_of_a_wait_and_the_next_try(pair):
    p = pair(pmtu=1024, retry_cnt=0)
    source, target = p.left.region(len(LONG), fill=LONG), p.right.region(len(LONG))
    requester = p.left.qp.send_engine()
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    p.step()
    p.a.data_access(False)
    until(p, lambda: p.a.held)
    p.left.qp.flow.resume(p.now)  # its turn is still to come
    p.left.qp.flow.expire(requester.retry.deadline_ns)
    p.a.data_access(True)
    p.run()
    assert target.data == LONG
    assert statuses(p.left.sent()) == [0]
    assert p.left.qp.counters.timeouts == 0


def test_what_was_asked_for_before_a_loss_is_not_missed_while_memory_is_held(pair):
    """After the loss nobody has asked for an answer yet, whatever the lost packets did."""
    lost = [True]
    wide = DestinationWindow(16 * ONE_BURST, 16 * ONE_BURST)
    faults = Faults(rule=lambda way, packet: not (way == "ab" and lost[0]))
    p = pair(pmtu=1024, retry_cnt=1, window=wide, faults=faults)
    source, target = p.left.region(len(LONG), fill=LONG), p.right.region(len(LONG))
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    until(p, lambda: p.left.qp.counters.timeouts)
    lost[0] = False
    before_it = len(p.log)
    until(p, lambda: len(p.log) > before_it)
    assert not any(row["ack_request"] for row in p.decoded("ab")[before_it:])
    p.a.data_access(False)
    p.after(3 * BUDGET_NS, lambda: p.a.data_access(True))
    p.run()
    assert statuses(p.left.sent()) == [0]
    assert p.left.qp.counters.timeouts == 1
    assert target.data == LONG
    assert wide.in_flight_bytes == 0


def test_what_is_in_flight_and_asked_for_times_out_while_memory_is_held(pair):
    p = pair(retry_cnt=2, faults=Faults(rule=lambda way, packet: way == "ba"))
    source, target = p.left.region(8), p.right.region(8)
    p.left.post(wqe.RDMA_WRITE, inline=b"lost", remote=target, wr_id=1)
    p.step()
    p.a.data_access(False)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target, wr_id=2)
    p.run()
    assert [(c.wr_id, c.status) for c in p.left.sent()] == [(1, cqe.WC_RETRY_EXC_ERR), (2, FLUSHED)]
    assert p.left.qp.counters.timeouts == 3
    p.at_rest()


# the requester: results that cannot be placed


@pytest.mark.parametrize("times", [1, 30])
def test_a_result_that_cannot_be_placed_is_asked_for_again_without_a_retry(pair, times):
    p = pair(retry_cnt=0, rnr_retry=0)
    data, target = read(p)
    before(p, "ba", 0, lambda: p.a.data_access(False))
    p.after(times * MEMORY_RETRY_NS, lambda: p.a.data_access(True))
    p.run()
    assert target.data == data
    assert statuses(p.left.sent()) == [0]
    asked = [row["psn"] for row in p.decoded("ab")]
    assert len(asked) - 2 <= times * MEMORY_RETRY_NS // (MEMORY_RETRY_NS + 2 * p.DELAY_NS) <= len(asked) - 1
    assert set(asked) == {0}
    untroubled(p)


def test_a_result_that_cannot_be_placed_waits_before_it_is_asked_for_again(pair):
    p = pair()
    read(p)
    p.a.data_access(False)
    asked = []
    for _ in range(3):
        until(p, lambda: len(p.decoded("ab")) > len(asked))
        asked.append(p.now)
    for earlier, later in itertools.pairwise(asked):
        assert later - earlier == MEMORY_RETRY_NS + 2 * p.DELAY_NS


def test_a_part_of_a_long_read_that_cannot_be_placed_is_all_that_is_asked_for_again(pair):
    p = pair(pmtu=1024, retry_cnt=0)
    data, target = read(p, len(LONG))
    before(p, "ba", 5, lambda: p.a.data_access(False))
    p.after(10 * MEMORY_RETRY_NS, lambda: p.a.data_access(True))
    p.run()
    assert target.data == data
    assert statuses(p.left.sent()) == [0]
    assert {row["va"] - p.b.owned[0].va for row in p.decoded("ab")} == {0, 5 * 1024, 128 * 1024}
    untroubled(p)


@pytest.mark.parametrize("lifted", [6, 20, 90])
def test_what_comes_behind_a_result_that_was_not_placed_shows_no_loss(pair, lifted):
    """It was on its way when the memory was there again, and the answer asked for again."""
    p = pair(pmtu=1024, retry_cnt=0)
    data, target = read(p, len(LONG))

    def lift():  # and be asked at once
        p.a.data_access(True)
        p.left.qp.send_engine().resume(p.now)
        p.transmit(p.a)

    before(p, "ba", 5, lambda: p.a.data_access(False))
    before(p, "ba", lifted, lift)
    p.run()
    assert target.data == data
    assert statuses(p.left.sent()) == [0]
    untroubled(p)


def test_an_atomic_whose_result_cannot_be_placed_is_executed_once(pair):
    p = pair(retry_cnt=0)
    source, target = p.left.region(8), p.right.region(8, fill=(9).to_bytes(8, "little"))
    p.a.data_access(False)
    p.left.post(wqe.ATOMIC_FETCH_AND_ADD, [source.sge()], remote=target, compare=4, wr_id=1)
    p.left.post(wqe.SEND, inline=b"", wr_id=2)
    p.right.post_receive()
    p.after(20 * MEMORY_RETRY_NS, lambda: p.a.data_access(True))
    p.run()
    assert int.from_bytes(target.data, "little") == 13
    assert int.from_bytes(source.data, "little") == 9
    assert [(c.wr_id, c.status) for c in p.left.sent()] == [(1, 0), (2, 0)]
    untroubled(p)


def test_a_peer_that_is_gone_is_noticed_while_a_result_waits_for_memory(pair):
    p = pair(retry_cnt=2)
    read(p)
    p.a.data_access(False)
    until(p, lambda: p.a.held)
    p.faults.rule = lambda way, packet: 0
    p.run()
    assert statuses(p.left.sent()) == [cqe.WC_RETRY_EXC_ERR]
    assert p.left.qp.counters.timeouts == 3
    p.at_rest()


def test_losses_during_a_long_hold_do_not_add_up(pair):
    """Each answer shows that the peer is there, though it cannot be placed."""
    p = pair(faults=Faults(seed=5, loss=0.1))
    data, target = read(p)
    p.a.data_access(False)
    p.after(400 * MEMORY_RETRY_NS, lambda: p.a.data_access(True))
    p.run()
    assert p.left.qp.counters.timeouts > p.left.qp.retry_count
    assert target.data == data
    assert statuses(p.left.sent()) == [0]


def test_a_lie_about_a_result_is_told_while_memory_is_held(pair):
    p = pair()
    read(p)
    p.step()
    p.a.data_access(False)
    p.forge(op.RC_RDMA_READ_RESPONSE_ONLY, 0, b"short", way="ba")
    p.run()
    assert statuses(p.left.sent()) == [cqe.WC_BAD_RESP_ERR]
