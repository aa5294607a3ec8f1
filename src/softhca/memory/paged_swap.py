"""The swap file of a pageable memory: where a page's bytes are while it has no frame."""

import errno
import os
import tempfile

from softhca.memory.bits import PAGE_BYTES
from softhca.memory.runs import Run


class SwapFile:
    """A file without a name in ``directory`` (default: the system's for temporary files), made at first use.

    Page ``i`` stands at byte 4096 · i; it takes room only while it is held.  A page that is not held was
    never written: it is zero.
    """

    def __init__(self, pages: int, directory: str | None = None) -> None:
        self.directory = directory or tempfile.gettempdir()
        self.pages = pages
        self._held = bytearray(pages)
        self._count = 0
        self._fd = -1

    @property
    def held(self) -> int:
        """How many pages the file holds."""
        return self._count

    def runs(self, page: int, count: int) -> list[Run]:
        """Runs of pages that are held, among ``count`` from ``page`` on."""
        end = page + count
        found = []
        while (first := self._held.find(1, page, end)) >= 0:
            page = self._held.find(0, first, end)
            page = end if page < 0 else page
            found.append((first, page - first))
        return found

    def write(self, page: int, data: memoryview) -> None:
        """Hold whole pages from ``page`` on; OSError where the file system has no room (ENOSPC, EFBIG,
        EDQUOT).

        The room is taken before anything is written, so that it cannot be missing later.
        """
        if self._fd < 0:
            self._open()
        offset = page * PAGE_BYTES
        os.posix_fallocate(self._fd, offset, len(data))
        done = 0
        while done < len(data):
            done += os.pwrite(self._fd, data[done:], offset + done)
        count = len(data) // PAGE_BYTES
        self._count += count - self._held.count(1, page, page + count)
        self._held[page : page + count] = b"\1" * count

    def read(self, page: int, into: memoryview) -> None:
        """Fill ``into`` with held pages from ``page`` on; OSError EIO where the file ends early."""
        offset = page * PAGE_BYTES
        done = 0
        while done < len(into):
            read = os.preadv(self._fd, [into[done:]], offset + done)
            if read <= 0:
                raise OSError(errno.EIO, "the swap file ends in the middle")
            done += read

    def forget(self, page: int, count: int) -> None:
        """Hold pages no more; the last one gives the file's room back."""
        self._count -= self._held.count(1, page, page + count)
        self._held[page : page + count] = bytes(count)
        if self._count == 0 and self._fd >= 0:
            os.ftruncate(self._fd, 0)

    def close(self) -> None:
        """Let the file go; may be called again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        try:
            self._fd = os.open(self.directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                raise
            # A file system without nameless files.
            self._fd, name = tempfile.mkstemp(prefix="softhca-swap-", dir=self.directory)
            os.unlink(name)
