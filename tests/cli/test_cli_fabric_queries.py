"""Programs that run on a fabric ask our manager's subnet administration by datagram: all of them, be the
manager at a switch, or at the port of one of them, where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from machine_speed import limit_s

pytest.importorskip("scipy", reason="numpy and scipy: pip install 'softhca[fabric]'")


def test_all_programs_ask_for_their_path_to_the_manager_and_have_p_keys(tmp_path: Path) -> None:
    file = tmp_path / "partitions.conf"
    file.write_text("Default=0x7fff:ALL=full; Storage=0x12:h0=full,h1;")
    program = str(Path(__file__).with_name("fabric_query.py"))
    command = [sys.executable, "-m", "softhca", "run", "-n", "2", "--partitions", str(file)]
    command += ["--link", "fabric:fat-tree:radix=4,levels=2", "--", sys.executable, program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s(60), check=True)
    told = sorted(map(json.loads, done.stdout.splitlines()), key=lambda each: int(each["rank"]))
    assert [each["rank"] for each in told] == ["0", "1"]
    for each, keys in zip(told, ([0xFFFF, 0x8012], [0xFFFF, 0x0012]), strict=True):
        path = each["path"]
        assert (each["status"], path["slid"], path["mtu"], path["rate"]) == (0, each["lid"], 5, 17)
        assert path["dlid"] not in (0, each["lid"])
        assert each["pkeys"] == keys


def test_the_host_asks_at_whose_port_the_manager_is(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text("hosts: {h0: 1, h1: 1}\nlinks:\n  - h0[1] h1[1]\n")
    program = str(Path(__file__).with_name("fabric_query.py"))
    command = [sys.executable, "-m", "softhca", "run", "-n", "2", "--link", f"fabric:{file}"]
    command += ["--", sys.executable, program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s(60), check=True)
    told = sorted(map(json.loads, done.stdout.splitlines()), key=lambda each: int(each["rank"]))
    for each in told:
        path = each["path"]
        assert (each["status"], path["slid"], path["mtu"], path["rate"]) == (0, each["lid"], 5, 17)
        assert path["dlid"] == told[0]["lid"]
