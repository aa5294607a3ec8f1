"""Debian's librdmacm and its programs, unmodified, on the device that the preloaded object answers for."""

import contextlib
import os
import re
import secrets
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from native_world import (
    LIMIT_S,
    World,
    asked,
    await_listener,
    await_rdma_listener,
    both,
    ended,
    needs,
    preload,
)

from machine_speed import limit_s

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "rping.py")
PINGS = re.compile(r"ping data: rdma-ping-\d")
IPV4, IPV6 = "198.51.100.77", "fd00:77::1"
RSPRELOAD = Path("/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so.1")


DONE = r"data transfers complete\n(.*\n)*return status 0"
# Not -T a: the client fails where its peer's last data and its shutdown come together.
PAIRS = {
    "ucmatose": (("ucmatose", "-c", "4", "-C", "5"), ("-s",), DONE),
    "udaddy": (("udaddy", "-c", "3", "-C", "5"), ("-s",), DONE),
    "rstream": (("rstream", "-S", "3000", "-C", "20", "-T", "v"), ("-s",), r"^custom +2.9k +20 "),
    "rstream-blocking": (("rstream", "-S", "70000", "-C", "5", "-T", "b"), ("-s",), r"^custom +68k +5 "),
    "rstream-forking": (("rstream", "-S", "100", "-C", "5", "-T", "f"), ("-s",), r"^custom +100 +5 "),
    "rstream-resolving": (("rstream", "-S", "100", "-C", "5", "-T", "r"), ("-s",), r"^custom +100 +5 "),
    "riostream": (("riostream", "-S", "3000", "-C", "5", "-T", "v"), ("-s",), r"^custom +2.9k +5 "),
}  # fmt: skip


@pytest.mark.parametrize("count", [1, 2], ids=["one adapter", "two adapters"])
def test_rping(world, other, count):
    needs("rping", "ibv_devinfo")
    client = other if count == 2 else world
    for said in both(world, client, ("rping", "-s", "-v", "-V"),
                     ("rping", "-c", "-a", world.address, "-C", "5", "-v", "-V")):  # fmt: skip
        assert len(PINGS.findall(said)) == 5
        assert "softhca:" not in said  # nor that there are no addresses of InfiniBand, as it asks


@pytest.mark.parametrize("program", PAIRS)
def test_a_pair(world, other, program, unused_port):
    command, words, wanted = PAIRS[program]
    needs(command[0], "ibv_devinfo")
    port = 0
    if "f" in command:  # its parent meets by TCP, at a port that others of these tests have
        port = unused_port
        command = (*command, "-p", str(port))
    for said in both(world, other, command, (*command, *words, world.address), port):
        assert re.search(wanted, said, re.MULTILINE), said


@pytest.mark.parametrize("kind", ["x", "r"], ids=["XRC", "RC"])
def test_xrc_is_connected(world, other, kind):
    needs("rdma_xserver", "rdma_xclient", "ibv_devinfo")
    server, active = both(world, other, ("rdma_xserver", "-c", kind),
                          ("rdma_xclient", "-c", kind, "-s", world.address))  # fmt: skip
    assert "rdma_xserver: end 0" in server
    assert "rdma_xclient: end 0" in active


def test_endpoints_that_wait_in_each_call(world, other):
    needs("rdma_server", "rdma_client", "ibv_devinfo")
    server, active = both(world, other, ("rdma_server",), ("rdma_client", "-s", world.address))
    assert "rdma_server: end 0" in server
    assert "rdma_client: end 0" in active


def test_many_connections_are_made_and_parted_step_by_step(world, other):
    needs("cmtime", "ibv_devinfo")
    with world.start("cmtime") as server:
        try:
            await_rdma_listener(world, server)
            said = asked(other, server, "cmtime", "-s", world.address, "-c", "20")
        finally:
            server.kill()
    for step in ("resolve addr", "resolve route", "create qp", "connect", "disconnect", "destroy"):
        assert re.search(rf"^{step} *: +\d", said, re.MULTILINE), said


def test_rping_serves_many_one_after_the_other(world, other):
    needs("rping", "ibv_devinfo")
    with world.start("rping", "-s", "-P", "-q") as server:
        try:
            for count in ("3", "4"):
                said = asked(other, server, "rping", "-c", "-a", world.address, "-C", count, "-v", "-q")
                assert said.count("ping data") == int(count)
        finally:
            server.kill()


def test_a_program_has_the_addresses_of_all_its_devices(world, other):
    needs("rping", "ibv_devinfo")
    words = [each.environment["SOFTHCA_DEVICES"].partition("=")[2] for each in (world, other)]
    devices = {"SOFTHCA_DEVICES": ",".join(f"softhca{i}={word}" for i, word in enumerate(words))}
    with world.start("rping", "-s", "-P", **devices) as server:
        try:
            for each in (world, other):
                said = asked(world, server, "rping", "-c", "-a", each.address, "-C", "2", "-v", **devices)
                assert said.count("ping data") == 2
                said = asked(each, server, "rping", "-c", "-a", "127.0.0.1", "-C", "2", "-v")
                assert said.count("ping data") == 2
        finally:
            server.kill()


