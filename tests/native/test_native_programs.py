"""Debian's programs of ibverbs-utils, unmodified, on the library and an adapter process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from native_world import LIMIT_S, SANITIZED, World, needs

from core_files import MOST_BYTES

# Not -t with -e: the program ends ("poll CQ failed") when an event finds its queue empty, as it does where
# the round before has taken the completion already; its peer's retries are exceeded then.
PINGPONGS = {
    "rc": ("ibv_rc_pingpong", "-g", "0", "-n", "60", "-c"),
    "rc-new-posting": ("ibv_rc_pingpong", "-g", "0", "-n", "60", "-c", "-N"),
    "rc-timestamps": ("ibv_rc_pingpong", "-g", "0", "-n", "60", "-t"),
    "rc-on-demand": ("ibv_rc_pingpong", "-g", "0", "-n", "60", "-c", "-o"),
    "rc-large": ("ibv_rc_pingpong", "-g", "0", "-n", "10", "-c", "-s", "1000003"),
    "rc-events": ("ibv_rc_pingpong", "-g", "0", "-n", "60", "-c", "-e"),
    "uc-events": ("ibv_uc_pingpong", "-g", "0", "-n", "60", "-c", "-e"),
    "ud-events": ("ibv_ud_pingpong", "-g", "0", "-n", "60", "-s", "1000", "-c", "-e"),
    "srq-events": ("ibv_srq_pingpong", "-g", "0", "-n", "60", "-c", "-q", "4", "-e"),
    "second-entry": ("ibv_rc_pingpong", "-g", "1", "-n", "60", "-c"),
    "uc-last-entry": ("ibv_uc_pingpong", "-g", "3", "-n", "60", "-c"),
    "ud-last-entry": ("ibv_ud_pingpong", "-g", "3", "-n", "60", "-s", "1000", "-c"),
    "uc": ("ibv_uc_pingpong", "-g", "0", "-n", "60", "-c"),
    "ud": ("ibv_ud_pingpong", "-g", "0", "-n", "60", "-s", "1000", "-c"),
    "srq": ("ibv_srq_pingpong", "-g", "0", "-n", "60", "-c", "-q", "4"),
}


def test_devices_are_listed(world):
    needs("ibv_devices")
    done = world.run("ibv_devices")
    assert done.returncode == 0
    assert re.search(r"^ +softhca0\s+0200[0-9a-f]{12}$", done.stdout, re.MULTILINE)


def test_what_a_device_is(world):
    needs("ibv_devinfo")
    done = world.run("ibv_devinfo", "-v")
    assert (done.returncode, done.stderr) == (0, "")
    found = {name.strip(): value.strip() for name, _, value in
             (line.partition(":") for line in done.stdout.splitlines())}  # fmt: skip
    assert found["transport"] == "InfiniBand (0)"
    assert found["atomic_cap"] == "ATOMIC_HCA (1)"
    assert found["state"] == "PORT_ACTIVE (4)"
    assert found["link_layer"] == "Ethernet"
    assert found["completion timestamp_mask"] == "0xffffffffffffffff"
    gids = re.findall(r"GID\[ *(\d+)\]:\t\t(::ffff:127\.\d+\.\d+\.\d+), RoCE v2", done.stdout)
    assert [int(index) for index, _ in gids] == [0, 1, 2, 3]  # only what is filled
    assert len({gid for _, gid in gids}) == 1


@pytest.mark.parametrize("filled", [1, 16])
def test_a_device_has_as_many_entries_as_it_is_told(libibverbs, filled):
    needs("ibv_devinfo")
    own = World(libibverbs, "*", f"?gids={filled}")
    try:
        found = re.findall(r"GID\[ *(\d+)\]:", own.run("ibv_devinfo", "-v").stdout)
    finally:
        own.end()
    assert [int(index) for index in found] == list(range(filled))


def test_no_devices_without_the_variable(world):
    needs("ibv_devices")
    assert "softhca" not in world.run("ibv_devices", SOFTHCA_DEVICES="").stdout
    absent = world.run("ibv_devices", SOFTHCA_DEVICES="other=unix:@softhca-nobody-listens,x,y=udp:127.0.0.2")
    assert absent.returncode == 0
    assert "other" not in absent.stdout
    assert "Connection refused" in absent.stderr


@pytest.mark.parametrize("kind", PINGPONGS)
def test_pingpong(world, kind, unused_port):
    needs(PINGPONGS[kind][0])
    server, client = world.pair(unused_port, *PINGPONGS[kind])
    iterations = PINGPONGS[kind][4]
    for said in (server, client):
        assert re.search(rf"^{iterations} iters in", said, re.MULTILINE), said
        assert "invalid data" not in said


@pytest.mark.parametrize("events", [(), ("-e",)], ids=["polling", "events"])
def test_xrc_pingpong(world, unused_port, events):
    needs("ibv_xsrq_pingpong")
    for said in world.pair(unused_port, "ibv_xsrq_pingpong", "-g", "0", *events):
        assert re.search(r"^success$", said, re.MULTILINE), said


def test_the_end_of_an_adapter_is_an_event_once(libibverbs):
    needs("ibv_asyncwatch", "stdbuf")
    own = World(libibverbs, "*")
    try:
        with subprocess.Popen(
            ["stdbuf", "-oL", "ibv_asyncwatch", "-d", "softhca0"],
            stdout=subprocess.PIPE, text=True, env=own.environment,
        ) as watcher:  # fmt: skip
            assert "async event FD" in watcher.stdout.readline()
            own.adapter.kill()
            said = watcher.stdout.read()
            assert watcher.wait(LIMIT_S) == 1  # the next one fails
    finally:
        own.adapter.kill()
        own.end()
    assert said.count("DEVICE_FATAL") == 1


OPENS = """
import ctypes, os, sys
sys.path.append(sys.argv[1])
from core_files import dumped_bytes
verbs = ctypes.CDLL(None)
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_open_device.argtypes, verbs.ibv_open_device.restype = [ctypes.c_void_p], ctypes.c_void_p
assert verbs.ibv_open_device(verbs.ibv_get_device_list(None)[0])
for _ in range(3):
    print(sum(dumped_bytes(os.getpid()).values()))
    block = bytearray(8 << 20)
