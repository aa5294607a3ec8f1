"""The timer wheel: never early, at most a tick late, one call a deadline."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.adapter.timers import NEVER, TICK_NS, Timers
from softhca.testing.ends import End
from softhca.testing.network import Network
from suite_plan import random_inputs

DISTANCES_NS = st.one_of(
    st.integers(1, 10 * TICK_NS), st.integers(1, 10**7), st.integers(1, 10**10), st.integers(1, 2**61)
)


@pytest.fixture(scope="module")
def queue_pairs():
    """Flows of a few real queue pairs, which the wheel's typed slots want."""
    world = Network()
    end = End(world.add(1))
    pairs = [end.node.adapter.queue_pairs[end.qp().number].flow for _ in range(8)]
    yield pairs
    world.close()


def fresh(queue_pairs):
    for queue_pair in queue_pairs:
        queue_pair.armed_ns = 0
    return Timers(0)


def test_nothing_armed_has_no_deadline(queue_pairs):
    timers = fresh(queue_pairs)
    assert timers.next_deadline() == NEVER
    assert timers.expire(10**12) == []


def test_a_deadline_fires_once_not_before_and_at_most_a_tick_after(queue_pairs):
    for deadline in (
        1,
        TICK_NS - 1,
        TICK_NS,
        TICK_NS + 1,
        63 * TICK_NS,
        64 * TICK_NS,
        65 * TICK_NS,
        10**9,
        10**14,
    ):
        timers = fresh(queue_pairs)
        timers.arm(queue_pairs[0], deadline)
        assert timers.expire(deadline - 1) == []
        assert timers.expire(deadline + TICK_NS) == [queue_pairs[0]]
        assert timers.expire(deadline + 10**15) == []
        assert timers.next_deadline() == NEVER


def test_a_walk_along_next_deadline_reaches_the_firing_in_a_few_steps(queue_pairs):
    timers = fresh(queue_pairs)
    deadline = 123_456_789_012_345
    timers.arm(queue_pairs[0], deadline)
    now = steps = 0
    while True:
        moment = timers.next_deadline()
        assert now < moment <= deadline + TICK_NS
        now = moment
        steps += 1
        if timers.expire(now):
            break
    assert deadline <= now < deadline + TICK_NS
    assert steps <= 9


def test_arming_earlier_replaces_and_arming_later_changes_nothing(queue_pairs):
    timers = fresh(queue_pairs)
    timers.arm(queue_pairs[0], 10**9)
    timers.arm(queue_pairs[0], 10**6)
    timers.arm(queue_pairs[0], 10**8)
    assert timers.next_deadline() <= 10**6 + TICK_NS
    assert timers.expire(10**6 + TICK_NS) == [queue_pairs[0]]
    assert timers.expire(10**10) == []


def test_a_disarmed_queue_pair_is_not_called(queue_pairs):
    timers = fresh(queue_pairs)
    timers.arm(queue_pairs[0], 10**6)
    timers.arm(queue_pairs[1], 10**6)
    timers.disarm(queue_pairs[0])
    timers.disarm(queue_pairs[0])
    assert timers.expire(10**7) == [queue_pairs[1]]


def test_a_deadline_in_the_past_is_due_at_the_next_tick(queue_pairs):
    timers = fresh(queue_pairs)
    timers.expire(10**9)
    timers.arm(queue_pairs[0], 5)
    assert timers.next_deadline() <= 10**9 + TICK_NS
    assert timers.expire(10**9 + TICK_NS) == [queue_pairs[0]]


def test_due_queue_pairs_come_in_the_order_of_their_deadlines(queue_pairs):
    timers = fresh(queue_pairs)
    moments = [(i + 1) * 10**7 * 3 ** (i % 3) for i in range(8)]
    for queue_pair, moment in zip(queue_pairs, moments, strict=True):
        timers.arm(queue_pair, moment)
    expected = [pair for _, pair in sorted(zip(moments, queue_pairs, strict=True), key=lambda item: item[0])]
    assert timers.expire(10**12) == expected


@settings(max_examples=random_inputs(60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), DISTANCES_NS, st.integers(0, 10**9)), max_size=40))
def test_any_sequence_fires_each_deadline_in_time(queue_pairs, steps):
    timers = fresh(queue_pairs)
    now = 0
    due = {}
    for number, distance, pause in steps:
        deadline = min(now + distance, 2**62)
        timers.arm(queue_pairs[number], deadline)
        due[number] = min(due.get(number, deadline), deadline)
        now += pause
        assert timers.next_deadline() <= min(due.values()) + TICK_NS
        for fired in timers.expire(now):
            index = queue_pairs.index(fired)
            assert due.pop(index) <= now
        assert all(moment + TICK_NS > now for moment in due.values())
    while due:
        now = timers.next_deadline()
        for fired in timers.expire(now):
            assert now - TICK_NS < due.pop(queue_pairs.index(fired)) <= now


def test_many_rearmings_leave_nothing_behind(queue_pairs):
    timers = fresh(queue_pairs)
    generator = random.Random(3)
    for now in range(0, 10**9, 10**6):
        for queue_pair in queue_pairs:
            timers.arm(queue_pair, now + generator.randrange(1, 10**10))
        timers.expire(now)
    armed = [queue_pair for queue_pair in queue_pairs if queue_pair.armed_ns]
    assert timers.count() == len(armed)
    assert all(each in timers.slots[each.armed_place] for each in armed)


def test_who_was_disarmed_leaves_no_deadline_behind(queue_pairs):
    timers = fresh(queue_pairs)
    timers.arm(queue_pairs[0], 1000 * TICK_NS)
    timers.arm(queue_pairs[1], 10 * TICK_NS)
    timers.disarm(queue_pairs[0])
    assert timers.expire(20 * TICK_NS) == [queue_pairs[1]]
    assert timers.next_deadline() == NEVER
