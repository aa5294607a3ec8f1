"""The memory management module: record A, record B and the ring of the pool.  No memory is touched here.

Each side of a stream has a *pool* into which its peer writes.  Record A is the owner's account of it, record
B the writer's account of the peer's pool.  Positions count bytes since the beginning of the stream, so that
the place in the pool is the position modulo its length, and a position never means two things.

    0 ……… head ═══════ tail ……… head + length
          oldest byte   next byte to be written
          that is used

``free`` is length − (tail − head).  The writer moves the tail of its record B and takes from the free length
as it posts; the owner moves the tail of record A as notifications arrive, and its head as the application has
done with bytes, in the order of the ring: a page that the application holds keeps everything behind it.
What the owner has done with is written into the writer's record B, which moves that one's head.
"""

from __future__ import annotations

from collections import deque

import cython

from softhca.memory.bits import OFFSET_MASK, PAGE_BYTES
from softhca.sockets.protocol import ProtocolError

NOTIFICATIONS = 64
"""Notifications of data that the peer may have under way, or here and not yet told as taken."""

_NOTIFICATIONS = cython.declare(cython.ulonglong, NOTIFICATIONS)
_PAGE = cython.declare(cython.ulonglong, PAGE_BYTES)
_OFFSET = cython.declare(cython.ulonglong, OFFSET_MASK)

Piece = tuple[int, int]
"""Offset in the pool, and length."""


def pieces(position: int, length: int, pool_bytes: int) -> list[Piece]:
    """The one or two places of ``length`` bytes from ``position`` on."""
    offset: cython.ulonglong = position & (pool_bytes - 1)
    first: cython.ulonglong = pool_bytes - offset
    if length <= first:
        return [(offset, length)]
    return [(offset, first), (0, length - first)]


def _to_page(position: int) -> int:
    """How far it is to the next page."""
    return (_PAGE - (position & _OFFSET)) & _OFFSET


