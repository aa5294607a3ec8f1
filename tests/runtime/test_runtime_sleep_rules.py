"""How the threads of an adapter go to sleep and come back: each step with a loop of wood."""

import os
from types import SimpleNamespace

import pytest
from fake_engine import Bench

from softhca.runtime import progress_thread
from softhca.runtime.clock import NS_PER_S
from softhca.runtime.loop import NEVER

NOW = 5_000_000


@pytest.fixture
def bench():
    made = Bench()
    made.loop.clock = lambda: NOW
    yield made
    made.close()


class Sleepers:
    """What is armed for a sleep, here or at peers on this host."""

    def __init__(self, sleeps, deadline_ns=NEVER):
        self.sleeps, self.deadline_ns, self.calls = sleeps, deadline_ns, []

    def arm_wakeup(self, *_):
        self.calls.append("arm")
        return self.sleeps

    def disarm_wakeup(self):
        self.calls.append("disarm")

    def deadline(self):
        return self.deadline_ns


class Poll:
    """An epoll that nothing wakes."""

    def __init__(self):
        self.timeouts = []

    def poll(self, timeout, most):
        self.timeouts.append(timeout)
        return []


@pytest.fixture
def polls(bench):
    real = bench.progress._leader_poll, bench.progress._thread_poll
    found = bench.progress._leader_poll, bench.progress._thread_poll = Poll(), Poll()
    yield found
    bench.progress._leader_poll, bench.progress._thread_poll = real


@pytest.mark.parametrize(("clients", "peers", "calls"), [
    (True, True, (["arm", "disarm"], ["arm", "disarm"])), (True, False, (["arm", "disarm"], ["arm"])),
    (False, True, (["arm"], [])),
])  # fmt: skip
def test_what_was_armed_for_a_sleep_is_disarmed_whether_or_not_it_comes_to_that(
    bench, polls, clients, peers, calls
):
    bench.loop.clients, bench.loop.same_host = Sleepers(clients), Sleepers(peers)
    bench.progress._block(bench.loop, NEVER, leading=False)
    assert (bench.loop.clients.calls, bench.loop.same_host.calls) == calls
    assert polls[1].timeouts == ([None] if clients and peers else [])
    bench.loop.clients = bench.loop.same_host = None


@pytest.mark.parametrize("leading", [True, False])
@pytest.mark.parametrize(("clients", "engine", "limit", "first"), [(2, 3, 4, 2), (4, 2, 3, 2), (3, 4, 2, 2)])
def test_a_sleep_ends_at_the_first_of_its_limit_and_the_deadlines_of_clients_and_engine(
    bench, polls, leading, clients, engine, limit, first
):
    bench.loop.clients = Sleepers(True, NOW + clients * NS_PER_S)
    bench.engine.deadline_ns = NOW + engine * NS_PER_S
    bench.progress._block(bench.loop, NOW + limit * NS_PER_S, leading)
    assert polls[0 if leading else 1].timeouts == [first]
    assert bench.loop.sleeper.wakeup_ns == NOW + first * NS_PER_S
    bench.loop.clients = None


@pytest.mark.parametrize("leads", [True, False])
def test_the_background_thread_wakes_a_leader_who_sleeps_while_events_come(bench, monkeypatch, leads):
    monkeypatch.setattr(progress_thread, "yield_processor", lambda: None)
    bench.progress._leading = leads
    bench.wire.put(b"one")
    assert bench.progress._drive(bench.loop, iter([False, True]).__next__, leading=False)
    if leads:
        assert os.eventfd_read(bench.progress._leader_wake) == 1
    else:
        with pytest.raises(BlockingIOError):
            os.eventfd_read(bench.progress._leader_wake)


@pytest.mark.parametrize("dead", [False, True])
def test_the_last_that_waits_wakes_the_background_thread_for_a_deadline_of_a_live_adapter(bench, dead):
    bench.engine.deadline_ns = NOW
    bench.loop.dead = dead
    bench.loop.sleeper.waiters = 1
    bench.loop.sleeper.background_ns = NEVER
    bench.progress._leave(bench.loop, False, [True])
    assert bench.loop.sleeper.waiters == 0
    if dead:
        with pytest.raises(BlockingIOError):
            os.eventfd_read(bench.progress._thread_wake)
    else:
        assert os.eventfd_read(bench.progress._thread_wake) == 1


def test_a_background_thread_that_was_parked_is_not_when_it_wakes_up(bench):
    seen = []
    bench.loop.sleeper.waiters = 1
    bench.progress._thread_wake_poll = SimpleNamespace(
        poll=lambda timeout: seen.append((timeout, bench.loop.sleeper.parked))
    )
    bench.progress._stand_by(bench.loop, 2 * progress_thread.LAST_CHECK_NS)
    assert seen == [(None, True)]
    assert not bench.loop.sleeper.parked
    bench.progress._stand_by(bench.loop, progress_thread.LAST_CHECK_NS)
    assert seen[1] == (progress_thread.LAST_CHECK_NS / 1_000_000, False)


@pytest.mark.parametrize("worked", [True, False])
def test_what_a_link_does_by_itself_is_work(bench, worked):
    bench.wire.expire = lambda now: worked
    assert bench.loop.progress(NOW) is worked
