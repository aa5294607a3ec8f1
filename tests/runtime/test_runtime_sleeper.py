"""Who sleeps until when, and who is woken: the rule by itself."""

import pytest

from softhca.runtime.sleeper import LATE_NS, NEVER, Sleeper, timeout_s


@pytest.fixture
def woken():
    """What ``wakeup_ns`` was, each time that the sleeper was woken."""
    return []


@pytest.fixture
def sleeper(woken):
    made = Sleeper(None)
    made.wake = lambda: woken.append(made.wakeup_ns)
    return made


def test_a_deadline_that_the_sleeper_would_miss_wakes_it_once(sleeper, woken):
    sleeper.begin_sleep(50 * LATE_NS, NEVER, leads=False)
    sleeper.settle(49 * LATE_NS)
    assert woken == [], "it wakes up soon enough"
    sleeper.settle(49 * LATE_NS - 1)
    assert woken == [0]
    sleeper.settle(5)
    assert woken == [0], "it is awake already"


def test_who_sleeps_for_good_is_woken_for_any_deadline_but_never(sleeper, woken):
    assert sleeper.begin_sleep(NEVER, NEVER, leads=False) == NEVER
    sleeper.settle(NEVER)
    assert woken == []
    sleeper.settle(1 << 60)
    assert woken == [0]


def test_events_wake_who_waits_for_them_once(sleeper, woken):
    sleeper.on_event()
    sleeper.settle(NEVER)
    assert woken == [], "nobody waits"
    sleeper.waiters = 1
    sleeper.settle(NEVER)
    sleeper.settle(NEVER)
    assert len(woken) == 1
    sleeper.on_event()
    assert sleeper.deliver()
    assert not sleeper.deliver()
    sleeper.settle(NEVER)
    assert len(woken) == 1, "they have been delivered otherwise"


def test_a_sleep_ends_with_the_first_of_both_moments(sleeper):
    assert sleeper.begin_sleep(30, 20, leads=True) == 20
    assert sleeper.begin_sleep(10, 20, leads=True) == 10
    assert (sleeper.wakeup_ns, sleeper.background_ns) == (10, 0)
    sleeper.begin_sleep(10, 20, leads=False)
    assert sleeper.background_ns == 10


def test_who_keeps_off_is_in_charge_only_where_nobody_waits(sleeper):
    sleeper.wakeup_ns = 7
    sleeper.waiters = 1
    sleeper.background_sleeps(100)
    assert (sleeper.wakeup_ns, sleeper.background_ns, sleeper.parked) == (7, 100, False)
    sleeper.waiters = 0
    sleeper.background_sleeps(200)
    assert (sleeper.wakeup_ns, sleeper.background_ns) == (200, 200)


@pytest.mark.parametrize(("deadline_ns", "parked", "wakes"), [
    (100 * LATE_NS, False, False), (98 * LATE_NS, False, True), (99 * LATE_NS, False, False),
    (NEVER, True, True),
])  # fmt: skip
def test_the_last_that_leaves_wakes_the_background_thread_where_it_would_wake_too_late(
    sleeper, deadline_ns, parked, wakes
):
    sleeper.waiters = 2
    sleeper.background_sleeps(100 * LATE_NS)
    if parked:
        sleeper.background_sleeps(NEVER)
    sleeper.waiters -= 1
    assert not sleeper.waiter_left(0), "another one waits"
    sleeper.waiters -= 1
    assert sleeper.waiter_left(deadline_ns) is wakes
    assert sleeper.wakeup_ns == 100 * LATE_NS


def test_a_sleep_in_seconds():
    assert timeout_s(NEVER, 5) is None
    assert timeout_s(1_500_000_000, 500_000_000) == 1.0
    assert timeout_s(5, 6) == 0


def test_nobody_cares_for_a_deadline_who_waits_for_nothing_and_looks_soon_enough(sleeper, woken):
    now = 1000 * LATE_NS
    sleeper.begin_sleep(NEVER, now + LATE_NS, leads=False)
    assert not sleeper.cares(now)
    assert sleeper.cares(now - 1), "it would notice a deadline of that moment too late"
    sleeper.settle(now)
    assert woken == [], "and there is nothing to be missed"
    sleeper.waiters = 1
    assert sleeper.cares(now)


def test_a_nap_of_one_who_polls_leaves_a_waiting_thread_its_time():
    sleeper = Sleeper(lambda: None)
    sleeper.background_ns, sleeper.waiters = 5, 1
    assert sleeper.begin_sleep(100, 50, True) == 50
    sleeper.nap_ends()
    assert sleeper.wakeup_ns == 50
    sleeper.waiters = 0
    sleeper.nap_ends()
    assert sleeper.wakeup_ns == 5
