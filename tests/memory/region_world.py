"""A host with a table of regions, and what its tests grant and expect."""

import random

import pytest

from softhca.machine import primitives
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.host import HostMemory
from softhca.memory.regions import (
    LOCAL_WRITE,
    REFUSED_KEY,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    RegionTable,
)
from softhca.memory.tpt import TranslationTable

ALL = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC
TOP = 1 << 64
PD = 5


def fails(code):
    return pytest.raises(OSError, match=rf"\[Errno {code}\]")


def address(buffer):
    return primitives.address_of(buffer, writable=False)


class World:
    """A host, its table of regions, and shorthands."""

    def __init__(self, max_regions=1000, entries=1 << 16, seed=1):
        self.host = HostMemory(64 << 20)
        self.tpt = TranslationTable(entries)
        self.table = RegionTable(self.tpt, random.Random(seed), max_regions)

    def over(self, buffer, access=ALL, va=None, pd=PD, length=None, **more):
        """A region over a buffer of ours."""
        first, offset = self.host.attach_buffer(buffer)
        length = len(buffer) if length is None else length
        frames = [(first, -(-(offset + length) // PAGE_BYTES))]
        va = address(buffer) if va is None else va
        return self.table.register(self.host.address_map, pd, va, length, access, frames, offset, **more)

    def scattered(self, pages, access=ALL, va=0x10_0000, pd=PD, page_offset=0, length=None):
        """A region over frames that are not contiguous, and the frames."""
        frames = self.host.allocate(2 * pages, contiguous=True)[::-2]
        length = pages * PAGE_BYTES - page_offset if length is None else length
        region = self.table.register(self.host.address_map, pd, va, length, access, frames, page_offset)
        return region, frames

    def invalidate(self, entry):
        """Clear the valid bit alone."""
        primitives.store64(self.tpt.address + entry * 8, self.tpt.entry(entry) & ~(1 << 63))

    def bytes_of(self, frames):
        return b"".join(bytes(self.host.view(frame, 1)) for frame in frames)

    def dead(self, key, pd=PD):
        return self.table.find(key, pd, 0, 0, 0) is None and self.table.refusal == REFUSED_KEY
