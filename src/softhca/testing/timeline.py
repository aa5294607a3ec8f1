# cython: annotation_typing=False
"""Virtual time: what is planned, in the order of time."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

NEVER = (1 << 63) - 1


class Timeline:
    """``now`` is the time in nanoseconds.  Actions planned for one moment follow in the order of planning."""

    def __init__(self, now: int) -> None:
        self.now = now
        self._heap: list[tuple[int, int, Callable[[Any], object], Any]] = []
        self._sequence = 0

    def at(self, time_ns: int, action: Callable[[Any], object], argument: Any = None) -> None:
        """Call ``action(argument)`` at a moment, after what was planned for it before."""
        self._sequence += 1
        heapq.heappush(self._heap, (time_ns, self._sequence, action, argument))

    def after(self, delay_ns: int, action: Callable[[], object]) -> None:
        """Call ``action()`` so much later."""
        self.at(self.now + delay_ns, lambda _: action())

    def planned_ns(self) -> int:
        """The moment of the next action; ``NEVER`` where none is planned."""
        return self._heap[0][0] if self._heap else NEVER

    def do_due(self) -> bool:
        """Do everything that is due by now, also what that plans for now; whether there was anything."""
        found = False
        while self._heap and self._heap[0][0] <= self.now:
            _, _, action, argument = heapq.heappop(self._heap)
            action(argument)
            found = True
        return found

    def play(self, events: int, limit_ns: int, on_time: Callable[[int], object]) -> bool:
        """Do all that is planned, and call ``on_time`` with the time of each action before it; whether
        nothing is left within so many ``events`` and ``limit_ns`` from now.
        """
        end_ns = self.now + limit_ns
        heap = self._heap
        for _ in range(events):
            if not heap:
                return True
            self.now, _, action, argument = heapq.heappop(heap)
            on_time(self.now)
            if self.now > end_ns:
                break
            action(argument)
        return False

    def play_to(self, time_ns: int, on_time: Callable[[int], object]) -> None:
        """Do all that is planned up to a moment, which then is now; ``on_time`` as in `play`."""
        heap = self._heap
        while heap and heap[0][0] <= time_ns:
            self.now, _, action, argument = heapq.heappop(heap)
            on_time(self.now)
            action(argument)
        self.now = time_ns
        on_time(time_ns)