def test_datagram_sockets(world):
    needs("udpong", "ibv_devinfo")
    with world.start("udpong", "-S", "1000", "-C", "20", "-b", world.address) as server:
        try:
            said = asked_by_udp(world, server, "udpong", "-s", world.address, "-S", "1000", "-C", "20")
        finally:
            server.kill()
    assert re.search(r"^custom +1000 +20 ", said, re.MULTILINE), said


def asked_by_udp(world, server, *command):
    """As `asked`, of a program whose server has a UDP port of the kernel's beside."""
    while ":1C06 " not in Path("/proc/net/udp").read_text():
        assert server.poll() is None, server.stdout.read()
    return ended(world.start(*command))


def test_files_are_copied(world, other, tmp_path):
    needs("rcopy", "ibv_devinfo")
    data = bytes(range(256)) * 4001
    (tmp_path / "from").write_bytes(data)
    with world.start("rcopy") as server:
        try:
            said = asked(other, server, "rcopy", str(tmp_path / "from"), f"{world.address}:{tmp_path}/to")
        finally:
            server.kill()
    assert f"{len(data)} bytes in" in said
    assert (tmp_path / "to").read_bytes() == data


def test_multicast(world, other):
    needs("mckey", "stdbuf", "ibv_devinfo")
    common = ("mckey", "-m", "239.88.77.66", "-C", "6")
    with world.start("stdbuf", "-oL", *common, "-b", world.address) as receiver:
        try:
            lines = iter(receiver.stdout.readline, "")
            assert any("joined dgid: ::ffff:239.88.77.66" in line for line in lines)
            said = ended(other.start(*common, "-s", "-b", other.address))
            left, _ = receiver.communicate(timeout=LIMIT_S)
        except BaseException:
            receiver.kill()
            raise
    assert "return status 0" in said
    assert "data transfers complete" in left
    assert "return status 0" in left


@pytest.mark.parametrize("command", [
    "ib_write_bw -n 20 --output=bandwidth", "ib_send_lat -n 20 -c UD -s 512 --output=latency",
    "ib_write_bw -n 20 -x 3 --output=bandwidth",
])  # fmt: skip
def test_perftest_connects(world, other, command, unused_port):
    needs(command.partition(" ")[0], "ibv_devinfo")
    words = (*command.split(), "-F", "-R", "-p", str(unused_port))
    _, said = both(world, other, words, (*words, world.address))
    assert re.search(r"^(\d+\.\d+|inf)$", said, re.MULTILINE), said


def test_a_program_of_tcp_sockets_goes_by_rdma(world, other, unused_port):
    needs("iperf", "ibv_devinfo")
    if not RSPRELOAD.exists():
        pytest.skip("there is no librspreload (Debian's librdmacm1)")
    words = {"LD_PRELOAD": preload(world.library, RSPRELOAD)}
    port = ("-p", str(unused_port))
    with world.start("iperf", "-s", "-B", world.address, "-P", "1", *port, **words) as server:
        try:
            said = refused = "connect failed: Connection refused"  # it ends well where nobody listens yet
            while refused in said:
                assert server.poll() is None, said
                said = asked(other, server, "iperf", "-c", world.address, "-n", "300000", *port, **words)
            received = ended(server)
        except BaseException:
            server.kill()
            raise
    # by TCP it would be the kernel's address, 127.0.0.1
    assert f"local {other.address} port" in said
    assert f"connected with {other.address} port" in received
    assert re.search(r" 293 KBytes ", said), said


def test_ucx_connects_by_socket_addresses(world, other, unused_port):
    needs("io_demo", "ibv_devinfo")
    words = {"UCX_TLS": "rc,ud,self", "UCX_NET_DEVICES": "softhca0:1", "UCX_LOG_LEVEL": "error"}
    command = ("io_demo", "-p", str(unused_port), "-d", "3000:3000")
    with world.start(*command, **words) as server:
        try:
            while "started listener" not in (line := server.stdout.readline()):
                assert line, "it has ended"
            said = ended(other.start(*command, "-i", "20", "-q", world.address, **words))
        finally:
            server.send_signal(signal.SIGKILL)
    assert "status 'OK'" in said


def in_python(world, *words):
    """``examples/rping.py`` under softhca run, on the adapter process of a world."""
    path = os.pathsep.join(filter(None, sys.path))
    run = (sys.executable, "-P", "-m", "softhca", "run", "--", sys.executable, EXAMPLE)
    return world.start(*run, *words, LD_PRELOAD="", PYTHONPATH=path)


def test_a_program_in_c_pings_one_in_python(world, other):
    needs("rping", "ibv_devinfo")
    # One ping more than are asked for: rping drops its last one where the server disconnects first.
    with in_python(world, "-s", "-a", world.address, "-C", "5") as server:
        try:
            said = asked(other, server, "rping", "-c", "-a", world.address, "-C", "4", "-v", "-V")
        finally:
            server.kill()
        assert [len(PINGS.findall(each)) for each in (said, server.stdout.read())] == [4, 4]


