"""Run worlds with the ``softhca`` that ``PYTHONPATH`` names, until the first that breaks a rule.

A program of its own, for what runs here may hang, crash or eat the memory:
``python mutant_worlds.py PROGRESS_FILE CPU_SECONDS campaign FIRST LAST [SCENARIO …]``, or
``… worlds SCENARIO:SEED …``.
Prints one JSON object.  The world that is under way stands in the progress file; one that takes more
CPU time than allowed ends the process by SIGPROF.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import pkgutil
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

MEMORY_BYTES = 2 << 30
RECORD_BYTES = 80
PACKAGES = ("wire", "memory", "queues", "transport", "adapter", "driver")


def confirm() -> None:
    """The package under test is the one meant, all of it loads, and nothing of it is compiled."""
    import softhca

    for name in PACKAGES:
        package = importlib.import_module(f"softhca.{name}")
        for found in pkgutil.iter_modules(package.__path__, f"softhca.{name}."):
            importlib.import_module(found.name)
    home = Path(os.environ["PYTHONPATH"].split(os.pathsep)[0])
    modules = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "softhca"}
    for name, module in modules.items():
        place = Path(module.__file__ or softhca.__file__)
        if home not in place.parents or place.suffix != ".py":
            raise ImportError(f"{name} came from {place}")


def worlds_of(words: list[str]) -> Iterator[tuple[str, int]]:
    """The worlds asked for; a campaign's in its own order."""
    from softhca.simulation.scenarios import QUICK

    if words[0] == "campaign":
        seeds = range(int(words[1]), int(words[2]) + 1)
        yield from ((name, seed) for seed, name in itertools.product(seeds, words[3:] or QUICK))
        return
    for word in words[1:]:
        name, _, seed = word.rpartition(":")
        yield name, int(seed)


def run(worlds: Iterable[tuple[str, int]], progress: int, cpu_s: float) -> dict[str, Any]:
    """Run them; what was found and how much it took."""
    from softhca.simulation.runner import run_world

    confirm()
    parent = os.getppid()
    done = packets = 0
    for name, seed in worlds:
        if os.getppid() != parent:
            sys.exit("who asked for this is gone")
        os.pwrite(progress, f"{name} {seed} {done} {packets}".ljust(RECORD_BYTES).encode(), 0)
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        try:
            outcome = run_world(name, seed)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(frame.filename).parent.name}/{Path(frame.filename).name}:{frame.lineno}"
            text = f"{type(error).__name__}: {error} ({place})"
            return {
                "worlds": done + 1, "packets": packets, "scenario": name, "seed": seed,
                "rule": f"exception {type(error).__name__}", "text": text,
            }  # fmt: skip
        done += 1
        packets += outcome.packets
        if outcome.violations:
            first = outcome.violations[0]
            return {
                "worlds": done, "packets": packets, "scenario": name, "seed": seed,
                "rule": first.rule, "rules": sorted({found.rule for found in outcome.violations}),
                "text": str(first),
            }  # fmt: skip
    return {"worlds": done, "packets": packets}


def main(words: list[str]) -> None:
    """See above."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    progress = os.open(words[0], os.O_WRONLY | os.O_CREAT)
    try:
        found = run(worlds_of(words[2:]), progress, float(words[1]))
    except ImportError as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps({**found, "seconds": round(time.process_time(), 1)}))


if __name__ == "__main__":
    main(sys.argv[1:])
