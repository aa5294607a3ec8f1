"""What changes while something is under way: path, resources, a full completion queue, an eager consumer."""

import random

import pytest

from softhca.queues import cqe, wqe
from softhca.queues.completion import CompletionQueue
from softhca.queues.control_fields import EVENT_SQ_DRAINED
from softhca.transport.conditions import STALLED
from softhca.transport.replay import ReplayRing
from softhca.transport.states import ERR, RC, RESET, RTS, SQD, SQE, UC
from softhca.transport.window import MOST_STALL_NS, DestinationWindow
from softhca.wire import opcodes as op

PATTERN = random.Random(3).randbytes(200_000)


def test_new_path_while_draining_takes_what_is_in_flight_from_the_old_window(pair):
    p = pair(pmtu=1024)
    source, target = p.left.region(200_000, fill=PATTERN), p.right.region(200_000)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    p.step()
    old, new = p.left.qp.flow.window, DestinationWindow()
    assert old.in_flight_bytes > 0
    assert p.left.qp.modify({"qp_state": SQD, "en_sqd_async_notify": 1}, p.now) == 0
    route = p.route(p.a.gid, p.b.gid)
    assert p.left.qp.modify({"qp_state": SQD, "ah_attr": {"sl": 0}}, p.now, route=route, window=new) == 0
    assert old.in_flight_bytes == 0
    p.run()
    assert [c.status for c in p.left.sent()] == [0]
    assert p.a.events == [(EVENT_SQ_DRAINED, p.left.number)]
    assert target.data == source.data
    assert new.in_flight_bytes == old.in_flight_bytes == 0
    assert new.turn is old.turn is None


def test_new_path_while_waiting_for_the_old_window_goes_on_in_the_new_one(pair):
    p = pair(pmtu=1024)
    source, target = p.left.region(200_000, fill=PATTERN), p.right.region(200_000)
    old, new = p.left.qp.flow.window, DestinationWindow()
    p.left.post(wqe.RDMA_WRITE, [source.sge(0, 100_000)], remote=target)
    p.step()
    old.charge(old.limit_bytes)  # of another queue pair, which never gets an answer
    while not p.left.qp.flow.waiting:
        assert p.step()
    assert p.left.qp.modify({"qp_state": SQD}, p.now) == 0
    route = p.route(p.a.gid, p.b.gid)
    assert p.left.qp.modify({"qp_state": SQD, "ah_attr": {"sl": 0}}, p.now, route=route, window=new) == 0
    assert not old.waiters
    assert old.in_flight_bytes == old.limit_bytes
    p.run()
    assert [c.status for c in p.left.sent()] == [0]
    assert new.in_flight_bytes == 0


def test_new_path_while_waiting_for_a_sign_of_life_goes_on_in_the_new_window(pair):
    p = pair(pmtu=1024, timeout=0)
    source, target = p.left.region(200_000, fill=PATTERN), p.right.region(200_000)
    requester, old, new = p.left.qp.send_engine(), p.left.qp.flow.window, DestinationWindow()
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    p.step()
    p.flying.clear()  # only what is sent from now on arrives
    old.on_stall()  # for another queue pair, which has waited for long
    while requester.condition != STALLED:
        assert p.step()
    p.flying.clear()
    assert p.left.qp.modify({"qp_state": SQD}, p.now) == 0
    route = p.route(p.a.gid, p.b.gid)
    assert p.left.qp.modify({"qp_state": SQD, "ah_attr": {"sl": 0}}, p.now, route=route, window=new) == 0
    sent = len(p.log)
    p.run()
    assert len(p.log) > sent
    assert new.in_flight_bytes == old.in_flight_bytes == 0
    assert requester.stalled_until_ns == 0


def test_an_answer_ends_the_wait_for_a_sign_of_life_and_its_time(pair):
    p = pair(pmtu=1024, timeout=0)
    source, target = p.left.region(200_000, fill=PATTERN), p.right.region(200_000)
    requester, window = p.left.qp.send_engine(), p.left.qp.flow.window
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    while not p.left.qp.flow.waiting:
        assert p.step()
    window.on_stall()
    while requester.condition != STALLED:
        assert p.transmit(p.a)
    assert requester.stalled_until_ns == p.now + MOST_STALL_NS
    window.charge(window.limit_bytes)  # another queue pair's, so that there is no room
    while requester.condition == STALLED:
        assert p.step()
    while not p.left.qp.flow.waiting:
        assert p.step()
    assert (requester.stalled_until_ns, window.watcher) == (0, p.left.qp.flow)
    p.run()
    assert [c.status for c in p.left.sent()] == [0]
    assert target.data == source.data


