"""`softhca run --link fabric:TOPOLOGY`: copies are hosts of a fabric that is served while they run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy", reason="numpy and scipy: pip install 'softhca[fabric]'")

from machine_speed import limit_s
from softhca.cli import run_fabric
from softhca.cli.errors import CommandError, UsageError
from softhca.cli.main import main
from softhca.fabric.generators import fat_tree
from softhca.fabric.topology_file import write_ibnetdiscover
from softhca.runtime import listening_name, umad_server
from softhca.wire.packet import decode
from softhca.wire.pcapng import read_pcapng

HERE = Path(__file__).parent
EXAMPLES = HERE.parent.parent / "examples"
PROGRAM = str(HERE / "fabric_program.py")
NAME = f"softhca-test-run-{os.getpid()}"
TREE = "fabric:fat-tree:radix=4"
LIBRARY = next(iter(sorted(Path("/usr/lib").glob("*/umad2sim/libumad2sim.so"))), None)


def run(*words: str, link: str = TREE, status: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "softhca", "run", "--link", link, "--fabric-name", NAME, *words]
    environment = {**os.environ, **variables}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=limit_s(90), env=environment, check=False
    )
    assert done.returncode == status, done.stderr[-2000:]
    return done


def said(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """What both copies of the program say, by rank."""
    return sorted(map(json.loads, done.stdout.splitlines()), key=lambda each: int(each["rank"]))


def test_programs_with_adapter_processes_see_lids_and_write_by_them() -> None:
    done = run("-n", "2", "--", sys.executable, PROGRAM, "nothing", SOFTHCA_ADAPTER="process")
    one, two = said(done)
    assert (one["host"], two["host"]) == ("h0", "h1")
    assert one["lid"] != two["lid"]
    assert min(one["lid"], two["lid"], one["sm_lid"]) > 0
    assert one["sm_lid"] == two["sm_lid"]
    assert (one["layer"], one["state"], one["mtu"]) == (1, 4, 5)  # InfiniBand, ACTIVE, 4096
    assert one["gid"].startswith("fe80:")
    assert one["gid"] != two["gid"]
    assert one["statuses"] == [0] * 20
    assert two["right"]


FARTHER = """
import os, runpy, sys
rank = int(os.environ["SOFTHCA_RANK"])
if rank == 1:
    sys.exit()
