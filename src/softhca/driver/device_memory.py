"""Device memory of one attachment: sealed memfds, which the adapter holds, and others import by number."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from softhca.driver.errors import DriverError, refusal
from softhca.machine import deferred_signals
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.mapping import Mapping
from softhca.queues import control_fields as control
from softhca.queues.control_fields import MAX_DM_BYTES

if TYPE_CHECKING:
    from softhca.driver.session import Session

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class DeviceMemory:
    """``length`` bytes at ``address``, zero at first, of number ``number``; ``fd`` is their memfd.

    They are mapped for as long as this object lives, or anybody else who has mapped them.
    """

    def __init__(self, fd: int, length: int) -> None:
        self.fd = fd
        self.length = length
        self.number = 0
        self._session: Session | None = None
        try:
            self._mapping = Mapping(fd, -(-length // PAGE_BYTES) * PAGE_BYTES)
        except BaseException:
            self._close()
            raise
        self.address = self._mapping.address

    @classmethod
    def allocate(cls, session: Session, length: int) -> DeviceMemory:
        """New memory.  DriverError: EINVAL; ENOMEM: the attachment has too much, or there are no
        descriptors."""
        session.check()
        if not 0 < length <= MAX_DM_BYTES:
            raise DriverError(
                errno.ENOMEM if length > 0 else errno.EINVAL, f"length = {length}: no so many bytes of it"
            )
        try:
            fd = os.memfd_create("softhca-dm", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            try:
                os.ftruncate(fd, -(-length // PAGE_BYTES) * PAGE_BYTES)
                fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
            except BaseException:
                os.close(fd)
                raise
            memory = cls(fd, length)
        except OSError as error:
            raise refusal(error, "making device memory") from None
        try:
            passed = session.channel.pass_descriptor(memory.fd)
            memory.number = session.call(control.ALLOC_DM, descriptor=passed, length=length)["dm"]
        except OSError as error:
            memory._close()
            raise refusal(error, "passing device memory to the adapter") from None
        except BaseException:
            memory._close()
            raise
        memory._session = session
        return memory

    @classmethod
    def imported(cls, session: Session, number: int) -> DeviceMemory:
        """That of an imported context: the same bytes.  DriverError ENOENT where there is no such number."""
        session.check()
        try:
            fd, length = session.channel.take_memory(number)
            memory = cls(fd, length)
        except OSError as error:
            raise refusal(error, "importing device memory") from None
        memory.number = number
        return memory

    def free(self) -> None:
        """Let go of it; a second call does nothing.  No region of this attachment may use it any more; who
        has imported it keeps it.  DriverError where the adapter does not take it."""
        if self.fd < 0:
            return
        session = self._session
        try:
            if session is not None and not session.dead:
                session.call(control.FREE_DM, dm=self.number)
        except DriverError:
            if session is not None and not session.dead:
                raise
        self._close()

    def _close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def _drop(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_ending():  # modules are cleared then
            self._close()

    __del__ = deferred_signals.finalizer(_drop)
