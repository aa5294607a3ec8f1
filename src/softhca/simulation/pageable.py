"""The region of a program's host that its owner swaps out and in, or moves: pageable memory."""

from __future__ import annotations

from typing import Any

from softhca.memory.bits import PAGE_BYTES
from softhca.memory.paged import register_paged
from softhca.memory.paged_memory import OUT, PagedMemory
from softhca.memory.regions import ON_DEMAND


class Pageable:
    """A pageable memory that begins with ``content``.

    Programs look at it through `read` alone: what is swapped out is read from where it is.
    """

    def __init__(self, content: bytes, rights: int, on_demand: bool) -> None:
        self.memory = PagedMemory(len(content), rights | (ON_DEMAND if on_demand else 0))
        self.on_demand = on_demand
        self.length = len(content)
        self._rights = rights
        self._regions: Any = None
        self._region: Any = None
        self._fetch(0, self.memory.pages)
        self.memory.view.mmap[: self.length] = content

    def register(self, engine: Any, pd: int, va: int, on_fault: Any) -> int:
        """Register it with an adapter; its key.  ``on_fault`` is called when an absent page is asked for."""
        self._regions = engine.regions
        rights = self._rights | (ON_DEMAND if self.on_demand else 0)
        self._region = register_paged(self._regions, self.memory.mapping, pd, va, rights)
        self._region.memory.on_fault = on_fault
        return int(self._region.key)

    def deregister(self) -> None:
        """Take its key back."""
        self._regions.deregister(self._region)

    @property
    def missing(self) -> bool:
        """Whether a page is not there, or none may be touched."""
        if self.memory.state == OUT:
            return True
        return self.on_demand and self.present < self.memory.pages

    @property
    def present(self) -> int:
        """How many pages are there."""
        return self.memory.pages - sum(count for _, count in self.memory.absent())

    def read(self, offset: int, length: int) -> bytes:
        """What programs see; on demand that fetches the pages."""
        first = offset // PAGE_BYTES
        count = -(-(offset + length) // PAGE_BYTES) - first
        if self.memory.state == OUT:
            content = bytearray(count * PAGE_BYTES)
            for page, pages in self.memory.swap.runs(first, count):
                start = (page - first) * PAGE_BYTES
                self.memory.swap.read(page, memoryview(content)[start : start + pages * PAGE_BYTES])
            start = offset - first * PAGE_BYTES
            return bytes(content[start : start + length])
        self._fetch(first, count)
        return self.memory.view.mmap[offset : offset + length]

    def _fetch(self, first: int, count: int) -> None:
        if self.on_demand and count:
            self.memory.fetch(first, count)

    def close(self) -> None:
        """Give everything back to the system."""
        self.memory.close()
