"""The suite comes to an end, whatever becomes of its processes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from machine_speed import limit_s

MAKEFILE = Path(__file__).parents[1] / "Makefile"
CRASHES = """
import os, signal

def test_crashes():
    os.kill(os.getpid(), signal.SIGSEGV)

def test_behind_it():
    pass
"""


def test_a_process_that_crashes_ends_the_run_as_a_failure_that_names_the_test(tmp_path):
    found = re.search(r"^PARALLEL \?= (.*)$", MAKEFILE.read_text(), re.MULTILINE)
    assert found
    words = found[1].replace("auto", "2").split()
    (tmp_path / "test_one.py").write_text(CRASHES)
    for number in range(4):
        (tmp_path / f"test_other_{number}.py").write_text("def test_passes():\n    pass\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=tmp_path, capture_output=True, text=True, timeout=limit_s(60),
    )  # fmt: skip
    assert done.returncode == 1, done.stdout
    assert "crashed while running 'test_one.py::test_crashes'" in done.stdout
    assert "INTERNALERROR" not in done.stdout
