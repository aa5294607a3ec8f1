"""A receiver that is not ready: RNR NAKs, what may come behind them, and what each of them costs."""

import pytest

from softhca.queues import cqe, wqe
from softhca.testing.transport_pair import Faults
from softhca.transport.conditions import NOT_READY
from softhca.transport.credits import INVALID
from softhca.transport.retry import RNR_TIMER_NS
from softhca.transport.states import ERR, RTS
from softhca.wire import opcodes as op

PSN = 10
RNR, SEQUENCE, ACCESS = 0x22, 0x60, 0x62
WAIT_NS = RNR_TIMER_NS[RNR & 31]


@pytest.fixture
def lone(pair):
    """Makes a pair whose right side is played by the test: nothing that is sent arrives."""

    def make(**settings):
        settings = {"timeout": 20, "retry_cnt": 0, **settings}
        return pair(pmtu=256, left_psn=PSN, faults=Faults(rule=lambda way, packet: 0), **settings)

    return make


def settle(p):
    while p.a.queue:
        p.transmit(p.a)


def send(p, count=3):
    for i in range(count):
        p.left.post(wqe.SEND, inline=b"x", wr_id=i)
    settle(p)


def answer(p, syndrome, psn=PSN):
    p.forge(op.RC_ACKNOWLEDGE, psn, way="ba", syndrome=syndrome)
    settle(p)


def psns(p):
    rows = [row["psn"] for row in p.decoded("ab")]
    p.log.clear()
    return rows


def wait(p):
    """Until the delay of the RNR NAK is over, and what it refused has gone again."""
    while p.left.qp.send_engine().condition == NOT_READY:
        assert p.step()
    settle(p)


def fill(p):
    """Let others have the whole window; the bytes that they have."""
    window = p.left.qp.flow.window
    window.charge(window.limit_bytes)
    return window.limit_bytes


def statuses(p):
    return [c.status for c in p.left.sent()]


# the rest of a refused message is refused too, as some responders do


@pytest.mark.parametrize("repeats", [1, 2, 5])
def test_a_sequence_nak_behind_an_rnr_nak_costs_nothing_when_it_comes_after_the_delay(lone, repeats):
    p = lone()
    send(p)
    for _ in range(40):
        answer(p, RNR)
        psns(p)
        wait(p)
        assert psns(p) == [10, 11, 12]
        for _ in range(repeats):
            answer(p, SEQUENCE)
        assert psns(p) == []
    answer(p, INVALID, 12)
    assert statuses(p) == [0, 0, 0]
    assert p.left.qp.counters.retransmissions == 0
    p.at_rest()


@pytest.mark.parametrize("repeats", [1, 2, 5])
def test_a_sequence_nak_behind_an_rnr_nak_costs_nothing_while_the_delay_runs(lone, repeats):
    p = lone()
    send(p)
    for _ in range(40):
        answer(p, RNR)
        psns(p)
        for _ in range(repeats):
            answer(p, SEQUENCE)
        assert psns(p) == []
        wait(p)
        assert psns(p) == [10, 11, 12]
    answer(p, INVALID, 12)
    assert statuses(p) == [0, 0, 0]


def test_a_sequence_nak_that_has_overtaken_the_rnr_nak_of_its_attempt_is_given_back(lone):
    p = lone(retry_cnt=1)
    send(p)
    answer(p, SEQUENCE)
    assert psns(p) == [10, 11, 12] * 2
    assert p.left.qp.send_engine().retry.retries_left == 0
    answer(p, RNR)
    assert psns(p) == []
    assert p.left.qp.send_engine().retry.retries_left == 1
    wait(p)
    assert psns(p) == [10, 11, 12]


def test_after_progress_a_sequence_nak_counts_again(lone):
    p = lone(retry_cnt=1)
    send(p)
    answer(p, RNR)
    wait(p)
    answer(p, INVALID, 10)
    psns(p)
    answer(p, SEQUENCE, 11)
    assert psns(p) == [11, 12]
    assert p.left.qp.counters.retransmissions == 1
    assert p.left.qp.send_engine().retry.retries_left == 0


def test_a_sequence_nak_beyond_the_refused_packet_is_progress_and_a_loss(lone):
    p = lone(retry_cnt=1)
    send(p)
    answer(p, RNR)
    wait(p)
    psns(p)
    answer(p, SEQUENCE, 11)
    assert psns(p) == [11, 12]
    assert statuses(p) == [0]
    assert p.left.qp.counters.retransmissions == 1


