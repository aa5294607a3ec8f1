"""Bursts that the kernel cuts: every datagram that leaves bears the identification that its ICRC covers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

_SENDER = """
import fcntl, os, struct, subprocess, sys
from softhca.links import paths
from softhca.links.roce_udp import RoceUdpLink, SENT
from softhca.wire.burst import Burst
from softhca.wire.framing import ROCE_V4
from softhca.wire.icrc import compute, of_packet
from softhca.wire.route import Route

tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH22x", b"cut0", 0x5002))  # a tap; virtio headers in front
fcntl.ioctl(tun, 0x400454D0, 1)  # it takes checksums that are not made yet
for line in ("link set cut0 up mtu 9000", "addr add 198.18.79.1/24 dev cut0",
             "neigh add 198.18.79.2 lladdr 02:00:00:00:00:02 dev cut0"):
    subprocess.run(["ip", *line.split()], check=True)
peer = bytes(10) + bytes((255, 255, 198, 18, 79, 2))
link = RoceUdpLink("198.18.79.1")
route = Route(ROCE_V4, link.gid, peer, source_port=link.source_port_for(1))

def burst_of(packets, counted):
    burst = Burst()
    burst.route, burst.counted, burst.packets, burst.stride = route, counted, packets, 4112
    for place in range(packets):
        n = 4112 if place + 1 < packets else 512
        at = burst.length
        burst.buffer[at : at + n - 4] = bytes((place,)) * (n - 4)
        route.identification = place if counted else 0
        icrc = compute(route, burst.address + at, n - 4)
        burst.buffer[at + n - 4 : at + n] = icrc.to_bytes(4, "little")
        burst.length += n
    return burst

print(paths.cutting(link.gid[12:], peer[12:]) == paths.COUNTING)
print(link.send(burst_of(4, False)) == SENT, link.send_calls)
print(link.send(burst_of(16, True)) == SENT, link.send_calls)
while True:
    try:
        frame = os.read(tun, 70_000)[10:]
    except BlockingIOError:
        break
    if frame[12:14] != b"\\x08\\x00":
        continue
    packet = frame[14:]
    good = of_packet(ROCE_V4, packet[:28], packet[28:-4]) == int.from_bytes(packet[-4:], "little")
    print(int.from_bytes(packet[4:6], "big"), len(packet) - 28, good)
"""


def test_datagrams_of_a_burst_that_the_kernel_cuts_have_right_icrcs() -> None:
    """In a network namespace of its own, over a tap that does not cut; the wire is read at the tap's end."""
    alone = ["unshare", "--map-root-user", "--net"]
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("needs unshare (util-linux) and ip (iproute2)")
    probe = [*alone, "sh", "-c", "ip tuntap add cut1 mode tap"]
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        pytest.skip("this user cannot make a tap in a network namespace")
    environment = os.environ | {"PYTHONPATH": ":".join(sys.path)}
    command = [*alone, sys.executable, "-c", _SENDER]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    lines = done.stdout.splitlines()
    assert lines[:3] == ["True", "True 4", "True 5"]  # datagram by datagram at first, then in one call
    plain, counted = lines[3:7], lines[7:]
    assert plain == ["0 4112 True"] * 3 + ["0 512 True"]
    assert counted == [f"{place} 4112 True" for place in range(15)] + ["15 512 True"]
