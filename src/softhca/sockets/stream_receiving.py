"""What a stream has received: the pool, its account, and what the application holds of it."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import cython

from softhca.machine.primitives import address_of, bytes_at, copy
from softhca.memory.bits import OFFSET_MASK
from softhca.sockets.behind_pool import BehindPool
from softhca.sockets.memory_management import RecordA
from softhca.sockets.memory_processing import PageBuffer, Pool
from softhca.sockets.settings import Settings


class Mapped(NamedTuple):
    """Pages of the pool that a buffer has: ``size`` bytes from ``offset`` of the pool on are at ``place`` of
    the buffer, which is ``address``.  ``released`` is what the buffer calls when it has them no more;
    ``leave`` gives them back as the socket ends.
    """

    buffer: weakref.ref[PageBuffer]
    place: int
    offset: int
    size: int
    address: int
    released: Callable[[], object]
    leave: Callable[[], object]


class Receiver:
    """All methods are called with the stream's lock held, but `release`, which is what gives pages back.

    ``copied_bytes`` and ``mapped_bytes`` count what receives have copied and mapped, ``lent_bytes`` what
    views were given of.  ``given_back`` are the positions that the application has done with.
    """

    own: RecordA

    def __init__(self, pool: Pool, settings: Settings, release: Callable[[int], object]) -> None:
        self.pool = pool
        self.behind = BehindPool(pool.address + pool.length)
        self.copied_bytes = self.mapped_bytes = self.lent_bytes = 0
        self.given_back: deque[int] = deque()
        self._release = release
        self._mapping = settings.mapping
        self._threshold = settings.threshold_bytes
        self._mapped: dict[int, Mapped] = {}
        self._relieving = False

    def take_bytes(self, length: int, peek: bool) -> bytes:
        """A copy of up to ``length`` bytes."""
        base: cython.ulonglong = self.pool.address
        own: RecordA = self.own
        length = min(length, own.available)
        parts = [bytes_at(base + offset, size) for offset, size in own.look(length)]
        if not peek:
            self.copied_bytes += length
            own.take(length)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def take_into(self, view: memoryview, peek: bool) -> int:
        """Copy into ``view``; into a `PageBuffer` above the threshold: map.  What is mapped there is given
        back.  OSError where the buffer cannot have its own pages again, and nothing is taken.
        """
        target: cython.ulonglong
        base: cython.ulonglong
        own: RecordA = self.own
        length: cython.ulonglong = min(view.nbytes, own.available)
        if isinstance(view.obj, PageBuffer):
            if length > self._threshold and self._mapping and not peek:
                mapped = self._map(view, length)
                if mapped:
                    return mapped
            view.obj.give_back(view)
        target, base = address_of(view), self.pool.address
        for offset, size in own.look(length):
            copy(target, base + offset, size)
            target += size
        if not peek:
            self.copied_bytes += length
            own.take(length)
        return length

    def _map(self, view: memoryview, length: int) -> int:
        """Map whole pages onto the buffer that ``view`` is of; 0 where that cannot be.

        Where just as many are mapped there, and nothing else, these take their place: to give those back
        first would be a second change of the page table.
        """
        buffer = view.obj
        assert isinstance(buffer, PageBuffer)
        own: RecordA = self.own
        address = address_of(view)
        found = own.whole_pages(length)
        if found is None or address & OFFSET_MASK:
            return 0
        offset, size = found
        place = buffer.offset_of(address)
        most = self._mappable()
        former = buffer.replaceable(place, view.nbytes)
        if former and former != min(size, most):
            buffer.give_back(view)
            self.reclaim()
            most = self._mappable()
        size = min(size, most)
        if size <= self._threshold:
            return 0
        if self.pool.map(offset, size, address):
            return 0
        position = own.hold(size)
        released = partial(self.pool.returned, partial(self._release, position))
        leave = buffer.mapped(place, size, released)
        self._mapped[position] = Mapped(weakref.ref(buffer), place, offset, size, address, released, leave)
        self.mapped_bytes += size
        return size

    def _mappable(self) -> int:
        """How many bytes more the application may hold mapped: half of the pool in all, whole pages."""
        return (self.pool.length // 2 - self.own.held) & ~OFFSET_MASK

    def relieve(self) -> None:
        """Where pages that a buffer has keep room from the sender that the application has done with behind
        them, the buffer keeps copies: who goes on receiving elsewhere would wait for ever.
        """
        if self._relieving:
            return  # what is given back here calls it
        self._relieving = True
        try:
            while (position := self.own.holds_up()) is not None and (found := self._mapped.get(position)):
                buffer = found.buffer()  # kept: its memory stays
                copied = partial(self.pool.copy_mapped, found.offset, found.size, found.address)
                if buffer is None or not buffer.copy_mapped(found.place, found.released, copied):
                    return
                self.copied_bytes += found.size
                self.reclaim()
        finally:
            self._relieving = False

    def take_view(self, length: int) -> memoryview:
        """A view of the pool itself; its room is the sender's again when it is released."""
        own: RecordA = self.own
        found = own.run(min(length, own.available))
        assert found is not None
        position = own.hold(found[1])
        self.lent_bytes += found[1]
        return self.pool.lend(found[0], found[1], partial(self._release, position))

    def reclaim(self) -> bool:
        """Account for what was given back; whether anything was."""
        found = False
        while self.given_back:
            position = self.given_back.popleft()
            self._mapped.pop(position, None)
            self.own.release(position)
            found = True
        return found

    def mappings(self) -> list[Callable[[], object]]:
        """What undoes each mapping that there is."""
        return [each.leave for each in self._mapped.values()]