def test_another_nak_behind_an_rnr_nak_ends_the_request(lone):
    p = lone()
    send(p)
    answer(p, RNR)
    answer(p, ACCESS)
    assert statuses(p)[0] == cqe.WC_REM_ACCESS_ERR
    assert p.left.qp.state == ERR


# several RNR NAKs for one attempt


@pytest.mark.parametrize("repeats", [2, 7])
def test_an_rnr_nak_while_one_is_waited_for_is_no_other_retry(lone, repeats):
    p = lone(rnr_retry=1)
    send(p)
    for _ in range(repeats):
        answer(p, RNR)
    assert p.left.qp.send_engine().retry.rnr_retries_left == 0
    p.now += 1_000
    p.a.now = p.now
    began = p.now
    answer(p, RNR | 31)
    psns(p)
    wait(p)
    assert p.now - began == WAIT_NS - 1_000  # nor is the delay another one
    assert psns(p) == [10, 11, 12]
    answer(p, RNR)
    assert statuses(p)[0] == cqe.WC_RNR_RETRY_EXC_ERR


def test_an_rnr_nak_before_the_refused_packet_went_again_is_no_other_retry(lone):
    """The delay is over, but others have the window."""
    p = lone(rnr_retry=1)
    send(p)
    answer(p, RNR)
    psns(p)
    others = fill(p)
    wait(p)
    for _ in range(3):
        answer(p, RNR)
        answer(p, SEQUENCE)
    assert psns(p) == []
    assert p.left.qp.state == RTS
    p.left.qp.flow.window.give_up(others)
    settle(p)
    assert psns(p) == [10, 11, 12]
    answer(p, RNR)
    assert statuses(p)[0] == cqe.WC_RNR_RETRY_EXC_ERR


def test_an_rnr_nak_of_an_attempt_that_a_sequence_nak_has_ended_is_waited_for(lone):
    p = lone(retry_cnt=1)
    send(p)
    psns(p)
    others = fill(p)
    answer(p, SEQUENCE)
    assert psns(p) == []
    answer(p, RNR)
    p.left.qp.flow.window.give_up(others)
    settle(p)
    assert psns(p) == []
    wait(p)
    assert psns(p) == [10, 11, 12]


# retries and RNR retries


def test_time_outs_between_rnr_naks_are_counted_anew(lone):
    """Who says that it is not ready is there."""
    p = lone(retry_cnt=2, timeout=6)
    send(p, 1)
    for _ in range(9):
        for _ in range(2):
            before = p.left.qp.counters.timeouts
            while p.left.qp.counters.timeouts == before:
                assert p.step()
        settle(p)
        answer(p, RNR)
        wait(p)
    assert p.left.qp.state == RTS
    p.run()
    assert statuses(p) == [cqe.WC_RETRY_EXC_ERR]
    assert p.left.qp.counters.timeouts == 9 * 2 + 3


def test_rnr_retries_are_not_counted_anew_by_time_outs(lone):
    p = lone(rnr_retry=3, retry_cnt=7, timeout=6)
    send(p, 1)
    for _ in range(3):
        answer(p, RNR)
        wait(p)
        before = p.left.qp.counters.timeouts
        while p.left.qp.counters.timeouts == before:
            assert p.step()
        settle(p)
    answer(p, RNR)
    assert statuses(p) == [cqe.WC_RNR_RETRY_EXC_ERR]


def test_an_implied_nak_that_finds_the_going_back_under_way_costs_nothing(lone):
    """An answer behind a READ that is missing, while others have the window."""
    p = lone(retry_cnt=0)
    sink, source = p.left.region(256), p.right.region(256)
    p.left.post(wqe.SEND, inline=b"x")
    p.left.post(wqe.RDMA_READ, [sink.sge()], remote=source)
    p.left.post(wqe.SEND, inline=b"x")
    settle(p)
    answer(p, RNR)
    others = fill(p)
    wait(p)
    psns(p)
    answer(p, INVALID, 12)
    assert statuses(p) == [0]
    assert p.left.qp.counters.implied_naks == 0
    p.left.qp.flow.window.give_up(others)
    settle(p)
    assert psns(p) == [11, 12]
