"""What may be heard of a peer: oracles for the bytes of streams, messages and datagrams.

They know the peer's operations by its seed (`chaos_script.Direction`), and no process, socket or clock.
"""

from __future__ import annotations

import struct

from chaos_script import SEND, Direction, Operation, mixed

_HEADER = struct.Struct(">QQ")
HEADER_BYTES = _HEADER.size


def carried(operation: Operation, pool: bytes) -> bytes:
    """The bytes of an operation."""
    return pool[operation.pool_offset : operation.pool_offset + operation.length]


class Stream:
    """A stream of bytes: those of the peer's operations, one behind the other.

    ``whole``: so many operations have arrived whole; ``touched``: the last one of which a byte has arrived.
    """

    def __init__(self, peer: Direction, pool: bytes) -> None:
        self.peer = peer
        self.pool = pool
        self.whole = self.touched = 0
        self._expected = bytearray()
        self._ends: list[int] = []
        self._position = self._generated = 0

    def hear(self, data: bytes) -> str:
        """What has arrived next; what is wrong with it, or nothing."""
        while len(self._expected) < len(data):
            self.touched += 1
            more = carried(self.peer.operation(self.touched), self.pool)
            self._expected += more
            self._generated += len(more)
            self._ends.append(self._generated)
        wrong = ""
        if data != self._expected[: len(data)]:
            place = next(i for i in range(len(data)) if data[i] != self._expected[i])
            wrong = f"byte {self._position + place} of the stream is another one ({len(data)} came at once)"
        del self._expected[: len(data)]
        self._position += len(data)
        while self._ends and self._ends[0] <= self._position:
            del self._ends[0]
            self.whole += 1
        return wrong


class Messages:
    """Messages that come whole, once and in order: the peer's SENDs."""

    def __init__(self, peer: Direction, pool: bytes) -> None:
        self.peer = peer
        self.pool = pool
        self.whole = self.touched = 0

    def hear(self, data: bytes) -> str:
        """The next message."""
        self.touched += 1
        while (operation := self.peer.operation(self.touched)).kind != SEND:
            self.touched += 1
        self.whole = self.touched
        if data == carried(operation, self.pool):
            return ""
        return f"the message of operation {self.touched} has other bytes ({len(data)})"


class Numbered:
    """Messages that come whole, at most once, or not at all; ``ordered``: none behind a later one.  Each
    begins with its number, in front of its bytes."""

    def __init__(self, peer: Direction, pool: bytes, ordered: bool) -> None:
        self.peer = peer
        self.pool = pool
        self.ordered = ordered
        self.whole = self.touched = 0
        self._heard: set[int] = set()

    @staticmethod
    def message(direction: Direction, n: int, pool: bytes) -> bytes:
        """Message ``n`` of a direction."""
        return _HEADER.pack(n, mixed(direction.seed ^ n << 1)) + carried(direction.operation(n), pool)

    def hear(self, data: bytes) -> str:
        """A message; ``whole`` counts them."""
        if len(data) < HEADER_BYTES:
            return f"a message of {len(data)} bytes"
        n = _HEADER.unpack_from(data)[0]
        if not 0 < n < 1 << 40 or data != self.message(self.peer, n, self.pool):
            return f"a message that says it is {n} has other bytes ({len(data)})"
        if n in self._heard:
            return f"message {n} came twice"
        if self.ordered and n <= self.touched:
            return f"message {n} came behind {self.touched}"
        self._heard.add(n)
        self.touched = max(self.touched, n)
        self.whole += 1
        return ""
