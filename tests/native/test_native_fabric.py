"""Debian's programs, unmodified, as hosts of a fabric that is served (`softhca run --link fabric:…`)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("yaml", reason="PyYAML: pip install 'softhca[fabric]'")

from native_world import CHANNEL_CLOSED, checked, ended, needs

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


def both_ends(fabric: Path | str, server: str, client: str, ends: str = ENDS) -> str:
    """What a server at one host and a client at another say."""
    script = ends.replace("$SERVER", server).replace("$CLIENT", client)
    command = [sys.executable, "-m", "softhca", "run", "--link", f"fabric:{fabric}", "--fabric-name", NAME,
               "-n", "2", "--", "sh", "-c", script]  # fmt: skip
    environment = {**os.environ, **checked(), "SOFTHCA_ADAPTER": "process"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s(90), env=environment)
    assert done.returncode == 0 or CHANNEL_CLOSED in done.stderr, done.stderr[-2000:]
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


NATIVE = "fat-tree:radix=4"
FIRST_GID = "fe80::200:0:1:1"
"""Of the first host of a generated fabric."""
EXAMPLE = Path(__file__).parents[2] / "examples" / "rping.py"
IN_PYTHON = f"env LD_PRELOAD= {sys.executable} {EXAMPLE}"
CONNECTED = {
    "rping to a GID": ("rping -s -a :: -C 3 -v", "rping -c -a $GID -C 3 -v", r"^ping data: rdma-ping-", 3),
    "rstream to a GID": (
        "rstream -b :: -S 3000 -C 20", "rstream -s $GID -S 3000 -C 20", r"^custom +2.9k +20 ", 2,
    ),
    "rping": ("rping -s -a $first -C 3 -v", "rping -c -a $first -C 3 -v", r"^ping data: rdma-ping-", 3),
    "ib_write_bw": (
        "ib_write_bw -F -R -x 0 -n 20 -s 20000", "ib_write_bw -F -R -x 0 -n 20 -s 20000 $first",
        r"^ 20000 +20 ", 2,
    ),
    "udaddy": ("udaddy -C 5", "udaddy -C 5 -s $first", r"^return status 0$", 2),
    "rping from Python": ("rping -s", f"{IN_PYTHON} -c -a $first -C 4", r"^ping data: rdma-ping-", 4),
}  # fmt: skip


@pytest.mark.parametrize("program", CONNECTED)
def test_programs_are_connected_between_hosts_of_a_native_fabric(program: str) -> None:
    """Who has an IPv4 address and the way there come from subnet administration."""
    needs(program.split()[0])
    server, client, said, count = CONNECTED[program]
    text = both_ends(NATIVE, server, client.replace("$GID", FIRST_GID))
    assert len(re.findall(said, text, re.MULTILINE)) == count, text


MEMBERS = """
own=$(echo $SOFTHCA_PEERS | cut -d, -f$((SOFTHCA_RANK + 1)))
if [ "$SOFTHCA_RANK" = 0 ]; then
    $SERVER | while read -r line; do
        echo "$line"
        case "$line" in *joined*) : >$PLACE;; esac
    done
    exit
fi
until [ -e $PLACE ]; do :; done
exec $CLIENT
"""
"""mckey's sender waits for nobody, so it begins when the other member has joined."""


@pytest.mark.parametrize("kind", ["native", "ethernet"])
def test_a_group_of_a_fabric(tmp_path: Path, ethernet: Path, kind: str) -> None:
    needs("mckey", "stdbuf")
    ends = MEMBERS.replace("$PLACE", str(tmp_path / "joined"))
    command = "mckey -m 239.88.77.66 -b $own -C 5"
    fabric = NATIVE if kind == "native" else ethernet
    said = both_ends(fabric, f"stdbuf -oL {command}", f"{command} -s", ends)
    joined = "ff12:4001:ffff::f58:4d42 mlid 0xc000" if kind == "native" else "::ffff:239.88.77.66 mlid 0x0"
    assert said.count(f"mckey: joined dgid: {joined} sl 0") == 2, said
    assert said.count("data transfers complete") == 2, said


def test_who_is_nowhere_on_a_native_fabric() -> None:
    needs("rping")
    client = "eval 'rping -c -a fe80::7 -C 1; rping -c -a 192.0.2.1 -C 1' 2>&1; exit 0"
    said = both_ends(NATIVE, "true", client)
    assert "RDMA_CM_EVENT_ROUTE_ERROR, error -113" in said
    assert "RDMA_CM_EVENT_ADDR_ERROR, error -113" in said


def test_addresses_of_ipv6_on_a_native_fabric() -> None:
    """Which are no GIDs; given to hosts by hand."""
    needs("rping")
    softhca = [sys.executable, "-m", "softhca"]
    serve = ["fabric", "serve", NATIVE, "--name", NAME, "--manager=s1-0", "--addresses", "fd00::1,fd00::2"]
    environment = {**os.environ, **checked(), "SOFTHCA_ADAPTER": "process"}

    def host(number: int, *words: str) -> subprocess.Popen[str]:
        device = {"SOFTHCA_DEVICES": f"softhca0=fabric:{NAME}/h{number}"}
        return subprocess.Popen([*softhca, "run", "--", *words], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, env=environment | device)  # fmt: skip

    with subprocess.Popen([*softhca, *serve, "--attended"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as fabric:  # fmt: skip
        try:
            assert fabric.stdout is not None
            assert fabric.stdout.readline() == "ready\n"
            with host(0, "rping", "-s", "-a", "fd00::1") as server:
                while True:  # until the server listens
                    client = host(1, "rping", "-c", "-a", "fd00::1", "-C", "3", "-v")
                    said = client.communicate(timeout=limit_s(90))[0]
                    if client.returncode == 0 or server.poll() is not None:
                        break
                assert len(re.findall(r"ping data: rdma-ping-", said)) == 3, said
                ended(server)
        finally:
            assert fabric.stdin is not None
            fabric.stdin.close()
