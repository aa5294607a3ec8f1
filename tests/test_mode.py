"""The mode that was asked for is the mode that runs: no compiled module may silently be the plain one."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
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


def test_what_runs_in_one_mode_only_is_there_and_in_no_room_of_hot_modules() -> None:
    left_out = suite_plan.left_out()
    assert len(left_out) > len(suite_plan.FILES)
    assert {path.relative_to(suite_plan.TESTS).as_posix() for path in left_out} >= set(suite_plan.FILES)
    folders = {path.parent.name for path in left_out}
    assert folders == {"benchmarks", "hardware", "interop", "mutants", "native", "tests"}
    assert all((suite_plan.TESTS / name).exists() for name in suite_plan.LONG)


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
