"""The host's memory: page frames on a memfd, and slots for buffers that others made.

A memfd of fixed, sparse size holds every page that the library itself gives out (rings, tables, host
regions); a process that receives its descriptor maps the same frames by :class:`SharedHostMemory`.  A
buffer of the application (bytearray, numpy, memory of a C program) becomes frames too, by taking slots of
its own.
"""

import contextlib
import errno
import fcntl
import mmap
import operator
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from softhca.machine import deferred_signals, primitives
from softhca.memory.arenas import AddressMap
from softhca.memory.bits import PAGE_BYTES, SLOT_BYTES, SLOT_PAGES, SLOTS
from softhca.memory.descriptors import has_ordinary_pages
from softhca.memory.mapping import Mapping
from softhca.memory.runs import FreeRuns, runs_of
from softhca.memory.shared_arena import SharedArena

DEFAULT_CAPACITY_BYTES = 64 << 30
SMALLEST_CAPACITY_BYTES = 4 * SLOT_BYTES
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class HostMemory:
    """Frame allocator over a memfd, and the slots of attached buffers, of one process.

    ``capacity_bytes`` is address space, not memory: a page costs memory from its first use until it is freed.
    Where the process may not have that much address space or so big a file, less is taken (``capacity_pages``
    says how much).  Frame 0 is never given out.

    ``lock`` is what every call that changes something does so under: whoever lets several threads call puts a
    lock there that a thread may take again.  All addresses that were given out stay mapped for as long as the
    object lives.
    """

    def __init__(self, capacity_bytes: int = DEFAULT_CAPACITY_BYTES) -> None:
        if not SLOT_BYTES <= capacity_bytes <= SLOTS // 2 * SLOT_BYTES or capacity_bytes % SLOT_BYTES:
            raise OSError(errno.EINVAL, f"{capacity_bytes} bytes are no sensible number of 16 MiB slots")
        self.lock: AbstractContextManager[object] = contextlib.nullcontext()
        self.address_map = AddressMap()
        self.fd = os.memfd_create("softhca", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            self._mapping = self._map(capacity_bytes)
            # Whoever maps the descriptor can rely on its size: no page can be cut off under a reader.
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)
        except BaseException:
            os.close(self.fd)
            raise
        self.capacity_pages = self._mapping.length // PAGE_BYTES
        self.base = self._mapping.address
        self.address_map.attach(0, self.capacity_pages, self.base)
        self._used = 0
        self._free = FreeRuns(1, self.capacity_pages - 1)
        slots = self.capacity_pages // SLOT_PAGES
        self._slots = FreeRuns(slots, SLOTS - slots)
        self._attached: dict[int, tuple[int, int, memoryview | None]] = {}
        self.shared: SharedArena | None = None
        self._closed = False

    def _map(self, capacity_bytes: int) -> Mapping:
        """Size and map the memfd, halving the capacity while the process's limits refuse it."""
        while True:
            try:
                os.ftruncate(self.fd, capacity_bytes)
                return Mapping(self.fd, capacity_bytes)
            except OSError:
                if capacity_bytes // 2 < SMALLEST_CAPACITY_BYTES:
                    raise
                capacity_bytes = capacity_bytes // 2 // SLOT_BYTES * SLOT_BYTES

    @property
    def free_pages(self) -> int:
        """Pages that ``allocate`` can still give."""
        return self._free.free_count

    def allocate(self, pages: int, contiguous: bool = False) -> list[int]:
        """Frames of ``pages`` zero-filled pages; consecutive ones only when asked, else wherever pages are
        free.

        Raises TypeError where ``pages`` is no whole number; OSError: EINVAL for no pages, ENOMEM where they
        are not to be had.  Nothing is allocated then.
        """
        pages = operator.index(pages)  # a float would stay in the free list
        if pages <= 0:
            raise OSError(errno.EINVAL, f"cannot allocate {pages} pages")
        with self.lock:
            self._check_open()
            if contiguous:
                first = self._free.take(pages)
                runs = [(first, pages)] if first >= 0 else []
            else:
                runs = self._free.take_scattered(pages)
            if not runs:
                raise OSError(errno.ENOMEM, f"no {pages} free pages of host memory")
            self._used = max(self._used, sum(runs[-1]))
        return [frame for first, count in runs for frame in range(first, first + count)]

    def _check_open(self) -> None:
        """OSError EIO where all is given back."""
        if self._closed:
            raise OSError(errno.EIO, "the host memory is closed")

    def share(self) -> SharedArena:
        """Have an arena of its own for what peers may reach (`allocate_shared`), once.  OSError."""
        with self.lock:
            self._check_open()
            if self.shared is None:
                arena = SharedArena()
                pages = arena.size_bytes // PAGE_BYTES
                slot = self._slots.take(-(-pages // SLOT_PAGES))
                arena.first_frame = slot * SLOT_PAGES
                self.address_map.attach(slot, pages, arena.base)
                self.shared = arena
            return self.shared

    def allocate_shared(self, pages: int) -> list[int]:
        """As ``allocate`` of consecutive pages, from the arena that is shared where there is one with room
        for them."""
        pages = operator.index(pages)
        with self.lock:
            self._check_open()
            first = -1 if self.shared is None or pages <= 0 else self.shared.allocate(pages)
        return self.allocate(pages, contiguous=True) if first < 0 else list(range(first, first + pages))

    def frame_of(self, address: int, length: int) -> int:
        """The frame that an address of this memory, shared or not, lies in, where all ``length`` bytes are
        in one of the two; 0 otherwise."""
        offset = address - self.base
        if offset >= 0 and offset + length <= self.capacity_pages * PAGE_BYTES:
            return offset // PAGE_BYTES
        if self.shared is not None and self.shared.holds(address, length):
            return self.shared.first_frame + (address - self.shared.base) // PAGE_BYTES
        return 0

    def file_of(self, address: int, length: int) -> tuple[int, int] | None:
        """The descriptor and the offset of ``length`` bytes of this memory, shared or not; None where they
        are no such bytes, or the memory is closed."""
        offset = address - self.base
        if self._closed:
            return None
        if offset >= 0 and offset + length <= self.capacity_pages * PAGE_BYTES:
            return self.fd, offset
        if self.shared is not None and self.shared.holds(address, length):
            return self.shared.fd, address - self.shared.base
        return None

    def free(self, frames: Iterable[int]) -> None:
        """Give frames and their memory back; those of `allocate_shared` by themselves, as they were given.

        EINVAL, and nothing changes, where one is not allocated or named twice, or these are not alone.  Once
        the memory is closed there is nothing to give back.
        """
        runs = runs_of(sorted(frames))
        with self.lock:
            if self._closed:
                return
            if self.shared is not None and len(runs) == 1 and self.shared.owns(runs[0][0]):
                self.shared.free(*runs[0])
                return
            ends = [first + count for first, count in runs]
            apart = all(end < first for end, (first, _) in zip(ends, runs[1:], strict=False))
            if not apart or not all(self._free.is_taken(first, count) for first, count in runs):
                raise OSError(errno.EINVAL, "frames that are not allocated, or named twice, cannot be freed")
            for first, count in runs:
                self._mapping.clear(first, count)
                self._free.give(first, count)

    def view(self, first_frame: int, pages: int) -> memoryview:
        """The bytes of consecutive allocated frames, mapped anew; EINVAL where they are not allocated."""
        if not self._free.is_taken(first_frame, pages):
            raise OSError(errno.EINVAL, f"frames from {first_frame} are not all allocated")
        return memoryview(mmap.mmap(self.fd, pages * PAGE_BYTES, offset=first_frame * PAGE_BYTES))

    def attach_buffer(self, buffer: Any, writable: bool = True) -> tuple[int, int]:
        """Give a contiguous buffer-protocol object frames: ``(first frame, offset of its first byte in that
        page)``.

        The buffer is held (it can neither be resized nor collected) until ``detach(first frame)``.  Raises
        OSError: EINVAL for an empty or scattered buffer, EACCES for a read-only one where ``writable`` is
        asked.
        """
        view = memoryview(buffer)
        if view.nbytes == 0 or not view.c_contiguous:
            raise OSError(errno.EINVAL, "an empty or non-contiguous buffer cannot be attached")
        if writable and view.readonly:
            raise OSError(errno.EACCES, "the buffer is read-only")
        address = primitives.address_of(view, writable=writable)
        return self._attach(address, view.nbytes, view)

    def attach_address(self, address: int, length: int) -> tuple[int, int]:
        """As ``attach_buffer`` for ``length`` bytes at an integer address, which the caller keeps mapped."""
        if length <= 0 or address <= 0 or address + length > 1 << 64:
            raise OSError(errno.EINVAL, f"no {length} bytes at address {address:#x}")
        return self._attach(address, length, None)

    def _attach(self, address: int, length: int, holder: memoryview | None) -> tuple[int, int]:
        """Take slots for the pages that a range of this process touches."""
        offset = address % PAGE_BYTES
        pages = -(-(offset + length) // PAGE_BYTES)
        with self.lock:
            self._check_open()
            deferred_signals.begin()  # all of it is done, or nothing
            try:
                slot = self._slots.take(-(-pages // SLOT_PAGES))
                if slot < 0:
                    raise OSError(errno.ENOMEM, f"no free slots for {length} bytes")
                self.address_map.attach(slot, pages, address - offset)
                self._attached[slot] = (pages, address - offset, holder)
            finally:
                deferred_signals.end()
        return slot * SLOT_PAGES, offset

    def attached(self, first_frame: int) -> tuple[int, int, int]:
        """``(slot, pages, address)`` of an attached buffer, as another process's address map needs them."""
        slot = first_frame // SLOT_PAGES
        found = None if first_frame % SLOT_PAGES else self._attached.get(slot)
        if found is None:
            raise OSError(errno.EINVAL, f"frame {first_frame} begins no attached buffer")
        return slot, found[0], found[1]

    def detach(self, first_frame: int) -> None:
        """Let a buffer go.  EINVAL where ``first_frame`` begins no attached buffer."""
        with self.lock:
            if not self._closed:  # else all have been let go
                self._detach(first_frame)

    def _detach(self, first_frame: int) -> None:
        slot, pages, _ = self.attached(first_frame)
        deferred_signals.begin()
        try:
            self.address_map.detach(slot, pages)
            self._slots.give(slot, -(-pages // SLOT_PAGES))
            del self._attached[slot]
        finally:
            deferred_signals.end()

    def close(self) -> None:
        """Let every buffer go, give the memory back and close the descriptor; may be called again.

        Nothing is given out any more.  Addresses that were stay mapped for threads that come late, with
        nothing behind them, until the object goes.
        """
        with self.lock:  # each step may be repeated, should the one before be cut short
            self._closed = True
            for slot in list(self._attached):
                self._detach(slot * SLOT_PAGES)
            fd, self.fd = self.fd, -1
            if fd >= 0:
                os.close(fd)
            if self.shared is not None:
                self.shared.close()
            self._mapping.retire(self._used)


class SharedHostMemory:
    """Another process's host memory, mapped here from its descriptor (which stays the caller's).

    ``address_map`` knows the memfd's frames; buffers of the other process are added by
    ``address_map.attach(slot, pages, address, pid)``.  Raises OSError EINVAL for a descriptor that could
    shrink under the reader, has huge pages or is no whole number of slots.
    """

    def __init__(self, fd: int) -> None:
        size = os.fstat(fd).st_size
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        whole_slots = size % SLOT_BYTES == 0 and SLOT_BYTES <= size <= SLOTS * SLOT_BYTES
        if not seals & fcntl.F_SEAL_SHRINK or not whole_slots or not has_ordinary_pages(fd):
            raise OSError(errno.EINVAL, "the descriptor is not sealed host memory of ordinary pages")
        self._mapping = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self._mapping.madvise(mmap.MADV_DONTDUMP)  # it is another process's, and sparse
        self.capacity_pages = size // PAGE_BYTES
        self.base = primitives.address_of(self._mapping)
        self.address_map = AddressMap()
        self.address_map.attach(0, self.capacity_pages, self.base)

    def close(self) -> None:
        """Unmap, where nothing looks at the mapping any more."""
        with contextlib.suppress(BufferError):
            self._mapping.close()
