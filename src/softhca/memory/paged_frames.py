"""The page frames of a pageable memory, and the view of its pages in order, for the process that owns it."""

import errno
import itertools
import mmap
import os

from softhca.machine.primitives import address_of, copy, hide_pages, map_pages
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.paged_mapping import PagedMapping
from softhca.memory.runs import FreeRuns, Run
from softhca.memory.tpt import MAP_NORESERVE

Piece = tuple[int, int, int]
"""(first page, first frame, how many)."""


class Frames:
    """Frames of the memfd ``fd``, which ``mapping`` maps.

    A frame that was never written, or was given back, takes no memory and reads as zeros; which ones hold
    bytes the file knows itself (``SEEK_DATA``).
    """

    def __init__(self, fd: int, mapping: PagedMapping) -> None:
        self._fd = fd
        self._mapping = mapping
        self._bytes = memoryview(mapping.mmap)
        self.free = FreeRuns(0, mapping.frames)

    def take(self, pages: list[Run]) -> list[Piece]:
        """Frames for runs of pages; OSError ENOMEM, and nothing taken, where there are too few.

        Each page has two homes, a frame of its own number in both halves: neighbours that are at home make
        one mapping of the view, and a process may have so many only.  Else any free frames do.
        """
        wanted = sum(count for _, count in pages)
        if wanted > self.free.free_count:
            raise OSError(errno.ENOMEM, f"no {wanted} free page frames")
        pieces = []
        for page, count in pages:
            for frame in (page, page + self._mapping.pages):
                if self.free.take_at(frame, count):
                    pieces.append((page, frame, count))
                    break
            else:
                for frame, length in self.free.take_scattered(count):
                    pieces.append((page, frame, length))
                    page += length
        return pieces

    def give(self, pieces: list[Piece]) -> None:
        """Give frames and their memory back."""
        self.empty(pieces)
        for _, frame, count in pieces:
            self.free.give(frame, count)

    def empty(self, pieces: list[Piece]) -> None:
        """Return the memory of frames to the system; they stay taken."""
        for _, frame, count in pieces:
            self._mapping.mmap.madvise(mmap.MADV_REMOVE, self.offset(frame), count * PAGE_BYTES)

    def check(self, pieces: list[Piece]) -> None:
        """EIO where frames that the table names are not those that were given out: another process that
        attached the memory has written it.
        """
        if not all(self.free.is_taken(frame, count) for _, frame, count in pieces):
            raise OSError(errno.EIO, "the page table was changed by somebody else")
        frames = sorted((frame, count) for _, frame, count in pieces)
        if any(a + n > b for (a, n), (b, _) in itertools.pairwise(frames)):
            raise OSError(errno.EIO, "the page table names a frame twice")

    def data(self, frame: int, count: int) -> list[Run]:
        """Runs of frames that hold bytes, among ``count`` from ``frame`` on."""
        found: list[Run] = []
        offset, end = self.offset(frame), self.offset(frame + count)
        while offset < end:
            try:
                begin = os.lseek(self._fd, offset, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                break
            if begin >= end:
                break
            offset = min(os.lseek(self._fd, begin, os.SEEK_HOLE), end)
            first = (begin - self.offset(0)) // PAGE_BYTES
            found.append((first, -(-(offset - self.offset(0)) // PAGE_BYTES) - first))
        return found

    def reserve(self, frame: int, count: int) -> None:
        """Get the memory of frames now, so that writing them cannot fail; OSError ENOSPC or ENOMEM."""
        os.posix_fallocate(self._fd, self.offset(frame), count * PAGE_BYTES)

    def bytes(self, frame: int, count: int) -> memoryview:
        """The bytes of consecutive frames."""
        offset = self.offset(frame)
        return self._bytes[offset : offset + count * PAGE_BYTES]

    def address(self, frame: int) -> int:
        """Where a frame is in this process."""
        return self._mapping.frames_address + frame * PAGE_BYTES

    def copy(self, source: Piece, target: Piece) -> None:
        """Copy the bytes that ``source`` has; both are as long.  OSError as `reserve`."""
        for frame, count in self.data(source[1], source[2]):
            to = target[1] + frame - source[1]
            self.reserve(to, count)
            copy(self.address(to), self.address(frame), count * PAGE_BYTES)

    def offset(self, frame: int) -> int:
        """Where a frame is in the file."""
        return self._mapping.layout.frames_at + frame * PAGE_BYTES

    def close(self) -> None:
        """Look at the mapping no more."""
        self._bytes.release()


class View:
    """The pages in order, at an address that never changes; a page without a frame is inaccessible."""

    def __init__(self, fd: int, frames: Frames, pages: int) -> None:
        self._fd = fd
        self._frames = frames
        self._pages = pages
        # Reserves the range; closing it unmaps whatever has been put over it.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
        self.mmap = mmap.mmap(-1, pages * PAGE_BYTES, flags)
        self.address = address_of(self.mmap)
        self.hide(0, pages)

    def show(self, pieces: list[Piece]) -> None:
        """Put frames where their pages belong; OSError ENOMEM where the process has too many mappings, with
        some of the pages moved already.
        """
        for page, frame, count in pieces:
            result = map_pages(self.address + page * PAGE_BYTES, count * PAGE_BYTES, self._fd,
                               self._frames.offset(frame))
            if result:
                raise OSError(-result, f"mapping {count} pages: {os.strerror(-result)}")

    def hide(self, page: int, count: int) -> None:
        """Make pages inaccessible; OSError as `show`."""
        result = hide_pages(self.address + page * PAGE_BYTES, count * PAGE_BYTES)
        if result:
            raise OSError(-result, f"hiding {count} pages: {os.strerror(-result)}")

    def close(self) -> None:
        """Unmap; BufferError where somebody still looks at it."""
        self.mmap.close()
