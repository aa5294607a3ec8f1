"""When the elements of a communication manager want to be looked at."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from softhca.management.cm.elements import NEVER_NS, Connection, Resolution

Timed = Connection | Resolution
_SPARE = 1024


class Timers:
    """A heap with an entry for the earliest deadline that each element has had.

    A deadline that is put off costs nothing: the old entry, when its time comes, is replaced.  Entries of
    elements that wait for nothing any more are thrown out when there are many.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timed]] = []
        self._order = 0
        self._crowded = _SPARE

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, element: Timed, deadline_ns: int) -> None:
        """``element`` is due at ``deadline_ns``, and not before."""
        element.deadline_ns = deadline_ns
        if deadline_ns < element.queued_ns:
            element.queued_ns = deadline_ns
            self._order += 1
            heapq.heappush(self._heap, (deadline_ns, self._order, element))
            if len(self._heap) > self._crowded:
                self._tidy()

    def _tidy(self) -> None:
        kept = []
        for entry in self._heap:
            element = entry[2]
            current = entry[0] == element.queued_ns
            if current and element.deadline_ns != NEVER_NS:
                kept.append(entry)
            elif current:
                element.queued_ns = NEVER_NS
        heapq.heapify(kept)
        self._heap = kept
        self._crowded = 2 * len(kept) + _SPARE

    @staticmethod
    def stop(element: Timed) -> None:
        """``element`` waits for nothing any more."""
        element.deadline_ns = NEVER_NS

    def next_deadline(self) -> int:
        """When `due` may find something; `NEVER_NS`: nothing waits."""
        while self._heap:
            queued_ns, _, element = self._heap[0]
            if queued_ns == element.queued_ns and element.deadline_ns != NEVER_NS:
                return queued_ns
            heapq.heappop(self._heap)
            if queued_ns == element.queued_ns:
                element.queued_ns = NEVER_NS
        return NEVER_NS

    def due(self, now: int) -> Iterator[Timed]:
        """Take the elements whose deadline has come."""
        while self._heap and self._heap[0][0] <= now:
            queued_ns, _, element = heapq.heappop(self._heap)
            if queued_ns != element.queued_ns:
                continue
            element.queued_ns = NEVER_NS
            if element.deadline_ns > now:
                if element.deadline_ns != NEVER_NS:
                    self.set(element, element.deadline_ns)
                continue
            element.deadline_ns = NEVER_NS
            yield element
