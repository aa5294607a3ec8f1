"""Programs that run on a fabric ask our manager's subnet administration by datagram."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from machine_speed import limit_s

pytest.importorskip("scipy", reason="numpy and scipy: pip install 'softhca[fabric]'")


def test_a_program_asks_for_its_path_to_the_manager() -> None:
    program = str(Path(__file__).with_name("fabric_query.py"))
    command = [
        sys.executable,
        "-m",
        "softhca",
        "run",
        "-n",
        "2",
        "--link",
        "fabric:fat-tree:radix=4,levels=2",
    ]
    done = subprocess.run(
        [*command, "--", sys.executable, program],
        capture_output=True,
        text=True,
        timeout=limit_s(60),
        check=True,
    )
    (line,) = [line for line in done.stdout.splitlines() if "[" in line]
    status, slid, dlid, mtu, rate, own = json.loads(line[line.index("[") :])
    assert (status, slid, mtu, rate) == (0, own, 5, 17)
    assert dlid not in (0, own)
