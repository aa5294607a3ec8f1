"""Completion and the manual page are made from the parsers; what stands in docs/softhca.1 is of today."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from softhca.cli.commands import COMMANDS
from softhca.cli.completion import SHELLS, actions_of
from softhca.cli.main import build_parser, main
from softhca.cli.manual import man_page, text

PAGE = Path(__file__).parents[2] / "docs" / "softhca.1"


def test_the_page_that_is_installed_is_the_parsers_own() -> None:
    """Where this fails: make man."""
    assert PAGE.read_text() == man_page(build_parser(*COMMANDS))


def test_every_command_and_option_is_on_the_page() -> None:
    page = PAGE.read_text()
    for name in COMMANDS:
        assert f".SS {text(f'softhca {name}')}\n" in page
    for action in actions_of(build_parser(*COMMANDS)):
        for option in action.option_strings:
            assert text(option) in page or option in ("-h", "--help", "--listen-fd", "--attended")
    assert "listen\\-fd" not in page


def test_running_text_is_never_a_request() -> None:
    assert text(".TH a\n  -b \\ c") == "\\&.TH a \\-b \\e c"


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_a_formatter_of_manual_pages_has_nothing_to_say() -> None:
    command = ["groff", "-man", "-Tascii", "-ww", "-Kutf8", str(PAGE)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not [line for line in done.stderr.splitlines() if "special character" not in line]


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS)


@pytest.mark.parametrize(("words", "expected"), [
    (["softhca", "pin"], {"ping", "pingpong"}),
    (["softhca", "perf", "write"], {"write-bw", "write-lat"}),
    (["softhca", "run", "--li"], {"--link"}),
    (["softhca", "run", "--link", ""], {"udp", "shm", "fabric:"}),
    (["softhca", "rmb", "tr"], {"trace"}),
])  # fmt: skip
def test_bash_completes(
    words: list[str], expected: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["completion", "bash"])
    script = tmp_path / "softhca"
    script.write_text(capsys.readouterr().out)
    line = " ".join(f"'{word}'" for word in words)
    program = (
        f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
        f"_shtab_softhca softhca '{words[-1]}' '{words[-2]}'; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(["bash", "--norc", "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == expected
