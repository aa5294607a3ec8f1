"""Keys that are withdrawn while operations use them: memory windows, fast regions (IBTA vol. 1, 10.6.7).

A window is a key of its own for a part of one region, with rights of its own; binding it is a work request,
so that a right is given and withdrawn without a registration.  It has no bytes: every access is handed to
its region, so whatever happens to that one's pages is seen here as well.  A fast region is the other way
round: a key with room in the translation table, whose pages, range and rights come by a work request.

Both know who uses them.  An operation that has looked the key up and is not over stands in ``users``; a
withdrawal bumps the generation, by which each of them sees at its next packet that its key is dead, and
strikes out those users and no others.  So it costs O(users of that key), and when it returns none is left
and none can enter (the search of outstanding operations of a remote-key manager; `RemoteKeyModel`).
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import cython

from softhca.memory.bits import RIGHTS_MASK
from softhca.memory.regions import (
    LOCAL_WRITE,
    MW_BIND,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    ZERO_BASED,
    Region,
    check_rights,
    check_runs,
)

if TYPE_CHECKING:
    from softhca.memory.arenas import AddressMap
    from softhca.memory.regions import RegionTable

_Member = TypeVar("_Member", "Window", "FastRegion")

TYPE_1 = 1
TYPE_2 = 2
GRANTS = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | ZERO_BASED
"""What the access of a window can say; LOCAL_WRITE may stand with it and means nothing."""

_MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_TYPE_1 = cython.declare(cython.int, TYPE_1)
_TYPE_2 = cython.declare(cython.int, TYPE_2)
_GRANTS = cython.declare(cython.uint, GRANTS)
_CHANGES = cython.declare(cython.uint, REMOTE_WRITE | REMOTE_ATOMIC)
_REMOTE = cython.declare(cython.uint, REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC)
_LOCAL_WRITE = cython.declare(cython.uint, LOCAL_WRITE)
_REMOTE_ATOMIC = cython.declare(cython.uint, REMOTE_ATOMIC)
_MW_BIND = cython.declare(cython.uint, MW_BIND)
_ZERO_BASED = cython.declare(cython.uint, ZERO_BASED)
_EINVAL = cython.declare(cython.int, errno.EINVAL)
_EACCES = cython.declare(cython.int, errno.EACCES)
_EBUSY = cython.declare(cython.int, errno.EBUSY)
_EFAULT = cython.declare(cython.int, errno.EFAULT)


class TrackedRegion(Region):
    """What windows and fast regions have in common: ``number`` names it in work requests, ``users`` are the
    operations under way with its key.
    """

    users: dict[object, None]

    def __init__(self, table: RegionTable, slot: int, number: int, pd: int) -> None:
        Region.__init__(self, table, slot)
        self.tracked = True
        self.number = number
        self.pd = pd
        self.va = self.length = self.access = 0
        self.users = {}

    def begin_use(self, user: object) -> None:
        """An operation has looked the key up; ``user`` is whoever carries it out."""
        self.users[user] = None

    def end_use(self, user: object) -> None:
        """It is over; one whose key has been withdrawn is none any more."""
        self.users.pop(user, None)

    def withdraw(self) -> int:
        """The key gives no right any more; how many operations have lost it by that."""
        lost: cython.int = len(self.users)
        self.valid = False
        self.generation += 1
        self.users.clear()
        return lost


class Window(TrackedRegion):
    """A memory window of ``kind`` 1 or 2.  While it is bound (``valid``): to ``parent``, from ``parent_va``
    on, for the one ``queue_pair`` that bound it where it is of type 2.

    Its domain is that of its region and of the queue pair, for binding demands all three to be one (C10-72):
    hence a window of type 2 refuses other domains as well, as 2B has to and 2A may.
    """

    parent: Region

    def __init__(self, table: RegionTable, slot: int, number: int, pd: int, kind: int) -> None:
        TrackedRegion.__init__(self, table, slot, number, pd)
        self.window = True
        self.kind = kind
        self.parent = None
        self.parent_va = 0

    def read(self, va: int, dst_address: int, n: int) -> int:
        offset: cython.ulonglong = (va - self.va) & _MASK64
        if not self.valid:
            return -_EACCES
        if offset > self.length or n > self.length - offset:
            return -_EFAULT
        return self.parent.read((self.parent_va + offset) & _MASK64, dst_address, n)

    def write(self, va: int, src_address: int, n: int) -> int:
        offset: cython.ulonglong = (va - self.va) & _MASK64
        if not self.valid:
            return -_EACCES
        if offset > self.length or n > self.length - offset:
            return -_EFAULT
        return self.parent.write((self.parent_va + offset) & _MASK64, src_address, n)

    def compare_swap(self, va: int, compare: int, swap: int) -> int:
        old: cython.ulonglong
        if self.refuses_atomic(va):
            return 0
        old = self.parent.compare_swap((self.parent_va + va - self.va) & _MASK64, compare, swap)
        self.fault = self.parent.fault
        return old

    def fetch_add(self, va: int, add: int) -> int:
        old: cython.ulonglong
        if self.refuses_atomic(va):
            return 0
        old = self.parent.fetch_add((self.parent_va + va - self.va) & _MASK64, add)
        self.fault = self.parent.fault
        return old

    def put_word(self, va: int, src_address: int) -> int:
        if self.refuses_atomic(va):
            return self.fault
        return self.parent.put_word((self.parent_va + va - self.va) & _MASK64, src_address)

    def refuses_atomic(self, va: int) -> bool:
        """Check an atomic against the window alone, into ``fault``."""
        offset: cython.ulonglong = (va - self.va) & _MASK64
        self.fault = 0
        if not self.valid:
            self.fault = -_EACCES
        elif offset > self.length or self.length - offset < 8:
            self.fault = -_EFAULT
        return self.fault != 0

    def refresh(self) -> None:
        """Nothing: the bytes are the region's, which is asked each time."""

    def bind(self, parent: Region, key: int, va: int, length: int, access: int, queue_pair: int) -> None:
        """Give the checked rights; what the key gave before has been withdrawn."""
        self.key = key
        self.parent = parent
        self.parent_va = va
        self.zero_based = (access & _ZERO_BASED) != 0
        self.va = 0 if self.zero_based else va
        self.length = length
        self.access = access & _GRANTS
        self.queue_pair = queue_pair
        parent.bound_windows += 1
        self.valid = True

    def unbind(self) -> int:
        """Withdraw the key, and count the window no more at its region; how many operations lost it."""
        if not self.valid:
            return 0
        self.parent.bound_windows -= 1
        self.parent = None
        self.queue_pair = 0
        return self.withdraw()


