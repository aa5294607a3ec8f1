"""Programs of a world: they post a scenario's requests, poll, and tell the oracles what they see."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Protocol

from softhca.driver.device import Completion, CqHandle, QpHandle, SrqHandle
from softhca.simulation.arena import ATOMIC_BYTES, Buffer
from softhca.simulation.oracle import CompletionOrder, check_constant, check_guards
from softhca.simulation.oracle_rc import CounterOracle, ReliableOracle
from softhca.simulation.oracle_uc import UnreliableOracle
from softhca.simulation.oracle_ud import DatagramOracle
from softhca.simulation.scenarios import (
    ADD,
    MESSAGES,
    RC,
    READ,
    SEND,
    SEND_IMM,
    SWAP,
    UD,
    WRITE,
    WRITE_IMM,
    Operation,
    Scenario,
)
from softhca.simulation.world import Node

OPCODES = {WRITE: 0, WRITE_IMM: 1, SEND: 2, SEND_IMM: 3, READ: 4, SWAP: 5, ADD: 6}
"""ibv_wr_opcode"""
RECEIVE_BIT = 1 << 32
WITH_IMMEDIATE = 2
GRH_BYTES = 40
QKEY = 0x11111111
DEPTH = 8
ALL_RIGHTS = 15


class Postable(Protocol):
    """Where receives are posted."""

    def __call__(self, wr_id: int, sges: list[tuple[int, int, int]]) -> None: ...


@dataclass
class Receives:
    """The receive buffers of one queue, posted in order."""

    buffers: list[Buffer]
    posted: int = 0


@dataclass
class Sight:
    """Where a request's bytes are: in the requester's memory, and at the peer's."""

    local: Buffer
    remote: Buffer | None


@dataclass
class Oracles:
    """The oracles of one direction; those of other services are None."""

    order: CompletionOrder
    rc: ReliableOracle | None = None
    uc: UnreliableOracle | None = None
    ud: DatagramOracle | None = None
    counter: CounterOracle | None = None


