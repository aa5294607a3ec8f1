"""Traffic that proves itself: connections of one process to another, with all the memory that they have."""

from __future__ import annotations

import mmap
import time
from dataclasses import dataclass
from typing import Any

from chaos_ledger import DONE, FAILED_NS, POSTED, POSTED_NS, RECEIVED, STATUS, Ledger
from chaos_script import (
    ATOMIC,
    GUARD,
    GUARD_BYTES,
    READ,
    SEND,
    WRITE,
    Direction,
    Expectation,
    Shape,
    readable_offset,
)

from softhca.driver.errors import DriverError
from softhca.driver.services import Path, Reliability, connect
from softhca.machine import primitives

LOCAL_WRITE, REMOTE_EVERYTHING = 1, 1 | 2 | 4 | 8
RC, SIGNALED = 2, 2
FLUSHED, GONE = 5, 255
"""A completion status, and what stands for it where the adapter itself is gone."""
RECEIVE_BIT = 1 << 39
DRIVES = 20


class Memory:
    """``length`` bytes between two guard pages, registered with ``access``; ``kind``: ``arena`` (host memory,
    which peers map) or ``own`` (the process's)."""

    def __init__(self, driver: Any, pd: int, kind: str, length: int, access: int) -> None:
        self.driver = driver
        self.length = length
        total = length + 2 * GUARD_BYTES
        self.host: Any = None
        self.mapping: Any = None
        if kind == "arena":
            self.host = driver.alloc_host_memory(total, access)
            start = self.host.address
        else:
            self.mapping = mmap.mmap(-1, total)
            start = primitives.address_of(self.mapping)
        self.address = start + GUARD_BYTES
        self.put(-GUARD_BYTES, GUARD)
        self.put(length, GUARD)
        self.key = driver.reg_mr(pd, self.address, length, access)

    def put(self, offset: int, data: bytes) -> None:
        primitives.copy(self.address + offset, primitives.address_of(data, False), len(data))

    def get(self, offset: int, length: int) -> bytes:
        return bytes(primitives.bytes_at(self.address + offset, length))

    def guards_hold(self) -> bool:
        return self.get(-GUARD_BYTES, GUARD_BYTES) == GUARD == self.get(self.length, GUARD_BYTES)

    def withdraw(self) -> None:
        """End the registration; the bytes stay until `free`."""
        self.driver.dereg_mr(self.key.handle)

    def free(self) -> None:
        if self.host is not None:
            self.host.free()
        if self.mapping is not None:
            self.mapping.close()


@dataclass
class Remote:
    """The other end of a connection."""

    gid: bytes
    qpn: int
    psn: int
    va: int
    rkey: int
    mtu: int


