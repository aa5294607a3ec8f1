"""CPython's own tests of ``socket``, of connections and datagrams, with softhca's sockets in their place."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from machine_speed import limit_s

SUITE = Path(__file__).with_name("cpython_suite.py")
CASES = (
    "BasicTCPTest",
    "NonBlockingTCPTests",
    "FileObjectClassTestCase",
    "SendmsgTCPTest",
    "RecvmsgIntoTCPTest",
    "BasicUDPTest",
    "SendmsgUDPTest",
)
HAS_TESTS = importlib.util.find_spec("test") is not None and importlib.util.find_spec("test.test_socket")


@pytest.mark.skipif(not HAS_TESTS, reason="this Python has no test package")
def test_cpython_s_tests_of_connections_pass() -> None:
    """The classes that take least time; all are run by the program itself (docs/compatibility.md)."""
    command = [sys.executable, str(SUITE), *CASES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s(100), check=False)
    found = json.loads(done.stdout)
    assert found["failed"] == [], done.stderr
    assert found["passed"] >= 56
    assert found["streams"] >= 2 * 40
