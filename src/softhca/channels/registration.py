"""Registered memory: leases of a program's buffers and of scratch memory, and a cache of numpy arrays.

A buffer is registered for one operation, and held so long.  The memory of a numpy array stays registered
until the array is gone or others have come, so an array that is sent again costs no registration; a cached
region gives no rights to peers.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Any

from softhca.channels.errors import ChannelError
from softhca.machine import primitives
from softhca.verbs import enums as e
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsError

LOCAL = int(e.IBV_ACCESS_LOCAL_WRITE)
WINDOWS = int(e.IBV_ACCESS_MW_BIND)
CACHED = 64
"""So many arrays stay registered."""
SCRATCH = 16
"""So many pieces of scratch memory are kept."""


def bytes_of(data: Any, writable: bool = False) -> memoryview:
    """The bytes of a buffer, without a copy.  TypeError: it has none, or they are not contiguous, or (where
    ``writable`` is asked for) cannot be written.
    """
    view = memoryview(data)
    if writable and view.readonly:
        raise TypeError(f"{type(data).__name__} cannot be written")
    if view.format == "B" and view.ndim == 1 and view.contiguous:
        return view
    if not view.c_contiguous:
        raise TypeError("the buffer is not contiguous")
    if not view.nbytes:
        return memoryview(b"")
    try:
        return view.cast("B")
    except (TypeError, ValueError):
        numpy = sys.modules.get("numpy")
        if numpy is None or not isinstance(data, numpy.ndarray):
            raise TypeError(f"a buffer of format {view.format!r} has no plain bytes") from None
    return memoryview(data.reshape(-1).view(numpy.uint8))  # numbers of the other byte order, records


class Lease:
    """``length`` registered bytes at ``address``, under ``lkey``, of the region ``mr``, until `release`."""

    __slots__ = ("_entry", "_hold", "address", "length", "lkey", "mr", "view")

    def __init__(self, mr: MR, view: memoryview, entry: _Entry | None, hold: Memory | None) -> None:
        self.mr = mr
        self.view = view
        self.address = primitives.address_of(view, False)
        self.length = view.nbytes
        self.lkey = mr.lkey
        self._entry = entry
        self._hold = hold

    def release(self) -> None:
        """The operation has ended.  May be called again, but for scratch memory, which others have then."""
        region = self.give_back()
        if region is not None:
            _close([region])

    def release_later(self, later: deque[Callable[[], object]]) -> None:
        """As `release`, of one who has a lock: what takes a command of the device is put into ``later``.

        What takes none is done before anybody can see that the operation has ended: whoever begins the next
        one then takes the same scratch memory, and registers none beside it.
        """
        region = self.give_back()
        if region is not None:
            later.append(partial(_close, [region]))

    def give_back(self) -> MR | None:
        """Let the memory go; the region that is nobody's then and is to be closed, if there is one."""
        hold, self._hold = self._hold, None
        return None if hold is None else hold.take_back(self, self._entry)


class _Entry:
    """An array in the cache."""

    __slots__ = ("mr", "owner", "users")

    def __init__(self, mr: MR, owner: weakref.ref[Any]) -> None:
        self.mr = mr
        self.owner = owner
        self.users = 0


class _Scratch(bytearray):
    """Memory of this package's own."""


class Memory:
    """The registered memory of one connection, in its protection domain.  Any thread may call any method."""

    def __init__(self, pd: PD, scratch_bytes: int) -> None:
        self._pd = pd
        self._lock = threading.RLock()
        self._cache: OrderedDict[tuple[int, int, bool], _Entry] = OrderedDict()
        self._scratch_bytes = scratch_bytes
        self._scratch: list[Lease] = []
        self.registrations = 0
        """How many buffers were registered."""

    def lease(self, data: Any, view: memoryview) -> Lease:
        """The memory of ``view``, the bytes of ``data``, for one operation.  ChannelError."""
        owner = _owner(data)
        if owner is None:
            return Lease(self._register(view, None), view, None, self)
        address, writable = primitives.address_of(view, False), not view.readonly
        key = (address, view.nbytes, writable)
        with self._lock:
            found = self._cache.get(key)
            if found is not None and found.owner() is owner:
                self._cache.move_to_end(key)
                found.users += 1
                return Lease(found.mr, view, found, self)
        made = _Entry(self._register(view, address), weakref.ref(owner))
        made.users = 1
        with self._lock:
            before = self._cache.pop(key, None)
            self._cache[key] = made
            unused = self._unused()
            if before is not None and not before.users:
                unused.append(before.mr)
        _close(unused)
        return Lease(made.mr, view, made, self)

    def scratch(self, length: int) -> Lease:
        """``length`` bytes of nobody else's, for one operation."""
        with self._lock:
            if length <= self._scratch_bytes and self._scratch:
                return self._scratch.pop()
        view = memoryview(_Scratch(max(length, self._scratch_bytes)))
        return Lease(self._register(view, None), view, None, self)

    def _register(self, view: memoryview, address: int | None) -> MR:
        access = WINDOWS if view.readonly else WINDOWS | LOCAL
        self.registrations += 1
        try:
            if address is not None:  # what is kept does not hold the array
                return MR(self._pd, view.nbytes, access, address)
            return MR(self._pd, access=access, buffer=view)
        except PyverbsError as error:
            raise ChannelError(f"{view.nbytes} bytes cannot be registered: {error}") from error

    def _unused(self) -> list[MR]:
        """With the lock held: take out what nobody uses of arrays that are gone, and of too many."""
        found = []
        for key, entry in list(self._cache.items()):
            if not entry.users and (entry.owner() is None or len(self._cache) > CACHED):
                found.append(self._cache.pop(key).mr)
        return found

    def take_back(self, lease: Lease, entry: _Entry | None) -> MR | None:
        """`Lease.give_back`."""
        with self._lock:
            if entry is not None:
                entry.users -= 1
                if entry.users or entry in self._cache.values():
                    return None
            elif lease.length == self._scratch_bytes and len(self._scratch) < SCRATCH and _is_own(lease):
                lease._hold = self
                self._scratch.append(lease)
                return None
        return lease.mr

    def abandon(self) -> None:
        """In a forked child: it is the parent's, of which a thread may have had the lock."""
        self._lock = threading.RLock()

    def close(self) -> None:
        """Deregister what is kept; leases that are out end with the domain."""
        with self._lock:
            regions = [each.mr for each in self._cache.values()] + [each.mr for each in self._scratch]
            self._cache.clear()
            self._scratch.clear()
        _close(regions)


def _close(regions: list[MR]) -> None:
    for each in regions:
        with contextlib.suppress(PyverbsError):
            each.close()


def _is_own(lease: Lease) -> bool:
    return type(lease.view.obj) is _Scratch


def _owner(data: Any) -> Any:
    """The numpy array whose memory ``data`` is; None where it is another's, which could move or end it."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(data, numpy.ndarray):
        return None
    while isinstance(data.base, numpy.ndarray):
        data = data.base
    return data if data.base is None and data.flags.owndata else None
