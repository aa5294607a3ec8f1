"""The memory processing module: the pool and its mappings, page lists of what is sent.

A *pool* is a run of pages on a memfd (the device's host memory, of which a part can be shared with peers on
this host) and is registered for the peer's RDMA WRITEs; behind it lies record B.  Where the system gives huge
pages to such memory it is asked for them.  A `PageBuffer` is memory of the application into which pool pages
can be mapped; a lent view is memory of the pool itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, NoReturn

from softhca.driver.errors import DriverError
from softhca.machine import deferred_signals, primitives
from softhca.machine.signals import raised_by_handler, suppressed
from softhca.memory.bits import PAGE_BYTES
from softhca.sockets.protocol import BEHIND_BYTES, Offer
from softhca.verbs import enums as e
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsError

_LOCAL = int(e.IBV_ACCESS_LOCAL_WRITE)
_REMOTE = _LOCAL | int(e.IBV_ACCESS_REMOTE_WRITE)
_ON_DEMAND = int(e.IBV_ACCESS_ON_DEMAND)


class PoolError(OSError):
    """ "create buffer pool failed": ENOBUFS."""

    def __init__(self, why: object) -> None:
        super().__init__(errno.ENOBUFS, f"create buffer pool failed: {why}")


class Pool:
    """``length`` bytes (whole pages) into which a peer writes, and what it says behind them.  Of datagrams
    the adapter alone writes into them (``remote`` is false), and ``behind`` them is more.

    `PoolError` where they cannot be had.  After `close` no peer writes; the memory stays until every lent
    view is released, and every page that is mapped is mapped no more.
    """

    def __init__(self, pd: PD, length: int, behind: int = BEHIND_BYTES, remote: bool = True) -> None:
        self.length = length
        access = _REMOTE if remote else _LOCAL
        self._closed = False
        self._lent = 0
        self._lock = threading.RLock()
        driver = pd.ctx.driver
        try:
            self._memory = driver.alloc_host_memory(length - (-behind // PAGE_BYTES) * PAGE_BYTES, access)
        except DriverError as error:
            raise PoolError(error) from None
        self.address = self._memory.address
        try:
            primitives.fill(self.address + length, 0, behind)
            self._region = MR(pd, length + behind, access, address=self.address)
        except (DriverError, PyverbsError, OSError) as error:
            self._memory.free()
            if raised_by_handler(error):
                raise
            raise PoolError(error) from None
        self._file = driver.file_of(self.address, length)

    def offer(self, port: int = 0, alone: bool = False) -> Offer:
        """What the peer needs."""
        return Offer(self.address, self.length, self._region.rkey, port, alone)

    @property
    def lkey(self) -> int:
        """Of the pool, and what is behind it."""
        return self._region.lkey

    def lend(self, offset: int, length: int, released: Callable[[], object]) -> memoryview:
        """A view of pool memory; ``released`` is called once it and all views made of it are released."""
        with deferred_signals.section():
            with self._lock:
                self._lent += 1
            array = _array_type(length).from_address(self.address + offset)
            array.returned = partial(self.returned, released)
        return memoryview(array).cast("B")

    def returned(self, released: Callable[[], object]) -> None:
        """What was lent, or mapped, is not any more; ``released`` is called."""
        released()
        with self._lock:
            self._lent -= 1
            last = self._closed and not self._lent
        if last:
            self._memory.free()

    def map(self, offset: int, length: int, address: int) -> int:
        """Map pages of the pool at ``address`` in place of what is there, until `returned`; 0 or −errno."""
        if self._file is None:
            return -errno.EOPNOTSUPP
        fd, start = self._file
        with self._lock:
            if self._closed:
                return -errno.EBADF
            result = primitives.map_pages(address, length, fd, start + offset)
            self._lent += not result
        return result

    def copy_mapped(self, offset: int, length: int, address: int) -> int:
        """Have copies of the pool's pages where `map` has put those: the kernel makes them page by page, so
        that no write of another thread is lost.  0 or −errno, and then the pool's pages may be there still.
        """
        if self._file is None:
            return -errno.EOPNOTSUPP
        fd, start = self._file
        with self._lock:
            if self._closed:
                return -errno.EBADF
            result = primitives.map_private(address, length, fd, start + offset)
            for place in range(address, address + length if not result else address, PAGE_BYTES):
                primitives.atomic_add64(place, 0)  # a write: the kernel copies the page
        return result

    def close(self) -> None:
        """Withdraw the peer's right; may be called again."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            last = not self._lent
        with contextlib.suppress(PyverbsError, DriverError):
            self._region.close()
        if last:
            self._memory.free()

    def abandon(self) -> None:
        """In a forked child: the memory is the parent's."""
        self._lock = threading.RLock()
        self._closed = True
        self._lent += 1


