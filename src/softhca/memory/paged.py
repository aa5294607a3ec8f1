"""Regions of a pageable memory: an adapter's copies by a table that it shares with others.

Every copy is bracketed by the attachment's I/O word, in which the arbitrator has the quiesce bit and this
side the count of copies under way; as one word it has one order of changes, so that either the arbitrator
sees the copy or the copy sees the bit.  x86-64 keeps loads and stores in order; the primitives' atomics and
acquire and release accesses are what the protocol needs anywhere.

What stands in the memory is another process's word, and is checked at each use: a page that is not there
holds an operation (−EAGAIN), a frame that cannot be ends it (−EFAULT).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

import cython

from softhca.machine.primitives import (
    atomic_add64,
    atomic_cas64,
    copy,
    load64,
    store64,
    wake_word,
)
from softhca.memory import bits
from softhca.memory import paged_layout as layout
from softhca.memory.regions import (
    LOCAL_WRITE,
    MW_BIND,
    ON_DEMAND,
    ZERO_BASED,
    Region,
    check_rights,
)

if TYPE_CHECKING:
    from softhca.memory.paged_mapping import PagedMapping
    from softhca.memory.regions import RegionTable

MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
EAGAIN = cython.declare(cython.int, errno.EAGAIN)
EACCES = cython.declare(cython.int, errno.EACCES)
EFAULT = cython.declare(cython.int, errno.EFAULT)
_RIGHTS = cython.declare(cython.uint, layout.RIGHTS)
_FAULTS = cython.declare(cython.uint, layout.FAULTS)
_WANTED = cython.declare(cython.uint, layout.WANTED)
_WANTED_SHIFT = cython.declare(cython.int, layout.WANTED_SHIFT)
_ACCESS_BITS = cython.declare(cython.uint, layout.ACCESS_BITS)
_QUIESCED = cython.declare(cython.ulonglong, layout.QUIESCED)
_VALID = cython.declare(cython.ulonglong, layout.VALID)
_LOCAL_WRITE = cython.declare(cython.uint, LOCAL_WRITE)
_OWN_BITS = cython.declare(cython.uint, ZERO_BASED | ON_DEMAND)


class PagedAccess:
    """One attachment's way to the bytes of a memory that ``mapping`` has mapped here.

    ``line`` is the address of its I/O word; ``header``, ``table`` and ``frames`` are addresses too.
    ``on_fault``, when set, is called without arguments as a page is asked for that nobody had asked for
    through this attachment; it must not raise, nor come back here.
    """

    on_fault: Callable[[], object]

    def __init__(
        self, mapping: PagedMapping, number: int, header: int, line: int, table: int, frames: int,
        pages: int, frame_count: int,
    ) -> None:
        self.mapping = mapping
        self.number = number
        self.header = header
        self.line = line
        self.table = table
        self.frames = frames
        self.pages = pages
        self.frame_count = frame_count
        self.on_fault = None

    def enter(self) -> bool:
        """Begin an access; whether it may go on.  `leave` ends it, also where it may not."""
        return not atomic_add64(self.line, 1) & _QUIESCED

    def leave(self) -> None:
        """End an access."""
        atomic_add64(self.line, MASK64)

    def rights(self) -> int:
        """The rights word."""
        return load64(self.header + _RIGHTS)

    def ready(self, offset: int, n: int) -> int:
        """Whether the pages of ``n`` bytes from ``offset`` on are there, inside a bracket: 0; −EAGAIN: one is
        not, and is asked for; −EFAULT: its frame cannot be.  The caller has checked the range.
        """
        page: cython.ulonglong = offset >> bits.PAGE_SHIFT
        last: cython.ulonglong = (offset + n - 1) >> bits.PAGE_SHIFT
        entry: cython.ulonglong
        if n == 0:
            return 0
        while page <= last:
            if page >= self.pages:
                return -EFAULT
            entry = load64(self.table + page * bits.ENTRY_BYTES)
            if not entry & bits.VALID:
                self.ask(page, last - page + 1)
                return -EAGAIN
            if (entry & bits.FRAME_MASK) >= self.frame_count:
                return -EFAULT
            page += 1
        return 0

    def ask(self, page: int, count: int) -> None:
        """Note that pages are waited for, unless others are already."""
        if load64(self.line + _WANTED) == 0:
            store64(self.line + _WANTED, (count << _WANTED_SHIFT) | (page + 1))
            atomic_add64(self.header + _FAULTS, 1)
            wake_word(self.header + _FAULTS)
            if self.on_fault is not None:
                self.on_fault()

    def place(self, offset: int) -> int:
        """Address of a byte, inside a bracket; 0 where its page is not there or cannot be."""
        entry: cython.ulonglong = load64(self.table + (offset >> bits.PAGE_SHIFT) * bits.ENTRY_BYTES)
        if not entry & bits.VALID or (entry & bits.FRAME_MASK) >= self.frame_count:
            return 0
        return self.frames + (entry & bits.FRAME_MASK) * bits.PAGE_BYTES + (offset & bits.OFFSET_MASK)

    def move(self, offset: int, local: int, n: int, writing: bool) -> int:
        """Copy ``n`` bytes between the memory and an address of this process, inside a bracket; as `ready`,
        and nothing is copied where a page is not there.
        """
        piece: cython.ulonglong
        address: cython.ulonglong
        result: cython.int = self.ready(offset, n)
        if result:
            return result
        while n:
            piece = bits.PAGE_BYTES - (offset & bits.OFFSET_MASK)
            if piece > n:
                piece = n
            address = self.place(offset)
            if not address:
                return -EFAULT
            if writing:
                copy(address, local, piece)
            else:
                copy(local, address, piece)
            local += piece
            offset += piece
            n -= piece
        return 0


class PagedRegion(Region):
    """A registration of a whole pageable memory.  Made by `register_paged` alone.

    ``access`` is what the registration gives and the memory's rights allow.  Copies and atomics answer
    −EAGAIN (*held*: try again) while the memory is quiesced, the adapter's data access is stopped, or a
    page is not there; −EACCES once after the memory's rights have changed, with a new ``generation``.
    """

    def __init__(self, table: RegionTable, slot: int, memory: PagedAccess, granted: int) -> None:
        Region.__init__(self, table, slot)
        self.memory = memory
        self.granted = granted
        self.seen = 0
        self.paged = True
        self.first_entry = self.entry_count = self.page_offset = 0

    def refresh(self) -> None:
        """Take over the memory's present rights; what was resolved by others before is void."""
        seen: cython.ulonglong = self.memory.rights()
        if seen == self.seen:
            return
        self.seen = seen
        self.generation += 1
        self.access = self.granted & ((seen & _ACCESS_BITS) | _OWN_BITS)
        if not seen & _VALID:
            self.valid = False

    def read(self, va: int, dst_address: int, n: int) -> int:
        """As ``Region.read``, or −EAGAIN."""
        return self.move(va, dst_address, n, False)

    def write(self, va: int, src_address: int, n: int) -> int:
        """As ``Region.write``, or −EAGAIN."""
        return self.move(va, src_address, n, True)

    def move(self, va: int, local: int, n: int, writing: bool) -> int:
        """Copy in a bracket; 0 or −errno."""
        offset: cython.ulonglong = (va - self.va) & MASK64
        result: cython.int = self.begin(offset, n)
        if result:
            return result
        if writing and not self.access & _LOCAL_WRITE:
            result = -EACCES
        else:
            result = self.memory.move(offset, local, n, writing)
        self.memory.leave()
        return result

    def begin(self, offset: int, n: int) -> int:
        """Open a bracket: 0, and then `PagedAccess.leave` must close it; or −errno, and it is not open."""
        if not self.valid:
            return -EACCES
        if offset > self.length or n > self.length - offset:
            return -EFAULT
        if self.tpt.stopped:
            return -EAGAIN
        if not self.memory.enter():
            self.memory.leave()
            return -EAGAIN
        if self.memory.rights() != self.seen:
            self.memory.leave()
            self.refresh()
            return -EACCES
        return 0

    def compare_swap(self, va: int, compare: int, swap: int) -> int:
        """As ``Region.compare_swap``; ``fault`` may be −EAGAIN.  Aligned, it is one instruction, hence atomic
        for all processes and adapters that share the memory.
        """
        return self.atomic(va, compare, swap, True)

    def fetch_add(self, va: int, add: int) -> int:
        """As ``Region.fetch_add``, otherwise as `compare_swap`."""
        return self.atomic(va, 0, add, False)

    def put_word(self, va: int, src_address: int) -> int:
        """As ``Region.put_word``, or −EAGAIN; aligned, it is one store for all that share the memory."""
        place: cython.ulonglong
        offset: cython.ulonglong = (va - self.va) & MASK64
        result: cython.int = self.begin(offset, 8)
        if result:
            return result
        if not self.access & _LOCAL_WRITE:
            result = -EACCES
        elif offset & 7:
            result = self.memory.move(offset, src_address, 8, True)
        else:
            result = self.memory.ready(offset, 8)
            place = 0 if result else self.memory.place(offset)
            if place:
                copy(self.scratch, src_address, 8)
                store64(place, load64(self.scratch))
            elif result == 0:
                result = -EFAULT
        self.memory.leave()
        return result

    def atomic(self, va: int, compare: int, operand: int, swapping: bool) -> int:
        """Both atomics; the old value, ``fault`` set."""
        old: cython.ulonglong = 0
        offset: cython.ulonglong = (va - self.va) & MASK64
        self.fault = self.begin(offset, 8)
        if self.fault:
            return 0
        if not self.access & _LOCAL_WRITE:
            self.fault = -EACCES
        else:
            self.fault = self.memory.ready(offset, 8)
        if self.fault == 0 and offset & 7:
            old = self.unaligned(offset, compare, operand, swapping)
        elif self.fault == 0:
            old = self.aligned(offset, compare, operand, swapping)
        self.memory.leave()
        return 0 if self.fault else old

    def aligned(self, offset: int, compare: int, operand: int, swapping: bool) -> int:
        """By the machine; the old value."""
        place: cython.ulonglong = self.memory.place(offset)
        if not place:
            self.fault = -EFAULT
            return 0
        if swapping:
            return atomic_cas64(place, compare, operand)
        return atomic_add64(place, operand)

    def unaligned(self, offset: int, compare: int, operand: int, swapping: bool) -> int:
        """Read and written, so that it is atomic among this adapter's own operations; the old value."""
        old: cython.ulonglong
        self.fault = self.memory.move(offset, self.scratch, 8, False)
        old = load64(self.scratch)
        if self.fault == 0 and (not swapping or old == compare):
            store64(self.scratch, operand if swapping else (old + operand) & MASK64)
            self.fault = self.memory.move(offset, self.scratch, 8, True)
        return old

    def dispose(self) -> None:
        """Leave the memory."""
        self.memory.mapping.detach(self.memory)


