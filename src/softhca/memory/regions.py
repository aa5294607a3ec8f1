"""Memory regions: a key that gives a protection domain rights to a range of bytes (IBTA vol. 1, 10.6.3).

A region's pages stand in the translation table; its key (L_Key and R_Key are one number) stands for its
slot here. Whoever has a work request or a packet in hand asks ``RegionTable.find`` once and then moves
bytes by the region's ``read``, ``write`` and atomics.

A key is a permuted index of 24 bits and a low byte.  Each registration, and each one that gets another
translation, takes the next slot and with it a new index (``keys.py``), so a stale key finds nothing.  The
low byte is random, or the consumer's where the standard gives it to him (fast registration, memory windows:
``windows.py``).
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import cython

from softhca.machine.primitives import (
    address_of,
    atomic_add64,
    atomic_cas64,
    copy,
    load64,
    read_process,
    store64,
    write_process,
)
from softhca.memory import bits
from softhca.memory.keys import KeySequence

if TYPE_CHECKING:
    import random

    from softhca.memory.arenas import AddressMap
    from softhca.memory.tpt import TranslationTable

    class Sharing(Protocol):
        """Who publishes the regions to peers on the same host."""

        def grant(self, region: Region) -> object: ...
        def withdraw(self, region: Region) -> object: ...

Run = tuple[int, int]
"""First frame and number of frames."""
Frames = Sequence[int | Run]
Translation = tuple["AddressMap", int, int, Frames, int, bool]

LOCAL_WRITE = 1
REMOTE_WRITE = 2
REMOTE_READ = 4
REMOTE_ATOMIC = 8
MW_BIND = 16
ZERO_BASED = 32
ON_DEMAND = 64
FLUSH_GLOBAL = 256
FLUSH_PERSISTENT = 512
"""No region has it: its memory is as lasting as the adapter's process."""
ACCESS_MASK = bits.RIGHTS_MASK | FLUSH_GLOBAL
REFUSED_KEY = 1
REFUSED_PD = 2
REFUSED_RIGHTS = 3
REFUSED_RANGE = 4
DEFAULT_MAX_REGIONS = 1 << 20

MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_LOCAL_WRITE = cython.declare(cython.uint, LOCAL_WRITE)
_REMOTE = cython.declare(cython.uint, REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC)
_KEY = cython.declare(cython.int, REFUSED_KEY)
_PD = cython.declare(cython.int, REFUSED_PD)
_RIGHTS = cython.declare(cython.int, REFUSED_RIGHTS)
_RANGE = cython.declare(cython.int, REFUSED_RANGE)
_NONE = cython.declare(cython.int, 0)
EFAULT = cython.declare(cython.int, errno.EFAULT)
EACCES = cython.declare(cython.int, errno.EACCES)
EAGAIN = cython.declare(cython.int, errno.EAGAIN)


