"""Who waits for room in a window that others share has asked for an acknowledgement: no wait ends by a
time-out."""

import pytest

from softhca.queues import wqe
from softhca.testing.transport_pair import Faults
from softhca.transport.conditions import WINDOW
from softhca.transport.window import DEFAULT_MAXIMUM_BYTES, FULL_BURST_BYTES, STALL_NS, DestinationWindow
from softhca.wire.psn import distance

SIZE = 400_000
TIMEOUT = 16  # far longer than all that follows takes


def unasked(qp):
    """Whether something of the queue pair is in flight that was not asked for, and nothing that was."""
    requester = qp.send_engine()
    una, asked, high = requester.una_psn, requester.asked_psn, requester.high_psn
    return distance(una, high) > 0 and distance(una, asked) <= 0


def stop(p, *ends):
    """Let these have no turn until they are scheduled again."""
    p.a.queue.clear()
    for end in ends:
        end.qp.flow.scheduled = False


def run(p, also=lambda: None):
    """Until nothing moves any more; whoever waits for the window has asked, in every step."""
    waited = 0
    for _ in range(200_000):
        if not p.step():
            break
        for left in p.lefts:
            if left.qp.send_engine().condition == WINDOW:
                waited += 1
                assert not unasked(left.qp)
        also()
    assert not any(left.qp.counters.timeouts for left in p.lefts)
    assert not any(left.qp.counters.retransmissions for left in p.lefts)
    for left in p.lefts:
        assert not any(c.status for c in left.sent())
    assert p.left.qp.flow.window.losses == 0
    p.at_rest()
    return waited


