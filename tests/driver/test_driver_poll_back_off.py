"""What follows a poll in vain, in time that a test makes."""

import pytest

from softhca.driver.poll_back_off import (
    AGAIN,
    CALL_CONTENDED_NS,
    CALL_MEMORY_NS,
    CONTENDED_NS,
    CONTENTION_MEMORY_NS,
    LONGEST_MEMORY_NS,
    LONGEST_NS,
    MAX_SLEEP_NS,
    PEER_NS,
    SHORTEST_NS,
    SLEEP,
    SLEEP_FRACTION,
    SWITCH_NS,
    TRY_EACH,
    YIELD,
    PollBackOff,
    PollBudget,
)


def test_some_polls_follow_at_once_then_others_are_let_run_each_time():
    back_off = PollBackOff(at_once=3)
    assert [back_off.missed(now) for now in range(6)] == [AGAIN] * 3 + [YIELD] * 3
    back_off.worked(7)
    assert back_off.empty_polls == 0
    assert back_off.missed(8) == AGAIN


def test_who_polls_in_vain_for_long_goes_to_sleep():
    back_off = PollBackOff(limit_ns=1_000)
    back_off.worked(500)
    assert back_off.missed(1_499) == YIELD
    assert back_off.missed(1_500) == SLEEP
    back_off.worked(1_501)
    assert back_off.missed(1_502) == YIELD


def test_who_has_never_found_anything_sleeps_at_once():
    assert PollBackOff(limit_ns=1_000).missed(10**9) == SLEEP


def test_a_nap_is_a_part_of_what_was_polled_in_vain_and_bounded():
    back_off = PollBackOff(limit_ns=400_000)
    back_off.worked(1_000_000)
    assert back_off.sleep_ns(1_400_000) == 400_000 // SLEEP_FRACTION
    assert back_off.sleep_ns(1_000_000 + SLEEP_FRACTION * MAX_SLEEP_NS) == MAX_SLEEP_NS
    assert back_off.sleep_ns(10**12) == MAX_SLEEP_NS


def test_a_clock_read_before_another_threads_poll_found_something_is_no_long_wait():
    back_off = PollBackOff(limit_ns=1_000)
    back_off.worked(500)
    assert back_off.missed(499) == YIELD
    assert (back_off.sleep_ns(499), back_off.idle_ns(499), back_off.idle_ns(501)) == (0, 0, 1)


def test_where_others_run_nobody_polls_in_vain_for_a_while():
    back_off = PollBackOff(limit_ns=10**12)
    back_off.worked(0)
    back_off.yielded(1_000, 1_000 + CONTENDED_NS)
    assert back_off.missed(2_000) == YIELD, "that was not long"
    back_off.yielded(3_000, 3_001 + CONTENDED_NS)
    end_ns = 3_001 + CONTENDED_NS
    assert back_off.missed(end_ns + CONTENTION_MEMORY_NS - 1) == SLEEP, "it counts from the yield's end"
    assert back_off.missed(end_ns + CONTENTION_MEMORY_NS) == YIELD


def test_how_long_a_yield_may_take_and_how_long_it_is_remembered_can_be_said():
    back_off = PollBackOff(limit_ns=10**12, contended_ns=50, memory_ns=700)
    back_off.worked(0)
    back_off.yielded(1_000, 1_050)
    assert back_off.missed(1_100) == YIELD
    back_off.yielded(2_000, 2_051)
    assert back_off.missed(2_750) == SLEEP
    assert back_off.missed(2_751) == YIELD


def long_yield(back_off: PollBackOff, begin_ns: int) -> int:
    """For how long nobody polls in vain after it."""
    end_ns = begin_ns + PEER_NS + 1
    back_off.yielded(begin_ns, end_ns)
    return back_off.contended_until_ns - end_ns


def test_each_further_long_yield_is_remembered_for_twice_as_long_within_a_bound() -> None:
    back_off = PollBackOff(memory_ns=10_000_000)
    found = [long_yield(back_off, begin_ns) for begin_ns in range(0, 10**10, 10**9)]
    assert found == [10_000_000, 20_000_000, 40_000_000] + 7 * [LONGEST_MEMORY_NS]


def after(back_off: PollBackOff, *polls: tuple[int, bool]) -> int:
    """What a long yield is remembered for after yields that took so long, behind which there was work, or
    not."""
    for took_ns, works in polls:
        back_off.yielded(0, took_ns)
        if not works:
            back_off.missed(10**12)
        back_off.worked(100)
    return long_yield(back_off, 1_000)


def test_each_yield_up_to_the_peers_before_a_poll_that_finds_something_halves_the_memory() -> None:
    back_off = PollBackOff(memory_ns=10_000_000)
    assert [after(back_off) for _ in range(4)] == [10_000_000, 20_000_000, 40_000_000, LONGEST_MEMORY_NS]
    assert after(back_off, (PEER_NS + 1, True)) == LONGEST_MEMORY_NS, "what came after a long one is no sign"
    assert after(back_off, (PEER_NS, True), (0, True)) == 20_000_000
    assert after(back_off, (1, False)) == 40_000_000, "nothing was found behind the yield"
    assert after(back_off, *9 * [(1, True)]) == 10_000_000


def test_a_yield_up_to_the_peers_makes_no_memory_longer() -> None:
    back_off = PollBackOff(memory_ns=10_000_000, contended_ns=50)
    assert after(back_off, *9 * [(PEER_NS, False)]) == 10_000_000