def test_unreliable_send_queue_tells_that_it_is_drained_when_the_message_has_gone(pair):
    p = pair(service=UC, pmtu=1024)
    source, target = p.left.region(200_000, fill=PATTERN), p.right.region(200_000)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target, wr_id=1)
    p.left.post(wqe.RDMA_WRITE, inline=b"y", remote=target, wr_id=2)
    p.step()
    assert p.left.qp.modify({"qp_state": SQD, "en_sqd_async_notify": 1}, p.now) == 0
    assert (p.a.events, p.left.qp.query()["sq_draining"]) == ([], 1)
    p.run()
    assert [(c.wr_id, c.status) for c in p.left.sent()] == [(1, 0)]
    assert p.a.events == [(EVENT_SQ_DRAINED, p.left.number)]
    assert p.left.qp.query()["sq_draining"] == 0
    assert p.left.qp.modify({"qp_state": RTS}, p.now) == 0
    p.run()
    assert [(c.wr_id, c.status) for c in p.left.sent()] == [(2, 0)]
    assert target.data == b"y" + PATTERN[1:]


def test_unreliable_queue_pair_that_was_reset_while_it_waited_sends_again(pair):
    p = pair(service=UC)
    target = p.right.region(64)
    window = p.left.qp.flow.window
    window.charge(window.limit_bytes)  # of another queue pair
    p.left.post(wqe.RDMA_WRITE, inline=b"lost", remote=target)
    while not p.left.qp.flow.waiting:
        assert p.step()
    assert p.left.qp.modify({"qp_state": RESET}, p.now) == 0
    window.give_up(window.limit_bytes)
    p.connect(p.left, p.right, 0, 0)
    p.left.post(wqe.RDMA_WRITE, inline=b"again", remote=target, wr_id=2)
    p.run()
    assert [(c.wr_id, c.status) for c in p.left.sent()] == [(2, 0)]
    assert target.data[:5] == b"again"
    p.at_rest()


@pytest.mark.parametrize("resources", [1, 2, 4, 8])
def test_reads_are_answered_although_their_resources_change_in_number(pair, resources):
    p = pair(pmtu=1024, rd_atomic=4)
    source, target = p.right.region(40_000, fill=PATTERN[:40_000]), p.left.region(40_000)
    for i in range(4):
        p.left.post(wqe.RDMA_READ, [target.sge(10_000 * i, 10_000)], remote=source, offset=10_000 * i)
    while p.right.qp.receive_engine().replies.ring.pending < 4:
        assert p.step()
    assert p.right.qp.modify({"qp_state": SQD}, p.now) == 0
    assert p.right.qp.modify({"qp_state": SQD, "max_dest_rd_atomic": resources}, p.now) == 0
    p.run()
    assert [c.status for c in p.left.sent()] == [0] * 4
    assert target.data == source.data
    assert p.left.qp.counters.retransmissions == 0


def test_repeated_atomic_gets_its_saved_result_after_the_resources_have_changed(pair):
    p = pair(rd_atomic=4)
    counter = p.right.region(8)
    for psn in range(3):
        p.forge(op.RC_FETCH_ADD, psn, va=counter.va, rkey=counter.key, swap_add=1)
    p.run()
    assert p.right.qp.modify({"qp_state": SQD}, p.now) == 0
    assert p.right.qp.modify({"qp_state": SQD, "max_dest_rd_atomic": 2}, p.now) == 0
    before = len(p.log)
    for psn in (2, 1, 0):
        p.forge(op.RC_FETCH_ADD, psn, va=counter.va, rkey=counter.key, swap_add=1)
    p.run()
    assert len(p.log) - before == 2  # the newest two; the oldest one's place is gone
    assert p.right.qp.counters.drops_resources == 1
    assert int.from_bytes(counter.data, "little") == 3


@pytest.mark.parametrize("capacity", [0, 1, 2, 3, 5, 9])
@pytest.mark.parametrize("added", [0, 2, 5, 7])
def test_ring_of_another_size_keeps_the_newest(capacity, added):
    ring = ReplayRing(5)
    for psn in range(added):
        ring.add(psn, 1)
    ring.resize(capacity)
    kept = min(added, 5, capacity)
    assert [psn for psn in range(added) if ring.find(psn) is not None] == list(range(added - kept, added))
    assert ring.capacity == capacity
    if capacity:
        assert ring.add(added, 1) is not None
        assert ring.find(added) is not None
        kept = min(kept + 1, capacity)
        assert sum(ring.find(psn) is not None for psn in range(added + 1)) == kept


