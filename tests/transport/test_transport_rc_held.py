"""A responder whose registered memory is held (−EAGAIN), and both sides at once: nothing is lost but time."""

import random

import pytest
from held_memory import BUDGET_NS, DATA, FLUSHED, LONG, PMTU, before, hold, read, statuses, until, untroubled

from softhca.queues import cqe, wqe
from softhca.testing.transport_pair import Faults
from softhca.transport.environment import MEMORY_RETRY_NS
from softhca.transport.retry import RNR_TIMER_NS
from softhca.transport.states import ERR, RESET, RTS, SQD
from softhca.wire import opcodes as op

RNR_1 = 0x20 | 1
UNIT_NS = RNR_TIMER_NS[1]


# the responder: WRITE, SEND, atomics


@pytest.mark.parametrize("opcode", [wqe.RDMA_WRITE, wqe.RDMA_WRITE_WITH_IMM, wqe.SEND])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_held_packet_is_refused_with_an_rnr_nak_and_the_message_goes_on_with_it(pair, opcode, place):
    p = pair(pmtu=PMTU, left_psn=0xFFFFFE, rnr_retry=3)
    psn = (0xFFFFFE + place) & 0xFFFFFF
    source, target = p.left.region(len(DATA), fill=DATA), p.right.region(len(DATA))
    p.right.post_receive([target.sge()], wr_id=9)
    before(p, "ab", psn, lambda: p.b.data_access(False))
    p.left.post(opcode, [source.sge()], remote=target, imm=7)
    until(p, lambda: p.right.qp.counters.rnr_naks_sent)
    p.deliver()
    assert target.data == DATA[: place * PMTU] + bytes(len(DATA) - place * PMTU)
    assert p.right.qp.receive_engine().epsn == psn
    assert p.right.received() == p.left.sent() == []
    p.after(UNIT_NS // 2, lambda: p.b.data_access(True))
    p.run()
    assert target.data == DATA
    answers = [(row["psn"], row["syndrome"]) for row in p.decoded("ba")]
    assert answers[0] == (psn, RNR_1)
    assert [row for row in answers if row[1] == RNR_1] == answers[:1]  # what followed it was met with silence
    sent = [row["psn"] for row in p.decoded("ab")]
    assert sent[3] == psn  # it goes on with just that packet
    assert statuses(p.left.sent()) == [0]
    assert [(c.status, c.byte_len) for c in p.right.received()] == (
        [] if opcode == wqe.RDMA_WRITE else [(0, len(DATA))]
    )
    untroubled(p)


@pytest.mark.parametrize("opcode", [wqe.RDMA_WRITE, wqe.SEND, wqe.ATOMIC_FETCH_AND_ADD])
def test_a_hold_beyond_the_rnr_budget_ends_the_request_once_and_flushes_the_rest(pair, opcode):
    p = pair(pmtu=PMTU, rnr_retry=2)
    source, target = p.left.region(100, fill=DATA[:100]), p.right.region(100)
    p.right.post_receive([target.sge()], wr_id=9)
    p.b.data_access(False)
    p.left.post(opcode, [source.sge(0, 8)], remote=target, compare=5, wr_id=1)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target, wr_id=2)
    p.run()
    assert [(c.wr_id, c.status) for c in p.left.sent()] == [(1, cqe.WC_RNR_RETRY_EXC_ERR), (2, FLUSHED)]
    assert [row["syndrome"] for row in p.decoded("ba")] == [RNR_1] * 3
    assert p.left.qp.state == ERR
    assert p.right.qp.state == RTS
    assert not any(target.data)
    p.run()
    assert p.left.sent() == []
    p.at_rest()


def test_rnr_retries_count_anew_after_every_packet_that_got_through(pair):
    p = pair(pmtu=PMTU, rnr_retry=1)
    source, target = p.left.region(len(DATA), fill=DATA), p.right.region(len(DATA))
    inject = p.inject
    refused = set()

    def once_each(way, segment, route=None):
        expected = p.right.qp.receive_engine().epsn
        p.b.data_access(expected in refused)
        refused.add(expected)
        inject(way, segment, route)

    p.inject = once_each
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    p.run()
    assert target.data == DATA
    assert statuses(p.left.sent()) == [0]
    assert p.right.qp.counters.rnr_naks_sent == 3
    untroubled(p)


