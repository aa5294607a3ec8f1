"""Rings in memory that the program's own allocators give: those of a parent domain.

A device asks such allocators for what it keeps in the program's memory.  Rings are that where the adapter is
embedded; an adapter process reaches rings in shared memory alone, so that no allocator is asked there.  What
was lent is given back when its queue is destroyed, and else (the device has died, or a creation was
interrupted) not before the device is closed and the last handle has gone: no thread can look at it then.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from softhca.driver.errors import DriverError, refusal
from softhca.machine.primitives import fill
from softhca.memory.bits import PAGE_BYTES

if TYPE_CHECKING:
    from softhca.driver.channels import HostChannel

QP_RING = 1
SRQ_RING = 4
CQ_RING = 5
USE_DEFAULT = (1 << 64) - 1
"""What an allocator gives that leaves it to the device."""


class RingAllocator(Protocol):
    """What a program allocates rings with.  ``kind`` is one of the numbers above."""

    def allocate(self, length: int, alignment: int, kind: int) -> int:
        """The address of so much memory; 0: there is none; `USE_DEFAULT`."""

    def free(self, address: int, kind: int) -> None:
        """Give it back."""


class LentRings:
    """The rings of one attachment that stand in lent memory."""

    def __init__(self, channel: HostChannel) -> None:
        self._channel = channel
        self._lent: dict[int, tuple[int, int, RingAllocator]] = {}  # by first frame

    def reserve(self, allocator: RingAllocator, pages: int, kind: int) -> Sequence[int] | None:
        """Frames of a ring in memory of ``allocator``, zero-filled; None: the device has to find some.

        DriverError: ENOMEM where it gives none, EINVAL for what cannot hold pages.
        """
        if not self._channel.shares_addresses:
            return None
        length = pages * PAGE_BYTES
        address = allocator.allocate(length, PAGE_BYTES, kind)
        if address == USE_DEFAULT:
            return None
        if not address:
            raise DriverError(errno.ENOMEM, f"the allocator gives no {length} bytes")
        try:
            if address % PAGE_BYTES:
                raise OSError(errno.EINVAL, f"{address:#x} is not aligned to {PAGE_BYTES} bytes")
            first, _ = self._channel.memory.attach_address(address, length)
        except OSError as error:
            allocator.free(address, kind)
            raise refusal(error, "a ring in the allocator's memory") from None
        self._lent[first] = (address, kind, allocator)
        fill(address, 0, length)
        return range(first, first + pages)

    def give_back(self, frames: Sequence[int]) -> bool:
        """Let an allocator free what ``frames`` stand in; False: they are none of these."""
        found = self._lent.pop(frames[0], None) if frames else None
        if found is None:
            return False
        self._channel.memory.detach(frames[0])
        address, kind, allocator = found
        allocator.free(address, kind)
        return True

    def __del__(self) -> None:
        while self._lent:
            _, (address, kind, allocator) = self._lent.popitem()
            allocator.free(address, kind)
