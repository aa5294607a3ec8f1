"""Registration of host memory: attached buffers, regions, and memory on the shared memfd."""

from __future__ import annotations

import contextlib
import errno
import itertools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from softhca.driver.errors import DriverError, refusal
from softhca.driver.session import Session
from softhca.machine.primitives import address_of
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.regions import LOCAL_WRITE, ZERO_BASED
from softhca.queues import control_fields as control


class MemoryKey(NamedTuple):
    """A registration: the driver's ``handle`` of it, and its keys."""

    handle: int
    lkey: int
    rkey: int


class HostBuffer:
    """``length`` bytes of host memory at ``address``, zero-filled, until `free`."""

    def __init__(self, address: int, length: int, free: Callable[[], None]) -> None:
        self.address = address
        self.length = length
        self._free = [free]

    def free(self) -> None:
        """Free the memory; a second call does nothing.  No region may use it any more."""
        with contextlib.suppress(IndexError):  # of threads that call at once, one takes it
            self._free.pop()()


class _Placed(NamedTuple):
    """The place of a range of memory: its frames as one run, the offset in the first, its ``address`` in this
    process, the arena to detach at the end (its first frame; 0: none), and whether it may be written.
    """

    first_frame: int
    pages: int
    page_offset: int
    address: int
    arena: int = 0
    writable: bool = True


