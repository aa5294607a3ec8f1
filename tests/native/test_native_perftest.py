"""Debian's perftest, unmodified, on the library and an adapter process."""

import re
import subprocess

import pytest
from native_world import LIMIT_S, needs

ONE = {
    "write-bw-8-MiB": ("ib_write_bw", "-n", "5", "-s", "8388608"),
    "write-bw-both-ways": ("ib_write_bw", "-n", "20", "-b", "-q", "4"),
    "write-bw-last-entry": ("ib_write_bw", "-n", "20", "-x", "3"),
    "send-lat-ud-second-entry": ("ib_send_lat", "-n", "40", "-c", "UD", "-x", "1"),
    "write-lat": ("ib_write_lat", "-n", "40"),
    "write-bw-all-sizes": ("ib_write_bw", "-n", "5", "-a"),
    "write-bw-for-a-second": ("ib_write_bw", "-D", "1"),
    "send-bw-events": ("ib_send_bw", "-n", "40", "-e", "-q", "2"),
    "send-bw-shared-receives": ("ib_send_bw", "-n", "40", "--use-srq", "-q", "2"),
    "send-lat-inline": ("ib_send_lat", "-n", "40", "-s", "64", "-I", "128"),
    "send-bw-eight-both-ways": ("ib_send_bw", "-n", "40", "-b", "-q", "8", "-s", "9999"),
    "read-bw": ("ib_read_bw", "-n", "40"),
    "read-lat": ("ib_read_lat", "-n", "40"),
    "atomic-add-bw": ("ib_atomic_bw", "-n", "40"),
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
    # perftest looks how fast the processor is; where others use that it finds nothing, and says inf
    assert re.search(r"^(\d+\.\d+|inf)$", said, re.MULTILINE), said


SERVER, CLIENT = "02:00:00:00:00:02", "02:00:00:00:00:01"
RAW = {
    "bw": ("raw_ethernet_bw", "-s", "512", "-n", "200"),
    "bw-udp": ("raw_ethernet_bw", "-s", "1024", "-n", "200", "-J", "10.0.0.2", "-j", "10.0.0.1",
               "-K", "2000", "-k", "3000"),
    "lat": ("raw_ethernet_lat", "-s", "64", "-n", "50"),
}  # fmt: skip


@pytest.mark.parametrize("kind", RAW)
@pytest.mark.parametrize("adapters", [1, 2])
def test_raw_ethernet_frames_reach_the_server(world, other, kind, adapters):
    """The server says that its rule is in force before the client is started: nothing sends a frame again."""
    program, *options = RAW[kind]
    needs(program, "stdbuf")
    server = raw_server(world, program, *options)
    try:
        said = "".join(iter_until(server.stdout, "#bytes"))
        peer = world if adapters == 1 else other
        done = peer.run(program, "--client", "-B", CLIENT, "-E", SERVER, *options)
        assert done.returncode == 0, done.stdout + done.stderr
        said += server.communicate(timeout=LIMIT_S)[0]
    finally:
        server.kill()
        server.wait()
    assert server.returncode == 0, said
    assert re.search(rf"^ {options[1]} +{options[3]} ", said, re.MULTILINE), said


def iter_until(lines, word):
    """Lines up to the first one with ``word``."""
    for line in lines:
        yield line
        if word in line:
            return


def test_raw_ethernet_rules_are_made_and_ended_one_after_the_other(world):
    needs("raw_ethernet_fs_rate")
    done = world.run("raw_ethernet_fs_rate", "--server", "-B", SERVER, "-E", CLIENT, "-n", "50")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^50 +\d", done.stdout, re.MULTILINE)


PACED = ("--rate_limit=1", "--rate_units=M", "--rate_limit_type=PP")
"""1 MiB/s."""


def test_paced_raw_ethernet_is_no_faster_than_its_limit(world, other):
    """Whoever is late makes it slower, and nothing makes it faster but what may leave at once."""
    program, options = "raw_ethernet_bw", ("-s", "512", "-n", "200", *PACED)
    needs(program, "stdbuf")
    server = raw_server(world, program, *options)
    try:
        said = "".join(iter_until(server.stdout, "#bytes"))
        done = other.run(program, "--client", "-B", CLIENT, "-E", SERVER, *options)
        assert done.returncode == 0, done.stdout + done.stderr
        said += server.communicate(timeout=LIMIT_S)[0]
    finally:
        server.kill()
        server.wait()
    assert server.returncode == 0, said
    found = re.search(r"^ 512 +200 +\S+ +(\S+) ", done.stdout, re.MULTILINE)
    assert found, done.stdout
    assert 0 < float(found[1]) < 1.1


def test_bursts_of_raw_ethernet_come_back(world, other):
    """The server expects more than comes: it would not wait until its last answers have left.  It says that
    it is there a moment before it is, and nothing sends a frame again, so a client may have to be started
    once more.
    """
    program, options = "raw_ethernet_burst_lat", ("-s", "64", "--burst_size=16", "-Q", "1", *PACED)
    needs(program, "stdbuf")
    server = raw_server(world, program, *options, "-n", "5000")
    try:
        "".join(iter_until(server.stdout, "#bytes"))
        client = [program, "--client", "-B", CLIENT, "-E", SERVER, *options, "-n", "100"]
        for _ in range(3):
            running = other.start(*client)
            try:
                said = running.communicate(timeout=LIMIT_S / 3)[0]
                break
            except subprocess.TimeoutExpired:
                running.kill()
                running.communicate()
    finally:
        server.kill()
        server.communicate()
    assert running.returncode == 0, said
    assert re.search(r"^ *64 +100 +\d", said, re.MULTILINE), said


def raw_server(world, program, *options):
    """A server of frames, whose output comes line by line."""
    return subprocess.Popen(
        ["stdbuf", "-oL", program, "--server", "-B", SERVER, "-E", CLIENT, *options],
        env=world.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
