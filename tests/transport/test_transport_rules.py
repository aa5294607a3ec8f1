"""Rules of reliable connections at their edges: gaps that overlap, a life after a reset, limits, fences."""

import pytest

from softhca.adapter.remote_keys import outstanding
from softhca.queues import cqe, wqe
from softhca.queues.layout import ATOMIC_WRITE, FENCE, SIGNALED
from softhca.queues.ring import RingProducer
from softhca.queues.shared_receive import SharedReceiveQueue
from softhca.testing.transport_node import MAX_SGE, PD, End
from softhca.transport.environment import AddressHandle
from softhca.transport.states import RC, RESET, UC, UD
from softhca.wire import opcodes as op
from softhca.wire.route import ROCE_V4, Route

SEQUENCE, INVALID = 0x60, 0x61


def settle(p):
    while p.b.queue:
        p.transmit(p.b)


def answers(p):
    settle(p)
    return [(row["psn"], row["syndrome"]) for row in p.decoded("ba")]


def arrive(p, *psns):
    for psn in psns:
        p.forge(op.RC_SEND_ONLY, psn, b"", ack=False)


# a gap is told for as long as there is one


@pytest.mark.parametrize("psns", [(2, 3, 0, 1, 2), (3, 0, 2, 1, 2)], ids=str)
def test_a_nak_that_waits_is_for_the_last_packet_that_came_too_early(pair, psns):
    p = pair()
    for _ in range(8):
        p.right.post_receive()
    arrive(p, *psns)
    assert (3, SEQUENCE) in answers(p)


def test_a_gap_of_a_new_life_is_told_though_there_was_one_in_the_old(pair):
    p = pair()
    arrive(p, 5)
    assert answers(p) == [(0, SEQUENCE)]
    assert p.right.qp.modify({"qp_state": RESET}, p.now) == 0
    p.connect(p.right, p.left, 0, 100)
    p.log.clear()
    arrive(p, 105)
    assert answers(p) == [(100, SEQUENCE)]


# limits


@pytest.mark.parametrize("timer", [1, 15, 16, 31])
def test_an_rnr_nak_has_the_whole_timer(pair, timer):
    p = pair(min_rnr_timer=timer)
    arrive(p, 0)
    assert answers(p) == [(0, 0x20 | timer)]


@pytest.mark.parametrize(("length", "syndrome"), [(1 << 31, 0x62), ((1 << 31) + 1, INVALID)])
def test_a_read_of_more_than_a_message_is_no_valid_request(pair, length, syndrome):
    p = pair()
    target = p.right.region(8)
    p.forge(op.RC_RDMA_READ_REQUEST, 0, va=target.va, rkey=target.key, length=length)
    assert answers(p) == [(0, syndrome)]


def test_an_atomic_write_does_not_repeat_a_read(pair):
    p = pair()
    target = p.right.region(8)
    p.forge(op.RC_RDMA_READ_REQUEST, 0, va=target.va, rkey=target.key, length=8)
    assert len(answers(p)) == 1
    p.forge(op.RC_ATOMIC_WRITE, 0, bytes(8), va=target.va, rkey=target.key, length=8)
    assert len(answers(p)) == 1
    assert p.right.qp.counters.drops_resources == 1


# what a reset leaves


def test_a_reset_gives_back_the_receive_of_a_message_under_way(pair):
    p = pair(pmtu=256, entries=8)
    target = p.right.region(512)
    for _ in range(8):
        assert p.right.post_receive([target.sge()])
    p.forge(op.RC_SEND_FIRST, 0, bytes(256))
    assert p.right.qp.modify({"qp_state": RESET}, p.now) == 0
    assert [p.right.post_receive([target.sge()]) for _ in range(9)] == [True] * 8 + [False]


def test_a_reset_ends_the_time_in_which_an_answer_was_awaited(pair):
    p = pair()
    p.left.post(wqe.SEND, inline=b"x")
    p.transmit(p.a)
    retry = p.left.qp.send_engine().retry
    assert retry.deadline_ns
    assert p.left.qp.modify({"qp_state": RESET}, p.now) == 0
    assert retry.deadline_ns == 0


