"""How long a thread polls before it sleeps: the engines' loops, and calls that wait for a stream.

Where processors are scarce, the party that is waited for may need the processor of the polling thread.  So
after a few empty polls the thread yields each time.  If a yield took long, other programs compete for the
processor, and for a while polling is useless: the thread sleeps; the longer, the more often that has
happened.  It also sleeps once it has polled in vain
for its time limit: until it is woken or, where nothing wakes it, for a fraction of the time that it has
polled in vain (`PollBackOff.sleep_ns`), so that it notices an event late by no more than that fraction.

`PollBackOff` is for who polls on and on: after an empty poll it polls again at once, yields the processor, or
sleeps.  `PollBudget` is for who waits anew with every call: how long polls are worth their time is learned
from the calls before.

There is no clock and no thread here: the caller reports the results of its polls, and gets the next step.
"""

from __future__ import annotations

import cython

__all__ = ["AGAIN", "LONGEST_NS", "NEVER", "SLEEP", "YIELD", "PollBackOff", "PollBudget"]

AGAIN, YIELD, SLEEP = 0, 1, 2
"""Poll again at once; yield the processor first (and report how long that took: `PollBackOff.yielded`);
sleep."""

NEVER = (1 << 63) - 1

CONTENDED_NS = 400_000
"""A yield that takes longer than this means that unrelated programs compete for the processor.  Between a
poller and adapters that wait for each other it takes less."""

PEER_NS = 1_000_000
"""After a yield up to so long that a poll with work follows, it was the peer that had the processor."""

SWITCH_NS = 3_000
"""A shorter yield has let nobody run."""

CONTENTION_MEMORY_NS = 20_000_000
"""How long a processor counts as contended after the first such yield."""

LONGEST_MEMORY_NS = 80_000_000
"""Twice as long for each one of more than `PEER_NS` before, up to this: beside programs that only compute a
yield costs a time slice of theirs, and every trial of one is such a yield.  Half as long again after each
yield up to `PEER_NS` that a poll with work follows."""

SLEEP_FRACTION = 8
"""A nap takes this fraction (1/n) of the time that was polled in vain."""

MAX_SLEEP_NS = 500_000
"""A nap is no longer than this."""

LONGEST_NS = 100_000
"""The longest time that a call polls in vain: a sleep costs two switches between threads."""

SHORTEST_NS = 2_000
"""A shorter time is none: such a call polls once."""

TRY_EACH = 32
"""So many calls that do not poll in vain later one tries it again."""

CALL_CONTENDED_NS = CONTENDED_NS
"""An empty poll of a call that takes longer, with its yield, has waited for another program."""

CALL_MEMORY_NS = 5_000_000
"""For so long after that calls sleep at once."""

_AGAIN = cython.declare(cython.int, AGAIN)
_YIELD = cython.declare(cython.int, YIELD)
_SLEEP = cython.declare(cython.int, SLEEP)
_PEER_NS, _SWITCH_NS = cython.declare(cython.ulonglong, PEER_NS), cython.declare(cython.ulonglong, SWITCH_NS)
_MAX_SLEEP_NS = cython.declare(cython.ulonglong, MAX_SLEEP_NS)
_SHORTEST = cython.declare(cython.ulonglong, SHORTEST_NS)
_TRY_EACH = cython.declare(cython.uint, TRY_EACH)
_LONGEST_MEMORY_NS = cython.declare(cython.ulonglong, LONGEST_MEMORY_NS)
_SLEEP_FRACTION = cython.declare(cython.ulonglong, SLEEP_FRACTION)


