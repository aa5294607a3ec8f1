"""Where requests to be sent come from: the contract, and a queue pair's send queue.

A sender asks a `RequestSource` for its next request and says how each has ended; which ring a request came
from, and who gets its completion, is the source's matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from softhca.queues.layout import SIGNALED, WC_LOC_QP_OP_ERR, WC_WR_FLUSH_ERR
from softhca.queues.operations import MOST_OPCODES, table
from softhca.queues.wqe import SendWork
from softhca.transport.observation import SEND_FAILED, STATUS_NAMES
from softhca.transport.request import Request

if TYPE_CHECKING:
    from softhca.transport.context import QueuePair

_SIGNALED = cython.declare(cython.uint, SIGNALED)
_FLUSHED = cython.declare(cython.int, WC_WR_FLUSH_ERR)
_OPERATION_ERROR = cython.declare(cython.int, WC_LOC_QP_OP_ERR)
_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_MOST_OPCODES = cython.declare(cython.uint, MOST_OPCODES)
_COMPLETIONS = cython.declare(bytes, table(lambda row: row.completion))


class RequestSource:
    """Requests for one sender, in the order in which they are to be carried out.

    ``capacity``: so many may be under way at most.  ``waits``: the next one is not given before all that the
    sender has begun is done.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.waits = False

    def next(self, at_rest: bool, now: int) -> Request:
        """The next request, judged; None when there is none, or it ``waits``.  ``at_rest``: the sender has
        nothing under way."""
        return None

    def retire(self, request: Request, status: int, now: int) -> None:
        """``request``, the oldest that `next` has given, has ended with ``status``."""

    def fail(self, request: Request, status: int, now: int) -> None:
        """The same, with an error, for which the sender ends its connection next."""
        self.retire(request, status, now)

    def drop(self, request: Request) -> None:
        """The oldest that `next` has given is forgotten, without a completion."""

    def can_wait(self) -> bool:
        """Whether there is a next request that can stay where it is until there is room to send it."""
        return False

    def flush(self, now: int) -> None:
        """Complete what was not given yet as flushed, a bounded number."""

    def reset(self) -> None:
        """Drop what was not given yet."""


class SendQueue(RequestSource):
    """The send ring of a queue pair and its completion queue.

    ``spare`` are the objects of requests that no queue of the adapter uses at the moment.
    """

    def __init__(self, qp: QueuePair) -> None:
        RequestSource.__init__(self, qp.send_ring.layout.entries)
        self.qp = qp
        self.operations = qp.row.operation_mask() & ~qp.environment.withheld_operations
        self.broken = False
        # what the consumer asked for bounds what an entry may hold
        self.inline_bytes = qp.max_inline_bytes
        self.spare = qp.environment.requests_like(qp.max_send_sge, qp.max_inline_bytes)

    def next(self, at_rest: bool, now: int) -> Request | None:
        return self.take(False)

    def take(self, flushing: bool) -> Request:
        """Take the next work request from the ring and, unless it is to be flushed, judge it; None when there
        is none."""
        request: Request = self.spare[len(self.spare) - 1] if self.spare else self.blank()
        if not self.draw(request, flushing):
            if not self.spare:
                self.spare.append(request)
            return None
        if self.spare:
            self.spare.pop()
        return request

    def blank(self) -> Request:
        """A new request."""
        return Request(self.qp.max_send_sge, self.inline_bytes)

    def draw(self, request: Request, flushing: bool) -> bool:
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

    def can_wait(self) -> bool:
        return self.qp.send_ring.count() > 0

    def complete(self, request: Request, status: int, now: int) -> None:
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
            self.qp.flow.service_level,
            0,
            0,
            now,
        ):
            self.qp.completion_lost()

    def retire(self, request: Request, status: int, now: int) -> None:
        """Its room in the ring is free, then its completion shows."""
        self.qp.send_ring.release(1)
        self.complete(request, status, now)
        self.spare.append(request)

    def drop(self, request: Request) -> None:
        self.qp.send_ring.release(1)
        self.spare.append(request)

    def flush(self, now: int) -> None:
        """At most one ring; where there may be more the queue pair has another turn."""
        request: Request
        left: cython.uint = self.capacity
        while left:
            request = self.take(True)
            if request is None:
                return
            self.retire(request, _FLUSHED, now)
            left -= 1
        self.qp.environment.schedule(self.qp.flow)

    def reset(self) -> None:
        request: Request
        left: cython.uint = self.capacity
        while left:
            request = self.take(True)
            if request is None:
                break
            self.drop(request)
            left -= 1
        self.broken = self.qp.send_ring.broken
