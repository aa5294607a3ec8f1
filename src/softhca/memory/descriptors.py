"""What is asked of a memory descriptor that somebody else passed, before it is mapped."""

import fcntl
import os

from softhca.memory.bits import PAGE_BYTES


def seals_of(fd: int) -> int:
    """The seals of a passed file; OSError as the system says it, of the descriptor, where it has none."""
    try:
        return fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        raise OSError(error.errno, f"descriptor: {error.strerror}") from None


def has_ordinary_pages(fd: int) -> bool:
    """Whether a file's pages are the system's ordinary ones.

    Huge pages of a hugetlb file are not there when they are touched unless somebody has reserved them, and
    whoever touches one then is ended by SIGBUS.  The file system is asked: a file's own block size is also
    larger where ordinary shared memory may be backed by huge pages.
    """
    return os.fstatvfs(fd).f_bsize == PAGE_BYTES
