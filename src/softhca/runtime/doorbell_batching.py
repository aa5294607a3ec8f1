"""Doorbell batching: a doorbell may wait for the next ones, so that their requests share datagrams.

A consumer of one queue pair posts a chain to say that requests belong together; one that posts to several
queue pairs in turn cannot say so.  So when doorbells of several queue pairs are rung within ``SOON_NS`` of
each other, ``EXPECTED`` times in a row, a doorbell waits for the next ones.  At most as many wait as one call
sends.  The wait ends at the consumer's next poll, at a command, or ``limit_ns`` after the last doorbell.
Where polls are seen (``sees_polls``), that time limit means that the expected poll did not come; then
``DISTRUST`` more doorbells are sent at once before batching is tried again.

There is no clock and no thread here: the caller that drives the engine reports what happens, and asks.
"""

from __future__ import annotations

import cython

__all__ = ["DISTRUST", "EXPECTED", "LEFT_NS", "NEVER", "REPEATS", "SOON_NS", "DoorbellBatching"]

NEVER = (1 << 63) - 1

SOON_NS = 50_000
"""Doorbells of several queue pairs that are rung within this time go out together."""

LEFT_NS = 1_000_000
"""A consumer that has not polled for so long is not expected to poll soon."""

REPEATS = 16
"""More doorbells of one queue pair in a row mean that the consumer uses no other."""

EXPECTED = 8
"""After so many doorbells of one queue pair after another the next ones are expected."""

DISTRUST = 10_000
"""So many doorbells are sent at once after one that waited in vain."""

_NEVER = cython.declare(cython.ulonglong, NEVER)
_SOON_NS = cython.declare(cython.ulonglong, SOON_NS)
_REPEATS = cython.declare(cython.uint, REPEATS)
_EXPECTED = cython.declare(cython.int, EXPECTED)
_DISTRUSTED = cython.declare(cython.int, EXPECTED - DISTRUST)
_NOBODY = cython.declare(cython.longlong, -1)


class DoorbellBatching:
    """``waits``: doorbells have been rung whose requests are held back; ``waiting`` counts them."""

    def __init__(self, most: int, limit_ns: int = LEFT_NS, sees_polls: bool = True) -> None:
        self.most = most
        self.limit_ns = limit_ns
        self.sees_polls = sees_polls
        self.last = _NOBODY
        self.last_ns = 0
        self.repeats = 0
        self.expected = 0
        self.waits = False
        self.waiting = 0
        self.sent_ns = 0

    def on_doorbell(self, number: int, now: int, expecting: bool = True) -> bool:
        """The doorbell of queue pair ``number`` was rung at ``now``: whether it waits for those of others
        that are expected to follow.  ``expecting``: it may wait, since no thread sleeps until an answer."""
        former: cython.longlong = self.last
        soon: cython.bint = now - self.last_ns < _SOON_NS
        self.overdue(now)
        self.last = number
        self.last_ns = now
        if former == _NOBODY:
            return False
        self.repeats = self.repeats + 1 if former == self.last else 0
        if self.repeats > _REPEATS or not soon:
            self.expected = min(self.expected, 0)
            return False
        if self.expected < _EXPECTED:
            if former != self.last:
                self.expected += 1
            return False
        # No more than one call sends: a command after that call must find all of them sent.
        self.waits = expecting and now - self.sent_ns < _SOON_NS and self.waiting + 1 < self.most
        self.waiting += 1
        return self.waits

    def sent(self, now: int) -> None:
        """A call has sent what was due, up to its bound."""
        self.waits = False
        self.waiting = 0
        self.sent_ns = now

    def polled(self, now: int) -> None:
        """The consumer polls: its next doorbell counts as the first one again."""
        self.overdue(now)
        self.last = _NOBODY

    def overdue(self, now: int) -> bool:
        """Whether a doorbell has waited for its time limit without a sign of the consumer."""
        if not self.waits or now - self.last_ns <= self.limit_ns:
            return False
        if self.sees_polls:
            self.expected = _DISTRUSTED
        return True

    def deadline(self) -> int:
        """When the waiting doorbells must be sent at the latest; ``NEVER`` when none waits."""
        if not self.waits:
            return _NEVER
        return self.last_ns + self.limit_ns
