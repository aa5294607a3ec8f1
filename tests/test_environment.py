"""An environment whose pip is unpacked works as one that pip has been installed into."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "release" / "environment.py"


@pytest.fixture
def environment() -> ModuleType:
    spec = importlib.util.spec_from_file_location("environment", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def said(*words: str | Path) -> str:
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(word) for word in words]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=alone).stdout


def test_pip_works_in_it_and_belongs_to_it(environment: ModuleType, tmp_path: Path) -> None:
    if environment.wheel_of_pip() is None:
        pytest.skip("this Python comes without a wheel of pip")
    folder = tmp_path / "some where"
    said(sys.executable, SCRIPT, folder)
    python = folder / "bin" / "python"
    version = said(python, "-m", "pip", "--version")
    assert str(folder) in version
    assert said(python, folder / "bin" / "pip", "--version") == version
    listed = said(python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check")
    assert [line.partition("==")[0] for line in listed.split()] == ["pip"]
    assert said(python, "-c", "import sys; print(sys.prefix)").strip() == str(folder)


def test_without_a_wheel_it_is_what_python_makes(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run: list[list[str]] = []
    monkeypatch.setattr(environment, "wheel_of_pip", lambda: None)
    monkeypatch.setattr(environment.subprocess, "run", lambda words, **_: run.append(words))
    environment.make(tmp_path)
    assert run == [[sys.executable, "-m", "venv", str(tmp_path)]]


def test_nothing_is_made_without_a_folder() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True)
    assert done.returncode
    assert done.stderr.startswith("usage:")
