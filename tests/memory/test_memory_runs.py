"""The allocator of consecutive numbers, against a set as its model."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from softhca.memory.runs import FreeRuns, numbers_of, runs_of
from suite_plan import random_inputs

FIRST, COUNT = 3, 40


def longest(free):
    return max((count for _, count in runs_of(sorted(free))), default=0)


def test_runs_are_merged_where_they_touch_and_nowhere_else():
    runs = FreeRuns(0, 10)
    assert runs.take(10) == 0
    for first, count, free in ((0, 1, 1), (4, 2, 3), (2, 1, 4), (1, 1, 5), (8, 2, 7)):
        runs.give(first, count)
        assert runs.free_count == free
    assert [runs.take(4), runs.take(3), runs.take(2), runs.take(2)] == [-1, 0, 4, 8]


class FreeRunsAgainstASet(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.runs = FreeRuns(FIRST, COUNT)
        self.free = set(range(FIRST, FIRST + COUNT))

    @rule(count=st.integers(1, 12))
    def take_consecutive(self, count):
        first = self.runs.take(count)
        if first < 0:
            assert longest(self.free) < count
            return
        numbers = set(range(first, first + count))
        assert numbers <= self.free
        self.free -= numbers

    @rule(count=st.integers(1, 30))
    def take_anywhere(self, count):
        runs = self.runs.take_scattered(count)
        numbers = [number for first, length in runs for number in range(first, first + length)]
        if not runs:
            assert len(self.free) < count
            return
        assert len(numbers) == len(set(numbers)) == count
        assert set(numbers) <= self.free
        self.free -= set(numbers)

    @rule(first=st.integers(0, FIRST + COUNT + 2), count=st.integers(0, 12))
    def take_these(self, first, count):
        numbers = set(range(first, first + count))
        assert self.runs.take_at(first, count) == bool(numbers and numbers <= self.free)
        if numbers <= self.free:
            self.free -= numbers

    @rule(first=st.integers(0, FIRST + COUNT + 2), count=st.integers(0, 12))
    def give(self, first, count):
        numbers = set(range(first, first + count))
        everything = set(range(FIRST, FIRST + COUNT))
        if count and numbers <= everything and not numbers & self.free:
            assert self.runs.is_taken(first, count)
            self.runs.give(first, count)
            self.free |= numbers
        else:
            assert not self.runs.is_taken(first, count)
            with pytest.raises(ValueError, match="in use"):
                self.runs.give(first, count)

    @precondition(lambda self: len(self.free) < COUNT)
    @rule(data=st.data())
    def give_one_that_is_taken(self, data):
        taken = sorted(set(range(FIRST, FIRST + COUNT)) - self.free)
        number = data.draw(st.sampled_from(taken))
        self.runs.give(number, 1)
        self.free.add(number)

    @invariant()
    def the_count_is_right(self):
        assert self.runs.free_count == len(self.free)


FreeRunsAgainstASet.TestCase.settings = settings(max_examples=random_inputs(60), stateful_step_count=40)
TestFreeRuns = FreeRunsAgainstASet.TestCase


def test_neighbours_merge_so_that_all_is_one_run_again():
    runs = FreeRuns(0, 9)
    assert [runs.take(3) for _ in range(3)] == [0, 3, 6]
    for first in (0, 6, 3):
        runs.give(first, 3)
    assert runs.take(9) == 0


def test_scattered_numbers_come_from_several_runs_when_none_is_long_enough():
    runs = FreeRuns(0, 6)
    runs.take(6)
    runs.give(1, 1)
    runs.give(4, 2)
    assert runs.take(3) == -1
    assert runs.take_scattered(3) == [(1, 1), (4, 2)]


def test_runs_of_keeps_the_order():
    assert runs_of([5, 6, 7, 2, 3, 9]) == [(5, 3), (2, 2), (9, 1)]
    assert runs_of([]) == []


def test_numbers_of_is_the_inverse_and_refuses_another_count():
    assert numbers_of([(5, 3), (2, 1)], 4) == [5, 6, 7, 2]
    for runs in ([(5, 3)], [(5, 5)], [(0, 1 << 40)], [(1, 5), (9, -1)], [(1, 4), (3, 0)]):
        with pytest.raises(ValueError, match="do not hold"):
            numbers_of(runs, 4)
