"""Try mutants in the packages' own tests and in worlds, each in a fork of a process that has all loaded.

A program of its own, whose ``PYTHONPATH`` names the package: ``python mutant_packages.py REQUEST ANSWERS``.
REQUEST is a JSON file (see Request), ANSWERS a file to which one JSON line is added for each mutant.

First every test and every world runs once, traced: a mutant then runs what executes its line, tests first,
quick ones first.  A test that fails by itself, or is skipped, is left out.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from mutant_edits import Edit
from mutant_swap import Loaded, SwapError, code_lines
from mutant_tracing import Lines, Tracer, mask

MEMORY_BYTES = 2 << 30
HANG_CPU_S = 2.0
HANG_FACTOR = 10
"""A test or world hangs when it takes more than this many times its own time, and HANG_CPU_S, of CPU time."""
STILL_S = 180.0
"""… or when nothing went on for so long."""
TESTS = Path(__file__).resolve().parents[1]


@dataclass
class Request:
    """What to do.  ``edits``: per mutant the words of an Edit.  ``applied``: the package is that mutant
    already.  ``recorded``: file of what the original executes; made when it is not there.  ``limit_s``
    bounds the CPU time of a mutant's tests, and again that of its worlds.
    """

    edits: list[list[Any]]
    folders: list[str]
    first: int
    last: int
    scenarios: list[str]
    jobs: int
    limit_s: float
    recorded: str
    applied: bool = False

    def files(self) -> set[str]:
        """The files that are changed."""
        return {str(words[0]) for words in self.edits}


@dataclass
class Recorded:
    """What the original does.  Keys are tests' ids and "SCENARIO SEED"; seconds are of the traced run."""

    imports: Lines = field(default_factory=dict)
    lines: dict[str, Lines] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def concerned(self, names: list[str], file: str, lines: int) -> list[str]:
        """Those that execute one of these lines: the quickest of each file of tests, then their next ones."""
        found = [name for name in names if lines & self.lines[name].get(file, 0)]
        rank: dict[str, int] = {}
        seen: dict[str, int] = {}
        for name in sorted(found, key=lambda name: (self.seconds[name], name)):
            place = name.split("::")[0].split(" ")[0]
            rank[name] = seen[place] = seen.get(place, -1) + 1
        return sorted(found, key=lambda name: (rank[name], self.seconds[name], name))


