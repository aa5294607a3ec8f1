"""A program's memory in a world: regions with different rights, and guard bytes around every buffer.

Buffers are reserved first, then `freeze` lays the memory out: a page of guard bytes, the regions one behind
the other with a page between them, and another page.  Addresses that requests name are of the world's own.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from softhca.simulation.oracle import GUARD, UNTOUCHED

PAGE_BYTES = 4096
GAP_BYTES = 64
ATOMIC_BYTES = 8
BASE_VA = 0x7F00_1000_0000

OPEN, PRIVATE, READ_ONLY, FOREIGN, REVOKED, LENT = (
    "open", "private", "read-only", "foreign", "revoked", "lent",
)  # fmt: skip
RIGHTS = {OPEN: 15, PRIVATE: 1, READ_ONLY: 4, FOREIGN: 15, REVOKED: 15, LENT: 15}
"""ibv_access_flags of each region: LOCAL_WRITE 1, REMOTE_WRITE 2, REMOTE_READ 4, REMOTE_ATOMIC 8.

``private`` may only be used by its owner, ``read-only`` not even be written by him; ``foreign`` lies in
another protection domain, ``revoked`` is deregistered before anything is sent, and ``lent`` may be while it
is used.
"""


class Buffer(NamedTuple):
    """``length`` bytes at ``offset`` of the region of that name."""

    offset: int
    length: int
    region: str = OPEN


class Region:
    """A registered range: ``start`` in the arena's memory, ``length``, ``va``; the keys come later."""

    def __init__(self, name: str, va: int) -> None:
        self.name = name
        self.va = va
        self.start = 0
        self.length = GAP_BYTES
        self.lkey = 0
        self.rkey = 0
        self.handle = 0


class Arena:
    """The memory of one program's host."""

    def __init__(self, number: int, dice: random.Random) -> None:
        self.memory = bytearray()
        self.regions = {
            name: Region(name, BASE_VA * number + (at << 36) + dice.randrange(PAGE_BYTES // 8) * 8)
            for at, name in enumerate(RIGHTS)
        }
        self._dice = dice
        self._buffers: list[tuple[Buffer, bytes]] = []

    def reserve(
        self, length: int, content: bytes | None = None, aligned: bool = False, region: str = OPEN
    ) -> Buffer:
        """A buffer that begins with ``content``, or untouched."""
        place = self.regions[region]
        start = place.length + (0 if aligned else self._dice.randrange(8))
        start += -start % ATOMIC_BYTES if aligned else 0
        buffer = Buffer(start, length, region)
        self._buffers.append((buffer, bytes([UNTOUCHED]) * length if content is None else content))
        place.length = start + length + GAP_BYTES
        return buffer

    def freeze(self) -> None:
        """Make the memory."""
        end = PAGE_BYTES
        for region in self.regions.values():
            # a region may begin anywhere in its page, as its address says
            region.start = end + (region.va - end) % 8
            end = region.start + region.length + PAGE_BYTES
        self.memory = bytearray([GUARD]) * end
        for buffer, content in self._buffers:
            at = self.at(buffer)
            self.memory[at : at + buffer.length] = content

    def at(self, buffer: Buffer) -> int:
        """Where a buffer begins in ``memory``."""
        return self.regions[buffer.region].start + buffer.offset

    def va(self, buffer: Buffer) -> int:
        """The address of a buffer in requests."""
        return self.regions[buffer.region].va + buffer.offset

    def read(self, buffer: Buffer, length: int | None = None) -> bytes:
        """What stands in a buffer, or in its first ``length`` bytes."""
        at = self.at(buffer)
        return bytes(self.memory[at : at + (buffer.length if length is None else length)])

    def untouched_from(self, buffer: Buffer, start: int) -> bool:
        """Whether nothing was written behind the first ``start`` bytes of a buffer that began untouched."""
        rest = self.read(buffer)[start:]
        return rest.count(UNTOUCHED) == len(rest)

    def places(self) -> list[tuple[int, int]]:
        """Offset in ``memory`` and length of every buffer."""
        return [(self.at(buffer), buffer.length) for buffer, _ in self._buffers]
