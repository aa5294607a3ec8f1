"""Forked workers: what they say is all that was tested, in its order, whatever becomes of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
START = """
import os, sys, pytest
sys.path.insert(0, sys.argv[1])
from forked_workers import Workers

PARENT = os.getpid()

class Seen:
    def pytest_runtest_logreport(self, report):
        if os.getpid() == PARENT and (report.when == "call" or not report.passed):
            print("\\nseen", report.nodeid, report.when, report.outcome)

sys.exit(pytest.main(sys.argv[2:], plugins=[Workers(), Seen()]))
"""
COMMON = """
import os, signal, pytest

@pytest.fixture(scope="module", autouse=True)
def note(request):
    path = f"{request.module.__name__}.log"
    open(path, "a").write(f"begin {os.getpid()}\\n")
    yield path
    open(path, "a").write(f"end {os.getpid()}\\n")

@pytest.fixture(autouse=True)
def order(request, note):
    open(note, "a").write(f"{request.node.name}\\n")
"""
FILES = {
    "test_a.py": """
def test_passes(tmp_path): print("nobody reads this")
def test_fails():
    print("said before")
    assert 1 == 2, "why it fails"
@pytest.mark.skip(reason="not here")
def test_skipped(): pass
@pytest.fixture
def bad(): raise RuntimeError("the fixture's error")
def test_error(bad): pass
@pytest.mark.xfail(strict=True)
def test_expected(): assert False
@pytest.mark.parametrize("n", range(50))
def test_many(n): pass
""",
    "test_b.py": """
def test_first(): pass
def test_dies(): os.kill(os.getpid(), signal.SIGKILL)
def test_after(): pass
def test_leaves():
    if os.fork() == 0:  # it holds what the worker holds, as an adapter's process may
        os.read(int(os.environ["UNTIL"]), 1)
    os._exit(7)
""",
    "test_c.py": """
def test_one(): pass
""",
    "test_d.py": """
def test_two(): pass
""",
}


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, text in FILES.items():
        (folder / name).write_text(COMMON + text)
    command = [sys.executable, "-c", START, TESTS, "-q", "-p", "no:cacheprovider"]
    until, end = os.pipe()
    try:
        with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
            ended = subprocess.run(
                [*command, *words], cwd=folder, stdout=out, stderr=err, check=False,
                env={**os.environ, "UNTIL": str(until)}, pass_fds=[until],
            )  # fmt: skip
    finally:
        os.close(until)
        os.close(end)
    texts = [(folder / name).read_text() for name in ("out", "err")]
    return subprocess.CompletedProcess(ended.args, ended.returncode, *texts)


def seen(done: subprocess.CompletedProcess[str]) -> list[tuple[str, ...]]:
    return re.findall(r"^seen (\S+) (\S+) (\S+)$", done.stdout, re.MULTILINE)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(scope="module")
def all_of_them(home: Path) -> subprocess.CompletedProcess[str]:
    return run(home, "--workers", "2")


def test_every_test_is_reported_once(all_of_them: subprocess.CompletedProcess[str]) -> None:
    outcomes = Counter(outcome for _, _, outcome in seen(all_of_them))
    assert outcomes == {"passed": 55, "failed": 4, "skipped": 2}, all_of_them.stdout
    assert len({name for name, _, _ in seen(all_of_them)}) == 61
    assert all_of_them.returncode == 1
    assert "3 failed, 55 passed, 1 skipped, 1 xfailed, 1 error" in all_of_them.stdout


def test_a_failure_is_told_with_its_output(all_of_them: subprocess.CompletedProcess[str]) -> None:
    for text in ("why it fails", "assert 1 == 2", "said before", "the fixture's error"):
        assert text in all_of_them.stdout
    assert "nobody reads this" not in all_of_them.stdout


def test_a_worker_that_dies_fails_its_test_and_the_rest_runs(
    all_of_them: subprocess.CompletedProcess[str],
) -> None:
    """Also where it has a file already that comes next, and a program of its own lives on."""
    said = {name: outcome for name, _, outcome in seen(all_of_them)}
    assert said["test_b.py::test_dies"] == said["test_b.py::test_leaves"] == "failed"
    for name in ("test_b.py::test_after", "test_c.py::test_one", "test_d.py::test_two"):
        assert said[name] == "passed"
    assert "the worker ended by SIGKILL in this test" in all_of_them.stdout
    assert "the worker ended with status 7 in this test" in all_of_them.stdout


def test_tests_of_a_file_stay_together_and_its_fixtures_end(
    all_of_them: subprocess.CompletedProcess[str], home: Path
) -> None:
    for name, count in (("test_a", 54), ("test_c", 1), ("test_d", 1)):
        lines = (home / f"{name}.log").read_text().splitlines()
        begin, *tests, end = lines
        assert begin.replace("begin", "end") == end
        assert len(tests) == count, lines
    assert (home / "test_b.log").read_text().splitlines().count("test_first") == 1


def test_after_the_first_failure_no_more_begins(tmp_path: Path) -> None:
    done = run(tmp_path, "--workers", "2", "-x", "test_a.py", "test_c.py")
    assert done.returncode == 1
    assert "stopping after 1 failures" in done.stdout
    assert len(seen(done)) < 10
    *_, last = (tmp_path / "test_a.log").read_text().splitlines()
    assert last.startswith("end ")


@pytest.mark.parametrize("words", [["--workers", "0"], ["--workers", "many"]])
def test_a_number_that_is_none_is_refused(tmp_path: Path, words: list[str]) -> None:
    done = run(tmp_path, *words)
    assert done.returncode == 4
    assert "expected auto or 1…256" in done.stderr
