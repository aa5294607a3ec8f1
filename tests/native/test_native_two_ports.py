"""Programs in C, Debian's own, at devices with two ports.

Each port by its number, both at once, and RDMA CM by the address of each.
"""

import re

import pytest
from native_world import LIMIT_S, LISTENS_NOT, World, await_listener, needs


@pytest.fixture(scope="module")
def places(loopback_address):
    """The addresses of the two ports of each of two adapter processes."""
    return [(loopback_address(), loopback_address()) for _ in range(2)]


@pytest.fixture(scope="module")
def worlds(libibverbs, places):
    made = [World(libibverbs, first, f"+udp:{second}") for first, second in places]
    yield made
    for each in made:
        each.close()


def exchanged(worlds, port, server, client):
    """What the client said of two programs that meet on TCP ``port`` and end well."""
    waiting = worlds[0].start(*server, "-p", str(port))
    try:
        await_listener(port, waiting)
        done = worlds[1].run(*client, "-p", str(port), "127.0.0.1")
        said = waiting.communicate(timeout=LIMIT_S)[0]
    finally:
        waiting.kill()
        waiting.wait()
    assert done.returncode == 0, done.stdout + done.stderr
    assert waiting.returncode == 0, said
    return done.stdout


def met(worlds, server, *client):
    """What both said of two programs of RDMA CM, the client begun again until the server listens."""
    waiting = worlds[0].start("stdbuf", "-oL", *server)
    try:
        for _ in range(100):
            done = worlds[1].run(*client)
            if not LISTENS_NOT.search(done.stdout + done.stderr):
                break
        said = waiting.communicate(timeout=LIMIT_S)[0]
    finally:
        waiting.kill()
        waiting.communicate()
    return said, done.stdout + done.stderr


def test_devinfo_shows_each_port_with_its_own_address(worlds, places):
    needs("ibv_devinfo")
    said = worlds[0].run("ibv_devinfo", "-v").stdout
    assert re.search(r"phys_port_cnt:\s+2\n", said)
    shown = [re.findall(r"GID\[ *\d+\]:\s+::ffff:([0-9.]+), RoCE v2", part)
             for part in re.split(r"\tport:\t\d+\n", said)[1:]]  # fmt: skip
    assert shown == [[address] * 4 for address in places[0]]


def test_there_is_no_third_port(worlds):
    needs("ibv_devinfo", "ibv_rc_pingpong")
    assert worlds[0].run("ibv_devinfo", "-i", "3").returncode != 0
    assert worlds[0].run("ibv_rc_pingpong", "-i", "3", "-g", "0").returncode != 0


@pytest.mark.parametrize("ports", [("1", "2"), ("2", "2")])
@pytest.mark.parametrize("command", [
    ("ibv_rc_pingpong", "-g", "0", "-n", "50"), ("ibv_uc_pingpong", "-g", "0", "-n", "50"),
    ("ibv_ud_pingpong", "-g", "0", "-n", "50", "-s", "1000"), ("ibv_srq_pingpong", "-g", "0", "-n", "50"),
    ("ib_write_bw", "-n", "100"), ("ib_send_lat", "-c", "UD", "-n", "100"),
])
def test_each_port_reaches_each(worlds, unused_port, command, ports):
    needs(command[0])
    exchanged(worlds, unused_port, *((*command, "-i", port) for port in ports))


@pytest.mark.parametrize("program", ["ib_write_bw", "ib_send_bw"])
def test_perftest_uses_both_ports_at_once(worlds, unused_port, program):
    needs(program)
    command = (program, "-O", "-n", "200")
    assert re.search(r"Dual-port\s+: ON", exchanged(worlds, unused_port, command, command))


@pytest.mark.parametrize(("listens_at", "to", "own"), [(1, 1, 1), (None, 1, 1), (None, 0, 1)])
def test_rping_by_the_address_of_a_port(worlds, places, listens_at, to, own):
    needs("rping", "stdbuf")
    server = ("rping", "-s", "-C", "3", *(("-a", places[0][listens_at]) if listens_at is not None else ()))
    client = ("rping", "-c", "-a", places[0][to], "-I", places[1][own], "-C", "3", "-v")
    said = met(worlds, server, *client)
    assert said[1].count("ping data: rdma-ping-") == 3, said


@pytest.mark.parametrize("program", ["udaddy", "ucmatose"])
def test_rdma_cm_s_programs_at_the_second_port(worlds, places, program):
    needs(program, "stdbuf")
    said = met(worlds, (program, "-b", places[0][1]), program, "-s", places[0][1], "-b", places[1][1])
    assert all("return status 0" in each for each in said), said


def test_a_group_at_the_second_port(worlds, places):
    needs("mckey", "stdbuf")
    group = ("mckey", "-m", "239.88.77.69", "-C", "6", "-b")
    member = worlds[0].start("stdbuf", "-oL", *group, places[0][1])
    try:
        assert any("joined dgid" in line for line in iter(member.stdout.readline, ""))
        done = worlds[1].run(*group, places[1][1], "-s")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "return status 0" in member.communicate(timeout=LIMIT_S)[0]
    finally:
        member.kill()
        member.communicate()
