"""The timer of a requester, its counters, and round trips that are measured, each by itself."""

from __future__ import annotations

import pytest

from softhca.transport.retry import RNR_RETRY_INFINITE, RNR_TIMER_NS, RetryState, interval_ns
from softhca.transport.window import PERIOD_NS, STALL_NS, RoundTrips

NOW = 5_000


@pytest.fixture
def state() -> RetryState:
    made = RetryState()
    made.configure(14, 3, 2)
    return made


def test_a_time_out_is_a_power_of_two_of_units_and_0_is_none() -> None:
    assert [interval_ns(timeout) for timeout in (0, 1, 14, 31)] == [0, 16_384, 8_192 << 14, 8_192 << 31]
    made = RetryState()
    made.configure(0, 3, 2)
    made.restart(NOW)
    assert made.deadline_ns == 0
    made.persist(NOW)
    assert (made.deadline_ns, made.persisting) == (0, False)


def test_what_is_awaited_is_so_from_now_on_until_it_is_not(state: RetryState) -> None:
    state.persist(NOW)
    assert (state.deadline_ns, state.persisting) == (NOW + max(interval_ns(14), STALL_NS), True)
    state.restart(NOW)
    assert (state.deadline_ns, state.persisting) == (NOW + interval_ns(14), False)
    state.persist(NOW)
    state.stop()
    assert (state.deadline_ns, state.persisting) == (0, False)


def test_a_receiver_that_is_not_ready_says_for_how_long_in_five_bits(state: RetryState) -> None:
    assert (RNR_TIMER_NS[0], RNR_TIMER_NS[1], RNR_TIMER_NS[31]) == (655_360_000, 10_000, 491_520_000)
    for timer in (0, 1, 31, 32, 63):
        state.persist(NOW)
        state.delay(timer, NOW)
        assert (state.deadline_ns, state.persisting) == (NOW + RNR_TIMER_NS[timer & 31], False)


def test_retries_are_spent_apart_and_are_there_again(state: RetryState) -> None:
    assert [state.spend_retry() for _ in range(4)] == [True, True, True, False]
    assert state.spend_rnr_retry()  # the responder lives: those of silence are there again
    assert state.retries_left == 3
    assert [state.spend_rnr_retry() for _ in range(2)] == [True, False]
    assert [state.spend_rnr_retry() for _ in range(2)] == [False, False]
    state.progress()
    assert (state.retries_left, state.rnr_retries_left) == (3, 2)
    state.configure(14, 3, RNR_RETRY_INFINITE)
    assert all(state.spend_rnr_retry() for _ in range(100))


def trip(trips: RoundTrips, begin: int, end: int) -> None:
    trips.depart(100, begin)
    trips.answer(100, end)


def test_a_round_trip_ends_when_as_much_is_answered_for_as_was_in_flight() -> None:
    trips = RoundTrips()
    trips.answer(10, 7)  # nothing is measured
    trips.depart(100, 10)
    trips.depart(900, 12)  # one measurement at a time
    trips.answer(60, 20)
    trips.answer(39, 25)
    assert (trips.count, trips.awaited_bytes) == (0, 1)
    trips.answer(5, 30)
    assert (trips.count, trips.least_ns, trips.awaited_bytes) == (1, 20, 0)
    trips.depart(100, 40)
    trips.forget()
    trips.answer(100, 41)
    assert (trips.count, trips.least_ns) == (1, 20)


def test_the_shortest_of_a_period_and_the_one_before_counts_once_two_are_known() -> None:
    trips = RoundTrips()
    trip(trips, 0, 50)
    assert trips.shortest() == 0
    trip(trips, 60, 90)
    assert trips.shortest() == 30
    trip(trips, 100, 140)
    assert (trips.shortest(), trips.former_ns) == (30, 0)
    end = 50 + PERIOD_NS  # of the period that the first one has begun
    trip(trips, end - 101, end - 1)
    assert (trips.least_ns, trips.former_ns) == (30, 0)
    trip(trips, end - 70, end)
    assert (trips.least_ns, trips.former_ns, trips.shortest()) == (70, 30, 30)
    trip(trips, end + 10, end + 30)  # a path that gets shorter is noticed at once
    assert trips.shortest() == 20
    for _ in range(2):  # one that gets longer after two periods
        end += PERIOD_NS
        trip(trips, end - 80, end)
    assert (trips.least_ns, trips.former_ns, trips.shortest()) == (80, 80, 80)
