"""Naps: a thread that polls, and competes for its processor, sleeps until something arrives."""

import os
import threading

import pytest
from fake_engine import Bench
from runtime_served import until

from machine_speed import limit_s
from softhca.driver.poll_back_off import CONTENTION_MEMORY_NS, MAX_SLEEP_NS
from softhca.runtime import progress_thread
from softhca.runtime.clock import now_ns
from softhca.runtime.loop import POLLS_AT_ONCE, POLLS_BEFORE_NAP, EngineLoop

BOUND_S = limit_s(20)
NOW = 1_000_000_000


class Poller:
    """A loop of a bench, at moments that the test says, beside others that compete for the processor."""

    def __init__(self, bench):
        self.now, self.naps, self.yields = NOW, [], 0
        self.loop = EngineLoop(bench.engine, (bench.wire,), lambda: None, clock=lambda: self.now)
        self.loop.sleeper.wakeup_ns = 0
        self.loop.nap, self.loop.yield_processor = self.naps.append, self.note
        self.loop.back_off.yielded(NOW - 3_000_000, NOW)

    def note(self):
        self.yields += 1

    def miss(self, times=1):
        for _ in range(times):
            assert not self.loop.poll()


@pytest.fixture
def bench():
    made = Bench()
    made.loop.nap = made.progress.nap
    yield made
    made.close()


def test_a_poller_who_competes_for_the_processor_naps_after_some_polls(monkeypatch, bench):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    poller = Poller(bench)
    poller.miss(POLLS_BEFORE_NAP)
    assert not poller.naps, "what comes at once is found by polls"
    poller.miss()
    poller.now += 7
    poller.miss()
    assert poller.naps == [NOW + MAX_SLEEP_NS, NOW + 7 + MAX_SLEEP_NS]
    bench.wire.put(b"one")
    assert poller.loop.poll()
    poller.miss(POLLS_BEFORE_NAP)
    assert len(poller.naps) == 2, "and counts anew"
    poller.now = NOW + 2 * CONTENTION_MEMORY_NS
    poller.loop.back_off.begins()
    poller.miss(POLLS_AT_ONCE + 1)
    assert (len(poller.naps), poller.yields) == (2, 1), "a yield says whether others still compete"


def test_on_the_only_processor_nobody_naps(monkeypatch, bench):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    poller = Poller(bench)
    poller.miss(2 * POLLS_AT_ONCE)
    assert (poller.naps, poller.yields) == ([], 2 * POLLS_AT_ONCE)


def test_nobody_naps_with_the_lock_of_the_engine(monkeypatch, bench):
    """It would stop every other thread that uses the device."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    poller = Poller(bench)
    with poller.loop.lock:
        poller.miss(2 * POLLS_BEFORE_NAP)
    assert not poller.naps
    poller.miss()
    assert len(poller.naps) == 1


def test_a_loop_that_nobody_can_make_sleep_polls_on(monkeypatch, bench):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    poller = Poller(bench)
    poller.loop.nap = None
    poller.miss(2 * POLLS_AT_ONCE)
    assert not poller.yields


class Blocked:
    """The leader's epoll of ``progress``: notes each sleep's seconds, and that somebody sleeps."""

    def __init__(self, progress):
        self.poll_it, self.limits_s, self.asleep = progress._leader_poll, [], threading.Event()
        progress._leader_poll = self

    def poll(self, limit_s, most):
        self.limits_s.append(limit_s)
        self.asleep.set()
        return self.poll_it.poll(limit_s, most)

    def close(self):
        self.poll_it.close()


@pytest.fixture
def blocked(bench):
    return Blocked(bench.progress)


def napper(bench, limit_s):
    thread = threading.Thread(target=lambda: bench.loop.nap(now_ns() + int(limit_s * 1e9)))
    thread.start()
    return thread


def test_a_nap_ends_at_its_limit(bench, blocked):
    bench.loop.nap(now_ns() + 2_000_000)
    assert len(blocked.limits_s) == 1
    assert 0 <= blocked.limits_s[0] < 0.004
    assert bench.progress._leader_lock.acquire(blocking=False), "who naps leads no more when awake"
    bench.progress._leader_lock.release()
    assert not bench.progress._leading


def test_an_arrival_ends_a_nap(bench, blocked):
    thread = napper(bench, 10 * BOUND_S)
    assert blocked.asleep.wait(BOUND_S)
    bench.wire.put(b"one")
    thread.join(BOUND_S)
    assert not thread.is_alive()


def test_a_deadline_of_the_engine_ends_a_nap(bench, blocked):
    bench.engine.deadline_ns = now_ns() + 1_000_000
    bench.loop.nap(now_ns() + int(BOUND_S * 1e9))
    assert blocked.limits_s[0] < 0.004


def test_who_naps_counts_as_one_who_polls(bench, blocked):
    """Else the background thread would drive beside it, on the processor for which others compete."""
    before = bench.loop.polls
    bench.loop.nap(now_ns())
    assert bench.loop.polls - before >= progress_thread.POLLS_OF_A_POLLER


def test_a_second_napper_follows_the_first_one(bench, blocked):
    first = napper(bench, 10 * BOUND_S)
    assert blocked.asleep.wait(BOUND_S)
    second = napper(bench, 10 * BOUND_S)
    until(lambda: bench.progress._followers)
    assert second.is_alive()
    bench.wire.put(b"one")
    for thread in (first, second):
        thread.join(BOUND_S)
        assert not thread.is_alive()
    assert len(blocked.limits_s) == 1


def test_who_naps_is_woken_by_the_end_of_the_adapter(bench, blocked):
    thread = napper(bench, 10 * BOUND_S)
    assert blocked.asleep.wait(BOUND_S)
    with bench.loop.lock:
        bench.loop.dead = True
    bench.progress.close()
    thread.join(BOUND_S)
    assert not thread.is_alive()
    assert bench.progress._forgotten, "the last one closes the descriptors"


def test_a_dead_adapter_lets_nobody_nap(bench, blocked):
    with bench.loop.lock:
        bench.loop.dead = True
    bench.loop.nap(now_ns() + int(BOUND_S * 1e9))
    assert not blocked.limits_s
