"""TAB in a shell of its own at a terminal: what stands on the line afterwards."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from machine_speed import limit_s
from softhca.cli.main import main

STARTS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source {folder}/_softhca"),
    "zsh": (["zsh", "-f", "-i"], "fpath=({folder} $fpath); autoload -U compinit; compinit -u -D"),
}
CONTROL_U = "\x15"
CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x07\r]")


class Shell:
    """A shell at a terminal; who types sees what it shows."""

    def __init__(self, name: str, folder: Path) -> None:
        command, begin = STARTS[name]
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:  # nothing of the test's own may go on here
            try:
                environment = {"PATH": os.environ["PATH"], "TERM": "dumb", "PS1": "> ", "HOME": str(folder)}
                os.chdir(folder)
                os.execvpe(command[0], command, environment)
            finally:
                os._exit(127)
        self._type(begin.format(folder=shlex.quote(str(folder))) + "; echo rea''dy\n")
        self._until("ready")

    def _type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def _until(self, text: str) -> str:
        """What is shown until ``text`` is there."""
        seen, end = "", time.monotonic() + limit_s(60)
        while text not in seen:
            assert select.select([self._terminal], [], [], max(0.0, end - time.monotonic()))[0], repr(seen)
            seen += CONTROLS.sub("", os.read(self._terminal, 65536).decode(errors="replace"))
        return seen

    def completes(self, typed: str, expected: str, tabs: int = 1) -> str:
        """Clear the line, type, press TAB, and wait for what is expected; all that was shown."""
        self._type(CONTROL_U + typed + "\t" * tabs)
        return self._until(expected)

    def close(self) -> None:
        """End the shell, whatever it is at."""
        os.close(self._terminal)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@pytest.fixture(scope="module", params=sorted(STARTS))
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell that has read its script."""
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    folder = tmp_path_factory.mktemp(request.param)
    with (folder / "_softhca").open("w") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", file)
        assert main(["completion", request.param]) == 0
    (folder / "somewhere.pcapng").write_bytes(b"")
    opened = Shell(request.param, folder)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("softhca devi", "nfo"),
        ("softhca perf send-l", "at"),
        ("softhca run --lin", "k"),
        ("softhca simulate --scenario torn", "-writes"),
        ("softhca campaign --scenario block-st", "orage"),
        ("softhca capture decode somew", "here.pcapng"),
    ],
)
def test_tab_completes_commands_options_values_and_files(shell: Shell, typed: str, expected: str) -> None:
    shell.completes(typed, typed[-2:] + expected)


def test_choices_with_a_colon_are_shown(shell: Shell) -> None:
    """zsh takes a colon for the end of a field unless it is masked."""
    seen = shell.completes("softhca run --link ", "udp", tabs=2)
    assert "command not found" not in seen
    shell.completes("softhca run --link sh", "shm")


def test_all_commands_are_shown(shell: Shell) -> None:
    shell.completes("softhca ", "simulate", tabs=2)


def test_zsh_shows_the_line_of_help_beside_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "zsh"])
    assert "    run:'run copies of a program, each with its own adapter'\n" in capsys.readouterr().out


def test_zsh_script_says_colons_so_that_they_stay(capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "zsh"])
    script = capsys.readouterr().out
    assert r"udp|shm|fabric\:TOPOLOGY:(udp shm fabric\:)" in script
    assert r":ADDRESS[\:PORT]:" in script


def test_bash_script_says_words_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    assert r"fabric\:" not in capsys.readouterr().out
