"""Programs that lock all that they map."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from machine_speed import limit_s
from softhca.machine import locked_memory

PROGRAM = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
from softhca.machine.locked_memory import maps_locked
if libc.mlockall({flags}):
    sys.exit(77)
print(maps_locked())
libc.munlockall()
print(maps_locked())
"""
OPENS = """
from softhca.runtime import devices
devices.maps_locked = lambda: True
from softhca.verbs.device import Context
from softhca.verbs.pyverbs_error import PyverbsRDMAError
try:
    Context(name="softhca0")
except PyverbsRDMAError as error:
    print(error.error_code, error)
"""
FUTURE, ON_FAULT = 2, 4


def run(text: str) -> str:
    environment = os.environ | {"SOFTHCA_DEVICES": "softhca0=udp:127.0.0.1"}
    ran = subprocess.run(
        [sys.executable, "-c", text], env=environment, capture_output=True, text=True, timeout=limit_s(60)
    )
    if ran.returncode == 77:
        pytest.skip("this process may lock no memory")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize(("flags", "locked"), [(FUTURE, True), (FUTURE | ON_FAULT, False)])
def test_a_program_is_known_that_locks_what_it_maps(flags: int, locked: bool) -> None:
    text = PROGRAM.format(flags=flags)
    assert run(text).split() == [str(locked), "False"]


def test_pages_that_are_there_at_once_are_not_locked_by_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a kernel whose mincore(2) says so of every page."""

    def all_there(address: int, length: int, found: Any) -> int:
        found._obj.value = 1
        return 0

    monkeypatch.setattr(locked_memory, "_libc", SimpleNamespace(mincore=all_there))
    assert not locked_memory.maps_locked()


def test_it_opens_no_device_and_hears_why() -> None:
    heard = run(OPENS)
    assert heard.startswith(f"{errno.ENOMEM} ")
    assert "MCL_ONFAULT" in heard
