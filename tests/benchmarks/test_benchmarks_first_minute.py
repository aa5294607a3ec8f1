"""The recorder of a terminal session: what a command prints there, colours too; its end and its failure."""

import subprocess

import first_minute
import pytest


def test_a_command_believes_that_it_has_a_terminal():
    with first_minute.tools() as path:
        said = first_minute.printed("test -t 1 && echo end", path)
        version = first_minute.printed("python -c 'import sys; print(sys.stdout.isatty())'", path)
    assert said.endswith("end\n")
    assert version == "True\n"


def test_a_command_that_fails_is_not_recorded():
    with first_minute.tools() as path, pytest.raises(subprocess.CalledProcessError) as failed:
        first_minute.printed("echo why; false", path)
    assert "why" in failed.value.output


def test_the_session_is_drawn(tmp_path, monkeypatch):
    picture = tmp_path / "session.svg"
    monkeypatch.setattr(first_minute, "COMMANDS", (("softhca abi version", "softhca abi version"),))
    monkeypatch.setattr("sys.argv", ["first_minute.py", "--svg", str(picture)])
    assert first_minute.main() == 0
    drawn = picture.read_text()
    assert drawn.startswith("<svg")
    assert "abi&#160;version" in drawn
