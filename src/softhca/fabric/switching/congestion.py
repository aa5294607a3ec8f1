"""How a sender slows down when it is told of congestion.

`TableControl` is InfiniBand's congestion control (IBTA vol. 1, annex A10): each notification (BECN) moves a
flow deeper into a table of delays between packets, time moves it back.  `RateControl` is DCQCN, as RoCEv2
adapters do it (Zhu et al., SIGCOMM 2015): a rate that a notification cuts by half of an estimate of the
congestion, and that recovers in stages.

Both are asked how long to wait behind a packet; they have no timers, and find out at each call what time has
done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from softhca.fabric.switching.events import PS_PER_US


class CongestionControl(Protocol):
    """Of one flow."""

    def notified(self, now_ps: int) -> None:
        """The destination tells of congestion."""

    def pause_ps(self, length_bytes: int, transmission_ps: int, now_ps: int) -> int:
        """How long after the end of a packet, which took ``transmission_ps``, the next may begin."""


def linear_table(entries: int = 128) -> tuple[int, ...]:
    """A congestion control table: entry n makes a flow wait for n packet times behind each packet."""
    return tuple(range(entries))


class TableControl:
    """``table[index]`` is a delay in packet times; a notification adds ``increase`` to the index, each
    ``timer_ps`` without one takes 1 off."""

    def __init__(
        self, table: Sequence[int] = linear_table(), increase: int = 4, timer_ps: int = 150 * PS_PER_US
    ) -> None:
        if not table or increase < 1 or timer_ps < 1:
            raise ValueError("a table of delays, an increase and a time of at least 1 are needed")
        self.index = 0
        self._table = table
        self._increase = increase
        self._timer_ps = timer_ps
        self._decreased_ps = 0

    def _pass_time(self, now_ps: int) -> None:
        steps = (now_ps - self._decreased_ps) // self._timer_ps
        if steps > 0:
            self.index = max(self.index - steps, 0)
            self._decreased_ps += steps * self._timer_ps

    def notified(self, now_ps: int) -> None:
        """`CongestionControl.notified`."""
        self._pass_time(now_ps)
        if not self.index:
            self._decreased_ps = now_ps
        self.index = min(self.index + self._increase, len(self._table) - 1)

    def pause_ps(self, length_bytes: int, transmission_ps: int, now_ps: int) -> int:
        """`CongestionControl.pause_ps`."""
        self._pass_time(now_ps)
        return self._table[self.index] * transmission_ps


@dataclass(frozen=True)
class RateSettings:
    """DCQCN's numbers, with the defaults of its authors.  Rates are megabits a second."""

    gain: float = 1 / 256
    alpha_timer_ps: int = 55 * PS_PER_US
    increase_timer_ps: int = 55 * PS_PER_US
    byte_counter: int = 10 << 20
    fast_stages: int = 5
    additive_mbps: float = 40.0
    hyper_mbps: float = 400.0
    least_mbps: float = 10.0
    cut_interval_ps: int = 50 * PS_PER_US


class RateControl:
    """A flow's rate by DCQCN; ``rate_mbps`` is the present one, never more than ``line_mbps``."""

    def __init__(self, line_mbps: int, settings: RateSettings | None = None) -> None:
        self.line_mbps = line_mbps
        self.rate_mbps = float(line_mbps)
        self.target_mbps = float(line_mbps)
        self.alpha = 1.0
        self._settings = settings or RateSettings()
        self._limited = False
        self._alpha_ps = self._timer_ps = self._cut_ps = 0
        self._time_stages = self._byte_stages = self._bytes = 0

    def notified(self, now_ps: int) -> None:
        """`CongestionControl.notified`: cut the rate, once in each ``cut_interval_ps``."""
        settings = self._settings
        if self._limited and now_ps - self._cut_ps < settings.cut_interval_ps:
            return
        self._pass_time(now_ps)
        self.target_mbps = self.rate_mbps
        self.rate_mbps = max(self.rate_mbps * (1 - self.alpha / 2), settings.least_mbps)
        self.alpha = (1 - settings.gain) * self.alpha + settings.gain
        self._limited = True
        self._cut_ps = self._alpha_ps = self._timer_ps = now_ps
        self._time_stages = self._byte_stages = self._bytes = 0

    def _pass_time(self, now_ps: int) -> None:
        """What the timers would have done."""
        if not self._limited:
            return
        settings = self._settings
        while now_ps - self._alpha_ps >= settings.alpha_timer_ps:
            self._alpha_ps += settings.alpha_timer_ps
            self.alpha *= 1 - settings.gain
        while self._limited and now_ps - self._timer_ps >= settings.increase_timer_ps:
            self._timer_ps += settings.increase_timer_ps
            self._time_stages += 1
            self._increase()

    def _increase(self) -> None:
        settings = self._settings
        stages = self._time_stages, self._byte_stages
        if min(stages) > settings.fast_stages:
            self.target_mbps += settings.hyper_mbps * (min(stages) - settings.fast_stages)
        elif max(stages) > settings.fast_stages:
            self.target_mbps += settings.additive_mbps
        self.target_mbps = min(self.target_mbps, float(self.line_mbps))
        self.rate_mbps = (self.rate_mbps + self.target_mbps) / 2
        if self.line_mbps - self.rate_mbps < 1:
            self.rate_mbps = float(self.line_mbps)
            self._limited = False

    def pause_ps(self, length_bytes: int, transmission_ps: int, now_ps: int) -> int:
        """`CongestionControl.pause_ps`."""
        self._pass_time(now_ps)
        if not self._limited:
            return 0
        self._bytes += length_bytes
        if self._bytes >= self._settings.byte_counter:
            self._bytes = 0
            self._byte_stages += 1
            self._increase()
        return max(int(length_bytes * 8_000_000 / self.rate_mbps) - transmission_ps, 0)