@pytest.mark.parametrize("pmtu", [256, 1024, 4096])
@pytest.mark.parametrize("qps", [2, 3, 8])
@pytest.mark.parametrize(("limit", "overhead"), [(3, 0), (4, 0), (4, 1_280), (8, 1_280), (16, 1_280)])
def test_queue_pairs_that_share_a_window_never_wait_for_a_time_out(pair, pmtu, qps, limit, overhead):
    limit_bytes = DEFAULT_MAXIMUM_BYTES // 4 * limit
    window = DestinationWindow(limit_bytes, limit_bytes, overhead)
    p = pair(pmtu=pmtu, qps=qps, timeout=TIMEOUT, entries=8, window=window)
    size = SIZE * max(pmtu, 1024) // 4096
    source, target = p.left.region(size), p.right.region(size)
    for left in p.lefts:
        for _ in range(max(2, limit // 2)):
            left.post(wqe.RDMA_WRITE, [source.sge()], remote=target, ring=False)
        left.qp.doorbell(p.now)
    assert run(p) > 0 or pmtu == 256 or qps * max(2, limit // 2) * size < limit_bytes


def test_a_read_that_needs_more_room_than_is_left_does_not_wait_for_a_time_out(pair):
    """What a writer has in flight leaves no room for a slice, and the writer stands behind the reader."""
    p = pair(pmtu=1024, qps=2, timeout=TIMEOUT)
    writer, reader = p.lefts
    source, target = p.left.region(SIZE, fill=bytes(SIZE)), p.right.region(SIZE)
    writer.post(wqe.RDMA_WRITE, [source.sge()], remote=target, ring=False)
    writer.qp.doorbell(p.now)
    p.transmit(p.a)
    assert unasked(writer.qp)
    stop(p, writer)
    reader.post(wqe.RDMA_READ, [source.sge()], remote=target)
    p.transmit(p.a)
    assert reader.qp.send_engine().condition == WINDOW
    p.a.schedule(writer.qp.flow)
    assert run(p) > 0


def test_one_packet_goes_beyond_a_full_window_and_asks(pair):
    p = pair(pmtu=1024, qps=1, timeout=TIMEOUT)
    window, requester = p.left.qp.flow.window, p.left.qp.send_engine()
    source, target = p.left.region(SIZE), p.right.region(SIZE)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    p.transmit(p.a)
    sent = sum(packets for _, packets, _ in p.bursts)
    assert not any(row["ack_request"] for row in p.decoded("ab"))
    window.limit_bytes = window.in_flight_bytes
    p.transmit(p.a)
    assert [row["ack_request"] for row in p.decoded("ab")] == [False] * sent + [True]
    assert requester.condition == WINDOW
    assert window.in_flight_bytes > window.limit_bytes
    assert not p.transmit(p.a)
    window.limit_bytes = window.maximum_bytes
    run(p)


def test_who_asks_beyond_the_window_keeps_its_place_among_those_that_wait(pair):
    p = pair(pmtu=1024, qps=3, timeout=TIMEOUT)
    window = p.left.qp.flow.window
    first, second, third = p.lefts
    source, target = p.left.region(SIZE), p.right.region(SIZE)
    second.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    p.transmit(p.a)
    stop(p, second)
    others = window.limit_bytes
    window.charge(others)
    for end in (first, second, third):
        if end is not second:
            end.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
        else:
            p.a.schedule(end.qp.flow)
        while p.transmit(p.a):
            pass
    assert list(window.waiters) == [first.qp.flow, second.qp.flow, third.qp.flow]
    assert [row["ack_request"] for row in p.decoded("ab")][-1]
    sent = len(p.log)
    second.qp.send_engine().probe = True  # once more, while it waits between the others
    p.a.schedule(second.qp.flow)
    while p.transmit(p.a):
        pass
    assert len(p.log) == sent + 1
    assert list(window.waiters) == [first.qp.flow, second.qp.flow, third.qp.flow]
    window.give_up(others)
    run(p)
    assert not any(left.qp.flow.waiting for left in p.lefts)


def test_what_was_not_asked_for_is_asked_for_when_the_answer_to_the_rest_leaves_it_waiting(pair):
    """The window has become smaller meanwhile, and another one has its turn first."""
    p = pair(pmtu=1024, qps=2, timeout=TIMEOUT)
    left, other = p.lefts
    window, requester = left.qp.flow.window, left.qp.send_engine()
    window.limit_bytes = window.maximum_bytes = 16 * (FULL_BURST_BYTES + 1_280)
    source, target = p.left.region(SIZE * 4), p.right.region(SIZE * 4)
    left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    while distance(requester.asked_psn, requester.high_psn) < 100 or requester.asked_psn == 0:
        assert p.transmit(p.a)
    window.limit_bytes = window.maximum_bytes = FULL_BURST_BYTES + 1_280
    other.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    assert run(p) > 0


def test_a_long_send_that_learns_of_no_credits_on_its_way_does_not_wait_for_a_time_out(pair):
    """The receive that it takes is posted behind the acknowledgement that tells of none."""
    p = pair(pmtu=256, timeout=TIMEOUT)
    p.left.qp.flow.window.limit_bytes = DEFAULT_MAXIMUM_BYTES
    source, target = p.left.region(60_000), p.right.region(60_000)
    p.right.post_receive([target.sge()])
    p.left.post(wqe.SEND, inline=b"0", ring=False)
    p.left.post(wqe.SEND, [source.sge()])
    assert p.transmit(p.a)
    stop(p, p.left)
    while not p.right.qp.counters.acks_sent:
        assert p.step()
    p.right.post_receive([target.sge()])
    p.a.schedule(p.left.qp.flow)
    assert p.transmit(p.a)  # the acknowledgement is on its way
    stop(p, p.left)
    assert p.left.qp.send_engine().cursor_packet > 0
    while not p.left.qp.send_engine().limited:
        assert p.step()
    p.a.schedule(p.left.qp.flow)
    run(p)
    assert len(p.right.received()) == 2


def test_a_window_that_grew_is_bounded_by_a_packet_for_each_queue_pair(pair):
    p = pair(pmtu=1024, qps=8, timeout=TIMEOUT, faults=Faults(1, 0.0))
    window = p.left.qp.flow.window
    assert isinstance(window, DestinationWindow)
    source, target = p.left.region(SIZE), p.right.region(SIZE)
    for left in p.lefts:
        left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)

    def look():
        assert window.in_flight_bytes <= window.maximum_bytes + 8 * (1024 + 16 + 1_280)

    run(p, look)


@pytest.mark.parametrize("answered", [True, False])
def test_who_waits_while_others_are_answered_sends_nothing_and_otherwise_one_packet(pair, answered):
    window = DestinationWindow()
    p = pair(window=window, timeout=8)
    window.charge(window.limit_bytes)  # another queue pair's
    requester = p.left.qp.send_engine()
    target = p.right.region(100_000)
    p.left.post(wqe.RDMA_WRITE, [p.left.region(100_000).sge()], remote=target)
    period = STALL_NS // 4

    def others():
        # something comes back, and as much goes out again
        if answered:
            window.on_ack(1, p.now)
            window.charge(1)
        else:
            window.give_up(1)
            window.charge(1)
        p.after(period, others)

    others()
    begin = p.now
    while p.now < begin + 3 * STALL_NS and not p.log:
        assert p.step()
    if answered:
        assert p.log == []
        assert requester.retry.retries_left == requester.retry.retry_count
    else:
        assert len(p.log) == 1
        assert STALL_NS <= p.now - begin <= STALL_NS + period
