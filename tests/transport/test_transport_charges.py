"""What a reliable sender charges to its destination's window: all that is in flight, and no more than there
is room for."""

import pytest

from softhca.queues import wqe
from softhca.testing.transport_pair import Faults
from softhca.transport.window import BURST_OVERHEAD_BYTES, FULL_BURST_BYTES, DestinationWindow

OVERHEAD_BYTES = 100  # of a packet at the destination
PMTU = 1024


@pytest.fixture
def silent(pair):
    """A pair whose packets get lost, and its window."""

    def make(limit_bytes=1 << 24, **settings):
        window = DestinationWindow(limit_bytes, limit_bytes, OVERHEAD_BYTES)
        p = pair(pmtu=PMTU, window=window, faults=Faults(rule=lambda way, packet: 0), **settings)
        return p, window

    return make


def send_all(p):
    while p.transmit(p.a):
        pass


@pytest.mark.parametrize("size", [0, 1, PMTU, 3 * PMTU + 5, 64 * PMTU, 65 * PMTU, 150_000])
@pytest.mark.parametrize("opcode", [wqe.RDMA_WRITE, wqe.SEND])
def test_messages_are_charged_as_their_bursts_cost(silent, opcode, size):
    p, window = silent()
    source, target = p.left.region(max(size, 1)), p.right.region(max(size, 1))
    p.left.post(opcode, [source.sge(0, size)] if size else [], remote=target)
    send_all(p)
    assert sum(packets for _, packets, _ in p.bursts) == max(1, -(-size // PMTU))
    assert window.in_flight_bytes == sum(window.cost(length, packets) for _, packets, length in p.bursts)


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("opcode", [wqe.RDMA_WRITE, wqe.SEND])
def test_messages_that_share_a_burst_are_charged_for_one(silent, opcode, count):
    p, window = silent()
    source, target = p.left.region(64), p.right.region(64)
    for _ in range(count):
        p.left.post(opcode, [source.sge(0, 10)], remote=target, ring=False)
    p.left.qp.doorbell(p.now)
    send_all(p)
    assert [packets for _, packets, _ in p.bursts] == [count]
    assert window.in_flight_bytes == window.cost(p.bursts[0][2], count)


@pytest.mark.parametrize("size", [1, PMTU, 3 * PMTU + 5, 16 * PMTU, 40_000])
def test_a_read_is_charged_with_its_responses(silent, size):
    p, window = silent(slice_bytes=16 * PMTU, rd_atomic=16)
    local, remote = p.left.region(size), p.right.region(size)
    p.left.post(wqe.RDMA_READ, [local.sge()], remote=remote)
    send_all(p)
    packets, slices = -(-size // PMTU), -(-size // (16 * PMTU))
    assert len(p.decoded("ab")) == slices
    assert window.in_flight_bytes == size + packets * (16 + OVERHEAD_BYTES) + slices * BURST_OVERHEAD_BYTES


@pytest.mark.parametrize("room", range(0, 12_000, 700))
@pytest.mark.parametrize("opcode", [wqe.RDMA_WRITE, wqe.RDMA_READ])
def test_no_more_goes_than_there_is_room_for(silent, opcode, room):
    limit = FULL_BURST_BYTES + BURST_OVERHEAD_BYTES
    p, window = silent(limit)
    window.charge(limit - room)  # others have it
    mine, theirs = p.left.region(20_000), p.right.region(20_000)
    for size in (20_000, 1_000, 10):
        p.left.post(opcode, [mine.sge(0, size)], remote=theirs, ring=False)
    p.left.qp.doorbell(p.now)
    send_all(p)
    assert window.in_flight_bytes <= limit
    sent = window.in_flight_bytes - (limit - room)
    packet = PMTU + 60 + OVERHEAD_BYTES
    if opcode == wqe.RDMA_WRITE:
        assert room - sent <= packet + BURST_OVERHEAD_BYTES, "nor much less"
    window.give_up(limit - room)


def test_who_finds_no_place_in_others_burst_keeps_its_turn(pair):
    """It was given the turn for room in the window, which it has not used."""
    p = pair(pmtu=PMTU, qps=3)
    first, second, third = p.lefts
    window = first.qp.flow.window
    source, target = p.left.region(8 * PMTU), p.right.region(8 * PMTU)
    for end in p.lefts:
        end.post(wqe.RDMA_WRITE, [source.sge(0, PMTU)], remote=target)
    p.burst.reset()
    assert first.qp.flow.produce(p.burst, p.now) == 1
    window.turn = second.qp.flow
    third.qp.flow.waiting = True
    window.waiters.append(third.qp.flow)
    p.burst.closed = True  # nothing fits behind it
    assert second.qp.flow.produce(p.burst, p.now) == 0
    assert window.turn is second.qp.flow
    p.burst.reset()
    assert second.qp.flow.produce(p.burst, p.now) == 1
    assert window.turn is third.qp.flow


@pytest.mark.parametrize("opcode", [wqe.RDMA_WRITE, wqe.RDMA_READ, wqe.ATOMIC_FETCH_AND_ADD])
def test_who_sends_one_beyond_the_window_keeps_its_place_in_the_queue(silent, opcode):
    p, window = silent(qps=3)
    source, target = p.left.region(64), p.right.region(64)
    window.charge(window.limit_bytes)
    for end in p.lefts:
        for _ in range(2):
            end.post(opcode, [source.sge(0, 8)], remote=target)
    send_all(p)
    flows = [end.qp.flow for end in p.lefts]
    assert list(window.waiters) == flows
    assert p.decoded("ab") == []
    p.now = p.lefts[1].qp.send_engine().retry.deadline_ns  # nothing was heard for so long
    flows[1].expire(p.now)
    send_all(p)
    assert len(p.decoded("ab")) == 1
    assert list(window.waiters) == flows


def test_who_sends_again_waits_behind_those_who_have_waited(silent):
    """What a time-out gives back is for the first waiter, also where nothing else is in flight: else one that
    loses much has the window for itself until it is done."""
    p, window = silent(FULL_BURST_BYTES + BURST_OVERHEAD_BYTES, qps=3, slice_bytes=64 * PMTU)
    local, remote = p.left.region(48 * PMTU), p.right.region(48 * PMTU)
    for end in p.lefts:
        end.post(wqe.RDMA_READ, [local.sge()], remote=remote)
        send_all(p)
    flows = [end.qp.flow for end in p.lefts]
    for _ in range(4):
        assert window.sender is flows[0]
        assert list(window.waiters) == flows[1:]
        p.now = flows[0].qp.send_engine().retry.deadline_ns
        flows[0].expire(p.now)
        p.burst.reset()
        assert flows[0].produce(p.burst, p.now) == 0, "the turn is the next one's"
        send_all(p)
        flows.append(flows.pop(0))
