"""A pageable memory mapped into this process, and the attachments that this process makes to it."""

import contextlib
import errno
import fcntl
import mmap
import os
import struct

from softhca.machine.primitives import address_of, atomic_cas64, load64, store64
from softhca.memory import paged_layout as layout
from softhca.memory.descriptors import has_ordinary_pages, seals_of
from softhca.memory.paged import PagedAccess
from softhca.memory.paged_processes import Holder, this_process

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_HEADER = struct.Struct("=QQQ")


class PagedMapping:
    """The memory behind a descriptor, which stays the caller's.

    ``length``, ``pages`` and ``frames`` are taken once, from a header that must fit the size of the file.
    Raises OSError: EINVAL for a descriptor that is no pageable memory, or one that could change its size
    under its readers; else what the system says.
    """

    def __init__(self, fd: int) -> None:
        self.layout = _checked(fd)
        self.length = self.layout.length
        self.pages = self.layout.pages
        self.frames = self.layout.frames
        self.mmap = mmap.mmap(fd, self.layout.size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self.mmap.madvise(mmap.MADV_DONTDUMP)  # a kernel that writes a core file brings each page of it
        self.base = address_of(self.mmap)
        self.table = self.base + layout.TABLE
        self.frames_address = self.base + self.layout.frames_at

    def rights(self) -> int:
        """The rights word."""
        return int(load64(self.base + layout.RIGHTS))

    def line(self, number: int) -> int:
        """Address of an attachment's line."""
        return self.base + layout.LINES + number * layout.LINE_BYTES

    def attach(self) -> PagedAccess:
        """Take a free line for this process; ENOMEM where living processes hold all of them.

        A line that is free may be quiesced already: then the attachment begins held.
        """
        for number in self._free_first():
            line = self.line(number)
            word = load64(line)
            taken = ((word >> layout.TAKEN_SHIFT) + 1) & layout.TAKEN_BITS
            new = (word & layout.QUIESCED) | layout.ATTACHED | taken << layout.TAKEN_SHIFT
            if word & layout.ATTACHED or atomic_cas64(line, word, new) != word:
                continue
            store64(line + layout.WANTED, 0)
            holder = this_process()
            store64(line + layout.PID, holder.pid)
            store64(line + layout.STARTED, holder.started)
            store64(line + layout.NAMESPACE, holder.namespace)
            store64(line + layout.HOLDER_TAKEN, taken)
            return PagedAccess(self, number, self.base, line, self.table, self.frames_address,
                               self.pages, self.frames)
        raise OSError(errno.ENOMEM, f"descriptor: the memory has {layout.ATTACHMENTS} attachments already")

    def _free_first(self) -> list[int]:
        """Numbers of the free lines, then of those whose process has ended, made free now."""
        numbers = range(layout.ATTACHMENTS)
        free = [number for number in numbers if not load64(self.line(number)) & layout.ATTACHED]
        return free or [number for number in numbers if self.reclaim(number)]

    def detach(self, access: PagedAccess) -> None:
        """Give a line back."""
        store64(access.line + layout.WANTED, 0)
        _change(access.line, layout.ATTACHED | layout.COUNT_BITS, 0)

    def reclaim(self, number: int) -> bool:
        """Free a line whose process has ended; whether it was so."""
        line = self.line(number)
        word = load64(line)
        taken = (word >> layout.TAKEN_SHIFT) & layout.TAKEN_BITS
        # One that is just being taken does not say yet by whom.
        if not word & layout.ATTACHED or load64(line + layout.HOLDER_TAKEN) != taken:
            return False
        holder = Holder(*(load64(line + place) for place in (layout.PID, layout.STARTED, layout.NAMESPACE)))
        if not holder.is_dead():
            return False
        # Not if it has been taken again meanwhile: the word counts that.
        return bool(atomic_cas64(line, word, word & ~(layout.ATTACHED | layout.COUNT_BITS)) == word)

    def close(self) -> None:
        """Unmap, where nothing looks at the mapping any more."""
        with contextlib.suppress(BufferError):
            self.mmap.close()


def _change(line: int, clear: int, put: int) -> None:
    """Clear and set bits of an I/O word."""
    while True:
        word = load64(line)
        if atomic_cas64(line, word, (word & ~clear) | put) == word:
            return


def quiesce_bits(mapping: PagedMapping, quiesced: bool) -> None:
    """Set or clear the quiesce bit of every line, free ones too: who attaches later finds it there."""
    for number in range(layout.ATTACHMENTS):
        _change(mapping.line(number), layout.QUIESCED, layout.QUIESCED if quiesced else 0)


def busy_lines(mapping: PagedMapping) -> list[int]:
    """Numbers of the attachments with accesses under way."""
    found = []
    for number in range(layout.ATTACHMENTS):
        word = load64(mapping.line(number))
        if word & layout.ATTACHED and word & layout.COUNT_BITS:
            found.append(number)
    return found


def _checked(fd: int) -> layout.Layout:
    """The layout of the memory behind a descriptor, whoever wrote its header."""
    size = os.fstat(fd).st_size
    seals = seals_of(fd)
    if not seals & fcntl.F_SEAL_SHRINK or not has_ordinary_pages(fd):
        raise OSError(errno.EINVAL, "descriptor: it is no sealed memory of ordinary pages")
    header = os.pread(fd, _HEADER.size, 0)
    if len(header) != _HEADER.size:
        raise OSError(errno.EINVAL, "descriptor: it is no pageable memory")
    magic, length, pages = _HEADER.unpack(header)
    if magic != layout.MAGIC:
        raise OSError(errno.EINVAL, "descriptor: it is no pageable memory of this version")
    expected = layout.layout_of(length)
    if (pages, size) != (expected.pages, expected.size):
        raise OSError(
            errno.EINVAL, f"descriptor: a header of {length} bytes in {pages} pages does not fit its file"
        )
    return expected


def make_memfd(length: int, rights: int) -> int:
    """A new memfd with its header; every page is absent.  EINVAL for a length that cannot be."""
    expected = layout.layout_of(length)
    fd = os.memfd_create("softhca-paged", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, expected.size)
        os.pwrite(fd, _HEADER.pack(layout.MAGIC, length, expected.pages), 0)
        os.pwrite(fd, struct.pack("=Q", rights), layout.RIGHTS)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd
