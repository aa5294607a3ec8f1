"""Free runs of consecutive numbers: the one allocator behind page frames, slots and table entries.

A run is ``(first, count)``.  Runs are kept sorted and merged, so that what was given back is found again
whole.  Every change is one assignment to a part of one list: an exception that strikes in between (a key
pressed, a signal) finds the runs as they were before or after it.
"""

from bisect import bisect_right
from collections.abc import Iterable

Run = tuple[int, int]


def runs_of(numbers: Iterable[int]) -> list[Run]:
    """The numbers, in their order, as runs: ``[5, 6, 7, 2]`` gives ``[(5, 3), (2, 1)]``."""
    runs: list[Run] = []
    first = count = 0
    for number in numbers:
        if count and number == first + count:
            count += 1
            continue
        if count:
            runs.append((first, count))
        first, count = number, 1
    if count:
        runs.append((first, count))
    return runs


def numbers_of(runs: Iterable[Run], count: int) -> list[int]:
    """The ``count`` numbers of ``runs``, one by one.  Raises ValueError where the runs hold more or fewer,
    before any list of them is made: the runs may be another process's claim."""
    runs = list(runs)
    if any(run < 1 for _, run in runs) or sum(run for _, run in runs) != count:
        raise ValueError(f"the runs do not hold {count} numbers")
    return [number for first, run in runs for number in range(first, first + run)]


class FreeRuns:
    """The free part of the numbers ``first … first + count − 1``."""

    def __init__(self, first: int, count: int) -> None:
        self.first = first
        self.count = count
        self._runs: list[Run] = [(first, count)] if count else []

    @property
    def free_count(self) -> int:
        """How many numbers are free."""
        return sum(count for _, count in self._runs)

    def take(self, count: int) -> int:
        """First number of ``count`` consecutive ones, or −1 where no run is long enough (lowest run
        first)."""
        for position, (first, free) in enumerate(self._runs):
            if free >= count:
                self._runs[position : position + 1] = _run(first + count, free - count)
                return first
        return -1

    def take_at(self, first: int, count: int) -> bool:
        """Take just these ``count`` numbers from ``first`` on; False, and nothing taken, where not all are
        free.
        """
        position = self._following(first) - 1
        if position < 0 or count <= 0:
            return False
        start, free = self._runs[position]
        before, after = first - start, start + free - first - count
        if after < 0:
            return False
        self._runs[position : position + 1] = _run(start, before) + _run(first + count, after)
        return True

    def take_scattered(self, count: int) -> list[Run]:
        """Runs of together ``count`` numbers, lowest first; empty, and nothing taken, where there are too
        few."""
        taken: list[Run] = []
        for position, (first, free) in enumerate(self._runs if count > 0 else ()):
            if free >= count:
                taken.append((first, count))
                self._runs[: position + 1] = _run(first + count, free - count)
                return taken
            taken.append((first, free))
            count -= free
        return []

    def give(self, first: int, count: int) -> None:
        """Give a run back.  Raises ValueError, and changes nothing, where any of it is free already or
        foreign."""
        if not self.is_taken(first, count):
            raise ValueError(f"numbers {first} … {first + count - 1} are not all in use")
        begin = end = self._following(first)
        if end < len(self._runs) and self._runs[end][0] == first + count:
            count += self._runs[end][1]
            end += 1
        if begin and sum(self._runs[begin - 1]) == first:
            begin -= 1
            first, count = self._runs[begin][0], self._runs[begin][1] + count
        self._runs[begin:end] = [(first, count)]

    def is_taken(self, first: int, count: int) -> bool:
        """Whether every number of the run is in range and in use."""
        if count <= 0 or first < self.first or first + count > self.first + self.count:
            return False
        position = self._following(first)
        if position < len(self._runs) and self._runs[position][0] < first + count:
            return False
        return not position or sum(self._runs[position - 1]) <= first

    def _following(self, number: int) -> int:
        """The position of the first run that begins behind ``number``."""
        return bisect_right(self._runs, (number, self.first + self.count))


def _run(first: int, count: int) -> list[Run]:
    """A run, or nothing where it has no numbers."""
    return [(first, count)] if count else []
