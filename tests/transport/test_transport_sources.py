"""A sender knows no ring: its requests come from a source, which may have several queues behind it."""

from collections import deque

import pytest

from softhca.queues import cqe, wqe
from softhca.transport.acknowledgement import Sender
from softhca.transport.sending import RequestSource, SendQueue

SIZE = 10_000
COUNT = 12


class Merged(RequestSource):
    """Requests of several send queues in turn, as an end-to-end context has them; each is told of its own."""

    def __init__(self, queues):
        super().__init__(sum(queue.capacity for queue in queues))
        self.queues = deque(queues)
        self.given = deque()

    def next(self, at_rest, now):
        for _ in range(len(self.queues)):
            queue = self.queues[0]
            self.queues.rotate(-1)
            request = queue.next(at_rest, now)
            if request is not None:
                self.given.append(queue)
                return request
        return None

    def retire(self, request, status, now):
        self.given.popleft().retire(request, status, now)

    def fail(self, request, status, now):
        self.given.popleft().fail(request, status, now)

    def drop(self, request):
        self.given.popleft().drop(request)

    def can_wait(self):
        return any(queue.can_wait() for queue in self.queues)

    def flush(self, now):
        for queue in list(self.queues):
            queue.flush(now)

    def reset(self):
        for queue in self.queues:
            queue.reset()


@pytest.fixture
def merged(pair):
    """Two queue pairs of which the first one's sender carries the requests of both."""

    def make(**settings):
        p = pair(qps=2, pmtu=1024, **settings)
        source = Merged([SendQueue(left.qp) for left in p.lefts])
        sender = Sender(p.left.qp, source)
        sender.begin(p.left.qp.sq_psn)
        sender.start(p.now)
        p.left.qp.requester = sender
        return p, sender

    return make


def post(p, opcode):
    """``COUNT`` requests of each queue; what their targets are to hold."""
    wanted = []
    for k in range(COUNT):
        for i, left in enumerate(p.lefts):
            here, there = left.region(SIZE, fill=bytes([16 * i + k + 1]) * SIZE), p.right.region(SIZE)
            there.data[:] = bytes([0x80 + 16 * i + k]) * SIZE
            left.post(opcode, [here.sge()], wr_id=k, remote=there, ring=False)
            writes = opcode == wqe.RDMA_WRITE
            wanted.append((there, bytes(here.data)) if writes else (here, bytes(there.data)))
    p.left.qp.doorbell(p.now)
    return wanted


@pytest.mark.parametrize("opcode", [wqe.RDMA_WRITE, wqe.RDMA_READ])
@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_one_sender_carries_the_requests_of_two_queues_and_each_is_told_of_its_own(merged, opcode, loss):
    p, sender = merged()
    p.faults.loss = loss
    wanted = post(p, opcode)
    p.run()
    assert [bytes(memory.data) for memory, _ in wanted] == [content for _, content in wanted]
    for left in p.lefts:
        told = [(done.wr_id, done.status, done.qp_num) for done in left.sent()]
        assert told == [(k, 0, left.number) for k in range(COUNT)]
    packets = -(-SIZE // 1024)
    assert sender.next_psn == sender.una_psn == 2 * COUNT * packets
    assert sender.drained()
    assert p.left.qp.flow.window.in_flight_bytes == 0


def test_an_error_is_told_to_its_queue_and_what_follows_is_flushed(merged):
    p, sender = merged()
    target = p.right.region(SIZE)
    p.lefts[1].post(wqe.RDMA_WRITE, [p.left.region(SIZE).sge()], wr_id=1, remote=target, rkey=7, ring=False)
    post(p, wqe.RDMA_WRITE)
    p.run()
    ((wr_id, status), *rest) = [(done.wr_id, done.status) for done in p.lefts[1].sent()]
    assert (wr_id, status) == (1, cqe.WC_REM_ACCESS_ERR)
    assert {status for _, status in rest} == {cqe.WC_WR_FLUSH_ERR}
    assert {done.status for done in p.left.sent()} <= {0, cqe.WC_WR_FLUSH_ERR}
    assert sender.drained()
