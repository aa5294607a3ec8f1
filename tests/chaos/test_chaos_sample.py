"""A sample of the live processes under faults; ``make chaos`` is the long one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from machine_speed import limit_s

HERE = Path(__file__).parent
LIMIT_S = limit_s(110)
ROUNDS = {
    "udp": ("kill", "stop_short", "jump", "fork", "forge"),
    "same_host": ("kill", "stop_short", "fork", "jump"),
    "process": ("stop_short", "adapter_kill", "fork"),
}
SEEDS = {"udp": 133, "same_host": 80, "process": 131}
"""Of their rounds, each kind is one, and there is each traffic."""
TRAFFIC = ("verbs", "streams", "channels")


@pytest.mark.parametrize("mode", list(ROUNDS))
def test_a_sample_finds_nothing(mode, tmp_path):
    report, failed = tmp_path / "report.json", tmp_path / "failed.json"
    path = os.pathsep.join([str(HERE), *filter(None, sys.path)])
    done = subprocess.run(
        [
            sys.executable,
            str(HERE / "run_chaos.py"),
            "--mode",
            mode,
            "--kind",
            *ROUNDS[mode],
            "--traffic",
            *TRAFFIC,
            "--seed",
            str(SEEDS[mode]),
            "--rounds",
            str(len(ROUNDS[mode])),
            "--seconds",
            "60",
            "--few",
            "--json",
            str(report),
            "--failed",
            str(failed),
        ],
        env={**os.environ, "PYTHONPATH": path},
        timeout=LIMIT_S,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(report.read_text())["modes"][mode]
    assert figures["kinds"] == dict.fromkeys(ROUNDS[mode], 1)
    assert set(figures["traffic"]) == set(TRAFFIC)
    assert figures["operations"] > 0
    assert set(figures["told"]) <= set(TRAFFIC)