os.environ["SOFTHCA_RANK"] = str(rank // 2)  # hosts 0 and 2 are at two switches
sys.argv = ["{program}", "fail"]
runpy.run_path("{program}", run_name="__main__")
"""


def test_links_fail_and_come_back_under_a_program() -> None:
    one, two = said(run("-n", "3", "--", sys.executable, "-c", FARTHER.format(program=PROGRAM)))
    assert one["events"] == [10, 9]  # PORT_ERR, PORT_ACTIVE: its own link
    assert one["states"] == [1, 4]
    assert one["statuses"] == [0] * 20
    assert two["right"]
    assert one["after"] - one["before"] >= 10 * 5  # past a link between switches that has failed


def test_hosts_connect_by_rdma_cm_along_what_subnet_administration_says(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    nodes = "switches: {s: 4, t: 4}\nhosts: {a: 1, b: 1}\n"
    file.write_text(f"{nodes}links: ['a[1] s[1]', 'b[1] t[1]', 's[3] t[3]', 's[4] t[4]']\n")
    program = str(HERE / "fabric_cm_program.py")
    one, two = said(run("-n", "2", "--", sys.executable, program, link=f"fabric:{file}"))
    assert (one["got"], two["got"]) == (["first", "other", "third"], ["FIRST", "OTHER", "THIRD"])
    assert two["refused"] == ["EHOSTUNREACH", "ENETUNREACH"]  # nobody of the subnet, and another subnet
    assert two["by_other"] > 0  # past the link that has failed
    assert one["lid"] != two["lid"]


def test_hosts_join_a_group_and_hear_what_is_sent_to_it() -> None:
    done = run("-n", "3", "--", sys.executable, str(HERE / "fabric_group_program.py"))
    assert sorted(done.stdout.splitlines()) == ["1 hello all", "2 hello all"]


def test_hosts_join_an_ip_group_by_rdma_cm_and_leave_it() -> None:
    done = run("-n", "3", "--", sys.executable, str(HERE / "fabric_join_program.py"))
    assert sorted(done.stdout.splitlines()) == ["1 first", "1 later", "2 first"]


def test_the_example_runs_with_faults_and_a_capture_and_the_fabric_goes_with_it(tmp_path: Path) -> None:
    file = tmp_path / "a.pcapng"
    words = ("-n", "2", "--capture", str(file), "--faults", "delay=1ms,seed=1")
    done = run(*words, "--", sys.executable, str(EXAMPLES / "rc_write.py"))
    assert done.stdout == "b'hello, remote memory'\n"
    assert "faults of rank 0 (h0)" in done.stderr
    assert not run_fabric.is_taken("@" + run_fabric.socket_name(NAME)[1:])
    with file.open("rb") as stream:
        packets = [decode(each.data, each.link_type) for each in read_pcapng(stream)]
    names = [each.transport.opcode.name for each in packets if each is not None]
    # in this order; where the processors are busy, more than once
    assert list(dict.fromkeys(names)) == ["RC_RDMA_WRITE_ONLY", "RC_ACKNOWLEDGE"]
    assert all(each is not None and each.icrc_ok and each.vcrc_ok for each in packets)


@pytest.mark.parametrize(
    ("copies", "link", "why"),
    [
        (17, TREE, "17 copies, and fat-tree:radix=4 has 16 hosts"),
        (1, "fabric:fat-tree:radix=5", "radix"),
        (1, "fabric:/nowhere.topo", "nowhere.topo"),
    ],
)
def test_what_cannot_be_is_told(copies: int, link: str, why: str) -> None:
    with pytest.raises(CommandError, match=why):
        run_fabric.plan(link, copies, {})


def test_hosts_whose_names_no_device_can_have_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("switches:\n  s: 2\nhosts:\n  'a host': 1\nlinks:\n  - a host[1] s[1]\n")
    with pytest.raises(UsageError, match="'sim/a host' is no host"):
        run_fabric.plan(f"fabric:{file}", 1, {}, "sim")


def test_only_hosts_with_a_link_are_given(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    nodes = "switches: {s: 2}\nhosts: {a: 1, b: 1, c: 1}\n"
    file.write_text(f"{nodes}links:\n  - a[1] s[1]\n  - c[1] s[2]\n")
    assert run_fabric.plan(f"fabric:{file}", 2, {}, "sim").devices == [
        "softhca0=fabric:sim/a", "softhca0=fabric:sim/c",
    ]  # fmt: skip


def test_a_host_s_device_has_all_its_ports_that_have_a_link(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    nodes = "switches: {s: 4, t: 2}\nhosts: {a: 3, b: 2}\n"
    links = "links:\n  - a[1] s[1]\n  - a[3] t[1]\n  - b[1] s[2]\n  - b[2] t[2]\n"
    file.write_text(nodes + links)
    assert run_fabric.plan(f"fabric:{file}", 2, {}, "sim").devices == [
        "softhca0=fabric:sim/a[1]+fabric:sim/a[3]", "softhca0=fabric:sim/b[1]+fabric:sim/b[2]",
    ]  # fmt: skip


def test_programs_write_from_each_port_to_each(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    nodes = "switches: {s: 4}\nhosts: {a: 2, b: 2}\n"
    file.write_text(f"{nodes}links:\n  - a[1] s[1]\n  - a[2] s[2]\n  - b[1] s[3]\n  - b[2] s[4]\n")
    program = str(HERE / "fabric_ports_program.py")
    one, two = said(run("-n", "2", "--", sys.executable, program, link=f"fabric:{file}"))
    lids = [*one["lids"], *two["lids"]]
    assert (len(set(lids)), min(lids) > 0, one["states"] + two["states"]) == (4, True, [4] * 4)
    assert len({*one["gids"], *two["gids"]}) == 4
    assert two["seen"] == [[1, 1], [1, 2], [2, 1], [2, 2]]


def test_links_that_there_are_not_are_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    for words, why in (
        (["--link", "ring"], "ring"),
        (["--link", "fabric:"], "which fabric?"),
        (["--link", "udp", "--fabric-name", "x"], "--fabric-name"),
        (["--partitions", "x"], "--partitions"),
    ):
        with suppress(SystemExit):  # argparse's
            assert main(["run", *words, "--", "true"]) == 2
        assert why in capsys.readouterr().err


def test_devices_of_the_user_s_own_do_not_go_with_it() -> None:
    with pytest.raises(UsageError, match="SOFTHCA_DEVICES"):
        run_fabric.plan(TREE, 2, {"SOFTHCA_DEVICES": "a=udp:*"})


def test_perf_has_one_end_at_each_host(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOFTHCA_DEVICES", "softhca0=fabric:sim/h0")
    assert main(["perf", "write-lat"]) == 2
    assert "--listen in one copy" in capsys.readouterr().err


def test_the_usual_name_is_that_which_tools_look_for() -> None:
    assert run_fabric.DEFAULT_NAME == umad_server.DEFAULT_NAME


def test_a_name_that_is_taken_is_told_and_the_usual_one_avoided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_fabric, "DEFAULT_NAME", NAME)
    assert run_fabric.plan(TREE, 1, {}).name == NAME
    taken = listening_name.take("@" + run_fabric.socket_name(NAME)[1:])
    assert taken is not None
    with taken:
        assert run_fabric.plan(TREE, 1, {}).name == f"{NAME}-{os.getpid()}"
        assert "in use" in run("--", "true", status=1).stderr


@pytest.mark.skipif(
    LIBRARY is None or shutil.which("iblinkinfo", path="/usr/sbin:/usr/bin") is None,
    reason="not installed: iblinkinfo, libumad2sim.so (Debian: infiniband-diags ibsim-utils)",
)
def test_tools_of_libibumad_see_the_fabric_that_programs_run_on(tmp_path: Path) -> None:
    code = (
        "import os, subprocess; told = ('SIM_HOST', 'SOFTHCA_DEVICES', 'IBSIM_SOCKNAME'); "
        "print(*map(os.environ.get, told)); "
        "print(subprocess.run(['/usr/sbin/iblinkinfo', '--line'], capture_output=True, "
        f"text=True, env={{**os.environ, 'LD_PRELOAD': {str(LIBRARY)!r}}}).stdout)"
    )
    file = tmp_path / "a.topo"
    file.write_text(write_ibnetdiscover(fat_tree(4)))
    names = [f"H-{node.guid:016x}" for node in fat_tree(4).nodes if not node.is_switch]
    done = run("--", sys.executable, "-c", code, link=f"fabric:{file}")
    assert done.stdout.startswith(f"{names[0]} softhca0=fabric:{NAME}/{names[0]} {NAME}\n")
    lines = [line for line in done.stdout.splitlines() if "==>" in line]
    assert len(lines) == 96  # both ends of 48 links
    assert all("Active/  LinkUp" in line for line in lines)
