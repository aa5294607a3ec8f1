"""The lock of the one thread that sleeps on behalf of all that wait for an adapter.

A signal handler may raise between any two steps of the thread that takes it, also between the taking and what
would give it back.  So the lock knows whose it is, and whoever has begun to wait gives it back at the end of
the wait if it is still its own: else nobody would ever wait for the adapter again.
"""

from __future__ import annotations

import threading
from typing import Any


class LeaderLock:
    """Taken by one thread, once: not again by a signal handler of the thread that has it."""

    def __init__(self) -> None:
        self._lock: Any = threading.RLock()  # it notes the owner in the same step
        self._held = False

    def acquire(self) -> bool:
        """Take it if nobody has it, without waiting; whether it is taken."""
        if self._lock._is_owned() or not self._lock.acquire(blocking=False):
            return False
        self._held = True
        return True

    def mine(self) -> bool:
        """Whether this thread has it."""
        return bool(self._lock._is_owned())

    def locked(self) -> bool:
        """Whether some thread leads: for one that is about to, False a moment longer."""
        return self._held

    def release(self) -> None:
        """Give it back; RuntimeError where this thread does not have it."""
        self._held = False
        self._lock.release()
