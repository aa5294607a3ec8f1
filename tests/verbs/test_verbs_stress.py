"""Verbs, connections and sockets under many threads, and programs that end with threads inside: each in a
process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from machine_speed import limit_s
from suite_plan import random_inputs

HERE = Path(__file__).parent
SEEDS = {"embedded": range(1, 1 + random_inputs(2)), "process": (3,)}
ROOMS = {"connections": ("embedded", "process"), "channels": ("embedded",), "sockets": ("embedded",)}


def run(program: str, *arguments: str) -> tuple[int, str]:
    """Exit status, and all that was written."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("SOFTHCA_DEVICES")}
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, str(HERE / program), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=limit_s(900), check=False, env={**inherited, "PYTHONPATH": path},
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.timeout(limit_s(1000))
@pytest.mark.parametrize(("mode", "seed"), [(mode, seed) for mode, seeds in SEEDS.items() for seed in seeds])
def test_threads_that_use_and_close_everything(mode: str, seed: int) -> None:
    status, text = run(
        "thread_stress.py", "--here", "--seeds", f"{seed}..{seed}", "--modes", mode, "--rooms", "verbs"
    )
    assert status == 0, text
    assert "9600 calls" in text


@pytest.mark.timeout(limit_s(1000))
@pytest.mark.parametrize(("room", "mode"), [(room, mode) for room, modes in ROOMS.items() for mode in modes])
def test_threads_that_connect_talk_and_close(room: str, mode: str) -> None:
    """By identifiers of RDMA CM, channels, and sockets."""
    status, text = run(
        "thread_stress.py", "--here", "--modes", mode, "--rooms", room, "--threads", "16", "--steps", "40"
    )
    assert status == 0, text
    assert "640 calls" in text


@pytest.mark.timeout(limit_s(900))
@pytest.mark.parametrize("mode", ["embedded", "process"])
@pytest.mark.parametrize("end", ["exit", "close"])
@pytest.mark.parametrize("calls", ["poll", "wait", "all"])
def test_a_program_ends_with_threads_inside_its_calls(mode: str, end: str, calls: str) -> None:
    for _ in range(random_inputs(2)):
        assert run("exit_threads.py", mode, end, calls) == (0, "")
