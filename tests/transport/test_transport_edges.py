"""Rules of single steps: what a burst counts and costs, what its timer awaits, which key answers again."""

from types import SimpleNamespace

import pytest

from softhca.queues import cqe, wqe
from softhca.queues.layout import ATOMIC_FETCH_AND_ADD
from softhca.testing.transport_node import PD
from softhca.transport.environment import AddressHandle
from softhca.transport.loopback import Loopback, LoopbackExecutor
from softhca.transport.migration import ARMED, MIGRATED, MOVE, READY, REARMED, AlternatePath
from softhca.transport.retry import RetryState, interval_ns
from softhca.transport.states import ERR, INIT, RC, RESET, RTR, UC, UD
from softhca.wire import opcodes as op
from softhca.wire.route import NATIVE, ROCE_V4, Route


def read_requests(p):
    for left, right in zip(p.lefts, p.rights, strict=True):
        p.left, p.right = left, right
        target = right.region(64)
        p.forge(op.RC_RDMA_READ_REQUEST, 0, va=target.va, rkey=target.key, length=64)


def test_answers_behind_those_of_another_queue_pair_count_as_what_they_are(pair):
    p = pair(qps=2)
    read_requests(p)
    p.burst.reset()
    sizes = []
    for right in p.rights:
        before = p.burst.length
        assert right.qp.flow.produce(p.burst, p.now) == 1
        sizes.append(p.burst.length - before)
    assert [right.qp.counters.bytes_sent for right in p.rights] == sizes


def test_an_acknowledgement_with_a_nak_behind_it_is_not_delayed(pair):
    p = pair()
    p.right.post_receive()
    p.forge(op.RC_SEND_ONLY, 0)
    assert p.right.qp.flow.may_delay_ack()
    p.forge(op.RC_SEND_ONLY, 2)
    assert not p.right.qp.flow.may_delay_ack()


@pytest.mark.parametrize("given", [(9, 7, 7), (8, 5, 7), (8, 7, 5)], ids=str)
def test_each_attribute_of_retries_counts(given):
    retry = RetryState()
    retry.configure(8, 7, 7)
    assert retry.spend_retry()
    retry.configure(*given)
    timeout, retries, rnr_retries = given
    assert retry.interval_ns == interval_ns(timeout)
    assert (retry.retries_left, retry.rnr_retries_left) == (retries, rnr_retries)


def test_the_time_in_which_the_oldest_is_answered_does_not_begin_anew_with_what_follows(pair):
    p = pair()
    p.left.post(wqe.SEND, inline=b"a")
    p.transmit(p.a)
    retry = p.left.qp.send_engine().retry
    deadline_ns = retry.deadline_ns
    p.now += 1000
    p.left.post(wqe.SEND, inline=b"b")
    p.transmit(p.a)
    assert len(p.decoded("ab")) == 2
    assert retry.deadline_ns == deadline_ns


def test_messages_of_one_burst_cost_one_burst(pair):
    p = pair()
    for _ in range(3):
        p.left.post(wqe.SEND, inline=b"abcd")
    p.transmit(p.a)
    ((_, packets, length),) = p.bursts
    window = p.left.qp.flow.window
    assert packets == 3
    assert window.in_flight_bytes == window.cost(length, packets)


def test_an_atomic_operation_gives_back_what_it_cost_when_it_is_answered(pair):
    p = pair()
    remote, local = p.right.region(8), p.left.region(8)
    p.left.post(ATOMIC_FETCH_AND_ADD, [local.sge()], remote=remote, compare=1)
    p.left.post(wqe.SEND, inline=b"x")
    while p.a.queue:
        p.transmit(p.a)
    assert len(p.decoded("ab")) == 2
    window = p.left.qp.flow.window
    before = window.in_flight_bytes
    p.forge(op.RC_ATOMIC_ACKNOWLEDGE, 0, way="ba", original=5)
    assert 0 < window.in_flight_bytes < before


