"""A ring in which the adapter puts entries of one size, and threads of the program wait for them."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from softhca.driver.errors import DriverError
from softhca.driver.session import Session
from softhca.machine.primitives import address_of
from softhca.queues.ring import RingConsumer

_Entry = TypeVar("_Entry")


class EntryRing(Generic[_Entry]):
    """``entries`` of ``entry_bytes`` each, which ``decode`` reads; ``fields`` are its ``layout`` as a command
    has it.

    ``owner`` names what has it, in errors.  ``taken`` is called after an entry was taken out.  Any thread may
    call any method.
    """

    def __init__(
        self,
        session: Session,
        entries: int,
        entry_bytes: int,
        decode: Callable[[bytes], _Entry],
        owner: str,
        taken: Callable[[], object] | None = None,
    ) -> None:
        self._session = session
        self._entry_bytes = entry_bytes
        self._decode = decode
        self._owner = owner
        self._taken = taken
        self._lock = threading.RLock()
        self._entry = bytearray(entry_bytes)
        self._address = address_of(self._entry)
        self._broken = False
        self._kept: list[_Entry] = []
        self._ended = False
        self._frames: Sequence[int]
        self._frames, self.layout, self.fields = session.make_ring(entries, entries * entry_bytes)
        self._ring = RingConsumer(self.layout)

    @property
    def idle(self) -> bool:
        """Whether no entry waits."""
        with self._lock:
            return not self._kept and (self._ended or self._broken or bool(self._ring.idle()))

    def receive(
        self, timeout_s: float | None, enough: Callable[[], bool] = lambda: False
    ) -> _Entry | None:
        """The next entry; None: none has come within ``timeout_s`` (0: poll once; None: no limit), or it is
        ``enough``.
        DriverError EINVAL: the owner has ended; EIO: an entry is malformed, or the adapter is gone.
        """
        self._session.check()
        if not enough():
            entry = self._take()
            if entry is not None:
                return entry
        found: list[_Entry] = []

        def ready() -> bool:
            if not found and not enough():
                entry = self._take()
                if entry is not None:
                    found.append(entry)
            return bool(found) or enough() or bool(self._session.dead) or self._ended or self._broken

        if not ready():
            if timeout_s == 0:
                self._session.channel.progress()
                ready()
            else:
                self._wait(ready, found, timeout_s)
        if found:
            return found[0]
        if enough():
            return None
        self._session.check()
        if self._ended:
            raise DriverError(errno.EINVAL, f"{self._owner} is closed")
        if self._broken:
            raise DriverError(errno.EIO, f"the ring of {self._owner} holds a malformed entry")
        return None

    def _wait(self, ready: Callable[[], bool], found: list[_Entry], timeout_s: float | None) -> None:
        """Wait until ``ready()``.  If this is interrupted, what was ``found`` is put back."""
        try:
            self._session.channel.wait(ready, timeout_s)
        except BaseException:
            with self._lock:
                self._kept[:0] = found
            raise

    def _take(self) -> _Entry | None:
        with self._lock:
            if self._kept:
                return self._kept.pop(0)
            if self._ended or self._broken or self._session.dead:
                return None
            n = self._ring.take(self._address, self._entry_bytes)
            if n not in (0, self._entry_bytes):
                self._broken = True
            if n != self._entry_bytes:
                return None
            self._ring.release(1)
            entry = self._decode(bytes(self._entry))
        if self._taken is not None:
            self._taken()
        return entry

    def end(self) -> None:
        """The adapter writes nothing more: waits end, and what was not received is lost."""
        with self._lock:
            self._ended = True

    def free(self) -> None:
        """Give the memory back, once."""
        self._session.free(self._frames)
        self._session.channel.wake_waiters()
