"""Shared receive queues and their limit event."""

import pytest

from softhca.machine import primitives
from softhca.memory.host import HostMemory
from softhca.queues.ring import RingLayout, RingProducer, plan
from softhca.queues.shared_receive import SharedReceiveQueue
from softhca.queues.wqe import WORK_OK, WORK_SGES, ReceiveWork, encode_receive


class Shared:
    """The queue, its host side, and the hook that notes what it is told."""

    def __init__(self):
        self.host = HostMemory(64 << 20)
        self.layout = RingLayout.over(self.host.allocate(plan(8, 1000)), self.host.address_map, 8, 1000)
        self.producer = RingProducer(self.layout)
        self.told = []
        self.queue = SharedReceiveQueue(3, 5, self.layout, 2, self)
        self.work = ReceiveWork(2)

    def limit_reached(self, queue):
        assert queue is self.queue
        assert queue.limit == 0
        self.told.append("limit")

    def srq_error(self, queue):
        self.told.append("error")

    def post(self, wr_id, sges=1):
        out = memoryview(bytearray(100))
        n = encode_receive(out, wr_id, [(wr_id, 10, 1)] * sges)
        return self.producer.push(primitives.address_of(out), n)

    def take(self):
        return self.work.wr_id if self.queue.take(self.work) else None


@pytest.fixture
def shared():
    made = Shared()
    yield made
    made.host.close()


def test_work_is_taken_in_order_and_its_room_is_free_at_once(shared):
    for start in range(0, 80, 8):
        assert all(shared.post(start + i) for i in range(8))
        assert not shared.post(99)
        assert shared.queue.count() == 8
        assert [shared.take() for _ in range(9)] == [*range(start, start + 8), None]
    assert shared.told == []


def test_the_limit_fires_once_when_fewer_are_left(shared):
    for wr_id in range(5):
        shared.post(wr_id)
    shared.queue.set_limit(3)
    shared.take()
    shared.take()
    assert (shared.told, shared.queue.limit) == ([], 3)
    shared.take()
    assert (shared.told, shared.queue.limit) == (["limit"], 0)
    shared.take()
    assert shared.told == ["limit"]


def test_a_limit_above_what_is_queued_fires_at_once(shared):
    shared.post(1)
    shared.queue.set_limit(1)
    assert shared.told == []
    shared.queue.set_limit(2)
    assert shared.told == ["limit"]
    shared.queue.set_limit(0)
    shared.take()
    assert shared.told == ["limit"]


def test_a_malformed_request_is_taken_with_its_status(shared):
    shared.post(1, sges=3)
    big = ReceiveWork(3)
    assert shared.queue.take(big)
    assert big.status == WORK_OK
    shared.post(2, sges=2)
    small = ReceiveWork(2)
    out = memoryview(bytearray(100))
    encode_receive(out, 3, [(1, 1, 1)] * 3)
    shared.producer.push(primitives.address_of(out), 48)
    assert shared.queue.take(small)
    assert shared.queue.take(small)
    assert (small.status, small.wr_id) == (WORK_SGES, 3)


def test_a_broken_ring_is_told_once_and_gives_nothing(shared):
    shared.post(1)
    primitives.store64(shared.layout.control, 100)
    assert shared.take() is None
    assert shared.take() is None
    assert shared.told == ["error"]
    assert shared.queue.count() == 0
    shared.queue.set_limit(1)
    assert shared.told == ["error"]


def test_a_ring_that_is_found_broken_when_the_limit_is_set_is_told(shared):
    shared.post(1)
    primitives.store64(shared.layout.control, 100)
    shared.queue.set_limit(1)
    assert shared.told == ["error"]


def test_an_empty_queue_is_no_error(shared):
    assert shared.take() is None
    assert shared.told == []
    assert (shared.queue.number, shared.queue.pd, shared.queue.max_sge) == (3, 5, 2)
