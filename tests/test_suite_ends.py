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


def run(folder, *more):
    """Pytest over the tests of a folder, in processes and with a schedule as the suite has them."""
    found = re.search(r"^PARALLEL \?= (.*)$", MAKEFILE.read_text(), re.MULTILINE)
    assert found
    words = ["-p", "suite_schedule", *found[1].replace("auto", "2").split(), *more]
    path = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
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


READ = """
import os, pytest
from pathlib import Path

with open("read", "a") as told:
    told.write(f"{Path(__file__).name} {os.getpid()}\\n")

@pytest.fixture(scope="session")
def of_all():
    with open("begun", "a") as told:
        told.write(f"{os.getpid()}\\n")
    yield
    with open("ended", "a") as told:
        told.write(f"{os.getpid()}\\n")

@pytest.fixture(scope="module")
def of_file():
    yield
    with open("closed", "a") as told:
        told.write(f"{Path(__file__).name}\\n")

class TestSome:
    @pytest.mark.parametrize("number", range(3))
    def test_one(self, of_all, of_file, number):
        assert not Path("closed").exists() or Path(__file__).name not in Path("closed").read_text()

def test_two(of_file):
    pass
"""


def test_a_file_is_read_by_the_worker_that_runs_it_alone(tmp_path):
    for name in "abcdef":
        (tmp_path / f"test_{name}.py").write_text(READ)
    done = run(tmp_path)
    assert re.search("^24 passed in ", done.stdout, re.MULTILINE), done.stdout
    read = [line.split() for line in (tmp_path / "read").read_text().splitlines()]
    assert sorted(name for name, _ in read) == [f"test_{name}.py" for name in "abcdef"]
    assert len({process for _, process in read}) == 2
    assert sorted((tmp_path / "closed").read_text().split()) == [f"test_{name}.py" for name in "abcdef"]
    assert sorted((tmp_path / "ended").read_text()) == sorted((tmp_path / "begun").read_text())
    assert "[100%]" in done.stdout
    assert not re.search(r"\[\d{4,}%\]", done.stdout)


def test_files_that_can_not_be_read_or_say_that_they_have_nothing_are_told(tmp_path):
    (tmp_path / "test_wrong.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "test_without.py").write_text("import pytest\npytest.importorskip('nothing_of_this_name')\n")
    (tmp_path / "test_good.py").write_text("def test_passes():\n    pass\n")
    done = run(tmp_path)
    assert done.returncode == 1
    assert re.search("^1 passed, 1 skipped, 1 error in ", done.stdout, re.MULTILINE), done.stdout
    assert "ERROR test_wrong.py - ImportError while importing" in done.stdout


def test_some_are_chosen_by_name_as_ever(tmp_path):
    for name in "ab":
        (tmp_path / f"test_{name}.py").write_text(SEVERAL)
    for words in (["-k", "test_some and 3"], ["test_a.py::test_some[3]", "test_b.py::test_some[3]"]):
        done = run(tmp_path, *words)
        assert re.search("^2 passed in ", done.stdout, re.MULTILINE), done.stdout
    assert re.search("^9 passed in ", run(tmp_path, "test_a.py").stdout, re.MULTILINE)
