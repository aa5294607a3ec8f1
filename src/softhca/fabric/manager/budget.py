"""How much work subnet administration does for whom: token buckets, so that a flood of queries costs the
manager little, and starves neither its sweeps nor other ports.
"""

from __future__ import annotations

from collections import OrderedDict

SECOND_NS = 1_000_000_000
MOST_SOURCES = 4096


class Bucket:
    """``rate`` units a second, ``burst`` at once after a silence.  A query that turns out to be large makes
    a debt, and until that is paid nothing is done."""

    __slots__ = ("_burst", "_rate", "_then_ns", "left")

    def __init__(self, rate: int, burst: int, now: int) -> None:
        self._rate = rate
        self._burst = burst
        self._then_ns = now
        self.left: float = burst

    def has_some(self, now: int) -> bool:
        """Whether anything may be done now."""
        gained = max(0, now - self._then_ns) * self._rate / SECOND_NS
        self.left = min(self._burst, self.left + gained)
        self._then_ns = max(now, self._then_ns)
        return self.left > 0

    def take(self, units: float) -> None:
        """So much has been done."""
        self.left -= units


class Budget:
    """A bucket for each of the last `MOST_SOURCES` sources, of a quarter of the whole, and one for all."""

    def __init__(self, rate: int) -> None:
        self._share = max(1, rate // 4)
        self._all = Bucket(rate, 2 * rate, 0)
        self._sources: OrderedDict[int, Bucket] = OrderedDict()

    def allows(self, source: int, now: int) -> bool:
        """Whether a query of a source is taken; what is not costs nobody anything."""
        bucket = self._sources.get(source)
        if bucket is None:
            if len(self._sources) >= MOST_SOURCES:
                self._sources.popitem(last=False)
            bucket = self._sources[source] = Bucket(self._share, 2 * self._share, now)
        self._sources.move_to_end(source)
        return bucket.has_some(now) and self._all.has_some(now)

    def charge(self, source: int, units: float) -> None:
        """A query of a source has cost this."""
        self._all.take(units)
        bucket = self._sources.get(source)
        if bucket is not None:
            bucket.take(units)
