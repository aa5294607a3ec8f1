"""Conditions: as the standard library's, and the lock is held again whatever comes out of a wait."""

import signal
import threading
import time
from collections import deque

import pytest

from machine_speed import limit_s
from softhca.machine.condition import Condition


class Waiters:
    """Threads that wait one after another."""

    def __init__(self, condition, lock):
        self.condition, self.lock = condition, lock
        self.woken, self.threads = [], []

    def start(self, name):
        began = threading.Event()

        def wait():
            with self.lock:
                began.set()
                self.condition.wait()
                self.woken.append(name)

        self.threads.append(threading.Thread(target=wait, daemon=True))
        self.threads[-1].start()
        assert began.wait(limit_s(10))
        with self.lock:  # it waits: it has the lock else
            pass

    def join(self, count):
        for each in self.threads[:count]:
            each.join(limit_s(10))
            assert not each.is_alive()


@pytest.fixture
def lock():
    return threading.RLock()


@pytest.fixture
def condition(lock):
    return Condition(lock)


@pytest.fixture
def waiters(condition, lock):
    return Waiters(condition, lock)


def free(lock):
    """Whether another thread could take it."""
    took = []

    def take():
        took.append(lock.acquire(blocking=False))
        if took[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return took[0]


def test_who_has_waited_longest_is_woken_first(condition, lock, waiters):
    for each in range(3):
        waiters.start(each)
    with lock:
        condition.notify()
    waiters.join(1)
    assert waiters.woken == [0]
    with lock:
        condition.notify_all()
    waiters.join(3)
    with lock:
        condition.notify()  # nobody waits
    assert sorted(waiters.woken) == [0, 1, 2]


def test_a_wait_gives_the_lock_away_however_often_it_is_held(condition, lock):
    def tell():
        with lock:
            condition.notify()

    thread = threading.Thread(target=tell)
    with lock, lock:
        thread.start()
        assert condition.wait(limit_s(10))
        lock.release()
        held = free(lock)
        lock.acquire()
    thread.join()
    assert not held
    assert free(lock)


def test_a_wait_that_nobody_ends_ends_in_time_and_counts_no_more(condition, lock):
    with lock:
        assert not condition.wait(0.001)
        assert not condition.wait(-1.0)
        assert not condition.wait_for(lambda: False, 0.001)
        assert not free(lock)
        condition.notify()
    assert not condition._waiters


def test_what_is_waited_for_is_looked_at_with_the_lock(condition, lock, monkeypatch):
    looks, times, waits = [], iter([100.0, 101.0, 103.5, 106.0]), []
    monkeypatch.setattr(time, "monotonic", lambda: next(times))

    def look():
        looks.append(free(lock))
        return len(looks) == 9

    monkeypatch.setattr(condition, "wait", waits.append)
    with lock:
        assert not condition.wait_for(look, 5.0)
        assert waits == [4.0, 1.5]
        looks.extend([False] * 5)
        assert condition.wait_for(look)
    assert looks == [False] * 9
    assert not waits[2:]


def test_who_has_not_the_lock_may_do_nothing(condition):
    for call in (condition.wait, condition.notify, condition.notify_all):
        with pytest.raises(RuntimeError, match="lock is not held"):
            call()


def test_a_handler_that_raises_ends_the_wait_with_the_lock_held(condition, lock):
    def late(number, frame):
        raise TimeoutError("late")

    def interrupt():
        with lock:  # it waits: it has the lock else
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, late)
    thread = threading.Thread(target=interrupt)
    try:
        with lock:
            thread.start()
            with pytest.raises(TimeoutError, match="late"):
                condition.wait(limit_s(10))
            held = not free(lock)
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert held
    assert not condition._waiters


class Interrupted(Exception):
    """A signal handler's."""


class Interrupting(deque):
    """Waiters where a handler comes once as one is taken out, before or behind it."""

    before = False
    armed = True

    def _take(self, take, *arguments):
        behind = not self.before
        if behind:
            taken = take(*arguments)
        if self.armed:
            self.armed = False
            raise Interrupted
        return taken if behind else take(*arguments)

    def popleft(self):
        return self._take(super().popleft)

    def remove(self, waiter):
        return self._take(super().remove, waiter)


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("call", ["notify", "notify_all"])
def test_who_is_waiting_when_a_handler_interrupts_the_waking_is_woken_by_it_or_by_the_next(
    condition, lock, waiters, call, before
):
    condition._waiters = Interrupting()
    condition._waiters.before = before
    for each in range(2):
        waiters.start(each)
    with lock:
        with pytest.raises(Interrupted):
            getattr(condition, call)()
        getattr(condition, call)()
    waiters.join(2)
    assert not condition._waiters
