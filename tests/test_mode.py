"""The mode that was asked for is the mode that runs: no compiled module may silently be the plain one."""

from __future__ import annotations

import gc
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import softhca
import suite_plan

PACKAGE = Path(softhca.__file__).parent
HOT = sorted(
    ".".join(("softhca", *path.relative_to(PACKAGE).with_suffix("").parts)) for path in PACKAGE.rglob("*.pxd")
)


@pytest.mark.parametrize("name", HOT)
def test_hot_module_runs_in_the_expected_mode(name: str) -> None:
    expected = os.environ.get("SOFTHCA_EXPECT")
    if expected is None:
        pytest.skip("SOFTHCA_EXPECT does not say which mode this run shall prove")
    module = importlib.import_module(name)
    compiled = str(module.__file__).endswith(tuple(EXTENSION_SUFFIXES))
    assert compiled == (expected == "compiled"), f"{name} comes from {module.__file__}"


def test_no_compiled_module_has_functions_for_python_of_another_one_s() -> None:
    """Cython gives one of each to all who cimport a module that has an extern ``cpdef``, directly or not."""
    paths = [Path(str(importlib.import_module(name).__file__)) for name in HOT]
    found = [path.name for path in paths if b"scope_struct____Pyx_CFunc" in path.read_bytes()]
    assert all(name.startswith("primitives.") for name in found), found


@pytest.mark.parametrize("enabled", [False, True])
def test_an_interpreter_without_its_lock_is_refused_in_words(enabled: bool) -> None:
    program = f"import sys; sys._is_gil_enabled = lambda: {enabled}; import softhca"
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert (done.returncode == 0) == enabled
    assert enabled or "PYTHON_GIL=1" in done.stderr.splitlines()[-1]


def test_there_are_hot_modules_to_look_at() -> None:
    assert "softhca.machine.primitives" in HOT


@pytest.mark.skipif(os.environ.get("SOFTHCA_EXPECT") == "interpreted", reason="it reads sources alone")
@pytest.mark.parametrize("group", suite_plan.ONCE, ids=lambda group: group.files[0])
def test_hot_modules_of_what_runs_once_are_held_in_both_runs_by_other_tests(group: suite_plan.Once) -> None:
    files, instead = (
        [suite_plan.TESTS / name for name in names] for names in (group.files, group.instead)
    )
    assert all(path.exists() for path in (*files, *instead))
    assert not any(map(suite_plan.runs_once, instead))
    needed, held = (
        set().union(*map(suite_plan.hot_modules_of, paths)) for paths in (files, instead)
    )
    assert needed <= held, sorted(needed - held)


def test_what_runs_once_by_its_imports_alone_is_of_cold_folders_and_opens_no_device() -> None:
    left_out = {path.relative_to(suite_plan.TESTS).as_posix(): path for path in suite_plan.left_out()}
    assert left_out.keys() >= set(suite_plan.FILES)
    assert len(set(suite_plan.FILES)) == len(suite_plan.FILES)
    by_imports = {name: path for name, path in left_out.items() if name not in suite_plan.FILES}
    assert {name.split("/")[0] for name in by_imports} == set(suite_plan.COLD)
    for name, path in by_imports.items():
        words = set(re.findall(r"\w+", path.read_text()))
        assert not words & {"verbs_pair", "loopback_address", "Popen", "multiprocessing"}, name


def test_files_that_begin_first_are_there() -> None:
    assert len(set(suite_plan.LONG)) == len(suite_plan.LONG)
    assert all((suite_plan.TESTS / name).exists() for name in suite_plan.LONG)


@pytest.mark.parametrize(("expected", "count"), [("compiled", 45), ("interpreted", 11), (None, 45)])
def test_the_interpreted_run_makes_a_fourth_of_the_random_inputs(
    monkeypatch: pytest.MonkeyPatch, expected: str | None, count: int
) -> None:
    monkeypatch.delenv("SOFTHCA_EXPECT", raising=False)
    if expected:
        monkeypatch.setenv("SOFTHCA_EXPECT", expected)
    assert suite_plan.random_inputs(45) == count
    assert suite_plan.random_inputs(1) == 1


def test_the_interpreted_run_has_each_test_of_the_verbs_suite_in_one_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    three, four = ["embedded", "process", "same_host"], ["embedded", "process", "same_host", "virtual"]
    names = [f"test_{number}" for number in range(60)]
    for expected in ("compiled", "interpreted"):
        monkeypatch.setenv("SOFTHCA_EXPECT", expected)
        assert suite_plan.pair_modes(False, False) == three
        for programs, modes in ((False, four), (True, three)):
            found = [suite_plan.pair_modes(True, programs, name) for name in names]
            if expected == "compiled":
                assert found == [modes] * len(names)
            else:
                assert {len(one) for one in found} == {1}
                assert all(found.count([mode]) >= 10 for mode in modes[1:])
                assert ["embedded"] not in found


def test_all_processors_have_work_while_some_workers_wait(pytestconfig: pytest.Config) -> None:
    assert [suite_plan.workers_of(processors) for processors in (1, 2, 3, 4)] == [2, 3, 5, 6]
    said = pytestconfig.hook.pytest_xdist_auto_num_workers(config=pytestconfig)
    assert said == suite_plan.workers_of(len(os.sched_getaffinity(0)))


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_workers_read_the_same_tests_and_each_begins_elsewhere(workers: int) -> None:
    read = [suite_plan.places_of_tests(worker, workers) for worker in range(workers)]
    assert len({places[0] for places in read}) == workers
    assert len({tuple(sorted(places)) for places in read}) == 1
    for path in suite_plan.TESTS.rglob("test_*.py"):
        assert sum(path.is_relative_to(place) for place in read[0]) == 1


def test_workers_do_not_read_what_the_run_leaves_out() -> None:
    absent = [suite_plan.TESTS / "test_environment.py", suite_plan.TESTS / "wire" / "test_wire_psn.py"]
    read = suite_plan.places_of_tests(1, 3)
    found = suite_plan.places_of_tests(1, 3, [str(each) for each in absent])
    assert set(read) - set(found) == {str(absent[0])}  # pytest looks itself for those in folders


def test_no_collection_goes_through_what_there_was_before_a_file(
    loopback_address: Callable[[], str],
) -> None:
    """Made behind the reading of tests, before the first test of this file."""
    assert gc.is_tracked(loopback_address)
    assert all(each is not loopback_address for each in gc.get_objects())


def test_imports_of_a_folder_s_conftest_count() -> None:
    """Fixtures bring hot modules to tests that import none."""
    assert suite_plan.hot_modules_of(suite_plan.TESTS / "replay" / "test_replay_list.py")


IMPORTS = {
    "plainly": "from softhca.wire import psn",
    "by its name": "import softhca.wire.psn",
    "when it is called": "def late():\n    from softhca.wire.psn import add",
    "by a module that imports it": "from softhca.wire.packet import *" ,
    "by a command": "from softhca.cli.main import main",
    "by a helper of tests": "import wire_samples",
}


@pytest.mark.parametrize("how", IMPORTS)
def test_a_file_that_reaches_a_hot_module_runs_in_both_modes(how: str, tmp_path: Path) -> None:
    path = tmp_path / "test_some.py"
    path.write_text("import json\nfrom softhca.hardware import rmb\n")
    assert not suite_plan.hot_modules_of(path)
    (other := tmp_path / "test_other.py").write_text(path.read_text() + IMPORTS[how])
    assert suite_plan.hot_modules_of(other)
