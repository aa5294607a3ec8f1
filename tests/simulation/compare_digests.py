"""Digests of worlds in two trees: what a change of the source changes in packets and traces.

``python tests/simulation/compare_digests.py OLD NEW [--seeds 1..50] [--scenario NAME …]`` runs every scenario
that both trees have with every seed.  OLD and NEW are folders that hold the package ``softhca`` (``src`` of a
checkout, interpreted, or a folder that a build has filled, compiled).  It prints a line for each scenario
whose digests differ, with the seeds, then a sum; a violation in either tree is printed too.  ``--print TREE``
prints the digests of one tree, a line a world: scenario, seed, digest, violations.  Exit status: 0 equal,
1 different or a violation.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

WORLDS = """
import sys
from softhca.simulation.runner import run_world
from softhca.simulation.scenarios import QUICK
first, last, *names = sys.argv[1:]
for name in names or QUICK:
    for seed in range(int(first), int(last) + 1) if name in QUICK else ():
        outcome = run_world(name, seed)
        print(name, seed, outcome.digest, len(outcome.violations), flush=True)
"""


@dataclass(frozen=True)
class World:
    """One line: ``violations`` counts broken rules."""

    scenario: str
    seed: int
    digest: str
    violations: int


def worlds_of(tree: Path, first: int, last: int, scenarios: Sequence[str]) -> Iterator[World]:
    """The worlds of a tree, run in a process of their own; CalledProcessError when one raises."""
    command = [sys.executable, "-c", WORLDS, str(first), str(last), *scenarios]
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve())}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            scenario, seed, digest, violations = line.split()
            yield World(scenario, int(seed), digest, int(violations))
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command[0])


def compare(old: Iterator[World], new: Iterator[World]) -> tuple[list[str], int, int]:
    """Lines about what differs, how many worlds both have, and how many of them are equal."""
    before = {(world.scenario, world.seed): world for world in old}
    lines, differing, common = [], dict[str, list[int]](), 0
    for world in (*before.values(), *(after := list(new))):
        if world.violations:
            lines.append(f"{world.scenario} {world.seed}: {world.violations} violations")
    for world in after:
        if (earlier := before.get((world.scenario, world.seed))) is None:
            continue
        common += 1
        if earlier.digest != world.digest:
            differing.setdefault(world.scenario, []).append(world.seed)
    for name, seeds in differing.items():
        lines.append(f"{name}: {len(seeds)} differ: {' '.join(map(str, seeds))}")
    only = {world.scenario for world in before.values()} ^ {world.scenario for world in after}
    lines += [f"{name}: in one tree only" for name in sorted(only)]
    return lines, common, common - sum(map(len, differing.values()))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("trees", nargs="*", type=Path, metavar="TREE", help="the old one and the new one")
    parser.add_argument("--print", type=Path, metavar="TREE", help="the digests of one tree")
    parser.add_argument("--seeds", default="1..50", metavar="FIRST..LAST")
    parser.add_argument("--scenario", nargs="+", default=[], metavar="NAME", help="only these (all)")
    options = parser.parse_args()
    first, last = (int(end) for end in options.seeds.split(".."))
    if options.print:
        for world in worlds_of(options.print, first, last, options.scenario):
            print(world.scenario, world.seed, world.digest, world.violations, flush=True)
        return 0
    if len(options.trees) != 2:
        parser.error("two trees are compared")
    old, new = (worlds_of(tree, first, last, options.scenario) for tree in options.trees)
    lines, common, equal = compare(old, new)
    print(*lines, f"{equal} of {common} worlds have the same digest", sep="\n")
    return 0 if equal == common and not lines else 1


if __name__ == "__main__":
    sys.exit(main())
