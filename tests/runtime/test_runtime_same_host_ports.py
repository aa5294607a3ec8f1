"""Same-host paths of adapters with several ports: each port meets peers by its own GID."""

import errno
import socket
from types import SimpleNamespace

import pytest
from runtime_pair import REMOTE_EVERYTHING, RemoteOperation, take
from same_host_pair import got, has_path, packets_of, post, put, queue_pair_of, until
from same_host_program import SharedEnd

from softhca.driver import registry
from softhca.driver.services import Reliability, connect, path_to
from softhca.runtime import devices, same_host_address, same_host_limits
from softhca.runtime.same_host import SameHost
from softhca.transport.loopback import LoopbackExecutor
from softhca.wire.route import V4_MAPPED_PREFIX

pytestmark = pytest.mark.skipif(bool(same_host_limits.unsupported()), reason="no same-host paths here")

SEND = 2


@pytest.fixture
def opened(loopback_address):
    """A function that opens a device with so many ports; its addresses, by port from 0 on."""
    names = []

    def open_device(name, ports, options="?same_host=1"):
        addresses = [loopback_address() for _ in range(ports)]
        names.append(name)
        devices.add(f"{name}=" + "+".join(f"udp:{address}" for address in addresses) + options)
        driver = registry.open_device(name)
        return driver, addresses

    yield open_device
    for name in names:
        devices.remove(name)


@pytest.fixture
def pair(opened):
    """Drivers of a device with two ports and of one with one."""
    two, one = opened("two", 2)[0], opened("one", 1)[0]
    yield two, one
    two.close()
    one.close()


def joined(here, here_port, there, there_port=1):
    """An end on a port of each device, connected."""
    ends = SharedEnd(here, 1 << 16), SharedEnd(there, 1 << 16)
    ports = here_port, there_port
    for end, port, peer, peer_port in zip(ends, ports, ends[::-1], ports[::-1], strict=True):
        path = path_to(end.driver, peer.driver.query_gid(peer_port, 0), port)
        connect(end.qp, path, peer.qp.number, 1, 1, REMOTE_EVERYTHING, Reliability())
    return ends


def shared_by(driver):
    return devices.find(driver.name).engine.same_host


def rings_carry_all(*drivers):
    """Drive the devices until packets go through the rings of all peers that were met."""
    until(
        lambda: not any(port.is_switching for driver in drivers for port in shared_by(driver).ports.values()),
        drivers,
    )


@pytest.mark.parametrize("port", [1, 2])
def test_rdma_from_and_to_each_port_needs_no_packet(pair, port):
    two, one = pair
    here, there = joined(two, port, one)
    until(lambda: has_path(here) and has_path(there), pair)
    for asker, target in ((here, there), (there, here)):
        put(asker, b"12345678")
        post(asker, RemoteOperation.WRITE, target, 8, offset=64)
        assert take(asker.cq, 1)[0].status == 0
        assert got(target, 8, 64) == b"12345678"
        assert packets_of(asker) == 0
    assert queue_pair_of(there).executor.path.gid == two.query_gid(port, 0)
    assert {reader.gid for reader in shared_by(one).sharing.directory.readers} == {two.query_gid(port, 0)}


def test_each_port_has_paths_of_its_own_to_one_peer(pair):
    two, one = pair
    ends = [joined(two, port, one) for port in (1, 2)]
    until(lambda: all(has_path(end) for both in ends for end in both), pair)
    first, second = (queue_pair_of(here).executor.path for here, _ in ends)
    assert first is not second
    gids = {two.query_gid(port, 0) for port in (1, 2)}
    assert {reader.gid for reader in shared_by(one).sharing.directory.readers} == gids
    for here, there in ends:  # a queue pair's grant names the port that its peer is on
        post(here, RemoteOperation.WRITE, there, 8)
        assert take(here.cq, 1)[0].status == 0
        assert packets_of(here) == 0


def test_what_comes_through_a_ring_has_come_to_its_port(pair):
    two, one = pair
    here, there = joined(two, 2, one)
    until(lambda: has_path(here) and has_path(there), pair)
    rings_carry_all(two, one)
    engine = devices.find("two").engine
    before = [link.counters()["bursts_received"] for link in engine.links]
    counts = [port.counters.packets_received for port in engine.adapter.ports]
    for number in range(5):
        here.qp.post_recv(number, [(here.address, 64, here.key.lkey)])
        there.qp.post_send(SEND, 2, 0, number, 0, 0, 0, 0, 0, 0, 0, there.element(64), None)
        there.qp.ring()
        until(lambda: there.cq.poll(1), [two])
        assert take(here.cq, 1)[0].wr_id == number
    assert [link.counters()["bursts_received"] for link in engine.links] == before
    first, second = (port.counters.packets_received for port in engine.adapter.ports)
    assert first == counts[0]
    assert second >= counts[1] + 5


def test_ports_of_one_adapter_reach_each_other_without_a_link(opened):
    driver, _ = opened("two", 2)
    here, there = joined(driver, 1, driver, 2)
    put(here, b"12345678")
    post(here, RemoteOperation.WRITE, there, 8)
    assert take(here.cq, 1)[0].status == 0
    assert got(there, 8) == b"12345678"
    assert isinstance(queue_pair_of(here).executor, LoopbackExecutor)
    assert packets_of(here) == 0
    driver.close()


def test_a_port_whose_name_is_taken_leaves_the_other_its_paths(loopback_address, caplog):
    addresses = [loopback_address() for _ in range(3)]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as taken:
        taken.bind(same_host_address.socket_name(V4_MAPPED_PREFIX + socket.inet_aton(addresses[0])))
        devices.add(f"two=udp:{addresses[0]}+udp:{addresses[1]}?same_host=1,one=udp:{addresses[2]}")
        two, one = registry.open_device("two"), registry.open_device("one")
        assert "two, port 1, uses packets on this host too" in caplog.text
        assert list(shared_by(two).ports) == [2]
        for port, expected in ((2, True), (1, False)):
            here, there = joined(two, port, one)
            if expected:
                until(lambda here=here, there=there: has_path(here) and has_path(there), (two, one))
            post(here, RemoteOperation.WRITE, there, 8)
            assert take(here.cq, 1)[0].status == 0
            assert bool(packets_of(here)) != expected
        two.close()
        one.close()
    for name in ("two", "one"):
        devices.remove(name)


def test_a_port_that_cannot_be_watched_is_not_there_and_leaves_its_name(loopback_address):
    gid = V4_MAPPED_PREFIX + socket.inet_aton(loopback_address())
    shared = SameHost()
    watched = shared._epoll

    def full(descriptor, events):
        raise OSError(errno.ENOSPC, "too many are watched")

    shared._epoll = SimpleNamespace(register=full)
    with pytest.raises(OSError, match="too many are watched"):
        shared.add_address(1, gid)
    shared._epoll = watched
    assert not shared.ports
    assert shared.add_address(1, gid) is shared.ports[1].first
    shared.close()
