"""What a connection does and which bytes it moves: pure functions of a seed, the same in every process.

A connection has two directions.  Operation ``n`` (from 1) of a direction is decided by its seed alone, so who
looks at the memory of a process that was killed knows what each operation would have written.  All bytes come
from one pool; where they begin in it is decided by the operation too, so that bytes of another operation, of
another connection or of another place are other bytes.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass

WRITE, READ, SEND, ATOMIC = 0, 4, 2, 6
"""``ibv_wr_opcode`` of the operations that are posted; atomics are fetch-and-add of 1."""

POOL_BYTES = 1 << 22
GUARD_BYTES = 4096
COUNTER_BYTES = 64
GUARD = bytes((i * 37 + 11) & 0xFF for i in range(256)) * (GUARD_BYTES // 256)

_MASK = (1 << 64) - 1


def mixed(value: int) -> int:
    """64 bits that look like chance (the finaliser of splitmix64)."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _MASK
    return value ^ value >> 31


@functools.lru_cache(maxsize=1)
def make_pool(seed: int) -> bytes:
    """The bytes of a session."""
    return random.Random(seed).randbytes(POOL_BYTES)


@dataclass(frozen=True)
class Shape:
    """The memory that one connection has at one end: ``slots`` of ``slot_bytes`` that the peer writes, as
    many bytes that it reads, and a counter; and how many requests are under way (``window``, fewer than
    ``slots``).  ``kinds`` says how often which operation is posted."""

    slots: int = 8
    slot_bytes: int = 4096
    window: int = 4
    kinds: tuple[int, ...] = (WRITE, WRITE, READ, SEND, ATOMIC, WRITE)

    @property
    def inbox_bytes(self) -> int:
        return self.slots * self.slot_bytes

    @property
    def granted_bytes(self) -> int:
        """Inbox, what is read, and the counter."""
        return 2 * self.inbox_bytes + COUNTER_BYTES

    @property
    def private_bytes(self) -> int:
        """Receive buffers, and where answers land: nobody else has a right to it."""
        return 2 * self.inbox_bytes


@dataclass(frozen=True)
class Operation:
    """``kind``, how many bytes, at which offset of the peer's inbox (WRITE) or of what it lets read (READ),
    and where its bytes stand in the pool."""

    kind: int
    length: int
    offset: int
    pool_offset: int


class Direction:
    """One direction of a connection: its operations by number."""

    def __init__(self, seed: int, shape: Shape) -> None:
        self.seed = mixed(seed)
        self.shape = shape

    def operation(self, n: int) -> Operation:
        """Operation ``n`` ≥ 1."""
        shape = self.shape
        chance = mixed(self.seed ^ n)
        kind = shape.kinds[chance % len(shape.kinds)]
        length = 8 if kind == ATOMIC else 1 + (chance >> 8) % shape.slot_bytes
        # Twice as often a whole slot: packets of full length, and several of them.
        if kind != ATOMIC and not chance >> 40 & 3:
            length = shape.slot_bytes
        offset = n % shape.slots * shape.slot_bytes
        return Operation(kind, length, offset, (chance >> 32) % (POOL_BYTES - shape.inbox_bytes))


def readable_offset(direction: Direction) -> int:
    """Where in the pool the bytes stand that the end which posts ``direction`` lets its peer read."""
    return mixed(direction.seed ^ 0x5EED) % (POOL_BYTES - direction.shape.inbox_bytes)


class Expectation:
    """What may stand in the memory that one end of a connection granted, as far as its peer's operations are
    known: ``done`` of them have completed with success, ``posted`` have been posted.

    `check` is given a copy of the memory that was made after ``done`` and before ``posted`` was read.
    """

    def __init__(self, own: Direction, peer: Direction, pool: bytes) -> None:
        self.peer = peer
        self.pool = pool
        shape = own.shape
        start = readable_offset(own)
        self.readable = pool[start : start + shape.inbox_bytes]
        self.inbox = bytearray(shape.inbox_bytes)
        self.sure = 0
        self.atomics = 0

    def check(self, data: bytes, done: int, posted: int) -> list[str]:
        """What is wrong with the granted ``data``, in words; nothing when all is right."""
        size = len(self.inbox)
        self._advance(done)
        wrong = self._check_inbox(data[:size], posted)
        if data[size : 2 * size] != self.readable:
            place = _first_difference(data[size : 2 * size], self.readable)
            wrong.append(f"byte {place} of what is only read changed")
        count = int.from_bytes(data[2 * size : 2 * size + 8], "little")
        most = self.atomics + sum(
            self.peer.operation(n).kind == ATOMIC for n in range(self.sure + 1, posted + 1)
        )
        if not self.atomics <= count <= most:
            wrong.append(f"the counter is {count}, not {self.atomics} to {most}")
        if any(data[2 * size + 8 : 2 * size + COUNTER_BYTES]):
            wrong.append("bytes behind the counter changed")
        return wrong

    def _advance(self, done: int) -> None:
        """Operations up to ``done`` have acted."""
        while self.sure < done:
            self.sure += 1
            operation = self.peer.operation(self.sure)
            if operation.kind == WRITE:
                self.inbox[operation.offset : operation.offset + operation.length] = self.carried(operation)
            elif operation.kind == ATOMIC:
                self.atomics += 1

    def carried(self, operation: Operation) -> bytes:
        """The bytes of an operation."""
        return self.pool[operation.pool_offset : operation.pool_offset + operation.length]

    def _check_inbox(self, data: bytes, posted: int) -> list[str]:
        """Each byte is what the last sure WRITE left, or what one that is under way brings."""
        if data == self.inbox:
            return []
        under_way = [self.peer.operation(n) for n in range(self.sure + 1, posted + 1)]
        slot_bytes = self.peer.shape.slot_bytes
        wrong = []
        for start in range(0, len(data), slot_bytes):
            if data[start : start + slot_bytes] == self.inbox[start : start + slot_bytes]:
                continue
            coming = [self.carried(each) for each in under_way if each.kind == WRITE and each.offset == start]
            for i in range(slot_bytes):
                byte = data[start + i]
                if byte != self.inbox[start + i] and all(i >= len(c) or c[i] != byte for c in coming):
                    wrong.append(
                        f"byte {start + i} of the inbox is nobody's "
                        f"({self.sure} operations done, {posted} posted)"
                    )
                    break
        return wrong


def _first_difference(one: bytes, other: bytes) -> int:
    return next(i for i in range(len(other)) if one[i : i + 1] != other[i : i + 1])
