"""Virtual time: what happens when, in picoseconds."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, Protocol

import cython

PS_PER_NS = 1_000
PS_PER_US = 1_000_000


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

    ``now_ps`` is the time of the last event, ``executed`` their number.  The heap has each time once at which
    something is planned, and ``_planned`` what happens then: handler, number and argument of one event behind
    those of the other.  ``_done`` is how much of the earliest time's has been.  In a fabric many events are
    at one time (packets of one length over links of one speed), and only their first is sorted in.
    """

    def __init__(self) -> None:
        self.now_ps = 0
        self.executed = 0
        self._done = 0
        self._heap: list[int] = []
        self._planned: dict[int, list[Any]] = {}

    def plan(self, time_ps: int, handler: Fires, what: int, argument: Any = None) -> None:
        """Have ``handler.fire(what, argument, time_ps)`` called at ``time_ps``, or now if that is past."""
        if time_ps < self.now_ps:
            time_ps = self.now_ps
        time: object = time_ps
        planned: list[Any] | None = self._planned.get(time)  # type: ignore[call-overload]
        if planned is None:
            self._planned[time] = [handler, what, argument]  # type: ignore[index]
            heappush(self._heap, time)  # type: ignore[misc]
        else:
            planned.append(handler)
            planned.append(what)
            planned.append(argument)

    def next_ps(self) -> int | None:
        """When the next event happens; None: nothing is planned."""
        return self._heap[0] if self._heap else None

    def run(self, until_ps: int) -> None:
        """Let everything happen that is due until ``until_ps``, which is the time afterwards."""
        heap = self._heap
        until: object = until_ps
        while heap and heap[0] <= until:  # type: ignore[operator]
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
        time: object = self._heap[0]
        planned: list[Any] = self._planned[time]  # type: ignore[index]
        done: cython.Py_ssize_t = self._done
        event: object = planned[done]
        what: cython.int = planned[done + 1]
        argument: object = planned[done + 2]
        done += 3
        if done == len(planned):  # what is planned for now from here on gets its turn anew
            heappop(self._heap)
            del self._planned[time]  # type: ignore[arg-type]
            done = 0
        self._done = done
        self.executed += 1
        self.now_ps = time  # type: ignore[assignment]
        if isinstance(event, Handler):
            handler: Handler = event
            handler.fire(what, argument, self.now_ps)
        else:
            event.fire(what, argument, self.now_ps)  # type: ignore[attr-defined]