class Region:
    """One registration.  Made by ``RegionTable.register`` alone.

    ``va`` … ``va + length`` is the range that requests name (from 0 where ``zero_based``).  ``generation``
    counts how often what it grants has changed: who resolved a request before must not go on.
    ``bound_windows`` counts memory windows: while it is not 0 the region stays as it is.  ``fault`` is 0 or
    −errno of the last atomic operation.  ``tracked``: it keeps its users (`windows.TrackedRegion`);
    ``window``: it is a memory window, which may be for one ``queue_pair`` alone (0: for every one).
    """

    key: int
    pd: int
    access: int
    va: int
    length: int
    zero_based: bool
    page_offset: int
    first_entry: int
    entry_count: int
    address_map: AddressMap

    def __init__(self, table: RegionTable, slot: int) -> None:
        self.slot = slot
        self.tpt = table.tpt
        self.scratch = table.scratch_address
        self.valid = self.tracked = self.window = False
        self.generation = self.bound_windows = self.queue_pair = 0
        self.direct_address = self.direct_pid = 0
        self.fault = 0
        self.paged = False

    def dispose(self) -> None:
        """Give back what the region stands on; its key is dead already."""
        self.tpt.release(self.first_entry, self.entry_count)

    def covers(self, va: int, n: int) -> bool:
        """Whether ``n`` bytes from ``va`` lie in the region (no sum that could wrap)."""
        offset: cython.ulonglong = (va - self.va) & MASK64
        return offset <= self.length and n <= self.length - offset

    def read(self, va: int, dst_address: int, n: int) -> int:
        """Copy ``n`` bytes from the region to an address of this process; 0 or −errno.

        EACCES: the region is dead, or a page's entry belongs to another domain.  EFAULT: out of range, or a
        page that is not there.  EAGAIN: the memory is *held*, nothing was copied, and the same may be asked
        again.  Rights are ``find``'s matter.
        """
        offset: cython.ulonglong = (va - self.va) & MASK64
        if not self.valid:
            return -EACCES
        if offset > self.length or n > self.length - offset:
            return -EFAULT
        if self.tpt.stopped:
            return -EAGAIN
        if self.direct_address and self.direct_pid == 0:
            copy(dst_address, self.direct_address + offset, n)
            return 0
        return self.walk(offset, dst_address, n, False)

    def write(self, va: int, src_address: int, n: int) -> int:
        """Copy ``n`` bytes from an address of this process into the region; 0 or −errno as ``read``.

        EACCES also where the region, or a page's entry, has no LOCAL_WRITE.
        """
        offset: cython.ulonglong = (va - self.va) & MASK64
        if not self.valid or not self.access & _LOCAL_WRITE:
            return -EACCES
        if offset > self.length or n > self.length - offset:
            return -EFAULT
        if self.tpt.stopped:
            return -EAGAIN
        if self.direct_address and self.direct_pid == 0:
            copy(self.direct_address + offset, src_address, n)
            return 0
        return self.walk(offset, src_address, n, True)

    def walk(self, offset: int, local: int, n: int, writing: bool) -> int:
        """Move bytes page by page through the translation table; 0 or −errno, earlier pages stay moved."""
        piece: cython.ulonglong
        entry: cython.ulonglong
        address: cython.ulonglong
        frame: cython.ulonglong
        within: cython.ulonglong
        position: cython.ulonglong
        result: cython.int
        if self.direct_address:
            return _move(self.direct_pid, self.direct_address + offset, local, n, writing)
        position = self.page_offset + offset
        while n:
            within = position & bits.OFFSET_MASK
            piece = bits.PAGE_BYTES - within
            if piece > n:
                piece = n
            entry = self.tpt.entries[self.first_entry + (position >> bits.PAGE_SHIFT)]
            if not entry & bits.VALID:
                return -EFAULT
            if ((entry >> bits.PD_SHIFT) & bits.PD_MASK) != self.pd or (
                writing and not (entry >> bits.RIGHTS_SHIFT) & _LOCAL_WRITE
            ):
                return -EACCES
            frame = entry & bits.FRAME_MASK
            address = self.address_map.address(frame)
            if not address:
                return -EFAULT
            result = _move(self.address_map.pid(frame), address + within, local, piece, writing)
            if result:
                return result
            local += piece
            position += piece
            n -= piece
        return 0

    def compare_swap(self, va: int, compare: int, swap: int) -> int:
        """Put ``swap`` into the 8 bytes at ``va`` if they equal ``compare``; returns what was there.

        Values are in host byte order.  ``fault`` says whether it worked; memory is untouched where it did
        not.
        """
        old: cython.ulonglong
        place: cython.ulonglong = self.atomic_place(va)
        if self.fault:
            return 0
        if place:
            return atomic_cas64(place, compare, swap)
        self.fault = self.read(va, self.scratch, 8)
        old = load64(self.scratch)
        if self.fault == 0 and old == compare:
            store64(self.scratch, swap)
            self.fault = self.write(va, self.scratch, 8)
        return 0 if self.fault else old

    def fetch_add(self, va: int, add: int) -> int:
        """Add to the 8 bytes at ``va``, modulo 2^64; returns what was there.  Otherwise as
        ``compare_swap``."""
        old: cython.ulonglong
        place: cython.ulonglong = self.atomic_place(va)
        if self.fault:
            return 0
        if place:
            return atomic_add64(place, add)
        self.fault = self.read(va, self.scratch, 8)
        old = load64(self.scratch)
        if self.fault == 0:
            store64(self.scratch, (old + add) & MASK64)
            self.fault = self.write(va, self.scratch, 8)
        return 0 if self.fault else old

    def put_word(self, va: int, src_address: int) -> int:
        """Copy the 8 bytes at an address of this process to ``va``, in one step where the machine can do that
        (`atomic_place`); 0 or −errno as ``write``."""
        place: cython.ulonglong = self.atomic_place(va)
        if self.fault:
            return self.fault
        if not place:
            return self.write(va, src_address, 8)
        copy(self.scratch, src_address, 8)
        store64(place, load64(self.scratch))
        return 0

    def atomic_place(self, va: int) -> int:
        """Check an atomic's range into ``fault``; its address where the machine can do it, else 0.

        Another process's memory and bytes that are not aligned in this one are read and written instead: the
        adapter alone does so, hence atomically with respect to its own operations, as the standard asks at
        least.
        """
        place: cython.ulonglong
        offset: cython.ulonglong = (va - self.va) & MASK64
        self.fault = 0
        if not self.valid or not self.access & _LOCAL_WRITE:
            self.fault = -EACCES
        elif offset > self.length or self.length - offset < 8:
            self.fault = -EFAULT
        elif self.tpt.stopped:
            self.fault = -EAGAIN
        elif self.direct_address and self.direct_pid == 0:
            place = self.direct_address + offset
            if place & 7 == 0:
                return place
        return 0

    def refresh(self) -> None:
        """Look again whether the region's bytes lie in one piece, after its entries or the address map
        changed.

        A page that is missing, invalid or elsewhere turns every access into a walk through the table.
        """
        base: cython.ulonglong = 0
        expected: cython.ulonglong = 0
        here: cython.ulonglong
        owner: cython.uint = 0
        i: cython.uint
        entry: cython.ulonglong
        self.direct_address = self.direct_pid = 0
        for i in range(self.entry_count):
            entry = self.tpt.entries[self.first_entry + i]
            here = self.address_map.address(entry & bits.FRAME_MASK)
            if not entry & bits.VALID or not here:
                return
            if i == 0:
                base = here
                owner = self.address_map.pid(entry & bits.FRAME_MASK)
            elif here != expected or self.address_map.pid(entry & bits.FRAME_MASK) != owner:
                return
            expected = here + bits.PAGE_BYTES
        self.direct_address = base + self.page_offset
        self.direct_pid = owner


