"""A pageable memory and two adapters' tables that register it, and steps of it that fail."""

import errno
import os
import random

from region_world import ALL, PD

from softhca.machine import primitives
from softhca.memory import paged_layout as layout
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.paged import register_paged
from softhca.memory.paged_mapping import PagedMapping
from softhca.memory.paged_memory import PagedMemory
from softhca.memory.regions import RegionTable
from softhca.memory.tpt import TranslationTable

VA = 0x10_0000
EAGAIN, EACCES, EFAULT = errno.EAGAIN, errno.EACCES, errno.EFAULT


class World:
    """A memory, its owner, and two adapters' region tables."""

    def __init__(self, pages=8, rights=ALL, extra=0, **more):
        self.length = pages * PAGE_BYTES - extra
        self.memory = PagedMemory(self.length, rights, **more)
        self.table = RegionTable(TranslationTable(1024), random.Random(1), 100)
        self.other = RegionTable(TranslationTable(1024), random.Random(2), 100)
        self.scratch = bytearray(max(self.length, 64))

    def region(self, table=None, access=ALL, va=VA, fd=None):
        mapping = PagedMapping(self.memory.fd if fd is None else fd)
        return register_paged(self.table if table is None else table, mapping, PD, va, access)

    def write(self, region, offset, data):
        self.scratch[: len(data)] = data
        return region.write(region.va + offset, primitives.address_of(self.scratch), len(data))

    def read(self, region, offset, n):
        """The bytes, or −errno."""
        room = bytearray(b"\xee" * n)
        result = region.read(region.va + offset, primitives.address_of(room), n)
        if result:
            assert room == b"\xee" * n, "nothing is copied where the answer is an error"
        return result or bytes(room)

    def view(self, offset, n):
        """The owner's view, by address."""
        room = bytearray(n)
        primitives.copy(primitives.address_of(room), self.memory.address + offset, n)
        return bytes(room)

    def entries(self):
        table = self.memory.mapping.table
        return [primitives.load64(table + 8 * page) for page in range(self.memory.pages)]

    def frames(self):
        """Frame by page, None where there is none."""
        return [entry & 0xFFFFFFFF if entry >> 63 else None for entry in self.entries()]

    def words(self):
        return [primitives.load64(self.memory.mapping.line(i)) for i in range(layout.ATTACHMENTS)]

    def state(self):
        """All that a step that fails must leave alone."""
        memory = self.memory
        swapped = memory.swap.held
        return (memory.state, memory.mapping.rights(), self.entries(), self.words(), memory.resident_bytes,
                memory.frames.free.free_count, swapped)


def pattern(n, seed=7):
    return random.Random(seed).randbytes(n)


class Failing:
    """Lets the n-th call of a method raise, and the ones after it work."""

    def __init__(self, monkeypatch, owner, name, number, code):
        self.left, self.code, self.method = number, code, getattr(owner, name)
        monkeypatch.setattr(owner, name, self)

    def __call__(self, *arguments):
        self.left -= 1
        if self.left == 0:
            raise OSError(self.code, os.strerror(self.code))
        return self.method(*arguments)


def scattered(world):
    """Bytes in every other page, so that each of them is a piece of its own."""
    region, data = world.region(), bytearray(world.length)
    for page in range(0, 8, 2):
        start = page * PAGE_BYTES
        data[start : start + PAGE_BYTES] = pattern(PAGE_BYTES, page)
        assert world.write(region, start, data[start : start + PAGE_BYTES]) == 0
    return region, bytes(data)  # not read from the memory: that would fill its other pages with zeros
