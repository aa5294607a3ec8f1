"""`softhca run --link fabric:ETHERNET.yaml`: copies are RoCEv2 hosts behind Ethernet switches."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("yaml", reason="PyYAML: pip install 'softhca[fabric]'")

from machine_speed import limit_s
from softhca.cli.errors import UsageError
from softhca.cli.fabric_serving import _gid
from softhca.cli.main import main
from softhca.cli.run_fabric import plan
from softhca.wire.packet import decode
from softhca.wire.pcapng import read_pcapng

HERE = Path(__file__).parent
EXAMPLES = HERE.parent.parent / "examples"
PROGRAM = str(HERE / "fabric_program.py")
NAME = f"softhca-test-ethernet-{os.getpid()}"
TREE = "kind: ethernet\ngenerate: {kind: fat-tree, radix: 4}\n"
STAR = "kind: ethernet\nlink: 25G\nswitches: {s: 4}\nhosts: {a: 1, b: 1, c: 1}\n"
LINKS = "links: ['a[1] s[1]', 'b[1] s[2]', 'c[1] s[3] 1G']\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    file = tmp_path / "tree.yaml"
    file.write_text(TREE)
    return file


@pytest.fixture
def star(tmp_path: Path) -> Path:
    file = tmp_path / "star.yaml"
    file.write_text(STAR + LINKS)
    return file


def run(file: Path, *words: str, status: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "softhca", "run", "--link", f"fabric:{file}"]
    command += ["--fabric-name", NAME, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s(90), check=False,
                          env={**os.environ, **variables})  # fmt: skip
    assert done.returncode == status, done.stderr[-2000:]
    return done


def said(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return sorted(map(json.loads, done.stdout.splitlines()), key=lambda each: int(each["rank"]))


def test_a_program_writes_past_links_that_fail_and_hears_of_its_own(tree: Path) -> None:
    farther = (
        "import os, runpy, sys\n"
        "rank = int(os.environ['SOFTHCA_RANK'])\n"
        "if rank == 1:\n    sys.exit()\n"
        "os.environ['SOFTHCA_RANK'] = str(rank // 2)\n"  # hosts 0 and 2 are at two switches
        f"sys.argv = [{PROGRAM!r}, 'fail']\n"
        f"runpy.run_path({PROGRAM!r}, run_name='__main__')\n"
    )
    one, two = said(run(tree, "-n", "3", "--", sys.executable, "-c", farther))
    assert (one["layer"], one["state"], one["mtu"], one["lid"]) == (2, 4, 5, 0)
    assert one["gid"].startswith("0000:0000:0000:0000:0000:ffff:7f")
    assert one["events"] == [10, 9]  # PORT_ERR, PORT_ACTIVE
    assert one["states"] == [1, 4]
    assert one["statuses"] == [0] * 20
    assert two["right"]
    assert one["after"] > one["before"]  # past a link between switches that has failed


def test_adapter_processes_are_hosts_too_and_losses_are_made_good(star: Path) -> None:
    done = run(star, "-n", "2", "--faults", "loss=20%,seed=3", "--", sys.executable, PROGRAM, "nothing",
               SOFTHCA_ADAPTER="process")  # fmt: skip
    one, two = said(done)
    assert one["statuses"] == [0] * 20
    assert two["right"]
    assert "faults of rank 0 (a)" in done.stderr


def test_what_passes_is_captured_and_read_as_rocev2(star: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.pcapng"
    done = run(star, "-n", "2", "--capture", str(file), "--", sys.executable, str(EXAMPLES / "rc_write.py"))
    assert done.stdout == "b'hello, remote memory'\n"
    with file.open("rb") as stream:
        packets = [decode(each.data, each.link_type) for each in read_pcapng(stream)]
    names = [each.transport.opcode.name for each in packets if each is not None]
    # in this order; where the processors are busy, more than once
    assert list(dict.fromkeys(names)) == ["RC_RDMA_WRITE_ONLY", "RC_ACKNOWLEDGE"]
    assert all(each is not None and each.icrc_ok for each in packets)
    if shutil.which("tshark") is None:
        pytest.skip("not installed: tshark (Debian: tshark); the packets themselves are held above")
    told = subprocess.run(
        ["tshark", "-r", file, "-T", "fields", "-e", "frame.protocols", "-e", "infiniband.bth.opcode"],
        capture_output=True, text=True, check=True, timeout=limit_s(60),
    ).stdout  # fmt: skip
    lines = told.splitlines()
    assert list(dict.fromkeys(lines)) == ["raw:ip:udp:infiniband:data\t10", "raw:ip:udp:infiniband\t17"]
    assert len(lines) == len(packets)


CONGESTED = """
import json, os, runpy, sys
from softhca.runtime.fabric_control import ask
sys.argv = [{program!r}, "nothing"]
found = runpy.run_path({program!r}, run_name="__main__")
if found["rank"] == 0:
    counters = found["context"].query_counters(port=1)
    marked = ask(os.environ["SOFTHCA_FABRIC"], {{"do": "traffic", "link": "b[1]"}})["traffic"]["s[2]"]
    print(json.dumps({{"rank": 9, "marked": marked["marked_pkts"], **counters}}))
