"""Campaigns: many worlds over all cores; a failure is a scenario and a seed that anyone can run again."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from softhca.simulation.runner import Outcome, run_world

CHUNK = 8


@dataclass(frozen=True, slots=True)
class Failure:
    """A world in which a rule was broken; ``command`` runs it again."""

    scenario: str
    seed: int
    rules: tuple[str, ...]
    text: str
    command: str


@dataclass(slots=True)
class Tally:
    """What a campaign has found so far."""

    worlds: dict[str, int] = field(default_factory=dict)
    packets: int = 0
    failures: list[Failure] = field(default_factory=list)

    def add(self, outcome: Outcome, faults: str) -> None:
        """One more world."""
        self.worlds[outcome.scenario] = self.worlds.get(outcome.scenario, 0) + 1
        self.packets += outcome.packets
        if outcome.violations:
            rules = tuple(sorted({found.rule for found in outcome.violations}))
            command = command_for(outcome.scenario, outcome.seed, faults)
            text = str(outcome.violations[0])
            self.failures.append(Failure(outcome.scenario, outcome.seed, rules, text, command))

    def document(self) -> dict[str, Any]:
        """The same as JSON values."""
        names = Failure.__slots__
        return {
            "worlds": sum(self.worlds.values()),
            "scenarios": self.worlds,
            "packets": self.packets,
            "violations": len(self.failures),
            "failures": [{name: getattr(failure, name) for name in names} for failure in self.failures],
        }


def command_for(scenario: str, seed: int, faults: str) -> str:
    """The command that runs one world again."""
    words = ["softhca", "simulate", "--scenario", scenario, "--seed", str(seed)]
    return shlex.join([*words, "--faults", faults] if faults else words)


def run_campaign(
    scenarios: Sequence[str],
    seeds: Iterable[int],
    faults: str = "",
    jobs: int = 0,
    advance: Callable[[int], object] = int,
) -> Tally:
    """Run every scenario with every seed on ``jobs`` processes (0: one a core; 1: in this one).

    Stops at the first world in which a rule is broken.  ``advance`` is told how many worlds are done.  A
    world that raises ends the campaign with that error.
    """
    tally = Tally()
    worlds = ((name, seed, faults) for seed in seeds for name in scenarios)
    for done, outcome in enumerate(_outcomes(worlds, jobs or os.cpu_count() or 1), 1):
        tally.add(outcome, faults)
        advance(done)
        if outcome.violations:
            break
    return tally


def _outcomes(worlds: Iterator[tuple[str, int, str]], jobs: int) -> Iterator[Outcome]:
    """The outcomes in the order of the worlds, whoever ran them: counts do not depend on ``jobs``."""
    if jobs == 1:
        yield from itertools.starmap(run_world, worlds)
        return
    # a fresh interpreter each: nothing of this process (threads, open devices) is inherited
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(_run, worlds, CHUNK)


def _run(world: tuple[str, int, str]) -> Outcome:
    return run_world(*world)
