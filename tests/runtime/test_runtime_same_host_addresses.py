"""Same-host paths of ports with several addresses: each address meets peers for itself."""

import errno
import socket

import pytest
from runtime_pair import REMOTE_EVERYTHING, RemoteOperation, take
from same_host_pair import got, has_path, packets_of, post, put, queue_pair_of, until
from same_host_program import SharedEnd

from softhca.driver import registry
from softhca.driver.services import Reliability, connect, path_to, start_datagrams
from softhca.runtime import devices, messages, same_host_address, same_host_limits
from softhca.runtime.same_host_address import socket_name
from softhca.runtime.same_host_peers import VERSION
from softhca.transport.loopback import LoopbackExecutor
from softhca.wire.route import V4_MAPPED_PREFIX

pytestmark = pytest.mark.skipif(bool(same_host_limits.unsupported()), reason="no same-host paths here")

SEND, UD, QKEY = 2, 4, 0x77
PAIRS = [(0, 0), (0, 1), (1, 0), (1, 1)]


def gid_of(address):
    return V4_MAPPED_PREFIX + socket.inet_aton(address)


@pytest.fixture
def opened(loopback_address):
    """A function that opens a device of one port with so many addresses; its driver and their GIDs."""
    made = []

    def open_device(name, count, options=""):
        first, *more = [loopback_address() for _ in range(count)]
        further = f"&addresses={'+'.join(more)}" if more else ""
        devices.add(f"{name}=udp:{first}?same_host=1{further}{options}")
        made.append(registry.open_device(name))
        return made[-1], [gid_of(each) for each in (first, *more)]

    yield open_device
    for driver in made:
        driver.close()
        devices.remove(driver.name)


@pytest.fixture
def pair(opened):
    """Two devices whose ports have two addresses each."""
    return opened("left", 2), opened("right", 2)


def shared_by(driver):
    return devices.find(driver.name).engine.same_host


def joined(here, there, indexes, towards=None):
    """An end on each device, from its entry of that index to the peer's, or to that of ``towards``."""
    sides = here, there
    ends = [SharedEnd(driver, 1 << 16) for driver, _ in sides]
    for own, peer, index, target in zip(ends, ends[::-1], indexes, (towards or indexes)[::-1], strict=True):
        gids = sides[ends.index(peer)][1]
        path = path_to(own.driver, gids[target], sgid_index=index)
        connect(own.qp, path, peer.qp.number, 1, 1, REMOTE_EVERYTHING, Reliability())
    return ends


def rings_carry_all(*drivers):
    """Drive the devices until packets go through the rings of all peers that were met."""
    until(
        lambda: not any(port.is_switching for driver in drivers for port in shared_by(driver).ports.values()),
        drivers,
    )


def bursts_of(driver):
    return [link.counters()["bursts_sent"] for link in devices.find(driver.name).engine.links]


@pytest.mark.parametrize("indexes", PAIRS)
def test_rdma_between_any_two_addresses_needs_no_packet(pair, indexes):
    left, right = pair
    drivers = left[0], right[0]
    here, there = joined(left, right, indexes)
    until(lambda: has_path(here) and has_path(there), drivers)
    for asker, target in ((here, there), (there, here)):
        put(asker, b"12345678")
        post(asker, RemoteOperation.WRITE, target, 8, offset=64)
        assert take(asker.cq, 1)[0].status == 0
        assert got(target, 8, 64) == b"12345678"
        assert packets_of(asker) == 0
    met = {reader.gid for reader in shared_by(right[0]).sharing.directory.readers}
    assert met == {left[1][indexes[0]]}  # by the address that the path leaves from, and no other
    assert queue_pair_of(here).executor.path.gid == right[1][indexes[1]]


def test_a_port_with_one_address_meets_each_of_one_with_several(opened):
    left, right = opened("left", 3), opened("right", 1)
    ends = [joined(left, right, (index, 0)) for index in range(3)]
    until(lambda: all(has_path(end) for both in ends for end in both), (left[0], right[0]))
    for here, there in ends:  # a grant names the address that the peer's route begins at
        for asker, target in ((here, there), (there, here)):
            post(asker, RemoteOperation.READ, target, 8)
            assert take(asker.cq, 1)[0].status == 0
            assert packets_of(asker) == 0
    assert {reader.gid for reader in shared_by(right[0]).sharing.directory.readers} == set(left[1])


def test_who_comes_from_another_address_than_was_named_is_granted_nothing(pair):
    """The right end names the left one's second address, from which nothing comes: the responder judges."""
    left, right = pair
    here, there = joined(left, right, (0, 0), towards=(1, 0))
    until(lambda: has_path(here), (left[0], right[0]))
    put(here, b"12345678")
    post(here, RemoteOperation.WRITE, there, 8)
    until(lambda: packets_of(here), (left[0], right[0]))
    assert queue_pair_of(here).executor.operations == 0


