"""A Dask scheduler and workers on the loopback, as processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

OPTIONS = ("--host", "127.0.0.1", "--no-dashboard")
ALONE = ("--nthreads", "1", "--no-nanny", "--death-timeout", "60")


class Machines:
    """A scheduler and workers as processes; every one is ended by its id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[str]] = []
        self.address = ""

    def start(self, kind: str, *words: str) -> subprocess.Popen[str]:
        """A process, and its log until it says where it is."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"}
        process = subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.dask_{kind}", *OPTIONS, *words],
            cwd=self.folder, env=environment, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def start_scheduler(self) -> None:
        process = self.start("scheduler", "--port", "0")
        for line in process.stderr:
            if "Scheduler at:" in line:
                self.address = line.split()[-1]
                break
        assert self.address

    def start_worker(self, *words: str) -> subprocess.Popen[str]:
        process = self.start("worker", self.address, *ALONE, *words)
        for line in process.stderr:
            if "Registered to:" in line:
                return process
        raise AssertionError("the worker did not start")

    def end(self) -> None:
        for process in reversed(self.processes):
            process.kill()
            process.wait()
            process.stderr.close()