"""


@pytest.mark.skipif(SANITIZED in os.environ, reason="there is no pool: the sanitizers' allocator comes first")
def test_a_core_file_has_of_the_pool_what_was_ever_given(world):
    done = world.run(sys.executable, "-c", OPENS, str(Path(__file__).parents[1]))
    assert done.returncode == 0, done.stderr
    opened, once, twice = map(int, done.stdout.split())
    assert opened < MOST_BYTES
    assert once >= opened + (8 << 20)
    assert once <= twice < MOST_BYTES + (32 << 20)


LOCKS = """
import ctypes, os, sys
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_open_device.restype = ctypes.c_void_p
verbs.ibv_open_device.argtypes = [ctypes.c_void_p]
locks = ctypes.CDLL(None, use_errno=True).mlockall
before = locks(2)
assert verbs.ibv_open_device(verbs.ibv_get_device_list(None)[0])
both = locks(3)
status = dict(line.split(":") for line in open("/proc/self/status"))
print(before, both, int(status["VmRSS"].split()[0]) >> 10, int(status["VmSize"].split()[0]) >> 20)
"""
"""In MiB and GiB."""


@pytest.mark.skipif(SANITIZED in os.environ, reason="the sanitizers have mappings that cannot be locked")
@pytest.mark.skipif(os.geteuid() != 0, reason="others may not lock so many addresses")
def test_a_program_that_locks_all_its_memory_locks_what_it_touches(world):
    done = world.run(sys.executable, "-c", LOCKS)
    assert done.returncode == 0, done.stderr
    before, both, resident, mapped = map(int, done.stdout.split())
    assert (before, both) == (0, 0)
    assert resident < 512 < mapped << 10
