"""Registered memory that is held under a reliable connection: how to hold it, and that it cost only time."""

import random

from softhca.memory.tpt import TranslationTable
from softhca.queues import cqe, wqe
from softhca.transport.retry import interval_ns
from softhca.transport.states import RTS

PMTU = 256
DATA = random.Random(3).randbytes(3 * PMTU)
LONG = random.Random(4).randbytes(200_000)
BUDGET_NS = 8 * interval_ns(8)
HELD = TranslationTable(1)
HELD.stopped = True
FLUSHED = cqe.WC_WR_FLUSH_ERR


def hold(region):
    """Hold one region alone; the function that is returned lifts it."""
    mine = region.region.tpt
    region.region.tpt = HELD

    def lift():
        region.region.tpt = mine

    return lift


def before(p, direction, psn, action):
    """Call ``action`` once, before the first packet ``psn`` of that direction arrives."""
    inject = p.inject
    left = [action]

    def watched(way, segment, route=None):
        if left and way == direction and int.from_bytes(segment[9:12]) == psn:
            left.pop()()
        inject(way, segment, route)

    p.inject = watched


def until(p, condition):
    while not condition():
        assert p.step(), "it will never come"


def statuses(completions):
    return [c.status for c in completions]


def untroubled(p, *ends):
    """Both sides are in RTS, no retry of any kind was spent, and the windows are empty."""
    for end in ends or (p.left, p.right):
        counters = end.qp.counters
        assert end.qp.state == RTS
        assert counters.retransmissions == counters.timeouts == counters.naks_sent == 0
        assert counters.implied_naks == counters.ghost_acks == 0
        assert end.qp.send_engine().retry.retries_left == end.qp.send_engine().retry.retry_count
    p.at_rest()


def read(p, length=3 * PMTU):
    data = LONG[:length]
    source, target = p.right.region(length, fill=data), p.left.region(length)
    p.left.post(wqe.RDMA_READ, [target.sge()], remote=source)
    return data, target
