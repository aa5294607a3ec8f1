"""The window of bytes in flight towards one destination."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softhca.transport.retry import IN_FLIGHT_ENTRIES, InFlightTable, RetryState, interval_ns
from softhca.transport.window import (
    BURST_OVERHEAD_BYTES,
    DEFAULT_LIMIT_BYTES,
    DEFAULT_MAXIMUM_BYTES,
    FAR_MAXIMUM_BYTES,
    FAR_NS,
    FULL_BURST_BYTES,
    LEAST_SAMPLE_BYTES,
    MOST_STALL_NS,
    PERIOD_NS,
    PROBE_BYTES,
    STALL_NS,
    TRIPS,
    DestinationWindow,
    RoundTrips,
)
from softhca.wire.psn import distance

ONE = FULL_BURST_BYTES + BURST_OVERHEAD_BYTES
DEFAULT_RECEIVE_BUFFER_BYTES = 2 * 212_992  # as the kernel accounts it


class Waiter:
    """What a window needs of a queue pair."""

    def __init__(self):
        self.waiting = False
        self.turns = 0
        self.armed_ns = 0
        self.environment = self

    def schedule(self, queue_pair):
        assert queue_pair is self
        self.turns += 1

    def arm(self, queue_pair, deadline_ns):
        assert queue_pair is self
        self.armed_ns = deadline_ns


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
    window.on_ack(4 * ONE, 0)
    assert window.in_flight_bytes == 0
    assert window.room(qp) == 4 * ONE


def test_who_has_the_turn_goes_first_also_when_nothing_is_in_flight():
    window, first, second = DestinationWindow(ONE, ONE), Waiter(), Waiter()
    window.charge(ONE)
    window.wait(second, 0)
    window.give_up(ONE)
    assert window.turn is second
    assert window.room(first) == 0
    assert not window.admits(first, 1)
    assert window.room(second) == ONE
    assert window.admits(second, 10 * ONE)
    window.leave(second)
    assert window.room(first) == ONE
    assert window.admits(first, 10 * ONE)


def test_who_has_the_turn_and_makes_no_use_of_it_loses_it_after_a_stall():
    window, idle, other = DestinationWindow(ONE, ONE), Waiter(), Waiter()
    window.charge(ONE)
    window.wait(idle, 0)
    window.give_up(ONE)
    window.wait(other, 1_000)
    assert (window.turn, window.watcher) == (idle, idle)
    window.check_stall(idle, STALL_NS)  # there was an answer: it is watched on
    assert window.turn is idle
    window.check_stall(idle, 2 * STALL_NS)
    assert (window.turn, other.turns) == (other, 1)
    assert (window.losses, window.epoch, window.limit_bytes) == (0, 0, ONE), "nothing was lost"
    window.leave(other)
    window.charge(ONE)
    window.wait(idle, 3 * STALL_NS)
    assert idle.waiting, "it may wait again"


def test_a_window_is_quiet_when_nothing_was_confirmed_for_an_interval_and_a_stall_at_least():
    window = DestinationWindow(ONE, ONE)
    window.charge(ONE)
    for heard_ns in (5, 1_000):
        window.on_ack(ONE // 2, heard_ns)
        for asked_ns, quiet_ns in ((1, STALL_NS), (STALL_NS, STALL_NS), (3 * STALL_NS, 3 * STALL_NS)):
            assert not window.quiet(asked_ns, heard_ns + quiet_ns - 1)
            assert window.quiet(asked_ns, heard_ns + quiet_ns)


def test_behind_a_stall_there_is_room_for_one_packet_and_what_it_costs():
    window, qp = DestinationWindow(ONE, ONE, packet_overhead_bytes=768), Waiter()
    window.charge(ONE)
    window.wait(qp, 0)
    window.on_stall()
    assert window.limit_bytes == PROBE_BYTES + 768 == window.cost(4096 + 256, 1)


@pytest.mark.parametrize("timeout", [1, 8, 14, 20])
def test_who_waits_for_room_looks_after_its_interval_and_a_stall_at_least(timeout):
    retry = RetryState()
    retry.configure(timeout, 7, 7)
    retry.persist(5)
    assert retry.deadline_ns == 5 + max(interval_ns(timeout), STALL_NS)
    retry.restart(6)
    assert retry.deadline_ns == 6 + interval_ns(timeout)


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
    window.wait(first, 0)
    window.wait(first, 0)
    window.wait(second, 0)
    assert (first.waiting, second.waiting) == (True, True)
    window.on_ack(ONE, 0)
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
    window.wait(first, 0)
    window.wait(second, 0)
    window.on_ack(ONE, 0)
    window.wait(first, 0)
    assert first.waiting
    window.on_ack(ONE, 0)
    assert (first.turns, second.turns) == (2, 0)


def test_holder_of_the_turn_that_waits_again_and_leaves_is_forgotten():
    window, first, second = DestinationWindow(2 * ONE, 2 * ONE), Waiter(), Waiter()
    window.charge(2 * ONE)
    window.wait(first, 0)
    window.wait(second, 0)
    window.on_ack(ONE, 0)
    window.wait(first, 0)
    window.leave(first)
    assert list(window.waiters) == []
    assert window.turn is second
    assert (first.waiting, first.turns, second.turns) == (False, 1, 1)


def test_no_turn_is_given_for_less_than_half_a_burst():
    window, qp = DestinationWindow(2 * ONE, 2 * ONE), Waiter()
    window.charge(2 * ONE)
    window.wait(qp, 0)
    window.on_ack(ONE // 2 - 1, 0)
    assert qp.turns == 0
    window.on_ack(1, 0)
    assert qp.turns == 1


def test_queue_pair_that_leaves_is_forgotten_and_the_next_one_goes():
    window, first, second, third = DestinationWindow(ONE, ONE), Waiter(), Waiter(), Waiter()
    window.charge(ONE)
    for qp in (first, second, third):
        window.wait(qp, 0)
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
            window.on_ack(amount, 0)

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
        window.on_ack(ONE, 0)
        if window.confirmed_bytes > 3 * ONE:
            window.lost()
            window.limit_bytes = 2 * ONE
    assert window.limit_bytes == 2 * ONE


@given(
    start=st.integers(0, 0xFFFFFF),
    steps=st.lists(
        st.tuples(st.integers(1, 300), st.integers(0, 70_000)), min_size=1, max_size=3 * IN_FLIGHT_ENTRIES
    ),
    settle_every=st.integers(1, 200),
)
def test_flights_give_back_exactly_what_was_pushed(start, steps, settle_every):
    in_flight, psn, pushed, given_back, entries = InFlightTable(), start, 0, 0, []
    for i, (packets, cost) in enumerate(steps):
        psn = (psn + packets) & 0xFFFFFF
        in_flight.push((psn - 1) & 0xFFFFFF, cost, 0)
        pushed += cost
        entries.append(((psn - 1) & 0xFFFFFF, cost))
        if i % settle_every == settle_every - 1:
            una = entries[len(entries) // 2][0]
            given_back += in_flight.settle(una, 0)
            # never early: what is not acknowledged stays charged
            assert pushed - given_back >= sum(c for last, c in entries if distance(last, una) <= 0)
    given_back += in_flight.settle(psn, 0)
    assert given_back == pushed
    assert in_flight.count == 0


def test_flights_beyond_the_most_that_are_kept_are_answered_for_with_the_newest():
    in_flight = InFlightTable()
    for i in range(IN_FLIGHT_ENTRIES + 3):
        in_flight.push(10 * i, 100 + i, 0)
    newest = sum(range(100 + IN_FLIGHT_ENTRIES - 1, 100 + IN_FLIGHT_ENTRIES + 3))
    older = sum(range(100, 100 + IN_FLIGHT_ENTRIES - 1))
    assert in_flight.count == IN_FLIGHT_ENTRIES
    assert in_flight.settle(10 * (IN_FLIGHT_ENTRIES - 2) + 1, 0) == older
    assert in_flight.count == 1
    assert in_flight.settle(10 * (IN_FLIGHT_ENTRIES + 2), 0) == 0  # one packet of the newest is still out
    assert in_flight.settle(10 * (IN_FLIGHT_ENTRIES + 2) + 1, 0) == newest
    assert in_flight.count == 0


def test_flights_that_are_joined_are_answered_for_together():
    in_flight = InFlightTable()
    in_flight.push(5, 10, 0, True)  # there is nothing to join
    in_flight.push(7, 20, 0, True)
    in_flight.push(9, 30, 0)
    assert in_flight.count == 2
    assert in_flight.settle(7, 0) == 0
    assert in_flight.settle(8, 0) == 30
    in_flight.push(11, 40, 1, True)  # another epoch: what it would join is given up
    assert (in_flight.count, in_flight.clear(1)) == (1, 40)


def test_cleared_flights_give_everything_back_once():
    in_flight = InFlightTable()
    in_flight.push(5, 10, 0)
    in_flight.push(9, 20, 0)
    assert in_flight.clear(0) == 30
    assert in_flight.settle(100, 0) == 0


@pytest.mark.parametrize("give", [lambda in_flight, epoch: in_flight.settle(10, epoch), InFlightTable.clear])
def test_flights_of_an_epoch_that_is_over_give_nothing_back(give):
    in_flight = InFlightTable()
    in_flight.push(5, 10, 3)
    assert give(in_flight, 4) == 0
    in_flight.push(6, 20, 4)
    assert give(in_flight, 4) == 20
    in_flight.push(7, 1, 4)
    in_flight.push(8, 2, 5)
    assert give(in_flight, 5) == 2


def test_who_waits_in_vain_finds_room_for_one_packet_and_waits_longer_each_time():
    window, qp = DestinationWindow(), Waiter()
    window.charge(DEFAULT_LIMIT_BYTES)
    window.wait(qp, 1_000)
    assert qp.armed_ns == window.watch_ns == 1_000 + STALL_NS
    window.wait(qp, 2_000)
    assert window.watch_ns == 1_000 + STALL_NS
    qp.armed_ns = 0
    window.check_stall(qp, 999 + STALL_NS)
    assert (window.in_flight_bytes, window.epoch, qp.turns) == (DEFAULT_LIMIT_BYTES, 0, 0)
    assert qp.armed_ns == 1_000 + STALL_NS
    window.check_stall(qp, 1_000 + STALL_NS)
    assert (window.in_flight_bytes, window.epoch, window.turn, qp.turns) == (0, 1, qp, 1)
    assert (window.limit_bytes, window.losses) == (PROBE_BYTES, 1)
    assert window.near_limit() == ONE  # the pace of answers to READs goes on by bursts
    assert qp.armed_ns == 1_000 + STALL_NS + 2 * STALL_NS
    for _ in range(9):
        window.on_stall()
    assert window.stall_ns == MOST_STALL_NS
    window.charge(1)
    window.on_ack(1, 0)
    assert window.stall_ns == STALL_NS


def acknowledge(window, cost_bytes):
    window.on_ack(cost_bytes, 0)


@pytest.mark.parametrize("answer", [acknowledge, DestinationWindow.give_up])
def test_nothing_is_given_up_while_answers_come_nor_when_nobody_waits_any_more(answer):
    window, qp = DestinationWindow(), Waiter()
    window.charge(DEFAULT_LIMIT_BYTES)
    window.wait(qp, 0)
    answer(window, 1)
    window.check_stall(qp, STALL_NS)
    assert (window.epoch, window.watcher, qp.armed_ns) == (0, qp, 2 * STALL_NS)
    window.leave(qp)
    window.check_stall(qp, 2 * STALL_NS)
    assert (window.epoch, window.watcher, qp.armed_ns) == (0, None, 2 * STALL_NS)
    window.check_stall(qp, 9 * STALL_NS)
    assert (window.epoch, qp.armed_ns) == (0, 2 * STALL_NS)


def test_one_watches_for_all_that_wait_also_when_it_has_had_its_own_turn():
    window, first, second = DestinationWindow(2 * ONE, 2 * ONE), Waiter(), Waiter()
    window.charge(2 * ONE)
    window.wait(first, 0)
    window.wait(second, 5)
    assert (window.watcher, second.armed_ns) == (first, 0)
    window.on_ack(ONE, 10)
    window.charge(ONE)
    window.wait(second, 15)
    window.leave(first)
    window.check_stall(second, STALL_NS)  # not its business
    window.check_stall(first, STALL_NS)
    assert (window.epoch, first.armed_ns) == (0, 2 * STALL_NS)
    window.check_stall(first, 2 * STALL_NS)
    assert (window.epoch, second.turns, first.armed_ns) == (1, 1, 4 * STALL_NS)


def test_a_watcher_that_goes_for_good_leaves_its_watch_to_the_first_that_waits():
    window, first, second, third = DestinationWindow(ONE, ONE), Waiter(), Waiter(), Waiter()
    window.charge(ONE)
    for qp in (first, second, third):
        window.wait(qp, 7)
    window.quit(second)  # not the watcher
    assert (window.watcher, second.waiting, third.armed_ns) == (first, False, 0)
    window.quit(first)
    assert (window.watcher, first.waiting, third.armed_ns) == (third, False, 7 + STALL_NS)
    window.check_stall(third, 7 + STALL_NS)
    assert (window.epoch, third.turns) == (1, 1)
    window.quit(third)
    assert (window.watcher, window.turn) == (None, None)


class Path:
    """One queue pair that always has more to send than its window takes, on a path of a given round trip."""

    def __init__(self, trip_ns=2 * FAR_NS, far_maximum_bytes=FAR_MAXIMUM_BYTES):
        self.window = DestinationWindow(far_maximum_bytes=far_maximum_bytes)
        self.qp = Waiter()
        self.trip_ns = trip_ns
        self.now = 5

    def round(self, wanted=True):
        """A full window leaves, and is answered for."""
        amount = self.window.limit_bytes
        self.window.depart(amount, self.now)
        if wanted:
            self.window.wait(self.qp, self.now)
        self.now += self.trip_ns
        self.window.on_ack(amount, self.now)
        self.window.leave(self.qp)
        return self.window.limit_bytes


def test_on_a_long_path_the_window_doubles_while_more_is_wanted_up_to_the_far_maximum():
    path = Path()
    assert [path.round() for _ in range(TRIPS - 1)] == [DEFAULT_LIMIT_BYTES] * (TRIPS - 1)
    assert path.round() == 2 * DEFAULT_LIMIT_BYTES  # now enough round trips are known
    assert path.round(wanted=False) == 2 * DEFAULT_LIMIT_BYTES
    assert path.round() == 4 * DEFAULT_LIMIT_BYTES
    for _ in range(5):
        path.round()
    assert path.window.limit_bytes == FAR_MAXIMUM_BYTES


@pytest.mark.parametrize(
    ("trip_ns", "far"), [(FAR_NS - 1, FAR_MAXIMUM_BYTES), (1000 * FAR_NS, 0)], ids=["short", "here"]
)
def test_a_short_path_and_one_that_cannot_be_long_stay_at_the_maximum(trip_ns, far):
    path = Path(trip_ns, far)
    for _ in range(600):
        path.round()
    assert path.window.limit_bytes == DEFAULT_MAXIMUM_BYTES


def test_exactly_the_least_round_trip_counts_as_long():
    path = Path(FAR_NS)
    for _ in range(TRIPS):
        path.round()
    assert path.window.limit_bytes == 2 * DEFAULT_LIMIT_BYTES


def test_after_a_loss_a_long_path_grows_by_single_bursts():
    path = Path()
    for _ in range(TRIPS + 3):
        path.round()
    before = path.window.limit_bytes
    assert before > 4 * DEFAULT_MAXIMUM_BYTES
    path.window.lost()
    assert path.window.limit_bytes == before // 2
    limits = [path.round() for _ in range(4)]
    assert limits == [before // 2] * 3 + [before // 2 + ONE]


def test_after_a_silence_a_long_path_is_soon_where_it_was():
    path = Path()
    for _ in range(TRIPS + 3):
        path.round()
    before = path.window.limit_bytes
    path.window.on_stall()
    first = path.window.limit_bytes
    assert first == PROBE_BYTES + path.window.packet_overhead_bytes
    limits = [path.round() for _ in range(10)]
    assert before == FAR_MAXIMUM_BYTES == 32 * ONE
    assert limits == [min(first << times, before) for times in range(1, 11)]
    assert limits[-1] == before


def test_a_loss_within_the_maximum_leaves_the_way_up_to_it():
    path = Path()
    for _ in range(TRIPS):
        path.round()
    path.window.limit_bytes = 2 * ONE
    path.window.lost()
    assert [path.round() for _ in range(3)] == [2 * ONE, 4 * ONE, 4 * ONE]


def test_a_path_that_has_become_short_falls_back_to_the_maximum():
    path = Path()
    for _ in range(TRIPS + 3):
        path.round()
    path.trip_ns = FAR_NS // 2
    assert path.round() == DEFAULT_MAXIMUM_BYTES


def test_those_who_hear_of_no_loss_keep_to_the_maximum():
    path = Path()
    for _ in range(TRIPS + 3):
        path.round()
    window, qp = path.window, path.qp
    assert window.near_available(qp) == DEFAULT_MAXIMUM_BYTES
    assert window.room(qp) == window.limit_bytes > DEFAULT_MAXIMUM_BYTES
    assert window.admits(qp, DEFAULT_LIMIT_BYTES)
    window.charge(DEFAULT_MAXIMUM_BYTES - 10)
    assert window.near_available(qp) == 10
    assert window.admits(qp, 10)
    assert not window.admits(qp, 11)
    window.charge(10)
    assert window.near_available(qp) == 0
    window.charge(10)
    assert window.near_available(qp) == 0
    assert window.room(qp) == window.limit_bytes - DEFAULT_MAXIMUM_BYTES - 10


def test_near_room_is_the_room_while_the_limit_is_no_larger_than_the_maximum():
    window, qp = DestinationWindow(2 * ONE, 4 * ONE), Waiter()
    window.charge(ONE)
    assert window.near_available(qp) == window.room(qp) == ONE


def known(trips, trip_ns, at, count=TRIPS):
    for _ in range(count):
        trips.depart(10, at)
        trips.answer(10, at + trip_ns)


def test_a_round_trip_is_over_when_all_that_was_in_flight_is_answered_for():
    trips = RoundTrips()
    for _ in range(TRIPS):
        trips.depart(30, 100)
        trips.depart(50, 150)  # the one that is measured has begun before
        trips.answer(29, 180)
        trips.answer(1, 200)
        trips.answer(20, 999)  # belongs to none
    assert trips.shortest() == 100
    assert trips.count == TRIPS


def test_nothing_is_said_before_enough_round_trips_are_known_nor_of_what_was_given_up():
    trips = RoundTrips()
    known(trips, 70, 1, TRIPS - 1)
    assert trips.shortest() == 0
    trips.depart(10, 5)
    trips.forget()
    trips.answer(10, 6)
    assert trips.shortest() == 0
    known(trips, 70, 1, 1)
    assert trips.shortest() == 70


def test_the_shortest_of_two_periods_counts():
    trips = RoundTrips()
    known(trips, 90, 1)
    known(trips, 50, 2, 1)
    known(trips, 70, PERIOD_NS // 2, 1)
    assert trips.shortest() == 50
    known(trips, 80, 2 * PERIOD_NS, 1)
    assert trips.shortest() == 50  # of the period before
    known(trips, 60, 4 * PERIOD_NS, 1)
    assert trips.shortest() == 60
    known(trips, 40, 4 * PERIOD_NS + 100, 1)
    assert trips.shortest() == 40


def test_only_round_trips_with_two_bursts_in_flight_tell_how_long_the_path_is():
    window = DestinationWindow(far_maximum_bytes=FAR_MAXIMUM_BYTES)
    window.depart(LEAST_SAMPLE_BYTES - 1, 10)
    window.on_ack(LEAST_SAMPLE_BYTES - 1, 20)
    assert window.trips.count == 0
    window.depart(LEAST_SAMPLE_BYTES - 1, 30)
    window.depart(1, 40)
    window.on_ack(LEAST_SAMPLE_BYTES, 90)
    assert (window.trips.count, window.trips.least_ns) == (1, 50)


def test_after_a_silence_a_short_path_is_soon_where_it_was():
    window = DestinationWindow()
    for _ in range(2):  # in vain once more: the recovery target is not forgotten
        window.charge(ONE)
        window.on_stall()
    limits = []
    for _ in range(7):
        cost = window.room(None)
        window.charge(cost)
        window.on_ack(cost, 0)
        limits.append(window.limit_bytes)
    assert limits[:-1] == [min(PROBE_BYTES << times, DEFAULT_LIMIT_BYTES) for times in range(1, 7)]
    assert limits[-1] == DEFAULT_LIMIT_BYTES


def test_after_a_loss_there_is_no_recovery_target():
    window = DestinationWindow()
    window.on_stall()
    window.lost()
    window.charge(ONE)
    window.on_ack(ONE, 0)
    assert window.limit_bytes == ONE


@pytest.mark.parametrize("end", ["give_up", "lost", "on_stall"])
def test_what_is_given_up_is_no_round_trip(end):
    window = DestinationWindow(far_maximum_bytes=FAR_MAXIMUM_BYTES)
    window.depart(3 * ONE, 10)
    if end == "give_up":
        window.give_up(ONE)
    else:
        getattr(window, end)()
    if end != "on_stall":
        window.on_ack(2 * ONE, 20)
    assert window.trips.count == 0
    window.depart(LEAST_SAMPLE_BYTES, 30)
    window.on_ack(window.in_flight_bytes, 90)
    assert (window.trips.count, window.trips.least_ns) == (1, 60)
