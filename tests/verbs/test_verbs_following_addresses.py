"""Ports that have all addresses of their interfaces: their tables follow what the kernel says of these."""

import errno
import ipaddress
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from machine_speed import limit_s
from network_namespace import PAIR, Namespace
from softhca.runtime import same_host_limits

LEFT, RIGHT = "10.99.0.2", "10.98.0.2"
NEW, SIX, OTHER = "10.99.1.2", "fd99::9", "10.99.2.2"
GID_CHANGE = 18
RETRIES_EXCEEDED = 12
NONE = ":".join(["0000"] * 8)


def gid(address):
    packed = ipaddress.ip_address(address)
    if packed.version == 4:
        packed = ipaddress.ip_address(f"::ffff:{address}")
    return packed.exploded


class Program:
    """The program, which runs in ``namespace``."""

    def __init__(self, namespace, mode, same_host):
        self.namespace = namespace
        program = Path(__file__).with_name("following_addresses_program.py")
        self.process = subprocess.Popen(
            [*namespace.prefix, sys.executable, str(program), mode, str(same_host), LEFT, RIGHT],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
        assert self.process.stdout.readline() == "ready\n"

    def do(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def change(self, what, address, *further, device="here"):
        """Have the kernel change an address; the table that the program finds behind the event."""
        bits = 128 if ":" in address else 32
        self.namespace.ip("address", what, f"{address}/{bits}", "dev", device, *further)
        kind, table = self.do("event", "left" if device == "here" else "right")
        assert kind == GID_CHANGE
        return table

    def ends(self):
        """Whether it ends by itself, and well."""
        self.process.communicate(timeout=limit_s(60))
        return self.process.returncode == 0


@pytest.fixture
def namespace():
    with Namespace(PAIR) as made:
        for address, device in ((LEFT, "here"), (RIGHT, "there")):
            made.ip("address", "add", f"{address}/32", "dev", device)
        yield made


@pytest.fixture
def start(namespace):
    made = []

    def program(mode, same_host=0):
        made.append(Program(namespace, mode, same_host))
        return made[-1]

    yield program
    for each in made:
        each.process.kill()
        each.process.communicate()


modes = pytest.mark.parametrize("mode", ["embedded", "process"])


@modes
def test_an_address_comes_and_goes_and_no_other_index_changes(start, mode):
    program = start(mode)
    before = [gid(LEFT)] * 4
    assert program.do("table", "left") == before
    assert program.change("add", NEW) == [*before, gid(NEW)]
    assert program.change("add", SIX, "nodad") == [*before, gid(NEW), gid(SIX)]
    assert program.do("handle", 4, RIGHT) == 0
    program.do("connect", NEW, RIGHT, 4, 0)
    assert program.do("send") == [0, "hello"]
    assert program.change("del", NEW) == [*before, NONE, gid(SIX)]
    assert program.do("handle", 4, RIGHT) == errno.EINVAL
    assert program.do("send") == [RETRIES_EXCEEDED, "empty"]
    assert program.change("add", OTHER) == [*before, NONE, gid(SIX), gid(OTHER)]
    assert program.change("add", NEW) == [*before, gid(NEW), gid(SIX), gid(OTHER)]
    program.do("connect", NEW, RIGHT, 4, 0)
    assert program.do("send") == [0, "hello"]
    assert program.ends()


@modes
def test_a_connection_outlives_its_address_that_goes_and_comes_back(start, mode):
    program = start(mode)
    program.do("connect", LEFT, RIGHT, 0, 0)
    assert program.do("send") == [0, "hello"]
    assert program.change("del", LEFT) == []
    assert program.change("add", LEFT) == [gid(LEFT)] * 4
    assert program.do("send") == [0, "hello"]
    assert program.change("del", RIGHT, device="there") == []
    assert program.change("add", RIGHT, device="there") == [gid(RIGHT)] * 4
    assert program.do("send") == [0, "hello"]
    assert program.ends()


def test_a_port_without_its_first_address_works_by_the_others(start):
    program = start("embedded")
    program.change("add", NEW)
    program.change("del", LEFT)
    assert program.do("table", "left") == [*[NONE] * 4, gid(NEW)]
    program.do("connect", NEW, RIGHT, 4, 0)
    assert program.do("send") == [0, "hello"]
    assert program.change("del", NEW) == []
    assert program.do("handle", 0, RIGHT) == errno.EINVAL
    assert program.change("add", OTHER) == [*[NONE] * 5, gid(OTHER)]
    assert program.ends()


def test_an_address_that_is_probed_for_waits_until_it_can_be_used(start, namespace):
    program = start("embedded")
    assert program.change("add", SIX) == [*[gid(LEFT)] * 4, gid(SIX)]
    show = [*namespace.prefix, "ip", "-o", "address", "show", "dev", "here"]
    shown = subprocess.run(show, capture_output=True, text=True, check=True).stdout
    # the link-local one may be, still
    assert ["tentative" in line for line in shown.splitlines() if f"{SIX}/128" in line] == [False]
    program.namespace.ip("address", "add", "fd99::a/128", "dev", "here", "preferred_lft", "0", "nodad")
    assert program.do("event", "left")[1][5] == gid("fd99::a")
    assert program.ends()


@modes
def test_rdma_cm_binds_to_the_addresses_that_there_are(start, mode):
    program = start(mode)
    assert program.do("cm", LEFT, RIGHT) == 0
    assert program.do("cm", NEW, RIGHT) == errno.EADDRNOTAVAIL
    program.change("add", NEW)
    assert program.do("cm", NEW, RIGHT) == 0
    program.change("add", OTHER, device="there")
    assert program.do("cm", NEW, OTHER) == 0
    program.change("del", NEW)
    assert program.do("cm", NEW, RIGHT) == errno.EADDRNOTAVAIL
    assert program.do("cm", LEFT, OTHER) == 0
    assert program.ends()


def test_a_flood_of_changes_ends_in_the_table_that_there_is(start, namespace):
    program = start("embedded")
    words = "".join(f"address {what} {NEW}/32 dev here\n" for what in ["add", "del"] * 500 + ["add"])
    flood = subprocess.run(
        [*namespace.prefix, "ip", "-batch", "-"], input=words, text=True, capture_output=True, check=True
    )
    assert flood.returncode == 0
    wanted = [*[gid(LEFT)] * 4, gid(NEW)]
    events = 0
    while program.do("table", "left") != wanted:
        assert program.do("event", "left")[0] == GID_CHANGE
        events += 1
    assert events <= 100
    program.do("connect", NEW, RIGHT, 4, 0)
    assert program.do("send") == [0, "hello"]
    assert program.ends()


@pytest.mark.skipif(bool(same_host_limits.unsupported()), reason="no same-host paths here")
def test_memory_is_shared_from_an_address_that_comes_and_not_from_one_that_has_gone(start):
    program = start("embedded", same_host=1)
    program.change("add", NEW)
    program.do("connect", NEW, RIGHT, 4, 0)
    assert program.do("write") is True
    assert program.change("del", NEW) == [gid(LEFT)] * 4
    assert program.do("put") == RETRIES_EXCEEDED
    program.change("add", NEW)
    program.do("connect", NEW, RIGHT, 4, 0)
    assert program.do("write") is True
    program.change("del", RIGHT, device="there")
    assert program.do("send") == [RETRIES_EXCEEDED, "empty"]
    assert program.ends()