_TYPES: dict[int, Any] = {}


def _array_type(length: int) -> Any:
    """A ctypes array that calls its ``returned`` when it goes; few lengths are kept."""
    found = _TYPES.get(length)
    if found is None:
        if len(_TYPES) >= 64:
            _TYPES.clear()
        found = _TYPES[length] = type("LentBytes", (ctypes.c_ubyte * length,), {"__del__": _GIVE_BACK})
    return found


def _give_back(lent: Any, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
    # Held, as is_finalizing below: as the interpreter ends, names of this module may have gone.
    returned = getattr(lent, "returned", None)
    if returned is not None and not is_finalizing():
        returned()


_GIVE_BACK = deferred_signals.finalizer(_give_back)


class _Mappings:
    """What pool pages are mapped into a buffer at ``address``, whose own pages are those of ``fd``."""

    def __init__(self, fd: int, address: int) -> None:
        self.fd = fd
        self.address = address
        self.lock = threading.RLock()
        self.parts: dict[int, tuple[int, Callable[[], object]]] = {}

    def settle(self, offset: int, keep: bool = True) -> None:
        """Have the buffer's own pages again where pages of a pool are mapped at ``offset``, and give those
        back; ``keep`` what is in them.  OSError where the system has no room for that: they stay mapped then,
        and the sender does not get theirs.
        """
        with deferred_signals.section():
            with self.lock:
                found = self.parts.get(offset)
                if found is None:
                    return
                length, released = found
                place = self.address + offset
                if keep:
                    os.pwrite(self.fd, primitives.bytes_at(place, length), offset)
                result = primitives.map_pages(place, length, self.fd, offset)
                if result:
                    why = f"a receive buffer cannot have its own pages again: {os.strerror(-result)}"
                    raise OSError(-result, why)
                del self.parts[offset]
            released()

    def copy(self, offset: int, whose: Callable[[], object], copied: Callable[[], int]) -> bool:
        """Give the pages back that are mapped at ``offset`` and that ``whose`` releases, once ``copied`` has
        put copies there; whether it has (it returns 0 or −errno).
        """
        with deferred_signals.section():
            with self.lock:
                found = self.parts.get(offset)
                if found is None or found[1] is not whose or copied():
                    return False
                del self.parts[offset]
            whose()
        return True

    def leave(self, offset: int) -> None:
        """`settle` as the socket ends: where that cannot be, the pages stay mapped, and the pool's memory is
        nobody else's, until the buffer is released or gone.
        """
        with suppressed(OSError):
            self.settle(offset)

    def drop(self) -> None:
        """The buffer is gone: give everything back."""
        with self.lock:
            parts, self.parts = self.parts, {}
        for _, released in parts.values():
            released()
        os.close(self.fd)


class PageBuffer(mmap.mmap):
    """``length`` bytes of page-aligned memory into which a receive may map the pool's pages instead of
    copying: give it, or a view of it, to ``socket.recv_into``.

    Mapped pages are the buffer's until the next receive into the same place, `release`, or the end of the
    socket; until then the sender does not get their room.  Where they hold up a quarter of the pool that was
    received behind them, the buffer gets copies instead.  Only a receive changes what is in the buffer, and
    only in the view that it is given, but there maybe all of it.
    OSError ENOMEM, EMFILE.
    """

    _mappings: _Mappings

    def __new__(cls, length: int) -> PageBuffer:
        length = -(-length // PAGE_BYTES) * PAGE_BYTES
        with deferred_signals.section():  # whose descriptor it is nobody else knows
            fd = os.memfd_create("softhca-buffer", os.MFD_CLOEXEC)
            try:
                os.ftruncate(fd, length)
                made = super().__new__(cls, fd, length)
            except BaseException:
                os.close(fd)
                raise
            made._mappings = _Mappings(fd, primitives.address_of(made))
        return made

    def __init__(self, length: int) -> None:
        """See the class."""

    def offset_of(self, address: int) -> int:
        """Where an address lies in it."""
        return address - self._mappings.address

    def mapped(self, offset: int, length: int, released: Callable[[], object]) -> Callable[[], object]:
        """Pages of a pool have been mapped there, in place of others of the same length or of none;
        ``released`` is called once, when they are not any more.  What settles it from outside; it does not
        keep the buffer.
        """
        mappings = self._mappings
        with mappings.lock:
            former = mappings.parts.get(offset)
            mappings.parts[offset] = (length, released)
        if former is not None:
            former[1]()
        return lambda: mappings.leave(offset)

    def copy_mapped(
        self, offset: int, released: Callable[[], object], copied: Callable[[], int]
    ) -> bool:
        """Keep what pool pages mapped at ``offset`` hold, and give those back (``released``, as `mapped` was
        told); ``copied`` puts copies there (0, or −errno).  Whether that was done: not where other pages
        have taken their place.
        """
        return self._mappings.copy(offset, released, copied)

    def replaceable(self, place: int, length: int) -> int:
        """How many bytes of a pool are mapped at ``place``, where nothing else is mapped in the ``length``
        bytes from there on: as many others may be mapped in their place at once.  0: nothing is mapped in
        them; −1: `give_back` first.
        """
        parts = self._mappings.parts
        found = parts.get(place)
        mapped = found[0] if found is not None else 0
        if mapped > length:
            return -1
        if len(parts) > (found is not None):
            for other, (size, _) in list(parts.items()):
                if other != place and other < place + length and place < other + size:
                    return -1
        return mapped

    def give_back(self, view: memoryview) -> None:
        """A receive into ``view``, which is of this buffer, begins: what is mapped there is given back.  What
        is in the view is not kept, what is beside it is.
        """
        first = self.offset_of(primitives.address_of(view)) if view.nbytes else 0
        last = first + view.nbytes
        for place in [*self._mappings.parts]:
            found = self._mappings.parts.get(place)
            if found is not None and place < last and first < place + found[0]:
                self._mappings.settle(place, keep=place < first or last < place + found[0])

    def release(self) -> None:
        """Give all mapped pages back; the contents stay."""
        for place in [*self._mappings.parts]:
            self._mappings.settle(place)

    def resize(self, newsize: int) -> NoReturn:
        """TypeError: pages are mapped where the buffer is, and it would be moved."""
        raise TypeError("a PageBuffer keeps its length: make another one")

    def close(self) -> None:
        """Give all mapped pages back, then unmap the buffer.  BufferError while there are views of it."""
        self.release()
        super().close()

    def __exit__(self, *_: object) -> None:
        """`close`, which ``mmap``'s own does not call."""
        self.close()

    def _drop(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        mappings: _Mappings | None = getattr(self, "_mappings", None)
        if mappings is not None and not is_finalizing():
            mappings.drop()

    __del__ = deferred_signals.finalizer(_drop)


class Page(NamedTuple):
    """A run of an application's bytes that one work request can name."""

    address: int
    length: int
    lkey: int


class AddressRecord(NamedTuple):
    """What is sent: its runs, and whether it is one.  ``holders`` keep the memory."""

    runs: tuple[Page, ...]
    holders: tuple[object, ...] = ()

    @property
    def contiguous(self) -> bool:
        """One work request can name all."""
        return len(self.runs) == 1


class AddressSpace:
    """The application's own memory, as a protection domain's adapter reaches it: on demand, by a key for all
    of it, so that nothing is registered or pinned for one send.  ``lkey`` is 0 where the adapter cannot.
    Senders hold what they name until it is taken, so an adapter in this process copies it as it stands.
    """

    def __init__(self, pd: PD) -> None:
        self._region: MR | None = None
        self.lkey = 0
        here = pd.ctx.driver.session.channel.shares_addresses
        try:
            self._region = MR(pd, PAGE_BYTES, _ON_DEMAND, implicit=True, held=here)
            self.lkey = self._region.lkey
        except PyverbsError:
            pass


_spaces_lock = threading.Lock()


def space_of(pd: PD) -> AddressSpace:
    """The one of a protection domain, which has it: both know each other, and go together."""
    with _spaces_lock:
        found: AddressSpace | None = getattr(pd, "companion", None)
        if found is None:
            found = pd.companion = AddressSpace(pd)
        return found


def page_list(views: Iterable[memoryview], lkey: int) -> AddressRecord:
    """What a send of ``views`` names: one run for each stretch of consecutive addresses."""
    runs: list[Page] = []
    holders = []
    for view in views:
        if not view.nbytes:
            continue
        address = primitives.address_of(view, False)
        holders.append(view)
        if runs and runs[-1].address + runs[-1].length == address:
            address, length, _ = runs.pop()
            runs.append(Page(address, length + view.nbytes, lkey))
        else:
            runs.append(Page(address, view.nbytes, lkey))
    return AddressRecord(tuple(runs), tuple(holders))
