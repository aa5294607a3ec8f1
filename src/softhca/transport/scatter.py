"""The local buffers of one work request: its scatter/gather list with every key looked up once."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from softhca.memory.regions import Region, RegionTable
    from softhca.queues.wqe import Work

_EACCES = cython.declare(cython.int, errno.EACCES)
_EFAULT = cython.declare(cython.int, errno.EFAULT)
_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFF)


class BufferList:
    """Byte ranges of memory regions that together are one message; made once, used for one request after
    another.

    ``capacity`` elements at most; ``total_bytes`` of the message that was resolved last, 0 where it failed.
    The element used last is kept here: ``index``, ``start`` in the message, ``va``, ``length``, ``region``
    and the region's ``generation``.  Where it is the only one nothing else is touched; of more the regions
    are in ``regions`` and the generations in the notes of the ``entry``.
    """

    entry: Work
    region: Region

    def __init__(self, capacity: int) -> None:
        self.entry = None
        self.regions: list[Region] = [None] * capacity if capacity > 1 else None
        self.region = None
        self.generation = 0
        self.total_bytes = 0
        self.index = 0
        self.start = 0
        self.va = 0
        self.length = 0

    def resolve(self, work: Work, table: RegionTable, pd: int, access: int) -> bool:
        """Look up the keys of ``work``'s elements; False when one does not give ``pd`` the right to all
        its bytes.

        The key of an element without bytes is not looked at, for nothing is accessed.
        """
        i: cython.uint
        word: cython.ulonglong
        total: cython.ulonglong = 0
        place: cython.uint = work.first
        self.entry = work
        self.total_bytes = 0
        self.index = 0
        self.start = 0
        for i in range(work.num_sge):
            word = work.longs[place + 1]
            self.va = work.longs[place]
            self.length = word & _WORD
            place += 2
            if self.length == 0:
                continue
            self.region = table.find(word >> 32, pd, self.va, self.length, access)
            if self.region is None:
                return False
            self.generation = self.region.generation
            total += self.length
            if work.num_sge > 1:
                self.regions[i] = self.region
                work.longs[work.notes + i] = self.generation
        if work.num_sge > 1:
            self.turn_to(0, 0)
        self.total_bytes = total
        return True

    def turn_to(self, i: int, start: int) -> None:
        """Let element ``i`` of several, which begins at ``start`` of the message, be the one that is used."""
        place: cython.uint = self.entry.first + 2 * i
        self.index = i
        self.start = start
        self.va = self.entry.longs[place]
        self.length = self.entry.longs[place + 1] & _WORD
        self.region = self.regions[i]
        self.generation = self.entry.longs[self.entry.notes + i]

    def gather(self, offset: int, n: int, address: int) -> int:
        """Copy ``n`` bytes from ``offset`` of the message to ``address``; 0 or −errno."""
        return self.move(offset, n, address, False)

    def scatter(self, offset: int, n: int, address: int) -> int:
        """Copy ``n`` bytes from ``address`` to ``offset`` of the message; 0 or −errno."""
        return self.move(offset, n, address, True)

    def move(self, offset: int, n: int, address: int, writing: bool) -> int:
        """Walk from the element used last, as packets come in order; an earlier offset starts from the
        front."""
        within: cython.ulonglong
        piece: cython.ulonglong
        result: cython.int
        if n > self.total_bytes or offset > self.total_bytes - n:
            return -_EFAULT
        if offset < self.start:
            self.turn_to(0, 0)
        while n:
            while offset >= self.start + self.length:
                self.turn_to(self.index + 1, self.start + self.length)
            within = offset - self.start
            piece = self.length - within
            if piece > n:
                piece = n
            if self.region.generation != self.generation:
                return -_EACCES
            if writing:
                result = self.region.write(self.va + within, address, piece)
            else:
                result = self.region.read(self.va + within, address, piece)
            if result:
                return result
            offset += piece
            address += piece
            n -= piece
        return 0
