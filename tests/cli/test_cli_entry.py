"""What a shell starts, and what a short command does without."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from softhca.cli import entry

ROOT = Path(__file__).resolve().parents[2]
SPARED = (
    "platform",
    "rich",
    "softhca.driver.connections",
    "softhca.links.fabric",
    "softhca.links.identification_check",
    "softhca.management.cm.manager",
)
"""What ``devinfo`` of an ordinary device has no use for."""


@pytest.fixture
def collector() -> Iterator[None]:
    """The collector of garbage is afterwards as it was."""
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def of_shell(words: list[str], tell: str) -> subprocess.CompletedProcess[str]:
    """``softhca WORDS`` as a shell starts it, and at its end one line of ``tell`` on stderr."""
    program = f"import atexit, gc, sys; atexit.register(lambda: print({tell}, file=sys.stderr))\n"
    program += (
        f"from softhca.cli.entry import command\nsys.argv = {['softhca', *words]!r}\nsys.exit(command())"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment
    )


def test_the_package_s_script_is_this_function() -> None:
    place = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["softhca"]
    module, _, function = place.partition(":")
    assert getattr(importlib.import_module(module), function) is entry.command


@pytest.mark.parametrize("status", [0, 3])
def test_its_status_is_the_command_s(status: int, monkeypatch: pytest.MonkeyPatch, collector: None) -> None:
    seen = []
    monkeypatch.setattr("softhca.cli.main.main", lambda: seen.append(gc.get_threshold()) or status)
    before = gc.get_threshold()
    assert entry.command() == status
    assert seen == [(entry.NEW_OBJECTS, *before[1:])]
    assert gc.get_freeze_count() > 0


def test_a_usage_error_ends_it_in_the_same_way(monkeypatch: pytest.MonkeyPatch, collector: None) -> None:
    def refuse() -> int:
        raise SystemExit(2)

    monkeypatch.setattr("softhca.cli.main.main", refuse)
    gc.unfreeze()
    with pytest.raises(SystemExit):
        entry.command()
    assert gc.get_freeze_count() > 0


def test_garbage_is_still_collected_while_a_command_runs(
    monkeypatch: pytest.MonkeyPatch, collector: None
) -> None:
    """A campaign runs for hours."""

    def litter() -> int:
        before = gc.get_stats()[0]["collections"]
        for _ in range(2 * entry.NEW_OBJECTS):
            ring: list[object] = []
            ring.append(ring)
        return gc.get_stats()[0]["collections"] - before

    monkeypatch.setattr("softhca.cli.main.main", litter)
    assert entry.command() >= 1


def test_devinfo_imports_nothing_that_it_has_no_use_for() -> None:
    done = of_shell(["devinfo"], f"sorted({set(SPARED)!r} & sys.modules.keys())")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("softhca0")
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize(("words", "status"), [(["--help"], 0), (["nonsense"], 2)])
def test_a_line_of_words_ends_with_its_status(words: list[str], status: int) -> None:
    done = of_shell(words, "gc.get_freeze_count() > 0")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (status, "True")
