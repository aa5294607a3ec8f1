"""Bursts that are cut on their way: each packet's ICRC is made for its place in the burst."""

import pytest

from softhca.machine.primitives import address_of
from softhca.queues import wqe
from softhca.wire.icrc import syndrome
from softhca.wire.route import Route


def identifications(p, burst_of):
    """For every packet that left, by burst: the identification among 0 … 63 that its ICRC is right for."""
    found = []
    for packets in burst_of:
        row = []
        for packet in packets:
            data = bytearray(packet)
            route = p.left.qp.flow.route
            probes = (
                Route(route.framing, route.source, route.destination, source_port=route.source_port,
                      identification=number)
                for number in range(64)
            )  # fmt: skip
            right = [syndrome(probe, address_of(data), len(data)) == 0 for probe in probes]
            row.append([number for number, fits in enumerate(right) if fits])
        found.append(row)
    return found


def bursts_of(p):
    """All that the left node sends now, a list of packets for each burst."""
    bursts = []
    while p.a.queue:
        before = len(p.log)
        p.transmit(p.a)
        packets = [packet for _, packet in p.log[before:]]
        if packets:
            bursts.append(packets)
    return bursts


@pytest.mark.parametrize("counted", [True, False])
def test_icrcs_are_made_for_the_places_in_a_counted_burst_and_for_zero_in_others(pair, counted):
    p = pair(pmtu=256)
    p.left.qp.flow.route.counted = counted
    source, target = p.left.region(1500, fill=b"z" * 1500), p.right.region(1500)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    p.left.post(wqe.SEND, inline=b"last")
    bursts = bursts_of(p)
    assert max(len(packets) for packets in bursts) > 3
    for row in identifications(p, bursts):
        assert row == [[place if counted else 0] for place in range(len(row))]


def test_a_packet_that_asks_afterwards_keeps_its_identification(pair):
    p = pair(pmtu=256)
    p.left.qp.flow.route.counted = True
    writer = p.left.qp.send_engine().writer
    writer.begin(p.burst, p.left.qp.flow.route, 1 << 40)
    for _ in range(3):
        assert writer.acknowledge(7, 0, 7)
    writer.ask_last()
    packets = [bytes(p.burst.data[at : at + 20]) for at in range(0, 60, 20)]
    assert identifications(p, [packets]) == [[[0], [1], [2]]]
    assert [packet[8] & 0x80 for packet in packets] == [0, 0, 0x80]
