"""Work queue entries: encodings, and the checked, reused objects that the transport works on.

Little-endian.  A send entry is 64 bytes — 0 opcode u8 · 1 flags u8 · 2 num_sge u16 · 4 imm_or_key u32 · 8
wr_id u64 · 16 remote_va u64 · 24 rkey u32 · 28 inline_bytes u32 · 32 compare_add u64 · 40 swap u64 · 48 ah
u32 · 52 remote_qpn u32 · 56 remote_qkey u32 · 60 zero — then its scatter/gather elements of 16 bytes {va
u64, length u32, lkey u32}, or the inline bytes.  A receive entry is {0 num_sge u16, 2 … 7 zero, 8 wr_id
u64} and its elements.

Work requests on keys name the window or fast region by its number (24 rkey) and its next key's low byte (4
imm_or_key; LOCAL_INV: the whole key that dies).  BIND_MW: 16 remote_va and 32 compare_add are address and
length, 40 swap the region's L_Key (bits 0–31) and the rights (32–63); no elements.  REG_MR: likewise, bits
0–31 of swap being the offset in the first page, and the elements are runs of pages {first frame u64, count
u32, 0}.
"""

import errno

import cython

from softhca.machine.primitives import address_of, copy, length_of, store64

RDMA_WRITE = 0
RDMA_WRITE_WITH_IMM = 1
SEND = 2
SEND_WITH_IMM = 3
RDMA_READ = 4
ATOMIC_CMP_AND_SWP = 5
ATOMIC_FETCH_AND_ADD = 6
LOCAL_INV = 7
BIND_MW = 8
SEND_WITH_INV = 9
REG_MR = 11

SIGNALED = 1
FENCE = 2
SOLICITED = 4
INLINE = 8

SEND_HEADER_BYTES = 64
RECEIVE_HEADER_BYTES = 16
SGE_BYTES = 16
MAX_SGES = 4096
MAX_INLINE_BYTES = 1 << 16
MAX_MESSAGE_BYTES = 1 << 31

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
_HEADER = cython.declare(cython.uint, SEND_HEADER_BYTES)
_SGE = cython.declare(cython.uint, SGE_BYTES)
_RECEIVE_HEADER = cython.declare(cython.uint, RECEIVE_HEADER_BYTES)
_MAX_MESSAGE = cython.declare(cython.ulonglong, MAX_MESSAGE_BYTES)
_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_INLINE_FLAG = cython.declare(cython.uint, INLINE)
# Bit n stands for opcode n.
_LAST_OPCODE = cython.declare(cython.uint, REG_MR)
_OPCODES = cython.declare(cython.uint, (1 << SEND_WITH_INV + 1) - 1 | 1 << REG_MR)
# Payload goes out only with sends and writes: bit n stands for opcode n.
_INLINE_OPCODES = cython.declare(cython.uint, 1 << RDMA_WRITE | 1 << RDMA_WRITE_WITH_IMM | 1 << SEND
                                 | 1 << SEND_WITH_IMM | 1 << SEND_WITH_INV)


def send_bytes(max_sge, max_inline_bytes):
    """Longest send entry of a queue with these limits."""
    return SEND_HEADER_BYTES + max(max_sge * SGE_BYTES, max_inline_bytes)


