"""A program in C at a port that has all addresses of its interface hears when these change."""

import errno
import subprocess

import pytest
from native_world import LIMIT_S, World, compiled_client

from network_namespace import PAIR, Namespace

FIRST, NEW, SIX = "10.99.0.2", "10.99.1.2", "fd99::9"
PEER = "::ffff:10.99.0.77"
GID_CHANGE = 18
REPEATED = " ".join(f"{index}=::ffff:{FIRST}" for index in range(4))


@pytest.fixture
def namespace():
    with Namespace(f"{PAIR} && ip address add {FIRST}/32 dev here") as made:
        yield made


@pytest.fixture
def world(libibverbs, namespace):
    made = World(libibverbs, FIRST, "?addresses=all", prefix=namespace.prefix)
    yield made
    made.close()


@pytest.fixture
def ask(world, libibverbs, tmp_path):
    program = world.start(str(compiled_client(libibverbs, tmp_path, "gid_client")), stdin=subprocess.PIPE)

    def line(*words):
        program.stdin.write(" ".join(map(str, words)) + "\n")
        program.stdin.flush()
        while (said := program.stdout.readline().strip()).startswith("softhca: "):
            pass  # why something was refused
        return said

    assert program.stdout.readline() == "ready\n"
    yield line
    program.communicate(timeout=LIMIT_S)
    assert program.returncode == 0


def test_it_hears_of_addresses_and_finds_them_where_they_were(namespace, ask):
    def change(what, address, *further):
        bits = 128 if ":" in address else 32
        namespace.ip("address", what, f"{address}/{bits}", "dev", "here", *further)
        assert ask("event") == f"{GID_CHANGE} 1"
        return ask("table")

    assert ask("table") == f"4 {REPEATED}"
    assert change("add", NEW) == f"5 {REPEATED} 4=::ffff:{NEW}"
    assert change("add", SIX, "nodad") == f"6 {REPEATED} 4=::ffff:{NEW} 5={SIX}"
    assert ask("handle", 4, PEER) == "0"
    assert change("del", NEW) == f"6 {REPEATED} 5={SIX}"
    assert ask("handle", 4, PEER) == str(errno.EINVAL)
    assert ask("handle", 0, PEER) == "0"
    assert change("del", FIRST) == f"6 5={SIX}"
    assert change("del", SIX) == "1"
    assert change("add", NEW) == f"5 4=::ffff:{NEW}"
    assert ask("handle", 4, PEER) == "0"


def test_rdma_cm_binds_to_the_addresses_that_there_are(namespace, ask):
    def change(what, address):
        namespace.ip("address", what, f"{address}/32", "dev", "here")
        assert ask("event") == f"{GID_CHANGE} 1"

    assert ask("bind", FIRST) == "0"
    assert ask("bind", NEW) == str(errno.EADDRNOTAVAIL)
    change("add", NEW)
    assert ask("bind", NEW) == "0"
    change("del", NEW)
    assert ask("bind", NEW) == str(errno.EADDRNOTAVAIL)
    assert ask("bind", FIRST) == "0"
    change("del", FIRST)
    assert ask("bind", FIRST) == str(errno.EADDRNOTAVAIL)
    change("add", FIRST)
    change("add", NEW)
    assert [ask("bind", each) for each in (FIRST, NEW)] == ["0", "0"]
