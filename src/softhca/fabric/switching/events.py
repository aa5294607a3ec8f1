"""Virtual time: what happens when, in picoseconds."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, Protocol

import cython

PS_PER_NS = 1_000
PS_PER_US = 1_000_000
ORDER_BITS = 40
"""Of the numbers of events: a trillion of them."""


class Fires(Protocol):
    """What `Handler` has."""

    def fire(self, what: int, argument: Any, now_ps: int) -> None:
        """`Handler.fire`."""


class Handler:
    """What events happen to; anything else with such a method can be one too."""

    def fire(self, what: int, argument: Any, now_ps: int) -> None:
        """The event ``what``, one of the handler's own numbers, happens now."""
        raise NotImplementedError


class EventQueue:
    """Events in the order of their times, those of one time in the order in which they were planned.

    ``now_ps`` is the time of the last event, ``executed`` their number.  The heap has an integer for each
    event, its time and then its number, and ``_events`` what happens then.
    """

    def __init__(self) -> None:
        self.now_ps = 0
        self.executed = 0
        self._order = 0
        self._heap: list[int] = []
        self._events: dict[int, tuple[Fires, int, Any]] = {}

    def plan(self, time_ps: int, handler: Fires, what: int, argument: Any = None) -> None:
        """Have ``handler.fire(what, argument, time_ps)`` called at ``time_ps``, or now if that is past."""
        if time_ps < self.now_ps:
            time_ps = self.now_ps
        self._order += 1
        when: object = time_ps
        key = when << ORDER_BITS | self._order  # type: ignore[operator]
        self._events[key] = (handler, what, argument)
        heappush(self._heap, key)

    def next_ps(self) -> int | None:
        """When the next event happens; None: nothing is planned."""
        return self._heap[0] >> ORDER_BITS if self._heap else None

    def run(self, until_ps: int) -> None:
        """Let everything happen that is due until ``until_ps``, which is the time afterwards."""
        heap = self._heap
        until: object = until_ps
        end = until + 1 << ORDER_BITS  # type: ignore[operator]
        while heap and heap[0] < end:
            self._happen()
        self.now_ps = max(self.now_ps, until_ps)

    def run_all(self, limit: int) -> bool:
        """Let everything happen, ``limit`` events at most; False: there are more."""
        heap = self._heap
        last: cython.longlong = self.executed + limit
        while heap and self.executed < last:
            self._happen()
        return not heap

    def _happen(self) -> None:
        key = heappop(self._heap)
        event: tuple[Any, int, Any] = self._events.pop(key)
        time_ps: cython.longlong = key >> ORDER_BITS
        self.now_ps = time_ps
        self.executed += 1
        if isinstance(event[0], Handler):
            handler: Handler = event[0]
            handler.fire(event[1], event[2], time_ps)
        else:
            event[0].fire(event[1], event[2], time_ps)
