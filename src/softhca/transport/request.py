"""One send work request under way: what the requester must remember about it until it completes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from softhca.machine.primitives import copy
from softhca.memory.regions import LOCAL_WRITE
from softhca.queues.layout import (
    INLINE,
    SEND_WQE_COMPARE_ADD_AT,
    WC_LOC_LEN_ERR,
    WC_LOC_PROT_ERR,
    WC_LOC_QP_OP_ERR,
)
from softhca.queues.operations import ATOMIC, ATOMIC_WRITE, FLUSH, LOCAL, READ, mask, table
from softhca.queues.wqe import WORK_LENGTH, WORK_OK, SendWork
from softhca.transport.scatter import BufferList
from softhca.wire import feth

if TYPE_CHECKING:
    from softhca.memory.regions import RegionTable

_READ = cython.declare(cython.int, READ)
_ATOMIC = cython.declare(cython.int, ATOMIC)
_LOCAL = cython.declare(cython.int, LOCAL)
_ATOMIC_WRITE = cython.declare(cython.int, ATOMIC_WRITE)
_FLUSH = cython.declare(cython.int, FLUSH)
_PLACEMENTS = cython.declare(cython.ulonglong, feth.GLOBAL_VISIBILITY | feth.PERSISTENCE)
_REGION = cython.declare(cython.ulonglong, feth.REGION)
_MAX_LENGTH = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_WORD_AT = cython.declare(cython.uint, SEND_WQE_COMPARE_ADD_AT)
_INLINE = cython.declare(cython.uint, INLINE)
_WORK_OK = cython.declare(cython.int, WORK_OK)
_WORK_LENGTH = cython.declare(cython.int, WORK_LENGTH)
_LOCAL_WRITE = cython.declare(cython.uint, LOCAL_WRITE)
_LENGTH_ERROR = cython.declare(cython.int, WC_LOC_LEN_ERR)
_OPERATION_ERROR = cython.declare(cython.int, WC_LOC_QP_OP_ERR)
_PROTECTION_ERROR = cython.declare(cython.int, WC_LOC_PROT_ERR)

# By work request opcode: its kind, and (a bit each) whether it consumes a receive at the peer
_KINDS = cython.declare(bytes, table(lambda row: row.kind))
_LIMITED = cython.declare(cython.uint, mask(lambda row: row.consumes_receive))
ATOMIC_BYTES = cython.declare(cython.ulonglong, 8)


class Request(BufferList):
    """A work request of the send queue and its local buffers, one object.  Reused by one after another.

    ``status`` is 0 or the completion status with which it must end without being sent; ``packets`` counts
    the PSNs that it takes (for an RDMA READ those of the responses), from ``first_psn``; ``received`` how
    many responses of a READ or atomic are in; ``ssn`` its send sequence number; ``limited``: it consumes a
    receive of the peer; ``separate``: each packet is a message of its own, an RDMA WRITE Only;
    ``slice_packets``: so many responses one request of an RDMA READ asks for.
    """

    def __init__(self, max_sge: int, max_inline_bytes: int) -> None:
        BufferList.__init__(self, max_sge)
        self.work = SendWork(max_sge, max_inline_bytes)
        self.kind = 0
        self.first_psn = 0
        self.packets = 0
        self.received = 0
        self.ssn = 0
        self.limited = False
        self.separate = False
        self.slice_packets = 1
        self.length_bytes = 0
        self.status = 0

    def prepare(self, regions: RegionTable, pd: int, operations: int) -> None:
        """Judge the work request just fetched: form, opcode (a bit of ``operations``), local keys; sets
        ``status``."""
        work: SendWork = self.work
        self.status = 0
        self.received = 0
        self.packets = 0
        self.limited = False
        self.length_bytes = 0
        if work.status != _WORK_OK:
            self.status = _LENGTH_ERROR if work.status == _WORK_LENGTH else _OPERATION_ERROR
            return
        if not (operations >> work.opcode) & 1:
            self.status = _OPERATION_ERROR
            return
        self.kind = _KINDS[work.opcode]
        self.limited = (_LIMITED >> work.opcode) & 1 != 0
        if self.kind == _LOCAL:
            return
        if self.kind == _FLUSH:
            if not self.flushes():
                self.status = _OPERATION_ERROR
            return
        self.length_bytes = work.total_bytes
        if self.kind == _ATOMIC_WRITE:
            if self.takes_word():
                self.length_bytes = ATOMIC_BYTES
            elif self.length_bytes != ATOMIC_BYTES:
                self.status = _LENGTH_ERROR
                return
        if work.flags & _INLINE:
            return
        if not self.resolve(
            work, regions, pd, _LOCAL_WRITE if self.kind == _READ or self.kind == _ATOMIC else 0
        ):
            self.status = _PROTECTION_ERROR
        elif self.kind == _ATOMIC:
            if self.length_bytes < ATOMIC_BYTES:
                self.status = _LENGTH_ERROR
            self.length_bytes = ATOMIC_BYTES

    def flushes(self) -> bool:
        """Whether a FLUSH says what there is: placement types, a selectivity level, a length of 32 bits."""
        placement: cython.ulonglong = self.work.swap & 0xF
        return (
            placement != 0
            and placement & ~_PLACEMENTS == 0
            and self.work.swap >> 4 <= _REGION
            and self.work.compare_add <= _MAX_LENGTH
            and self.work.num_sge == 0
        )

    def takes_word(self) -> bool:
        """Whether an ATOMIC WRITE has no data but the eight bytes at the entry's compare_add."""
        return self.kind == _ATOMIC_WRITE and self.work.num_sge == 0 and not self.work.flags & _INLINE

    def segment(self, pmtu_bytes: int, first_psn: int) -> None:
        """Give it its PSNs: one for an atomic or an empty message, otherwise one for each PMTU begun."""
        self.first_psn = first_psn
        self.separate = False
        if self.status or self.kind == _LOCAL:
            self.packets = 0
        elif self.length_bytes <= pmtu_bytes or self.kind == _ATOMIC:
            self.packets = 1
        else:
            self.packets = (self.length_bytes + pmtu_bytes - 1) // pmtu_bytes

    def payload(self, offset: int, n: int, address: int) -> int:
        """Copy ``n`` bytes of the message, from ``offset``, to ``address``; 0 or −errno."""
        if self.work.flags & _INLINE:
            copy(address, self.work.address + self.work.inline_offset + offset, n)
            return 0
        if self.takes_word():
            copy(address, self.work.address + _WORD_AT, n)
            return 0
        return self.gather(offset, n, address)
