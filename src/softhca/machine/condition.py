"""Waiting for what another thread changes, which a signal handler may interrupt at any step.

What a handler raises within ``threading.Condition.wait`` may come where the lock has been given away and is
not held again; the caller's ``with`` then raises RuntimeError in its place, and goes on without the lock.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from softhca.machine import deferred_signals

__all__ = ["Condition"]


class Condition:
    """A condition of ``lock``, a ``threading.RLock``, which the caller of every method holds (``with lock``,
    not the condition).

    As ``threading.Condition`` but for signals: whatever comes out of a wait, the lock is held then as before.
    """

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._waiters: deque[Any] = deque()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait, without the lock, for `notify` or `notify_all`; False after ``timeout_s``.  RuntimeError
        where the lock is not held.
        """
        self._check()
        waiter = threading.Lock()
        waiter.acquire()
        with deferred_signals.section():  # but for the wait itself
            held = 1, threading.get_ident()
            try:
                self._waiters.append(waiter)
                held = self._lock._release_save()  # however often this thread holds it
                with deferred_signals.waiting():
                    return waiter.acquire(True, -1 if timeout_s is None else max(0.0, timeout_s))
            finally:
                if not self._lock._is_owned():
                    self._lock._acquire_restore(held)
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def wait_for(self, predicate: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Wait until ``predicate()``, evaluated with the lock held, is true; False when ``timeout_s`` has
        passed first.
        """
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not predicate():
            left_s = None if end_s is None else end_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return False
            self.wait(left_s)
        return True

    def notify(self) -> None:
        """Wake the thread that has waited longest, if any.  RuntimeError where the lock is not held."""
        self._check()
        self._wake(1)

    def notify_all(self) -> None:
        """Wake all threads that wait.  RuntimeError where the lock is not held."""
        self._check()
        self._wake(len(self._waiters))

    def _wake(self, most: int) -> None:
        """Wake so many.  An interrupted one is done again, and must find who was not woken."""
        if not self._waiters:
            return
        with deferred_signals.section():
            for waiter in tuple(self._waiters):
                if not most:
                    break
                if waiter.locked():
                    waiter.release()  # first: who is known no more is woken
                    most -= 1
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def _check(self) -> None:
        if not self._lock._is_owned():
            raise RuntimeError("the condition's lock is not held")
