"""Ethernet frames of raw packet queue pairs, with Linux's own VXLAN interface as the peer."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from machine_speed import limit_s

PROGRAM = Path(__file__).with_name("vxlan_program.py")
STATION = "02:00:00:00:77:02"


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    """Ours and the kernel's, joined by a cable, with a VXLAN interface in the latter."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces take root and ip (iproute2)")
    ours, theirs = (f"softhca-vxlan-{os.getpid()}-{secrets.token_hex(2)}" for _ in "12")
    words = [
        ("ip", "netns", "add", ours), ("ip", "netns", "add", theirs),
        ("ip", "-n", ours, "link", "set", "lo", "up"),
        ("ip", "-n", ours, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", theirs),
        ("ip", "-n", ours, "address", "add", "10.78.0.1/24", "dev", "cable"),
        ("ip", "-n", theirs, "address", "add", "10.78.0.2/24", "dev", "cable"),
        ("ip", "-n", ours, "link", "set", "cable", "up"), ("ip", "-n", theirs, "link", "set", "cable", "up"),
        ("ip", "-n", theirs, "link", "add", "segment", "address", STATION, "type", "vxlan", "id", "77",
         "local", "10.78.0.2", "remote", "10.78.0.1", "dstport", "4789", "dev", "cable"),
        ("ip", "-n", theirs, "address", "add", "10.79.0.2/24", "dev", "segment"),
        ("ip", "-n", theirs, "link", "set", "segment", "up"),
    ]  # fmt: skip
    try:
        for each in words:
            done = subprocess.run(each, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"no VXLAN interface in a network namespace: {' '.join(each)}: {done.stderr}")
        yield ours, theirs
    finally:
        for name in (ours, theirs):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


@pytest.mark.parametrize(("vni", "answers"), [(77, True), (78, False)])
def test_linux_answers_on_the_same_segment_alone(
    namespaces: tuple[str, str], vni: int, answers: bool
) -> None:
    seconds = limit_s(20) if answers else 1
    done = subprocess.run(
        ["ip", "netns", "exec", namespaces[0], sys.executable, str(PROGRAM), "10.79.0.2", str(seconds)],
        env=dict(os.environ, SOFTHCA_DEVICES=f"softhca0=udp:10.78.0.1?vni={vni}&vteps=10.78.0.2"),
        capture_output=True, text=True, timeout=limit_s(60),
    )  # fmt: skip
    assert done.stdout.strip() == (STATION if answers else "nobody answers"), done.stderr
