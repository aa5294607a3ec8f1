"""Where messages go: the contract between a receiver and its sink, and a queue pair's receives.

A receiver knows what has come and what to answer (`responder`, `unreliable_receiver`).  Which queue's receive
takes a message, and who is notified, it asks a `MessageSink`.  A queue pair's own receives, or the shared
ones that it takes part in, are a `ReceiveQueue`, which is the sink of a connection.  A sink with several of
them can choose by the packet: by its XRCETH, or by RDETH and DETH.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from softhca.memory.regions import LOCAL_WRITE
from softhca.queues.layout import WC_LOC_PROT_ERR, WC_LOC_QP_OP_ERR, WC_RECV, WC_WR_FLUSH_ERR
from softhca.queues.wqe import WORK_OK, ReceiveWork
from softhca.transport.credits import INVALID, encode
from softhca.transport.observation import RECEIVE_FAILED, STATUS_NAMES
from softhca.transport.scatter import BufferList

if TYPE_CHECKING:
    from softhca.queues.shared_receive import SharedReceiveQueue
    from softhca.transport.context import QueuePair
    from softhca.wire.packet_view import PacketView

NO_RECEIVE = -1  # `acquire` found none

_NO_RECEIVE = cython.declare(cython.int, NO_RECEIVE)
_NO_LIMIT = cython.declare(cython.uint, INVALID)
_LOCAL_WRITE = cython.declare(cython.uint, LOCAL_WRITE)
_WORK_OK = cython.declare(cython.int, WORK_OK)
_OPERATION_ERROR = cython.declare(cython.int, WC_LOC_QP_OP_ERR)
_PROTECTION_ERROR = cython.declare(cython.int, WC_LOC_PROT_ERR)
_FLUSHED = cython.declare(cython.int, WC_WR_FLUSH_ERR)
_RECV = cython.declare(cython.uint, WC_RECV)


class MessageSink:
    """The queues of receives that one receiver's messages go to."""

    def receive_queue(self, view: PacketView) -> ReceiveQueue:
        """The `ReceiveQueue` of the message to which the packet in ``view`` belongs; None: there is none that
        it may go to, which is an invalid request of the peer.

        Asked once for each message: with the first packet of a SEND, with the last one of an RDMA WRITE that
        has an immediate, and again when such a packet has to be repeated.
        """
        return None

    def credit_code(self) -> int:
        """The credit field of an AETH: receives posted and not used (IBTA vol. 1, 9.7.7.2), or "no limit"."""
        return _NO_LIMIT

    def flush(self, now: int) -> None:
        """The receiver is in error: complete what it has acquired as flushed, and what else is its own."""

    def reset(self) -> None:
        """Drop all that, without completions."""


class ReceiveQueue(MessageSink):
    """The receives of a queue pair: those of its ring, or of the shared queue that it takes from; or those
    of ``shared``, a queue with a completion queue of its own, which a queue pair may take from besides.

    One receive is acquired from the first packet of a message that needs it to the last; it is used again
    when its message is given up.  ``acquired``: there is one now; ``resolved``: its keys are checked;
    ``broken``: the ring is, nothing more is taken from it.  ``slid``, ``service_level`` and ``path_bits`` are
    those of the datagram that came last; 0 for connections, and where a socket does not report them.
    ``ee_context``: the number of the EE context that it serves, of reliable datagrams.
    """

    def __init__(self, qp: QueuePair, shared: SharedReceiveQueue | None = None) -> None:
        self.qp = qp
        self.flow = qp.flow
        self.ring = qp.receive_ring
        self.shared = qp.shared_receive if shared is None else shared
        self.cq = qp.receive_cq if shared is None else shared.cq
        max_sge = qp.max_recv_sge if self.shared is None else self.shared.max_sge
        self.work = ReceiveWork(max_sge)
        self.buffers = BufferList(max_sge)
        self.connected = qp.connected
        self.acquired = False
        self.resolved = False
        self.broken = False
        self.slid = 0
        self.service_level = 0
        self.path_bits = 0
        self.ee_context = 0

    def receive_queue(self, view: PacketView) -> ReceiveQueue:
        return self

    def credit_code(self) -> int:
        """No limit where receives are shared, for others may take them."""
        count: cython.longlong
        if self.shared is not None or not self.qp.environment.credits:
            return _NO_LIMIT
        count = self.ring.count()
        return encode(count) if count > 0 else 0

    def posted(self) -> bool:
        """Whether there is a receive to acquire, sound or not; none is taken."""
        if self.acquired:
            return True
        if self.shared is not None:
            return self.shared.consumer.count() != 0
        return not self.broken and self.ring.count() != 0

    def acquire(self) -> int:
        """Take a receive, unless one is acquired; 0, NO_RECEIVE, or the completion status with which it must
        end."""
        n: cython.longlong
        if self.acquired:
            return 0
        if self.shared is not None:
            if not self.shared.take(self.work):
                return _NO_RECEIVE
        elif self.broken:
            return _NO_RECEIVE
        else:
            n = self.work.fetch(self.ring)
            if n == 0:
                return _NO_RECEIVE
            if n < 0:
                self.broken = True
                self.work.wr_id = 0
                self.acquired = True
                return _OPERATION_ERROR
        self.acquired = True
        self.resolved = False
        return 0 if self.work.status == _WORK_OK else _OPERATION_ERROR

    def resolve(self) -> int:
        """Check the keys of the acquired receive; 0 or the completion status with which it must end."""
        pd: cython.uint = self.qp.pd
        if self.resolved:
            return 0
        if self.shared is not None:
            pd = self.shared.pd
        if not self.buffers.resolve(self.work, self.qp.environment.regions, pd, _LOCAL_WRITE):
            return _PROTECTION_ERROR
        self.resolved = True
        return 0

    def complete(
        self, status: int, opcode: int, flags: int, length_bytes: int, imm_or_key: int, source_qp: int,
        solicited: bool, now: int,
    ) -> None:
        """Complete the acquired receive."""
        self.acquired = False
        self.resolved = False
        if self.shared is None:
            self.ring.release(1)
        if status:
            self.qp.count("receive_errors")
            self.qp.observe(RECEIVE_FAILED, -1, STATUS_NAMES[status])
        if not self.cq.post(
            self.work.wr_id,
            status,
            opcode,
            flags,
            self.qp.number,
            length_bytes,
            imm_or_key,
            source_qp,
            self.ee_context,
            self.qp.pkey_index,
            self.flow.service_level if self.connected else self.service_level,
            self.slid,
            self.path_bits,
            now,
            solicited,
        ):
            self.qp.completion_lost()

    def flush(self, now: int) -> None:
        """At most one ring, with WR_FLUSH_ERR; where there may be more the queue pair has another turn.
        Shared receives stay with the others."""
        left: cython.uint
        if self.acquired:
            self.complete(_FLUSHED, _RECV, 0, 0, 0, 0, False, now)
        if self.shared is not None:
            return
        left = self.ring.layout.entries
        while left:
            if self.acquire() == _NO_RECEIVE:
                return
            self.complete(_FLUSHED, _RECV, 0, 0, 0, 0, False, now)
            left -= 1
        self.flow.environment.schedule(self.flow)

    def reset(self) -> None:
        """At most one ring."""
        left: cython.uint
        if self.shared is None:
            if self.acquired:
                self.ring.release(1)
            self.acquired = False
            left = self.ring.layout.entries
            while left and self.acquire() != _NO_RECEIVE:
                self.acquired = False
                self.ring.release(1)
                left -= 1
        self.acquired = False
        self.resolved = False
        self.broken = self.ring is not None and self.ring.broken
