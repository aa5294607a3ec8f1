"""Programs in C, Debian's own, at a port with an IPv4 and an IPv6 address, in a network namespace."""

import re

import pytest
from native_world import LIMIT_S, World, asked, await_listener, await_rdma_listener, ended, needs

from network_namespace import PAIR, Namespace

PLACES = ("10.99.0.2", "fd99::2"), ("10.99.0.3", "fd99::3")
ADDRESSES = "".join(
    f" && ip address add {v4}/24 dev here && ip address add {v6}/64 dev here nodad" for v4, v6 in PLACES
)
PINGS = re.compile(r"ping data: rdma-ping-")


@pytest.fixture(scope="module")
def namespace():
    with Namespace(PAIR + ADDRESSES) as made:
        yield made


@pytest.fixture(scope="module")
def worlds(libibverbs, namespace):
    made = [World(libibverbs, v4, f"?addresses={v6}", prefix=namespace.prefix) for v4, v6 in PLACES]
    yield made
    for each in made:
        each.close()


def begun(worlds, port, *command):
    """The server of a program that meets its peer on TCP ``port``, and the client's words."""
    server = worlds[0].start(*command, "-p", str(port))
    try:
        await_listener(port, server)
    except BaseException:
        server.kill()
        server.communicate()
        raise
    return server, (*command, "-p", str(port), "127.0.0.1")


def both_done(server, client):
    """What both said, which have ended well."""
    try:
        heard = [each.communicate(timeout=LIMIT_S)[0] for each in (client, server)]
    finally:
        for each in (client, server):
            each.kill()
            each.communicate()
    assert (client.returncode, server.returncode) == (0, 0), "\n".join(heard)
    return heard


@pytest.mark.parametrize("command", [
    ("ibv_rc_pingpong", "-g", "1", "-n", "50"), ("ibv_uc_pingpong", "-g", "1", "-n", "50"),
    ("ibv_ud_pingpong", "-g", "1", "-n", "50", "-s", "1000"), ("ib_write_bw", "-x", "1", "-n", "100"),
    ("ib_read_lat", "-x", "3", "-n", "100"), ("ib_send_bw", "-c", "UD", "-x", "1", "-n", "100"),
    ("ib_atomic_lat", "-x", "1", "-n", "100"), ("ib_send_bw", "-c", "UD", "-g", "-x", "1", "-n", "100"),
])
def test_programs_run_at_the_ipv6_entry(worlds, command):
    """The last one sends to a group, which it makes of a GID of IPv6 alone."""
    needs(command[0])
    server, asking = begun(worlds, 18515, *command)
    for said in both_done(server, worlds[1].start(*asking)):
        assert re.search(r"GID fd99::|GID: 253:153|MultiCast", said), said


def test_traffic_of_both_versions_at_once(worlds):
    needs("ib_write_bw")
    common = ("ib_write_bw", "-n", "3000", "-s", "65536")
    started = [begun(worlds, 18520 + index, *common, "-x", str(index)) for index in (0, 1)]
    clients = [worlds[1].start(*asking) for _, asking in started]
    heard = [both_done(server, client) for (server, _), client in zip(started, clients, strict=True)]
    for index, said in enumerate(heard):
        assert re.search(rf"GID index\s*: {index}\b", said[0])
        assert re.search(r"^ *65536 +3000 ", said[0], re.MULTILINE)


def pinged(worlds, listens_at, *client):
    """What rping's client said, of a server at an address."""
    needs("rping")
    server = worlds[0].start("rping", "-s", "-a", listens_at, "-C", "3")
    try:
        await_rdma_listener(worlds[0], server)
        said = asked(worlds[-1], server, "rping", "-c", *client, "-C", "3", "-v")
        ended(server)
    finally:
        server.kill()
        server.communicate()
    return said


@pytest.mark.parametrize(("listens_at", "client"), [
    ("::", ("-a", "fd99::2")), ("fd99::2", ("-a", "fd99::2", "-I", "fd99::3")),
    ("0.0.0.0", ("-a", "10.99.0.2")), ("10.99.0.2", ("-a", "10.99.0.2", "-I", "10.99.0.3")),
])
def test_rping_by_each_version(worlds, listens_at, client):
    assert len(PINGS.findall(pinged(worlds, listens_at, *client))) == 3


def test_rping_to_this_machine(libibverbs, namespace):
    """::1 is an entry of the table as any other address."""
    world = World(libibverbs, "127.0.0.1", "?addresses=::1", prefix=namespace.prefix)
    try:
        for listens_at, client in (("::1", "::1"), ("::", "::1"), ("127.0.0.1", "127.0.0.1")):
            assert len(PINGS.findall(pinged([world], listens_at, "-a", client))) == 3
    finally:
        world.close()


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("program", ["udaddy", "ucmatose"])
def test_rdma_cm_s_programs_by_each_version(worlds, program, index):
    needs(program)
    server = worlds[0].start(program, "-b", PLACES[0][index])
    try:
        await_rdma_listener(worlds[0], server)
        asked(worlds[1], server, program, "-s", PLACES[0][index], "-b", PLACES[1][index])
        assert "return status 0" in ended(server)
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize(("index", "group"), [(0, "239.88.77.68"), (1, "ff1e::18")])
def test_a_group_of_each_version(worlds, index, group):
    needs("mckey", "stdbuf")
    member = worlds[0].start("stdbuf", "-oL", "mckey", "-m", group, "-b", PLACES[0][index], "-C", "6")
    try:
        assert any("joined dgid" in line for line in iter(member.stdout.readline, ""))
        done = worlds[1].run("mckey", "-m", group, "-b", PLACES[1][index], "-C", "6", "-s")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "return status 0" in ended(member)
    finally:
        member.kill()
        member.communicate()
