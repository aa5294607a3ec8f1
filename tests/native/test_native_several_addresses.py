"""Programs in C, Debian's own, at a port with several IP addresses."""

import re

import pytest
from native_world import LIMIT_S, LISTENS_NOT, World, await_listener, needs


@pytest.fixture(scope="module")
def places(loopback_address):
    """Two addresses of each of two adapter processes."""
    return [(loopback_address(), loopback_address()) for _ in range(2)]


@pytest.fixture(scope="module")
def worlds(libibverbs, places):
    made = [World(libibverbs, first, f"?addresses={second}") for first, second in places]
    yield made
    for each in made:
        each.close()


def test_devinfo_shows_each_address(worlds, places):
    needs("ibv_devinfo")
    said = worlds[0].run("ibv_devinfo", "-v").stdout
    shown = re.findall(r"GID\[ *(\d+)\]:\s+::ffff:([0-9.]+), RoCE v2", said)
    assert shown == [(str(index), places[0][index % 2]) for index in range(4)]


@pytest.mark.parametrize(("program", "options"), [
    ("ibv_rc_pingpong", ("-n", "50")),
    ("ibv_uc_pingpong", ("-n", "50")),
    ("ibv_ud_pingpong", ("-n", "50", "-s", "1000")),
])
@pytest.mark.parametrize("indexes", [(1, 0), (0, 1), (1, 1)])
def test_pingpong_between_any_two_addresses(worlds, unused_port, program, options, indexes):
    needs(program)
    server = worlds[0].start(program, *options, "-g", str(indexes[0]), "-p", str(unused_port))
    try:
        await_listener(unused_port, server)
        done = worlds[1].run(
            program, *options, "-g", str(indexes[1]), "-p", str(unused_port), "127.0.0.1"
        )
        said = server.communicate(timeout=LIMIT_S)[0]
    finally:
        server.kill()
        server.wait()
    assert done.returncode == 0, done.stdout + done.stderr
    assert server.returncode == 0, said
    assert "50 iters" in done.stdout


def test_an_index_that_is_not_there_is_refused(worlds, unused_port):
    """An address handle, and a queue pair's path, begin at an entry of the table alone."""
    needs("ibv_ud_pingpong")
    done = worlds[0].run("ibv_ud_pingpong", "-g", "4", "-p", str(unused_port), "127.0.0.1")
    assert done.returncode != 0


@pytest.mark.parametrize("own", [0, 1])
@pytest.mark.parametrize("peer", [0, 1])
def test_rping_binds_to_each_address(worlds, places, own, peer):
    needs("rping", "stdbuf")
    server = worlds[0].start("stdbuf", "-oL", "rping", "-s", "-a", places[0][peer], "-C", "3", "-v")
    try:
        for _ in range(100):
            done = worlds[1].run(
                "rping", "-c", "-a", places[0][peer], "-I", places[1][own], "-C", "3", "-v"
            )
            if not LISTENS_NOT.search(done.stdout + done.stderr):
                break
    finally:
        server.kill()
        said = server.communicate()[0]
    assert done.stdout.count("ping data: rdma-ping-") == 3, done.stdout + done.stderr + said


def test_rping_is_not_served_at_the_other_address(worlds, places):
    needs("rping")
    server = worlds[0].start("rping", "-s", "-a", places[0][1], "-C", "1")
    try:
        done = worlds[1].run("rping", "-c", "-a", places[0][0], "-C", "1")
    finally:
        server.kill()
        server.communicate()
    assert "ping data" not in done.stdout
    assert LISTENS_NOT.search(done.stdout + done.stderr), done.stdout + done.stderr