# work requests


@pytest.mark.parametrize(("flags", "requests"), [(SIGNALED, 2), (SIGNALED | FENCE, 1)])
def test_a_fenced_read_waits_for_the_reads_before_it(pair, flags, requests):
    p = pair()
    remote, local = p.right.region(64), p.left.region(64)
    p.left.post(wqe.RDMA_READ, [local.sge()], remote=remote)
    p.left.post(wqe.RDMA_READ, [local.sge()], remote=remote, flags=flags)
    while p.a.queue:
        p.transmit(p.a)
    assert len(p.decoded("ab")) == requests
    p.run()
    assert [c.status for c in p.left.sent()] == [0, 0]


def test_an_atomic_write_whose_memory_goes_while_it_waits_is_a_protection_error(pair):
    p = pair(rd_atomic=1)
    remote, local = p.right.region(8), p.left.region(8)
    p.left.post(wqe.RDMA_READ, [p.left.region(8).sge()], remote=remote)
    p.left.post(ATOMIC_WRITE, [local.sge()], remote=remote)
    p.transmit(p.a)
    local.deregister()
    p.run()
    assert [c.status for c in p.left.sent()] == [0, cqe.WC_LOC_PROT_ERR]


def test_a_local_invalidate_takes_a_region_that_gives_peers_nothing(pair):
    p = pair()
    windows, memory = p.a.memory_windows, p.left.region(4096)
    fast = windows.allocate_fast(1, PD, 2, memory.region.address_map)
    pages = [(memory.first, memory.region.entry_count)]
    offset = memory.region.page_offset
    assert windows.register(1, PD, 3, memory.va, 4096, 1, offset, pages) == 0
    p.left.post(wqe.LOCAL_INV, imm=fast.key)
    p.run()
    assert [c.status for c in p.left.sent()] == [0]
    assert not fast.valid
    assert windows.register(1, PD, 4, memory.va, 4096, 1, offset, pages) == 0
    p.forge(op.RC_SEND_ONLY_WITH_INVALIDATE, 0, way="ba", imm=fast.key)  # no right of a peer's to take away
    assert fast.valid


def test_a_shared_receive_is_of_the_domain_of_its_queue(pair):
    p = pair()
    layout = p.b.ring(8, 8 * wqe.receive_bytes(MAX_SGE))
    shared = SharedReceiveQueue(6, PD + 1, layout, MAX_SGE, p.b)
    p.right = End(p.b, 0x1050, srq=(shared, RingProducer(layout)))
    p.by_number[p.right.number] = p.right
    p.connect(p.right, p.left, 0, 0)
    p.right.post_receive([p.right.region(64).sge()])
    arrive(p, 0)
    assert [c.status for c in p.right.received()] == [cqe.WC_LOC_PROT_ERR]


def test_a_key_that_cannot_be_withdrawn_ends_no_answer_that_is_owed(pair):
    """The message has come, and so it is acknowledged, behind the READ that was asked for before it."""
    p = pair()
    remote = p.right.region(64)
    p.right.post_receive()
    p.forge(op.RC_RDMA_READ_REQUEST, 0, va=remote.va, rkey=remote.key, length=64)
    p.forge(op.RC_SEND_ONLY_WITH_INVALIDATE, 1, imm=12345)
    settle(p)
    assert [c.status for c in p.right.received()] == [cqe.WC_REM_INV_REQ_ERR]
    assert [row["psn"] for row in p.decoded("ba")] == [0, 1]


