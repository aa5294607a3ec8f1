"""Naps: a thread that polls, and competes for its processor, sleeps until something arrives."""

import contextlib
import os
import threading
from types import SimpleNamespace

import pytest
from fake_engine import Bench
from runtime_served import until

from machine_speed import limit_s
from softhca.driver.channels import EmbeddedChannel
from softhca.driver.poll_back_off import CONTENTION_MEMORY_NS, MAX_SLEEP_NS, SLEEP_FRACTION
from softhca.machine.processor import wait_readable
from softhca.memory.host import HostMemory
from softhca.runtime import progress_thread
from softhca.runtime.clock import now_ns
from softhca.runtime.loop import (
    COMPUTES_NS,
    NEVER,
    POLLS_AT_ONCE,
    POLLS_BEFORE_NAP,
    SHORTEST_NAP_NS,
    EngineLoop,
)

BOUND_S = limit_s(20)
NOW = 1_000_000_000


class Poller:
    """A loop of a bench, at moments that the test says, beside others that compete for the processor."""

    def __init__(self, bench, competed=True):
        self.now, self.naps, self.yields = NOW, [], 0
        self.loop = EngineLoop(bench.engine, (bench.wire,), lambda: None, clock=lambda: self.now)
        self.loop.sleeper.wakeup_ns = 0
        self.loop.nap, self.loop.yield_processor = self.naps.append, self.note
        self.loop.back_off.worked(NOW)
        if competed:
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
    assert poller.naps == [NOW + SHORTEST_NAP_NS, NOW + 7 + SHORTEST_NAP_NS]
    bench.wire.put(b"one")
    assert poller.loop.poll()
    poller.miss(POLLS_BEFORE_NAP)
    assert len(poller.naps) == 2, "and counts anew"
    poller.now = NOW + 2 * CONTENTION_MEMORY_NS
    poller.loop.back_off.begins()
    poller.miss(POLLS_AT_ONCE + 1)
    assert (len(poller.naps), poller.yields) == (2, 1), "a yield says whether others still compete"


@pytest.mark.parametrize(("idle_ns", "nap_ns"), [
    (SLEEP_FRACTION * SHORTEST_NAP_NS - 1, SHORTEST_NAP_NS),
    (SLEEP_FRACTION * (SHORTEST_NAP_NS + 7), SHORTEST_NAP_NS + 7),
    (10**10, MAX_SLEEP_NS),
])  # fmt: skip
def test_a_nap_is_a_part_of_the_time_since_the_program_did_something(monkeypatch, bench, idle_ns, nap_ns):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    poller = Poller(bench)
    poller.now += 10**9
    poller.loop.kick()
    poller.now += idle_ns
    poller.loop.back_off.yielded(poller.now - 3_000_000, poller.now)
    poller.miss(POLLS_BEFORE_NAP + 1)
    assert poller.naps == [poller.now + nap_ns]


def test_what_naps_and_polls_bring_is_told_to_who_chooses(monkeypatch, bench):
    """Packets taken and requests posted, from a yield that took long until its memory ends."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    poller = Poller(bench, competed=False)
    choice = poller.loop.nap_choice

    def compete():
        poller.now += 900_000

    poller.loop.yield_processor = compete
    poller.miss(POLLS_AT_ONCE + 1)
    assert choice.until_ns == poller.now + CONTENTION_MEMORY_NS
    bench.wire.put(b"one")
    assert poller.loop.poll()
    poller.loop.kick()
    poller.now = choice.until_ns
    poller.loop.back_off.begins()
    poller.miss(POLLS_AT_ONCE + 1)
    assert choice.naps_rate == 2 * 10**9 // CONTENTION_MEMORY_NS
    assert not choice.naps
    poller.miss(2 * POLLS_BEFORE_NAP)
    assert not poller.naps, "in this spell it polls on"


def test_a_yield_that_lets_nobody_compete_begins_no_spell(monkeypatch, bench):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    poller = Poller(bench, competed=False)
    poller.miss(POLLS_AT_ONCE + 2)
    assert poller.yields == 2
    assert poller.loop.nap_choice.naps, "the second spell is one of polls"


def test_who_computes_between_its_polls_does_not_nap(monkeypatch, bench):
    """It has work to do, and looks now and then whether something has come."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    poller = Poller(bench)
    for _ in range(4 * POLLS_BEFORE_NAP):
        poller.now += COMPUTES_NS + 1
        poller.miss()
    assert not poller.naps
    poller.miss(POLLS_BEFORE_NAP)
    assert not poller.naps
    poller.now += COMPUTES_NS
    poller.miss()
    assert len(poller.naps) == 1