def test_an_atomic_operation_is_answered_again_only_for_the_region_that_it_was_done_in(pair):
    p = pair()
    target, other = p.right.region(8), p.right.region(8)
    p.forge(op.RC_FETCH_ADD, 0, va=target.va, rkey=target.key, swap_add=1)
    while p.b.queue:
        p.transmit(p.b)
    (resource,) = (each for each in p.right.qp.receive_engine().replies.ring.places() if each.atomic)
    resource.region = other.region  # as if that had had the key before
    assert resource.generation == other.region.generation
    p.log.clear()
    p.forge(op.RC_FETCH_ADD, 0, va=target.va, rkey=target.key, swap_add=1)
    while p.b.queue:
        p.transmit(p.b)
    assert [row["syndrome"] for row in p.decoded("ba")] == [0x62]
    assert p.right.qp.counters.key_refusals == 1


def test_no_acknowledgement_joins_others_while_a_read_before_it_is_not_answered(pair):
    p = pair()
    target = p.right.region(64)
    p.right.post_receive()
    p.forge(op.RC_RDMA_READ_REQUEST, 0, va=target.va, rkey=target.key, length=64)
    p.forge(op.RC_SEND_ONLY, 1)
    p.burst.reset()
    assert p.right.qp.receive_engine().join(p.burst, p.now) == 0
    assert p.burst.packets == 0


@pytest.mark.parametrize(("length", "drops"), [(1 << 31, 0), ((1 << 31) + 1, 1)])
def test_an_unreliable_write_is_no_longer_than_a_message(pair, length, drops):
    p = pair(service=UC, pmtu=256)
    target = p.right.region(256)
    p.forge(op.UC_RDMA_WRITE_FIRST, 0, b"a" * 256, va=target.va, rkey=target.key, length=length)
    assert p.right.qp.counters.drops_length == drops
    assert target.data == (bytes(256) if drops else b"a" * 256)


def test_a_read_in_the_place_of_a_message_repeats_nothing_that_is_known(pair):
    p = pair()
    target = p.right.region(64)
    p.right.post_receive()
    where = {"va": target.va, "rkey": target.key, "length": 64}
    p.forge(op.RC_RDMA_READ_REQUEST, 0, **where)
    p.forge(op.RC_SEND_ONLY, 1)
    p.forge(op.RC_RDMA_READ_REQUEST, 1, **where)
    counters = p.right.qp.counters
    assert (counters.drops_resources, counters.drops_sequence) == (1, 0)


@pytest.mark.parametrize("service", [RC, UC, UD])
def test_a_reset_takes_the_receives_that_there_are_and_no_more(pair, service):
    p = pair(service=service, pmtu=256, entries=8)
    target = p.right.region(512)
    for _ in range(3):
        p.right.post_receive([target.sge()])
    if service != UD:  # of which one is taken
        p.forge({RC: op.RC_SEND_FIRST, UC: op.UC_SEND_FIRST}[service], 0, bytes(256))
    assert p.right.qp.modify({"qp_state": RESET}, p.now) == 0
    assert [p.right.post_receive([target.sge()], n) for n in range(9)] == [True] * 8 + [False]
    p.connect(p.right, p.left, 0, 0)
    p.forge({RC: op.RC_SEND_ONLY, UC: op.UC_SEND_ONLY, UD: op.UD_SEND_ONLY}[service], 0)
    assert [(c.wr_id, c.status) for c in p.right.received()] == [(0, 0)]


def test_a_receive_of_a_message_under_way_is_flushed_with_the_others(pair):
    p = pair(pmtu=256)
    target = p.right.region(512)
    for number in range(2):
        p.right.post_receive([target.sge()], number)
    p.forge(op.RC_SEND_FIRST, 0, bytes(256))
    assert p.right.qp.modify({"qp_state": ERR}, p.now) == 0
    while p.b.queue:
        p.transmit(p.b)
    assert [(c.wr_id, c.status) for c in p.right.received()] == [(n, cqe.WC_WR_FLUSH_ERR) for n in range(2)]


def test_the_header_of_a_datagram_counts_its_immediate(pair):
    p = pair(service=UD)
    target = p.right.region(128)
    for place, code in ((0, op.UD_SEND_ONLY), (64, op.UD_SEND_ONLY_WITH_IMMEDIATE)):
        p.right.post_receive([target.sge(place, 64)])
        p.forge(code, 0, b"abcd")
    lengths = [int.from_bytes(target.data[place + 22 : place + 24]) for place in (0, 64)]
    assert lengths[1] == lengths[0] + 4


