"""What who polls does after a poll in vain: poll again at once, let others run, or go to sleep.

Where processors are scarce, what is waited for may itself be waiting for the processor of the one that polls.
So after a few polls in vain it lets others run each time; where that took long there are such others, and for
a while it is no use to poll at all.  Who has polled in vain for as long as it may goes to sleep anyway: until
it is woken, or, where nobody wakes it, for a part of the time that it has polled in vain
(`PollBackOff.nap_ns`), so that what comes is noticed late by no more than that part.

No clock and no thread here: who polls says what came of it, and is told what to do.
"""

import cython

__all__ = ["AGAIN", "GIVE_WAY", "NEVER", "SLEEP", "PollBackOff"]

AGAIN, GIVE_WAY, SLEEP = 0, 1, 2
"""Poll again at once; let others run first (and say how long that took: `PollBackOff.gave_way`); sleep."""

NEVER = (1 << 63) - 1

CONTENDED_NS = 400_000
"""Strangers run where letting others run takes longer than this; what waits for each other, a poller and
adapters on few processors, takes less."""

CONTENTION_MEMORY_NS = 20_000_000
"""For so long it is remembered that others run."""

NAP_PART = 8
"""A nap is this part of the time that was polled in vain."""

MOST_NAP_NS = 500_000
"""A nap is no longer than this."""

_AGAIN = cython.declare(cython.int, AGAIN)
_GIVE_WAY = cython.declare(cython.int, GIVE_WAY)
_SLEEP = cython.declare(cython.int, SLEEP)
_CONTENDED_NS = cython.declare(cython.ulonglong, CONTENDED_NS)
_CONTENTION_MEMORY_NS = cython.declare(cython.ulonglong, CONTENTION_MEMORY_NS)
_MOST_NAP_NS = cython.declare(cython.ulonglong, MOST_NAP_NS)
_NAP_PART = cython.declare(cython.ulonglong, NAP_PART)


class PollBackOff:
    """``at_once``: so many polls in vain are followed by another at once.  ``limit_ns``: how long there may
    be polls in vain before a sleep.  ``in_vain`` counts them since the last that found something."""

    def __init__(self, at_once=0, limit_ns=NEVER):
        self.at_once = at_once
        self.limit_ns = limit_ns
        self.in_vain = 0
        self.worked_ns = 0
        self.contended_until_ns = 0

    def worked(self, now):
        """A poll at ``now`` found something, or a sleep has ended."""
        self.in_vain = 0
        self.worked_ns = now

    def missed(self, now):
        """A poll at ``now`` found nothing: what to do."""
        self.in_vain += 1
        if now < self.contended_until_ns or self.vain_ns(now) >= self.limit_ns:
            return _SLEEP
        return _GIVE_WAY if self.in_vain > self.at_once else _AGAIN

    def nap_ns(self, now):
        """How long a sleep may be that nobody ends."""
        nap: cython.ulonglong = self.vain_ns(now) // _NAP_PART
        return nap if nap < _MOST_NAP_NS else _MOST_NAP_NS

    def vain_ns(self, now):
        """For how long nothing has been found at ``now``: 0 where another thread found something later."""
        return now - self.worked_ns if now > self.worked_ns else 0

    def gave_way(self, begin_ns, end_ns):
        """Others were let run from ``begin_ns`` to ``end_ns``."""
        if end_ns - begin_ns > _CONTENDED_NS:
            self.contended_until_ns = begin_ns + _CONTENTION_MEMORY_NS