@pytest.mark.parametrize("opcode", [wqe.ATOMIC_FETCH_AND_ADD, wqe.ATOMIC_CMP_AND_SWP])
def test_a_held_atomic_is_not_executed_and_then_once(pair, opcode):
    p = pair()
    source, target = p.left.region(8), p.right.region(8, fill=(5).to_bytes(8, "little"))
    p.b.data_access(False)
    p.left.post(opcode, [source.sge()], remote=target, compare=5, swap=10)
    until(p, lambda: p.left.qp.counters.rnr_naks_received == 2)
    assert int.from_bytes(target.data, "little") == 5
    p.b.data_access(True)
    p.run()
    assert int.from_bytes(target.data, "little") == 10
    assert int.from_bytes(source.data, "little") == 5
    assert statuses(p.left.sent()) == [0]
    untroubled(p)


def test_a_held_atomic_takes_no_place_of_an_older_one_that_may_come_again(pair):
    p = pair(rd_atomic=1)
    target = p.right.region(8)
    first = {"va": target.va, "rkey": target.key, "swap_add": 3}
    p.forge(op.RC_FETCH_ADD, 0, **first)
    p.run()
    p.b.data_access(False)
    for _ in range(3):
        p.forge(op.RC_FETCH_ADD, 1, **first)
        p.run()
    p.forge(op.RC_FETCH_ADD, 0, **first)
    p.run()
    rows = [(row["opcode"], row["psn"], row["syndrome"]) for row in p.decoded("ba")]
    assert [row[1:] for row in rows[1:4]] == [(1, RNR_1)] * 3
    assert rows[4] == rows[0]
    assert rows[0][:2] == (op.RC_ATOMIC_ACKNOWLEDGE, 0)
    assert int.from_bytes(target.data, "little") == 3


def test_repetitions_of_what_was_done_are_acknowledged_while_the_next_packet_is_held(pair):
    p = pair(pmtu=PMTU)
    target = p.right.region(2 * PMTU)
    for psn, opcode in ((0, op.RC_RDMA_WRITE_FIRST), (1, op.RC_RDMA_WRITE_LAST)):
        p.b.data_access(psn == 0)
        p.forge(opcode, psn, bytes([psn + 1]) * PMTU, va=target.va, rkey=target.key, length=2 * PMTU)
        p.run()
    first = {"va": target.va, "rkey": target.key, "length": 2 * PMTU}
    p.forge(op.RC_RDMA_WRITE_FIRST, 0, b"?" * PMTU, **first)
    p.run()
    assert [(row["psn"], row["syndrome"] >> 5) for row in p.decoded("ba")] == [(0, 0), (1, 1), (0, 0)]
    assert p.right.qp.receive_engine().execution.received_bytes == PMTU
    p.b.data_access(True)
    p.forge(op.RC_RDMA_WRITE_LAST, 1, b"\2" * PMTU)
    p.run()
    assert target.data == b"\1" * PMTU + b"\2" * PMTU
    assert p.decoded("ba")[-1]["psn"] == 1


def test_a_receive_waits_for_the_repetition_of_its_packet(pair):
    """The receive that was taken for a held packet serves the same packet again, not the next one."""
    p = pair()
    inboxes = [p.right.region(8) for _ in range(2)]
    for number, inbox in enumerate(inboxes):
        p.right.post_receive([inbox.sge()], wr_id=number)
    p.b.data_access(False)
    p.left.post(wqe.SEND, inline=b"held")
    until(p, lambda: p.right.qp.counters.rnr_naks_sent == 3)
    p.b.data_access(True)
    p.run()
    assert [(c.wr_id, c.status, c.byte_len) for c in p.right.received()] == [(0, 0, 4)]
    assert inboxes[0].data[:4] == b"held"
    p.right.qp.modify({"qp_state": ERR})
    assert [(c.wr_id, c.status) for c in p.right.received()] == [(1, FLUSHED)]


def test_rights_are_judged_while_memory_is_held(pair):
    p = pair()
    target = p.right.region(8, access=1)
    p.b.data_access(False)
    p.left.post(wqe.RDMA_WRITE, inline=b"x", remote=target)
    p.run()
    assert statuses(p.left.sent()) == [cqe.WC_REM_ACCESS_ERR]


