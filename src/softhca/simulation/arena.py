"""A program's memory in a world: regions with different rights, and guard bytes around every buffer.

Buffers are reserved first, then `freeze` lays the memory out: a page of guard bytes, the regions one behind
the other with a page between them, and another page.  Addresses that requests name are of the world's own.
"""

from __future__ import annotations

import itertools
import random
from typing import NamedTuple

from softhca.simulation.oracle import GUARD, UNTOUCHED
from softhca.simulation.pageable import Pageable

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
    """``length`` bytes of the region of that name: at ``offset``, or scattered as ``pieces``, each an
    offset and a length, in the order of the bytes.
    """

    offset: int
    length: int
    region: str = OPEN
    pieces: tuple[tuple[int, int], ...] = ()


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
    """The memory of one program's host.  ``pageable``, when there is one, is where the open region is."""

    def __init__(self, number: int, dice: random.Random) -> None:
        self.memory = bytearray()
        self.regions = {
            name: Region(name, BASE_VA * number + (at << 36) + dice.randrange(PAGE_BYTES // 8) * 8)
            for at, name in enumerate(RIGHTS)
        }
        self.pageable: Pageable | None = None
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

    def scatter(self, length: int, parts: int, content: bytes | None = None, region: str = OPEN) -> Buffer:
        """The same in so many pieces, which lie anyhow to each other."""
        if parts == 1 or length < parts:
            return self.reserve(length, content, region=region)
        cuts = [0, *sorted(self._dice.sample(range(1, length), parts - 1)), length]
        spans = list(itertools.pairwise(cuts))
        places: dict[int, tuple[int, int]] = {}
        for start, end in self._dice.sample(spans, parts):
            piece = self.reserve(end - start, content and content[start:end], region=region)
            places[start] = piece.offset, piece.length
        pieces = tuple(places[start] for start, _ in spans)
        return Buffer(pieces[0][0], length, region, pieces)

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

    def make_pageable(self, on_demand: bool) -> Pageable:
        """Put the open region, as `freeze` has laid it out, into pageable memory."""
        region = self.regions[OPEN]
        content = bytes(self.memory[region.start : region.start + region.length])
        self.pageable = Pageable(content, RIGHTS[OPEN], on_demand)
        return self.pageable

    def collect(self) -> None:
        """Bring what stands in pageable memory to its place in ``memory``."""
        if self.pageable is not None:
            region = self.regions[OPEN]
            content = self.pageable.read(0, region.length)
            self.memory[region.start : region.start + region.length] = content

    def at(self, buffer: Buffer) -> int:
        """Where a buffer that is not scattered begins in ``memory``."""
        return self.regions[buffer.region].start + buffer.offset

    def va(self, buffer: Buffer) -> int:
        """The address of a buffer in requests."""
        return self.regions[buffer.region].va + buffer.offset

    def read(self, buffer: Buffer, length: int | None = None) -> bytes:
        """What stands in a buffer, or in its first ``length`` bytes."""
        length = buffer.length if length is None else length
        if buffer.pieces:
            spans = (self._read(buffer.region, at, size) for at, size in buffer.pieces)
            return b"".join(spans)[:length]
        return self._read(buffer.region, buffer.offset, length)

    def _read(self, name: str, offset: int, length: int) -> bytes:
        if name == OPEN and self.pageable is not None:
            return self.pageable.read(offset, length)
        at = self.regions[name].start + offset
        return bytes(self.memory[at : at + length])

    def untouched_from(self, buffer: Buffer, start: int) -> bool:
        """Whether nothing was written behind the first ``start`` bytes of a buffer that began untouched."""
        rest = self.read(buffer)[start:]
        return rest.count(UNTOUCHED) == len(rest)

    def places(self) -> list[tuple[int, int]]:
        """Offset in ``memory`` and length of every buffer."""
        return [(self.at(buffer), buffer.length) for buffer, _ in self._buffers]
