"""Every system call that takes memory or a descriptor fails in turn, while something is made and ended: an
error that says so, or another way; nothing is left, and the next time it works.  Calls of the program that
makes it, or of the adapter process that serves it and others, which go on.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from machine_speed import limit_s
from softhca.native import build

HERE = Path(__file__).parent
LIMIT_S = limit_s(120)
ALONE = ("opening", "verbs", "device_memory", "mailboxes")
OF_ADAPTER = ("groups", "meeting")
TOGETHER = ("streams", "streams_by_cm", "datagrams", "detached", "channels")


@pytest.fixture(scope="module")
def failing_calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library to be preloaded."""
    command = build.compiler()
    if command is None:
        pytest.skip("there is no C compiler")
    made = tmp_path_factory.mktemp("failing") / "failing_calls.so"
    source = str(HERE / "failing_calls.c")
    flags = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror")
    subprocess.run([*command, *flags, source, "-o", str(made)], check=True)
    return made


@pytest.mark.parametrize(("mode", "operation"), [
    *(("embedded", each) for each in (*ALONE, *OF_ADAPTER, *TOGETHER)),
    *(("process", each) for each in ALONE),
])  # fmt: skip
def test_whatever_call_fails_is_told_and_leaves_nothing(
    failing_calls: Path, loopback_address: object, mode: str, operation: str
) -> None:
    libraries = filter(None, [os.environ.get("LD_PRELOAD", ""), str(failing_calls)])
    _run(loopback_address, operation, SOFTHCA_ADAPTER=mode, LD_PRELOAD=":".join(libraries))


@pytest.mark.parametrize(("operation", "times"), [
    *((each, 1) for each in ("opening", "device_memory", *OF_ADAPTER)), ("opening", 4),
])  # fmt: skip
def test_whatever_call_of_an_adapter_process_fails_others_are_served(
    failing_calls: Path, loopback_address: object, operation: str, times: int
) -> None:
    """Four times: no descriptor to accept a client, none to refuse it, none kept for that, and no more
    watched."""
    _run(loopback_address, operation, SOFTHCA_ADAPTER="process", SHIM=str(failing_calls), TIMES=str(times))


def _run(loopback_address: object, operation: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "failing_calls_program.py"), operation],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(HERE.parent), *filter(None, sys.path)]),
            "SOFTHCA_DEVICES": f"failing=udp:{loopback_address()}",  # type: ignore[operator]
            "SOFTHCA_FAULTS": "",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