# the responder: answers to READs


def test_a_read_of_held_memory_is_answered_when_it_is_tried_again(pair):
    p = pair()
    data, target = read(p)
    p.b.data_access(False)
    start = p.now
    until(p, lambda: p.b.held)
    assert p.decoded("ba") == []
    p.b.regions.tpt.stopped = False  # and nobody says so
    until(p, lambda: p.left.qp.send_engine().head == 1)
    assert p.now == start + MEMORY_RETRY_NS + 2 * p.DELAY_NS
    assert target.data == data
    assert statuses(p.left.sent()) == [0]
    p.run()
    untroubled(p)


def test_a_read_is_answered_at_once_when_the_hold_is_lifted(pair):
    p = pair()
    data, target = read(p)
    p.b.data_access(False)
    until(p, lambda: p.b.held)
    lifted = []
    p.after(5_000, lambda: (p.b.data_access(True), lifted.append(p.now)))
    until(p, lambda: p.left.qp.send_engine().head == 1)
    assert target.data == data
    assert p.now == lifted[0] + p.DELAY_NS


def test_an_answer_goes_on_where_it_was_held(pair):
    p = pair(pmtu=1024)
    data, target = read(p, len(LONG))
    before(p, "ba", 3, lambda: p.b.data_access(False))
    until(p, lambda: p.b.held)
    held = len(p.decoded("ba"))
    assert 0 < held < len(LONG) // 1024
    p.after(3 * MEMORY_RETRY_NS, lambda: p.b.data_access(True))
    p.run()
    assert target.data == data
    psns = [row["psn"] for row in p.decoded("ba")]
    assert psns == list(range(len(psns)))
    untroubled(p)


def ask(p, psn, source, length):
    p.forge(op.RC_RDMA_READ_REQUEST, psn, va=source.va, rkey=source.key, length=length)


def test_answers_begin_again_with_the_earliest_that_is_asked_for_again(pair):
    """The requester has gone back: what it wants first comes first, though a later answer was begun."""
    p = pair(pmtu=PMTU)
    source, later = p.right.region(PMTU, fill=DATA[:PMTU]), p.right.region(PMTU)
    ask(p, 0, source, PMTU)
    p.run()
    lift = hold(later)
    ask(p, 1, later, PMTU)
    until(p, lambda: p.b.held)
    ask(p, 0, source, PMTU)
    ask(p, 1, later, PMTU)
    lift()
    p.run()
    assert [row["psn"] for row in p.decoded("ba")] == [0, 0, 1]


def test_an_answer_that_was_given_once_makes_room_for_a_new_request(pair):
    p = pair(pmtu=PMTU, rd_atomic=2)
    source = p.right.region(PMTU, fill=DATA[:PMTU])
    for psn in range(2):
        ask(p, psn, source, PMTU)
        p.run()
    p.b.data_access(False)
    for psn in (0, 1, 2):
        ask(p, psn, source, PMTU)
    assert p.right.qp.state == RTS
    p.b.data_access(True)
    p.run()
    assert [row["psn"] for row in p.decoded("ba")] == [0, 1, 1, 2]
    assert p.right.qp.receive_engine().replies.ring.pending == 0


def test_a_request_too_many_is_refused_while_the_first_answer_is_held(pair):
    p = pair(pmtu=PMTU, rd_atomic=2)
    source = p.right.region(PMTU)
    p.b.data_access(False)
    for psn in range(3):
        ask(p, psn, source, PMTU)
    assert p.right.qp.state == ERR


def test_a_repeated_read_changes_nothing_while_the_answer_is_held(pair):
    p = pair()
    source = p.right.region(len(DATA), fill=DATA)
    p.b.data_access(False)
    for _ in range(4):
        p.forge(op.RC_RDMA_READ_REQUEST, 0, va=source.va, rkey=source.key, length=len(DATA))
        for _ in range(5):
            p.step()
    assert p.decoded("ba") == []
    p.b.data_access(True)
    p.run()
    assert [(row["opcode"], row["psn"]) for row in p.decoded("ba")] == [(op.RC_RDMA_READ_RESPONSE_ONLY, 0)]


