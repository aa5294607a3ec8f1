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
