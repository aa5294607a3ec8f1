"""A fabric's loop: how long it waits, what it calls in a turn, and what it leaves alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from softhca.runtime.fabric_loop import LONGEST_S, STEPS_A_TURN, FabricLoop

NEVER_NS = 1 << 62


class Due:
    """Something that is due at a time: a plane, a manager, or what else is timed."""

    def __init__(self, next_deadline_ns: int = NEVER_NS) -> None:
        self.next_deadline_ns = next_deadline_ns
        self.expired: list[int] = []

    def expire(self, now: int) -> None:
        self.expired.append(now)


class Managed:
    """Managers that have ``busy`` steps to do."""

    def __init__(self, *managers: Due) -> None:
        self.managers = managers
        self.now = 0
        self.busy = 0
        self.steps = 0
        self.ran: list[int] = []

    def step(self) -> bool:
        self.steps += 1
        self.busy -= 1
        return self.busy >= 0

    def run_until(self, when: int) -> None:
        self.ran.append(when)


class Bench:
    """A loop whose clock stands at ``now``; ``waits`` are the seconds of its polls."""

    def __init__(self, managed: Managed | None = None) -> None:
        self.now, self.waits = 1_000, list[float]()
        self.plane = Due()
        self.loop = FabricLoop(self.plane, lambda: self.now, managed)  # type: ignore[arg-type]
        self.real = self.loop._poll
        self.loop._poll = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def poll(self, seconds: float) -> list[tuple[int, int]]:
        self.waits.append(seconds)
        return self.real.poll(0)

    def wait(self, timeout_s: float | None = None) -> float:
        """What a turn waits for."""
        self.loop.turn(timeout_s)
        return self.waits[-1]


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.real.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for each in ends:
        os.close(each)


def test_a_turn_waits_for_what_is_due_first_and_no_longer_than_may_be(bench: Bench) -> None:
    assert bench.wait() == LONGEST_S
    assert bench.wait(0.5) == 0.5
    timed = Due(bench.now + 2_000_000_000)
    bench.loop.timed.append(timed)
    assert bench.wait() == 2
    bench.plane.next_deadline_ns = bench.now + 1_000_000_000
    assert bench.wait() == 1
    assert bench.wait(3) == 1
    timed.next_deadline_ns = bench.now - 5
    assert bench.wait() == 0
    assert timed.expired == [bench.now]


def test_a_turn_waits_for_the_fabric_s_managers() -> None:
    bench = Bench(Managed(Due(NEVER_NS), Due(1_000 + 4_000_000_000)))
    assert bench.wait() == 4
    bench.real.close()


def test_what_is_timed_is_called_when_its_time_has_come_and_flushes_at_each_end(bench: Bench) -> None:
    flushed: list[str] = []
    timed = [Due(bench.now - 1), Due(bench.now), Due(bench.now + 1)]
    bench.loop.timed += timed
    bench.loop.flushes += [lambda: flushed.append("one"), lambda: flushed.append("two")]
    bench.loop.turn(0)
    assert [each.expired for each in timed] == [[bench.now], [bench.now], []]
    assert flushed == ["one", "two"]
    assert bench.plane.expired == [bench.now]


def test_managers_that_are_busy_give_way_and_are_not_waited_for() -> None:
    managed = Managed(Due())
    bench = Bench(managed)
    managed.busy = STEPS_A_TURN
    bench.loop.turn()
    assert (managed.steps, managed.ran, managed.now) == (STEPS_A_TURN, [], 1_000)
    assert bench.wait() == 0  # there is more to do
    assert (managed.steps, managed.ran) == (STEPS_A_TURN + 1, [1_000])
    assert bench.wait() == LONGEST_S
    bench.now = 900
    bench.loop.turn()
    assert managed.now == 1_000  # time does not go back
    assert bench.plane.expired == []  # the managers' own loop does that
    managed.busy = 2
    bench.loop.turn()
    assert managed.ran[-1] == 900
    bench.real.close()


def test_who_is_readable_or_wants_to_write_is_called(bench: Bench, pipe: tuple[int, int]) -> None:
    reads, writes = pipe
    called: list[str] = []
    bench.loop.watch(reads, lambda: called.append("read"))
    bench.loop.watch(writes, lambda: called.append("read too"), lambda: called.append("write"))
    bench.loop.turn(0)
    assert called == []
    bench.loop.want(writes, False, True)
    bench.loop.turn(0)
    assert called == ["write"]
    bench.loop.want(writes, True, False)
    os.write(writes, b"x")
    bench.loop.turn(0)
    assert called == ["write", "read"]
    bench.loop.want(reads, False, False)
    bench.loop.turn(0)
    assert called == ["write", "read"]
    for _ in range(2):
        bench.loop.forget(reads)
        bench.loop.want(reads, True, False)
    bench.loop.turn(0)
    assert called == ["write", "read"]


def test_one_that_was_forgotten_meanwhile_is_not_called(bench: Bench) -> None:
    called: list[int] = []
    first, second = os.eventfd(1), os.eventfd(1)

    def come(one: int, other: int) -> None:
        called.append(one)
        bench.loop.forget(other)

    bench.loop.watch(first, lambda: come(first, second))
    bench.loop.watch(second, lambda: come(second, first))
    bench.loop.turn(0)
    assert len(called) == 1
    for each in (first, second):
        os.close(each)
    bench.loop.close()
    assert bench.real.closed