"""


def test_switches_mark_and_hosts_slow_down(tmp_path: Path) -> None:
    """Every packet is marked, so that what the peer's CNPs do does not hang on anybody's speed."""
    file = tmp_path / "marks.yaml"
    queues = "queues: {marking: {least: 0, most: 0, probability: 1}}\ncongestion: dcqcn\n"
    file.write_text(STAR + LINKS + queues)
    done = run(file, "-n", "2", "--", sys.executable, "-c", CONGESTED.format(program=PROGRAM))
    one, two, counted = said(done)
    assert one["statuses"] == [0] * 20
    assert two["right"]
    assert counted["marked"] > 0
    assert counted["transport_cnps_received"] > 0


def test_each_copy_s_address_is_that_of_its_host(star: Path) -> None:
    code = (
        "import ipaddress, os; from pyverbs import device;"
        "context = device.Context(name='softhca0'); own = os.environ['SOFTHCA_PEERS'].split(',');"
        "told = (ipaddress.ip_address(str(context.query_gid(1, 0))).ipv4_mapped,"
        " own[int(os.environ['SOFTHCA_RANK'])],"
        " os.environ['SIM_HOST'], os.environ.get('IBSIM_SOCKNAME'));"
        "os.write(1, (' '.join(map(str, told)) + chr(10)).encode())"  # in one piece
    )
    lines = run(star, "-n", "3", "--", sys.executable, "-c", code).stdout.splitlines()
    words = [line.split() for line in lines]
    assert all(gid == own for gid, own, _, _ in words)
    assert sorted(host for _, _, host, _ in words) == ["a", "b", "c"]
    assert {name for *_, name in words} == {"None"}


def test_devices_are_made_for_what_the_file_says(star: Path, tmp_path: Path) -> None:
    assert plan(f"fabric:{star}", 1, {}, "sim").devices == ["softhca0=fabric:sim/a"]
    file = tmp_path / "dcqcn.yaml"
    hosts = "kind: ethernet\nswitches: {s: 4}\nhosts: {a: 2, b: 1}\ncongestion: dcqcn\n"
    file.write_text(hosts + "links: ['a[1] s[1]', 'a[2] s[2]', 'b[1] s[3]']\n")
    found = plan(f"fabric:{file}", 2, {}, "sim")
    assert found.devices == [
        "softhca0=fabric:sim/a[1]+fabric:sim/a[2]?congestion=dcqcn", "softhca0=fabric:sim/b?congestion=dcqcn",
    ]  # fmt: skip
    peers, addresses = found.peers()
    assert len(addresses) == 3
    assert peers == [addresses[0], addresses[2]]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--manager"], "--manager goes with an InfiniBand fabric"),
        (["--listen", "127.0.0.1"], "--listen goes with an InfiniBand fabric"),
        (["--manager", "--partitions", "x"], "goes with an InfiniBand fabric"),
        (["--addresses", "here"], "'here' is no address"),
        (["--addresses", "224.0.0.1"], "no host's address"),
        (["--addresses", "10.0.0.1,10.0.0.1"], "the same address"),
        (["--addresses", "10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4"], "4 addresses for 3"),
    ],
)
def test_what_does_not_go_with_an_ethernet_is_refused(
    star: Path, words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fabric", "serve", str(star), *words]) == 2
    assert why in capsys.readouterr().err


def test_addresses_are_those_of_hosts() -> None:
    assert _gid("10.1.2.3") == bytes(10) + b"\xff\xff\x0a\1\2\3"
    assert _gid("fd00::1")[:2] == b"\xfd\0"
    with pytest.raises(UsageError, match="no host's address"):
        _gid("0.0.0.0")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--addresses", "10.0.0.1"], "--addresses goes with --manager"),
        (["--manager", "--addresses", "10.0.0.1,10.0.0.1"], "two ports would have the same one"),
        (["--manager", "--addresses", ",".join(f"10.0.0.{i}" for i in range(1, 18))], "17, and 16 ports"),
        (["--manager", "--addresses", "here"], "'here' is no address"),
    ],
)
def test_addresses_of_a_fabric_with_lids_are_its_manager_s(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fabric", "serve", "fat-tree:radix=4", *words]) == 2
    assert why in capsys.readouterr().err


def test_a_topology_that_is_not_there() -> None:
    assert main(["fabric", "routes", "no-such.yaml"]) == 1
