"""Rings in memory that the program's own allocators give: those of a parent domain.

A device asks such allocators for what it keeps in the program's memory.  Where the adapter is embedded, rings
stand in what they give as it is.  Another process's adapter reaches rings in shared memory alone: there the
pages of a ring are put over what the allocator gave, so that both sides see the same bytes, and taken away
again, for pages of the program's own, before the allocator frees it.  Memory whose pages cannot be replaced
one by one (huge pages) is kept for the ring's time, and the ring stands elsewhere.

What was lent is given back when its queue is destroyed, and else (the device has died, or a creation was
interrupted) not before the device is closed and the last handle has gone: no thread can look at it then.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from softhca.driver.errors import DriverError, refusal
from softhca.machine import deferred_signals
from softhca.machine.primitives import fill, map_pages, map_private, write_process
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.last_reference import AtLast
from softhca.memory.runs import runs_of

if TYPE_CHECKING:
    from softhca.driver.channels import HostChannel

QP_RING = 1
WQ_RING = 2
SRQ_RING = 4
CQ_RING = 5
USE_DEFAULT = (1 << 64) - 1
"""What an allocator gives that leaves it to the device."""
_ZERO = ctypes.create_string_buffer(1)


class RingAllocator(Protocol):
    """What a program allocates rings with.  ``kind`` is one of the numbers above."""

    def allocate(self, length: int, alignment: int, kind: int) -> int:
        """The address of so much memory; 0: there is none; `USE_DEFAULT`."""

    def free(self, address: int, kind: int) -> None:
        """Give it back."""


class _Loan(NamedTuple):
    """One ring's memory; ``covered`` bytes of it show pages of the shared memory."""

    address: int
    covered: int
    kind: int
    allocator: RingAllocator

    def end(self) -> None:
        """Give it back, with pages of the program's own in it."""
        if not self.covered or _own_pages(self.address, self.covered):
            self.allocator.free(self.address, self.kind)
        # else it shows the device's pages for ever, and is nothing that could be used again


def _end_all(loans: dict[int, _Loan]) -> None:
    while loans:
        loans.popitem()[1].end()


class LentRings:
    """The rings of one attachment that stand in lent memory."""

    def __init__(self, channel: HostChannel) -> None:
        self._channel = channel
        self._lent: dict[int, _Loan] = {}  # by first frame
        self._end: AtLast | None = None

    def reserve(self, allocator: RingAllocator, pages: int, kind: int) -> Sequence[int] | None:
        """Frames of a ring in memory of ``allocator``, zero-filled; None: the device has to find some.

        DriverError: ENOMEM where it gives none, EINVAL for what cannot hold pages.
        """
        length = pages * PAGE_BYTES
        address = allocator.allocate(length, PAGE_BYTES, kind)
        if address == USE_DEFAULT:
            return None
        if not address:
            raise DriverError(errno.ENOMEM, f"the allocator gives no {length} bytes")
        try:
            _require_writable(address, length)
            lend = self._as_it_is if self._channel.shares_addresses else self._covered
            return lend(_Loan(address, 0, kind, allocator), pages)
        except OSError as error:
            allocator.free(address, kind)
            raise refusal(error, "a ring in the allocator's memory") from None

    def _as_it_is(self, loan: _Loan, pages: int) -> Sequence[int]:
        first, _ = self._channel.memory.attach_address(loan.address, pages * PAGE_BYTES)
        self._lent[first] = loan
        fill(loan.address, 0, pages * PAGE_BYTES)
        return range(first, first + pages)

    def _covered(self, loan: _Loan, pages: int) -> Sequence[int]:
        """Frames of the shared memory, which are seen in the lent one as far as its pages can be replaced."""
        memory = self._channel.memory
        frames = memory.allocate(pages)
        covered = 0
        for first, count in runs_of(frames):
            length = count * PAGE_BYTES
            if map_pages(loan.address + covered, length, memory.fd, first * PAGE_BYTES):
                break
            covered += length
        if covered < pages * PAGE_BYTES and covered and _own_pages(loan.address, covered):
            covered = 0  # all of it or nothing
        self._lent[frames[0]] = loan._replace(covered=covered)
        return frames

    def give_back(self, frames: Sequence[int]) -> bool:
        """Let an allocator free what ``frames`` stand in; False: they are none of these."""
        loan = self._lent.pop(frames[0], None) if frames else None
        if loan is None:
            return False
        memory = self._channel.memory
        if self._channel.shares_addresses:
            memory.detach(frames[0])
            loan.end()
        else:
            loan.end()
            memory.free(frames)
        return True

    def _drop(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_ending():  # modules are cleared then
            return
        # What the collector finalizes may be brought back and be closed afterwards.
        self._end = AtLast(partial(_end_all, self._lent))

    __del__ = deferred_signals.finalizer(_drop)


def _require_writable(address: int, length: int) -> None:
    """OSError EINVAL: it is not whole pages, or some are not there to be written."""
    if address % PAGE_BYTES or address + length > 1 << 64:
        raise OSError(errno.EINVAL, f"{address:#x} is not aligned to {PAGE_BYTES} bytes")
    for page in range(address, address + length, PAGE_BYTES):
        if write_process(os.getpid(), page, ctypes.addressof(_ZERO), 1) == -errno.EFAULT:
            raise OSError(errno.EINVAL, f"nothing can be written at {page:#x}")


def _own_pages(address: int, length: int) -> bool:
    """Put empty pages of the program's own in place of what is mapped there."""
    try:
        empty = os.memfd_create("softhca-returned", os.MFD_CLOEXEC)
    except OSError:
        return False
    try:
        os.ftruncate(empty, length)
        return not map_private(address, length, empty, 0)
    except OSError:
        return False
    finally:
        os.close(empty)
