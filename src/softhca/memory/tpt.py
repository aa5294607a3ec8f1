"""The translation and protection table: what an adapter may do with one page, and where the page is.

Up to 2^27 entries of 64 bits for pages of 4 KiB: frame (bits 0–31), protection domain (32–55), rights
(56–62, the verbs' access bits), valid (63).  The table is one sparse mapping of memory: an entry that was
never used costs nothing.
"""

from __future__ import annotations

import errno
import mmap

import cython

from softhca.machine.primitives import address_of, fill
from softhca.memory import bits
from softhca.memory.runs import FreeRuns

MAX_ENTRIES = 1 << 27
MAP_NORESERVE = 0x4000
"""Linux's number: the table is sparse, and a machine with less memory than it could need has room for it."""


class TranslationTable:
    """Entries, handed out in consecutive runs.  ``address`` is the table's own, for who shares it.

    ``stopped`` is the adapter's mode bit: while it is set, no byte of registered memory is read or written.
    """

    def __init__(self, capacity: int = MAX_ENTRIES) -> None:
        if not 0 < capacity <= MAX_ENTRIES:
            raise OSError(errno.EINVAL, f"a translation table of {capacity} entries cannot be")
        self.capacity = capacity
        self.stopped = False
        flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | MAP_NORESERVE
        table = mmap.mmap(-1, capacity * bits.ENTRY_BYTES, flags)
        table.madvise(mmap.MADV_DONTDUMP)  # a kernel that writes a core file brings each page of it
        self.entries = memoryview(table).cast("Q")
        self.address = address_of(self.entries)
        self._free = FreeRuns(0, capacity)

    @property
    def free_entries(self) -> int:
        """Entries that are not allocated."""
        return self._free.free_count

    def allocate(self, count: int) -> int:
        """First of ``count`` consecutive, invalid entries; OSError ENOMEM where there is no such run."""
        if count <= 0:
            raise OSError(errno.EINVAL, f"max_pages = {count}: so many table entries cannot be")
        first = self._free.take(count)
        if first < 0:
            raise OSError(errno.ENOMEM, f"length: no {count} consecutive translation table entries are free")
        return first

    def release(self, first: int, count: int) -> None:
        """Invalidate and give back a run; OSError EINVAL where it is not allocated."""
        try:
            self._free.give(first, count)
        except ValueError as error:
            raise OSError(errno.EINVAL, str(error)) from None
        fill(self.address + first * bits.ENTRY_BYTES, 0, count * bits.ENTRY_BYTES)

    def set(self, i: int, frame: int, rights: int, pd: int) -> None:
        """Make entry ``i`` valid."""
        self.set_run(i, frame, 1, rights, pd)

    def set_run(self, first: int, frame: int, count: int, rights: int, pd: int) -> int:
        """Make ``count`` entries valid, for consecutive frames; OSError EINVAL for a value out of its
        width."""
        i: cython.uint
        low: cython.ulonglong
        _check_run(self.capacity, first, count, rights, pd)
        if frame > bits.FRAME_MASK or count > bits.FRAME_MASK + 1 - frame:
            raise OSError(errno.EINVAL, f"frame {frame} + {count} has more than 32 bits")
        low = bits.VALID | _placed(rights, pd) | frame
        for i in range(count):
            self.entries[first + i] = low + i
        return 0

    def protect_run(self, first: int, count: int, rights: int, pd: int) -> int:
        """Change rights and domain of ``count`` entries; frames and valid bits stay."""
        i: cython.uint
        high: cython.ulonglong
        _check_run(self.capacity, first, count, rights, pd)
        high = _placed(rights, pd)
        for i in range(count):
            self.entries[first + i] = (self.entries[first + i] & (bits.VALID | bits.FRAME_MASK)) | high
        return 0

    def entry(self, i: int) -> int:
        """Entry ``i`` as 64 bits; 0 (invalid) outside the table."""
        if i >= self.capacity:
            return 0
        return self.entries[i]


def _placed(rights: int, pd: int) -> int:
    """Rights and domain where they stand in an entry."""
    high: cython.ulonglong = rights
    low: cython.ulonglong = pd
    return high << bits.RIGHTS_SHIFT | low << bits.PD_SHIFT


def _check_run(capacity: int, first: int, count: int, rights: int, pd: int) -> None:
    """OSError EINVAL for a run outside the table, or for rights or a domain out of their width."""
    if count <= 0 or first > capacity or count > capacity - first or not 0 <= rights <= bits.RIGHTS_MASK:
        raise OSError(errno.EINVAL, f"no table entries {first} + {count} with rights {rights:#x}")
    if not 0 <= pd <= bits.PD_MASK:
        raise OSError(errno.EINVAL, f"a protection domain has 24 bits, not {pd}")
