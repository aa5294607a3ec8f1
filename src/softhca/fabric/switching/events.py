"""Virtual time: what happens when, in picoseconds."""

from __future__ import annotations

import heapq
from typing import Any, Protocol

PS_PER_NS = 1_000
PS_PER_US = 1_000_000


class Handler(Protocol):
    """What events happen to."""

    def fire(self, what: int, argument: Any, now_ps: int) -> None:
        """The event ``what``, one of the handler's own numbers, happens now."""


class EventQueue:
    """Events in the order of their times, those of one time in the order in which they were planned.

    ``now_ps`` is the time of the last event, ``executed`` their number.
    """

    def __init__(self) -> None:
        self.now_ps = 0
        self.executed = 0
        self._order = 0
        self._heap: list[tuple[int, int, Handler, int, Any]] = []

    def plan(self, time_ps: int, handler: Handler, what: int, argument: Any = None) -> None:
        """Have ``handler.fire(what, argument, time_ps)`` called at ``time_ps``, or now if that is past."""
        if time_ps < self.now_ps:
            time_ps = self.now_ps
        self._order += 1
        heapq.heappush(self._heap, (time_ps, self._order, handler, what, argument))

    def next_ps(self) -> int | None:
        """When the next event happens; None: nothing is planned."""
        return self._heap[0][0] if self._heap else None

    def run(self, until_ps: int) -> None:
        """Let everything happen that is due until ``until_ps``, which is the time afterwards."""
        heap = self._heap
        while heap and heap[0][0] <= until_ps:
            self._happen()
        self.now_ps = max(self.now_ps, until_ps)

    def run_all(self, limit: int) -> bool:
        """Let everything happen, ``limit`` events at most; False: there are more."""
        heap = self._heap
        last = self.executed + limit
        while heap and self.executed < last:
            self._happen()
        return not heap

    def _happen(self) -> None:
        time_ps, _, handler, what, argument = heapq.heappop(self._heap)
        self.now_ps = time_ps
        self.executed += 1
        handler.fire(what, argument, time_ps)
