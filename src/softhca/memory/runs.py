"""Free runs of consecutive numbers: the one allocator behind page frames, slots and table entries.

A run is ``(first, count)``.  Runs are kept sorted and merged, so that what was given back is found again
whole.
"""

from bisect import bisect_left, bisect_right
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
        self.free_count = count
        self._starts: list[int] = [first] if count else []
        self._counts: dict[int, int] = {first: count} if count else {}

    def take(self, count: int) -> int:
        """First number of ``count`` consecutive ones, or −1 where no run is long enough (lowest run
        first)."""
        for position, start in enumerate(self._starts):
            if self._counts[start] >= count:
                self._cut(position, count)
                return start
        return -1

    def take_at(self, first: int, count: int) -> bool:
        """Take just these ``count`` numbers from ``first`` on; False, and nothing taken, where not all are
        free.
        """
        position = bisect_right(self._starts, first) - 1
        if position < 0 or count <= 0:
            return False
        start = self._starts[position]
        before = first - start
        if before + count > self._counts[start]:
            return False
        self._cut(position, before + count)
        if before:
            self._starts.insert(position, start)
            self._counts[start] = before
            self.free_count += before
        return True

    def take_scattered(self, count: int) -> list[Run]:
        """Runs of together ``count`` numbers, lowest first; empty, and nothing taken, where there are too
        few."""
        if count > self.free_count:
            return []
        taken: list[Run] = []
        while count:
            start = self._starts[0]
            piece = min(count, self._counts[start])
            self._cut(0, piece)
            taken.append((start, piece))
            count -= piece
        return taken

    def give(self, first: int, count: int) -> None:
        """Give a run back.  Raises ValueError, and changes nothing, where any of it is free already or
        foreign."""
        if not self.is_taken(first, count):
            raise ValueError(f"numbers {first} … {first + count - 1} are not all in use")
        position = bisect_left(self._starts, first)
        self.free_count += count
        if position < len(self._starts) and self._starts[position] == first + count:
            count += self._counts.pop(self._starts[position])
            del self._starts[position]
        if position and self._starts[position - 1] + self._counts[self._starts[position - 1]] == first:
            self._counts[self._starts[position - 1]] += count
            return
        self._starts.insert(position, first)
        self._counts[first] = count

    def is_taken(self, first: int, count: int) -> bool:
        """Whether every number of the run is in range and in use."""
        if count <= 0 or first < self.first or first + count > self.first + self.count:
            return False
        position = bisect_left(self._starts, first)
        if position < len(self._starts) and self._starts[position] < first + count:
            return False
        if position:
            before = self._starts[position - 1]
            return before + self._counts[before] <= first
        return True

    def _cut(self, position: int, count: int) -> None:
        """Take ``count`` numbers off the front of the run at ``position``."""
        start = self._starts[position]
        left = self._counts.pop(start) - count
        self.free_count -= count
        if left:
            self._starts[position] = start + count
            self._counts[start + count] = left
        else:
            del self._starts[position]
