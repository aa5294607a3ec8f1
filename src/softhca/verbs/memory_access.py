"""Bytes at raw addresses, for regions and ``mem_alloc``; only `machine.primitives` follows an address."""

import errno
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from softhca.machine import primitives
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError

Bytes = bytes | bytearray | memoryview | str
"""What may be written: text is written as UTF-8."""

_Result = TypeVar("_Result")


def read_bytes(address: int, length: int) -> bytes:
    """A copy of ``length`` bytes at ``address``, which the caller knows to be mapped."""
    out = bytearray(length)
    if length:
        primitives.copy(primitives.address_of(out), address, length)
    return bytes(out)


def write_bytes(address: int, data: Bytes, length: int) -> int:
    """Copy the first ``length`` bytes of ``data`` to ``address``; refuses when ``data`` is shorter.  How many
    they are.
    """
    source = data.encode() if isinstance(data, str) else data
    if length < 0 or length > memoryview(source).nbytes:
        raise PyverbsUserError(f"{length} bytes asked for, the data has {memoryview(source).nbytes}")
    if length:
        primitives.copy(address, primitives.address_of(source, False), length)
    return length


def read_mapped(address: int, length: int) -> bytes:
    """As `read_bytes`, of memory that may be unmapped at any time: then `PyverbsRDMAError`, ``EFAULT``."""
    out = bytearray(length)
    _mapped(primitives.read_process, address, primitives.address_of(out), length, True)
    return bytes(out)


def write_mapped(address: int, data: Bytes, length: int) -> int:
    """As `write_bytes`, to memory that may be unmapped at any time: as `read_mapped`."""
    source = data.encode() if isinstance(data, str) else data
    if length < 0 or length > memoryview(source).nbytes:
        raise PyverbsUserError(f"{length} bytes asked for, the data has {memoryview(source).nbytes}")
    _mapped(primitives.write_process, address, primitives.address_of(source, False), length, False)
    return length


def _mapped(copy: Callable[..., int], there: int, here: int, length: int, reading: bool) -> None:
    """Let the system copy between an address that may be nobody's and one of our own."""
    pid, done = os.getpid(), 0
    while done < length:
        places = (here + done, there + done) if reading else (there + done, here + done)
        moved = copy(pid, *places, length - done)
        if moved <= 0:
            raise PyverbsRDMAError(
                f"offset, length: {length} bytes at {there:#x} are not all mapped", errno.EFAULT
            )
        done += moved


class MappedRange:
    """``length`` bytes at ``address`` that threads read and write until `end`, which calls ``let_go`` once;
    ``mapped``: nobody unmaps them before.

    To see that they are still there and to copy them is one step; who ends them waits for the copies under
    way.  So nobody sees, or overwrites, what stands there afterwards.
    """

    __slots__ = ("_due", "_ended", "_inside", "_let_go", "_lock", "_mapped", "address", "length")

    def __init__(
        self, address: int, length: int, let_go: Callable[[], None], mapped: bool = True
    ) -> None:
        self.address = address
        self.length = length
        self._mapped = mapped
        self._let_go = let_go
        self._lock = threading.RLock()  # a signal handler may end them in the middle of a copy
        self._inside = False
        self._ended = False
        self._due = False

    def check(self, length: int, offset: int) -> None:
        """`PyverbsUserError` for a range that is not inside."""
        if offset < 0 or length < 0 or offset + length > self.length:
            raise PyverbsUserError(
                f"{length} bytes at offset {offset} are outside the region's {self.length}"
            )

    def read(self, length: int, offset: int) -> bytes | None:
        """A copy of ``length`` bytes from ``offset``; None once they have ended."""
        reading = read_bytes if self._mapped else read_mapped
        return self._copy(lambda: reading(self.address + offset, length))

    def write(self, data: Bytes, length: int, offset: int) -> bool:
        """Copy the first ``length`` bytes of ``data`` to ``offset``; False once they have ended."""
        writing = write_bytes if self._mapped else write_mapped
        return self._copy(lambda: writing(self.address + offset, data, length)) is not None

    def _copy(self, copy: Callable[[], _Result]) -> _Result | None:
        with self._lock:
            outer = self._inside
            try:
                self._inside = True  # before the look: nothing may come in between
                return None if self._ended else copy()
            finally:
                self._inside = outer
                if self._due and not outer:
                    self._due = False
                    self._let_go()

    def end(self) -> None:
        """Let nobody in any more, and let the bytes go: here, or, where this very thread is about to copy
        them, further up in its calls, there.
        """
        with self._lock:
            if self._ended:
                return
            self._ended = True
            self._due = self._inside
            if not self._due:
                self._let_go()
