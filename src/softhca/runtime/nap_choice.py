"""Whether a thread that polls naps while other programs compete for its processor, or polls on.

Neither is always better.  Who polls on uses up its slices, mostly in vain, and is without the processor when
its peer answers; but while both have theirs a small message and its reply take microseconds, and a nap with
its waking takes longer.  Which of the two brings more depends on what else runs, and on the program.  So each
*spell*, the time after a sign of competition (`PollBackOff.contended_until_ns`), is spent in one of the ways;
what was done in it, packets taken and requests posted, over its length, is the way's rate; and the better one
is taken, but for one spell in `TRY_EACH`, which tries the other.

There is no clock and no thread here: the caller reports what happens.
"""

from __future__ import annotations

import cython

__all__ = ["TRY_EACH", "NapChoice"]

TRY_EACH = 8
"""One spell in so many is spent in the way that brought less."""

_TRY_EACH = cython.declare(cython.uint, TRY_EACH)
_NS_PER_S = cython.declare(cython.ulonglong, 1_000_000_000)


class NapChoice:
    """``naps``: the thread naps in this spell, which ends at ``until_ns``; ``naps_rate`` and ``polls_rate``:
    what the two ways bring a second, an average in which the last spell counts for a quarter.
    """

    def __init__(self) -> None:
        self.naps = True
        self.until_ns = 0
        self.naps_rate = self.polls_rate = 0
        self._begin_ns = self._done = 0
        self._spells = 0

    def done(self, now: int) -> None:
        """The program or its peer has done something at ``now``."""
        if now < self.until_ns:
            self._done += 1

    def begins(self, now: int, until_ns: int) -> None:
        """There is competition at ``now``, and taken to be until ``until_ns``: the last spell is over, and
        the next one begins."""
        if now < self.until_ns:  # another thread of the program has noticed it, too
            return
        if self._spells:
            self._weigh()
        self._spells += 1
        self._begin_ns, self.until_ns, self._done = now, until_ns, 0
        if self._spells <= 2:
            self.naps = self._spells == 1
        else:
            self.naps = self.naps_rate >= self.polls_rate
            if self._spells % _TRY_EACH == 0:
                self.naps = not self.naps

    def _weigh(self) -> None:
        """What the spell that is over has brought."""
        length_ns: cython.ulonglong = self.until_ns - self._begin_ns
        rate: cython.ulonglong = self._done * _NS_PER_S // length_ns if length_ns else 0
        before: cython.ulonglong = self.naps_rate if self.naps else self.polls_rate
        rate = rate if self._spells <= 2 else (3 * before + rate) // 4
        if self.naps:
            self.naps_rate = rate
        else:
            self.polls_rate = rate