def register_paged(
    table: RegionTable, mapping: PagedMapping, pd: int, va: int, access: int
) -> PagedRegion:
    """Register the whole memory of ``mapping`` (`PagedMapping`) in a region table: a new attachment, key and
    region.

    Raises OSError, and changes nothing: EINVAL for a domain or rights that cannot be, or a range past 2^64;
    EOPNOTSUPP for MW_BIND (windows cover pinned memory only); EACCES for a memory that its owner has closed;
    ENOMEM where attachments or slots are used up.
    """
    if access & MW_BIND:
        raise OSError(errno.EOPNOTSUPP, "access: memory windows cannot be bound to pageable memory")
    check_rights(pd, access)
    if va < 0 or va + mapping.length > 1 << 64:
        raise OSError(errno.EINVAL, f"va = {va:#x}: no region of {mapping.length} bytes can be there")
    slot, key = table.take_slot()
    memory = None
    try:
        memory = mapping.attach()
        if not memory.rights() & layout.VALID:
            raise OSError(errno.EACCES, "descriptor: the owner has closed this memory")
    except OSError:
        table.give_slot(slot)
        if memory is not None:
            mapping.detach(memory)
        raise
    region = PagedRegion(table, slot, memory, access)
    region.zero_based = bool(access & ZERO_BASED)
    region.pd = pd
    region.va = 0 if region.zero_based else va
    region.length = mapping.length
    region.valid = True
    region.refresh()
    table.enter(region, key)
    return region


