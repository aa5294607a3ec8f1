"""`softhca run --link fabric:TOPOLOGY`: copies are hosts of a fabric that is served while they run."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("scipy", reason="numpy and scipy: pip install 'softhca[fabric]'")

from served_fabric import HERE, NAME, PROGRAM, TREE, run, said

from softhca.cli import run_fabric
from softhca.cli.errors import CommandError, UsageError
from softhca.cli.main import main
from softhca.runtime import listening_name, umad_server


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
