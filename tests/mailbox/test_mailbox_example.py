"""The example, as its first line says to run it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from machine_speed import limit_s

EXAMPLE = Path(__file__).parents[2] / "examples" / "mailbox.py"
TIMEOUT_S = limit_s(100)


@pytest.mark.parametrize("mode", ["embedded", "process"])
def test_the_example_bills_all_orders_once(mode):
    command = [sys.executable, "-m", "softhca", "run", "-n", "2", "--", sys.executable, str(EXAMPLE)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S,
        env={**os.environ, "SOFTHCA_ADAPTER": mode},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "request 1 is done: bill no. 17: 431 pieces\n"