class PollBackOff:
    """``at_once``: after so many empty polls the thread yields.  ``limit_ns``: how long it polls in vain
    before it sleeps.  ``contended_ns`` and ``memory_ns``: after a yield that took longer than the one it does
    not poll in vain for the other, or for twice as long for each very long yield before.  ``empty_polls``
    counts the empty polls since the last one that found something.  ``shares``: whom it waits for runs on
    this processor, so that an empty poll is followed by a yield at once: a yield has let somebody run, and
    the poll behind it has found something; until one lets nobody run.
    """

    def __init__(
        self,
        at_once: int = 0,
        limit_ns: int = NEVER,
        contended_ns: int = CONTENDED_NS,
        memory_ns: int = CONTENTION_MEMORY_NS,
    ) -> None:
        self.at_once = at_once
        self.limit_ns = limit_ns
        self.contended_ns = contended_ns
        self.memory_ns = memory_ns
        self.empty_polls = 0
        self.worked_ns = 0
        self.contended_until_ns = 0
        self.shares = False
        self._long_yields = 0  # how often the memory is doubled
        self._yield_ns = 0  # how long the yield before the next poll took, 0 where there was none

    def begins(self) -> None:
        """A thread begins to poll anew: what was found before is no reason to poll on."""
        self.empty_polls = 0
        self.worked_ns = self._yield_ns = 0

    def worked(self, now: int) -> None:
        """A poll at ``now`` found something, or a sleep has ended."""
        self.empty_polls = 0
        self.worked_ns = now
        if self._yield_ns:
            if self._yield_ns <= _PEER_NS:
                if self._long_yields:
                    self._long_yields -= 1
                if self._yield_ns >= _SWITCH_NS and not self._long_yields:
                    self.shares = True
                    self.contended_until_ns = 0
            self._yield_ns = 0

    def missed(self, now: int) -> int:
        """A poll at ``now`` found nothing: what to do."""
        self.empty_polls += 1
        self._yield_ns = 0
        if self.contended(now) or self.idle_ns(now) >= self.limit_ns:
            return _SLEEP
        return _YIELD if self.shares or self.empty_polls > self.at_once else _AGAIN

    def sleep_ns(self, now: int) -> int:
        """How long to sleep where nothing wakes the thread."""
        nap: cython.ulonglong = self.idle_ns(now) // _SLEEP_FRACTION
        return nap if nap < _MAX_SLEEP_NS else _MAX_SLEEP_NS

    def idle_ns(self, now: int) -> int:
        """How long nothing has been found until ``now``: 0 where another thread found something later."""
        return now - self.worked_ns if now > self.worked_ns else 0

    def contended(self, now: int) -> bool:
        """Whether others want the processor: then a poll delays whom it waits for."""
        return now < self.contended_until_ns

    def yielded(self, begin_ns: int, end_ns: int) -> None:
        """The thread yielded the processor from ``begin_ns`` to ``end_ns``, or polled in vain so long."""
        took: cython.ulonglong = end_ns - begin_ns
        memory: cython.ulonglong = self.memory_ns << self._long_yields
        if took > self.contended_ns:
            self.contended_until_ns = end_ns + memory
            if took > _PEER_NS and memory < _LONGEST_MEMORY_NS:
                self._long_yields += 1
        if took < _SWITCH_NS:
            self.shares = False
        self._yield_ns = took or 1


class PollBudget(PollBackOff):
    """Of calls that wait for one thing: each polls for ``limit_ns`` at the most, at first ``longest_ns``.  A
    call that polls in vain halves that, down to one poll; one whose poll finds something restores it, and
    every so many calls one tries again."""

    def __init__(self, longest_ns: int = LONGEST_NS) -> None:
        PollBackOff.__init__(self, 0, longest_ns, CALL_CONTENDED_NS, CALL_MEMORY_NS)
        self.longest_ns = longest_ns
        self._skipped = 0

    def until(self, now: int) -> int:
        """A call begins to wait: until when it polls."""
        if self.contended(now):
            return now
        if self.limit_ns:
            return now + self.limit_ns
        self._skipped += 1
        if self._skipped < _TRY_EACH:
            return now
        self._skipped = 0
        return now + self.longest_ns

    def found(self) -> None:
        """What a call waited for has come while it polled."""
        self.limit_ns = self.longest_ns
        if self._long_yields:
            self._long_yields -= 1

    def gave_up(self) -> None:
        """It has not."""
        self.limit_ns = self.limit_ns >> 1 if self.limit_ns > 2 * _SHORTEST else 0
