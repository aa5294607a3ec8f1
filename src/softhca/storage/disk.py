"""What an I/O controller stores blocks on: a file, a block device, or memory."""

from __future__ import annotations

import os
import stat
from typing import Self

DEFAULT_BLOCK_BYTES = 512
BLOCK_SIZES = (512, 1024, 2048, 4096)
MOST_BLOCKS = 1 << 62


class Disk:
    """``blocks`` blocks of ``block_bytes`` each.  Offsets and lengths below are whole blocks inside the disk:
    the logical unit has checked them.
    """

    def __init__(self, block_bytes: int, blocks: int, read_only: bool = False) -> None:
        if block_bytes not in BLOCK_SIZES:
            raise ValueError(f"blocks of {block_bytes} bytes: expected one of {BLOCK_SIZES}")
        if not 0 < blocks < MOST_BLOCKS:
            raise ValueError("a disk has at least one block")
        self.block_bytes = block_bytes
        self.blocks = blocks
        self.read_only = read_only

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer`` from the byte ``offset`` on.  OSError: it cannot be read."""
        raise NotImplementedError

    def write_from(self, offset: int, buffer: memoryview) -> None:
        """Write all of ``buffer`` from the byte ``offset`` on.  OSError: it cannot be written."""
        raise NotImplementedError

    def flush(self) -> None:
        """Return when all that was written outlives a crash of the unit.  OSError: it does not."""

    def close(self) -> None:
        """Give back what the disk holds open; may be called again."""


class MemoryDisk(Disk):
    """A disk that ends with the program; ``data`` are its bytes."""

    def __init__(
        self, blocks: int, block_bytes: int = DEFAULT_BLOCK_BYTES, read_only: bool = False
    ) -> None:
        super().__init__(block_bytes, blocks, read_only)
        self.data = bytearray(blocks * block_bytes)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """As `Disk.read_into`."""
        buffer[:] = self.data[offset : offset + len(buffer)]

    def write_from(self, offset: int, buffer: memoryview) -> None:
        """As `Disk.write_from`."""
        self.data[offset : offset + len(buffer)] = buffer


class FileDisk(Disk):
    """A disk on a file or block device.  A last part of it that is no whole block is not used.

    OSError as ``open``; ValueError where the file has not even one block.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        block_bytes: int = DEFAULT_BLOCK_BYTES,
        read_only: bool = False,
    ) -> None:
        self._fd = -1
        fd = os.open(path, (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) and not stat.S_ISBLK(found.st_mode):
                raise ValueError(f"{os.fspath(path)} is neither a file nor a block device")
            super().__init__(block_bytes, os.lseek(fd, 0, os.SEEK_END) // block_bytes, read_only)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], length_bytes: int, block_bytes: int = DEFAULT_BLOCK_BYTES
    ) -> Self:
        """Make the file, all zeros and sparse, and open it.  FileExistsError where there is one."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.truncate(fd, length_bytes)
        finally:
            os.close(fd)
        return cls(path, block_bytes)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """As `Disk.read_into`; OSError EIO where the file has become shorter."""
        done = 0
        while done < len(buffer):
            count = os.preadv(self._fd, [buffer[done:]], offset + done)
            if not count:
                raise OSError(5, "the file has become shorter")
            done += count

    def write_from(self, offset: int, buffer: memoryview) -> None:
        """As `Disk.write_from`."""
        done = 0
        while done < len(buffer):
            done += os.pwritev(self._fd, [buffer[done:]], offset + done)

    def flush(self) -> None:
        """As `Disk.flush`, by fdatasync."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        """As `Disk.close`."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
