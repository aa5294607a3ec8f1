"""Reliable datagrams: queue pairs and EE contexts that end in a message, and what waits behind it."""

import pytest

from softhca.queues.control_fields import EVENT_SQ_DRAINED
from softhca.queues.layout import (
    WC_INV_EEC_STATE_ERR,
    WC_RECV,
    WC_REM_ABORT_ERR,
    WC_REM_ACCESS_ERR,
    WC_REM_INV_REQ_ERR,
    WC_RETRY_EXC_ERR,
    WC_SUCCESS,
    WC_WR_FLUSH_ERR,
)
from softhca.queues.states import ERR, INIT, RESET, RTR, RTS, SQD
from softhca.testing.ends import ALL_RIGHTS, QKEY, READ, SEND, WRITE
from softhca.testing.reliable_datagrams import establish, send
from softhca.transport.ee_error_cache import EeErrorCache
from softhca.wire import opcodes

FENCED = 3  # and signaled
LOCAL_INV = 7
ENDS = ["error", "reset", "destroy"]


def passing(t):
    """Everything arrives again, but for what is for dead ends."""
    return lambda sent: None if t.lost(sent) else sent.data


def held_last(t):
    """Begin a SEND of three packets to the first right end whose last packet does not arrive; that packet."""
    held = []

    def tamper(sent):
        if sent.packet.transport.bth.opcode == opcodes.RD_SEND_LAST:
            held.append(sent)
            return None
        return sent.data

    t.network.tamper = tamper
    send(t.qp, SEND, [t.left.sge(0, 3000)], t.ees[0], t.peers[0], wr_id=1)
    adapter = t.rights[0].node.adapter
    t.network.run(lambda: held and adapter.port_counters()["packets_received"] == 2)
    t.network.tamper = passing(t)
    return held[0]


def raise_queue_pair(qp):
    qp.modify({"qp_state": INIT, "qkey": QKEY, "qp_access_flags": ALL_RIGHTS})
    qp.modify({"qp_state": RTR, "min_rnr_timer": 12})
    qp.modify({"qp_state": RTS})


@pytest.mark.parametrize("how", ENDS)
def test_a_receiving_queue_pair_that_ends_in_a_message_gives_its_receive_up(trio, how):
    t = trio()
    right, peer = t.rights[0], t.peers[0]
    for number in (1, 2):
        peer.post_recv(number, [right.sge(0, 8192)])
    held_last(t)
    if how == "destroy":
        peer.destroy()
    else:
        peer.modify({"qp_state": ERR if how == "error" else RESET})
    flushed = [(number, WC_WR_FLUSH_ERR, WC_RECV) for number in (1, 2)] if how == "error" else []
    assert [(row.wr_id, row.status, row.opcode) for row in right.poll(2)] == flushed
    assert t.done(1) == [(1, WC_REM_INV_REQ_ERR)]
    t.qp.modify({"qp_state": RTS})
    other = right.queue_pair()
    other.post_recv(7, [right.sge(0, 8192)])
    send(t.qp, SEND, [t.left.sge(0, 3000)], t.ees[0], other, wr_id=2)
    assert t.done(1) == [(2, WC_SUCCESS)]
    assert [row.wr_id for row in right.poll(1)] == [7]
    if how == "reset":
        raise_queue_pair(peer)
        peer.post_recv(8, [right.sge(0, 8192)])
        send(t.qp, SEND, [t.left.sge(0, 3000)], t.ees[0], peer, wr_id=3)
        assert t.done(1) == [(3, WC_SUCCESS)]
        assert [row.wr_id for row in right.poll(1)] == [8]


def test_a_queue_pair_that_was_set_up_anew_takes_nothing_of_an_old_message(trio):
    t = trio()
    right, peer = t.rights[0], t.peers[0]
    peer.post_recv(1, [right.sge(0, 8192)])
    last = held_last(t)
    peer.modify({"qp_state": RESET})
    raise_queue_pair(peer)
    peer.post_recv(2, [right.sge(0, 8192)])
    t.inject(last)
    assert t.done(1) == [(1, WC_REM_INV_REQ_ERR)]
    assert right.poll(1) == []


@pytest.mark.parametrize("how", ENDS)
def test_a_receiving_context_that_ends_in_a_message_aborts_it_and_no_queue_pair(trio, how):
    t = trio()
    right, peer = t.rights[0], t.peers[0]
    for number in (1, 2):
        peer.post_recv(number, [right.sge(0, 8192)])
    held_last(t)
    if how == "destroy":
        t.theirs[0].destroy()
    else:
        t.theirs[0].modify({"qp_state": ERR if how == "error" else RESET})
    (row,) = right.poll(1)
    assert (row.wr_id, row.status, row.opcode) == (1, WC_REM_ABORT_ERR, WC_RECV)
    assert peer.query()["qp_state"] == RTS
    assert t.done(1) == [(1, WC_RETRY_EXC_ERR)]
    if how == "destroy":
        t.theirs[0] = right.device.create_ee(right.rdd)
    else:
        t.theirs[0].modify({"qp_state": RESET})
    t.ees[0].modify({"qp_state": RESET})
    establish(t.left, t.ees[0], right, t.theirs[0].number, 500, 600)
    establish(right, t.theirs[0], t.left, t.ees[0].number, 600, 500)
    send(t.qp, SEND, [t.left.sge(0, 3000)], t.ees[0], peer, wr_id=2)
    assert t.done(1) == [(2, WC_SUCCESS)]
    assert [(row.wr_id, row.byte_len) for row in right.poll(1)] == [(2, 3000)]


