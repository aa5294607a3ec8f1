"""Campaigns: many worlds over all cores or a cluster; a failure is two words that anyone can run again."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from softhca.simulation.minimise import Minimised, command_for
from softhca.simulation.runner import Outcome, run_world

CHUNK = 8
CHUNKS_A_PROCESS = 4

World = tuple[str, int, str]
"""Scenario, seed and the text of the faults."""
Chunk = tuple[World, ...]
Ran = list[tuple[Outcome, float]]
"""Outcomes of a chunk's worlds in their order, and how many seconds each took."""


class CampaignError(Exception):
    """A campaign that cannot go on for a reason outside its worlds; the message is one line."""


class Answer(Protocol):
    """A chunk that runs somewhere: waits for it, or raises what a world of it raised."""

    def result(self) -> Ran: ...


class Executor(Protocol):
    """Who runs chunks: ``in_flight`` at once are enough to keep it busy."""

    in_flight: int

    def submit(self, chunk: Chunk) -> Answer: ...


@dataclass(frozen=True, slots=True)
class Failure:
    """A world in which a rule was broken; ``command`` runs it again, ``minimised`` says what it needs."""

    scenario: str
    seed: int
    rules: tuple[str, ...]
    text: str
    command: str
    minimised: Minimised | None = None

    def document(self) -> dict[str, Any]:
        """The same as JSON values."""
        document = {name: getattr(self, name) for name in self.__slots__}
        return {**document, "minimised": self.minimised.document() if self.minimised is not None else None}


@dataclass(slots=True)
class Count:
    """Worlds of one scenario and their packets; ``wall_s`` is their time, added up over all processes."""

    worlds: int = 0
    packets: int = 0
    wall_s: float = field(default=0.0, compare=False)

    def document(self) -> dict[str, Any]:
        """The same as JSON values."""
        rate = round(self.packets / self.wall_s) if self.wall_s else 0
        wall_s = round(self.wall_s, 3)
        return {"worlds": self.worlds, "packets": self.packets, "wall_s": wall_s, "packets_per_s": rate}


@dataclass(slots=True)
class Tally:
    """What a campaign has found so far; equal to another when all but times is."""

    scenarios: dict[str, Count] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    wall_s: float = field(default=0.0, compare=False)

    @property
    def worlds(self) -> int:
        """How many worlds ran."""
        return sum(count.worlds for count in self.scenarios.values())

    @property
    def packets(self) -> int:
        """How many packets their adapters sent."""
        return sum(count.packets for count in self.scenarios.values())

    def add(self, outcome: Outcome, faults: str, wall_s: float) -> None:
        """One more world."""
        count = self.scenarios.setdefault(outcome.scenario, Count())
        count.worlds += 1
        count.packets += outcome.packets
        count.wall_s += wall_s
        if outcome.violations:
            rules = tuple(sorted({found.rule for found in outcome.violations}))
            command = command_for(outcome.scenario, outcome.seed, faults)
            text = str(outcome.violations[0])
            self.failures.append(Failure(outcome.scenario, outcome.seed, rules, text, command))

    def document(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            "worlds": self.worlds,
            "packets": self.packets,
            "wall_s": round(self.wall_s, 3),
            "scenarios": {name: count.document() for name, count in self.scenarios.items()},
            "violations": len(self.failures),
            "failures": [failure.document() for failure in self.failures],
        }


def run_campaign(
    scenarios: Sequence[str],
    seeds: Iterable[int],
    faults: str = "",
    executor: AbstractContextManager[Executor] | None = None,
    advance: Callable[[Tally], object] | None = None,
) -> Tally:
    """Run every scenario with every seed; the worlds' order and the counts do not depend on who runs them.

    ``executor``: see `Local` and `cluster.Cluster`; without one all runs in this process.  Stops at the first
    world in which a rule is broken.  ``advance`` is told after each world.  A world that raises ends the
    campaign with that error.  CampaignError.
    """
    tally, begun_s = Tally(), time.perf_counter()
    worlds = ((name, seed, faults) for seed in seeds for name in scenarios)
    with contextlib.closing(_outcomes(worlds, executor)) as outcomes:
        for outcome, wall_s in outcomes:
            tally.add(outcome, faults, wall_s)
            tally.wall_s = time.perf_counter() - begun_s
            if advance is not None:
                advance(tally)
            if outcome.violations:
                break
    return tally


def _outcomes(
    worlds: Iterator[World], executor: AbstractContextManager[Executor] | None
) -> Generator[tuple[Outcome, float], None, None]:
    """The outcomes in the order of the worlds, with never more than ``in_flight`` chunks on their way."""
    if executor is None:
        for world in worlds:
            yield from run_chunk((world,))
        return
    with executor as runs:
        waiting: deque[Answer] = deque()
        while chunk := tuple(itertools.islice(worlds, CHUNK)):
            waiting.append(runs.submit(chunk))
            if len(waiting) >= runs.in_flight:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


_one_at_a_time = threading.Lock()


def run_chunk(chunk: Chunk) -> Ran:
    """Run these worlds, one at a time in this process whatever threads it has."""
    ran = []
    with _one_at_a_time:
        for world in chunk:
            begun_s = time.perf_counter()
            outcome = run_world(*world)
            ran.append((outcome, time.perf_counter() - begun_s))
    return ran


class Local:
    """Runs chunks on ``processes`` of this machine (0: one a core); leaving it drops what has not begun."""

    def __init__(self, processes: int = 0) -> None:
        self._processes = processes or os.cpu_count() or 1
        self.in_flight = CHUNKS_A_PROCESS * self._processes
        self._pool: concurrent.futures.ProcessPoolExecutor

    def __enter__(self) -> Local:
        # a fresh interpreter each: nothing of this process (threads, open devices) is inherited
        self._pool = concurrent.futures.ProcessPoolExecutor(
            self._processes, multiprocessing.get_context("spawn"), _leave_interrupts_to_the_parent
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def submit(self, chunk: Chunk) -> Answer:
        """Run a chunk as soon as a process is free."""
        try:
            return _LocalAnswer(self._pool.submit(run_chunk, chunk))
        except BrokenProcessPool:
            raise CampaignError(LOST_PROCESS) from None


LOST_PROCESS = "a process that ran worlds was killed or died"


@dataclass(frozen=True, slots=True)
class _LocalAnswer:
    future: concurrent.futures.Future[Ran]

    def result(self) -> Ran:
        try:
            return self.future.result()
        except BrokenProcessPool:
            raise CampaignError(LOST_PROCESS) from None


def _leave_interrupts_to_the_parent() -> None:
    """The terminal's interrupt reaches every process; the parent ends the others in order."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