def test_ring_that_shrinks_keeps_the_pending_ones_in_their_order():
    ring = ReplayRing(4)
    for psn in range(4):
        resource = ring.add(psn, 1)
        if psn in (1, 3):
            ring.ask(resource, 0, 1, 8)
    ring.resize(1)
    assert [ring.find(psn) is not None for psn in range(4)] == [False, True, True, True]
    answered = []
    while (resource := ring.next()) is not None:
        answered.append(resource.first_psn)
        ring.done(resource)
    assert answered == [1, 3]
    ring.resize(1)
    assert ring.capacity == 1


def test_message_whose_completion_is_lost_is_not_acknowledged(pair):
    p = pair(cq_entries=4)
    inbox = p.right.region(64)
    for i in range(6):
        p.right.post_receive([inbox.sge()], wr_id=i)
    for i in range(6):
        p.left.post(wqe.SEND, inline=b"x", wr_id=i)
        p.run()
        if i < 4:
            assert [c.status for c in p.left.sent()] == [0]
    assert p.right.qp.state == p.left.qp.state == ERR
    assert [(c.wr_id, c.status) for c in p.left.sent()] == [(4, cqe.WC_REM_OP_ERR), (5, cqe.WC_WR_FLUSH_ERR)]


class EagerQueue(CompletionQueue):
    """A completion queue whose consumer posts ``left`` more work requests, one as soon as one completes."""

    def __init__(self, queue, post):
        super().__init__(queue.number, queue.producer.layout, queue.notify_hook)
        self.left = 0
        self.more = post

    def post(self, *fields):
        posted = super().post(*fields)
        if self.left:
            self.left -= 1
            self.more()
        return posted


ENTRIES = 16


@pytest.mark.parametrize(("service", "state"), [(RC, ERR), (UC, ERR), (UC, SQE)])
def test_send_queue_is_flushed_at_most_a_ring_a_turn(pair, service, state):
    p = pair(service=service, entries=ENTRIES)
    qp = p.left.qp
    queue = EagerQueue(p.left.send_cq, lambda: p.left.post(wqe.SEND, ring=False))
    qp.send_cq = queue
    if state == ERR:
        assert qp.modify({"qp_state": ERR}) == 0
    else:
        p.left.post(wqe.RDMA_READ)
        p.run()
        assert len(p.left.sent()) == 1
    assert qp.state == state
    queue.left = 3 * ENTRIES
    p.left.post(wqe.SEND)
    assert len(p.left.sent()) == ENTRIES
    assert p.transmit(p.a)
    assert len(p.left.sent()) == ENTRIES
    p.run()
    assert {c.status for c in p.left.sent()} == {cqe.WC_WR_FLUSH_ERR}
    assert queue.left == qp.send_ring.count() == 0
    assert not qp.flow.scheduled


@pytest.mark.parametrize("posted", [1, ENTRIES // 2 + 1, ENTRIES])
def test_reset_drops_all_receives_however_many_there_are(pair, posted):
    p = pair(entries=ENTRIES)
    inbox = p.right.region(64)
    for wr_id in range(posted):
        assert p.right.post_receive([inbox.sge()], wr_id=wr_id)
    assert p.right.qp.modify({"qp_state": RESET}, p.now) == 0
    assert p.right.qp.receive_ring.count() == 0
    assert p.right.received() == []


def test_receive_queue_is_flushed_at_most_a_ring_a_turn(pair):
    p = pair(entries=ENTRIES)
    qp = p.left.qp
    queue = EagerQueue(p.left.receive_cq, p.left.post_receive)
    qp.receive_cq = queue
    queue.left = 3 * ENTRIES
    p.left.post_receive()
    assert qp.modify({"qp_state": ERR}) == 0
    assert len(p.left.received()) == ENTRIES
    assert p.transmit(p.a)
    assert len(p.left.received()) == ENTRIES
    p.run()
    assert {c.status for c in p.left.received()} == {cqe.WC_WR_FLUSH_ERR}
    assert queue.left == qp.receive_ring.count() == 0
    assert not qp.flow.scheduled


def test_what_is_to_be_answered_again_makes_room_for_a_new_request():
    """Who sends a new request has the answers to those before it."""
    ring = ReplayRing(2)
    for psn in (1, 2):
        ring.ask(ring.add(psn, 1), 0, 1, 8)
    assert not ring.has_place()
    assert ring.add(3, 1) is None
    for _ in range(2):
        ring.done(ring.next())
    ring.ask(ring.find(1), 0, 1, 8)
    assert (ring.pending, ring.has_place()) == (1, True)
    new = ring.add(3, 1)
    assert (ring.pending, ring.find(1), ring.next()) == (0, None, None)
    ring.ask(new, 0, 1, 8)
    assert (ring.pending, ring.next()) == (1, new)