@pytest.mark.parametrize("opcode", [READ, SEND])
def test_what_waits_behind_a_message_that_is_given_up_goes_at_once(trio, opcode):
    t = trio(retry_cnt=7, max_rd_atomic=1)
    right, other = t.rights[0], t.left.queue_pair()
    t.peers[0].post_recv(1, [right.sge(16384, 8192)])
    held = []

    def keep(sent):
        answer = sent.source is not t.left.node
        if answer or sent.packet.transport.bth.opcode == opcodes.RD_SEND_LAST:
            held.append(sent)
            return None
        return sent.data

    t.network.tamper = keep
    fields = {"va": right.va, "rkey": right.key.rkey}
    send(t.qp, opcode, [t.left.sge(0, 3000)], t.ees[0], t.peers[0], wr_id=1, **fields)
    for number in (2, 3):
        send(other, READ, [t.left.sge(4096, 3000)], t.ees[0], t.peers[0], wr_id=number, **fields)
    t.network.run(lambda: held)
    right.memory[:3000] = bytes(range(250)) * 12
    t.network.tamper = passing(t)
    begun_ns = t.network.now
    t.qp.modify({"qp_state": RESET})
    assert t.done(2) == [(2, WC_SUCCESS), (3, WC_SUCCESS)]
    assert t.network.now - begun_ns < 4096 << 8
    assert bytes(t.left.memory[4096:7096]) == bytes(range(250)) * 12


@pytest.mark.parametrize("length", [8, 3000])
def test_a_refusal_that_is_lost_is_said_again(trio, length):
    t = trio()
    lost = []

    def lose(sent):
        if sent.source is not t.left.node and not lost:
            lost.append(sent)
            return None
        return sent.data

    t.network.tamper = lose
    t.write(0, 1, length, rkey=1)
    assert t.done(1) == [(1, WC_REM_ACCESS_ERR)]


@pytest.mark.parametrize("kind", ["fenced", "invalidation"])
def test_what_must_not_overtake_waits_for_what_was_set_aside(trio, kind):
    t = trio()
    window = t.left.region(0, 64, va=0x900000)
    t.dead.add(0)
    t.write(0, 0)
    t.write(1, 1)
    healthy = t.rights[1]
    if kind == "fenced":
        send(t.qp, WRITE, [t.left.sge(0, 64)], t.ees[1], t.peers[1], wr_id=2, va=healthy.va,
             rkey=healthy.key.rkey, flags=FENCED)  # fmt: skip
    else:
        t.qp.post_send(LOCAL_INV, 2, 0, 2, 0, window.rkey, 0, 0, 0, 0, 0, [], None)
        t.qp.ring()
    t.write(1, 3)
    found = t.left.poll(4)
    assert [row.wr_id for row in found][:2] == [0, 1]
    assert (found[0].status, found[1].status) == (WC_RETRY_EXC_ERR, WC_SUCCESS)
    writes = [p.time_ns for p in t.packets if p.route.destination == healthy.node.gid]
    given_up_ns = [p.time_ns for p in t.packets if p.route.destination == t.rights[0].node.gid][-1]
    assert writes[0] < given_up_ns
    if kind == "fenced":
        assert [row.status for row in found[2:]] == [WC_SUCCESS, WC_SUCCESS]
        assert writes[-1] > given_up_ns
        assert sum(each < given_up_ns for each in writes) == 3  # the first message alone


def test_an_error_is_told_by_the_number_of_the_context(trio):
    t = trio()
    seen = []
    t.left.node.adapter.observer = lambda event, number, *rest: seen.append((event, number))
    t.dead.add(0)
    t.write(0, 1)
    assert t.done(1) == [(1, WC_RETRY_EXC_ERR)]
    t.left.node.adapter.observer = None
    assert ("state_changed", t.ees[0].number) in seen
    t.write(0, 2)
    assert t.done(1) == [(2, WC_INV_EEC_STATE_ERR)]


def test_what_a_responder_reports_is_of_its_context_and_not_of_the_queue_pair_it_served(trio):
    t = trio()
    t.write(0, 1)
    assert t.done(1) == [(1, WC_SUCCESS)]
    seen = []
    t.rights[0].node.adapter.observer = lambda event, number, *rest: seen.append((event, number))
    t.theirs[0].modify({"qp_state": ERR})
    t.rights[0].node.adapter.observer = None
    assert ("state_changed", t.theirs[0].number) in seen
    assert t.peers[0].query()["qp_state"] == RTS