class FastRegion(TrackedRegion):
    """Room for the pages of a region that work requests register (``max_pages`` table entries), and its key.

    The pages are looked up anew at each access, for nothing keeps a host from taking them away.
    """

    def __init__(self, table: RegionTable, slot: int, number: int, pd: int, max_pages: int) -> None:
        TrackedRegion.__init__(self, table, slot, number, pd)
        self.max_pages = max_pages
        self.first_entry = table.tpt.allocate(max_pages)
        self.entry_count = max_pages

    def refresh(self) -> None:
        """Nothing: the pages are looked up each time."""


class WindowTable:
    """The windows and fast regions of one adapter, and what work requests do with them.

    They live in the slots of ``regions`` and have its keys.  ``bind``, ``register`` and ``invalidate`` are
    asked by queue pairs: they return 0, or −errno and then nothing has changed.  ``keys_withdrawn`` counts
    operations that lost their key while they were under way.
    """

    # What a member is, its ``window`` says: a type check costs time where a work request asks for one.
    members: dict[int, Window | FastRegion]
    _bound: dict[int, dict[Window, None]]

    def __init__(self, regions: RegionTable) -> None:
        self.regions = regions
        self.members = {}
        self.keys_withdrawn = 0
        self._bound = {}

    def allocate(self, number: int, pd: int, kind: int) -> Window:
        """A window, not bound.  OSError: EINVAL for a type that does not exist, ENOMEM."""
        if kind not in (TYPE_1, TYPE_2):
            raise OSError(errno.EINVAL, f"type = {kind}: memory windows are of type 1 or 2")
        slot, key = self._take_slot()
        return self._enter(Window(self.regions, slot, number, pd, kind), key)

    def allocate_fast(self, number: int, pd: int, max_pages: int, address_map: AddressMap) -> FastRegion:
        """A fast region without pages.  OSError: EINVAL, ENOMEM."""
        slot, key = self._take_slot()
        try:
            region = FastRegion(self.regions, slot, number, pd, max_pages)
        except OSError:
            self.regions.give_slot(slot)
            raise
        region.address_map = address_map
        return self._enter(region, key)

    def _take_slot(self) -> tuple[int, int]:
        """A slot all of whose keys can be: 0 and all ones, which are none, lie in the first and the last."""
        while True:
            slot, key = self.regions.take_slot()
            if key >> 8 not in (0, 0xFFFFFF):
                return slot, key
            self.regions.give_slot(slot)

    def _enter(self, region: _Member, key: int) -> _Member:
        self.regions.enter(region, key)
        self.members[region.number] = region
        return region

    def deallocate(self, region: Window | FastRegion) -> None:
        """End a window or fast region; its key is dead at once.  OSError EBUSY while windows are bound to a
        fast region."""
        fast = not region.window
        if region.bound_windows:
            raise OSError(errno.EBUSY, f"mr: {region.bound_windows} memory windows are bound to the region")
        if fast:
            self.keys_withdrawn += region.withdraw()
            region.tpt.release(region.first_entry, region.entry_count)
        else:
            self._unbind(region)  # type: ignore[arg-type]
        self.regions.leave(region)
        del self.members[region.number]

    def forget_queue_pair(self, queue_pair: int) -> None:
        """A queue pair is destroyed: the type 2 windows that it has bound are unbound."""
        for window in list(self._bound.get(queue_pair, ())):
            self._unbind(window)

    def forget_region(self, region: Region) -> None:
        """A region goes with the host that made it: windows that others have bound to it are unbound."""
        if region.bound_windows:
            for each in list(self.members.values()):
                if each.window and each.parent is region:  # type: ignore[union-attr]
                    self._unbind(each)  # type: ignore[arg-type]

    def _unbind(self, window: Window) -> None:
        bound: dict[Window, None] = self._bound.get(window.queue_pair) if window.queue_pair else None
        if bound is not None:
            del bound[window]
            if not bound:
                del self._bound[window.queue_pair]
        self.keys_withdrawn += window.unbind()

    def bind(
        self, number: int, queue_pair: int, pd: int, low_byte: int, lkey: int, va: int, length: int,
        access: int,
    ) -> int:
        """Bind window ``number``: a work request of ``queue_pair``, whose domain is ``pd`` (10.6.7.2).

        Its new R_Key is its present one with ``low_byte``.  A window of type 1 must get another one than it
        has, and is moved when it is bound; with ``length`` 0 it is unbound.
        """
        window: Window
        region: Region
        key: cython.uint
        found = self.members.get(number)
        if found is None or not found.window:
            return -_EINVAL
        window = found  # type: ignore[assignment]
        if window.pd != pd:
            return -_EACCES  # C10-72
        if access & ~(_GRANTS | _LOCAL_WRITE):
            return -_EINVAL
        key = (window.key & 0xFFFFFF00) | (low_byte & 0xFF)
        if window.kind == _TYPE_2:
            if window.valid:
                return -_EBUSY  # o10-37.2.30
            if length == 0:
                return -_EINVAL  # o10-37.2.40
        elif key == window.key:
            return -_EINVAL
        elif access & _ZERO_BASED:
            return -_EINVAL  # o10-36.2.2
        elif length == 0:
            self._unbind(window)
            window.key = key
            return 0
        region = self.regions.live_key(lkey)
        if region is None or region.window:
            return -_EINVAL
        if region.pd != pd or not region.access & _MW_BIND:
            return -_EACCES  # C10-72, C10-73
        if access & _CHANGES and not region.access & _LOCAL_WRITE:
            return -_EACCES  # C10-74
        if not region.covers(va, length):
            return -_EFAULT  # C10-75
        self._unbind(window)
        if window.kind == _TYPE_2:
            window.bind(region, key, va, length, access, queue_pair)
            self._bound.setdefault(queue_pair, {})[window] = None
        else:
            window.bind(region, key, va, length, access, 0)
        return 0

    def register(
        self, number: int, pd: int, low_byte: int, va: int, length: int, access: int, page_offset: int,
        runs: Sequence[tuple[int, int]],
    ) -> int:
        """Give fast region ``number`` pages, range and rights; it must have none (10.6.3.2).

        ``runs`` are (first frame, count), checked as a registration's.
        """
        found = self.members.get(number)
        if found is None or found.window:
            return -_EINVAL
        fast: FastRegion = found  # type: ignore[assignment]
        return self._register(fast, pd, low_byte, va, length, access, page_offset, runs)

    def _register(
        self, found: FastRegion, pd: int, low_byte: int, va: int, length: int, access: int, page_offset: int,
        runs: Sequence[tuple[int, int]],
    ) -> int:
        region: FastRegion = found
        if region.pd != pd:
            return -_EACCES
        if region.valid:
            return -_EBUSY
        try:
            check_rights(pd, access)
            check_runs(region.max_pages, region.address_map, va, length, runs, page_offset)
        except OSError as refusal:
            return -(refusal.errno or errno.EINVAL)
        place = region.first_entry
        for frame, count in runs:
            self.regions.tpt.set_run(place, frame, count, access & RIGHTS_MASK, pd)
            place += count
        region.zero_based = bool(access & ZERO_BASED)
        region.va = 0 if region.zero_based else va
        region.length = length
        region.access = access
        region.page_offset = page_offset
        region.key = (region.key & 0xFFFFFF00) | (low_byte & 0xFF)
        region.generation += 1
        region.valid = True
        return 0

    def invalidate(self, key: int, queue_pair: int, pd: int, remote: bool) -> int:
        """Withdraw what ``key`` gives: LOCAL_INV of ``queue_pair``, or ``remote``: a SEND with Invalidate
        that came to it.

        It must be that of a window of type 2 that this queue pair has bound, or of a fast region of its
        domain to which no window is bound; a peer invalidates only what gives it rights.
        """
        region: Region = self.regions.live_key(key)
        window: Window
        fast: FastRegion
        if region is None or not region.tracked:
            return -_EINVAL
        if region.window:
            window = region  # type: ignore[assignment]
            if window.kind == _TYPE_1:
                return -_EINVAL  # o10-37.2.26
            if window.queue_pair != queue_pair:
                return -_EACCES
            self._unbind(window)
            return 0
        fast = region  # type: ignore[assignment]
        if fast.pd != pd or (remote and not fast.access & _REMOTE):
            return -_EACCES
        if fast.bound_windows:
            return -_EBUSY
        self.keys_withdrawn += fast.withdraw()
        return 0
