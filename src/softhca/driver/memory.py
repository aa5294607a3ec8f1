"""Registration of host memory: attached buffers, regions, and memory on the shared memfd."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from softhca.driver.device_memory import DeviceMemory
from softhca.driver.duplicates import HasDescriptor, duplicate
from softhca.driver.errors import DriverError, refusal
from softhca.driver.session import Session
from softhca.machine.primitives import address_of, populate_pages
from softhca.machine.signals import raised_by_handler
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.null import NULL_BYTES
from softhca.memory.on_demand import IMPLICIT_BYTES
from softhca.memory.regions import LOCAL_WRITE, ON_DEMAND, ZERO_BASED
from softhca.queues import control_fields as control

# ibv_advise_mr_advice, ibv_advise_mr_flag
PREFETCH = 0
PREFETCH_WRITE = 1
PREFETCH_NO_FAULT = 2
ADVISE_FLUSH = 1

_MASK64 = (1 << 64) - 1


class MemoryKey(NamedTuple):
    """A registration: its ``handle``, which is the first key that it had, and its keys."""

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
    ``on_demand``: addresses of this process, of which the adapter has no frames; ``held``: whoever posts
    keeps them mapped.
    """

    first_frame: int
    pages: int
    page_offset: int
    address: int
    arena: int = 0
    writable: bool = True
    on_demand: bool = False
    held: bool = False


class _Registration(NamedTuple):
    """A region: its key, its place and rights, its domain, and by which addresses requests name its bytes."""

    lkey: int
    placed: _Placed
    access: int
    pd: int
    va: int
    length: int


