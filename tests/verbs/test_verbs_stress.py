"""Verbs, connections and sockets under many threads, each in a process of its own."""

from __future__ import annotations

import pytest
from thread_programs import run

from machine_speed import limit_s
from suite_plan import random_inputs

SEEDS = {"embedded": range(1, 1 + random_inputs(2)), "process": (3,)}
ROOMS = {"connections": ("embedded", "process"), "channels": ("embedded",), "sockets": ("embedded",)}


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