class Registrar:
    """The regions of one attachment.  Any thread may call any method."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._memory = session.memory
        self._changing = threading.RLock()  # one region at a time moves or ends
        self._handles = itertools.count(1)
        self._regions: dict[int, tuple[int, _Placed, int]] = {}

    def allocate(self, length: int, shared: bool = False) -> HostBuffer:
        """Memory on the memfd, ``shared``: where peers on this host can reach it if they may;
        DriverError EINVAL, ENOMEM."""
        self._session.check()
        pages = -(-length // PAGE_BYTES)
        try:
            if shared:
                frames = self._memory.allocate_shared(pages)
            else:
                frames = self._memory.allocate(pages, contiguous=True)
        except OSError as error:
            raise refusal(error, f"allocating {length} bytes of host memory") from None
        return HostBuffer(
            self._memory.address_map.address(frames[0]), length, lambda: self._session.free(frames)
        )

    def register(
        self, pd: int, address: int, length: int, access: int, iova: int | None, buffer: Any
    ) -> MemoryKey:
        """Register; see `DeviceDriver.reg_mr`."""
        self._session.check()
        placed = self._place(address, length, access, buffer)
        va = placed.address if iova is None else iova
        try:
            reply = self._session.call(
                control.REG_MR, pd=pd, access=access, **self._translation(placed, va, length, access)
            )
        except DriverError:
            self._release(placed)
            raise
        return self._enter(next(self._handles), reply, placed, access)

    def register_paged(self, pd: int, descriptor: int, va: int, access: int) -> MemoryKey:
        """Register a pageable memory; see `DeviceDriver.reg_paged`."""
        self._session.check()
        try:
            number = self._session.channel.pass_descriptor(descriptor)
        except OSError as error:
            raise refusal(error, "passing the memory to the adapter") from None
        reply = self._session.call(control.REG_PAGED, pd=pd, access=access, descriptor=number, va=va)
        return self._enter(next(self._handles), reply, _Placed(0, 0, 0, 0), access)

    def reregister(
        self, handle: int, flags: int, pd: int, address: int, length: int, access: int, buffer: Any = None
    ) -> MemoryKey:
        """Change a registration; see `DeviceDriver.rereg_mr`."""
        with self._changing:
            return self._reregister(handle, flags, pd, address, length, access, buffer)

    def _reregister(
        self, handle: int, flags: int, pd: int, address: int, length: int, access: int, buffer: Any
    ) -> MemoryKey:
        lkey, placed, rights = self._find(handle)
        rights = access if flags & control.REREG_ACCESS else rights
        fields: dict[str, Any] = {}
        new = placed
        if flags & control.REREG_TRANSLATION:
            new = self._place(address, length, rights, buffer)
            fields = self._translation(new, new.address, length, rights)
        elif rights & LOCAL_WRITE and not placed.writable:
            raise DriverError(errno.EACCES, "the buffer is read-only")
        try:
            reply = self._session.call(
                control.REREG_MR, lkey=lkey, flags=flags, pd=pd, access=rights, **fields
            )
        except DriverError:
            if new is not placed:
                self._release(new)
            raise
        key = self._enter(handle, reply, new, rights)
        if new is not placed:
            self._release(placed)
        return key

    def _enter(self, handle: int, reply: dict[str, Any], placed: _Placed, access: int) -> MemoryKey:
        """Remember the region behind a key."""
        self._regions[handle] = reply["lkey"], placed, access
        return MemoryKey(handle, reply["lkey"], reply["rkey"])

    def deregister(self, handle: int) -> None:
        """End a registration; the buffer is released once the adapter has confirmed."""
        with self._changing:
            lkey, placed, _ = self._find(handle)
            self._session.call(control.DEREG_MR, lkey=lkey)
            del self._regions[handle]
            self._release(placed)

    def key_of(self, handle: int) -> int:
        """The local key of a registration; DriverError EINVAL where there is none."""
        return self._find(handle)[0]

    def pages_of(self, handle: int, offset: int, length: int) -> tuple[int, int, int]:
        """First frame, pages and offset in the first page of a part of a region; EINVAL outside it."""
        _, placed, _ = self._find(handle)
        first, within = divmod(placed.page_offset + offset, PAGE_BYTES)
        pages = _pages(within, length)
        if offset < 0 or length <= 0 or first + pages > placed.pages:
            raise DriverError(errno.EINVAL, f"{length} bytes at {offset} are not in the region's pages")
        return placed.first_frame + first, pages, within

    def _find(self, handle: int) -> tuple[int, _Placed, int]:
        try:
            return self._regions[handle]
        except KeyError:
            raise DriverError(errno.EINVAL, f"there is no region {handle}") from None

    @staticmethod
    def _translation(placed: _Placed, va: int, length: int, access: int) -> dict[str, Any]:
        return {
            "va": va,
            "length": length,
            "page_offset": placed.page_offset,
            "zero_based": int(bool(access & ZERO_BASED)),
            "frames": [(placed.first_frame, placed.pages)],
        }

    def _place(self, address: int, length: int, access: int, buffer: Any) -> _Placed:
        """The frames of a range; a buffer or a foreign address is attached, here and at the adapter."""
        if length <= 0 or (buffer is None and address <= 0):
            raise DriverError(errno.EINVAL, f"there are no {length} bytes at {address:#x} to register")
        first = self._memory.frame_of(address, length) if buffer is None else 0
        if first:
            page_offset = address % PAGE_BYTES
            return _Placed(first, _pages(page_offset, length), page_offset, address)
        if self._session.channel.foreign_errno:
            raise DriverError(
                self._session.channel.foreign_errno,
                "the adapter's process may not reach this process's own memory; register memory of the "
                "device's host memory instead",
            )
        return self._attach(address, length, access, buffer)

    def _attach(self, address: int, length: int, access: int, buffer: Any) -> _Placed:
        start, writable = 0, True
        try:
            if buffer is None:
                first, page_offset = self._memory.attach_address(address, length)
            else:
                writable = not memoryview(buffer).readonly
                start = _offset_in(buffer, address, length)
                first, page_offset = self._memory.attach_buffer(buffer, bool(access & LOCAL_WRITE))
            slot, pages, base = self._memory.attached(first)
        except OSError as error:
            raise refusal(error, "attaching the buffer") from None
        try:
            self._session.call(
                control.ATTACH_ARENA, slot=slot, pages=pages, address=base, memory=control.MEMORY_FOREIGN
            )
        except DriverError:
            self._memory.detach(first)
            raise
        position = page_offset + start
        skipped, page_offset = divmod(position, PAGE_BYTES)
        return _Placed(
            first + skipped, _pages(page_offset, length), page_offset, base + position, first, writable
        )

    def _release(self, placed: _Placed) -> None:
        """Release a range that no region uses any more."""
        if not placed.arena:
            return
        try:
            slot, pages, _ = self._memory.attached(placed.arena)
            self._session.call(control.DETACH_ARENA, slot=slot, pages=pages)
            self._memory.detach(placed.arena)
        except OSError as error:  # the device was closed meanwhile, which has released everything
            raise refusal(error, "releasing the buffer") from None


def _pages(page_offset: int, length: int) -> int:
    return -(-(page_offset + length) // PAGE_BYTES)


def _offset_in(buffer: Any, address: int, length: int) -> int:
    """Where ``address`` lies in a buffer (0 when it is not given); EINVAL when the range leaves it."""
    view = memoryview(buffer)
    start = (address - address_of(view, writable=False)) if address else 0
    if start < 0 or start + length > view.nbytes:
        raise OSError(errno.EINVAL, f"{length} bytes at {address:#x} are not inside the buffer")
    return start