class RecordA:
    """The owner's account of its pool of ``length`` bytes (a power of two)."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.tail = 0
        self.notifications = 0
        self.available = 0
        self._segments: deque[list[int]] = deque()
        self._held: dict[int, int] = {}
        self._told_head = 0
        self._told_notifications = 0

    def head(self) -> int:
        """The oldest position that is not done with."""
        if self._held:
            return next(iter(self._held))
        return self._segments[0][0] if self._segments else self.tail

    @property
    def free(self) -> int:
        """Bytes that the peer may write, once it is told."""
        return self.length - (self.tail - self.head())

    @property
    def held(self) -> int:
        """Bytes that the application holds."""
        return sum([end - start for start, end in self._held.items()])

    def arrived(self, length: int, aligned: bool = False) -> None:
        """The peer has written ``length`` bytes, from the next page on where ``aligned``.  `ProtocolError`
        where it had no room for them, as it was told, and then nothing changes.
        """
        start: cython.ulonglong = self.tail
        last: list[int]
        if aligned:
            start += _to_page(start)
        if start + length - self._told_head > self.length:
            raise ProtocolError(f"{length} bytes, of {self.length - self.tail + self._told_head} free")
        if self.notifications + 1 - self._told_notifications > _NOTIFICATIONS:
            raise ProtocolError("more notifications than were granted")
        self.tail = start + length
        self.notifications += 1
        self.available += length
        if self._segments:
            last = self._segments[len(self._segments) - 1]
            if last[1] == start:
                last[1] = self.tail
                return
        self._segments.append([start, self.tail])

    def look(self, length: int) -> list[Piece]:
        """The places of the next ``length`` bytes, or of what there is."""
        found: list[Piece] = []
        taken: cython.ulonglong
        for start, end in self._segments:
            if not length:
                break
            taken = min(length, end - start)
            found += pieces(start, taken, self.length)
            length -= taken
        return found

    def take(self, length: int) -> None:
        """The next ``length`` bytes, which are there, are done with."""
        taken: cython.ulonglong
        first: list[int]
        self.available -= length
        while length:
            first = self._segments[0]
            taken = min(length, first[1] - first[0])
            first[0] += taken
            length -= taken
            if first[0] == first[1]:
                self._segments.popleft()

    def whole_pages(self, length: int) -> Piece | None:
        """The longest run of whole pages among the next ``length`` bytes that begins with the next byte and
        does not wrap; None where the next byte does not begin a page, or no page is whole.
        """
        offset: cython.ulonglong
        size: cython.ulonglong
        run = self.run(length)
        if run is None:
            return None
        offset, size = run
        if offset & _OFFSET or size < _PAGE:
            return None
        return offset, size - (size & _OFFSET)

    def run(self, length: int) -> Piece | None:
        """The longest run among the next ``length`` bytes that does not wrap; None where there is none."""
        if not self._segments or not length:
            return None
        start, end = self._segments[0]
        offset: cython.ulonglong = start & (self.length - 1)
        return offset, min(length, end - start, self.length - offset)

    def hold(self, length: int) -> int:
        """As `take` of a run, but the application keeps the bytes until it releases the position that is
        returned.
        """
        position = self._segments[0][0]
        self._held[position] = position + length
        self.take(length)
        return position

    def release(self, position: int) -> None:
        """The application has done with what it holds there."""
        del self._held[position]

    def holds_up(self) -> int | None:
        """The oldest position that the application holds, where a quarter of the pool or more has been read
        since and cannot be the writer's again before it is released; None where that is not so.
        """
        if not self._held:
            return None
        head: cython.ulonglong = self.head()
        kept: cython.ulonglong = self.tail - head - self.available
        for start, end in self._held.items():
            kept -= end - start
        return head if kept >= self.length >> 2 else None

    def credit(self, anyhow: bool = False) -> tuple[int, int] | None:
        """What to write into the peer's record B, where there is enough to tell, or anything and ``anyhow``;
        it counts as told.
        """
        head: cython.ulonglong = self.head()
        count: cython.ulonglong = self.notifications
        bytes_since: cython.ulonglong = head - self._told_head
        since: cython.ulonglong = count - self._told_notifications
        enough: cython.bint = bytes_since >= self.length // 4 or since >= _NOTIFICATIONS // 4
        if not (enough or (anyhow and (bytes_since or since))):
            return None
        self._told_head, self._told_notifications = head, count
        return head, count


class RecordB:
    """The writer's account of the peer's pool: at ``address``, ``length`` bytes, under ``rkey``."""

    def __init__(self, address: int, length: int, rkey: int) -> None:
        self.address = address
        self.length = length
        self.rkey = rkey
        self.head = 0
        self.tail = 0
        self.notifications = 0
        self.done = 0

    @property
    def free(self) -> int:
        """Bytes that may be written."""
        return self.length - (self.tail - self.head)

    def room(self, aligned: bool = False) -> int:
        """Bytes that one notification may tell of now, from the next page on where ``aligned``."""
        if self.unanswered() >= _NOTIFICATIONS:
            return 0
        free: cython.ulonglong = self.length - (self.tail - self.head)
        skipped: cython.ulonglong = _to_page(self.tail) if aligned else 0
        return free - skipped if free > skipped else 0

    def unanswered(self) -> int:
        """Notifications that the peer has not told as taken."""
        return self.notifications - self.done

    @property
    def presses(self) -> bool:
        """Whether so many notifications are not answered that the peer should say soon what it has taken."""
        return self.unanswered() >= _NOTIFICATIONS // 4

    def reserve(self, length: int, aligned: bool = False) -> list[Piece]:
        """Take ``length`` bytes, for which there is `room`: where they go."""
        if aligned:
            self.tail += _to_page(self.tail)
        found = pieces(self.tail, length, self.length)
        self.tail += length
        self.notifications += 1
        return found

    def credited(self, head: int, notifications: int) -> None:
        """The peer has done with everything before ``head``.  `ProtocolError` where it goes back, or beyond
        what was written, and then nothing changes.
        """
        if not self.head <= head <= self.tail or not self.done <= notifications <= self.notifications:
            raise ProtocolError(f"credit for {head} of {self.tail} bytes, {notifications} notifications")
        self.head, self.done = head, notifications
