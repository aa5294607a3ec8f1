"""Duplicates of descriptors that other threads may close."""

from __future__ import annotations

import errno
import os
from typing import Protocol


class HasDescriptor(Protocol):
    """Memory behind a descriptor: ``fd`` is −1, or raises, from before it is closed on."""

    @property
    def fd(self) -> int:
        """The descriptor."""
        ...


def duplicate(memory: HasDescriptor) -> int:
    """A duplicate of the descriptor of ``memory``, the caller's to close.

    The number itself may be another file's by the time it is used.  OSError EBADF where the memory is closed
    meanwhile, EMFILE; and what ``fd`` raises.
    """
    number = memory.fd
    made = os.dup(number)
    try:
        if memory.fd == number:
            return made  # so it was the memory's when it was duplicated
    except BaseException:
        os.close(made)
        raise
    os.close(made)
    raise OSError(errno.EBADF, "the memory is closed")
