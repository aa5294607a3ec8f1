"""A file mapped in this process for as long as somebody may use an address in it."""

from __future__ import annotations

import os
import sys
from functools import partial

from softhca.machine import deferred_signals, primitives
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.last_reference import AtLast


class Mapping:
    """The first ``length`` bytes of the file ``fd``, from ``address`` on.  OSError where they cannot be had.

    Threads follow addresses that they were given before another thread ends what stands there, so nothing
    here unmaps at a time that somebody chooses: what was ever in use stays mapped until the object goes, and
    whoever follows addresses holds the object.  `retire` gives back all else.
    """

    def __init__(self, fd: int, length: int) -> None:
        self.length = 0
        self._end: AtLast | None = None
        address = primitives.map_file(fd, length)
        if address < 0:
            raise OSError(-address, os.strerror(-address))
        self.address = address
        self.length = length

    def clear(self, page: int, count: int) -> None:
        """Make ``count`` pages from ``page`` on zero and return their memory to the system."""
        address = self.address + page * PAGE_BYTES
        if primitives.remove_pages(address, count * PAGE_BYTES):
            primitives.fill(address, 0, count * PAGE_BYTES)

    def retire(self, pages: int) -> None:
        """Nothing is to be kept: return the memory, and all addresses but those of the first ``pages`` pages.

        Late readers of these find zeros.
        """
        length = min(pages * PAGE_BYTES, self.length)
        if length:
            primitives.remove_pages(self.address, length)
        if primitives.unmap_pages(self.address + length, self.length - length) == 0:
            self.length = length
            if self._end is not None:  # finalized already, and brought back
                self._end.action = self._unmap()

    def _unmap(self) -> partial[int]:
        """What unmaps it; refers to nothing but primitives."""
        return partial(primitives.unmap_pages, self.address, self.length)

    def _drop(self) -> None:
        # What the collector finalizes may be brought back and be closed afterwards.
        # Threads that the end of the interpreter stops anywhere are left their memory until the very end.
        if self.length and not sys.is_finalizing():
            self._end = AtLast(self._unmap())

    __del__ = deferred_signals.finalizer(_drop)
