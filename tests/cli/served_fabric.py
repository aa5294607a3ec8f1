"""Programs as hosts of a fabric that `softhca run` serves while they run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from machine_speed import limit_s

HERE = Path(__file__).parent
PROGRAM = str(HERE / "fabric_program.py")
NAME = f"softhca-test-run-{os.getpid()}"
TREE = "fabric:fat-tree:radix=4"


def run(*words: str, link: str = TREE, status: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "softhca", "run", "--link", link, "--fabric-name", NAME, *words]
    environment = {**os.environ, **variables}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=limit_s(90), env=environment, check=False
    )
    assert done.returncode == status, done.stderr[-2000:]
    return done


def said(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """What both copies of the program say, by rank."""
    return sorted(map(json.loads, done.stdout.splitlines()), key=lambda each: int(each["rank"]))
