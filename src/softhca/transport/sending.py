"""What the send sides of all services share: taking work requests from the ring and completing them in
order."""

import cython

from softhca.queues.cqe import WC_LOC_QP_OP_ERR, WC_WR_FLUSH_ERR
from softhca.queues.operations import MOST_OPCODES, table
from softhca.queues.wqe import SIGNALED, SendWork
from softhca.transport.halves import Half
from softhca.transport.observation import SEND_FAILED, STATUS_NAMES
from softhca.transport.request import Request
from softhca.transport.segmentation import PacketWriter
from softhca.transport.services import operation_mask

_SIGNALED = cython.declare(cython.uint, SIGNALED)
_FLUSHED = cython.declare(cython.int, WC_WR_FLUSH_ERR)
_OPERATION_ERROR = cython.declare(cython.int, WC_LOC_QP_OP_ERR)
_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_MOST_OPCODES = cython.declare(cython.uint, MOST_OPCODES)
_COMPLETIONS = cython.declare(bytes, table(lambda row: row.completion))


class SendQueue(Half):
    """Work requests between ``head`` (the oldest that has not completed) and ``tail`` (the next one to take).

    Both are counters that never go back; ``spare`` are the objects of requests that no queue of the adapter
    uses at the moment.
    """

    def __init__(self, qp):
        places = 1
        while places < qp.send_ring.layout.entries:
            places *= 2
        self.qp = qp
        self.flow = qp.flow
        self.writer = PacketWriter(qp)
        self.operations = operation_mask(qp.service) & ~qp.environment.withheld_operations
        self.requests = [None] * places
        self.mask = places - 1
        self.head = 0
        self.tail = 0
        self.now = 0
        self.ready = False
        self.broken = False
        # what the consumer asked for bounds what an entry may hold
        self.inline_bytes = qp.max_inline_bytes
        self.spare = qp.environment.requests_like(qp.max_send_sge, qp.max_inline_bytes)

    def at(self, place):
        """The request of counter ``place``."""
        return self.requests[place & self.mask]

    def take(self, flushing=False):
        """Take the next work request from the ring and judge it; None when there is none."""
        request: Request
        if self.tail - self.head > self.mask:
            return None
        request = self.blank()
        if not self.draw(request, flushing):
            self.spare.append(request)
            return None
        self.place(request)
        return request

    def blank(self):
        """A request that nothing uses; `place` it, or give it back to ``spare``."""
        if self.spare:
            return self.spare.pop()
        return Request(self.qp.max_send_sge, self.inline_bytes)

    def place(self, request):
        """A request that was drawn is the youngest of those under way."""
        self.requests[self.tail & self.mask] = request
        self.tail += 1

    def draw(self, request, flushing):
        """Fill ``request`` with the next work request of the ring, judged; False when there is none.

        A ring that the other side has broken gives one request that fails, then nothing more.
        """
        n: cython.longlong
        if self.broken:
            return False
        n = request.work.fetch(self.qp.send_ring)
        if n == 0:
            return False
        if n < 0:
            self.broken = True
            request.status = _OPERATION_ERROR
            request.work.wr_id = 0
            request.work.flags = 0
            request.work.opcode = 2
            request.length_bytes = 0
            request.packets = 0
        elif flushing:
            request.status = 0
            request.length_bytes = 0
        else:
            request.prepare(self.qp.environment.regions, self.qp.pd, self.operations)
        return True

    def shows(self, request):
        """Whether the success of ``request`` is to be told."""
        return request.work.flags & _SIGNALED or self.qp.signal_all

    def complete(self, request, status):
        """Write the completion of ``request`` if it is due: always with an error, otherwise when it was
        asked for."""
        work: SendWork = request.work
        psn: cython.longlong = -1
        if status == 0 and not work.flags & _SIGNALED and not self.qp.signal_all:
            return
        if status:
            self.qp.count("send_errors")
            if status != _FLUSHED and request.packets:
                psn = request.first_psn
            self.qp.observe(SEND_FAILED, psn, STATUS_NAMES[status])
        opcode: cython.uint = _COMPLETIONS[work.opcode] if work.opcode < _MOST_OPCODES else 0
        if not self.qp.send_cq.post(
            work.wr_id,
            status,
            opcode,
            0,
            self.qp.number,
            request.length_bytes & _WORD,
            0,
            self.qp.dest_qp,
            0,
            self.qp.pkey_index,
            self.flow.service_level,
            0,
            0,
            self.now,
        ):
            self.qp.completion_lost()

    def retire(self, status):
        """The oldest request has ended with ``status``: its room in the ring is free, then its completion
        shows."""
        request: Request = self.at(self.head)
        self.requests[self.head & self.mask] = None
        self.head += 1
        self.qp.send_ring.release(1)
        self.complete(request, status)
        self.spare.append(request)

    def flush(self):
        """Complete everything, begun or only posted, with WR_FLUSH_ERR in order; at most one ring of what is
        only posted."""
        left: cython.uint = self.qp.send_ring.layout.entries
        self.ready = False
        while self.head != self.tail:
            self.retire(_FLUSHED)
        while left:
            if self.take(True) is None:
                return
            self.retire(_FLUSHED)
            left -= 1
        self.flow.environment.schedule(self.flow)

    def reset(self):
        """Drop everything without a completion."""
        self.ready = False
        while self.take(True) is not None:
            pass
        self.qp.send_ring.release(self.tail - self.head)
        while self.head != self.tail:
            self.spare.append(self.at(self.head))
            self.requests[self.head & self.mask] = None
            self.head += 1
        self.broken = self.qp.send_ring.broken

    def drained(self):
        return self.head == self.tail
