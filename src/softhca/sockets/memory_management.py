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
from collections.abc import Iterator

from softhca.memory.bits import PAGE_BYTES
from softhca.sockets.protocol import Notification, ProtocolError

NOTIFICATIONS = 64
"""Notifications of data that the peer may have under way, or here and not yet told as taken."""

Piece = tuple[int, int]
"""Offset in the pool, and length."""


def pieces(position: int, length: int, pool_bytes: int) -> list[Piece]:
    """The one or two places of ``length`` bytes from ``position`` on."""
    offset = position & (pool_bytes - 1)
    first = min(length, pool_bytes - offset)
    return [(offset, first)] if first == length else [(offset, first), (0, length - first)]


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

    @property
    def head(self) -> int:
        """The oldest position that is not done with."""
        if self._held:
            return next(iter(self._held))
        return self._segments[0][0] if self._segments else self.tail

    @property
    def free(self) -> int:
        """Bytes that the peer may write, once it is told."""
        return self.length - (self.tail - self.head)

    @property
    def held(self) -> int:
        """Bytes that the application holds."""
        return sum(end - start for start, end in self._held.items())

    def arrived(self, said: Notification) -> None:
        """The peer has written ``said.length`` bytes.  `ProtocolError` where it had no room for them, as it
        was told, and then nothing changes.
        """
        start = self.tail
        if said.aligned:
            start += -start % PAGE_BYTES
        if start + said.length - self._told_head > self.length:
            raise ProtocolError(f"{said.length} bytes, of {self.length - self.tail + self._told_head} free")
        if self.notifications + 1 - self._told_notifications > NOTIFICATIONS:
            raise ProtocolError("more notifications than were granted")
        self.tail = start + said.length
        self.notifications += 1
        self.available += said.length
        last = self._segments[-1] if self._segments else None
        if last is not None and last[1] == start:
            last[1] = self.tail
        else:
            self._segments.append([start, self.tail])

    def look(self, length: int) -> Iterator[Piece]:
        """The places of the next ``length`` bytes, or of what there is."""
        for start, end in self._segments:
            if not length:
                return
            taken = min(length, end - start)
            yield from pieces(start, taken, self.length)
            length -= taken

    def take(self, length: int) -> None:
        """The next ``length`` bytes, which are there, are done with."""
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
        run = self.run(length)
        if run is None or run[0] % PAGE_BYTES or run[1] < PAGE_BYTES:
            return None
        return run[0], run[1] // PAGE_BYTES * PAGE_BYTES

    def run(self, length: int) -> Piece | None:
        """The longest run among the next ``length`` bytes that does not wrap; None where there is none."""
        return next(self.look(length), None)

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

    def credit(self, anyhow: bool = False) -> tuple[int, int] | None:
        """What to write into the peer's record B, where there is enough to tell, or anything and ``anyhow``;
        it counts as told.
        """
        head, count = self.head, self.notifications
        bytes_since, since = head - self._told_head, count - self._told_notifications
        enough = bytes_since >= self.length // 4 or since >= NOTIFICATIONS // 4
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
        self._done = 0

    @property
    def free(self) -> int:
        """Bytes that may be written."""
        return self.length - (self.tail - self.head)

    def room(self, aligned: bool = False) -> int:
        """Bytes that one notification may tell of now, from the next page on where ``aligned``."""
        if self.notifications - self._done >= NOTIFICATIONS:
            return 0
        return max(self.free - (-self.tail % PAGE_BYTES if aligned else 0), 0)

    def reserve(self, length: int, aligned: bool = False) -> list[Piece]:
        """Take ``length`` bytes, for which there is `room`: where they go."""
        if aligned:
            self.tail += -self.tail % PAGE_BYTES
        found = pieces(self.tail, length, self.length)
        self.tail += length
        self.notifications += 1
        return found

    def credited(self, head: int, notifications: int) -> None:
        """The peer has done with everything before ``head``.  `ProtocolError` where it goes back, or beyond
        what was written, and then nothing changes.
        """
        if not self.head <= head <= self.tail or not self._done <= notifications <= self.notifications:
            raise ProtocolError(f"credit for {head} of {self.tail} bytes, {notifications} notifications")
        self.head, self._done = head, notifications
