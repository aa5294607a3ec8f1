"""Errors that a responder tells once, and memory that it answers from no more."""

import pytest

from softhca.queues import cqe, wqe
from softhca.queues.control_fields import EVENT_QP_ACCESS_ERR, EVENT_QP_REQ_ERR, QP_ERROR_EVENTS
from softhca.testing.transport_node import HOST
from softhca.transport.states import ERR

SIZE = 1 << 20


def until(p, condition):
    while not condition():
        assert p.step()


def test_a_region_that_gets_other_memory_inside_a_read_response_is_not_read_any_more(pair):
    """It lives on with another key, at the same address: the request was for what it was before."""
    p = pair(pmtu=4096, slice_bytes=SIZE, window=None)
    remote, local = p.right.region(SIZE, fill=b"x" * SIZE), p.left.region(SIZE)
    other = p.right.region(SIZE, fill=b"y" * SIZE)
    p.left.post(wqe.RDMA_READ, [local.sge()], remote=remote)
    until(p, lambda: p.decoded("ba"))
    frames, offset = [(other.first, other.region.entry_count)], other.region.page_offset
    p.b.regions.reregister(
        remote.region, translation=(HOST.address_map, remote.va, SIZE, frames, offset, False)
    )
    p.run()
    assert [c.status for c in p.left.sent()] == [cqe.WC_REM_ACCESS_ERR]
    assert p.right.qp.state == ERR
    assert p.b.events.count((EVENT_QP_ACCESS_ERR, p.right.number)) == 1
    assert local.data[0] == ord("x")
    assert ord("y") not in local.data
    p.at_rest()


def send_too_long(p, target):
    p.right.post_receive([target.sge(0, 99)])
    p.left.post(wqe.SEND, [p.left.region(1000).sge(0, 100)])
    return cqe.WC_LOC_LEN_ERR


def send_too_long_in_its_second_packet(p, target):
    p.right.post_receive([target.sge(0, 300)])
    p.left.post(wqe.SEND, [p.left.region(1000).sge(0, 301)])
    return cqe.WC_LOC_LEN_ERR


def send_into_a_bad_key(p, target):
    p.right.post_receive([(target.va, 64, target.key ^ 1)])
    p.left.post(wqe.SEND, inline=b"x")
    return cqe.WC_LOC_PROT_ERR


def send_into_memory_that_dies(p, target):
    p.right.post_receive([target.sge()])
    p.left.post(wqe.SEND, [p.left.region(SIZE, fill=b"x" * SIZE).sge()])
    until(p, lambda: target.data[0])
    target.deregister()
    return cqe.WC_LOC_PROT_ERR


FAILING = [
    send_too_long,
    send_too_long_in_its_second_packet,
    send_into_a_bad_key,
    send_into_memory_that_dies,
]


@pytest.mark.parametrize("cause", FAILING, ids=lambda cause: cause.__name__)
def test_an_error_that_a_receive_tells_is_no_event_too(pair, cause):
    p = pair(pmtu=256)
    status = cause(p, p.right.region(SIZE))
    p.run()
    assert p.right.qp.state == ERR
    assert [c.status for c in p.right.received()] == [status]
    assert [event for event in p.b.events if event[0] in QP_ERROR_EVENTS] == []


def write_without_a_right(p, target):
    p.left.post(wqe.RDMA_WRITE, inline=b"x", remote=target, rkey=target.key ^ 1)
    return EVENT_QP_ACCESS_ERR


def atomic_that_is_not_aligned(p, target):
    p.left.post(wqe.ATOMIC_FETCH_AND_ADD, [p.left.region(8).sge()], remote=target, offset=4)
    return EVENT_QP_REQ_ERR


EVENTS = [write_without_a_right, atomic_that_is_not_aligned]


@pytest.mark.parametrize("cause", EVENTS, ids=lambda cause: cause.__name__)
def test_an_error_that_no_receive_can_tell_is_one_event(pair, cause):
    p = pair()
    target = p.right.region(64)
    p.right.post_receive([target.sge()])
    event = cause(p, target)
    p.run()
    assert [c.status for c in p.right.received()] == [cqe.WC_WR_FLUSH_ERR]
    assert [each for each in p.b.events if each[0] in QP_ERROR_EVENTS] == [(event, p.right.number)]


def test_a_queue_pair_that_has_failed_does_not_fail_again(pair):
    p = pair()
    p.left.post_receive([])
    for event in (EVENT_QP_REQ_ERR, EVENT_QP_ACCESS_ERR):
        p.left.qp.fail(event)
    assert p.a.events == [(EVENT_QP_REQ_ERR, p.left.number)]
    assert [c.status for c in p.left.received()] == [cqe.WC_WR_FLUSH_ERR]
