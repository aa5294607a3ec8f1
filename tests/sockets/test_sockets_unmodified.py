"""``softhca run --sockets``: programs that know nothing of softhca, by RDMA; and beside softhca, by TCP."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from machine_speed import limit_s

PROGRAM = Path(__file__).with_name("unmodified_program.py")
CASES = {"asyncio echo", "asyncio sendfile", "http", "xmlrpc", "socketserver", "multiprocessing"}

UNKNOWN = {"xmlrpc": (True, None), "multiprocessing": (True, None)}


def results(*command: str) -> dict[str, tuple[bool, bool | None]]:
    """What the program prints."""
    done = subprocess.run(
        [*command, sys.executable, str(PROGRAM)],
        capture_output=True, text=True, timeout=limit_s(60), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return {name: tuple(found) for name, found in json.loads(done.stdout).items()}


def test_the_standard_library_s_servers_and_clients_go_by_rdma() -> None:
    found = results(sys.executable, "-m", "softhca", "run", "--sockets", "--")
    assert found == dict.fromkeys(CASES, (True, True)) | UNKNOWN


def test_a_run_without_the_option_changes_nothing() -> None:
    found = results(sys.executable, "-m", "softhca", "run", "--")
    assert found == dict.fromkeys(CASES, (True, False)) | UNKNOWN