def _move(pid: int, address: int, local: int, n: int, writing: bool) -> int:
    """Copy between an address of ``pid`` (0: this process) and ``local``; 0 or −errno."""
    moved: cython.longlong
    if pid == 0:
        if writing:
            copy(address, local, n)
        else:
            copy(local, address, n)
        return 0
    while n:
        moved = write_process(pid, address, local, n) if writing else read_process(pid, local, address, n)
        if moved < 0:
            return moved
        if moved == 0 or moved > n:
            return -EFAULT
        address += moved
        local += moved
        n -= moved
    return 0


class RegionTable:
    """The regions of one adapter.

    ``generator`` (``random.Random``) draws the keys' permutation and low bytes.  ``refusal`` says why the
    last ``find`` gave nothing.  ``sharing``, where peers on this host may reach memory themselves, is
    called to ``grant(region)`` and to ``withdraw(region)``.  ``half_bits`` as `KeySequence`.
    """

    _places: list[Region]
    _last: Region
    sharing: Sharing

    def __init__(
        self, tpt: TranslationTable, generator: random.Random, max_regions: int = DEFAULT_MAX_REGIONS,
        half_bits: int = 12,
    ) -> None:
        self.sequence = KeySequence(generator, half_bits)
        if not 0 < max_regions <= self.sequence.capacity:
            raise OSError(errno.EINVAL, f"{max_regions} regions cannot be")
        self.tpt = tpt
        self.keys = self.sequence.permutation
        self.max_regions = max_regions
        self.live = 0
        self._places = [None] * self.sequence.places
        self._place_mask = self.sequence.place_mask
        self._last = None
        self.refusal = 0
        self.sharing = None
        self._scratch = bytearray(16)
        self.scratch_address = (address_of(self._scratch) + 7) & ~7

    def __len__(self) -> int:
        return self.live

    def find(self, key: int, pd: int, va: int, length: int, access: int, queue_pair: int = 0) -> Region:
        """The live region of ``key`` if ``pd`` may do ``access`` to ``length`` bytes at ``va``, else None.

        The checks stand in the order of the refusals: REFUSED_KEY, REFUSED_PD, REFUSED_RIGHTS, REFUSED_RANGE.
        A zero-length request is checked as any other; who need not check it does not ask.  ``queue_pair``
        is the one that a peer's request came to: a window may be for that one alone.  Without a remote
        right in ``access`` the key is an L_Key, which a window has not.
        """
        region: Region = self.live_key(key)
        offset: cython.ulonglong
        if region is None or (region.window and not access & _REMOTE):
            self.refusal = _KEY
            return None
        if region.pd != pd or (region.queue_pair and region.queue_pair != queue_pair):
            self.refusal = _PD
            return None
        if (region.access & access) != access:
            self.refusal = _RIGHTS
            return None
        offset = (va - region.va) & MASK64
        if offset > region.length or length > region.length - offset:
            self.refusal = _RANGE
            return None
        self.refusal = _NONE
        return region

    def live_key(self, key: int) -> Region:
        """The region or window of ``key``, whoever may use it; None where the key is dead or no one's."""
        region: Region = self._last
        place: cython.uint
        if region is None or region.key != key:
            place = self.keys.slot(key >> 8) & self._place_mask
            region = self._last = self._places[place]
        if region is None or region.key != key or not region.valid:
            return None
        if region.paged:
            # what a pageable memory grants is its owner's, who may be another process
            region.refresh()
            if not region.valid:
                return None
        return region

    def take_slot(self) -> tuple[int, int]:
        """The next slot and its new key.  OSError ENOMEM where there are ``max_regions``."""
        if self.sequence.live >= self.max_regions:
            raise OSError(errno.ENOMEM, f"max_mr, max_mw: {self.max_regions} regions and windows are there")
        slot, key = self.sequence.take()
        if self._place_mask != self.sequence.place_mask:
            self._spread()
        return slot, key

    def _spread(self) -> None:
        """The places have become more: each live slot has one of its own there, too."""
        before = self._places
        self._place_mask = self.sequence.place_mask
        self._places = [None] * self.sequence.places
        for region in before:
            if region is not None:
                self._places[region.slot & self._place_mask] = region

    def give_slot(self, slot: int) -> None:
        """Give a slot back that nothing has entered."""
        self.sequence.give(slot)

    def enter(self, region: Region, key: int) -> None:
        """Let a region or window made for the slot that `take_slot` gave have its place, with ``key``."""
        region.key = key
        self._places[region.slot & self._place_mask] = region
        self.live += 1

    def leave(self, region: Region) -> None:
        """Give the slot of a region or window back: its key is dead at once."""
        region.valid = False
        region.direct_address = 0
        region.generation += 1
        self._vacate(region)
        self.live -= 1

    def _vacate(self, region: Region) -> None:
        """Nobody finds a region by its key any more."""
        self._places[region.slot & self._place_mask] = None
        self._last = None
        self.sequence.give(region.slot)

    def register(
        self, address_map: AddressMap, pd: int, va: int, length: int, access: int, frames: Frames,
        page_offset: int, zero_based: bool = False,
    ) -> Region:
        """Register ``length`` bytes that begin ``page_offset`` bytes into the first of ``frames``.

        ``frames`` lists frame numbers or runs ``(first frame, count)``; together exactly the pages that the
        range touches.  Requests name the bytes from ``va`` on, from 0 where ``zero_based`` (or ``access``
        says so). Raises OSError, and changes nothing: EINVAL for a length of 0, a range past 2^64, access
        bits that do not exist or REMOTE_WRITE / REMOTE_ATOMIC without LOCAL_WRITE, frames of another count;
        EFAULT for a frame that is not mapped here; ENOMEM where table entries or slots are used up.
        """
        runs = _checked(self.tpt.capacity, address_map, pd, va, length, access, frames, page_offset)
        slot, key = self.take_slot()
        try:
            first = self._translate(runs, access, pd)
        except OSError:
            self.give_slot(slot)
            raise
        region = Region(self, slot)
        self._install(region, address_map, pd, va, length, access, runs, first, page_offset, zero_based)
        region.valid = True
        self.enter(region, key)
        if self.sharing is not None:
            self.sharing.grant(region)
        return region

    def deregister(self, region: Region) -> None:
        """End a registration: its key is dead at once.  OSError EINVAL where it is dead already, EBUSY
        while memory windows are bound to it (nothing changes then)."""
        self.must_be_free(region)
        if self.sharing is not None:
            self.sharing.withdraw(region)
        self.leave(region)
        region.dispose()

    def reregister(
        self, region: Region, pd: int | None = None, access: int | None = None,
        translation: Translation | None = None,
    ) -> Region:
        """Change a region's domain, access or ``translation = (address_map, va, length, frames,
        page_offset, zero_based)``.

        What is None stays.  A new translation gives a new slot and key (in ``region.key``), so that a peer
        that still holds the old one cannot reach the new memory; otherwise the key stays.  Whatever changes,
        requests that were resolved before lose their rights (``generation``).  Errors as ``register`` and
        ``deregister``; nothing changes then, and the old registration stays in force.
        """
        self.must_be_free(region)
        if region.paged:
            raise OSError(
                errno.EINVAL, "lkey: what a pageable memory's region grants is its owner's to change"
            )
        if self.sharing is None:
            return self._reregister(region, pd, access, translation)
        self.sharing.withdraw(region)
        try:
            return self._reregister(region, pd, access, translation)
        finally:
            self.sharing.grant(region)

    def _reregister(
        self, region: Region, pd: int | None, access: int | None, translation: Translation | None
    ) -> Region:
        """Nobody but this adapter can reach the region now."""
        pd = region.pd if pd is None else pd
        access = region.access if access is None else access
        if translation is None:
            check_rights(pd, access)
            if access & ZERO_BASED != region.access & ZERO_BASED:
                raise OSError(errno.EINVAL, "access: ZERO_BASED changes with the translation only")
            self.tpt.protect_run(
                region.first_entry, region.entry_count, access & bits.RIGHTS_MASK, pd
            )
            if (pd, access) != (region.pd, region.access):
                region.generation += 1
            region.pd, region.access = pd, access
            return region
        address_map, va, length, frames, page_offset, zero_based = translation
        runs = _checked(self.tpt.capacity, address_map, pd, va, length, access, frames, page_offset)
        first = self._translate(runs, access, pd)
        self.tpt.release(region.first_entry, region.entry_count)
        region.generation += 1
        self.give_new_key(region)
        self._install(region, address_map, pd, va, length, access, runs, first, page_offset, zero_based)
        return region

    def give_new_key(self, region: Region) -> None:
        """The region has another slot and key; the old one is dead.  OSError as `must_be_free`."""
        self.must_be_free(region)
        self._vacate(region)
        region.slot, region.key = self.take_slot()
        self._places[region.slot & self._place_mask] = region

    def _install(
        self, region: Region, address_map: AddressMap, pd: int, va: int, length: int, access: int,
        runs: Sequence[Run], first: int, page_offset: int, zero_based: bool,
    ) -> None:
        """Give a region its checked attributes."""
        region.zero_based = bool(zero_based or access & ZERO_BASED)
        region.address_map = address_map
        region.pd = pd
        region.va = 0 if region.zero_based else va
        region.length = length
        region.access = access | (ZERO_BASED if region.zero_based else 0)
        region.first_entry = first
        region.entry_count = sum([count for _, count in runs])
        region.page_offset = page_offset
        region.refresh()

    def _translate(self, runs: Sequence[Run], access: int, pd: int) -> int:
        """New table entries for runs of frames; the first one's number."""
        first = self.tpt.allocate(sum([count for _, count in runs]))
        place = first
        for frame, count in runs:
            self.tpt.set_run(place, frame, count, access & bits.RIGHTS_MASK, pd)
            place += count
        return first

    def must_be_free(self, region: Region) -> None:
        """Refuse a dead or foreign region with EINVAL, one with bound windows with EBUSY."""
        if self._places[region.slot & self._place_mask] is not region:
            raise OSError(errno.EINVAL, "lkey: the region is not registered here")
        if region.bound_windows:
            raise OSError(errno.EBUSY, f"lkey: {region.bound_windows} memory windows are bound to the region")