def test_receives_of_datagrams_are_flushed(pair):
    p = pair(service=UD)
    for number in range(2):
        p.right.post_receive([], number)
    assert p.right.qp.modify({"qp_state": ERR}, p.now) == 0
    while p.b.queue:
        p.transmit(p.b)
    assert [(c.wr_id, c.status) for c in p.right.received()] == [(n, cqe.WC_WR_FLUSH_ERR) for n in range(2)]


def test_the_middle_of_an_unreliable_write_stays_within_its_length(pair):
    p = pair(service=UC, pmtu=256)
    target = p.right.region(1024)
    p.forge(op.UC_RDMA_WRITE_FIRST, 0, b"a" * 256, va=target.va, rkey=target.key, length=300)
    p.forge(op.UC_RDMA_WRITE_MIDDLE, 1, b"b" * 256)
    assert p.right.qp.counters.drops_length == 1
    assert target.data == b"a" * 256 + bytes(768)


def two_that_wait(p):
    """Both queue pairs wait for room in their window, the first of them before the other."""
    flows = [left.qp.flow for left in p.lefts]
    window = flows[0].window
    assert window is flows[1].window
    p.left.post(wqe.SEND, inline=b"x")
    p.transmit(p.a)
    for flow in flows:
        window.wait(flow, p.now)
    return window, flows


def test_who_has_the_turn_while_its_requests_wait_for_receives_gives_it_to_the_next(pair):
    p = pair(qps=2)
    window, flows = two_that_wait(p)
    p.forge(op.RC_ACKNOWLEDGE, 0, way="ba", syndrome=0x20 | 20)
    assert window.turn is flows[0]
    p.transmit(p.a)
    assert window.turn is flows[1]


def test_who_has_the_turn_when_its_requests_are_given_up_gives_it_to_the_next(pair):
    p = pair(qps=2)
    window, flows = two_that_wait(p)
    window.on_stall()
    assert window.turn is flows[0]
    p.transmit(p.a)
    assert window.turn is flows[1]


def test_a_datagram_that_goes_elsewhere_leaves_the_turn_in_the_window_of_the_last_one(pair):
    p = pair(service=UD, qps=2)
    flows = [left.qp.flow for left in p.lefts]
    route = p.route(p.a.gid, ELSEWHERE)
    p.a.handles[2] = AddressHandle(2, PD, route, p.a.window_for(route))
    p.left.post(wqe.SEND, inline=b"x", ah=p.handle(p.left, p.right), qpn=p.right.number, qkey=0x1234)
    p.transmit(p.a)
    window = p.a.window_for(p.route(p.a.gid, p.b.gid))
    for flow in flows:
        window.wait(flow, p.now)
    p.left.post(wqe.SEND, inline=b"x", ah=2, qpn=p.right.number, qkey=0x1234)
    window.on_stall()
    assert window.turn is flows[0]
    p.transmit(p.a)
    assert window.turn is flows[1]


def test_a_receive_ring_that_is_broken_is_an_operation_error_once(pair):
    p = pair()
    p.right.receive_producer.push(p.right.address, 2000)
    p.right.post_receive()
    p.forge(op.RC_SEND_ONLY, 0)
    for _ in range(4):  # which is enough
        p.transmit(p.b)
    assert [c.status for c in p.right.received()] == [cqe.WC_LOC_QP_OP_ERR]
    assert [row["syndrome"] for row in p.decoded("ba")] == [0x63]


# paths

ELSEWHERE = bytes(10) + b"\xff\xff" + bytes([10, 9, 9, 9])


def armed(p, qp, route, **vector):
    """A connection that would migrate to ``route`` from port 2."""
    alternate = AlternatePath(vector, route, 2, 0x8005, 3, 17)
    given = {"alt_ah_attr": vector, "path_mig_state": REARMED}
    assert qp.modify(given, p.now, alternate=alternate) == 0
    assert not qp.migrate(READY, p.now)
    assert qp.migration == ARMED


