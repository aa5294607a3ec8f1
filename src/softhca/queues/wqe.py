"""Work queue entries: encodings, and the checked, reused objects that the transport works on.

A send entry is a SEND_WQE (``layout``), then its SGEs, or the inline bytes; a receive entry is a
RECV_WQE and its SGEs.

``remote_qpn`` is the destination of a datagram; of an XRC initiator the peer's shared receive queue; of a raw
datagram its service.

Work requests on keys name the window or fast region by its number (rkey) and its next key's low byte
(imm_or_key; LOCAL_INV: the whole key that dies).  BIND_MW: remote_va and compare_add are address and length,
swap the region's L_Key (bits 0–31) and the rights (32–63); no elements.  REG_MR: likewise, bits 0–31 of swap
being the offset in the first page, and the elements are runs of pages (PAGE_RUN).

FLUSH: remote_va and compare_add (below 2^32) are address and length of what is flushed, swap is the FETH:
placement types in bits 0–3, selectivity level in bits 4–5; no elements.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING

import cython

from softhca.machine.primitives import address_of, copy, length_of, store64
from softhca.queues import layout as abi
from softhca.queues.layout import (  # noqa: F401 - a work request's numbers are taken from here
    ATOMIC_CMP_AND_SWP,
    ATOMIC_FETCH_AND_ADD,
    BIND_MW,
    FENCE,
    INLINE,
    LOCAL_INV,
    MAX_INLINE_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_SGES,
    RDMA_READ,
    RDMA_WRITE,
    RDMA_WRITE_WITH_IMM,
    REG_MR,
    SEND,
    SEND_WITH_IMM,
    SEND_WITH_INV,
    SIGNALED,
    SOLICITED,
)
from softhca.queues.operations import MOST_OPCODES, mask

if TYPE_CHECKING:
    from softhca.queues.ring import RingConsumer

WORK_OK = 0
WORK_TRUNCATED = 1
WORK_OPCODE = 2
WORK_FLAGS = 3
WORK_SGES = 4
WORK_INLINE = 5
WORK_LENGTH = 6

_OK = cython.declare(cython.int, WORK_OK)
_TRUNCATED = cython.declare(cython.int, WORK_TRUNCATED)
_OPCODE = cython.declare(cython.int, WORK_OPCODE)
_FLAGS = cython.declare(cython.int, WORK_FLAGS)
_SGES = cython.declare(cython.int, WORK_SGES)
_INLINE = cython.declare(cython.int, WORK_INLINE)
_LENGTH = cython.declare(cython.int, WORK_LENGTH)
_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFF)
# Bit n stands for opcode n.
_OPCODES = cython.declare(cython.uint, mask())
# Payload goes out only with sends and writes: bit n stands for opcode n.
_INLINE_OPCODES = cython.declare(cython.uint, mask(lambda row: row.inline))
_MOST_OPCODES = cython.declare(cython.uint, MOST_OPCODES)

Buffer = bytearray | memoryview
Elements = Sequence[tuple[int, int, int]]


def send_bytes(max_sge: int, max_inline_bytes: int) -> int:
    """Longest send entry of a queue with these limits."""
    return abi.SEND_WQE_BYTES + max(max_sge * abi.SGE_BYTES, max_inline_bytes)


def receive_bytes(max_sge: int) -> int:
    """Longest receive entry of a queue with this limit."""
    return abi.RECV_WQE_BYTES + max_sge * abi.SGE_BYTES


class Work:
    """What send and receive entries have in common: a private copy of the entry, whose elements stay in it.

    The entry is copied before it is looked at, for the host may change it at any time.  ``buffer`` (at
    ``address``) holds it, ``capacity`` bytes at most; ``longs`` are the same bytes as words of 64 bits, whose
    index nobody checks: a header is known to be there before it is read, and its elements are once
    ``status`` is WORK_OK.  The ``num_sge`` elements, of ``total_bytes`` together, begin at word ``first``,
    two words each: the address, then the length and, in the upper half, the key.  From word ``notes`` on,
    behind the entry, there is a word for each element, for whoever looks its key up.  ``status`` is WORK_OK
    or why the entry is refused; ``wr_id`` is right whenever 16 bytes were there.
    """

    def __init__(self, max_sge: int, capacity: int, first: int) -> None:
        if not 0 <= max_sge <= MAX_SGES:
            raise OSError(errno.EINVAL, f"{max_sge} scatter/gather elements cannot be")
        self.max_sge = max_sge
        self.capacity = (capacity + 7) & ~7
        self.first = first
        self.notes = self.capacity >> 3
        self.buffer = bytearray(self.capacity + 8 * max_sge)
        self.address = address_of(self.buffer)
        # Many requests are under way at once, and what one costs is the lines of a cache that it takes: so no
        # element is written a second time, and no view of 208 bytes is kept.
        if cython.compiled:
            self.longs = cython.cast(cython.p_ulonglong, self.address)
        else:
            self.longs = memoryview(self.buffer).cast("Q")
        self.wr_id = 0
        self.num_sge = 0
        self.total_bytes = 0
        self.status = _OK

    def elements(self) -> list[tuple[int, int, int]]:
        """The elements as a list of (va, length, key)."""
        found = []
        for i in range(self.num_sge):
            place = self.first + abi.SGE_BYTES // 8 * i
            found.append((self.longs[place + abi.SGE_VA_WORD],
                          self.longs[place + abi.SGE_LENGTH_WORD] >> abi.SGE_LENGTH_SHIFT & _WORD,
                          self.longs[place + abi.SGE_LKEY_WORD] >> abi.SGE_LKEY_SHIFT & _WORD))
        return found

    def load(self, data: Buffer, n: int) -> int:
        """Copy an entry of ``n`` bytes from ``data`` and check it; WORK_OK or why it is refused."""
        if n > self.capacity or n > length_of(data):
            return self.check(0)
        copy(self.address, address_of(data, False), n)
        return self.check(n)

    def fetch(self, consumer: RingConsumer) -> int:
        """Take the next entry of a ring and check it (``status``); its bytes, 0 for an empty ring, −1 for a
        broken one.

        The entry's room in the ring stays taken: the caller releases it.
        """
        n: cython.longlong = consumer.take(self.address, self.capacity)
        if n > 0:
            self.check(n)
        return n

    def check(self, n: int) -> int:
        """Decode the ``n`` bytes in the buffer."""
        self.status = _TRUNCATED
        return self.status

    def take_elements(self, n: int) -> int:
        """Look at the ``num_sge`` elements of an entry of ``n`` bytes; WORK_OK or why they are refused."""
        i: cython.uint
        total: cython.ulonglong = 0
        if self.num_sge > self.max_sge:
            return _SGES
        if n != 8 * self.first + abi.SGE_BYTES * self.num_sge:
            return _TRUNCATED
        for i in range(self.num_sge):
            total += self.longs[self.first + abi.SGE_BYTES // 8 * i + abi.SGE_LENGTH_WORD] \
                >> abi.SGE_LENGTH_SHIFT & _WORD
        self.total_bytes = total
        if total > abi.MAX_MESSAGE_BYTES:
            return _LENGTH
        return _OK


class SendWork(Work):
    """A send queue entry.

    Inline payload stands at byte ``inline_offset`` of ``buffer`` and stays there until the object is used
    again.
    """

    def __init__(self, max_sge: int = 32, max_inline_bytes: int = 1024) -> None:
        if not 0 <= max_inline_bytes <= MAX_INLINE_BYTES:
            raise OSError(errno.EINVAL, f"{max_inline_bytes} inline bytes cannot be")
        super().__init__(max_sge, send_bytes(max_sge, max_inline_bytes), abi.SEND_WQE_BYTES // 8)
        self.max_inline_bytes = max_inline_bytes
        self.inline_offset = abi.SEND_WQE_BYTES
        self.opcode = self.flags = self.imm_or_key = self.rkey = self.inline_bytes = 0
        self.ah = self.remote_qpn = self.remote_qkey = 0
        self.remote_va = self.compare_add = self.swap = 0

    def check(self, n: int) -> int:
        """Decode and check the ``n`` bytes in the buffer: ``status``, WORK_OK or why the entry is refused."""
        self.num_sge = 0
        self.total_bytes = 0
        self.wr_id = self.longs[abi.SEND_WQE_WR_ID_WORD] if n >= abi.SEND_WQE_WR_ID_AT + 8 else 0
        self.status = self.decode(n)
        if self.status:
            self.num_sge = 0  # nobody looks for elements beyond the copy
        return self.status

    def decode(self, n: int) -> int:
        """Take the fields over, once it is known that they are there."""
        if n < abi.SEND_WQE_BYTES:
            return _TRUNCATED
        self.opcode = self.longs[abi.SEND_WQE_OPCODE_WORD] >> abi.SEND_WQE_OPCODE_SHIFT & 0xFF
        self.flags = self.longs[abi.SEND_WQE_FLAGS_WORD] >> abi.SEND_WQE_FLAGS_SHIFT & 0xFF
        self.num_sge = self.longs[abi.SEND_WQE_NUM_SGE_WORD] >> abi.SEND_WQE_NUM_SGE_SHIFT & 0xFFFF
        self.imm_or_key = self.longs[abi.SEND_WQE_IMM_OR_KEY_WORD] >> abi.SEND_WQE_IMM_OR_KEY_SHIFT & _WORD
        self.remote_va = self.longs[abi.SEND_WQE_REMOTE_VA_WORD]
        self.rkey = self.longs[abi.SEND_WQE_RKEY_WORD] >> abi.SEND_WQE_RKEY_SHIFT & _WORD
        self.inline_bytes = self.longs[abi.SEND_WQE_INLINE_BYTES_WORD] \
            >> abi.SEND_WQE_INLINE_BYTES_SHIFT & _WORD
        self.compare_add = self.longs[abi.SEND_WQE_COMPARE_ADD_WORD]
        self.swap = self.longs[abi.SEND_WQE_SWAP_WORD]
        self.ah = self.longs[abi.SEND_WQE_AH_WORD] >> abi.SEND_WQE_AH_SHIFT & _WORD
        self.remote_qpn = self.longs[abi.SEND_WQE_REMOTE_QPN_WORD] >> abi.SEND_WQE_REMOTE_QPN_SHIFT & _WORD
        self.remote_qkey = self.longs[abi.SEND_WQE_REMOTE_QKEY_WORD] \
            >> abi.SEND_WQE_REMOTE_QKEY_SHIFT & _WORD
        if self.opcode >= _MOST_OPCODES or not (_OPCODES >> self.opcode) & 1:
            return _OPCODE
        if self.flags > 15:
            return _FLAGS
        if not self.flags & abi.INLINE:
            return _INLINE if self.inline_bytes else self.take_elements(n)
        if not (_INLINE_OPCODES >> self.opcode) & 1 or self.inline_bytes > self.max_inline_bytes:
            return _INLINE
        if self.num_sge:
            return _SGES
        if n != abi.SEND_WQE_BYTES + self.inline_bytes:
            return _TRUNCATED
        self.total_bytes = self.inline_bytes
        return _OK


class ReceiveWork(Work):
    """A receive queue entry, of a queue pair's own queue or a shared one."""

    def __init__(self, max_sge: int = 32) -> None:
        super().__init__(max_sge, receive_bytes(max_sge), abi.RECV_WQE_BYTES // 8)

    def check(self, n: int) -> int:
        """Decode and check the ``n`` bytes in the buffer: ``status``, WORK_OK or why the entry is refused."""
        self.num_sge = 0
        self.total_bytes = 0
        self.wr_id = self.longs[abi.RECV_WQE_WR_ID_WORD] if n >= abi.RECV_WQE_WR_ID_AT + 8 else 0
        if n < abi.RECV_WQE_BYTES:
            self.status = _TRUNCATED
        else:
            self.num_sge = self.longs[abi.RECV_WQE_NUM_SGE_WORD] >> abi.RECV_WQE_NUM_SGE_SHIFT & 0xFFFF
            self.status = self.take_elements(n)
        if self.status:
            self.num_sge = 0
        return self.status


def encode_send(
    out: Buffer, opcode: int, flags: int, imm: int, wr_id: int, remote_va: int, rkey: int, compare: int,
    swap: int, ah: int, qpn: int, qkey: int, sges: Elements, inline: bytes | None = None,
) -> int:
    """Write a send entry into ``out``, whose address is a multiple of 8; its length in bytes, −1 where
    ``out`` is too short for it.

    ``sges`` is a list of (va, length, lkey).  ``inline`` (bytes) makes it an inline entry without elements;
    the INLINE flag follows from it.  OverflowError for a value that its field cannot hold; what stands in
    ``out`` then is no entry.
    """
    return put_send(address_of(out), len(out), opcode, flags, imm, wr_id, remote_va, rkey, compare, swap, ah,
                    qpn, qkey, sges, inline)


def _put_head(
    address: int, opcode: int, flags: int, elements: int, imm: int, wr_id: int, remote_va: int, rkey: int,
    payload: int, compare: int, swap: int, ah: int, qpn: int, qkey: int,
) -> None:
    """Write what stands before the elements, or the ``payload`` bytes that are inline.  OverflowError."""
    if not 0 <= opcode <= 0xFF or not 0 <= flags <= 0xFF:
        raise OverflowError(f"opcode {opcode} and flags {flags:#x} have 8 bits")
    # Fields of one word are written together; that they are in one is held by a test.
    store64(address + abi.SEND_WQE_OPCODE_WORD * 8,
            _at(opcode, abi.SEND_WQE_OPCODE_SHIFT) | _at(flags, abi.SEND_WQE_FLAGS_SHIFT)
            | _at(elements, abi.SEND_WQE_NUM_SGE_SHIFT) | _at(imm, abi.SEND_WQE_IMM_OR_KEY_SHIFT))
    store64(address + abi.SEND_WQE_WR_ID_AT, _whole(wr_id))
    store64(address + abi.SEND_WQE_REMOTE_VA_AT, _whole(remote_va))
    store64(address + abi.SEND_WQE_RKEY_WORD * 8,
            _at(rkey, abi.SEND_WQE_RKEY_SHIFT) | _at(payload, abi.SEND_WQE_INLINE_BYTES_SHIFT))
    store64(address + abi.SEND_WQE_COMPARE_ADD_AT, _whole(compare))
    store64(address + abi.SEND_WQE_SWAP_AT, _whole(swap))
    store64(address + abi.SEND_WQE_AH_WORD * 8,
            _at(ah, abi.SEND_WQE_AH_SHIFT) | _at(qpn, abi.SEND_WQE_REMOTE_QPN_SHIFT))
    store64(address + abi.SEND_WQE_REMOTE_QKEY_WORD * 8, _at(qkey, abi.SEND_WQE_REMOTE_QKEY_SHIFT))


def put_send(
    address: int, capacity: int, opcode: int, flags: int, imm: int, wr_id: int, remote_va: int, rkey: int,
    compare: int, swap: int, ah: int, qpn: int, qkey: int, sges: Elements, inline: bytes | None,
) -> int:
    """`encode_send` to ``capacity`` bytes at ``address``."""
    payload: cython.ulonglong = 0
    elements: cython.ulonglong = 0
    n: cython.ulonglong = abi.SEND_WQE_BYTES
    if inline is None:
        flags &= ~abi.INLINE
        elements = len(sges)
        n += abi.SGE_BYTES * elements
    else:
        flags |= abi.INLINE
        payload = len(inline)
        n += payload
    if n > capacity or elements > 0xFFFF:
        return -1
    _put_head(
        address, opcode, flags, elements, imm, wr_id, remote_va, rkey, payload, compare, swap, ah, qpn, qkey
    )
    if payload:
        copy(address + abi.SEND_WQE_BYTES, address_of(inline, False), payload)
    elif elements:
        _put_elements(address + abi.SEND_WQE_BYTES, sges)
    return n


def put_run(
    address: int, capacity: int, opcode: int, flags: int, imm: int, wr_id: int, remote_va: int, rkey: int,
    source: int, length: int, lkey: int, inline: bool,
) -> int:
    """`put_send` of an operation that is no atomic one and no datagram, on one run of ``length`` bytes at
    ``source``, which is mapped here: inline, or one element of ``lkey``.
    """
    n: cython.ulonglong = abi.SEND_WQE_BYTES
    n += length if inline else abi.SGE_BYTES
    if n > capacity:
        return -1
    flags = flags | abi.INLINE if inline else flags & ~abi.INLINE
    _put_head(
        address, opcode, flags, 0 if inline else 1, imm, wr_id, remote_va, rkey, length if inline else 0,
        0, 0, 0, 0, 0,
    )  # fmt: skip
    if inline:
        copy(address + abi.SEND_WQE_BYTES, source, length)
        return n
    _put_element(address + abi.SEND_WQE_BYTES, source, length, lkey)
    return n


def encode_receive(out: Buffer, wr_id: int, sges: Elements) -> int:
    """Write a receive entry into ``out``, whose address is a multiple of 8; its length in bytes, −1 where
    ``out`` is too short for it.

    OverflowError as ``encode_send``.
    """
    return put_receive(address_of(out), len(out), wr_id, sges)


def put_receive(address: int, capacity: int, wr_id: int, sges: Elements) -> int:
    """`encode_receive` to ``capacity`` bytes at ``address``."""
    elements: cython.ulonglong = len(sges)
    n: cython.ulonglong = abi.RECV_WQE_BYTES + abi.SGE_BYTES * elements
    if n > capacity or elements > 0xFFFF:
        return -1
    store64(address + abi.RECV_WQE_NUM_SGE_WORD * 8, _at(elements, abi.RECV_WQE_NUM_SGE_SHIFT))
    store64(address + abi.RECV_WQE_WR_ID_AT, _whole(wr_id))
    _put_elements(address + abi.RECV_WQE_BYTES, sges)
    return n


def _put_elements(address: int, sges: Sequence[tuple[int, int, int]]) -> None:
    """Write scatter/gather elements from ``address`` on."""
    for va, length, key in sges:
        _put_element(address, va, length, key)
        address += abi.SGE_BYTES


def _put_element(address: int, va: int, length: int, key: int) -> None:
    store64(address + abi.SGE_VA_AT, _whole(va))
    store64(address + abi.SGE_LENGTH_WORD * 8,
            _at(length, abi.SGE_LENGTH_SHIFT) | _at(key, abi.SGE_LKEY_SHIFT))


def _whole(value: int) -> int:
    """64 bits; OverflowError for a value that has more."""
    if not cython.compiled and not 0 <= value < 1 << 64:
        raise OverflowError(f"{value} does not fit 64 bits")
    return value


def _at(value: int, shift: int) -> int:
    """A number of 32 bits at its place in a word; OverflowError for one that has more."""
    wide: cython.ulonglong = value
    if not cython.compiled and not 0 <= value < 1 << 32:
        raise OverflowError(f"{value} does not fit 32 bits")
    return wide << shift