def test_a_program_in_python_pings_one_in_c(world, other):
    needs("rping", "ibv_devinfo")
    with world.start("rping", "-s", "-C", "4", "-v", "-V") as server:
        try:
            while True:
                client = in_python(other, "-c", "-a", world.address, "-C", "4")
                said, _ = client.communicate(timeout=LIMIT_S)
                if client.returncode == 0:
                    break
                assert "REJECTED" in said, said
                assert server.poll() is None
            assert [len(PINGS.findall(each)) for each in (said, ended(server))] == [4, 4]
        finally:
            server.kill()


def test_a_server_outlives_a_client_that_is_killed(world, other):
    needs("rping", "stdbuf", "ibv_devinfo")
    client = ("stdbuf", "-oL", "rping", "-c", "-a", world.address, "-v", "-C")
    with world.start("rping", "-s", "-P") as server:
        try:
            asked(other, server, *client, "1")
            with other.start(*client, "1000000") as victim:
                assert any("rdma-ping-9:" in line for line in iter(victim.stdout.readline, ""))
                victim.kill()
            assert asked(other, server, *client, "3").count("ping data") == 3
            assert server.poll() is None
        finally:
            server.kill()


@pytest.fixture(scope="module")
def elsewhere(libibverbs):
    """An adapter process and its programs in a network namespace of the test's own: what libfabric takes for
    an address of a device must be that of an interface that is not called a loopback one.
    """
    needs("fi_pingpong", "ip")
    name = f"softhca-rdmacm-{os.getpid()}-{secrets.token_hex(2)}"
    inside = ("ip", "-n", name)
    words = [
        ("ip", "netns", "add", name), (*inside, "link", "set", "lo", "up"),
        (*inside, "link", "add", "one", "type", "veth", "peer", "name", "two"),
        (*inside, "link", "set", "two", "up"), (*inside, "address", "add", f"{IPV4}/32", "dev", "one"),
        (*inside, "address", "add", f"{IPV6}/128", "dev", "one", "nodad"),
        (*inside, "link", "set", "one", "up"),
    ]  # fmt: skip
    try:
        for each in words:
            if subprocess.run(each, capture_output=True).returncode:
                pytest.skip(f"no network namespace with an interface: {' '.join(each)}")
        found = World(libibverbs, IPV4, prefix=("ip", "netns", "exec", name))
        yield found
        found.close()
    finally:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def test_ipv6(libibverbs, elsewhere):
    needs("rping")
    own = World(libibverbs, f"[{IPV6}]", prefix=elsewhere.prefix)
    try:
        said = both(own, own, ("rping", "-s", "-a", "::", "-C", "2"),
                    ("rping", "-c", "-a", IPV6, "-C", "2", "-v"))  # fmt: skip
        assert said[1].count("ping data") == 2
    finally:
        own.close()


FLUSHED = re.compile(r"^\[error\] util/pingpong\.c:\d+: cq_readerr: Work Request Flushed Error\n", re.M)
"""All that an end of libfabric's kind rdm says which has measured, and is still to take its peer's last
message when it is told that the peer has parted: it destroys the connection first."""


def fabric_ping(world, kind, folder):
    """What the server and the client said; one that has lost its peer's last message is ended."""
    command = ("stdbuf", "-oL", "fi_pingpong", "-p", "verbs", "-e", kind, "-I", "10", "-S", "1000", "-c")
    environment = {name: value for name, value in world.environment.items() if name != "SOFTHCA_DEBUG"}
    programs = []

    def start(name, *words):
        with (folder / name).open("w") as out:
            programs.append(subprocess.Popen([*world.prefix, *command, *words], stdin=subprocess.DEVNULL,
                                             stdout=out, stderr=subprocess.STDOUT, env=environment))

    try:
        start("server")
        await_listener(47592, programs[0])
        start("client", IPV4)
        ends = [os.pidfd_open(each.pid) for each in programs]
        assert select.select(ends, [], [], LIMIT_S)[0], "neither of them has ended"
        for each, end in zip(programs, ends, strict=True):
            with contextlib.suppress(subprocess.TimeoutExpired):
                each.wait(limit_s(5) if kind == "rdm" else LIMIT_S)
            assert kind == "rdm" or each.returncode is not None
            os.close(end)
    finally:
        for each in programs:
            each.kill()
            each.wait()
    return [(folder / name).read_text() for name in ("server", "client")]


@pytest.mark.parametrize("kind", ["msg", "dgram", "rdm"])
def test_libfabric_pings(elsewhere, kind, tmp_path):
    needs("stdbuf")
    for said in fabric_ping(elsewhere, kind, tmp_path):
        assert re.search(r"^1000 +10 +=10 ", said, re.MULTILINE), said
        left = FLUSHED.sub("", said, count=1) if kind == "rdm" else said
        assert "[error]" not in left, said


def test_libfabric_lists_endpoints(elsewhere):
    needs("fi_info")
    said = elsewhere.run("fi_info", "-p", "verbs").stdout
    found = set(re.findall(r"^    type: (\S+)$", said, re.MULTILINE))
    assert {"FI_EP_MSG", "FI_EP_DGRAM"} <= found, said
    assert re.search(r"^    domain: softhca0(-dgram)?$", said, re.MULTILINE), said