@dataclass
class Program:
    """One queue pair's program: `prepare` reserves memory, `turn` goes on, `finish` checks."""

    node: Node
    name: str
    scenario: Scenario
    operations: list[Operation]
    receives: Receives
    oracles: Oracles
    counter: Buffer
    sights: list[Sight] = field(default_factory=list)
    peer: Program = field(init=False)
    qp: QpHandle = field(init=False)
    cq: CqHandle = field(init=False)
    lkey: int = 0
    rkey: int = 0
    ah: int = 0
    srq: SrqHandle | None = None
    _next: int = 0
    _not_before_ns: int = 0
    _known: int = 0

    def prepare(self, peer: Program) -> None:
        """Reserve the buffers of every request, here and at the peer."""
        self.peer = peer
        for operation in self.operations:
            self.sights.append(self._reserve(operation))

    def _reserve(self, operation: Operation) -> Sight:
        here, there = self.node.arena, self.peer.node.arena
        length = len(operation.data)
        if operation.kind in (ADD, SWAP):
            return Sight(here.reserve(ATOMIC_BYTES), self.peer.counter)
        if operation.kind == READ:
            return Sight(here.reserve(length), there.reserve(length, operation.data))
        local = here.reserve(length, operation.data)
        return Sight(local, there.reserve(length) if operation.kind in (WRITE, WRITE_IMM) else None)

    # going on

    def post_receives(self, count: int) -> None:
        """Post the next ``count`` receives."""
        post: Postable = self.qp.post_recv if self.srq is None else self.srq.post
        first = self.receives.posted
        for index, buffer in list(enumerate(self.receives.buffers))[first : first + count]:
            post(RECEIVE_BIT | index, self._elements(buffer, buffer.length, 1 + index % 2))
            self.receives.posted = index + 1

    def refill(self) -> None:
        """Post one more receive, and plan the next one."""
        self.post_receives(1)
        self.node.turn()
        if self.receives.posted < len(self.receives.buffers):
            self.node.world.at(self.node.world.now + self.scenario.receive_every_ns, self.refill)

    def turn(self) -> bool:
        """Poll, and post what may be posted; whether there was anything."""
        completions = self.cq.poll(64)
        for completion in completions:
            if completion.wr_id & RECEIVE_BIT:
                self._received(completion)
            else:
                self._completed(completion)
        posted = False
        while self._may_post():
            self._post(self.operations[self._next])
            self._next += 1
            posted = True
            if self._next < len(self.operations) and self.operations[self._next].gap_ns:
                self._not_before_ns = self.node.world.now + self.operations[self._next].gap_ns
                self.node.world.at(self._not_before_ns, self.node.turn)
        return bool(completions) or posted

    def _may_post(self) -> bool:
        order = self.oracles.order
        return (
            self._next < len(self.operations)
            and order.posted - order.completed < DEPTH
            and self.node.world.now >= self._not_before_ns
        )

    def _elements(self, buffer: Buffer, length: int, parts: int) -> list[tuple[int, int, int]]:
        """The first ``length`` bytes of a buffer as one or two scatter/gather elements."""
        va = self.node.arena.va + buffer.offset
        if parts == 1 or length < 2:
            return [(va, length, self.lkey)]
        first = length // 3 + 1
        return [(va, first, self.lkey), (va + first, length - first, self.lkey)]

    def _post(self, operation: Operation) -> None:
        sight, compare, swap = self.sights[operation.index], 0, 0
        if operation.kind == ADD:
            compare = 1  # the addend
        elif operation.kind == SWAP:
            compare, swap = self._known, self._known + 1
        self._announce(operation, compare)
        remote_va = self.peer.node.arena.va + sight.remote.offset if sight.remote is not None else 0
        self.qp.post_send(
            OPCODES[operation.kind], 2, operation.immediate or 0, operation.index, remote_va, self.peer.rkey,
            compare, swap, self.ah, self.peer.qp.number, QKEY,
            self._elements(sight.local, sight.local.length, operation.elements), None,
        )  # fmt: skip
        self.qp.ring()

    def _announce(self, operation: Operation, compare: int) -> None:
        """Tell the oracles what is about to be sent."""
        oracles, index = self.oracles, operation.index
        oracles.order.post()
        message = b"" if operation.kind == WRITE_IMM and oracles.rc is not None else operation.data
        if oracles.ud is not None:
            oracles.ud.post(
                operation.data, self.qp.number, self.node.gid, self.peer.qp.number, operation.immediate
            )
        for oracle in (oracles.rc, oracles.uc):
            if oracle is not None and operation.kind in MESSAGES:
                oracle.post_message(index, message, operation.immediate)
            if oracle is not None and operation.kind in (WRITE, WRITE_IMM):
                oracle.post_write(index, operation.data)
        if oracles.counter is not None and operation.kind in (ADD, SWAP):
            oracles.counter.post(self.name, index, compare if operation.kind == SWAP else None)

    def _completed(self, completion: Completion) -> None:
        """A send request's completion."""
        oracles, index = self.oracles, completion.wr_id
        if not oracles.order.complete(index, completion.status):
            return
        operation, sight = self.operations[index], self.sights[index]
        local = self.node.arena.read(sight.local)
        remote = self.peer.node.arena.read(sight.remote) if sight.remote is not None else b""
        if oracles.rc is not None:
            if operation.kind in MESSAGES:
                oracles.rc.succeed_message(index)
            if operation.kind in (WRITE, WRITE_IMM):
                oracles.rc.succeed_write(index, remote)
            elif operation.kind == READ:
                oracles.rc.succeed_read(index, local, operation.data)
        if oracles.counter is not None and operation.kind in (ADD, SWAP):
            original = int.from_bytes(local, sys.byteorder)
            oracles.counter.complete(self.name, index, original)
            self._known = oracles.counter.known

    def _received(self, completion: Completion) -> None:
        """A receive's completion: what the peer's request brought."""
        oracles, direction = self.oracles, self.peer.oracles
        buffer = self.receives.buffers[completion.wr_id & ~RECEIVE_BIT]
        if not oracles.order.receive(completion.status):
            return
        immediate = completion.imm_data if completion.wc_flags & WITH_IMMEDIATE else None
        written = self._written(immediate)
        length = 0 if written is not None else completion.byte_len
        data = self.node.arena.read(buffer, length)
        if direction.ud is not None:
            direction.ud.deliver(
                data[GRH_BYTES:], completion.qp_num, completion.src_qp, data[:GRH_BYTES], immediate
            )
        if direction.rc is not None:
            clean = self.node.arena.untouched_from(buffer, length)
            index = direction.rc.deliver(data, immediate, clean)
            if written is not None and index >= 0:
                expected = self.peer.operations[index].data
                check_constant(self.node.world.report, f"{self.peer.name}: write {index}", written, expected)
        if direction.uc is not None:
            direction.uc.deliver(data if written is None else written, immediate)

    def _written(self, immediate: int | None) -> bytes | None:
        """The bytes that a write with this immediate brought, if that is what it belongs to."""
        if immediate is None or self.scenario.service == UD:
            return None
        for operation in self.peer.operations:
            if operation.immediate == immediate and operation.kind == WRITE_IMM:
                remote = self.peer.sights[operation.index].remote
                return self.node.arena.read(remote) if remote is not None else None
        return None

    # the end

    def finish(self) -> None:
        """The world is at rest: ask the oracles, look at what nobody may have changed."""
        oracles, report = self.oracles, self.node.world.report
        oracles.order.finish()
        writes = {
            operation.index: self.peer.node.arena.read(sight.remote)
            for operation, sight in zip(self.operations, self.sights, strict=True)
            if sight.remote is not None and operation.kind in (WRITE, WRITE_IMM)
        }
        for oracle in (oracles.rc, oracles.uc):
            if oracle is not None:
                oracle.finish(writes)
        for operation, sight in zip(self.operations, self.sights, strict=True):
            constant = (self.peer.node.arena, sight.remote) if operation.kind == READ else (
                self.node.arena, sight.local
            )  # fmt: skip
            if operation.kind not in (ADD, SWAP) and constant[1] is not None:
                name = f"{self.name}: the source of request {operation.index}"
                check_constant(report, name, constant[0].read(constant[1]), operation.data)


def check_memory(nodes: list[Node]) -> None:
    """No byte outside every buffer has changed."""
    for node in nodes:
        arena = node.arena
        check_guards(node.world.report, f"adapter {node.number}", bytes(arena.memory), arena.places())


def receives_of(scenario: Scenario, node: Node, incoming: list[list[Operation]]) -> Receives:
    """Buffers for all messages that may come in; for unreliable services, which may repeat, twice as many."""
    count = sum(operation.kind in MESSAGES for operations in incoming for operation in operations)
    room = scenario.largest_bytes + (GRH_BYTES if scenario.service == UD else 0)
    count *= 1 if scenario.service == RC else 2
    return Receives([node.arena.reserve(room) for _ in range(count)])


__all__ = ["Oracles", "Program", "Receives", "Sight", "check_memory", "receives_of"]
