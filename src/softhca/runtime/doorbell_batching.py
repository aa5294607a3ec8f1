"""Which doorbells wait for the next ones, so that the requests behind them share datagrams.

One queue pair's consumer says by a chain what goes together; one that posts to several queue pairs in turn
cannot.  So where those of several are rung within ``SOON_NS`` of each other, ``EXPECTED`` times in a row, a
doorbell waits for the next ones: no more of them than one call sends, and until the consumer's next poll, a
command, or ``limit_ns`` after the last of them.  A consumer that stays away longer than that has to ring
``DISTRUST`` times before the same is tried again, where its polls are seen (``sees_polls``): then the poll
was expected.

No clock and no thread here: who drives the engine says what happens, and asks.
"""

import cython

__all__ = ["DISTRUST", "EXPECTED", "LEFT_NS", "NEVER", "REPEATS", "SOON_NS", "DoorbellBatching"]

NEVER = (1 << 63) - 1

SOON_NS = 50_000
"""Doorbells of several queue pairs that are rung within this time go out together."""

LEFT_NS = 1_000_000
"""A consumer that has not polled for so long has left what it has rung."""

REPEATS = 16
"""More doorbells of one queue pair in a row come from a consumer that serves no other."""

EXPECTED = 8
"""After so many doorbells of one queue pair after another the next ones are expected."""

DISTRUST = 10_000
"""So many more doorbells are sent at once after the next one was expected in vain."""

_NEVER = cython.declare(cython.ulonglong, NEVER)
_SOON_NS = cython.declare(cython.ulonglong, SOON_NS)
_REPEATS = cython.declare(cython.uint, REPEATS)
_EXPECTED = cython.declare(cython.int, EXPECTED)
_DISTRUSTED = cython.declare(cython.int, EXPECTED - DISTRUST)
_NOBODY = cython.declare(cython.longlong, -1)


class DoorbellBatching:
    """``waits``: doorbells have been rung whose requests are held back; ``waiting`` counts them."""

    def __init__(self, most, limit_ns=LEFT_NS, sees_polls=True):
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

    def rang(self, number, now, expecting=True):
        """The doorbell of queue pair ``number`` was rung at ``now``: whether it is sent with those of others
        that are expected to follow.  ``expecting``: nobody sleeps for an answer."""
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
        # No more than one call sends: what comes after that call, a command, must find all of them sent.
        self.waits = expecting and now - self.sent_ns < _SOON_NS and self.waiting + 1 < self.most
        self.waiting += 1
        return self.waits

    def sent(self, now):
        """All that there was to send has been sent, as far as one call goes."""
        self.waits = False
        self.waiting = 0
        self.sent_ns = now

    def polled(self, now):
        """The consumer polls: what it rings next is the first one again."""
        self.overdue(now)
        self.last = _NOBODY

    def overdue(self, now):
        """Whether nothing has been heard of the consumer for as long as a doorbell may wait."""
        if not self.waits or now - self.last_ns <= self.limit_ns:
            return False
        if self.sees_polls:
            self.expected = _DISTRUSTED
        return True

    def deadline(self):
        """When the doorbells that wait are to be sent at the latest; ``NEVER`` when none does."""
        if not self.waits:
            return _NEVER
        return self.last_ns + self.limit_ns