def check_rights(pd: int, access: int) -> None:
    """EINVAL for a domain or access bits that cannot be (remote change of memory needs local write)."""
    if not 0 < pd <= bits.PD_MASK:
        raise OSError(errno.EINVAL, f"pd = {pd}: there is no such PD")
    if access & ~ACCESS_MASK:
        raise OSError(errno.EINVAL, f"access: there are no rights {access & ~ACCESS_MASK:#x}")
    if access & (REMOTE_WRITE | REMOTE_ATOMIC) and not access & LOCAL_WRITE:
        raise OSError(errno.EINVAL, "access: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE (10.6.3.1)")


def _checked(
    capacity: int, address_map: AddressMap, pd: int, va: int, length: int, access: int, frames: Frames,
    page_offset: int,
) -> list[Run]:
    """Check a registration whole before anything is changed; its frames as runs."""
    check_rights(pd, access)
    runs = [frame if isinstance(frame, tuple) else (frame, 1) for frame in frames]
    check_runs(capacity, address_map, va, length, runs, page_offset)
    return runs


def check_runs(
    capacity: int, address_map: AddressMap, va: int, length: int, runs: Sequence[Run],
    page_offset: int,
) -> None:
    """EINVAL for a range that cannot be or runs of frames that are not its pages; ENOMEM for more than
    ``capacity`` of them, EFAULT for one that is not mapped here."""
    if length <= 0 or va < 0 or va + length > 1 << 64 or not 0 <= page_offset < bits.PAGE_BYTES:
        raise OSError(
            errno.EINVAL,
            f"length = {length}: no region of so many bytes at {va:#x}, {page_offset} into its page",
        )
    if any([frame < 0 or count <= 0 or frame + count > bits.FRAME_MASK + 1 for frame, count in runs]):
        raise OSError(errno.EINVAL, "frames: a frame number has 32 bits")
    if sum([count for _, count in runs]) != -(-(page_offset + length) // bits.PAGE_BYTES):
        raise OSError(
            errno.EINVAL, f"frames: they are not those of {length} bytes at page offset {page_offset}"
        )
    if sum([count for _, count in runs]) > capacity:
        # Before the walk below, whose length another process could choose otherwise.
        raise OSError(errno.ENOMEM, f"frames: there is room for only {capacity} table entries")
    for frame, count in runs:
        last = frame + count - 1
        for slot in range(frame // bits.SLOT_PAGES, last // bits.SLOT_PAGES + 1):
            # A slot's pages are mapped from its first on: the run's last page in the slot decides.
            page = min(last, slot * bits.SLOT_PAGES + bits.SLOT_PAGES - 1)
            if not address_map.address(page):
                raise OSError(errno.EFAULT, f"frames: frame {page} is not mapped")
