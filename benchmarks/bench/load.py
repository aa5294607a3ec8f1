"""What else the machine does while something is measured."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

QUIET, BUSY = "quiet", "busy"
CONDITIONS = (QUIET, BUSY)


@contextlib.contextmanager
def beside(condition: str) -> Iterator[None]:
    """With a busy loop pinned to every processor of ours, where the condition is ``busy``."""
    loops: list[subprocess.Popen[bytes]] = []
    try:
        for number in sorted(os.sched_getaffinity(0)) if condition == BUSY else ():
            text = f"os.sched_setaffinity(0, [{number}])\nwhile os.getppid() == {os.getpid()}: pass"
            loops.append(subprocess.Popen([sys.executable, "-c", f"import os\n{text}"]))
        yield
    finally:
        for each in loops:
            each.kill()
            each.wait()


def average() -> float:
    """How many processes wanted a processor in the last minute."""
    return os.getloadavg()[0]
