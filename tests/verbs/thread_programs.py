"""Programs of many threads, as tests run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from machine_speed import limit_s

HERE = Path(__file__).parent


def run(program: str, *arguments: str) -> tuple[int, str]:
    """Exit status, and all that was written."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("SOFTHCA_DEVICES")}
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, str(HERE / program), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=limit_s(900), check=False, env={**inherited, "PYTHONPATH": path},
    )  # fmt: skip
    return done.returncode, done.stdout
