"""``benchmarks/sockets.py`` measures streams and datagrams beside the kernel's; it ends, and says so,
where its receiver dies in the middle of a transfer.
"""

import json
import os
import runpy
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
    path = os.pathsep.join(filter(None, [str(BENCHMARK.parent), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", SENDING, str(BENCHMARK), DYING, kind, str(size), devices[1]],
        env={**os.environ, "SOFTHCA_DEVICES": devices[0], "PYTHONPATH": path},
        capture_output=True, text=True, timeout=limit_s(30), check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].startswith(
        ("ConnectionResetError", "BrokenPipeError", "OSError: the receiver has gone")
    ), done.stderr


def test_streams_and_datagrams_are_measured_beside_the_kernels() -> None:
    kinds = ("tcp", "unix", "shm-lend", "dgram-udp", "dgram-rdma-shm")
    done = subprocess.run(
        [
            sys.executable, str(BENCHMARK), "--json", "--rounds", "1", "--seconds", "0.02",
            "--sizes", "65536", "--beside", "quiet", "--kinds", *kinds,
        ],
        capture_output=True, text=True, timeout=limit_s(60), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {each["kind"]: each for each in json.loads(done.stdout)}
    assert tuple(found) == kinds
    assert all(each["us"] > 0 for each in found.values())
    assert found["shm-lend"]["copied"] == 0
    assert found["tcp"]["faster"] == found["dgram-udp"]["faster"] == 1
    assert found["tcp"]["rate"] > 0


def test_ratios_are_of_the_same_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARK.parent)
    of_rounds = runpy.run_path(str(BENCHMARK))["rows"]
    ours = [{"us": 4.0, "rate": 1.0}, {"us": 40.0, "rate": 10.0}, {"us": 1.0, "rate": 8.0}]
    theirs = [{"us": 2.0, "rate": 4.0}, {"us": 20.0, "rate": 2.0}, {"us": 20.0, "rate": 4.0}]
    found = of_rounds({("busy", "unix", 64): ours, ("busy", "tcp", 64): theirs})
    assert [(each["kind"], each["faster"], each["wider"]) for each in found] == [
        ("unix", 0.5, 2.0), ("tcp", 1.0, 1.0),
    ]  # fmt: skip
    assert (found[0]["us"], found[0]["rate"]) == (4.0, 8.0)


def test_mapping_and_copying_receives_are_measured_in_pairs() -> None:
    """A pool that cannot hold both, or a receive that is not done as it says, would end it."""
    done = subprocess.run(
        [
            sys.executable, str(BENCHMARK.with_name("mapping_crossover.py")), "--json", "--rounds", "2",
            "--sizes", "16384", "1048576",
        ],
        capture_output=True, text=True, timeout=limit_s(60), check=True,
    )  # fmt: skip
    rows = json.loads(done.stdout)
    assert [row["size"] for row in rows] == [16384, 1048576]
    assert all(row[name] > 0 for row in rows for name in ("copy_alone", "map_whole", "alone", "whole"))
