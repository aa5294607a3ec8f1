"""What the receive sides of all services share: taking receives, from the own queue or a shared one, and
completing them."""

import cython

from softhca.memory.regions import LOCAL_WRITE
from softhca.queues.cqe import WC_LOC_PROT_ERR, WC_LOC_QP_OP_ERR, WC_RECV, WC_SUCCESS, WC_WR_FLUSH_ERR
from softhca.queues.wqe import WORK_OK, ReceiveWork
from softhca.transport.halves import Half
from softhca.transport.observation import RECEIVE_FAILED, STATUS_NAMES
from softhca.transport.scatter import BufferList
from softhca.transport.services import SERVICES

NO_RECEIVE = -1  # `acquire` found none

_NO_RECEIVE = cython.declare(cython.int, NO_RECEIVE)
_LOCAL_WRITE = cython.declare(cython.uint, LOCAL_WRITE)
_WORK_OK = cython.declare(cython.int, WORK_OK)
_OPERATION_ERROR = cython.declare(cython.int, WC_LOC_QP_OP_ERR)
_PROTECTION_ERROR = cython.declare(cython.int, WC_LOC_PROT_ERR)
_FLUSHED = cython.declare(cython.int, WC_WR_FLUSH_ERR)
_SUCCESS = cython.declare(cython.int, WC_SUCCESS)
_RECV = cython.declare(cython.uint, WC_RECV)


class ReceiveQueue(Half):
    """One receive work request is held (``holding``) from the first packet of a message that needs it to
    the last.

    A held one is used again when its message is given up.  ``slid``, ``service_level`` and ``path_bits`` are
    those of the datagram that came last; 0 for connections, and where a socket does not tell them.
    """

    def __init__(self, qp):
        max_sge = qp.max_recv_sge if qp.shared_receive is None else qp.shared_receive.max_sge
        self.qp = qp
        self.flow = qp.flow
        self.work = ReceiveWork(max_sge)
        self.buffers = BufferList(max_sge)
        self.connected = SERVICES[qp.service].connected
        self.holding = False
        self.resolved = False
        self.broken = False
        self.now = 0
        self.slid = 0
        self.service_level = 0
        self.path_bits = 0

    def posted(self):
        """Whether there is a receive to hold, sound or not; none is taken."""
        if self.holding:
            return True
        if self.qp.shared_receive is not None:
            return self.qp.shared_receive.consumer.count() != 0
        return not self.broken and self.qp.receive_ring.count() != 0

    def acquire(self):
        """Hold a receive; 0, NO_RECEIVE, or the completion status with which it must end."""
        n: cython.longlong
        if self.holding:
            return 0
        if self.qp.shared_receive is not None:
            if not self.qp.shared_receive.take(self.work):
                return _NO_RECEIVE
        elif self.broken:
            return _NO_RECEIVE
        else:
            n = self.work.fetch(self.qp.receive_ring)
            if n == 0:
                return _NO_RECEIVE
            if n < 0:
                self.broken = True
                self.work.wr_id = 0
                self.holding = True
                return _OPERATION_ERROR
        self.holding = True
        self.resolved = False
        return 0 if self.work.status == _WORK_OK else _OPERATION_ERROR

    def resolve(self):
        """Check the keys of the receive that is held; 0 or the completion status with which it must end."""
        pd: cython.uint = self.qp.pd
        if self.resolved:
            return 0
        if self.qp.shared_receive is not None:
            pd = self.qp.shared_receive.pd
        if not self.buffers.resolve(self.work, self.qp.environment.regions, pd, _LOCAL_WRITE):
            return _PROTECTION_ERROR
        self.resolved = True
        return 0

    def finish(self, status, opcode, flags, length_bytes, imm_or_key, source_qp, solicited):
        """Complete the receive that is held."""
        self.holding = False
        self.resolved = False
        if self.qp.shared_receive is None:
            self.qp.receive_ring.release(1)
        if status:
            self.qp.count("receive_errors")
            self.qp.observe(RECEIVE_FAILED, -1, STATUS_NAMES[status])
        if not self.qp.receive_cq.post(
            self.work.wr_id,
            status,
            opcode,
            flags,
            self.qp.number,
            length_bytes,
            imm_or_key,
            source_qp,
            0,
            self.qp.pkey_index,
            self.flow.service_level if self.connected else self.service_level,
            self.slid,
            self.path_bits,
            self.now,
            solicited,
        ):
            self.qp.completion_lost()

    def flush(self):
        """Complete what is held and what is posted, at most one ring of it, with WR_FLUSH_ERR; shared
        receives stay with the others."""
        left: cython.uint
        if self.holding:
            self.finish(_FLUSHED, _RECV, 0, 0, 0, 0, False)
        if self.qp.shared_receive is not None:
            return
        left = self.qp.receive_ring.layout.entries
        while left:
            if self.acquire() == _NO_RECEIVE:
                return
            self.finish(_FLUSHED, _RECV, 0, 0, 0, 0, False)
            left -= 1
        self.flow.environment.schedule(self.flow)

    def reset(self):
        """Drop what is held and all that is posted, at most one ring of it."""
        left: cython.uint
        if self.qp.shared_receive is None:
            if self.holding:
                self.qp.receive_ring.release(1)
            self.holding = False
            left = self.qp.receive_ring.layout.entries
            while left and self.acquire() != _NO_RECEIVE:
                self.holding = False
                self.qp.receive_ring.release(1)
                left -= 1
        self.holding = False
        self.resolved = False
        self.broken = self.qp.receive_ring is not None and self.qp.receive_ring.broken