def scan_entries(table: int, first: int, count: int) -> list[tuple[int, int, int]]:
    """``(page, frame, pages)`` for each run of valid entries among ``count`` from ``first`` on, in one piece
    here as there.
    """
    runs = []
    i: cython.ulonglong
    begin: cython.ulonglong = 0
    length: cython.ulonglong = 0
    frame: cython.ulonglong = 0
    entry: cython.ulonglong
    for i in range(first, first + count):
        entry = load64(table + i * bits.ENTRY_BYTES)
        if length and entry & bits.VALID and (entry & bits.FRAME_MASK) == frame + length:
            length += 1
            continue
        if length:
            runs.append((begin, frame, length))
        length = 0
        if entry & bits.VALID:
            begin = i
            frame = entry & bits.FRAME_MASK
            length = 1
    if length:
        runs.append((begin, frame, length))
    return runs


def put_entries(table: int, page: int, frame: int, count: int) -> None:
    """Make the entries of ``count`` pages valid, at consecutive frames; their bytes stand there already."""
    i: cython.ulonglong
    for i in range(count):
        store64(table + (page + i) * bits.ENTRY_BYTES, bits.VALID | (frame + i))


def clear_entries(table: int, page: int, count: int) -> None:
    """Make the entries of ``count`` pages invalid, for when no access is under way."""
    i: cython.ulonglong
    for i in range(count):
        store64(table + (page + i) * bits.ENTRY_BYTES, 0)