@pytest.mark.parametrize("how", ENDS)
def test_a_queue_pair_that_ends_takes_its_requests_out_of_the_error_cache(trio, how):
    t = trio(config={"ee_error_cache": 1})
    t.dead.add(0)
    t.write(0, 1)
    t.network.run(lambda: t.figures()["ee_error_cache_entries"])
    if how == "destroy":
        t.qp.destroy()
    else:
        t.qp.modify({"qp_state": ERR if how == "error" else RESET})
    assert t.figures()["ee_error_cache_entries"] == 0


def test_who_waits_for_a_receiver_that_is_not_ready_keeps_nobody_else_waiting(trio):
    t = trio(rnr_retry=7)
    send(t.qp, SEND, [t.left.sge(0, 100)], t.ees[0], t.peers[0], wr_id=1)
    t.write(1, 2)
    t.network.run(lambda: any(p.route.destination == t.rights[1].node.gid for p in t.packets))
    assert t.figures()["ee_error_cache_entries"] == 1
    t.peers[0].post_recv(5, [t.rights[0].sge(0, 8192)])
    assert t.done(2) == [(1, WC_SUCCESS), (2, WC_SUCCESS)]


def test_a_resync_that_nobody_answers_ends_the_context(trio):
    t = trio()
    t.network.tamper = lambda sent: (
        None if sent.packet.transport.bth.opcode == opcodes.RD_RESYNC else sent.data
    )
    t.write(0, 1, rkey=1)
    assert t.done(1) == [(1, WC_REM_ACCESS_ERR)]
    t.qp.modify({"qp_state": RTS})
    t.write(0, 2)
    assert t.done(1) == [(2, WC_INV_EEC_STATE_ERR)]
    assert t.ees[0].query()["qp_state"] == ERR


def test_a_queue_drains_when_its_last_message_has_ended(trio):
    t = trio()
    t.write(0, 1)
    t.write(1, 2)
    t.network.run(lambda: t.packets)
    t.qp.modify({"qp_state": SQD, "en_sqd_async_notify": 1})
    assert t.left.device.next_event(0) is None
    assert t.done(1) == [(1, WC_SUCCESS)]
    assert t.left.device.next_event(0) == (EVENT_SQ_DRAINED, t.qp.number)
    t.network.elapse(1_000_000)
    assert t.left.cq.poll(1) == []
    t.qp.modify({"qp_state": RTS})
    assert t.done(1) == [(2, WC_SUCCESS)]


class Waiter:
    """A queue that waits for a place in the cache; it takes it, or not."""

    def __init__(self, cache, takes=True):
        self.cache, self.takes, self.asked = cache, takes, 0

    def message(self):
        made = type("Message", (), {})()
        made.queue, made.aside = self, False
        return made

    def place_free(self):
        self.asked += 1
        if self.takes:
            self.cache.put(self.message())


def test_places_of_the_cache_are_given_in_the_order_of_waiting():
    cache = EeErrorCache(2)
    first = [Waiter(cache).message() for _ in range(2)]
    assert [cache.put(each) for each in first] == [True, True]
    assert [each.aside for each in first] == [True, True]
    waiters = [Waiter(cache) for _ in range(3)]
    assert [cache.put(each.message()) for each in waiters] == [False] * 3
    cache.forget(waiters[1])
    cache.remove(first[0])
    assert not first[0].aside
    assert [each.asked for each in waiters] == [1, 0, 0]
    cache.remove(first[1])
    assert [each.asked for each in waiters] == [1, 0, 1]
    assert cache.figures() == {
        "ee_error_cache_entries": 2, "ee_error_cache_most": 2, "ee_error_cache_refused": 3,
        "ee_error_cache_set_aside": 4,
    }  # fmt: skip


def test_a_place_that_one_does_not_take_goes_to_the_next():
    cache = EeErrorCache(1)
    first = Waiter(cache).message()
    cache.put(first)
    waiters = [Waiter(cache, takes=False), Waiter(cache), Waiter(cache)]
    for each in waiters:
        cache.put(each.message())
    cache.remove(first)
    assert [each.asked for each in waiters] == [1, 1, 0]


def test_the_most_that_were_in_the_cache_together_stay_known():
    cache = EeErrorCache(4)
    messages = [Waiter(cache).message() for _ in range(4)]
    for each in messages[:3]:
        cache.put(each)
    for each in messages[:3]:
        cache.remove(each)
    cache.put(messages[3])
    assert cache.figures() == {
        "ee_error_cache_entries": 1, "ee_error_cache_most": 3, "ee_error_cache_refused": 0,
        "ee_error_cache_set_aside": 4,
    }  # fmt: skip


def test_without_a_cache_nobody_waits_for_a_place():
    cache = EeErrorCache(0)
    assert not cache.put(Waiter(cache).message())
    assert (cache.queues, cache.refused) == ({}, 0)