def test_a_write_goes_on_with_the_rights_that_its_key_had_at_first(pair):
    """Of an unreliable connection, where each packet asks for itself; a region that changes may have other
    bytes under the same key."""
    p = pair(service=UC, pmtu=256)
    target = p.right.region(512)
    p.forge(op.UC_RDMA_WRITE_FIRST, 0, b"a" * 256, va=target.va, rkey=target.key, length=512)
    p.b.regions.reregister(target.region, access=target.region.access & ~8)
    p.forge(op.UC_RDMA_WRITE_LAST, 1, b"b" * 256)
    assert target.data == b"a" * 256 + bytes(256)
    assert p.right.qp.counters.drops_protection == 1


def test_what_a_window_has_given_up_is_not_given_back_by_a_burst_of_before(pair):
    p = pair(service=UC)
    window = p.left.qp.flow.window
    p.left.post(wqe.RDMA_WRITE, inline=b"x", remote=p.right.region(8))
    p.step()
    assert window.in_flight_bytes
    window.on_stall()
    window.charge(1000)  # another queue pair's
    p.run()
    assert window.in_flight_bytes == 1000


def test_the_header_of_a_datagram_has_its_own_traffic_class(pair):
    p = pair(service=UD)
    target = p.right.region(128)
    for place, traffic_class in ((0, 0x20), (64, 0x40)):
        p.right.post_receive([target.sge(place, 64)])
        p.arrival.traffic_class = traffic_class
        p.forge(op.UD_SEND_ONLY, 0)
        assert target.data[place + 21] == traffic_class


def test_an_address_handle_is_for_queue_pairs_of_its_port(pair):
    p = pair(service=UD)
    route = Route(ROCE_V4, p.a.gid, p.b.gid, port_number=2)
    p.a.handles[3] = AddressHandle(3, PD, route, p.a.window_for(route))
    p.left.post(wqe.SEND, inline=b"x", ah=3, qpn=p.right.number, qkey=0x1234)
    p.run()
    assert [c.status for c in p.left.sent()] == [cqe.WC_LOC_QP_OP_ERR]


def test_keys_in_use_are_those_that_are_what_they_were(pair):
    p = pair(rd_atomic=1)
    target = p.right.region(64)
    p.forge(op.RC_RDMA_READ_REQUEST, 0, va=target.va, rkey=target.key, length=8)
    assert outstanding(p.right.qp) == [None, target.key]
    p.b.regions.reregister(target.region, access=target.region.access & ~8)
    assert outstanding(p.right.qp) == [None, None]


def test_an_atomic_operation_that_was_executed_uses_no_key(pair):
    p = pair(rd_atomic=2)
    target = p.right.region(64)
    where = {"va": target.va, "rkey": target.key}
    p.forge(op.RC_FETCH_ADD, 0, **where)
    p.forge(op.RC_RDMA_READ_REQUEST, 1, length=8, **where)
    resources = p.right.qp.receive_engine().replies.ring.places()
    found = {each.atomic: key for each, key in zip(resources, outstanding(p.right.qp)[1:], strict=True)}
    assert all(each.pending for each in resources)
    assert found == {True: None, False: target.key}
    p.run()
    assert outstanding(p.right.qp) == [None, None, None]


@pytest.mark.parametrize("service", [RC, UC])
def test_the_key_of_a_write_that_is_being_received_is_in_use_until_its_last_packet(pair, service):
    p = pair(service=service)
    size = p.right.qp.path_mtu_bytes
    target = p.right.region(2 * size)
    first, last = (
        (op.RC_RDMA_WRITE_FIRST, op.RC_RDMA_WRITE_LAST) if service == RC
        else (op.UC_RDMA_WRITE_FIRST, op.UC_RDMA_WRITE_LAST)
    )  # fmt: skip
    assert outstanding(p.right.qp)[0] is None
    p.forge(first, 0, bytes(size), va=target.va, rkey=target.key, length=size + 4)
    assert outstanding(p.right.qp)[0] == target.key
    p.forge(last, 1, bytes(4))
    assert outstanding(p.right.qp)[0] is None
    assert service == RC or outstanding(p.right.qp) == [None]


def test_datagrams_use_no_keys(pair):
    assert outstanding(pair(service=UD).right.qp) == []
