"""Trials: a mutant's copy runs worlds in a process of its own until something is wrong with one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mutant_edits import Mutant, MutantError, Source

PROGRAM = Path(__file__).with_name("mutant_worlds.py")
WORLD_CPU_S = 10.0
FOUND, SURVIVED, STOPPED, BROKEN = "found", "survived", "stopped", "broken"
EQUIVALENT = "equivalent"


@dataclass
class Result:
    """What became of a mutant.

    ``verdict``: FOUND; SURVIVED, all worlds; STOPPED, by the time limit; EQUIVALENT, not run; BROKEN, it
    cannot be judged (its text is gone, or the package does not load).  ``rule`` in ``scenario`` with ``seed``
    is what found it.  Mutants by rule: ``by`` is "tests" or "worlds"; a test stands in ``scenario``.
    """

    name: str
    file: str
    line: int
    why: str
    expected: str
    verdict: str
    rule: str = ""
    scenario: str = ""
    seed: int = 0
    text: str = ""
    worlds: int = 0
    packets: int = 0
    seconds: float = 0.0
    by: str = ""
    tests: int = 0

    @property
    def found_by(self) -> str:
        """Scenario, seed and rule in one."""
        if self.verdict != FOUND:
            return self.verdict if self.verdict != BROKEN else f"broken: {self.text}"
        if self.by == "tests":
            return f"{self.scenario}: {self.rule}"
        return f"{self.scenario} {self.seed}: {self.rule}"

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


class Laboratory:
    """Makes copies and runs them.  ``first`` … ``last`` are the seeds, ``limit_s`` bounds a mutant's time
    (0: it does not), ``jobs`` are run at a time; ``scenarios``: only these.
    """

    def __init__(
        self, source: Source, first: int, last: int, limit_s: float, jobs: int, scenarios: Sequence[str] = ()
    ) -> None:
        self.source = source
        self.first = first
        self.last = last
        self.limit_s = limit_s
        self.jobs = jobs
        self.scenarios = scenarios

    def control(self, worlds: Iterable[tuple[str, int]] = ()) -> dict[str, Any]:
        """The unchanged copy in the worlds named, or else three seeds of all; MutantError when it fails."""
        named = [f"{scenario}:{seed}" for scenario, seed in worlds]
        words = ["worlds", *named] if named else ["campaign", "1", "3", *self.scenarios]
        found = self._trial(self.source.original, words, 0)
        if "rule" in found or "error" in found or "stopped" in found:
            raise MutantError(f"the unchanged source fails: {found}")
        return found

    def run(self, mutants: list[Mutant], report: Callable[[Result], object]) -> list[Result]:
        """All of them; ``report`` is told of each as it ends."""

        def one(numbered: tuple[int, Mutant]) -> Result:
            result = self.judge(numbered[1], f"mutant{numbered[0]}")
            report(result)
            return result

        with ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(one, enumerate(mutants)))

    def judge(self, mutant: Mutant, folder: str) -> Result:
        """Run one mutant."""
        result = Result(mutant.name, mutant.files, 0, mutant.why, mutant.rule, BROKEN)
        try:
            edit = mutant.edits[0]
            copy = self.source.copy(mutant, folder)
            result.line = edit.place(self.source.text(edit.file))
        except MutantError as error:
            result.text = str(error)
            return result
        try:
            words = ["campaign", str(self.first), str(self.last), *self.scenarios]
            found = self._trial(copy, words, self.limit_s)
        finally:
            shutil.rmtree(copy)
        if "error" in found:
            result.text = found["error"]
        elif "rule" in found:
            result.verdict = FOUND
        else:
            result.verdict = STOPPED if "stopped" in found else SURVIVED
        for name in ("rule", "scenario", "seed", "text", "worlds", "packets", "seconds"):
            setattr(result, name, found.get(name, getattr(result, name)))
        return result

    def _trial(self, copy: Path, words: list[str], limit_s: float) -> dict[str, Any]:
        """One process; its JSON object, or the same made from how it ended."""
        progress = copy.with_suffix(".progress")
        progress.unlink(missing_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONHASHSEED": "0"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-P", str(PROGRAM), str(progress), str(WORLD_CPU_S), *words]
        start = time.monotonic()
        try:
            ended = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False,
                timeout=limit_s or None,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            found = {**_under_way(progress), "stopped": True}
            del found["scenario"], found["seed"]
        else:
            found = _verdict(ended, progress)
        found.setdefault("seconds", round(time.monotonic() - start, 1))
        return found


def _under_way(progress: Path) -> dict[str, Any]:
    """What the progress file says."""
    words = progress.read_text().split() if progress.exists() else []
    if len(words) != 4:
        return {"scenario": "", "seed": 0, "worlds": 0, "packets": 0}
    return {"scenario": words[0], "seed": int(words[1]), "worlds": int(words[2]), "packets": int(words[3])}


def _verdict(ended: subprocess.CompletedProcess[str], progress: Path) -> dict[str, Any]:
    """What a process that ended has found."""
    if ended.returncode == 0 and ended.stdout:
        answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
        return answer
    found = _under_way(progress)
    if not found["scenario"]:
        lines = ended.stderr.strip().splitlines() or [f"status {ended.returncode}"]
        return {"error": lines[-1]}
    found["worlds"] += 1
    if ended.returncode == -signal.SIGPROF:
        found.update(rule="hang", text=f"more than {WORLD_CPU_S:.0f} s of CPU time for one world")
    elif ended.returncode < 0:
        name = signal.Signals(-ended.returncode).name
        found.update(rule=f"crash {name}", text=f"the process ended by {name}")
    else:
        last = (ended.stderr.strip().splitlines() or [""])[-1]
        found.update(rule="crash", text=f"the process ended with status {ended.returncode}: {last}")
    return found
