"""A host's memory in a world: buffers at addresses of the world's own, guard bytes around each of them."""

from __future__ import annotations

import random
from typing import NamedTuple

from softhca.simulation.oracle import GUARD, UNTOUCHED

OUTSIDE_BYTES = 4096
GAP_BYTES = 64
ATOMIC_BYTES = 8
BASE_VA = 0x1000_0000


class Buffer(NamedTuple):
    """``length`` bytes at ``offset`` of the registered window."""

    offset: int
    length: int


class Arena:
    """Buffers are reserved first, then `freeze` lays the memory out: a page of guard bytes, the window that
    is registered (at any alignment), and another page.  ``va`` is the window's address in requests.
    """

    def __init__(self, number: int, dice: random.Random) -> None:
        self.va = BASE_VA * number
        self.outside = OUTSIDE_BYTES + dice.randrange(64) * 8
        self.window_bytes = GAP_BYTES
        self.memory = bytearray()
        self._dice = dice
        self._buffers: list[tuple[Buffer, bytes]] = []

    def reserve(self, length: int, content: bytes | None = None, aligned: bool = False) -> Buffer:
        """A buffer that begins with ``content``, or untouched."""
        start = self.window_bytes + (0 if aligned else self._dice.randrange(8))
        start += -start % ATOMIC_BYTES if aligned else 0
        buffer = Buffer(start, length)
        self._buffers.append((buffer, bytes([UNTOUCHED]) * length if content is None else content))
        self.window_bytes = start + length + GAP_BYTES
        return buffer

    def freeze(self) -> None:
        """Make the memory."""
        self.memory = bytearray([GUARD]) * (self.outside + self.window_bytes + OUTSIDE_BYTES)
        for buffer, content in self._buffers:
            self.memory[self._at(buffer) : self._at(buffer) + buffer.length] = content

    def _at(self, buffer: Buffer) -> int:
        return self.outside + buffer.offset

    def read(self, buffer: Buffer, length: int | None = None) -> bytes:
        """What stands in a buffer, or in its first ``length`` bytes."""
        length = buffer.length if length is None else length
        return bytes(self.memory[self._at(buffer) : self._at(buffer) + length])

    def untouched_from(self, buffer: Buffer, start: int) -> bool:
        """Whether nothing was written behind the first ``start`` bytes of a buffer that began untouched."""
        rest = self.read(buffer)[start:]
        return rest.count(UNTOUCHED) == len(rest)

    def places(self) -> list[tuple[int, int]]:
        """Offset in ``memory`` and length of every buffer."""
        return [(self._at(buffer), buffer.length) for buffer, _ in self._buffers]
