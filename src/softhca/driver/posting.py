"""Posting work: from a work request's values to an entry in the ring, checked before anything is written."""

import errno

import cython

from softhca.machine.primitives import address_of
from softhca.queues.ring import RingProducer
from softhca.queues.wqe import (
    FENCE,
    REG_MR,
    SEND_WITH_INV,
    SIGNALED,
    SOLICITED,
    encode_receive,
    encode_send,
    receive_bytes,
    send_bytes,
)

# ibv_send_flags
SEND_FENCE = 1
SEND_SIGNALED = 2
SEND_SOLICITED = 4
SEND_INLINE = 8

_EINVAL = cython.declare(cython.int, errno.EINVAL)
_ENOMEM = cython.declare(cython.int, errno.ENOMEM)
_EIO = cython.declare(cython.int, errno.EIO)
_FENCE = cython.declare(cython.uint, FENCE)
_SIGNALED = cython.declare(cython.uint, SIGNALED)
_SOLICITED = cython.declare(cython.uint, SOLICITED)
# Bit n stands for opcode n.
_LAST_OPCODE = cython.declare(cython.uint, REG_MR)
_OPCODES = cython.declare(cython.uint, (1 << SEND_WITH_INV + 1) - 1 | 1 << REG_MR)


class SendPoster:
    """The producer's end of a send ring.  ``refused`` says why `post` returned an errno."""

    def __init__(self, layout, max_wr, max_sge, max_inline_bytes):
        self.producer = RingProducer(layout)
        self.max_wr = max_wr
        self.max_sge = max_sge
        self.max_inline_bytes = max_inline_bytes
        self.refused = ""
        self._scratch = bytearray(send_bytes(max_sge, max_inline_bytes))
        self._view = self._scratch
        self._address = address_of(self._scratch)

    def post(self, opcode, flags, imm, wr_id, remote_va, rkey, compare, swap, ah, qpn, qkey, sges, inline):
        """Write one entry; 0, or EINVAL, ENOMEM (the queue is full), EIO (the ring is broken).

        ``flags`` are ``ibv_send_flags``; ``inline`` (bytes) makes the entry inline, whatever ``flags`` say.
        """
        n: cython.Py_ssize_t
        translated: cython.uint = 0
        if opcode > _LAST_OPCODE or not (_OPCODES >> opcode) & 1:
            return self._refuse(_EINVAL, "there is no such opcode")
        if inline is None:
            if len(sges) > self.max_sge:
                return self._refuse(_EINVAL, "more scatter/gather elements than max_send_sge")
        elif len(inline) > self.max_inline_bytes:
            return self._refuse(_EINVAL, "more inline data than max_inline_data")
        if flags & SEND_FENCE:
            translated |= _FENCE
        if flags & SEND_SIGNALED:
            translated |= _SIGNALED
        if flags & SEND_SOLICITED:
            translated |= _SOLICITED
        n = encode_send(
            self._view,
            opcode,
            translated,
            imm,
            wr_id,
            remote_va,
            rkey,
            compare,
            swap,
            ah,
            qpn,
            qkey,
            sges,
            inline,
        )
        if n < 0:
            return self._refuse(_EINVAL, "the work request is too long for the queue")
        if self.max_wr and self.producer.push(self._address, n):
            return 0
        if self.producer.broken:
            return self._refuse(_EIO, "the send ring is broken")
        return self._refuse(_ENOMEM, "the send queue is full")

    def _refuse(self, code, reason):
        self.refused = reason
        return code


class ReceivePoster:
    """The producer's end of a receive ring, of a queue pair or shared.  ``refused`` as `SendPoster`'s."""

    def __init__(self, layout, max_wr, max_sge):
        self.producer = RingProducer(layout)
        self.max_wr = max_wr
        self.max_sge = max_sge
        self.refused = ""
        self._scratch = bytearray(receive_bytes(max_sge))
        self._view = self._scratch
        self._address = address_of(self._scratch)

    def post(self, wr_id, sges):
        """Write one entry; 0 or an errno as `SendPoster.post`."""
        n: cython.Py_ssize_t
        if len(sges) > self.max_sge:
            self.refused = "more scatter/gather elements than max_recv_sge"
            return _EINVAL
        n = encode_receive(self._view, wr_id, sges)
        if self.max_wr and n > 0 and self.producer.push(self._address, n):
            return 0
        if self.producer.broken:
            self.refused = "the receive ring is broken"
            return _EIO
        self.refused = "the receive queue is full"
        return _ENOMEM
