"""What a port knows of its senders: whose flow a packet is of, how many are known, and what is believed."""

import struct

import pytest
from forged_writes import drops, send_identified, signed

from softhca.adapter.counters import PortCounters
from softhca.adapter.sources import IDENTIFICATION_WINDOW, Sources
from softhca.machine.primitives import address_of
from softhca.testing.addressing import gid
from softhca.testing.ends import End, connect, pair
from softhca.testing.network import Network
from softhca.wire.burst import Arrival
from softhca.wire.drops import DROP_ICRC
from softhca.wire.framing import ROCE_V4

HERE, THERE = gid(9), gid(10)
MS = 1_000_000
SOUND = 0


class Table:
    """The sources of a port with room for two that no connection has."""

    def __init__(self):
        self.counters = PortCounters()
        self.sources = Sources(2, self.counters)

    def takes(self, identification, source=gid(1), port=1000, destination=HERE, now=0):  # noqa: B008 - bytes
        """Whether a packet is found sound that bears this IPv4 identification."""
        bth = struct.pack(">BBHII", 0x64, 0, 0xFFFF, 5, 0)
        data = bytearray(signed(bth, source, destination, port, identification))
        arrival = Arrival()
        arrival.framing = ROCE_V4
        arrival.source, arrival.destination, arrival.source_port = source, destination, port
        assert self.sources.aim(arrival)
        found = self.sources.check(None, address_of(data), len(data), now)
        assert found in (SOUND, DROP_ICRC)
        return found == SOUND


@pytest.mark.parametrize("other", [{"source": gid(2)}, {"port": 1001}, {"destination": THERE}])
def test_a_flow_is_an_address_a_port_and_where_it_sends_to(other):
    table = Table()
    assert table.takes(20_000)
    assert not table.takes(50_000), "it jumps"
    assert table.takes(40_000, **other), "another flow begins"
    assert table.takes(20_001)


def test_who_has_been_silent_for_longest_gives_way():
    table = Table()
    one, two, three = ({"port": port} for port in (1, 2, 3))
    for flow in (one, two, one, three):
        assert table.takes(20_000, **flow)
    assert len(table.sources.unconnected) == 2
    assert not table.takes(50_000, **one), "it is known still"
    assert not table.takes(50_000, **three)
    assert table.takes(50_000, **two), "it is known no more"


def test_what_is_recovered_is_counted_and_nothing_else():
    table = Table()
    assert table.takes(0)
    assert table.takes(0)
    assert table.counters.identifications_recovered == 0
    assert table.takes(7)
    assert table.counters.identifications_recovered == 1
    assert not table.takes(30_000)
    assert table.counters.identifications_recovered == 1
    assert table.sources.checked == 4


@pytest.mark.parametrize("found", [0xFFFF, 0xFFFF - 100, 2])
def test_nothing_has_been_refused_before_the_first_that_is(found):
    table = Table()
    assert table.takes(30_000)
    assert not table.takes(found)
    assert table.takes(found), "the second one behind a jump"


def test_a_jump_is_believed_near_the_one_that_was_refused():
    table = Table()
    assert table.takes(10_000)
    assert not table.takes(30_000)
    assert not table.takes(30_001 + IDENTIFICATION_WINDOW)
    assert table.takes(30_001 + 2 * IDENTIFICATION_WINDOW)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_window_ends_where_it_says(sign):
    for over, taken in ((0, True), (1, False)):
        table = Table()
        assert table.takes(20_000)
        assert table.takes(20_000 + sign * (IDENTIFICATION_WINDOW + over)) is taken


def test_the_identification_grows_with_the_time_since_its_sender_used_it():
    """Not with that since the flow did, which may be much longer."""
    late = 2_200 * MS  # in which it may grow by another window
    for found, taken in ((30_000 + IDENTIFICATION_WINDOW, True), (36_000, False)):
        table = Table()
        assert table.takes(1_000, port=1)
        assert table.takes(30_000, port=2, now=late)
        assert table.takes(found, port=1, now=late) is taken


def test_connections_of_one_flow_know_it_together():
    with Network() as world:
        left, right = End(world.add(1)), End(world.add(2))
        queue_pairs = []
        for _ in range(2):
            peers = left.qp(), right.qp()
            connect((left, peers[0]), (right, peers[1]))
            queue_pairs.append(peers[1])
        assert send_identified(world, left, right, queue_pairs[0], 100, 20_000)
        assert not send_identified(world, left, right, queue_pairs[1], 100, 50_000)
        assert send_identified(world, left, right, queue_pairs[1], 100, 20_001)


@pytest.mark.parametrize("framing", [3, 255])
def test_a_framing_that_there_is_not_comes_from_nobody(framing):
    world, left, _, right, _ = pair()
    arrival = Arrival()
    arrival.length = arrival.stride = 32
    arrival.framing, arrival.source, arrival.destination = framing, left.node.gid, right.node.gid
    right.node.adapter.receive(1, arrival, 0)
    assert drops(right) == {"source": 1}
    world.close()
