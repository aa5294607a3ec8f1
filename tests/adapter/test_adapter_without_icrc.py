"""Bursts on ways that need no ICRC: what is written, what is sealed for another way, and what is taken."""

import pytest
from forged_writes import PORT, drops, signed, write_packet

from softhca.testing.ends import WRITE, End, connect, post
from softhca.testing.network import Network
from softhca.wire.burst import Arrival, Burst
from softhca.wire.framing import ROCE_V4
from softhca.wire.icrc import seal


def bursts(needs_icrc, counted=False, lengths=(10_000,)):
    """What the adapter of a connected queue pair hands to its link for RDMA WRITEs of these lengths."""
    world = Network()
    left, right = End(world.add(1), 20_000), End(world.add(2), 20_000)
    left_qp, right_qp = left.qp(), right.qp()
    connect((left, left_qp), (right, right_qp))
    left.memory[:] = bytes(range(250)) * 80
    adapter = left.node.adapter
    route = adapter.queue_pairs.get(left_qp.number).flow.route
    route.needs_icrc, route.counted = needs_icrc, counted
    for length in lengths:
        post(left_qp, WRITE, [left.sge(0, length)] if length else [], va=right.va, rkey=right.key.rkey)
    adapter.kick(world.now)
    made = []
    while True:
        burst = Burst()
        if not adapter.transmit(1, burst, world.now):
            break
        made.append(burst)
    world.close()
    return made


def packets(burst):
    """The packets of a burst."""
    data = bytes(burst.buffer[: burst.length])
    return [data[at : at + burst.stride] for at in range(0, burst.length, burst.stride)]


@pytest.mark.parametrize("lengths", [(10_000,), (0, 0, 0), (4096,), (1,)])
@pytest.mark.parametrize("counted", [False, True])
def test_sealed_later_a_burst_is_what_it_would_have_been(lengths, counted):
    with_icrc, without = (bursts(needs, counted, lengths) for needs in (True, False))
    assert len(with_icrc) == len(without) > 0
    for one, other in zip(with_icrc, without, strict=True):
        assert (one.has_icrc, other.has_icrc) == (True, False)
        assert [packet[:-4] for packet in packets(one)] == [packet[:-4] for packet in packets(other)]
        assert {packet[-4:] for packet in packets(other)} == {bytes(4)}
        assert bytes(4) not in {packet[-4:] for packet in packets(one)}
        seal(other)
        assert other.has_icrc
        assert packets(other) == packets(one)


def test_whoever_takes_a_buffer_anew_has_one_with_icrcs():
    burst = Burst()
    burst.has_icrc = False
    burst.reset()
    assert burst.has_icrc


@pytest.fixture
def target():
    """A connected queue pair that expects PSN 100."""
    world = Network()
    left, right = End(world.add(1)), End(world.add(2))
    left_qp, qp = left.qp(), right.qp()
    connect((left, left_qp), (right, qp))
    yield world, left, right, qp
    world.close()


def hand_over(target, data, has_icrc):
    """A packet comes by a way that has said whether there are ICRCs."""
    world, left, right, _ = target
    arrival = Arrival()
    arrival.buffer[: len(data)] = data
    arrival.length = arrival.stride = len(data)
    arrival.framing, arrival.source_port = ROCE_V4, PORT
    arrival.source, arrival.destination = left.node.gid, right.node.gid
    arrival.has_icrc = has_icrc
    right.node.adapter.receive(1, arrival, world.now)


def test_a_packet_without_icrc_is_taken_where_the_way_says_so_and_nowhere_else(target):
    _, _, right, qp = target
    data = write_packet(right, qp) + bytes(4)
    hand_over(target, data, True)
    assert drops(right) == {"icrc": 1}
    assert right.memory[:12] == bytes(12)
    hand_over(target, data, False)
    assert drops(right) == {"icrc": 1}
    assert right.memory[:12] == b"overwritten!"
    assert right.node.adapter.port.sources.checked == 1


@pytest.mark.parametrize(("change", "reason"), [
    ({"qpn": 0x1234}, "unknown_qp"), ({"version": 1}, "version"), ({"pkey": 0x1234}, "pkey"),
    ({"opcode": 0x1F}, "opcode"), ({"opcode": 0x2A}, "service"),
])  # fmt: skip
def test_all_other_checks_are_made(target, change, reason):
    _, _, right, qp = target
    hand_over(target, write_packet(right, qp, **change) + bytes(4), False)
    assert drops(right) == {reason: 1}
    assert right.memory[:12] == bytes(12)


def test_a_packet_without_icrc_makes_no_flow_known_and_hinders_none(target):
    _, left, right, qp = target
    sources = right.node.adapter.port.sources
    hand_over(target, write_packet(right, qp) + bytes(4), False)
    assert (len(sources.connected), len(sources.unconnected)) == (0, 0)
    packet = write_packet(right, qp, psn=101, payload=b"by the wire!")
    hand_over(target, signed(packet, left.node.gid, right.node.gid), True)
    assert right.memory[:12] == b"by the wire!"
    assert len(sources.connected) == 1


def test_what_goes_to_the_adapter_itself_says_that_it_has_none():
    with Network() as network:
        node = network.add(1)
        left, right = End(node, 20_000), End(node, 20_000)
        left_qp, right_qp = left.qp(), right.qp()
        connect((left, left_qp), (right, right_qp))
        node.adapter.queue_pairs.get(left_qp.number).flow.route.needs_icrc = False
        left.memory[:] = bytes(range(250)) * 80
        post(left_qp, WRITE, [left.sge(0, 10_000)], va=right.va, rkey=right.key.rkey)
        network.run()
        assert right.memory[:10_000] == left.memory[:10_000]
        assert node.adapter.port_counters()["drops_icrc"] == 0
