"""Programs that end with threads inside their calls."""

from __future__ import annotations

import pytest
from thread_programs import run

from machine_speed import limit_s


@pytest.mark.timeout(limit_s(900))
@pytest.mark.parametrize("mode", ["embedded", "process"])
@pytest.mark.parametrize("end", ["exit", "close"])
@pytest.mark.parametrize("calls", ["poll", "wait", "all"])
def test_a_program_ends_with_threads_inside_its_calls(mode: str, end: str, calls: str) -> None:
    for _ in range(2):
        assert run("exit_threads.py", mode, end, calls) == (0, "")
