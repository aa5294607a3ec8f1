"""Regions of a program's own address space, paged on demand: nothing of them is looked up beforehand.

A region names addresses, not pages.  Each access asks the operating system to copy (``process_vm_readv`` and
``process_vm_writev``, for the program's own process too), which brings what is not there and refuses what is
not mapped.  So the program may map, unmap and discard what it likes under a region at any moment: an access
finds what stands there then, or ends with −EACCES, and never touches an address that is nobody's.

An *implicit* region is the whole address space: from 0, of 2^64 − 1 bytes.  One that is *held*, of this very
process and without another right, is copied from as it stands: whoever posts promises that what a request
names is mapped until the request is done.
"""

from __future__ import annotations

import errno
import functools
import os
from typing import TYPE_CHECKING

import cython

from softhca.machine.primitives import address_of, copy, read_process, write_process
from softhca.memory.regions import LOCAL_WRITE, ON_DEMAND, ZERO_BASED, Region, check_rights

if TYPE_CHECKING:
    from softhca.memory.regions import RegionTable

IMPLICIT_BYTES = (1 << 64) - 1
"""The length that, from address 0 on, says that a region is implicit."""

MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_EACCES = cython.declare(cython.int, errno.EACCES)
_EFAULT = cython.declare(cython.int, errno.EFAULT)
_EAGAIN = cython.declare(cython.int, errno.EAGAIN)
_LOCAL_WRITE = cython.declare(cython.uint, LOCAL_WRITE)


class OnDemandRegion(Region):
    """``length`` bytes from ``address`` of process ``pid`` on.  Made by `register_on_demand` alone.

    Copies answer as ``Region``'s do; −EACCES also where a byte is not mapped there, or not writable, and then
    what stands before its page may have been moved.  Atomics are reads and writes: they are atomic among the
    operations of this adapter.
    """

    def __init__(self, table: RegionTable, slot: int, pid: int) -> None:
        Region.__init__(self, table, slot)
        self.pid = pid
        self.address = 0
        self.held = False
        self.first_entry = self.entry_count = self.page_offset = 0

    def read(self, va: int, dst_address: int, n: int) -> int:
        """As ``Region.read``."""
        return self.move(va, dst_address, n, False)

    def write(self, va: int, src_address: int, n: int) -> int:
        """As ``Region.write``."""
        return self.move(va, src_address, n, True)

    def move(self, va: int, local: int, n: int, writing: bool) -> int:
        """Copy between the region and an address of this process; 0 or −errno."""
        moved: cython.longlong
        there: cython.ulonglong
        offset: cython.ulonglong = (va - self.va) & MASK64
        if not self.valid or (writing and not self.access & _LOCAL_WRITE):
            return -_EACCES
        if offset > self.length or n > self.length - offset:
            return -_EFAULT
        if self.tpt.stopped:
            return -_EAGAIN
        there = self.address + offset
        if self.held and not writing:
            copy(local, there, n)
            return 0
        while n:
            if writing:
                moved = write_process(self.pid, there, local, n)
            else:
                moved = read_process(self.pid, local, there, n)
            if moved <= 0:
                return -_EACCES
            there += moved
            local += moved
            n -= moved
        return 0

    def refresh(self) -> None:
        """Nothing: each access asks anew."""

    def dispose(self) -> None:
        """Nothing: it stands on no table entries."""


def register_on_demand(
    table: RegionTable, pid: int, pd: int, va: int, address: int, length: int, access: int, held: bool = False
) -> OnDemandRegion:
    """Register ``length`` bytes from ``address`` of process ``pid`` on (0: this one); requests name the
    first one ``va``, or 0 where ``access`` says ZERO_BASED.  ``held``: see above.

    Nothing need be mapped there.  Raises OSError, and changes nothing: EINVAL for a domain or rights that
    cannot be, a range past 2^64, or one that is held and another process's or has another right; ENOMEM where
    slots are used up.
    """
    check_rights(pd, access)
    check_range(va, address, length)
    if held and (pid or access != ON_DEMAND):
        raise OSError(errno.EINVAL, "held: of this process's own memory, which is read alone")
    slot, key = table.take_slot()
    region = OnDemandRegion(table, slot, pid or os.getpid())
    region.pd = pd
    region.access = access
    region.held = held
    _place(region, va, address, length)
    region.valid = True
    table.enter(region, key)
    return region


def check_range(va: int, address: int, length: int) -> None:
    """EINVAL for bytes, or names of them, that end past 2^64."""
    if length <= 0 or min(va, address) < 0 or max(va, address) + length > 1 << 64:
        raise OSError(
            errno.EINVAL, f"length = {length}: no region of so many bytes of {address:#x} at {va:#x}"
        )


def _place(region: OnDemandRegion, va: int, address: int, length: int) -> None:
    region.zero_based = bool(region.access & ZERO_BASED)
    region.va = 0 if region.zero_based else va
    region.address = address
    region.length = length


def reregister_on_demand(
    table: RegionTable, region: OnDemandRegion, pd: int, access: int, place: tuple[int, int, int] | None
) -> None:
    """Change domain, rights and, where it is given, ``place`` = ``(va, address, length)`` of a region.

    As `RegionTable.reregister`: another place gives another key; whatever changes, who resolved the region
    before has lost his rights.  Raises OSError EBUSY while memory windows are bound to it, else as
    `register_on_demand`; nothing changes then.
    """
    check_rights(pd, access)
    if region.held and access != ON_DEMAND:
        raise OSError(errno.EINVAL, "access: a region that is held is read alone")
    if place is None:
        if access & ZERO_BASED != region.access & ZERO_BASED:
            raise OSError(errno.EINVAL, "access: ZERO_BASED changes with the translation only")
        table.must_be_free(region)
    else:
        check_range(*place)
        table.give_new_key(region)
    region.generation += 1
    region.pd, region.access = pd, access
    if place is not None:
        _place(region, *place)


@functools.cache
def can_copy() -> bool:
    """Whether the operating system lets this process ask for such copies of its own memory."""
    source, target = bytearray(b"\x5a"), bytearray(1)
    moved = read_process(os.getpid(), address_of(target), address_of(source), 1)
    return moved == 1 and target == source
