"""Sleeping and waking: until when the thread that drives an engine sleeps, and what wakes it earlier.

Two numbers make sure that no deadline and no event is missed.  ``wakeup_ns`` is the time at which the driving
thread wakes up by itself; a round that leaves an earlier deadline wakes it.  ``events`` is a sequence number
that every event for a host increments; while application threads wait (``waiters``), a round that brought
events wakes them.

At most one of the waiting application threads drives the engine: the *leader*.  Where none waits, the
background thread drives.  All calls are made under the engine's lock.  There is no clock, descriptor or
thread here: the caller sleeps, and ``wake`` is called to wake it.
"""

from __future__ import annotations

from collections.abc import Callable

import cython

__all__ = ["LATE_NS", "NEVER", "Sleeper"]

NEVER = (1 << 63) - 1
"""``wakeup_ns`` of a thread that sleeps until it is woken."""

LATE_NS = 8_000_000
"""A sleeping thread is woken for a deadline only if it would notice it more than this too late."""

NS_PER_S = 1_000_000_000

_LATE_NS = cython.declare(cython.ulonglong, LATE_NS)
_NEVER = cython.declare(cython.ulonglong, NEVER)


class Sleeper:
    """``wake`` is called, without arguments, to wake the driving thread.

    ``background_ns`` is when the background thread wakes up by itself.  ``parked``: it sleeps until it is
    woken, because an application thread waits and drives.
    """

    def __init__(self, wake: Callable[[], object]) -> None:
        self.wake = wake
        self.wakeup_ns = NEVER
        self.waiters = 0
        self.events = 0
        self.delivered = 0
        self.background_ns = 0
        self.parked = False

    def on_event(self) -> None:
        """An event for a host was written."""
        self.events += 1

    def deliver(self) -> bool:
        """Whether there are events that have not been delivered; the caller wakes the waiting threads now."""
        if self.events == self.delivered:
            return False
        self.delivered = self.events
        return True

    def cares(self, now: int) -> bool:
        """Whether `settle` could wake anyone at ``now``: a thread waits, or sleeps so long that it would
        notice a deadline too late, even one of this moment."""
        return self.waiters != 0 or now + _LATE_NS < self.wakeup_ns

    def settle(self, deadline_ns: int) -> None:
        """A round has ended and ``deadline_ns`` is the next deadline: wake a thread that would wake up too
        late, or that waits for an event that has come."""
        if self.waiters and self.deliver():
            self.wake()
        elif deadline_ns + _LATE_NS < self.wakeup_ns:
            self.wakeup_ns = 0  # it is being woken: no need to wake it again before it has polled
            self.wake()

    def begin_sleep(self, deadline_ns: int, until_ns: int, leads: bool) -> int:
        """The driving thread goes to sleep, until ``until_ns`` at most; the time at which it wakes up."""
        self.wakeup_ns = min(until_ns, deadline_ns)
        if not leads:
            self.background_ns = self.wakeup_ns
        return self.wakeup_ns

    def background_sleeps(self, until_ns: int) -> None:
        """The background thread sleeps until ``until_ns`` while others drive; ``NEVER``: it is parked."""
        self.parked = until_ns == _NEVER
        if self.parked:
            return
        self.background_ns = until_ns
        if not self.waiters:
            self.wakeup_ns = until_ns

    def nap_ends(self) -> None:
        """A thread that polls has slept for a moment (`begin_sleep`).  Who polls may not poll again: where
        nobody waits, the background thread is the one to wake for a deadline."""
        if not self.waiters:
            self.wakeup_ns = self.background_ns

    def waiter_left(self, deadline_ns: int) -> bool:
        """A waiting thread has left.  After the last one the background thread drives again: whether it must
        be woken for that."""
        if self.waiters:
            return False
        self.wakeup_ns = self.background_ns
        return self.parked or deadline_ns + _LATE_NS < self.background_ns


def timeout_s(wakeup_ns: int, now: int) -> float | None:
    """How long a sleep from ``now`` to ``wakeup_ns`` is, in seconds; None: without end."""
    return None if wakeup_ns >= NEVER else max(wakeup_ns - now, 0) / NS_PER_S