def receive_bytes(max_sge):
    """Longest receive entry of a queue with this limit."""
    return RECEIVE_HEADER_BYTES + max_sge * SGE_BYTES


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

    def __init__(self, max_sge, capacity, first):
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

    def elements(self):
        """The elements as a list of (va, length, key)."""
        found = []
        for i in range(self.first, self.first + 2 * self.num_sge, 2):
            found.append((self.longs[i], self.longs[i + 1] & _WORD, self.longs[i + 1] >> 32))
        return found

    def load(self, data, n):
        """Copy an entry of ``n`` bytes from ``data`` and check it; WORK_OK or why it is refused."""
        if n > self.capacity or n > length_of(data):
            return self.check(0)
        copy(self.address, address_of(data, False), n)
        return self.check(n)

    def fetch(self, consumer):
        """Take the next entry of a ring and check it (``status``); its bytes, 0 for an empty ring, −1 for a
        broken one.

        The entry's room in the ring stays taken: the caller releases it.
        """
        n: cython.longlong = consumer.take(self.address, self.capacity)
        if n > 0:
            self.check(n)
        return n

    def check(self, n):
        """Decode the ``n`` bytes in the buffer."""
        self.status = _TRUNCATED
        return self.status

    def take_elements(self, n):
        """Look at the ``num_sge`` elements of an entry of ``n`` bytes; WORK_OK or why they are refused."""
        i: cython.uint
        total: cython.ulonglong = 0
        if self.num_sge > self.max_sge:
            return _SGES
        if n != 8 * self.first + 16 * self.num_sge:
            return _TRUNCATED
        for i in range(self.num_sge):
            total += self.longs[self.first + 2 * i + 1] & _WORD
        self.total_bytes = total
        if total > _MAX_MESSAGE:
            return _LENGTH
        return _OK


