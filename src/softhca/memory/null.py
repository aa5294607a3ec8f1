"""Null regions: a local key without memory behind it, for scatter/gather elements (ibv_alloc_null_mr(3)).

What is read of one is zeros, what is written to one is thrown away, whichever addresses a request names: a
receive can skip bytes that nobody wants, a send can be padded, and no memory stands behind either.  Peers
have no right to it, and no window can be bound to it.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import cython

from softhca.machine.primitives import fill
from softhca.memory.regions import LOCAL_WRITE, Region, check_rights

if TYPE_CHECKING:
    from softhca.memory.regions import RegionTable

NULL_BYTES = (1 << 64) - 1
"""The length, from address 0 on: the greatest that 64 bits say."""

MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_EACCES = cython.declare(cython.int, errno.EACCES)
_EFAULT = cython.declare(cython.int, errno.EFAULT)
_EAGAIN = cython.declare(cython.int, errno.EAGAIN)


class NullRegion(Region):
    """Every address but the last one.  Made by `register_null` alone; it answers as ``Region`` does."""

    def __init__(self, table: RegionTable, slot: int) -> None:
        Region.__init__(self, table, slot)
        self.first_entry = self.entry_count = self.page_offset = 0
        self.va = 0
        self.length = NULL_BYTES
        self.zero_based = False

    def read(self, va: int, dst_address: int, n: int) -> int:
        """Zeros; as ``Region.read``."""
        result: cython.int = self.check(va, n)
        if result == 0:
            fill(dst_address, 0, n)
        return result

    def write(self, va: int, src_address: int, n: int) -> int:
        """Nothing happens; as ``Region.write``."""
        return self.check(va, n)

    def check(self, va: int, n: int) -> int:
        """Whether a copy may be; 0 or −errno."""
        offset: cython.ulonglong = va & MASK64
        if not self.valid:
            return -_EACCES
        if n > self.length - offset:
            return -_EFAULT
        if self.tpt.stopped:
            return -_EAGAIN
        return 0

    def refresh(self) -> None:
        """Nothing: there are no pages."""

    def dispose(self) -> None:
        """Nothing: it stands on no table entries."""


def register_null(table: RegionTable, pd: int) -> NullRegion:
    """A null region of the domain ``pd``.  OSError, and nothing has changed: EINVAL for a domain that cannot
    be, ENOMEM where slots are used up."""
    check_rights(pd, LOCAL_WRITE)
    slot, key = table.take_slot()
    region = NullRegion(table, slot)
    region.pd = pd
    region.access = LOCAL_WRITE
    region.valid = True
    table.enter(region, key)
    return region


def is_null(region: object) -> bool:
    """Whether a region is one of those."""
    return isinstance(region, NullRegion)
