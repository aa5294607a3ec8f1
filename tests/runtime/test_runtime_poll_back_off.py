"""What follows a poll in vain, in time that a test makes."""

from softhca.runtime.poll_back_off import (
    AGAIN,
    CONTENDED_NS,
    CONTENTION_MEMORY_NS,
    MAX_SLEEP_NS,
    SLEEP,
    SLEEP_FRACTION,
    YIELD,
    PollBackOff,
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
    assert back_off.missed(2_999 + CONTENTION_MEMORY_NS) == SLEEP
    assert back_off.missed(3_000 + CONTENTION_MEMORY_NS) == YIELD


def test_how_long_a_yield_may_take_and_how_long_it_is_remembered_can_be_said():
    back_off = PollBackOff(limit_ns=10**12, contended_ns=50, memory_ns=700)
    back_off.worked(0)
    back_off.yielded(1_000, 1_050)
    assert back_off.missed(1_100) == YIELD
    back_off.yielded(2_000, 2_051)
    assert back_off.missed(2_699) == SLEEP
    assert back_off.missed(2_700) == YIELD


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
    back_off.worked(16_000)
    assert back_off.missed(16_001) == AGAIN
