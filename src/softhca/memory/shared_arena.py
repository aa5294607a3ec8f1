"""An arena for registered memory that peers may reach: a memfd that holds nothing else.

Whoever is given its descriptor maps these pages and no other of the host: no ring, no control word, no
region without remote rights.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os

from softhca.machine import primitives
from softhca.memory.arenas import PAGE_BYTES, SLOT_BYTES
from softhca.memory.runs import FreeRuns
from softhca.memory.shared_layout import make_sealed

DEFAULT_ARENA_BYTES = 32 << 30
SMALLEST_ARENA_BYTES = SLOT_BYTES


class SharedArena:
    """Pages of a memfd at ``base``, allocated in consecutive runs; ``first_frame`` is its first page's.

    ``size_bytes`` is address space; a page costs memory from its first use until it is freed.  OSError where
    even a small one cannot be had.
    """

    def __init__(self, size_bytes: int = DEFAULT_ARENA_BYTES) -> None:
        while True:
            try:
                self.fd = make_sealed("softhca-shared", size_bytes)
            except OSError:
                if size_bytes // 2 < SMALLEST_ARENA_BYTES:
                    raise
            else:
                try:
                    self._mapping = mmap.mmap(self.fd, size_bytes)
                    break
                except OSError:
                    os.close(self.fd)
                    if size_bytes // 2 < SMALLEST_ARENA_BYTES:
                        raise
            size_bytes = size_bytes // 2 // SLOT_BYTES * SLOT_BYTES
        self.size_bytes = size_bytes
        self.base = primitives.address_of(self._mapping)
        self.first_frame = 0
        self._free = FreeRuns(0, size_bytes // PAGE_BYTES)

    def holds(self, address: int, length: int) -> bool:
        """Whether the ``length`` bytes at an address of this process lie in the arena."""
        return self.base <= address and address + length <= self.base + self.size_bytes

    def allocate(self, pages: int) -> int:
        """The first frame of ``pages`` consecutive, zero-filled pages; −1 where there are none."""
        first = self._free.take(pages)
        return -1 if first < 0 else self.first_frame + first

    def owns(self, frame: int) -> bool:
        """Whether a frame is one of the arena's."""
        return 0 <= frame - self.first_frame < self.size_bytes // PAGE_BYTES

    def free(self, first_frame: int, pages: int) -> None:
        """Give pages and their memory back; OSError EINVAL, and nothing changes, where they are not taken."""
        first = first_frame - self.first_frame
        if not self._free.is_taken(first, pages):
            raise OSError(errno.EINVAL, "frames that are not allocated cannot be freed")
        try:
            self._mapping.madvise(mmap.MADV_REMOVE, first * PAGE_BYTES, pages * PAGE_BYTES)
        except OSError:
            primitives.fill(self.base + first * PAGE_BYTES, 0, pages * PAGE_BYTES)
        self._free.give(first, pages)

    def close(self) -> None:
        """Close the descriptor; addresses that were given out stay mapped while in use."""
        os.close(self.fd)
        with contextlib.suppress(BufferError):
            self._mapping.close()
