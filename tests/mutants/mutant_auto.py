"""Mutants made by rule: tried in the tests of all packages and in worlds, and counted per module."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mutant_edits import Mutant, MutantError, Source
from mutant_equivalents import reason
from mutant_swap import function_at
from mutant_trials import BROKEN, EQUIVALENT, FOUND, STOPPED, Result

PROGRAM = Path(__file__).with_name("mutant_packages.py")
PACKAGES = ("wire", "memory", "queues", "transport", "adapter", "driver", "replay")
POLL_S = 0.2


class SessionHangs(MutantError):
    """The tests of one mutant take longer than they may."""


class Auto:
    """Runs mutants made by rule; arguments as for a Laboratory; ``folders``: folders of tests."""

    def __init__(
        self, source: Source, first: int, last: int, limit_s: float, jobs: int,
        scenarios: Sequence[str] = (), folders: Sequence[str] = PACKAGES,
    ) -> None:  # fmt: skip
        self.source = source
        self.limit_s = limit_s
        self.recorded = source.folder / "recorded"
        self.fixed = {
            "first": first, "last": last, "scenarios": list(scenarios), "folders": list(folders),
            "jobs": jobs,
            "limit_s": limit_s, "recorded": str(self.recorded),
        }  # fmt: skip
        self.tests_left_out: list[str] = []

    def run(self, mutants: list[Mutant], report: Callable[[Result], object]) -> list[Result]:
        """All of them; ``report`` is told of each as it ends.  MutantError when the original fails."""
        results = [self._prepared(mutant) for mutant in mutants]
        for result in results:
            if result.verdict == BROKEN:
                report(result)
        numbers = [i for i, result in enumerate(results) if not result.verdict]
        again: list[int] = []

        def told(answer: dict[str, Any]) -> None:
            number = numbers[answer["number"]]
            if answer["verdict"] == "import":
                again.append(number)
                return
            _fill(results[number], answer)
            report(results[number])

        edits = [_words(mutants[i], results[i]) for i in numbers]
        self._session(self.source.original, edits, False, told)
        for number in again:
            self._alone(mutants[number], results[number])
            report(results[number])
        return results

    def _prepared(self, mutant: Mutant) -> Result:
        edit = mutant.edits[0]
        result = Result(mutant.name, edit.file, 0, mutant.why, mutant.rule, "")
        try:
            self.source.changed(mutant)
        except MutantError as error:
            result.verdict, result.text = BROKEN, str(error)
            return result
        text = self.source.text(edit.file)
        result.line = edit.place(text)
        result.text = reason(edit.file, function_at(text, result.line), mutant.why)
        if result.text:
            result.verdict = EQUIVALENT
        return result

    def _alone(self, mutant: Mutant, result: Result) -> None:
        """A mutant of what runs at import needs a copy and a process of its own."""
        copy = self.source.copy(mutant, "alone")
        try:
            self._session(copy, [_words(mutant, result)], True, lambda answer: _fill(result, answer))
        except SessionHangs:  # the machine may be slow: nobody has found anything
            _fill(result, {"verdict": STOPPED})
        except MutantError as error:
            _fill(result, {"verdict": FOUND, "rule": "does not load", "stage": "tests", "at": str(error)})
        finally:
            shutil.rmtree(copy)

    def _session(
        self, home: Path, edits: list[list[Any]], applied: bool, told: Callable[[dict[str, Any]], object]
    ) -> None:
        """One process that tries them all; MutantError when it ends before."""
        if not edits:
            return
        request, answers = self.source.folder / "request", self.source.folder / "answers"
        request.write_text(json.dumps({"edits": edits, "applied": applied, **self.fixed}))
        answers.write_text("")
        environment = {**os.environ, "PYTHONPATH": str(home), "PYTHONHASHSEED": "0"}
        environment.pop("SOFTHCA_EXPECT", None)  # all inputs, also those that one of two runs leaves out
        log = self.source.folder / "log"
        with log.open("w") as output, answers.open() as lines:
            process = subprocess.Popen(
                [sys.executable, "-P", str(PROGRAM), str(request), str(answers)],
                env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
            left = len(edits)
            start, pending = time.monotonic(), ""
            try:
                while left:
                    ended = process.poll() is not None
                    pending += lines.read()
                    *whole, pending = pending.split("\n")
                    for line in whole:
                        answer = json.loads(line)
                        if "left_out" in answer:
                            self.tests_left_out = answer["left_out"]
                            continue
                        told(answer)
                        left -= 1
                    if left and ended and not whole:
                        raise MutantError(f"the session ended: {log.read_text().strip()[-800:]}")
                    if left and applied and time.monotonic() - start > 60 + 5 * self.limit_s:
                        raise SessionHangs("the session hangs")
                    time.sleep(0 if ended else POLL_S)
            finally:
                process.terminate()
                process.wait()


def _words(mutant: Mutant, result: Result) -> list[Any]:
    edit = mutant.edits[0]
    return [edit.file, edit.find, edit.replace, result.line]


def _fill(result: Result, answer: dict[str, Any]) -> None:
    result.verdict = answer.get("verdict", BROKEN)
    result.rule = answer.get("rule", "")
    result.text = answer.get("error", "")
    result.by = answer.get("stage", "") if result.verdict == FOUND else ""
    if result.by == "worlds":
        result.scenario, _, seed = answer["at"].rpartition(" ")
        result.seed = int(seed)
    elif result.by:
        result.scenario = answer["at"]
    result.tests = answer.get("tests", 0)
    result.worlds = answer.get("worlds", 0)
    result.seconds = answer.get("seconds", 0.0)
