"""Bugs of the same-host path (docs/same-host.md).  No world has that path, so tests judge these mutants."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mutant_edits import Mutant, MutantError, Source
from mutant_edits import mutant as m
from mutant_trials import BROKEN, FOUND, SURVIVED, Result

PROJECT = Path(__file__).resolve().parents[2]
TESTS = (
    "memory/test_shared_directory.py",
    "runtime/test_runtime_same_host_ring.py",
    "runtime/test_runtime_same_host_costs.py",
    "runtime/test_runtime_same_host.py",
    "runtime/test_runtime_same_host_unasked.py",
)
TEST_LIMIT_S = 60
RUN_LIMIT_S = 600
FAILED = re.compile(r"^(?:FAILED|ERROR) (?:tests/)?(\S+)(?: - (.*))?$", re.MULTILINE)

PATH = "memory/shared_path.py"
DIRECTORY = "memory/shared_directory.py"
EXECUTOR = "transport/same_host.py"
SHARING = "transport/same_host_sharing.py"
NEIGHBOURS = "runtime/same_host.py"
LANE_RING = "runtime/same_host_ring.py"

NEAR = (
    m("near-key-asked-once", PATH, "if (self.known_turn != self.turn or self.known_key != key) and not", "if self.known_turn != self.turn and not",
      "inside a lane the first request's key is good for all"),
    m("near-key-outlives-the-lane", PATH, "if (self.known_turn != self.turn or self.known_key != key) and not", "if self.known_key != key and not",
      "a key that was looked up is good for ever"),
    m("near-domain-not-checked", PATH, "if self.known_rights >> 32 != pd or self.known_rights", "if self.known_rights",
      "a region of another protection domain is reached"),
    m("near-range-not-checked-from-its-place", PATH, "n > self.known_length - offset:", "n > self.known_length:",
      "what begins inside a region may end outside"),
    m("near-queue-pair-of-anybody", PATH, "                    and load64(entry + 24) == own\n", "",
      "another queue pair than the peer's is served"),
    m("near-queue-pair-s-rights-ignored", EXECUTOR, "if not self.allowed & right:", "if not self.allowed:",
      "a region's rights are enough, whatever the queue pair gives"),
    m("near-completes-before-the-copy", EXECUTOR, "            done += piece\n", "            done = n\n",
      "a request completes when its first piece is copied"),
    m("near-read-writes", EXECUTOR, "        if request.kind == _READ:\n            result = read_process", "        if False:\n            result = read_process",
      "an RDMA READ of a process's own memory writes there"),
    m("near-lane-never-left", EXECUTOR, "        if self.inside:\n            self.inside = False\n            self.path.leave()\n", "        self.inside = False\n",
      "a lane is never left"),
    m("near-withdrawal-does-not-wait", DIRECTORY, "            self.quiesce()\n            table.give_back(place)", "            table.give_back(place)",
      "deregistering returns while a neighbour still copies"),
    m("near-withdrawal-waits-for-the-dead", DIRECTORY, "while load64(self.address) == turn and self._is_alive():", "while load64(self.address) == turn:",
      "who died inside a lane is waited for"),
    m("near-gate-ignored", PATH, "if load64(self.directory + _GATE) == 1:", "if True:",
      "stopped data access stops no neighbour"),
    m("near-served-before-established", SHARING, "queue_pair.state == RTR and queue_pair.established)", "queue_pair.state == RTR)",
      "a peer in RTR is never told of its connection"),
    m("near-dead-peer-ignored", NEIGHBOURS, "            if received is None:\n                self._drop(party)\n", "            if received is None:\n",
      "a neighbour that has ended keeps its path"),
    m("near-user-not-asked", NEIGHBOURS, "return uid == os.geteuid() and (pid", "return (pid",
      "another user's process is given memory"),
    m("near-namespace-not-asked", NEIGHBOURS, "(pid > 0 or not self.unasked)", "True",
      "unasked, memory goes to another container of the same user number"),
    m("near-door-looked-at-for-ever", NEIGHBOURS, "                self._epoll.unregister(self._listener.fileno())\n                self._listener.close()\n", "                pass\n",
      "without descriptors an adapter never sleeps again"),
    m("near-child-keeps-neighbours-memory", NEIGHBOURS, "            if isinstance(party, Neighbour):\n                party.close()\n            party.channel.close()\n", "            party.channel.close()\n",
      "a forked child keeps what neighbours gave"),
    m("near-ring-given-back-by-half", LANE_RING, "self.consumer.release(2)", "self.consumer.release(1)",
      "a lane's ring does not get past its end"),
    m("near-sleeper-not-called", LANE_RING, "        if atomic_cas64(self.asleep, 1, 0):", "        if False:",
      "packets wait in the ring of one that sleeps"),
    m("near-ring-believed", LANE_RING, "stride == 0 or stride > length:", "stride > length:",
      "a burst without a stride is taken from a neighbour"),
)  # fmt: skip
"""Judged by `TESTS`."""


class Bench:
    """Runs the same-host tests on copies of ``source``, ``jobs`` at a time."""

    def __init__(self, source: Source, jobs: int, tests: Sequence[str] = TESTS) -> None:
        self.source = source
        self.jobs = jobs
        self.files = [str(PROJECT / "tests" / test) for test in tests]

    def control(self) -> None:
        """MutantError where the unchanged source fails."""
        verdict, test, text = self._trial(self.source.original)
        if verdict != SURVIVED:
            raise MutantError(f"the unchanged source fails: {test} {text}")

    def run(self, mutants: Sequence[Mutant], report: Callable[[Result], object]) -> list[Result]:
        """All of them; ``report`` is told of each as it ends."""

        def one(numbered: tuple[int, Mutant]) -> Result:
            result = self.judge(numbered[1], f"near{numbered[0]}")
            report(result)
            return result

        with ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(one, enumerate(mutants)))

    def judge(self, mutant: Mutant, folder: str) -> Result:
        """Run one mutant."""
        result = Result(mutant.name, mutant.files, 0, mutant.why, mutant.rule, BROKEN, by="tests")
        start = time.monotonic()
        try:
            copy = self.source.copy(mutant, folder)
        except MutantError as error:
            result.text = str(error)
            return result
        edit = mutant.edits[0]
        result.line = edit.place(self.source.text(edit.file))
        try:
            result.verdict, result.scenario, result.rule = self._trial(copy)
        finally:
            shutil.rmtree(copy)
        if result.verdict == BROKEN:
            result.text = result.rule
        result.seconds = round(time.monotonic() - start, 1)
        return result

    def _trial(self, copy: Path) -> tuple[str, str, str]:
        """One run until a test fails: the verdict, the test, and what it said."""
        environment = {**os.environ, "PYTHONPATH": str(copy), "COLUMNS": "200"}
        command = [sys.executable, "-P", "-m", "pytest", "-x", "-q", f"--timeout={TEST_LIMIT_S}", *self.files]
        try:
            ended = subprocess.run(
                command, env=environment, cwd=PROJECT, capture_output=True, text=True, check=False,
                timeout=RUN_LIMIT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return FOUND, "", "hang"
        if ended.returncode == 0:
            return SURVIVED, "", ""
        failed = FAILED.search(ended.stdout)
        if ended.returncode == 1 and failed:
            return FOUND, failed[1].rpartition("/")[2], failed[2] or "it fails"
        if ended.returncode < 0:
            return FOUND, "", f"the process ended by signal {-ended.returncode}"
        return BROKEN, "", (ended.stderr + ended.stdout).strip().rpartition("\n")[2]
