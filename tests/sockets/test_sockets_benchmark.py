"""``benchmarks/sockets.py`` ends, and says so, where its receiver dies in the middle of a transfer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from machine_speed import limit_s

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "sockets.py"

DYING = """
import os, signal, socket, sys
if sys.argv[1] != "tcp":
    from softhca import sockets as socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
connection, _ = server.accept()
connection.recv(1)
os.kill(os.getpid(), signal.SIGKILL)
"""
"""A receiver that ends when the first byte has come."""

SENDING = """
import os, runpy, subprocess, sys
path, dying, kind, size, devices = sys.argv[1:]
variables = dict(os.environ, SOFTHCA_DEVICES=devices)
command = [sys.executable, "-c", dying, kind]
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as receiver:
    runpy.run_path(path)["transfer"](receiver, kind, int(size), 1000.0)
"""


@pytest.mark.parametrize(("kind", "size"), [("tcp", 65536), ("udp-copy", 65536), ("shm-copy", 64)])
def test_a_receiver_that_dies_ends_the_measurement(kind: str, size: int, loopback_address) -> None:
    devices = [f"softhca0=udp:{loopback_address()}?same_host={int('shm' in kind)}" for _ in range(2)]
    done = subprocess.run(
        [sys.executable, "-c", SENDING, str(BENCHMARK), DYING, kind, str(size), devices[1]],
        env={**os.environ, "SOFTHCA_DEVICES": devices[0]},
        capture_output=True, text=True, timeout=limit_s(30), check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].startswith(
        ("ConnectionResetError", "BrokenPipeError", "OSError: the receiver has gone")
    ), done.stderr
