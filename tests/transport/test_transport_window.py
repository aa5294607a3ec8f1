"""The window of bytes in flight towards one destination."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softhca.transport.retry import FLIGHTS, Flights
from softhca.transport.window import (
    BURST_OVERHEAD_BYTES,
    DEFAULT_LIMIT_BYTES,
    DEFAULT_MAXIMUM_BYTES,
    FULL_BURST_BYTES,
    MOST_PATIENCE_NS,
    PATIENCE_NS,
    DestinationWindow,
    Patience,
)
from softhca.wire.psn import distance

ONE = FULL_BURST_BYTES + BURST_OVERHEAD_BYTES
DEFAULT_RECEIVE_BUFFER_BYTES = 2 * 212_992  # as the kernel accounts it


class Waiter:
    """What a window needs of a queue pair."""

    def __init__(self):
        self.waiting = False
        self.turns = 0
        self.environment = self

    def schedule(self, queue_pair):
        assert queue_pair is self
        self.turns += 1


def test_defaults_leave_room_for_both_directions_in_a_default_receive_buffer():
    assert 2 * DEFAULT_LIMIT_BYTES <= DEFAULT_RECEIVE_BUFFER_BYTES
    assert 3 * ONE <= DEFAULT_LIMIT_BYTES <= DEFAULT_MAXIMUM_BYTES <= DEFAULT_RECEIVE_BUFFER_BYTES


@pytest.mark.parametrize(("limit", "maximum"), [(ONE - 1, ONE * 4), (ONE * 3, ONE * 2)])
def test_limits_that_contradict_each_other_are_refused(limit, maximum):
    with pytest.raises(ValueError, match="at least one burst"):
        DestinationWindow(limit, maximum)


def test_cost_counts_bytes_bursts_and_where_asked_packets():
    assert DestinationWindow().cost(1000, 5) == 1000 + BURST_OVERHEAD_BYTES
    assert DestinationWindow(packet_overhead_bytes=768).cost(1000, 5) == 1000 + 5 * 768 + BURST_OVERHEAD_BYTES


def test_room_shrinks_with_charges_and_comes_back_with_credit():
    window, qp = DestinationWindow(4 * ONE, 4 * ONE), Waiter()
    assert window.room(qp) == 4 * ONE
    window.charge(ONE)
    assert window.room(qp) == 3 * ONE
    window.charge(3 * ONE)
    assert window.room(qp) == 0
    assert not window.admits(qp, 1)
    window.credit(4 * ONE)
    assert window.in_flight_bytes == 0
    assert window.room(qp) == 4 * ONE


def test_anything_goes_when_nothing_is_in_flight():
    window, qp = DestinationWindow(ONE, ONE), Waiter()
    assert window.admits(qp, 10 * ONE)
    window.charge(1)
    assert not window.admits(qp, ONE)
    assert window.admits(qp, ONE - 1)


def test_waiters_get_their_turns_first_in_first_out_one_at_a_time():
    window = DestinationWindow(2 * ONE, 2 * ONE)
    first, second, third = Waiter(), Waiter(), Waiter()
    window.charge(2 * ONE)
    window.wait(first)
    window.wait(first)
    window.wait(second)
    assert (first.waiting, second.waiting) == (True, True)
    window.credit(ONE)
    assert (first.turns, second.turns) == (1, 0)
    assert window.room(first) == ONE
    assert window.room(second) == window.room(third) == 0
    window.leave(first)
    assert (first.turns, second.turns) == (1, 1)
    window.leave(second)
    assert window.turn is None
    assert window.room(third) == ONE


def test_holder_of_the_turn_that_finds_too_little_stays_first():
    window, first, second = DestinationWindow(2 * ONE, 2 * ONE), Waiter(), Waiter()
    window.charge(2 * ONE)
    window.wait(first)
    window.wait(second)
    window.credit(ONE)
    window.wait(first)
    assert first.waiting
    window.credit(ONE)
    assert (first.turns, second.turns) == (2, 0)


def test_holder_of_the_turn_that_waits_again_and_leaves_is_forgotten():
    window, first, second = DestinationWindow(2 * ONE, 2 * ONE), Waiter(), Waiter()
    window.charge(2 * ONE)
    window.wait(first)
    window.wait(second)
    window.credit(ONE)
    window.wait(first)
    window.leave(first)
    assert list(window.waiters) == []
    assert window.turn is second
    assert (first.waiting, first.turns, second.turns) == (False, 1, 1)


def test_no_turn_is_given_for_less_than_half_a_burst():
    window, qp = DestinationWindow(2 * ONE, 2 * ONE), Waiter()
    window.charge(2 * ONE)
    window.wait(qp)
    window.credit(ONE // 2 - 1)
    assert qp.turns == 0
    window.credit(1)
    assert qp.turns == 1


def test_queue_pair_that_leaves_is_forgotten_and_the_next_one_goes():
    window, first, second, third = DestinationWindow(ONE, ONE), Waiter(), Waiter(), Waiter()
    window.charge(ONE)
    for qp in (first, second, third):
        window.wait(qp)
    window.leave(second)
    assert not second.waiting
    window.give_up(ONE)
    assert (first.turns, second.turns, third.turns) == (1, 0, 0)
    window.leave(first)
    assert third.turns == 1


def test_loss_halves_the_limit_down_to_one_burst():
    window = DestinationWindow(4 * ONE, 4 * ONE)
    limits = []
    for _ in range(4):
        window.lost()
        limits.append(window.limit_bytes)
    assert limits == [2 * ONE, ONE, ONE, ONE]
    assert window.losses == 4


def test_limit_grows_by_one_burst_after_many_confirmed_windows_and_never_above_the_maximum():
    window = DestinationWindow(2 * ONE, 4 * ONE, growth_windows=3)

    def confirm(windows):
        for _ in range(windows):
            amount = window.limit_bytes
            window.charge(amount)
            window.credit(amount)

    confirm(2)
    assert window.limit_bytes == 2 * ONE
    confirm(1)
    assert window.limit_bytes == 3 * ONE
    confirm(2)
    assert window.limit_bytes == 3 * ONE  # each step asks for as many windows anew
    confirm(18)
    assert window.limit_bytes == 4 * ONE


def test_loss_and_bytes_that_were_given_up_are_no_evidence():
    window = DestinationWindow(2 * ONE, 9 * ONE, growth_windows=3)
    for _ in range(9):
        window.charge(2 * ONE)
        window.give_up(2 * ONE)
    assert window.limit_bytes == 2 * ONE
    for _ in range(9):
        window.charge(ONE)
        window.credit(ONE)
        if window.confirmed_bytes > 3 * ONE:
            window.lost()
            window.limit_bytes = 2 * ONE
    assert window.limit_bytes == 2 * ONE


@given(
    start=st.integers(0, 0xFFFFFF),
    steps=st.lists(st.tuples(st.integers(1, 300), st.integers(0, 70_000)), min_size=1, max_size=3 * FLIGHTS),
    settle_every=st.integers(1, 200),
)
def test_flights_give_back_exactly_what_was_pushed(start, steps, settle_every):
    flights, psn, pushed, given_back, entries = Flights(), start, 0, 0, []
    for i, (packets, cost) in enumerate(steps):
        psn = (psn + packets) & 0xFFFFFF
        flights.push((psn - 1) & 0xFFFFFF, cost, 0)
        pushed += cost
        entries.append(((psn - 1) & 0xFFFFFF, cost))
        if i % settle_every == settle_every - 1:
            una = entries[len(entries) // 2][0]
            given_back += flights.settle(una, 0)
            # never early: what is not acknowledged stays charged
            assert pushed - given_back >= sum(c for last, c in entries if distance(last, una) <= 0)
    given_back += flights.settle(psn, 0)
    assert given_back == pushed
    assert flights.count == 0


def test_flights_beyond_the_most_that_are_kept_are_answered_for_with_the_newest():
    flights = Flights()
    for i in range(FLIGHTS + 3):
        flights.push(10 * i, 100 + i, 0)
    newest = sum(range(100 + FLIGHTS - 1, 100 + FLIGHTS + 3))
    older = sum(range(100, 100 + FLIGHTS - 1))
    assert flights.count == FLIGHTS
    assert flights.settle(10 * (FLIGHTS - 2) + 1, 0) == older
    assert flights.count == 1
    assert flights.settle(10 * (FLIGHTS + 2), 0) == 0  # one packet of the newest is still out
    assert flights.settle(10 * (FLIGHTS + 2) + 1, 0) == newest
    assert flights.count == 0


def test_cleared_flights_give_everything_back_once():
    flights = Flights()
    flights.push(5, 10, 0)
    flights.push(9, 20, 0)
    assert flights.clear(0) == 30
    assert flights.settle(100, 0) == 0


@pytest.mark.parametrize("give", [lambda flights, epoch: flights.settle(10, epoch), Flights.clear])
def test_flights_of_an_epoch_that_is_over_give_nothing_back(give):
    flights = Flights()
    flights.push(5, 10, 3)
    assert give(flights, 4) == 0
    flights.push(6, 20, 4)
    assert give(flights, 4) == 20
    flights.push(7, 1, 4)
    flights.push(8, 2, 5)
    assert give(flights, 5) == 2


def test_who_waits_in_vain_finds_room_for_one_burst_and_needs_more_patience_each_time():
    window, qp, patience = DestinationWindow(), Waiter(), Patience()
    window.charge(DEFAULT_LIMIT_BYTES)
    window.wait(qp)
    patience.begin(window, 1_000)
    assert patience.deadline_ns == 1_000 + PATIENCE_NS
    patience.begin(window, 2_000)
    assert patience.deadline_ns == 1_000 + PATIENCE_NS
    patience.expire(window, True, 999 + PATIENCE_NS)
    assert (window.in_flight_bytes, window.epoch, qp.turns) == (DEFAULT_LIMIT_BYTES, 0, 0)
    patience.expire(window, True, 1_000 + PATIENCE_NS)
    assert (window.in_flight_bytes, window.epoch, window.turn, qp.turns) == (0, 1, qp, 1)
    assert (window.limit_bytes, window.losses) == (ONE, 1)
    assert patience.deadline_ns == 1_000 + PATIENCE_NS + 2 * PATIENCE_NS
    for _ in range(9):
        window.forgive()
    assert window.patience_ns == MOST_PATIENCE_NS
    window.charge(1)
    window.credit(1)
    assert window.patience_ns == PATIENCE_NS


@pytest.mark.parametrize("answer", [DestinationWindow.credit, DestinationWindow.give_up])
def test_nothing_is_given_up_while_answers_come_nor_for_who_waits_no_more(answer):
    window, patience = DestinationWindow(), Patience()
    window.charge(DEFAULT_LIMIT_BYTES)
    patience.begin(window, 0)
    answer(window, 1)
    patience.expire(window, True, PATIENCE_NS)
    assert (window.epoch, patience.deadline_ns) == (0, 2 * PATIENCE_NS)
    patience.expire(window, False, 2 * PATIENCE_NS)
    assert (window.epoch, patience.deadline_ns) == (0, 0)
    patience.begin(window, 0)
    patience.end()
    patience.expire(window, True, PATIENCE_NS)
    assert (window.epoch, patience.deadline_ns) == (0, 0)
