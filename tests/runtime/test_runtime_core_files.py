"""Core files of programs and adapter processes have no sparse memory: a kernel brings each page of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from core_files import MOST_BYTES, dumped_bytes
from machine_speed import limit_s

PROGRAM = """
import os, sys
from softhca.verbs.device import Context
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
context = Context(name="c")
region = MR(PD(context), 1 << 20, 1)
print("open", flush=True)
sys.stdin.read()
"""


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("mode", ["embedded", "process"])
def test_core_files_are_small(loopback_address: Callable[[], str], mode: str) -> None:
    environment = {**os.environ, "SOFTHCA_DEVICES": f"c=udp:{loopback_address()}", "SOFTHCA_ADAPTER": mode,
                   "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # fmt: skip
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True, env=environment) as program:  # fmt: skip
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "open\n"
        processes = [program.pid, *children(program.pid)]
        assert len(processes) == (2 if mode == "process" else 1)
        for pid in processes:
            dumped = dumped_bytes(pid)
            assert sum(dumped.values()) < MOST_BYTES, dumped
        program.communicate(timeout=limit_s(60))
    assert program.returncode == 0
