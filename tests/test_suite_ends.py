"""The suite comes to an end, whatever becomes of its processes."""

from __future__ import annotations

import os
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


def run(folder):
    """Pytest over the tests of a folder, in processes and with a schedule as the suite has them."""
    found = re.search(r"^PARALLEL \?= (.*)$", MAKEFILE.read_text(), re.MULTILINE)
    assert found
    words = found[1].replace("auto", "2").split()
    path = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "suite_schedule", *words],
        cwd=folder, capture_output=True, text=True, timeout=limit_s(60), env=os.environ | path,
    )  # fmt: skip


def test_a_process_that_crashes_ends_the_run_as_a_failure_that_names_the_test(tmp_path):
    (tmp_path / "test_one.py").write_text(CRASHES)
    for number in range(4):
        (tmp_path / f"test_other_{number}.py").write_text("def test_passes():\n    pass\n")
    done = run(tmp_path)
    assert done.returncode == 1, done.stdout
    assert "crashed while running 'test_one.py::test_crashes'" in done.stdout
    assert "INTERNALERROR" not in done.stdout


SEVERAL = """
import os, pytest

@pytest.mark.parametrize("number", range(9))
def test_some(number):
    with open("ran", "a") as told:
        told.write(f"{__file__} {number} {os.getpid()}\\n")
"""


def test_each_test_runs_once_those_of_a_file_in_their_order_in_one_process(tmp_path):
    for name in "abcdefg":
        (tmp_path / f"test_{name}.py").write_text(SEVERAL)
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout
    told = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    assert len(told) == 7 * 9
    for name in "abcdefg":
        own = [(number, process) for file, number, process in told if file.endswith(f"_{name}.py")]
        assert [number for number, _ in own] == list("012345678")
        assert len({process for _, process in own}) == 1
    assert len({process for _, _, process in told}) == 2


MISCHIEF = """
import pytest

@pytest.fixture
def fails_before():
    raise RuntimeError("in set-up")

@pytest.fixture
def fails_behind():
    print("said in a set-up")
    yield
    raise RuntimeError("in tear-down")

@pytest.fixture
def says():
    yield
    print("said behind a failure")

def test_before(fails_before):
    pass

def test_behind(fails_behind):
    pass

def test_itself(says):
    assert not "in the test"

def test_skips():
    pytest.skip("for a reason")

def test_passes():
    pass
"""


def test_what_fails_around_a_test_is_told_and_what_is_printed_around_one_that_fails(tmp_path):
    """Though a worker says nothing of set-ups and ends that succeed."""
    (tmp_path / "test_one.py").write_text(MISCHIEF)
    said = run(tmp_path).stdout
    assert re.search("^1 failed, 2 passed, 1 skipped, 2 errors in ", said, re.MULTILINE), said
    for words in ("in set-up", "said in a set-up", "in tear-down", "in the test", "said behind a failure"):
        assert words in said, said
