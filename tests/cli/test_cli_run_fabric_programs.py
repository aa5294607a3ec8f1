"""What programs meet on a fabric that `softhca run` serves: links that fail, groups, faults, ports, tools."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("scipy", reason="numpy and scipy: pip install 'softhca[fabric]'")

from served_fabric import HERE, NAME, PROGRAM, run, said

from softhca.cli import run_fabric
from softhca.fabric.generators import fat_tree
from softhca.fabric.topology_file import write_ibnetdiscover
from softhca.wire.packet import decode
from softhca.wire.pcapng import read_pcapng

EXAMPLES = HERE.parent.parent / "examples"
LIBRARY = next(iter(sorted(Path("/usr/lib").glob("*/umad2sim/libumad2sim.so"))), None)

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