def test_a_read_held_within_the_time_out_budget_is_answered(pair):
    p = pair()
    data, target = read(p)
    p.b.data_access(False)
    p.after(BUDGET_NS // 2, lambda: p.b.data_access(True))
    p.run()
    assert target.data == data
    assert statuses(p.left.sent()) == [0]
    assert p.left.qp.counters.timeouts >= 2
    p.at_rest()


def test_a_read_held_beyond_the_time_out_budget_ends_once(pair):
    p = pair(retry_cnt=2)
    _, target = read(p)
    p.left.post(wqe.SEND, inline=b"flushed", wr_id=2)
    p.b.data_access(False)
    p.after(2 * BUDGET_NS, lambda: p.b.data_access(True))
    p.run()
    assert [(c.wr_id, c.status) for c in p.left.sent()] == [(1, cqe.WC_RETRY_EXC_ERR), (2, FLUSHED)]
    assert not any(target.data)
    assert p.right.qp.state == RTS
    assert p.b.held == {}
    p.at_rest()


def test_what_comes_behind_a_held_answer_is_executed_and_acknowledged_after_it(pair):
    p = pair()
    data, target = read(p)
    lift = hold(p.b.owned[0])
    goal = p.right.region(8)
    p.left.post(wqe.RDMA_WRITE, inline=b"behind", remote=goal, wr_id=2)
    until(p, lambda: any(goal.data))
    assert p.decoded("ba") == []
    lift()
    p.run()
    assert [row["psn"] for row in p.decoded("ba")] == [0, 1]
    assert [(c.wr_id, c.status) for c in p.left.sent()] == [(1, 0), (2, 0)]
    assert target.data == data
    untroubled(p)


def test_a_right_withdrawn_during_the_hold_ends_the_read(pair):
    p = pair()
    read(p)
    p.b.data_access(False)
    until(p, lambda: p.b.held)
    p.b.owned[0].deregister()
    p.b.data_access(True)
    p.run()
    assert statuses(p.left.sent()) == [cqe.WC_REM_ACCESS_ERR]


# both, states, chance


def test_both_sides_held(pair):
    p = pair()
    ends = ((p.left, p.right), (p.right, p.left))
    pairs = []
    for end, peer in ends:
        source, target = end.region(len(DATA), fill=DATA), peer.region(len(DATA))
        echo = end.region(len(DATA))
        end.post(wqe.RDMA_WRITE, [source.sge()], remote=target, wr_id=1)
        end.post(wqe.RDMA_READ, [echo.sge()], remote=target, wr_id=2, flags=wqe.SIGNALED | wqe.FENCE)
        pairs.append((target, echo))
    p.a.data_access(False)
    p.b.data_access(False)
    p.after(2 * MEMORY_RETRY_NS, lambda: p.a.data_access(True))
    p.after(3 * MEMORY_RETRY_NS, lambda: p.b.data_access(True))
    p.run()
    for target, echo in pairs:
        assert target.data == DATA
        assert echo.data == DATA
    for end, _ in ends:
        assert [(c.wr_id, c.status) for c in end.sent()] == [(1, 0), (2, 0)]
    untroubled(p)


def test_sqd_drains_when_the_memory_is_there_again(pair):
    p = pair()
    there, missing = p.left.region(1024, fill=LONG[:1024]), p.left.region(8, fill=b"missing!")
    target = p.right.region(1032)
    p.a.data_access(False)
    p.left.post(wqe.RDMA_WRITE, [there.sge(), missing.sge()], remote=target)
    p.step()
    p.left.qp.modify({"qp_state": SQD, "en_sqd_async_notify": 1}, p.now)
    for _ in range(20):
        p.step()
    assert p.left.qp.draining
    p.a.data_access(True)
    p.run()
    assert not p.left.qp.draining
    assert target.data == LONG[:1024] + b"missing!"
    assert statuses(p.left.sent()) == [0]


@pytest.mark.parametrize("state", [ERR, RESET])
@pytest.mark.parametrize("what", ["source", "result", "answer"])
def test_what_is_held_is_forgotten_with_its_queue_pair(pair, what, state):
    p = pair()
    goal = p.right.region(len(DATA))
    mine = p.left.region(len(DATA), fill=DATA)
    opcode = wqe.RDMA_WRITE if what == "source" else wqe.RDMA_READ
    end, node = (p.right, p.b) if what == "answer" else (p.left, p.a)
    node.data_access(False)
    p.left.post(opcode, [mine.sge()], remote=goal)
    until(p, lambda: node.held)
    end.qp.modify({"qp_state": state}, p.now)
    assert not end.qp.flow.has_work()
    sent = len(p.log)
    node.data_access(True)
    p.faults.rule = lambda way, packet: 0
    for _ in range(10):
        p.step()
    assert [row for row in p.decoded("ab" if end is p.left else "ba")][sent:] == []
    if what != "answer":
        assert statuses(p.left.sent()) == ([FLUSHED] if state == ERR else [])
        assert mine.data == DATA
        p.at_rest()


@pytest.mark.parametrize("seed", range(12))
def test_holds_at_random_leave_no_trace_but_time(pair, seed):
    """Every operation of several queue pairs, both sides held now and then, also with loss."""
    dice = random.Random(seed)
    p = pair(pmtu=PMTU, qps=2, faults=Faults(seed, loss=0.02 * (seed % 2), reordering=0.02 * (seed % 3)))
    told = []
    counts = []
    for left, right in zip(p.lefts + p.rights, p.rights + p.lefts, strict=True):
        counter = right.region(8)
        counts.append(counter)
        for i in range(8):
            n = dice.randrange(1, 3000)
            data = dice.randbytes(n)
            mine, theirs = left.region(n, fill=data), right.region(n)
            result = left.region(8)
            left.post(wqe.RDMA_WRITE, [mine.sge()], remote=theirs, wr_id=4 * i)
            right.post_receive([right.region(n).sge()])
            left.post(wqe.SEND, [mine.sge()], wr_id=4 * i + 1)
            back = left.region(n)
            left.post(
                wqe.RDMA_READ, [back.sge()], remote=theirs, wr_id=4 * i + 2, flags=wqe.SIGNALED | wqe.FENCE
            )
            left.post(wqe.ATOMIC_FETCH_AND_ADD, [result.sge()], remote=counter, compare=1, wr_id=4 * i + 3)
            told.append((data, theirs, back, result, i))
    for node in (p.a, p.b):
        moment = 0
        for _ in range(30):
            moment += dice.randrange(50_000)
            p.after(moment, lambda node=node: node.data_access(False))
            moment += dice.randrange(300_000)
            p.after(moment, lambda node=node: node.data_access(True))
    p.run()
    for data, theirs, back, result, i in told:
        assert theirs.data == data
        assert back.data == data
        assert int.from_bytes(result.data, "little") == i
    for counter in counts:
        assert int.from_bytes(counter.data, "little") == 8
    for end in p.lefts + p.rights:
        assert [(c.wr_id, c.status) for c in end.sent()] == [(n, 0) for n in range(32)]
        assert len(end.received()) == 8
    assert p.a.counters.rnr_naks_sent + p.b.counters.rnr_naks_sent > 0
    p.at_rest()


@pytest.mark.parametrize("what", ["request", "answer", "source", "result"])
def test_an_observer_is_told_what_waits_and_when_it_is_tried_again(pair, what):
    p = pair(pmtu=PMTU, left_psn=70)
    node, end = (p.b, p.right) if what in ("request", "answer") else (p.a, p.left)
    told = []
    node.observer = lambda event, qp, psn, state, reason: told.append((event, qp, psn, state, reason))
    mine, theirs = p.left.region(len(DATA)), p.right.region(len(DATA))
    node.data_access(False)
    opcode = wqe.RDMA_READ if what in ("answer", "result") else wqe.RDMA_WRITE
    p.left.post(opcode, [mine.sge()], remote=theirs)
    until(p, lambda: told)
    node.data_access(True)
    p.run()
    assert told[0] == ("memory_held", end.number, 70, "RTS", what)
    rest = ("rnr_nak_sent", "wait_ns 10000") if what == "request" else ("memory_tried", what)
    assert told[1:] == [(rest[0], end.number, 70, "RTS", rest[1])]
