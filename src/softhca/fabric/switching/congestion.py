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
from dataclasses import replace
from typing import Protocol

from softhca.fabric.switching.events import PS_PER_NS, PS_PER_US
from softhca.machine.arguments import whole
from softhca.transport.congestion import DcqcnSettings, RateMachine


class CongestionControl(Protocol):
    """Of one flow."""

    def notified(self, now_ps: int) -> None:
        """The destination tells of congestion."""

    def pause_ps(self, length_bytes: int, transmission_ps: int, now_ps: int) -> int:
        """How long after the end of a packet, which took ``transmission_ps``, the next may begin."""


MOST_ENTRIES = 1 << 16
"""Of a congestion control table: indices have 16 bits (IBTA vol. 1, annex A10)."""


def linear_table(entries: int = 128) -> tuple[int, ...]:
    """A congestion control table: entry n makes a flow wait for n packet times behind each packet.
    ValueError: more than `MOST_ENTRIES`."""
    whole(entries, "the entries of a congestion control table", 1, MOST_ENTRIES)
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


class RateControl:
    """A flow's rate by DCQCN (`softhca.transport.congestion` has the arithmetic); ``rate_mbps`` is the
    present one, never more than ``line_mbps``."""

    def __init__(self, line_mbps: int, settings: DcqcnSettings | None = None) -> None:
        self.line_mbps = line_mbps
        self._machine = RateMachine(replace(settings or DcqcnSettings(), line_mbps=line_mbps))

    @property
    def rate_mbps(self) -> float:
        """The present rate."""
        return self._machine.rate_mbps

    @property
    def target_mbps(self) -> float:
        """The rate that it comes back to."""
        return self._machine.target_mbps

    def notified(self, now_ps: int) -> None:
        """`CongestionControl.notified`: cut the rate, once in each ``cut_ns``."""
        self._machine.notified(now_ps // PS_PER_NS)

    def pause_ps(self, length_bytes: int, transmission_ps: int, now_ps: int) -> int:
        """`CongestionControl.pause_ps`."""
        machine = self._machine
        machine.pass_time(now_ps // PS_PER_NS)
        if not machine.limited:
            return 0
        machine.count(length_bytes)
        return max(int(length_bytes * 8_000_000 / machine.rate_mbps) - transmission_ps, 0)
