"""Where a page frame is in this process.

A frame number names memory for every process alike: 20 bits of slot (16 MiB each) and 12 bits of page, a
physical space of 2^44 bytes.  It is never a pointer.  Each process keeps an :class:`AddressMap` of its own
that turns it into an address here, or into an address of another process (``pid`` ≠ 0) that only
``process_vm_readv`` can reach.
"""

from __future__ import annotations

import errno
import mmap

import cython

from softhca.memory import bits


def _sparse_words(count: int) -> memoryview[int]:
    """``count`` zero 64-bit words that cost memory only where they are written."""
    return memoryview(mmap.mmap(-1, count * 8, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)).cast("Q")


class AddressMap:
    """One process's private table slot → base address."""

    def __init__(self) -> None:
        self.bases = _sparse_words(bits.SLOTS)
        self.pages = _sparse_words(bits.SLOTS)
        self.pids = _sparse_words(bits.SLOTS)

    def attach(self, slot: int, pages: int, address: int, pid: int = 0) -> None:
        """Map ``pages`` pages from ``slot`` on to the page-aligned ``address`` of this process, or of
        ``pid``.

        More than 4,096 pages take consecutive slots.  Raises OSError, and changes nothing: EINVAL for a slot,
        count or address that cannot be, EBUSY where a slot is attached already.
        """
        count = _slots_for(slot, pages)
        if (address <= 0 or address & bits.OFFSET_MASK or address + pages * bits.PAGE_BYTES > 1 << 64
                or pid < 0):
            raise OSError(
                errno.EINVAL, f"address = {address:#x}: {pages} pages of process {pid} cannot be there"
            )
        if any([self.pages[slot + i] for i in range(count)]):
            raise OSError(errno.EBUSY, f"slot = {slot}: it is attached already")
        for i in range(count):
            self.bases[slot + i] = address + i * bits.SLOT_BYTES
            self.pids[slot + i] = pid
            self.pages[slot + i] = min(bits.SLOT_PAGES, pages - i * bits.SLOT_PAGES)

    def detach(self, slot: int, pages: int) -> None:
        """Forget what ``attach`` of the same slot and page count made; EINVAL where that is not attached."""
        count = _slots_for(slot, pages)
        for i in range(count):
            if self.pages[slot + i] != min(bits.SLOT_PAGES, pages - i * bits.SLOT_PAGES):
                raise OSError(errno.EINVAL, f"pages = {pages}: slot {slot} does not hold so many")
        for i in range(count):
            self.pages[slot + i] = 0
            self.bases[slot + i] = 0
            self.pids[slot + i] = 0

    def address(self, frame: int) -> int:
        """Address of a frame's first byte (in the process ``pid(frame)`` where that is not 0); 0 where
        unknown."""
        slot: cython.ulonglong = frame >> bits.SLOT_SHIFT
        page: cython.uint = frame & bits.SLOT_PAGE_MASK
        if slot >= bits.SLOTS or page >= self.pages[slot]:
            return 0
        return self.bases[slot] + page * bits.PAGE_BYTES

    def pid(self, frame: int) -> int:
        """Process whose address ``address(frame)`` is; 0: this one."""
        slot: cython.ulonglong = frame >> bits.SLOT_SHIFT
        if slot >= bits.SLOTS:
            return 0
        return self.pids[slot]

    def pages_of(self, slot: int) -> int:
        """Number of pages that ``slot`` holds; 0 where it is not attached."""
        return self.pages[slot] if 0 <= slot < bits.SLOTS else 0


def _slots_for(slot: int, pages: int) -> int:
    """Number of slots that ``pages`` take from ``slot`` on; EINVAL where they leave the space."""
    count = -(-pages // bits.SLOT_PAGES)
    if pages <= 0 or slot < 0 or slot + count > bits.SLOTS:
        raise OSError(
            errno.EINVAL, f"slot, pages: {pages} pages from slot {slot} do not fit the physical space"
        )
    return count
