"""A device with two ports, over real sockets, its adapter here and in a process of its own."""

from __future__ import annotations

import pytest
from runtime_pair import REMOTE_EVERYTHING, SIGNALED, End, RemoteOperation, take

from softhca.driver import registry
from softhca.driver.services import Reliability, connect, path_to
from softhca.runtime import devices

BYTES = bytes(range(256)) * 16


@pytest.fixture(params=["embedded", "process"])
def device(request, loopback_address):
    """``two``, and ``one`` with a single port to talk to."""
    places = [loopback_address() for _ in range(3)]
    devices.add(f"two=udp:{places[0]}+udp:{places[1]}?buffer=212992&same_host=0", request.param)
    devices.add(f"one=udp:{places[2]}", request.param)
    yield devices.find("two")
    devices.remove("two")
    devices.remove("one")


def join(here, port, there, peer_port):
    """Connect two ends by a port of each."""
    for end, number, peer, peer_number in ((here, port, there, peer_port), (there, peer_port, here, port)):
        path = path_to(end.driver, peer.driver.query_gid(peer_number, 0), number)
        connect(end.qp, path, peer.qp.number, 1, 1, REMOTE_EVERYTHING, Reliability())


def write(here, there):
    """An RDMA WRITE from one end to the other one, which must come through."""
    here.memory[:] = BYTES
    there.memory[:] = bytes(len(BYTES))
    here.qp.post_send(
        RemoteOperation.WRITE, SIGNALED, 0, 1, there.address, there.key.rkey, 0, 0, 0, 0, 0,
        here.element(len(BYTES)), None,
    )  # fmt: skip
    here.qp.ring()
    assert take(here.cq, 1)[0].status == 0
    assert bytes(there.memory) == BYTES


def test_each_port_of_a_device_carries_its_own_connections(device):
    two, one = (registry.open_device(name) for name in ("two", "one"))
    assert two.query_device()["phys_port_cnt"] == 2
    gids = [two.query_gid(number, 0) for number in (1, 2)]
    assert gids[0] != gids[1]
    for number in (2, 1):
        here, there = End(two, len(BYTES)), End(one, len(BYTES))
        join(here, number, there, 1)
        before = [two.query_counters(port=each) for each in (1, 2)]
        write(here, there)
        write(there, here)
        after = [two.query_counters(port=each) for each in (1, 2)]
        moved = [new["packets_sent"] - old["packets_sent"] for old, new in zip(before, after, strict=True)]
        assert moved[number - 1] > 0
        assert moved[2 - number] == 0
        here.close()
        there.close()
    two.close()
    one.close()


def test_two_ports_of_a_device_reach_each_other(device):
    driver = registry.open_device("two")
    here, there = End(driver, len(BYTES)), End(driver, len(BYTES))
    join(here, 1, there, 2)
    write(here, there)
    write(there, here)
    figures = [driver.query_counters(port=number) for number in (1, 2)]
    assert all(figure["packets_received"] > 0 for figure in figures)
    assert [figure["loopback_packets"] for figure in figures] == [0, 0]
    here.close()
    there.close()
    driver.close()


def test_addresses_that_were_chosen_are_kept(loopback_address):
    devices.add("free=udp:*+udp:*")
    try:
        found = []
        for _ in range(2):
            driver = registry.open_device("free")
            found.append([driver.query_gid(number, 0) for number in (1, 2)])
            driver.close()
        assert found[0] == found[1]
        assert len(set(found[0])) == 2
    finally:
        devices.remove("free")
