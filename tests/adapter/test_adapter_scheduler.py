"""The scheduler: round robin within a service level, strict priority between levels, no starvation."""

import pytest

from softhca.adapter.scheduler import HIGH_LIMIT_BYTES, Scheduler
from softhca.testing.ends import End
from softhca.testing.network import Network

BURST = 1 << 16


@pytest.fixture(scope="module")
def pool():
    """Flows of real queue pairs to put into schedulers."""
    world = Network()
    end = End(world.add(1))
    pairs = [end.node.adapter.queue_pairs[end.qp().number].flow for _ in range(12)]
    yield pairs
    world.close()


@pytest.fixture
def levels(pool):
    """``levels(3, 0, 0)`` gives a scheduler and queue pairs of these service levels."""

    def make(*service_levels):
        chosen = pool[: len(service_levels)]
        for queue_pair, level in zip(chosen, service_levels, strict=True):
            queue_pair.scheduled = False
            queue_pair.service_level = level
        return Scheduler(), chosen

    return make


def serve(scheduler, turns, size=BURST):
    """Give turns to queue pairs that always have more to send; bytes by queue pair."""
    served = {}
    for _ in range(turns):
        queue_pair = scheduler.next()
        served[queue_pair.number] = served.get(queue_pair.number, 0) + size
        scheduler.charge(size)
        scheduler.put(queue_pair)
    return served


def test_an_empty_scheduler_gives_nobody(levels):
    scheduler, _ = levels()
    assert scheduler.next() is None
    assert scheduler.length == 0


def test_queue_pairs_of_one_level_take_turns_in_order(levels):
    scheduler, (a, b, c) = levels(0, 0, 0)
    for queue_pair in (b, a, c):
        scheduler.put(queue_pair)
    order = []
    for _ in range(6):
        order.append(scheduler.next())
        scheduler.put(order[-1])
    assert order == [b, a, c, b, a, c]


def test_asking_twice_gives_one_turn(levels):
    scheduler, (a, b) = levels(0, 0)
    scheduler.put(a)
    scheduler.put(b)
    scheduler.put(a)
    assert [scheduler.next(), scheduler.next(), scheduler.next()] == [a, b, None]
    assert not a.scheduled


def test_who_waited_alone_keeps_its_place_when_others_come(levels):
    scheduler, (a, b, c) = levels(0, 0, 3)
    for queue_pair in (a, b, c):
        scheduler.put(queue_pair)
    assert [scheduler.next(), scheduler.next(), scheduler.next(), scheduler.next()] == [c, a, b, None]


def test_a_turn_that_is_had_again_comes_before_who_waits_alone(levels):
    scheduler, (a, b) = levels(0, 0)
    scheduler.put(a)
    assert (scheduler.sole(), scheduler.next()) == (a, a)
    scheduler.put(b)
    assert (scheduler.sole(), scheduler.peek()) == (b, b)
    scheduler.back(a)
    assert (scheduler.sole(), scheduler.peek()) == (None, a)
    assert [scheduler.next(), scheduler.next(), scheduler.next()] == [a, b, None]


def test_who_waited_alone_leaves_nobody_waiting(levels):
    scheduler, (low, high) = levels(2, 9)
    scheduler.put(high)
    assert scheduler.next() is high
    assert (scheduler.length, scheduler.waiting) == (0, 0)
    scheduler.put(low)
    assert [scheduler.next(), scheduler.next()] == [low, None]


def test_the_higher_level_goes_first(levels):
    scheduler, (low, high, middle) = levels(0, 15, 7)
    for queue_pair in (low, middle, high):
        scheduler.put(queue_pair)
    assert [scheduler.next() for _ in range(3)] == [high, middle, low]


def test_equal_queue_pairs_get_equal_bytes(levels):
    scheduler, pairs = levels(*[4] * 10)
    for queue_pair in pairs:
        scheduler.put(queue_pair)
    served = serve(scheduler, 1000)
    assert set(served.values()) == {100 * BURST}


def test_a_waiting_lower_level_gets_a_turn_after_the_limit_of_the_higher(levels):
    scheduler, (low, high) = levels(0, 1)
    scheduler.put(low)
    scheduler.put(high)
    turns = HIGH_LIMIT_BYTES // BURST
    assert serve(scheduler, turns) == {high.number: HIGH_LIMIT_BYTES}
    assert serve(scheduler, 1) == {low.number: BURST}
    assert serve(scheduler, turns) == {high.number: HIGH_LIMIT_BYTES}


def test_every_waiting_level_is_served_in_bounded_time(levels):
    scheduler, pairs = levels(15, 14, 9, 4, 0)
    for queue_pair in pairs:
        scheduler.put(queue_pair)
    turns = (HIGH_LIMIT_BYTES // BURST + 1) * 4
    served = serve(scheduler, turns)
    assert {number: count // BURST for number, count in served.items()} == {
        pairs[0].number: turns - 4,
        **{queue_pair.number: 1 for queue_pair in pairs[1:]},
    }


def test_what_is_sent_while_nobody_lower_waits_does_not_count_against_the_limit(levels):
    scheduler, (low, high) = levels(0, 5)
    scheduler.put(high)
    serve(scheduler, 1000)
    scheduler.put(low)
    assert serve(scheduler, HIGH_LIMIT_BYTES // BURST) == {high.number: HIGH_LIMIT_BYTES}


def test_lower_levels_begin_anew_from_the_highest_of_them_once_none_has_waited(levels):
    scheduler, (high, middle, low) = levels(5, 3, 1)

    def turn_of_a_lower_level():
        for queue_pair in (high, middle, low):
            scheduler.put(queue_pair)
        serve(scheduler, HIGH_LIMIT_BYTES // BURST)
        found = scheduler.next()
        while scheduler.length:
            scheduler.next()
        return found

    assert turn_of_a_lower_level() is middle
    scheduler.put(high)
    assert scheduler.next() is high
    assert turn_of_a_lower_level() is middle


def test_what_a_level_has_sent_before_it_stopped_does_not_count_later(levels):
    scheduler, (high, low, other) = levels(8, 1, 1)
    scheduler.put(high)
    scheduler.put(low)
    assert scheduler.next() is high
    scheduler.charge(HIGH_LIMIT_BYTES - 1)
    scheduler.put(other)
    assert scheduler.next() is low  # and the other one waits
    scheduler.charge(1)
    scheduler.put(high)
    assert scheduler.next() is high
    scheduler.charge(1)
    scheduler.put(high)
    assert scheduler.next() is high
