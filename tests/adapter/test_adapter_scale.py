"""Cost does not grow with the number of queue pairs: counted in calls and bytes, not in time."""

import gc
import sys
import tracemalloc

import pytest

from softhca.adapter.config import AdapterConfig
from softhca.adapter.timers import TICK_NS, Timers
from softhca.machine.primitives import BODY
from softhca.queues.layout import DOORBELL_SLOTS
from softhca.testing.ends import ALL_RIGHTS, RC, WRITE, End, connect, post
from softhca.testing.network import Network

FEW, MANY = 8, 400
TIMEOUT = 14
IDLE_BYTES = {"compiled": 4096, "interpreted": 8192}
"""An interpreted object keeps its attributes in a dict; the promise is the compiled one's."""


class Crowd:
    """Two ends with ``count`` connected pairs of queue pairs; every pair has carried a message, and its timer
    was set, if ``busy``."""

    def __init__(self, count, busy=True):
        self.network = Network()
        self.left, self.right = End(self.network.add(1)), End(self.network.add(2))
        self.pairs = []
        for _ in range(count):
            self.add()
        if busy:
            for pair in self.pairs:
                self.write(pair)

    def add(self):
        pair = self.left.qp(receive=1), self.right.qp(receive=1)
        connect((self.left, pair[0]), (self.right, pair[1]), timeout=TIMEOUT)
        self.pairs.append(pair)

    def write(self, pair):
        post(pair[0], WRITE, [self.left.sge(0, 8)], va=self.right.va, rkey=self.right.key.rkey)
        (completion,) = self.left.poll(1)
        assert completion.status == 0

    def close(self):
        self.network.close()


def calls(work):
    """How many functions ``work`` calls, in Python or C, as far as the interpreter sees them."""
    count = 0

    def see(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    gc.collect()
    gc.disable()
    try:
        sys.setprofile(see)
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


@pytest.fixture(scope="module")
def crowds():
    found = Crowd(FEW), Crowd(MANY)
    yield found
    for crowd in found:
        crowd.close()


def test_the_default_limits_allow_ten_thousand_queue_pairs():
    config = AdapterConfig((bytes(10) + b"\xff\xff\xc0\x00\x02\x01",))
    assert 10_000 <= config.max_qp <= DOORBELL_SLOTS


def test_a_message_takes_no_more_calls_among_many_queue_pairs(crowds):
    few, many = (calls(lambda crowd=crowd: crowd.write(crowd.pairs[-1])) for crowd in crowds)
    assert 20 < many == few


def test_a_queue_pair_takes_no_more_calls_to_connect_among_many(crowds):
    few, many = (calls(crowd.add) for crowd in crowds)
    assert 20 < many <= few + 2


def test_looking_whether_there_is_work_takes_no_more_calls_among_many(crowds):
    few, many = (calls(crowd.network.step) for crowd in crowds)
    assert 0 < many == few


def test_timers_take_no_more_calls_among_many(crowds):
    def costs(queue_pairs):
        for queue_pair in queue_pairs:
            queue_pair.armed_ns = 0
        timers = Timers(0)
        for number, queue_pair in enumerate(queue_pairs[:-1]):
            timers.arm(queue_pair, (number + 2) * 1_000_000)
        one = queue_pairs[-1]
        setting = calls(lambda: (timers.arm(one, 500 * TICK_NS), timers.disarm(one)))
        timers.arm(one, 10 * TICK_NS)
        fired = []
        firing = calls(lambda: fired.extend(timers.expire(11 * TICK_NS)))
        assert fired == [one]
        for queue_pair in queue_pairs:
            timers.disarm(queue_pair)
        return setting, firing

    few, many = (
        costs([crowd.left.node.adapter.queue_pairs[left.number].flow for left, _ in crowd.pairs])
        for crowd in crowds
    )
    assert many == few


def test_every_deadline_moves_a_bounded_number_of_times(crowds):
    adapter = crowds[1].left.node.adapter
    queue_pairs = [adapter.queue_pairs[left.number].flow for left, _ in crowds[1].pairs]
    for queue_pair in queue_pairs:
        queue_pair.armed_ns = 0
    timers = Timers(0)
    for number, queue_pair in enumerate(queue_pairs):
        timers.arm(queue_pair, (number + 1) * 7_654_321)
    fired, looks = [], 0
    while len(fired) < len(queue_pairs):
        fired += timers.expire(timers.next_deadline())
        looks += 1
    assert fired == queue_pairs
    assert looks <= 9 * len(queue_pairs)


def test_an_idle_queue_pair_takes_four_kibibytes_beyond_its_rings():
    crowd = Crowd(FEW, busy=False)
    for end in (crowd.left, crowd.right):
        # a link has few source ports, and routes along the same one are shared
        end.node.adapter.port.source_port_for = lambda *_: 0xC000
    gc.collect()
    tracemalloc.start()
    try:
        objects = len(gc.get_objects())
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(FEW * 8):
            crowd.add()
        gc.collect()
        # two ends, each with one queue pair
        taken = (tracemalloc.get_traced_memory()[0] - before) / (FEW * 16)
        objects = (len(gc.get_objects()) - objects) / (FEW * 16)
    finally:
        tracemalloc.stop()
    assert 0 < taken <= IDLE_BYTES[BODY]
    assert objects <= 24
    crowd.close()


def test_a_queue_pair_that_waits_wakes_up_whole():
    crowd = Crowd(2, busy=False)
    waiting = crowd.right.node.adapter.queue_pairs[crowd.pairs[0][1].number]
    # what nobody has used yet is made when it is asked for, with the attributes as they are
    assert (waiting.receive_engine().epsn, waiting.send_engine().una_psn) == (100, 0xFFFFF0)
    crowd.write(crowd.pairs[0])
    crowd.write(crowd.pairs[1])
    queue_pairs = crowd.right.node.adapter.queue_pairs
    assert [queue_pairs[right.number].receive_engine().epsn for _, right in crowd.pairs] == [101, 101]
    crowd.close()


def test_receives_of_a_queue_pair_that_waits_are_flushed_with_it():
    crowd = Crowd(1, busy=False)
    left, _ = crowd.pairs[0]
    left.post_recv(77, [crowd.left.sge(0, 8)])
    left.modify({"qp_state": 6})
    assert [(completion.wr_id, completion.status) for completion in crowd.left.poll(1)] == [(77, 5)]
    crowd.close()


def test_receives_of_a_queue_pair_that_waits_are_dropped_by_reset():
    crowd = Crowd(1, busy=False)
    left, right = crowd.pairs[0]
    left.post_recv(77, [crowd.left.sge(0, 8)])
    left.modify({"qp_state": 0})
    connect((crowd.left, left), (crowd.right, crowd.right.qp(receive=1)), RC, access=ALL_RIGHTS)
    left.post_recv(78, [crowd.left.sge(0, 8)])
    left.modify({"qp_state": 6})
    assert [completion.wr_id for completion in crowd.left.poll(1)] == [78]
    assert right.query()["qp_state"] == 3
    crowd.close()