class Connection:
    """One end of a reliable connection.  ``place`` is its turn in its group's memory."""

    def __init__(self, group: Group, place: int, row: int, seed: int) -> None:
        self.group = group
        self.row = row
        shape = group.shape
        self.sent = Direction(seed * 2 + group.side, shape)
        self.peer = Direction(seed * 2 + 1 - group.side, shape)
        self.expectation = Expectation(self.sent, self.peer, group.party.pool)
        self.base = place * shape.granted_bytes
        self.private = place * shape.private_bytes
        start = readable_offset(self.peer)
        self.readable = group.party.pool[start : start + shape.inbox_bytes]
        group.granted.put(self.base + shape.inbox_bytes, self.expectation.readable)
        self.posted = self.completed = self.atomics = 0
        self.peer_n = self.received = self.receives = self.peer_sends = 0
        self.status = 0
        self.remote: Remote | None = None
        self.ledger.clear(row)
        party = group.party
        self.qp = party.driver.create_qp(
            party.pd, RC, party.cq, party.cq, None, shape.window + 1, shape.slots, 1, 1, 0, True
        )

    @property
    def ledger(self) -> Ledger:
        return self.group.party.ledger

    @property
    def quiet(self) -> bool:
        return self.posted == self.completed

    def connect(self, remote: Remote, psn: int, reliability: Reliability) -> None:
        self.remote = remote
        connect(
            self.qp,
            Path(remote.gid, mtu=remote.mtu),
            remote.qpn,
            remote.psn,
            psn,
            REMOTE_EVERYTHING,
            reliability,
        )
        for _ in range(self.group.shape.slots):
            self._post_receive()

    def _post_receive(self) -> None:
        shape = self.group.shape
        at = self.private + self.receives % shape.slots * shape.slot_bytes
        memory = self.group.private
        self.qp.post_recv(
            self.row << 40 | RECEIVE_BIT | self.receives,
            [(memory.address + at, shape.slot_bytes, memory.key.lkey)],
        )
        self.receives += 1

    def post(self, more: int = 0) -> None:
        """Fill the window, and ``more`` (0, 1) than that."""
        shape = self.group.shape
        begun = self.posted
        while not self.status and self.posted - self.completed < shape.window + more:
            n = self.posted + 1
            self.ledger.set(self.row, POSTED_NS, time.monotonic_ns())
            self.ledger.set(self.row, POSTED, n)
            self.posted = n
            self._post_one(n)
        if begun != self.posted:
            self.qp.ring()

    def _post_one(self, n: int) -> None:
        shape, group, remote = self.group.shape, self.group, self.remote
        assert remote is not None
        operation = self.sent.operation(n)
        far = remote.va + operation.offset
        landing = (
            group.private.address + self.private + shape.inbox_bytes + n % shape.slots * shape.slot_bytes
        )
        near = (landing, operation.length, group.private.key.lkey)
        if operation.kind in (WRITE, SEND):
            near = (
                group.party.pool_address + operation.pool_offset,
                operation.length,
                group.party.pool_key.lkey,
            )
        elif operation.kind == READ:
            far += shape.inbox_bytes
        else:
            far = remote.va + 2 * shape.inbox_bytes
        self.qp.post_send(
            operation.kind, SIGNALED, 0, self.row << 40 | n, far, remote.rkey, 1, 0, 0, 0, 0, [near], None
        )

    def take(self, done: Any) -> str:
        """A completion of this connection; what is wrong with it, or nothing."""
        number = done.wr_id & RECEIVE_BIT - 1
        if done.wr_id & RECEIVE_BIT:
            return self._take_receive(number, done)
        self.completed += 1
        if number != self.completed:
            return f"completion of {number} where {self.completed} was next"
        if done.status == 0:
            if self.status:
                return f"success of {number} behind an error"
            wrong = self._taken(number, done)
            self.ledger.set(self.row, DONE, number)
            return wrong
        if not self.status:
            self.fail(done.status)
        elif done.status != FLUSHED:
            return f"status {done.status} of {number} behind an error, not flushed"
        return ""

    def fail(self, status: int) -> None:
        """The connection has ended."""
        self.status = status
        self.ledger.set(self.row, STATUS, status)
        self.ledger.set(self.row, FAILED_NS, time.monotonic_ns())

    def _taken(self, n: int, done: Any) -> str:
        """The bytes of an answer."""
        shape, operation = self.group.shape, self.sent.operation(n)
        at = self.private + shape.inbox_bytes + n % shape.slots * shape.slot_bytes
        if operation.kind == READ:
            expected = self.readable[operation.offset : operation.offset + operation.length]
            if done.byte_len != operation.length or self.group.private.get(at, operation.length) != expected:
                return f"READ {n} brought other bytes"
        elif operation.kind == ATOMIC:
            found = int.from_bytes(self.group.private.get(at, 8), "little")
            self.atomics += 1
            if found != self.atomics - 1:
                return f"atomic {n} found {found}, not {self.atomics - 1}"
        return ""

    def _take_receive(self, number: int, done: Any) -> str:
        if done.status:
            return "" if done.status == FLUSHED else f"receive {number} ended with status {done.status}"
        if number != self.received:
            return f"receive {number} completed where {self.received} was next"
        self.peer_n += 1
        while (operation := self.peer.operation(self.peer_n)).kind != SEND:
            self.peer_n += 1
        shape = self.group.shape
        data = self.group.private.get(
            self.private + number % shape.slots * shape.slot_bytes, operation.length
        )
        self.received += 1
        self.ledger.set(self.row, RECEIVED, self.peer_n)
        wrong = ""
        if done.byte_len != operation.length or data != self.expectation.carried(operation):
            wrong = f"message {number} (operation {self.peer_n}) has other bytes"
        try:
            self._post_receive()
        except DriverError:
            if not self.status:
                self.fail(GONE)
        return wrong

    def check(self, ledger: Ledger, row: int, last: bool) -> list[str]:
        """Look at every granted byte; ``last``: all that has come has been polled.  The peer's words are
        ``ledger``'s."""
        done = ledger.get(row, DONE)
        data = self.group.granted.get(self.base, self.group.shape.granted_bytes)
        posted = ledger.get(row, POSTED)
        wrong = self.expectation.check(data, done, posted)
        if self.peer_n > posted:
            wrong.append(f"message {self.peer_n} was received, {posted} operations were posted")
        if last:
            while self.peer_sends < done:
                self.peer_sends += 1
                if self.peer_sends > self.peer_n and self.peer.operation(self.peer_sends).kind == SEND:
                    wrong.append(f"the SEND {self.peer_sends} succeeded, but did not arrive")
                    break
        return wrong


class Group:
    """The connections of this process to one other, and their memory.  ``side`` (0, 1) says which
    directions are whose."""

    def __init__(
        self, party: Any, side: int, shape: Shape, kind: str, rows: list[int], seeds: list[int]
    ) -> None:
        self.party = party
        self.side = side
        self.shape = shape
        self.left: bytes | None = None
        count = len(rows)
        self.granted = Memory(party.driver, party.pd, kind, shape.granted_bytes * count, REMOTE_EVERYTHING)
        self.private = Memory(party.driver, party.pd, kind, shape.private_bytes * count, LOCAL_WRITE)
        self.connections = [
            Connection(self, place, row, seed)
            for place, (row, seed) in enumerate(zip(rows, seeds, strict=True))
        ]

    def guards(self) -> list[str]:
        return [
            f"a guard page of {name} memory changed"
            for name, memory in (("granted", self.granted), ("private", self.private))
            if not memory.guards_hold()
        ]

    def withdraw(self) -> None:
        """Destroy the queue pairs and take the memory back; it is still there to be looked at."""
        for connection in self.connections:
            connection.qp.destroy()
        self.granted.withdraw()
        self.left = self.granted.get(0, self.granted.length)
        self.private.withdraw()

    def drop(self) -> list[str]:
        """See that nothing has changed the memory since it was taken back, and free it."""
        if self.left is None:
            self.withdraw()
        for _ in range(DRIVES):
            self.party.driver.progress()
        wrong = self.guards()
        if self.granted.get(0, self.granted.length) != self.left:
            wrong.append("bytes changed after their withdrawal")
        self.granted.free()
        self.private.free()
        return wrong