class Child:
    """A fork that is at work."""

    def __init__(self, number: int, work: Callable[[int], None]) -> None:
        self.number = number
        self.start = time.monotonic()
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child
        self.pid = os.fork()
        if not self.pid:
            self._run(work)
        self.descriptor = os.pidfd_open(self.pid)

    def _run(self, work: Callable[[int], None]) -> None:
        status = 1
        try:
            os.setpgid(0, 0)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            work(self.file.fileno())
            status = 0
        except BaseException:
            say(self.file.fileno(), error=traceback.format_exc())
        finally:
            os._exit(status)

    def said(self) -> dict[str, Any]:
        """The last thing that it said."""
        text = os.pread(self.file.fileno(), 1 << 16, 0).split(b"\n")[0]
        answer: dict[str, Any] = json.loads(text) if text else {}
        return answer

    def still(self) -> bool:
        """It said nothing for long."""
        return time.time() - os.fstat(self.file.fileno()).st_mtime > STILL_S

    def end(self) -> dict[str, Any]:
        """Its last words and, where it was killed, the signal."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except OSError:
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        os.close(self.descriptor)
        answer = self.said()
        if os.WIFSIGNALED(status) and "verdict" not in answer:
            sent = os.WTERMSIG(status)
            how = "hang" if sent in (signal.SIGPROF, signal.SIGKILL) else f"crash {signal.Signals(sent).name}"
            answer = {**answer, "verdict": "found", "rule": how}
        self.file.close()
        answer["seconds"] = round(time.monotonic() - self.start, 1)
        return answer


def say(descriptor: int, **what: Any) -> None:
    """One JSON line, in the place of the last one."""
    data = json.dumps(what).encode() + b"\n"
    os.pwrite(descriptor, data, 0)


class Plugin:
    """The pytest plugin that does it all, once the tests are collected."""

    def __init__(self, request: Request, answers: Path) -> None:
        import softhca

        self.request = request
        self.answers = answers
        self.home = Path(softhca.__file__).parent
        self.recorded = Recorded()
        self.failed = ""
        self.outcomes: set[str] = set()
        self.finders: dict[str, list[str]] = {}
        """By file, the tests that found a mutant of it, the last first: they find its neighbours, too."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self) -> None:
        """Examples of properties are drawn without luck, and failures are not made small."""
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", derandomize=True, database=None, deadline=None, phases=phases)
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember what failed."""
        self.outcomes.add(report.outcome)
        if report.failed and not self.failed:
            self.failed = f"{report.nodeid} ({report.when})"

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In the place of pytest's own loop."""
        self.items = {item.nodeid: item for item in session.items}
        self.loaded = Loaded(self.home)
        gc.collect()
        gc.freeze()
        place = Path(self.request.recorded)
        if not place.exists():
            child = Child(0, lambda descriptor: self.record(session, descriptor, place))
            try:
                select.select([child.descriptor], [], [])
            finally:
                said = child.end()
            if "error" in said or not place.exists():
                raise RuntimeError(f"the recording ended: {said}")
        self.recorded = pickle.loads(place.read_bytes())
        self.answer({"recorded": len(self.recorded.lines), "left_out": self.recorded.left_out})
        self.try_all()
        return True

    def answer(self, what: dict[str, Any]) -> None:
        """One line for who asked."""
        with self.answers.open("a") as file:
            file.write(json.dumps(what) + "\n")

    def try_all(self) -> None:
        """All mutants, so many at a time as was asked for."""
        waiting = list(range(len(self.request.edits)))
        children: list[Child] = []
        try:
            while waiting or children:
                while waiting and len(children) < self.request.jobs:
                    number = waiting.pop(0)
                    children.append(Child(number, lambda descriptor, n=number: self.judge(n, descriptor)))
                ended, _, _ = select.select([child.descriptor for child in children], [], [], 1.0)
                for child in [one for one in children if one.descriptor in ended or one.still()]:
                    children.remove(child)
                    answer = child.end()
                    self.remember(child.number, answer)
                    self.answer({"number": child.number, **answer})
        finally:  # who asked wants no more
            for child in children:
                child.end()

    def remember(self, number: int, answer: dict[str, Any]) -> None:
        """The test that found a mutant comes first for the next ones of that file."""
        name = answer.get("at", "")
        if answer.get("verdict") == "found" and name in self.items:
            finders = self.finders.setdefault(str(self.request.edits[number][0]), [])
            if name in finders:
                finders.remove(name)
            finders.insert(0, name)

    # in forks

    def run_test(self, name: str) -> bool:
        """Whether it fails."""
        self.failed, self.outcomes = "", set()
        item = self.items[name]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        gc.collect()  # adapters' memory, before it counts against the limit
        return bool(self.failed)

    def record(self, session: pytest.Session, descriptor: int, place: Path) -> None:
        """Run the original, traced."""
        from softhca.simulation.runner import run_world

        recorded, tracer = Recorded(imports=IMPORTS), Tracer(self.home, self.request.files())
        for name in self.items:
            say(descriptor, at=name)
            start = time.process_time()
            tracer.start()
            self.run_test(name)
            lines = tracer.stop()
            if self.outcomes == {"passed"}:
                recorded.lines[name] = lines
                recorded.seconds[name] = time.process_time() - start
            else:
                recorded.left_out.append(name)
        for name, seed in self.worlds():
            say(descriptor, at=f"{name} {seed}")
            start = time.process_time()
            tracer.start()
            outcome = run_world(name, seed)
            lines = tracer.stop()
            if outcome.violations:
                raise RuntimeError(f"the unchanged source fails: {name} {seed}: {outcome.violations[0]}")
            recorded.lines[f"{name} {seed}"] = lines
            recorded.seconds[f"{name} {seed}"] = time.process_time() - start
        place.write_bytes(pickle.dumps(recorded))

    def worlds(self) -> list[tuple[str, int]]:
        """All that were asked for."""
        from softhca.simulation.scenarios import QUICK

        seeds = range(self.request.first, self.request.last + 1)
        return [(name, seed) for name in self.request.scenarios or QUICK for seed in seeds]

    def judge(self, number: int, descriptor: int) -> None:
        """One mutant."""
        edit = Edit(*self.request.edits[number])
        text = (self.home / edit.file).read_text()
        lines = set(range(edit.line, edit.line + max(1, len(edit.find.splitlines()))))
        if not self.request.applied:
            executable = code_lines(compile(text, edit.file, "exec"))
            first = max((line for line in executable if line <= edit.line), default=edit.line)
            runs = mask(lines & executable or {first})
            if runs & self.recorded.imports.get(edit.file, 0):
                say(descriptor, verdict="import", at="")
                return
            try:
                self.loaded.swap(edit.file, edit.apply(text), edit.line)
            except SwapError as error:
                say(descriptor, verdict="import", at="", text=str(error))
                return
        tests = [name for name in self.recorded.lines if name in self.items]
        worlds = [f"{name} {seed}" for name, seed in self.worlds()]
        if not self.request.applied:  # what it did at import may concern all
            tests = self.recorded.concerned(tests, edit.file, runs)
            worlds = self.recorded.concerned(worlds, edit.file, runs)
        own = f"tests/{edit.file.split('/')[0]}/"
        finders = {name: place for place, name in enumerate(self.finders.get(edit.file, []))}
        tests.sort(key=lambda name: (finders.get(name, len(finders)), not name.startswith(own)))
        done: dict[str, Any] = {"tests": 0, "worlds": 0}
        stages = [("tests", tests, self.try_test), ("worlds", worlds, self.try_world)]
        stopped = False
        for stage, names, attempt in stages:
            start = time.process_time()
            for name in names:
                if time.process_time() - start > self.request.limit_s:
                    stopped = True
                    break
                done[stage] += 1
                say(descriptor, at=name, stage=stage, **done)
                hang_s = HANG_CPU_S + HANG_FACTOR * self.recorded.seconds[name]
                signal.setitimer(signal.ITIMER_PROF, hang_s)
                rule = attempt(name)
                signal.setitimer(signal.ITIMER_PROF, 0)
                if rule:
                    say(descriptor, at=name, stage=stage, verdict="found", rule=rule, **done)
                    return
        say(descriptor, at="", verdict="stopped" if stopped else "survived", **done)

    def try_test(self, name: str) -> str:
        """What is wrong, or ""."""
        return "test fails" if self.run_test(name) else ""

    def try_world(self, name: str) -> str:
        """What is wrong, or ""."""
        from softhca.simulation.runner import run_world

        scenario, _, seed = name.rpartition(" ")
        try:
            outcome = run_world(scenario, int(seed))
        except Exception as error:
            return f"exception {type(error).__name__}"
        return outcome.violations[0].rule if outcome.violations else ""


IMPORTS: Lines = {}


def main(words: list[str]) -> int:
    """See above."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    home = Path(os.environ["PYTHONPATH"].split(os.pathsep)[0]) / "softhca"
    request = Request(**json.loads(Path(words[0]).read_text()))
    tracer = Tracer(home, request.files())
    tracer.start()
    import mutant_worlds

    mutant_worlds.confirm()
    import softhca.simulation.runner  # noqa: F401

    IMPORTS.update(tracer.stop())
    folders = [f"tests/{folder}" for folder in request.folders]
    os.chdir(TESTS.parent)
    options = ["-q", "--tb=no", "-c", "pyproject.toml", "--rootdir", "."]
    return pytest.main([*options, *folders], plugins=[Plugin(request, Path(words[1]))])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
