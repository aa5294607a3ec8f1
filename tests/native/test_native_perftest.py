"""Debian's perftest, unmodified, on the library and an adapter process."""

import re

import pytest
from native_world import needs

ONE = {
    "write-bw-8-MiB": ("ib_write_bw", "-n", "5", "-s", "8388608"),
    "write-bw-both-ways": ("ib_write_bw", "-n", "20", "-b", "-q", "4"),
    "write-lat": ("ib_write_lat", "-n", "40"),
    "send-bw-events": ("ib_send_bw", "-n", "40", "-e", "-q", "2"),
    "send-bw-shared-receives": ("ib_send_bw", "-n", "40", "--use-srq", "-q", "2"),
    "send-lat-inline": ("ib_send_lat", "-n", "40", "-s", "64", "-I", "128"),
    "read-bw": ("ib_read_bw", "-n", "40"),
    "atomic-cas": ("ib_atomic_lat", "-n", "40", "-A", "CMP_AND_SWAP"),
    "uc-write": ("ib_write_bw", "-n", "40", "-c", "UC"),
    "ud-send": ("ib_send_lat", "-n", "40", "-c", "UD", "-s", "1024"),
    "xrc-send": ("ib_send_bw", "-n", "40", "-c", "XRC", "-q", "2"),
}
COMMON = ("--output=bandwidth",), ("--output=latency",)
"""Only the figure, without a look at the machine's PCI bus."""


@pytest.mark.parametrize("kind", ONE)
def test_one_size(world, kind, unused_port):
    needs(ONE[kind][0])
    output = COMMON["_lat" in ONE[kind][0]]
    _, said = world.pair(unused_port, *ONE[kind], *output, "-F")
    assert re.search(r"^\d+\.\d+$", said, re.MULTILINE), said


@pytest.mark.parametrize("program", ["raw_ethernet_bw", "raw_ethernet_lat", "raw_ethernet_fs_rate"])
@pytest.mark.parametrize("side", ["--client", "--server"])
def test_raw_ethernet_ends_at_its_queue_pair(world, program, side):
    needs(program)
    done = world.run(program, side, "-B", "02:00:00:00:00:01", "-E", "02:00:00:00:00:02")
    assert done.returncode == 1
    assert "Unable to create QP." in done.stdout + done.stderr