def test_beside_others_that_compute_a_yield_up_to_a_millisecond_is_not_taken_for_the_peers() -> None:
    back_off = PollBackOff()
    for begin_ns in range(2):
        long_yield(back_off, begin_ns)
    back_off.yielded(0, PEER_NS)
    back_off.worked(PEER_NS + 1)
    assert back_off.contended(PEER_NS + 1)
    assert not back_off.shares
    back_off.yielded(0, PEER_NS)
    back_off.worked(PEER_NS + 1)
    assert back_off.shares, "the second one is"
    assert not back_off.contended(PEER_NS + 1)


def test_a_call_that_finds_what_it_waits_for_halves_the_memory() -> None:
    budget = PollBudget()
    assert [long_yield(budget, 0) for _ in range(3)] == [CALL_MEMORY_NS << n for n in range(3)]
    budget.found()
    budget.found()
    assert long_yield(budget, 0) == 2 * CALL_MEMORY_NS
    for _ in range(5):
        budget.found()
    assert long_yield(budget, 0) == CALL_MEMORY_NS


def test_who_begins_anew_sleeps_at_once_and_remembers_that_others_run():
    back_off = PollBackOff(at_once=2, limit_ns=1_000, contended_ns=50, memory_ns=10_000)
    back_off.worked(5_000)
    assert back_off.missed(5_100) == AGAIN
    back_off.begins()
    assert back_off.empty_polls == 0
    assert back_off.missed(5_200) == SLEEP, "what it found before does not count"
    back_off.yielded(6_000, 6_051)
    back_off.begins()
    back_off.worked(7_000)
    assert back_off.missed(7_001) == SLEEP
    back_off.worked(16_051)
    assert back_off.missed(16_052) == AGAIN


def test_whom_a_yield_lets_work_is_let_run_at_once_until_nobody_runs() -> None:
    back_off = PollBackOff(at_once=3)
    assert [back_off.missed(now) for now in (1, 2, 3, 4)] == [AGAIN] * 3 + [YIELD]
    back_off.yielded(4, 4 + SWITCH_NS)
    back_off.worked(10_000)
    assert back_off.shares
    for now in (11_000, 12_000):
        assert back_off.missed(now) == YIELD, "the peer runs on this processor"
        back_off.yielded(now, now + SWITCH_NS)
        back_off.worked(now + SWITCH_NS)
    assert back_off.missed(30_000) == YIELD
    back_off.yielded(30_000, 30_000 + SWITCH_NS - 1)
    assert not back_off.shares
    back_off.worked(40_000)
    assert back_off.missed(40_001) == AGAIN


def test_who_runs_in_a_yield_that_brings_nothing_is_not_the_peer() -> None:
    back_off = PollBackOff(at_once=1)
    for now in (10_000, 20_000, 30_000):
        back_off.missed(now)
        back_off.yielded(now, now + SWITCH_NS)
    back_off.missed(40_000)
    back_off.worked(50_000)
    assert not back_off.shares
    back_off.yielded(60_000, 60_000 + SWITCH_NS)
    back_off.begins()
    back_off.worked(70_000)
    assert not back_off.shares, "it had begun anew, and was found later"


def test_a_peer_that_works_for_long_in_a_yield_is_no_competitor() -> None:
    back_off = PollBackOff()
    back_off.yielded(0, PEER_NS)
    assert back_off.contended(PEER_NS)
    back_off.worked(PEER_NS + 1)
    assert back_off.shares
    assert not back_off.contended(PEER_NS + 1)


def test_who_keeps_the_processor_for_longer_is_one_whatever_has_come_meanwhile() -> None:
    back_off = PollBackOff(at_once=2)
    back_off.yielded(0, PEER_NS + 1)
    back_off.worked(PEER_NS + 2)
    assert not back_off.shares
    assert back_off.contended(PEER_NS + 2)
    back_off.contended_until_ns = 0
    back_off.worked(PEER_NS + 3)
    assert not back_off.shares


@pytest.mark.parametrize("longest_ns", [LONGEST_NS, 4 * LONGEST_NS])
def test_polls_in_vain_become_short_and_are_tried_again(longest_ns: int) -> None:
    budget = PollBudget(longest_ns)
    limits = []
    while True:
        if budget.until(1000) == 1000:
            break
        assert len(limits) < 20
        limits.append(budget.limit_ns)
        assert budget.until(1000) == 1000 + budget.limit_ns
        budget.gave_up()
    assert limits[:2] == [longest_ns, longest_ns // 2]
    assert min(limits) > SHORTEST_NS
    assert budget.limit_ns == 0
    waits = [budget.until(1000) for _ in range(2 * TRY_EACH)]
    assert waits.count(1000 + longest_ns) == 2
    assert waits.count(1000) == 2 * TRY_EACH - 2
    budget.found()
    assert budget.until(5) == 5 + longest_ns


def test_no_call_polls_while_others_want_the_processor() -> None:
    budget = PollBudget()
    assert budget.limit_ns == LONGEST_NS
    budget.yielded(1000, 1000 + CALL_CONTENDED_NS)
    assert not budget.contended(1000 + CALL_CONTENDED_NS)
    budget.yielded(2000, 2001 + CALL_CONTENDED_NS)
    assert budget.contended(2001 + CALL_CONTENDED_NS)
    end_ns = 2001 + CALL_CONTENDED_NS + CALL_MEMORY_NS
    assert budget.until(end_ns - 1) == end_ns - 1
    assert budget.until(end_ns) == end_ns + LONGEST_NS
    assert not budget.contended(end_ns)