def test_the_time_of_what_was_done_between_two_polls_is_no_other_work(monkeypatch, bench):
    """Of a nap, of a poll that finds something and of what is posted."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    poller = Poller(bench)

    def nap(until_ns):
        poller.naps.append(until_ns)
        poller.now += 2 * COMPUTES_NS

    poller.loop.nap = nap
    poller.miss(POLLS_BEFORE_NAP + 2)
    assert len(poller.naps) == 2
    poller.now += 2 * COMPUTES_NS
    poller.loop.kick()
    poller.miss()
    assert len(poller.naps) == 3
    bench.wire.put(b"one")
    poller.now += 2 * COMPUTES_NS
    assert poller.loop.poll()
    poller.now += 2 * COMPUTES_NS
    poller.miss(POLLS_BEFORE_NAP + 1)
    assert len(poller.naps) == 4


def test_who_sleeps_by_itself_does_not_nap(monkeypatch, bench):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    poller = Poller(bench)
    for _ in range(2 * POLLS_BEFORE_NAP):
        assert not poller.loop.look()
    assert not poller.naps
    poller.now += 2 * CONTENTION_MEMORY_NS
    poller.loop.back_off.begins()
    for _ in range(POLLS_AT_ONCE + 1):
        poller.loop.look()
    assert poller.yields == 1


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


class Sleeps:
    """Notes how long each sleep of a napper is to be at the most, in nanoseconds, and that one has begun."""

    def __init__(self):
        self.limits_ns, self.begun = [], threading.Event()

    def wait_readable(self, descriptor, limit_ns):
        self.limits_ns.append(limit_ns)
        self.begun.set()
        wait_readable(descriptor, limit_ns)


@pytest.fixture
def sleeps(monkeypatch):
    noted = Sleeps()
    monkeypatch.setattr(progress_thread, "wait_readable", noted.wait_readable)
    return noted


def napper(bench, limit_s):
    thread = threading.Thread(target=lambda: bench.loop.nap(now_ns() + int(limit_s * 1e9)))
    thread.start()
    return thread


def test_a_nap_ends_at_its_limit(bench, sleeps):
    bench.loop.nap(now_ns() + 2_000_000)
    assert len(sleeps.limits_ns) == 1
    assert 0 <= sleeps.limits_ns[0] <= 2_000_000
    assert bench.progress._leader_lock.acquire(), "who naps leads no more when awake"
    bench.progress._leader_lock.release()
    assert not bench.progress._leading


def test_an_arrival_ends_a_nap(bench, sleeps):
    thread = napper(bench, 10 * BOUND_S)
    assert sleeps.begun.wait(BOUND_S)
    bench.wire.put(b"one")
    thread.join(BOUND_S)
    assert not thread.is_alive()


def test_a_deadline_of_the_engine_ends_a_nap(bench, sleeps):
    bench.engine.deadline_ns = now_ns() + 1_000_000
    bench.loop.nap(now_ns() + int(BOUND_S * 1e9))
    assert sleeps.limits_ns[0] <= 1_000_000


def test_who_naps_counts_as_one_who_polls(bench, sleeps):
    """Else the background thread would drive beside it, on the processor for which others compete."""
    before = bench.loop.polls
    bench.loop.nap(now_ns())
    assert bench.loop.polls - before >= progress_thread.POLLS_OF_A_POLLER


def asleep(bench):
    """Have the background thread, which sleeps until something happens."""
    bench.start()
    until(lambda: bench.loop.sleeper.wakeup_ns == NEVER)


def test_the_background_thread_sees_to_deadlines_after_a_nap(bench, sleeps):
    """The program has napped, posts a request, and does not poll again."""
    asleep(bench)
    bench.loop.nap(now_ns() + 1_000_000)
    bench.engine.deadline_ns = now_ns() + 50_000_000
    bench.loop.kick()
    until(lambda: bench.engine.expired)


def test_the_background_thread_sees_to_deadlines_that_come_up_during_a_nap(bench, monkeypatch):
    """Another thread posts a request while one naps that does not poll again."""
    asleep(bench)

    def post(descriptor, limit_ns):
        bench.engine.deadline_ns = now_ns() + 50_000_000
        bench.loop.kick()

    monkeypatch.setattr(progress_thread, "wait_readable", post)
    bench.loop.nap(now_ns() + 1_000_000)
    until(lambda: bench.engine.expired)


def test_the_end_of_a_nap_leaves_who_waits_its_moment(bench):
    sleeper = bench.loop.sleeper
    sleeper.begin_sleep(NEVER, 7, True)
    sleeper.waiters = 1
    sleeper.nap_ends()
    assert sleeper.wakeup_ns == 7
    sleeper.waiters = 0
    sleeper.nap_ends()
    assert sleeper.wakeup_ns == sleeper.background_ns


@pytest.mark.parametrize("exactly", [False, True])
def test_who_is_interrupted_in_its_sleep_sleeps_no_more_for_peers(bench, monkeypatch, exactly):
    """Else they would wake it at every packet, for ever."""
    asleep, progress = [], bench.progress

    def interrupted(*_):
        assert asleep == ["asleep"]
        raise KeyboardInterrupt

    bench.loop.same_host = SimpleNamespace(
        arm_wakeup=lambda: not asleep.append("asleep"), disarm_wakeup=asleep.pop, forget=int
    )
    monkeypatch.setattr(progress_thread, "wait_readable", interrupted)
    monkeypatch.setattr(progress, "_leader_poll", SimpleNamespace(poll=interrupted, fileno=int, close=int))
    with pytest.raises(KeyboardInterrupt):
        progress._block(bench.loop, NEVER, True, exactly)
    bench.loop.same_host = None
    monkeypatch.undo()
    assert not asleep


def test_a_second_napper_follows_the_first_one(bench, sleeps):
    first = napper(bench, 10 * BOUND_S)
    assert sleeps.begun.wait(BOUND_S)
    second = napper(bench, 10 * BOUND_S)
    until(lambda: bench.progress._followers)
    assert second.is_alive()
    bench.wire.put(b"one")
    for thread in (first, second):
        thread.join(BOUND_S)
        assert not thread.is_alive()
    assert len(sleeps.limits_ns) == 1


def test_who_naps_is_woken_by_the_end_of_the_adapter(bench, sleeps):
    thread = napper(bench, 10 * BOUND_S)
    assert sleeps.begun.wait(BOUND_S)
    with bench.loop.lock:
        bench.loop.dead = True
    bench.progress.close()
    thread.join(BOUND_S)
    assert not thread.is_alive()
    assert bench.progress._forgotten, "the last one closes the descriptors"


def test_a_dead_adapter_lets_nobody_nap(bench, sleeps):
    with bench.loop.lock:
        bench.loop.dead = True
    bench.loop.nap(now_ns() + int(BOUND_S * 1e9))
    assert not sleeps.limits_ns


@pytest.mark.parametrize("given", [False, True])
def test_a_channel_looks_by_its_own_call_or_by_that_of_polls(given):
    """Streams and datagrams, which sleep by themselves, look; completion queues poll."""
    memory, calls = HostMemory(), []
    look = (lambda: bool(calls.append("look"))) if given else None
    with contextlib.closing(
        EmbeddedChannel(memory, int, lambda: bool(calls.append("poll")), bool, int, look=look)
    ) as channel:
        channel.progress()
        channel.look()
    assert calls == ["poll", "look" if given else "poll"]
