"""Debian's programs, unmodified, as hosts of an Ethernet that is served (`softhca run --link fabric:…`)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("yaml", reason="PyYAML: pip install 'softhca[fabric]'")

from native_world import needs

from machine_speed import limit_s
from softhca.native import library

pytestmark = pytest.mark.skipif(
    library() is None, reason="this installation has no libibverbs.so.1: it was made without a C compiler"
)
NAME = f"softhca-test-native-fabric-{os.getpid()}"
STAR = "kind: ethernet\nlink: 25G\nswitches: {s: 2}\nhosts: {a: 1, b: 1}\nlinks: ['a[1] s[1]', 'b[1] s[2]']\n"
ENDS = """
first=${SOFTHCA_PEERS%%,*}
if [ "$SOFTHCA_RANK" = 0 ]; then exec $SERVER; fi
until $CLIENT 2>/dev/null; do :; done
"""
"""The client asks until the server listens."""


def both_ends(file: Path, server: str, client: str) -> str:
    """What a server at one host and a client at another say."""
    script = ENDS.replace("$SERVER", server).replace("$CLIENT", client)
    command = [sys.executable, "-m", "softhca", "run", "--link", f"fabric:{file}", "--fabric-name", NAME,
               "-n", "2", "--", "sh", "-c", script]  # fmt: skip
    environment = {**os.environ, "SOFTHCA_ADAPTER": "process"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s(90), env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture
def ethernet(tmp_path: Path) -> Path:
    file = tmp_path / "star.yaml"
    file.write_text(STAR)
    return file


def test_pingpong_between_hosts_of_an_ethernet(ethernet: Path, unused_port: int) -> None:
    needs("ibv_rc_pingpong")
    command = f"ibv_rc_pingpong -g 0 -n 30 -c -p {unused_port}"
    said = both_ends(ethernet, command, f"{command} $first")
    assert len(re.findall(r"30 iters in", said)) == 2


def test_perftest_between_hosts_of_an_ethernet(ethernet: Path, unused_port: int) -> None:
    needs("ib_write_bw")
    command = f"ib_write_bw -F -x 0 -n 20 -s 20000 -p {unused_port}"
    said = both_ends(ethernet, command, f"{command} $first")
    assert len(re.findall(r"^ 20000 +20 ", said, re.MULTILINE)) == 2


def test_rping_between_hosts_of_an_ethernet(ethernet: Path) -> None:
    needs("rping")
    said = both_ends(ethernet, "rping -s -a $first -C 3 -v", "rping -c -a $first -C 3 -v")
    assert len(re.findall(r"^ping data: rdma-ping-", said, re.MULTILINE)) == 3