def test_a_path_that_is_taken_brings_all_that_it_has_and_leaves_nothing_of_the_other(pair):
    p = pair()
    qp = p.left.qp
    route = p.route(p.a.gid, ELSEWHERE)
    armed(p, qp, route, sl=5)
    qp.source, qp.source_port = object(), 0xC123
    assert qp.migrate(MOVE, p.now)
    told = qp.query()
    assert (told["port_num"], told["pkey_index"], told["timeout"]) == (2, 3, 17)
    assert told["ah_attr"] == {"sl": 5}
    assert not any(name.startswith("alt_") for name in told)
    assert (qp.pkey, qp.source, qp.source_port) == (0x8005, None, 0)
    assert (qp.flow.port_number, qp.flow.service_level, qp.flow.route) == (2, 5, route)
    assert qp.send_engine().retry.interval_ns == interval_ns(17)


@pytest.mark.parametrize(
    ("source", "destination", "follows"), [("a", "b", True), ("a", None, False), (None, "b", False)], ids=str
)
def test_a_peer_is_followed_that_comes_along_the_whole_alternate_path(pair, source, destination, follows):
    p = pair()
    gids = {"a": p.a.gid, "b": p.b.gid, None: ELSEWHERE}
    armed(p, p.right.qp, Route(ROCE_V4, gids[destination], gids[source]))
    p.forge(op.RC_SEND_ONLY, 0)
    assert (p.right.qp.migration == MIGRATED) is follows


@pytest.mark.parametrize(("slid", "follows"), [(7, True), (8, False)])
def test_a_peer_is_followed_from_the_lid_of_the_alternate_path(pair, slid, follows):
    p = pair()
    armed(p, p.right.qp, Route(NATIVE, p.b.gid, p.a.gid, dlid=7))
    p.arrival.slid = slid
    p.forge(op.RC_SEND_ONLY, 0)
    assert (p.right.qp.migration == MIGRATED) is follows


def test_a_connection_has_the_service_level_of_its_vector_until_it_is_reset(pair):
    p = pair(connect=False)
    end, peer = p.left, p.right
    for state in (INIT, RTR):
        given = p.attributes(state, end, peer, 0, 0)
        if state == RTR:
            given["ah_attr"] = {"sl": 6}
        assert end.qp.modify(given, p.now, route=p.route(p.a.gid, p.b.gid)) == 0
    assert end.qp.flow.service_level == 6
    assert end.qp.modify({"qp_state": RESET}, p.now) == 0
    assert end.qp.flow.service_level == 0


# queue pairs of one adapter


def writes_without_packets(p, peer):
    """Whether the left queue pair reaches ``peer``, which is one of its own adapter, without packets."""
    p.a.queue_pairs[p.right.number] = peer
    p.left.qp.executor = LoopbackExecutor(p.left.qp)
    p.left.post(wqe.RDMA_WRITE, inline=b"x" * 8, remote=p.left.region(8))
    p.transmit(p.a)
    return p.left.qp.executor.operations == 1


def test_a_queue_pair_of_the_same_adapter_is_written_to_without_packets(pair):
    p = pair()
    assert writes_without_packets(p, p.right.qp)


def test_a_queue_pair_whose_peer_is_here_is_published_to_nobody_elsewhere(pair):
    withdrawn, published = [], []
    directory = SimpleNamespace(withdraw_queue_pair=withdrawn.append)
    qp = pair().left.qp
    ends = {qp.flow.route.source, qp.flow.route.destination}
    loopback = Loopback(ends, SimpleNamespace(directory=directory, publish=published.append))
    for _ in range(2):
        loopback.publish(qp)
        assert isinstance(qp.executor, LoopbackExecutor)
        assert (withdrawn, published) == ([qp.number], [])
    loopback.gids_changed(ends - {qp.flow.route.destination})
    loopback.publish(qp)
    assert qp.executor is None
    assert (withdrawn, published) == ([qp.number], [qp])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(("name", "value"), [("migration", ARMED), ("instance", 5)])
def test_packets_alone_tell_of_migration_and_of_stale_connections(pair, side, name, value):
    p = pair()
    setattr(getattr(p, side).qp, name, value)
    assert not writes_without_packets(p, p.right.qp)


def test_a_peer_whose_port_carries_nothing_is_not_written_to(pair):
    p = pair()
    p.b.port_usable = lambda number: False
    assert not writes_without_packets(p, p.right.qp)


def test_a_peer_is_of_the_same_service(pair):
    p, other = pair(), pair(service=UC)
    other.right.qp.dest_qp = p.left.number
    assert not writes_without_packets(p, other.right.qp)
