"""An arena for registered memory that peers may reach: a memfd that holds nothing else.

Whoever is given its descriptor maps these pages and no other of the host: no ring, no control word, no
region without remote rights.

A peer that has claimed pages and does not go on may write to them at any time.  Then the owner gives
itself other pages under the same addresses (`replace`): a private mapping of the file's, which the kernel
copies page by page when they are first written to, so that nothing is lost of what this process writes
meanwhile.  The file's own pages are *held* until that peer has left (`settle`), and are not given out as
long; the addresses stay private until their memory is freed.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections import deque

from softhca.machine import primitives
from softhca.memory.bits import PAGE_BYTES, SLOT_BYTES
from softhca.memory.mapping import Mapping
from softhca.memory.runs import FreeRuns, runs_of
from softhca.memory.shared_layout import make_sealed

DEFAULT_ARENA_BYTES = 32 << 30
SMALLEST_ARENA_BYTES = SLOT_BYTES


class SharedArena:
    """Pages of a memfd at ``base``, allocated in consecutive runs; ``first_frame`` is its first page's.

    ``size_bytes`` is address space; a page costs memory from its first use until it is freed.  OSError where
    even a small one cannot be had.  ``allocate`` and ``free`` are one thread's at a time, and so are
    ``replace`` and ``settle``; the two may be two threads.
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
                    self._mapping = Mapping(self.fd, size_bytes)
                    break
                except OSError:
                    os.close(self.fd)
                    if size_bytes // 2 < SMALLEST_ARENA_BYTES:
                        raise
            size_bytes = size_bytes // 2 // SLOT_BYTES * SLOT_BYTES
        self.size_bytes = size_bytes
        self.base = self._mapping.address
        self.first_frame = 0
        self._free = FreeRuns(0, size_bytes // PAGE_BYTES)
        self._used = 0
        self._private: set[int] = set()
        self._held: dict[int, int] = {}
        self._settled: deque[int] = deque()
        self._freed: set[int] = set()

    def holds(self, address: int, length: int) -> bool:
        """Whether the ``length`` bytes at an address of this process lie in the arena."""
        return self.base <= address and address + length <= self.base + self.size_bytes

    def allocate(self, pages: int) -> int:
        """The first frame of ``pages`` consecutive, zero-filled pages; −1 where there are none."""
        self._collect()
        first = self._free.take(pages)
        if first < 0:
            return -1
        self._used = max(self._used, first + pages)
        return self.first_frame + first

    def owns(self, frame: int) -> bool:
        """Whether a frame is one of the arena's."""
        return 0 <= frame - self.first_frame < self.size_bytes // PAGE_BYTES

    def free(self, first_frame: int, pages: int) -> None:
        """Give pages and their memory back; OSError EINVAL, and nothing changes, where they are not taken."""
        first = first_frame - self.first_frame
        taken = range(first, first + pages)
        if not self._free.is_taken(first, pages) or any(page in taken for page in self._freed):
            raise OSError(errno.EINVAL, "frames that are not allocated cannot be freed")
        self._collect()
        apart = sorted(page for page in self._private if page in taken)
        for page in [*apart, first + pages]:
            if page > first:
                self._clear(first, page - first)
                self._free.give(first, page - first)
            first = page + 1
        for page in apart:
            self._freed.add(page)
            # What this process had written there goes; late writers still find the file's page elsewhere.
            primitives.map_private(self.base + page * PAGE_BYTES, PAGE_BYTES, self.fd, page * PAGE_BYTES)
            if page not in self._held:
                self._restore(page)

    def _clear(self, first: int, pages: int) -> None:
        """Make shared pages zero and return their memory to the system."""
        self._mapping.clear(first, pages)

    # Pages that a peer may still write to

    @property
    def held_pages(self) -> int:
        """How many of the file's pages are not given out because a peer may still write to them."""
        return len(self._held)

    def shares(self, place: int, length: int) -> bool:
        """Whether peers and this process see the same pages at ``length`` bytes from ``place`` on."""
        if not self._private:
            return True
        first, last = place // PAGE_BYTES, (place + length - 1) // PAGE_BYTES
        return not any(first <= page <= last for page in self._private)

    def has(self, first: int, pages: int) -> bool:
        """Whether there are such pages."""
        return first >= 0 and pages > 0 and (first + pages) * PAGE_BYTES <= self.size_bytes

    def replace(self, first: int, pages: int) -> int:
        """Have other pages with the same bytes under the addresses of ``pages`` pages; peers keep those
        that were there, which are held until ``settle``.  0 or −errno, and then some are shared still."""
        shared = [page for page in range(first, first + pages) if page not in self._private]
        for start, count in runs_of(shared):
            place = self.base + start * PAGE_BYTES
            result = primitives.map_private(place, count * PAGE_BYTES, self.fd, start * PAGE_BYTES)
            if result:
                return result
            self._private.update(range(start, start + count))
            for page in range(count):
                primitives.atomic_add64(place + page * PAGE_BYTES, 0)  # a write: the kernel copies the page
        for page in range(first, first + pages):
            self._held[page] = self._held.get(page, 0) + 1
        return 0

    def settle(self, first: int, pages: int) -> None:
        """The peer because of which ``replace`` was called does not write there any more."""
        for page in range(first, first + pages):
            self._held[page] = self._held.get(page, 0) - 1
            if self._held[page] <= 0:
                del self._held[page]
                self._settled.append(page)

    def _collect(self) -> None:
        """Take back what has been settled: the pages that were freed since, and the memory of the others."""
        while self._settled:
            page = self._settled.popleft()
            if page in self._held or page not in self._private:
                continue
            if page in self._freed:
                self._restore(page)
            else:
                place = page * PAGE_BYTES
                with contextlib.suppress(OSError), mmap.mmap(self.fd, PAGE_BYTES, offset=place) as old:
                    old.madvise(mmap.MADV_REMOVE)

    def _restore(self, page: int) -> None:
        """Share a page again that was freed; without memory for that it stays aside."""
        place = self.base + page * PAGE_BYTES
        if primitives.map_pages(place, PAGE_BYTES, self.fd, page * PAGE_BYTES) == 0:
            self._clear(page, 1)
            self._private.discard(page)
            self._freed.discard(page)
            self._free.give(page, 1)

    def close(self) -> None:
        """Close the descriptor and give the memory back; may be called again.  Addresses stay mapped for as
        long as the object lives: a thread may be about to follow one.
        """
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)
        self._mapping.retire(self._used)