class Registrar:
    """The regions of one attachment.  Any thread may call any method."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._memory = session.memory
        self._changing = threading.RLock()  # one region at a time moves or ends
        self._handles = itertools.count(1 << 32)  # beyond all keys
        self._regions: dict[int, _Registration] = {}
        self._handles_by_key: dict[int, int] = {}
        self._leaving: deque[int] = deque()  # arenas that no region uses, and that are attached maybe

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
        return self._register(pd, self._place(address, length, access, buffer), length, access, iova)

    def register_memory(
        self, pd: int, memory: DeviceMemory, offset: int, length: int, access: int
    ) -> MemoryKey:
        """Register a part of device memory; see `DeviceDriver.reg_dm`."""
        self._session.check()
        if length <= 0 or offset < 0 or offset + length > memory.length:
            raise DriverError(
                errno.EINVAL, f"offset, length: {length} bytes at {offset} are not in the device memory"
            )
        arena = self._attach_memory(memory)
        skipped, page_offset = divmod(offset, PAGE_BYTES)
        place = _Placed(
            arena + skipped, _pages(page_offset, length), page_offset, memory.address + offset, arena
        )
        return self._register(pd, place, length, access, 0)

    def _attach_memory(self, memory: DeviceMemory) -> int:
        """The first frame of an arena over device memory.  An adapter in this process finds it in the map."""
        channel = self._session.channel
        fields: dict[str, Any] = {"memory": control.MEMORY_FOREIGN, "address": memory.address}
        with contextlib.ExitStack() as until_answered:
            try:
                if not channel.shares_addresses:
                    number = until_answered.enter_context(self._passed(memory))
                    fields = {"memory": control.MEMORY_PASSED, "address": number}
                arena, _ = self._memory.attach_address(memory.address, memory.length)
            except OSError as error:
                raise refusal(error, "attaching device memory") from None
            self._attach_arena(arena, **fields)
        return arena

    def _attach_arena(self, arena: int, **fields: Any) -> int:
        """Have the adapter attach what is in the map of this process; its address."""
        try:
            slot, pages, base = self._memory.attached(arena)
            self._session.call(control.ATTACH_ARENA, slot=slot, pages=pages, **{"address": base, **fields})
        except DriverError:
            self._memory.detach(arena)
            raise
        except OSError as error:  # the device was closed meanwhile
            raise refusal(error, "attaching the buffer") from None
        except BaseException:  # a signal handler's: nobody knows how far it has come
            self._leaving.append(arena)
            raise
        return base

    def register_implicit(self, pd: int, access: int, held: bool) -> MemoryKey:
        """Register all of this process's memory; see `DeviceDriver.reg_implicit_mr`."""
        self._session.check()
        placed = _Placed(0, 0, 0, 0, on_demand=True, held=held)
        return self._register(pd, placed, IMPLICIT_BYTES, access, 0)

    def allocate_null(self, pd: int) -> MemoryKey:
        """A region without memory; see `DeviceDriver.alloc_null_mr`."""
        self._session.check()
        lkey = self._session.call(control.ALLOC_NULL_MR, pd=pd)["lkey"]
        registration = _Registration(lkey, _Placed(0, 0, 0, 0), LOCAL_WRITE, pd, 0, NULL_BYTES)
        return self._enter(self._handle(lkey), registration, 0)

    def _register(
        self, pd: int, placed: _Placed, length: int, access: int, iova: int | None
    ) -> MemoryKey:
        """Make the region of a place, which is released where that fails."""
        va = placed.address if iova is None else iova
        try:
            reply = self._session.call(
                control.REG_MR, pd=pd, access=access, **self._translation(placed, va, length, access)
            )
        except BaseException:
            self._release(placed)
            raise
        va = 0 if access & ZERO_BASED else va
        registration = _Registration(reply["lkey"], placed, access, pd, va, length)
        return self._enter(self._handle(reply["lkey"]), registration, reply["rkey"])

    @contextlib.contextmanager
    def _passed(self, memory: HasDescriptor) -> Iterator[int]:
        """The number by which one command names a memory's descriptor, which another thread may close.

        An adapter in this process takes it when it serves the command, so the duplicate is open until then.
        """
        descriptor = duplicate(memory)
        try:
            yield self._session.channel.pass_descriptor(descriptor)
        finally:
            os.close(descriptor)

    def register_paged(self, pd: int, memory: HasDescriptor, va: int, access: int) -> MemoryKey:
        """Register a pageable memory; see `DeviceDriver.reg_paged`."""
        self._session.check()
        try:
            with self._passed(memory) as number:
                reply = self._session.call(
                    control.REG_PAGED, pd=pd, access=access, descriptor=number, va=va
                )
        except OSError as error:
            raise refusal(error, "passing the memory to the adapter") from None
        registration = _Registration(reply["lkey"], _Placed(0, 0, 0, 0), access & ~ON_DEMAND, pd, va, 0)
        return self._enter(self._handle(reply["lkey"]), registration, reply["rkey"])

    def _handle(self, lkey: int) -> int:
        """The handle of a new region: other processes know it by that.  A region that has had this key before
        and has another one since keeps it."""
        return lkey if lkey not in self._regions else next(self._handles)

    def reregister(
        self, handle: int, flags: int, pd: int, address: int, length: int, access: int, buffer: Any = None
    ) -> MemoryKey:
        """Change a registration; see `DeviceDriver.rereg_mr`."""
        self._session.check()  # before the lock: a forked child may have inherited it locked
        with self._changing:
            return self._reregister(handle, flags, pd, address, length, access, buffer)

    def _reregister(
        self, handle: int, flags: int, pd: int, address: int, length: int, access: int, buffer: Any
    ) -> MemoryKey:
        former = self._find(handle)
        placed, rights = former.placed, former.access
        rights = access if flags & control.REREG_ACCESS else rights
        fields: dict[str, Any] = {}
        new = placed
        if flags & control.REREG_TRANSLATION:
            new = self._place(address, length, rights, buffer)
            if new.on_demand != placed.on_demand:
                self._release(new)
                raise DriverError(
                    errno.EOPNOTSUPP, "access: a region on demand cannot become another kind, nor back"
                )
            fields = self._translation(new, new.address, length, rights)
        elif rights & LOCAL_WRITE and not placed.writable:
            raise DriverError(errno.EACCES, "buffer: it is read-only")
        elif (rights ^ former.access) & ON_DEMAND and (placed.on_demand or placed.arena):
            raise DriverError(
                errno.EOPNOTSUPP, "access: a region on demand cannot become another kind, nor back"
            )
        try:
            reply = self._session.call(
                control.REREG_MR, lkey=former.lkey, flags=flags, pd=pd, access=rights, **fields
            )
        except BaseException:
            if new is not placed:
                self._release(new)
            raise
        va = former.va
        if new is not placed:
            va = 0 if rights & ZERO_BASED else new.address
        now = _Registration(
            reply["lkey"],
            new,
            rights,
            pd if flags & control.REREG_PD else former.pd,
            va,
            length if new is not placed else former.length,
        )
        del self._handles_by_key[former.lkey]
        key = self._enter(handle, now, reply["rkey"])
        if new is not placed:
            self._release(placed)
        return key

    def _enter(self, handle: int, registration: _Registration, rkey: int) -> MemoryKey:
        """Remember the region behind a key."""
        self._regions[handle] = registration
        self._handles_by_key[registration.lkey] = handle
        return MemoryKey(handle, registration.lkey, rkey)

    def deregister(self, handle: int) -> None:
        """End a registration; the buffer is released once the adapter has confirmed."""
        self._session.check()  # before the lock: a forked child may have inherited it locked
        with self._changing:
            former = self._find(handle)
            self._session.call(control.DEREG_MR, lkey=former.lkey)
            del self._handles_by_key[former.lkey]
            del self._regions[handle]
            self._release(former.placed)

    def key_of(self, handle: int) -> int:
        """The local key of a registration; DriverError EINVAL where there is none."""
        return self._find(handle).lkey

    def advise(self, pd: int, advice: int, flags: int, elements: Sequence[tuple[int, int, int]]) -> None:
        """See `DeviceDriver.advise_mr`."""
        self._session.check()
        if advice not in (PREFETCH, PREFETCH_WRITE, PREFETCH_NO_FAULT):
            raise DriverError(errno.EOPNOTSUPP, f"advice = {advice}: there is no such advice")
        if flags & ~ADVISE_FLUSH or not elements:
            raise DriverError(
                errno.EINVAL, f"flags = {flags:#x}, num_sge = {len(elements)}: no such flags, or no element"
            )
        ranges = [self._advised(pd, advice, *element) for element in elements]
        if advice == PREFETCH_NO_FAULT:
            return
        for address, length in ranges:
            result = _bring(address, length, advice == PREFETCH_WRITE)
            if result and flags & ADVISE_FLUSH:
                raise DriverError(
                    errno.EFAULT, f"addr, length: {length} bytes at {address:#x} are not all mapped for that"
                )

    def _advised(self, pd: int, advice: int, va: int, length: int, lkey: int) -> tuple[int, int]:
        """Where the bytes of an element are in this process."""
        found = self._regions.get(self._handles_by_key.get(lkey, 0))
        if found is None or found.pd != pd:
            raise DriverError(errno.EFAULT, f"lkey = {lkey:#x}: it names no region of protection domain {pd}")
        if not found.access & ON_DEMAND:
            raise DriverError(errno.EINVAL, f"lkey = {lkey:#x}: its region is not on demand")
        offset = (va - found.va) & _MASK64
        if offset + length > found.length:
            raise DriverError(errno.EFAULT, f"addr, length: {length} bytes at {va:#x} are not in the region")
        if advice == PREFETCH_WRITE and not found.access & LOCAL_WRITE:
            raise DriverError(errno.EFAULT, f"lkey = {lkey:#x}: its region may not be written")
        return found.placed.address + offset, length

    def pages_of(self, handle: int, offset: int, length: int) -> tuple[int, int, int]:
        """First frame, pages and offset in the first page of a part of a region; EINVAL outside it."""
        placed = self._find(handle).placed
        first, within = divmod(placed.page_offset + offset, PAGE_BYTES)
        pages = _pages(within, length)
        if offset < 0 or length <= 0 or first + pages > placed.pages:
            raise DriverError(
                errno.EINVAL, f"offset, length: {length} bytes at {offset} are not in the region's pages"
            )
        return placed.first_frame + first, pages, within

    def _find(self, handle: int) -> _Registration:
        try:
            return self._regions[handle]
        except KeyError:
            raise DriverError(errno.EINVAL, f"handle = {handle}: there is no such region") from None

    @staticmethod
    def _translation(placed: _Placed, va: int, length: int, access: int) -> dict[str, Any]:
        if placed.on_demand:
            return {"va": va, "length": length, "address": placed.address, "held": int(placed.held)}
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
            raise DriverError(
                errno.EINVAL, f"addr, length: there are no {length} bytes at {address:#x} to register"
            )
        first = self._memory.frame_of(address, length) if buffer is None else 0
        if first:
            page_offset = address % PAGE_BYTES
            return _Placed(first, _pages(page_offset, length), page_offset, address)
        if access & ON_DEMAND:
            return self._name(address, length, access, buffer)
        if self._session.channel.foreign_errno:
            raise DriverError(
                self._session.channel.foreign_errno,
                "the adapter's process may not reach this process's own memory; register memory of the "
                "device's host memory instead",
            )
        return self._attach(address, length, access, buffer)

    @staticmethod
    def _name(address: int, length: int, access: int, buffer: Any) -> _Placed:
        """A range of this process's memory as such; the adapter decides whether it can reach it."""
        writable = True
        if buffer is not None:
            view = memoryview(buffer)
            writable = not view.readonly
            if not writable and access & LOCAL_WRITE:
                raise DriverError(errno.EACCES, "buffer: it is read-only")
            try:
                start = _offset_in(buffer, address, length)
                address = address_of(view, writable=False) + start
            except (OSError, BufferError) as error:
                raise DriverError(errno.EINVAL, str(error)) from None
        return _Placed(0, 0, 0, address, 0, writable, on_demand=True)

    def _attach(self, address: int, length: int, access: int, buffer: Any) -> _Placed:
        start, writable = 0, True
        if buffer is None and not _is_mapped(address, length, bool(access & LOCAL_WRITE)):
            raise DriverError(
                errno.EFAULT, f"addr, length: {length} bytes at {address:#x} are not mapped for that access"
            )
        try:
            if buffer is None:
                first, page_offset = self._memory.attach_address(address, length)
            else:
                writable = not memoryview(buffer).readonly
                start = _offset_in(buffer, address, length)
                first, page_offset = self._memory.attach_buffer(buffer, bool(access & LOCAL_WRITE))
        except OSError as error:
            raise refusal(error, "attaching the buffer") from None
        base = self._attach_arena(first, memory=control.MEMORY_FOREIGN)
        position = page_offset + start
        skipped, page_offset = divmod(position, PAGE_BYTES)
        return _Placed(
            first + skipped, _pages(page_offset, length), page_offset, base + position, first, writable
        )

    def _release(self, placed: _Placed) -> None:
        """Release a range that no region uses any more.

        A region that has ended is no more, whatever becomes of this: an arena that the adapter keeps all the
        same, or of which an interrupted call has heard no answer, is asked for again by the next call.
        """
        if placed.arena:
            self._leaving.append(placed.arena)
        for _ in range(len(self._leaving)):
            with contextlib.suppress(IndexError, DriverError):  # another thread has taken it
                self._detach_arena(self._leaving.popleft())

    def _detach_arena(self, arena: int) -> None:
        try:
            slot, pages, _ = self._memory.attached(arena)
            self._session.call(control.DETACH_ARENA, slot=slot, pages=pages)
        except BaseException as error:
            if isinstance(error, OSError) and not raised_by_handler(error):
                return  # the device was closed meanwhile, which has released everything
            if not (isinstance(error, DriverError) and error.errno == errno.EINVAL):  # or it is detached
                self._leaving.append(arena)
                raise
        self._memory.detach(arena)


def _bring(address: int, length: int, writing: bool) -> int:
    """Have the operating system bring a range's pages; 0, also where it does not know how, or −errno."""
    if not length or populate_pages(0, 0, writing):
        return 0
    first = address - address % PAGE_BYTES
    end = address + length
    return populate_pages(first, end + -end % PAGE_BYTES - first, writing)


def _is_mapped(address: int, length: int, writing: bool) -> bool:
    """Whether the program may read, or write, the first and the last page of a range.  Those between are not
    looked at: a registration brings no pages that nobody has touched yet."""
    return not (_bring(address, 1, writing) or _bring(address + length - 1, 1, writing))


def _pages(page_offset: int, length: int) -> int:
    return -(-(page_offset + length) // PAGE_BYTES)


def _offset_in(buffer: Any, address: int, length: int) -> int:
    """Where ``address`` lies in a buffer (0 when it is not given); EINVAL when the range leaves it."""
    view = memoryview(buffer)
    start = (address - address_of(view, writable=False)) if address else 0
    if start < 0 or start + length > view.nbytes:
        raise OSError(errno.EINVAL, f"addr, length: {length} bytes at {address:#x} are not inside the buffer")
    return start