class SendWork(Work):
    """A send queue entry.

    Inline payload stands at byte ``inline_offset`` of ``buffer`` and stays there until the object is used
    again.
    """

    def __init__(self, max_sge=32, max_inline_bytes=1024):
        if not 0 <= max_inline_bytes <= MAX_INLINE_BYTES:
            raise OSError(errno.EINVAL, f"{max_inline_bytes} inline bytes cannot be")
        super().__init__(max_sge, send_bytes(max_sge, max_inline_bytes), SEND_HEADER_BYTES // 8)
        self.max_inline_bytes = max_inline_bytes
        self.inline_offset = SEND_HEADER_BYTES
        self.opcode = self.flags = self.imm_or_key = self.rkey = self.inline_bytes = 0
        self.ah = self.remote_qpn = self.remote_qkey = 0
        self.remote_va = self.compare_add = self.swap = 0

    def check(self, n):
        """Decode and check the ``n`` bytes in the buffer: ``status``, WORK_OK or why the entry is refused."""
        self.num_sge = 0
        self.total_bytes = 0
        self.wr_id = self.longs[1] if n >= 16 else 0
        self.status = self.decode(n)
        if self.status:
            self.num_sge = 0  # nobody looks for elements beyond the copy
        return self.status

    def decode(self, n):
        """Take the fields over, once it is known that they are there."""
        if n < _HEADER:
            return _TRUNCATED
        word: cython.ulonglong = self.longs[0]
        self.opcode = word & 0xFF
        self.flags = (word >> 8) & 0xFF
        self.num_sge = (word >> 16) & 0xFFFF
        self.imm_or_key = word >> 32
        self.remote_va = self.longs[2]
        word = self.longs[3]
        self.rkey = word & _WORD
        self.inline_bytes = word >> 32
        self.compare_add = self.longs[4]
        self.swap = self.longs[5]
        word = self.longs[6]
        self.ah = word & _WORD
        self.remote_qpn = word >> 32
        self.remote_qkey = self.longs[7] & _WORD
        if self.opcode > _LAST_OPCODE or not (_OPCODES >> self.opcode) & 1:
            return _OPCODE
        if self.flags > 15:
            return _FLAGS
        if not self.flags & _INLINE_FLAG:
            return _INLINE if self.inline_bytes else self.take_elements(n)
        if not (_INLINE_OPCODES >> self.opcode) & 1 or self.inline_bytes > self.max_inline_bytes:
            return _INLINE
        if self.num_sge:
            return _SGES
        if n != _HEADER + self.inline_bytes:
            return _TRUNCATED
        self.total_bytes = self.inline_bytes
        return _OK


class ReceiveWork(Work):
    """A receive queue entry, of a queue pair's own queue or a shared one."""

    def __init__(self, max_sge=32):
        super().__init__(max_sge, receive_bytes(max_sge), RECEIVE_HEADER_BYTES // 8)

    def check(self, n):
        """Decode and check the ``n`` bytes in the buffer: ``status``, WORK_OK or why the entry is refused."""
        self.num_sge = 0
        self.total_bytes = 0
        self.wr_id = self.longs[1] if n >= 16 else 0
        if n < _RECEIVE_HEADER:
            self.status = _TRUNCATED
        else:
            self.num_sge = self.longs[0] & 0xFFFF
            self.status = self.take_elements(n)
        if self.status:
            self.num_sge = 0
        return self.status


def encode_send(out, opcode, flags, imm, wr_id, remote_va, rkey, compare, swap, ah, qpn, qkey, sges,
                inline=None):
    """Write a send entry into ``out``, whose address is a multiple of 8; its length in bytes, −1 where
    ``out`` is too short for it.

    ``sges`` is a list of (va, length, lkey).  ``inline`` (bytes) makes it an inline entry without elements;
    the INLINE flag follows from it.  OverflowError for a value that its field cannot hold; what stands in
    ``out`` then is no entry.
    """
    return put_send(address_of(out), len(out), opcode, flags, imm, wr_id, remote_va, rkey, compare, swap, ah,
                    qpn, qkey, sges, inline)


def put_send(address, capacity, opcode, flags, imm, wr_id, remote_va, rkey, compare, swap, ah, qpn, qkey,
             sges, inline):
    """`encode_send` to ``capacity`` bytes at ``address``."""
    payload: cython.ulonglong = 0
    elements: cython.ulonglong = 0
    n: cython.ulonglong = _HEADER
    if inline is None:
        flags &= ~_INLINE_FLAG
        elements = len(sges)
        n += _SGE * elements
    else:
        flags |= _INLINE_FLAG
        payload = len(inline)
        n += payload
    if n > capacity or elements > 0xFFFF:
        return -1
    if not 0 <= opcode <= 0xFF or not 0 <= flags <= 0xFF:
        raise OverflowError(f"opcode {opcode} and flags {flags:#x} have 8 bits")
    store64(address, _pair(opcode | flags << 8 | elements << 16, imm))
    store64(address + 8, _whole(wr_id))
    store64(address + 16, _whole(remote_va))
    store64(address + 24, _pair(rkey, payload))
    store64(address + 32, _whole(compare))
    store64(address + 40, _whole(swap))
    store64(address + 48, _pair(ah, qpn))
    store64(address + 56, _pair(qkey, 0))
    if payload:
        copy(address + _HEADER, address_of(inline, False), payload)
    elif elements:
        _put_elements(address + _HEADER, sges)
    return n


def encode_receive(out, wr_id, sges):
    """Write a receive entry into ``out``, whose address is a multiple of 8; its length in bytes, −1 where
    ``out`` is too short for it.

    OverflowError as ``encode_send``.
    """
    return put_receive(address_of(out), len(out), wr_id, sges)


def put_receive(address, capacity, wr_id, sges):
    """`encode_receive` to ``capacity`` bytes at ``address``."""
    elements: cython.ulonglong = len(sges)
    n: cython.ulonglong = _RECEIVE_HEADER + _SGE * elements
    if n > capacity or elements > 0xFFFF:
        return -1
    store64(address, elements)
    store64(address + 8, _whole(wr_id))
    _put_elements(address + _RECEIVE_HEADER, sges)
    return n


def _put_elements(address, sges):
    """Write scatter/gather elements from ``address`` on."""
    for va, length, key in sges:
        store64(address, _whole(va))
        store64(address + 8, _pair(length, key))
        address += 16


def _whole(value):
    """64 bits; OverflowError for a value that has more."""
    if not cython.compiled and not 0 <= value < 1 << 64:
        raise OverflowError(f"{value} does not fit 64 bits")
    return value


def _pair(low, high):
    """Two numbers of 32 bits as one of 64; OverflowError for one that has more."""
    upper: cython.ulonglong = high
    if not cython.compiled and not (0 <= low < 1 << 32 and 0 <= high < 1 << 32):
        raise OverflowError(f"{low} or {high} does not fit 32 bits")
    return upper << 32 | low