@pytest.mark.parametrize("indexes", PAIRS)
def test_datagrams_through_rings_say_which_addresses_they_have(pair, indexes):
    left, right = pair
    drivers = left[0], right[0]
    ends = []
    for driver, _ in (left, right):
        end = SharedEnd(driver, 1 << 12)
        end.qp.destroy()
        end.qp = driver.create_qp(end.pd, UD, end.cq, end.cq, None, 16, 16, 4, 4, 0, True)
        start_datagrams(end.qp, QKEY)
        ends.append(end)
    here, there = ends
    source, destination = left[1][indexes[0]], right[1][indexes[1]]
    path = path_to(left[0], destination, sgid_index=indexes[0])
    handle = left[0].create_ah(here.pd, path.vector())

    def exchange(number):
        there.qp.post_recv(number, [(there.address, 256, there.key.lkey)])
        here.qp.post_send(
            SEND, 2, 0, number, 0, 0, 0, 0, handle, there.qp.number, QKEY, here.element(32), None
        )
        here.qp.ring()
        assert take(here.cq, 1)[0].status == 0
        assert take(there.cq, 1)[0].status == 0
        return got(there, 40)

    exchange(0)  # begins the handshake
    until(lambda: shared_by(left[0]).ports[1].addresses[source].senders, drivers)
    before = bursts_of(left[0])
    for number in (1, 2, 3):
        header = exchange(number)
        assert header[32:40] == source[12:] + destination[12:]
    assert bursts_of(left[0]) == before
    left[0].destroy_ah(handle)


def test_entries_of_one_port_reach_each_other_without_a_link(opened):
    left = opened("left", 2)
    here, there = joined(left, left, (0, 1))
    put(here, b"12345678")
    post(here, RemoteOperation.WRITE, there, 8)
    assert take(here.cq, 1)[0].status == 0
    assert got(there, 8) == b"12345678"
    assert isinstance(queue_pair_of(here).executor, LoopbackExecutor)
    assert packets_of(here) == 0


def test_nobody_has_one_of_the_addresses_as_a_peer(opened):
    driver, gids = opened("left", 2)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
        caller.connect(socket_name(gids[0]))
        messages.send(caller, {"connect": VERSION, "gid": gids[1].hex()})
        caller.settimeout(20)
        ended = []

        def has_ended():
            try:
                ended.append(caller.recv(64, socket.MSG_DONTWAIT))
            except BlockingIOError:
                return False
            return True

        until(has_ended, [driver])
    assert ended == [b""]
    assert not shared_by(driver).receivers


def test_an_address_whose_name_is_taken_leaves_the_others_theirs(loopback_address, caplog):
    first, second, other = (loopback_address() for _ in range(3))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as taken:
        taken.bind(socket_name(gid_of(second)))
        devices.add(f"left=udp:{first}?same_host=1&addresses={second},right=udp:{other}?same_host=1")
        left, right = registry.open_device("left"), registry.open_device("right")
        assert f"left uses packets on this host too: {second}: " in caplog.text
        assert list(shared_by(left).ports[1].addresses) == [gid_of(first)]
        sides = (left, [gid_of(first), gid_of(second)]), (right, [gid_of(other)])
        for index, expected in ((0, True), (1, False)):
            here, there = joined(*sides, (index, 0))
            if expected:
                until(lambda here=here, there=there: has_path(here) and has_path(there), (left, right))
            post(here, RemoteOperation.WRITE, there, 8)
            assert take(here.cq, 1)[0].status == 0
            assert bool(packets_of(here)) != expected
        left.close()
        right.close()
    for name in ("left", "right"):
        devices.remove(name)


def test_a_device_that_closes_listens_at_no_address(loopback_address):
    addresses = [loopback_address() for _ in range(3)]
    devices.add(f"left=udp:{addresses[0]}?same_host=1&addresses={'+'.join(addresses[1:])}")
    driver = registry.open_device("left")
    names = [socket_name(gid_of(each)) for each in addresses]
    for name in names:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
            caller.connect(name)
    driver.close()
    for name in names:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
            with pytest.raises(OSError, match="refused") as refused:
                caller.connect(name)
            assert refused.value.errno == errno.ECONNREFUSED
    devices.remove("left")


def test_a_peer_of_one_address_is_not_asked_again_soon_and_the_others_are(opened, monkeypatch):
    """Who is nowhere is remembered by the pair of addresses."""
    driver, gids = opened("left", 2)
    asked = []
    begin = same_host_address.SameHostAddress._connect

    def counted(address, gid):
        asked.append(address.gid)
        return begin(address, gid)

    monkeypatch.setattr(same_host_address.SameHostAddress, "_connect", counted)
    monkeypatch.setattr(same_host_address, "now_ns", lambda: 0)
    for _ in range(3):
        for gid in gids:
            assert shared_by(driver).path_to(1, gid, gid_of("127.99.99.99")) is None
    assert asked == gids
    assert shared_by(driver).path_to(1, gid_of("127.99.99.98"), gids[0]) is None  # nobody's address
    assert asked == gids


def test_peers_leave_an_address_that_is_removed_and_no_other(pair):
    (left, gids), (right, _) = pair
    ends = [joined(*pair, (index, index)) for index in (0, 1)]
    until(lambda: all(has_path(end) for each in ends for end in each), (left, right))
    with devices.find(left.name).engine.loop.lock:
        shared_by(left).remove_address(1, gids[1])
    assert not has_path(ends[1][0])
    until(lambda: not has_path(ends[1][1]), (left, right))
    assert all(has_path(end) for end in ends[0])
