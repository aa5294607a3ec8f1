"""Pageable memory in a process: its owner's side (`PageableMemory`), and that of a process that attaches it.

The owner's side knows which devices of this process use the memory: it drives them while it waits for
accesses to end, and stops their data access for a migration.  Devices of other processes see the quiesce bit.
A thread fetches absent pages of on-demand memory; without that thread `service` does.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from softhca.driver.errors import DriverError, refusal
from softhca.machine import deferred_signals
from softhca.machine.primitives import address_of, load64
from softhca.machine.weak_members import WeakMembers
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.paged import PagedAccess
from softhca.memory.paged_layout import ACCESS_BITS, QUIESCED, VALID
from softhca.memory.paged_mapping import PagedMapping
from softhca.memory.paged_memory import CLOSED, RUNNING, PagedMemory
from softhca.memory.regions import LOCAL_WRITE, ON_DEMAND

if TYPE_CHECKING:
    from softhca.driver.device import DeviceDriver

DEFAULT_TIMEOUT_S = 5.0
CHECK_NS = 1_000_000_000
"""How often the pager checks whether its memory still exists."""

FAILED_WAIT_S = 0.01
_log = logging.getLogger("softhca.driver")
_Result = TypeVar("_Result")
_owned: WeakMembers[PageableMemory] = WeakMembers()


class AttachedMemory:
    """Pageable memory that another process owns, by its descriptor, which stays the caller's.

    ``address`` is 0: there is no view here.  DriverError EINVAL for a descriptor that is no such memory.
    """

    owned = False
    address = 0

    def __init__(self, fd: int) -> None:
        try:
            self._fd = os.dup(fd)
            try:
                self._mapping = PagedMapping(self._fd)
            except BaseException:
                os.close(self._fd)
                raise
        except OSError as error:
            raise refusal(error, "attaching pageable memory") from None
        self.length = self._mapping.length
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._access: PagedAccess | None = None

    def used_by(self, device: DeviceDriver, handle: int) -> None:
        """A device of this process uses the memory."""

    @property
    def fd(self) -> int:
        """The memory's descriptor; EINVAL once it is closed."""
        if self._fd < 0:
            raise DriverError(errno.EINVAL, "the memory is closed")
        return self._fd

    @property
    def rights(self) -> int:
        """The rights that the memory gives at present; DriverError EACCES when its owner has closed it."""
        word = self._mapping.rights()
        if not word & VALID:
            raise DriverError(errno.EACCES, "the owner has closed this memory")
        return word & ACCESS_BITS

    @property
    def quiesced(self) -> bool:
        """Whether access is stopped: work that is posted now would wait."""
        return bool(load64(self._mapping.line(0)) & QUIESCED)

    def read(self, offset: int, length: int) -> bytes:
        """A copy of bytes.  DriverError EAGAIN while the pages are absent or access is stopped (absent pages
        of on-demand memory are requested), EINVAL outside the memory, EACCES as `rights`.
        """
        room = bytearray(length)
        self._move(offset, address_of(room), length, False)
        return bytes(room)

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Put bytes there.  Errors as `read`; EACCES also without LOCAL_WRITE."""
        self._move(offset, address_of(data, writable=False), len(data), True)

    def _move(self, offset: int, local: int, length: int, writing: bool) -> None:
        with self._lock:
            if self._fd < 0 or offset < 0 or offset + length > self.length:
                raise DriverError(
                    errno.EINVAL, f"{length} bytes at {offset} are outside the {self.length} bytes"
                )
            access = self._entered()
            try:
                result = -errno.EAGAIN
                if access.enter():
                    rights = self.rights
                    if writing and not rights & LOCAL_WRITE:
                        raise DriverError(errno.EACCES, "the memory may not be written")
                    result = access.move(offset, local, length, writing)
            finally:
                access.leave()
        if result:
            raise DriverError(-result, "the pages are not there" if result == -errno.EAGAIN else "a bad page")

    def _entered(self) -> PagedAccess:
        """This process's own attachment, made at its first use."""
        if self._access is None:
            try:
                self._access = self._mapping.attach()
            except OSError as error:
                raise refusal(error, "attaching pageable memory") from None
        return self._access

    def close(self) -> None:
        """Detach; regions on the memory stay."""
        if os.getpid() != self._pid:  # in a forked child the attachment is the parent's, as may be the lock
            self._lock = threading.RLock()
            self._access = None
        with self._lock:
            access, self._access = self._access, None
            if access is not None:
                self._mapping.detach(access)
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)

    def _drop(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if hasattr(self, "_access") and not is_ending():  # modules are cleared then
            self.close()

    __del__ = deferred_signals.finalizer(_drop)


class PageableMemory:
    """Pageable memory that this process owns; any thread may call any method.

    ``rights`` are the verbs' access bits.  With ``ON_DEMAND`` pages are absent until they are requested; a
    thread fetches them or, without ``pager``, `service`.  The steps are those of
    `softhca.memory.paged_memory.PagedMemory`, with the same errno, as DriverError.  ``timeout_s``: how long a
    step waits for accesses in progress (ETIMEDOUT).
    """

    owned = True

    def __init__(
        self,
        length: int,
        rights: int,
        swap_directory: str | None = None,
        pager: bool = True,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        with deferred_signals.section():  # what was made is closed with the object
            try:
                self._memory = PagedMemory(length, rights, swap_directory)
            except OSError as error:
                raise refusal(error, f"making {length} bytes of pageable memory") from None
            self.timeout_s = timeout_s
            self.length = length
            self.address = self._memory.address
            self._devices: WeakMembers[DeviceDriver] = WeakMembers()
            self.closing = False
            self._pager: threading.Thread | None = None
            self._lock = threading.RLock()
            if pager and rights & ON_DEMAND:
                self._start()
            _owned.add(self)

    def _start(self) -> None:
        """Have a pager; DriverError EAGAIN where no thread can be had."""
        pager = threading.Thread(
            target=_serve, args=(weakref.ref(self), self._memory), name="softhca-pager", daemon=True
        )
        try:
            pager.start()
        except RuntimeError as error:
            self.close()
            raise DriverError(errno.EAGAIN, f"a thread that brings pages: {error}") from None
        self._pager = pager

    def used_by(self, device: DeviceDriver, handle: int) -> None:
        """A device of this process uses the memory."""
        self._devices.add(device)

    @property
    def pid(self) -> int:
        """The process that owns the memory."""
        return self._memory.pid

    @property
    def fd(self) -> int:
        """The memory's descriptor; EINVAL once it is closed."""
        if self.closing:
            raise DriverError(errno.EINVAL, "the memory is closed")
        return self._memory.fd

    @property
    def rights(self) -> int:
        """The rights that the memory gives at present."""
        return self._do("asking", lambda: self._memory.rights)

    @property
    def state(self) -> str:
        """``running``, ``quiesced``, ``swapped out`` or ``closed``."""
        return self._memory.state

    @property
    def quiesced(self) -> bool:
        """Whether access is stopped: work that is posted now would wait."""
        return self._memory.state != RUNNING

    @property
    def resident_bytes(self) -> int:
        """Memory that it takes at present."""
        return self._do("asking", lambda: self._memory.resident_bytes)

    @property
    def swapped_bytes(self) -> int:
        """Bytes that the swap file holds."""
        return self._memory.swap.held * PAGE_BYTES

    def quiesce(self) -> None:
        """Stop all access until `resume`."""
        self._do("quiescing", lambda: self._memory.quiesce(self._pause()))

    def resume(self) -> None:
        """Let accesses go on."""
        self._do("resuming", self._memory.resume)
        self._go_on()

    def set_rights(self, rights: int) -> None:
        """Change the rights of the memory; every adapter obeys them when this returns."""
        self._do("changing rights", lambda: self._memory.set_rights(rights, self._pause()))
        self._go_on()

    def swap_out(self, offset: int = 0, length: int | None = None) -> None:
        """Swap all pages out; with ``ON_DEMAND`` those that the range touches."""
        self._do("swapping out", lambda: self._memory.swap_out(self._pause(), *self._pages(offset, length)))
        self._go_on()

    def swap_in(self) -> None:
        """Swap all pages in, to other frames."""
        self._do("swapping in", self._memory.swap_in)

    def fetch(self, offset: int = 0, length: int | None = None) -> int:
        """Fetch the absent pages of a range; how many there were."""
        return self._do("fetching", lambda: self._memory.fetch(*self._pages(offset, length)))

    def service(self) -> int:
        """Fetch the pages that adapters have requested; how many."""
        return self._do("fetching", self._memory.service)

    def migrate(self) -> int:
        """Move every page to another frame, with data access of this process's devices off; how many."""
        with self._lock, self._stopped():
            moved = self._do("moving pages", lambda: self._memory.migrate(self._pause()))
        self._go_on()
        return moved

    @contextlib.contextmanager
    def _stopped(self) -> Iterator[None]:
        """Forbid data access of this process's devices meanwhile."""
        stopped: list[DeviceDriver] = []
        try:
            for device in self._devices:
                if device.alive and device.set_data_access(False):
                    stopped.append(device)
            yield
        finally:
            for device in stopped:
                with contextlib.suppress(DriverError):  # a device that is gone must not block the others
                    device.set_data_access(True)

    def read(self, offset: int, length: int) -> bytes:
        """A copy of bytes; absent pages are fetched.  DriverError EBUSY while they are swapped out, EINVAL
        outside the memory.
        """
        with self._lock, self._there(offset, length) as view:
            return bytes(view)

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Put bytes there; errors as `read`."""
        with self._lock, self._there(offset, len(data)) as view:
            view[:] = data

    @contextlib.contextmanager
    def _there(self, offset: int, length: int) -> Iterator[memoryview]:
        """A view of a range, whose absent pages are fetched first."""
        if offset < 0 or length < 0 or offset + length > self.length:
            raise DriverError(errno.EINVAL, f"{length} bytes at {offset} are outside the {self.length} bytes")
        if length:
            self._do("fetching", lambda: self._memory.require(*self._pages(offset, length)))
        elif self.closing:
            raise DriverError(errno.EINVAL, "the memory is closed")
        with memoryview(self._memory.view.mmap) as whole, whole[offset : offset + length] as part:
            yield part

    def _pages(self, offset: int, length: int | None) -> tuple[int, int]:
        """First page and number of pages of a range."""
        length = self.length - offset if length is None else length
        if offset < 0 or length <= 0 or offset + length > self.length:
            raise DriverError(errno.EINVAL, f"{length} bytes at {offset} are outside the {self.length} bytes")
        first = offset // PAGE_BYTES
        return first, -(-(offset + length) // PAGE_BYTES) - first

    def _do(self, what: str, step: Callable[[], _Result]) -> _Result:
        if os.getpid() != self._memory.pid:  # before the lock: a forked child may have inherited it locked
            raise DriverError(errno.EPERM, "the memory belongs to the parent of this process")
        with self._lock:
            try:
                return step()
            except OSError as error:
                raise refusal(error, what) from None

    def _go_on(self) -> None:
        """Access may be allowed again: wake the pager for the requests that came while it was stopped."""
        if self._pager is not None:
            self._memory.wake()

    def _pause(self) -> Callable[[], bool]:
        """What a step does while it waits for an access in progress: drive the devices, let others run."""
        end = time.monotonic() + self.timeout_s

        def pause() -> bool:
            for device in self._devices:
                with contextlib.suppress(DriverError):
                    device.progress()
            os.sched_yield()
            return time.monotonic() < end

        return pause

    def close(self) -> None:
        """End the memory: its regions become invalid, in every process.  May be called again."""
        if os.getpid() != self._memory.pid or self._memory.state == CLOSED:
            return
        with deferred_signals.section():  # but for the wait; who is interrupted there may close it again
            self.stop()
            with self._lock:
                self._memory.close()

    def stop(self) -> None:
        """End the pager, which reads what `close` unmaps; other processes may go on using the memory.  May be
        called again.
        """
        self.closing = True
        if self._pager is None or not self._pager.is_alive():
            return
        self._memory.wake()
        if self._pager is not threading.current_thread():
            with deferred_signals.waiting():
                self._pager.join()

    def _drop(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if hasattr(self, "_lock") and not is_ending():  # modules are cleared then
            self.close()

    __del__ = deferred_signals.finalizer(_drop)


def _stop_all() -> None:
    """At the end of the process: no pager may still run when the interpreter shuts down.  Memory that is open
    stays with the processes that attached it, as when this one is killed.
    """
    for memory in _owned:
        if os.getpid() == memory.pid:
            memory.stop()


atexit.register(_stop_all)


def _serve(owner: weakref.ref[PageableMemory], memory: PagedMemory) -> None:
    """The pager: fetch pages whenever some are requested, until the memory is closed or collected.

    After a failure it tries again soon; repeated failures are logged once.
    """
    logged = False
    while memory.state != CLOSED:
        held = owner()
        if held is None or held.closing:
            return
        requests = memory.requests()
        try:
            held.service()
        except DriverError as error:
            if not logged:
                _log.warning("pages could not be fetched: %s", error.message)
            logged = True
            time.sleep(FAILED_WAIT_S)
            continue
        logged = False
        del held
        if memory.state != CLOSED:
            memory.wait_request(requests, CHECK_NS)
