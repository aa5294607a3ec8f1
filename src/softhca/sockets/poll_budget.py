"""How long a call of a socket polls before it sleeps.

A sleep costs two switches between threads, which is more than a small message does, so a call polls first.
It does so only as long as that is worth it: polls that find nothing halve the time, down to one poll, and one
that finds something restores it.  Every so many waits one tries again.  Where others want the processor, a
poll delays whom it waits for: then calls sleep at once for a while.

There is no clock here: the caller says what time it is.
"""

from __future__ import annotations

import cython

__all__ = ["MOST_NS", "PollBudget"]

MOST_NS = 100_000
"""The longest time that a call polls in vain."""
LEAST_NS = 2_000
"""A shorter one is none: such a call polls once."""
TRY_EACH = 32
"""So many waits without polling later one polls again."""
CONTENDED_NS = 50_000
"""A poll that finds nothing and takes longer has waited for the processor."""
CONTENTION_MEMORY_NS = 5_000_000
"""For so long after that nobody polls."""

_MOST = cython.declare(cython.ulonglong, MOST_NS)
_LEAST = cython.declare(cython.ulonglong, LEAST_NS)
_TRY_EACH = cython.declare(cython.uint, TRY_EACH)
_CONTENDED = cython.declare(cython.ulonglong, CONTENDED_NS)
_MEMORY = cython.declare(cython.ulonglong, CONTENTION_MEMORY_NS)


class PollBudget:
    """Of one stream."""

    def __init__(self) -> None:
        self.limit_ns = MOST_NS
        self._contended_until_ns = 0
        self._skipped = 0

    def begin(self, now: int) -> int:
        """A wait begins: until when it polls."""
        if now < self._contended_until_ns:
            return now
        if self.limit_ns:
            return now + self.limit_ns
        self._skipped += 1
        if self._skipped < _TRY_EACH:
            return now
        self._skipped = 0
        return now + _MOST

    def missed(self, begin_ns: int, end_ns: int) -> None:
        """A poll has found nothing."""
        if end_ns - begin_ns > _CONTENDED:
            self._contended_until_ns = end_ns + _MEMORY

    def contended(self, now: int) -> bool:
        """Whether others want the processor."""
        return now < self._contended_until_ns

    def found(self) -> None:
        """What was waited for has come while it was polled for."""
        self.limit_ns = _MOST

    def gave_up(self) -> None:
        """It has not."""
        self.limit_ns = self.limit_ns >> 1 if self.limit_ns > 2 * _LEAST else 0
