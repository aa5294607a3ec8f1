"""Programs of a world: they post a scenario's requests, poll, and tell the oracles what they see."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from softhca.driver.device import Completion, CqHandle, QpHandle, SrqHandle
from softhca.simulation import kinds
from softhca.simulation.arena import ATOMIC_BYTES, LENT, OPEN, PRIVATE, Arena, Buffer
from softhca.simulation.kinds import (
    ATOMICS,
    COMPLETED,
    MESSAGES,
    OPCODES,
    READS,
    RECEIVED,
    RECEIVED_WRITE,
    RELAY,
    SUCCESS,
    UD,
    WRITES,
)
from softhca.simulation.node import Node
from softhca.simulation.operations import ELEMENTS, Operation
from softhca.simulation.oracle import CompletionOrder, check_constant
from softhca.simulation.oracle_rc import BoardOracle, CounterOracle, ReliableOracle
from softhca.simulation.oracle_uc import UnreliableOracle
from softhca.simulation.oracle_ud import DatagramOracle
from softhca.simulation.scenarios import Scenario
from softhca.simulation.targets import local_elements, remote_target
from softhca.simulation.trespass import HANDLE, LOCAL

RECEIVE_BIT = 1 << 32
WITH_GRH = 1
WITH_IMMEDIATE = 2
GRH_BYTES = 40
QKEY = 0x11111111
DEPTH = 8
FENCE, SIGNALED, SOLICITED, INLINE = 1, 2, 4, 8
"""ibv_send_flags"""


@dataclass
class Receives:
    """The receive buffers of one queue, posted in order, at most ``room`` at a time; ``done`` completed.

    ``elements`` overrides those of a buffer, ``short`` its length.
    """

    buffers: list[Buffer]
    room: int
    posted: int = 0
    done: set[int] = field(default_factory=set)
    elements: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    short: dict[int, int] = field(default_factory=dict)

    @property
    def taken(self) -> int:
        """How many completed."""
        return len(self.done)


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
    board: BoardOracle | None = None


@dataclass
class Shared:
    """What the programs of one host share: memory, a counter and a board that peers use."""

    node: Node
    arena: Arena
    counter: Buffer
    board: Buffer


@dataclass
class Program:
    """One queue pair's program: `prepare` reserves memory, `advance` posts, `take` is given completions,
    `finish` checks.
    """

    shared: Shared
    name: str
    scenario: Scenario
    operations: list[Operation]
    receives: Receives
    oracles: Oracles
    sights: list[Sight] = field(default_factory=list)
    peer: Program = field(init=False)
    qp: QpHandle = field(init=False)
    cq: CqHandle = field(init=False)
    recv_cq: CqHandle = field(init=False)
    ah: int = 0
    foreign_ah: int = 0
    srq: SrqHandle | None = None
    stopped: bool = False
    late: bool = False
    _next: int = 0
    _not_before_ns: int = 0
    _known: int = 0
    _floors: dict[int, int] = field(default_factory=dict)

    @property
    def node(self) -> Node:
        """The host that it runs on."""
        return self.shared.node

    def prepare(self, peer: Program) -> None:
        """Reserve the buffers of every request, here and at the peer."""
        self.peer = peer
        for operation in self.operations:
            self.sights.append(self._reserve(operation))

    def _reserve(self, operation: Operation) -> Sight:
        here, there = self.shared.arena, self.peer.shared.arena
        length, earlier = len(operation.data), operation.earlier
        if operation.trespass is not None:
            return Sight(here.reserve(length, operation.data, operation.kind in ATOMICS), None)
        if operation.kind in ATOMICS:
            return Sight(here.reserve(ATOMIC_BYTES), self.peer.shared.counter)
        if operation.kind == kinds.BOARD_READ:
            return Sight(here.reserve(length, aligned=True), self.peer.shared.board)
        if operation.kind == kinds.BOARD_WRITE:
            return Sight(here.reserve(length, operation.data, aligned=True), self.peer.shared.board)
        lent = LENT if self.scenario.revoke and operation.index % 2 else OPEN
        if operation.kind == kinds.READ:
            return Sight(here.reserve(length), there.reserve(length, operation.data, region=lent))
        if operation.kind == kinds.READ_BACK:
            return Sight(here.reserve(length), self.sights[earlier].remote)
        if operation.kind == RELAY:
            return Sight(self.sights[earlier].local, None)
        # what is only sent needs no right but to be read by its owner
        local = here.reserve(length, operation.data, region=PRIVATE if operation.index % 2 else OPEN)
        if operation.kind == kinds.OVERWRITE:
            return Sight(local, self.sights[earlier].remote)
        return Sight(local, there.reserve(length, region=lent) if operation.kind in WRITES else None)

    # going on

    def post_receives(self, count: int) -> None:
        """Post the next ``count`` receives."""
        post: Callable[[int, list[tuple[int, int, int]]], None]
        post = self.qp.post_recv if self.srq is None else self.srq.post
        receives = self.receives
        count = min(count, receives.room - (receives.posted - receives.taken))
        for index in range(receives.posted, min(receives.posted + count, len(receives.buffers))):
            buffer = receives.buffers[index]
            elements = receives.elements.get(index)
            if elements is None:
                buffer = buffer._replace(length=receives.short.get(index, buffer.length))
                elements = local_elements(self.shared.arena, buffer, 1 + index % ELEMENTS)
            post(RECEIVE_BIT | index, elements)
            receives.posted = index + 1
            if self.srq is None:
                self.node.world.wire.posted((self.node.number, self.qp.number), 1)

    def refill(self, _: object = None) -> None:
        """Post one more receive, and plan the next one."""
        if self.stopped:
            return
        self.post_receives(1)
        self.node.turn()
        if self.receives.posted < len(self.receives.buffers):
            self.node.world.at(self.node.world.now + self.scenario.receive_every_ns, self.refill)

    def advance(self) -> bool:
        """Post what may be posted; whether there was anything."""
        posted = False
        while self._may_post():
            operation = self.operations[self._next]
            self._post(operation)
            self._next += 1
            posted = True
            if self._next < len(self.operations) and self.operations[self._next].gap_ns:
                self._not_before_ns = self.node.world.now + self.operations[self._next].gap_ns
                self.node.world.at(self._not_before_ns, self.wake)
            if not (operation.chained and self._may_post()):
                self.qp.ring()
        return posted

    def wake(self, _: object = None) -> None:
        """It is time to post again."""
        if self.advance():
            self.node.turn()

    def _may_post(self) -> bool:
        order = self.oracles.order
        return (
            self._next < len(self.operations)
            and order.posted - order.completed < DEPTH
            and not self.stopped
            and self.node.world.now >= self._not_before_ns
        )

    def _post(self, operation: Operation) -> None:
        sight, compare, swap = self.sights[operation.index], 0, 0
        if operation.kind == kinds.ADD:
            compare = operation.addend
        elif operation.kind == kinds.SWAP:
            compare, swap = self._known, self._known + operation.addend
        self._announce(operation, compare)
        flags = (SIGNALED if operation.signaled else 0) | (SOLICITED if operation.solicited else 0)
        flags |= FENCE if operation.kind == RELAY else 0
        target = remote_target(operation, sight.remote, self.peer.shared.arena)
        trespass = operation.trespass
        ah = self.foreign_ah if trespass is not None and trespass.side == HANDLE else self.ah
        self.qp.post_send(
            OPCODES[operation.kind], flags, operation.immediate or 0, operation.index, target.va, target.rkey,
            compare, swap, ah, self.peer.qp.number, QKEY,
            *self._payload(operation, sight),
        )  # fmt: skip

    def _payload(
        self, operation: Operation, sight: Sight
    ) -> tuple[list[tuple[int, int, int]], bytes | None]:
        if operation.inline:
            return [], operation.data
        wrong = operation.trespass
        if wrong is not None and (wrong.side != LOCAL or wrong.too_long):
            wrong = None
        return local_elements(self.shared.arena, sight.local, operation.elements, wrong), None

    def _announce(self, operation: Operation, compare: int) -> None:
        """Tell the oracles what is about to be sent."""
        oracles, index, kind = self.oracles, operation.index, operation.kind
        trespass = operation.trespass
        oracles.order.post(operation.signaled, trespass.status if trespass is not None else 0)
        if trespass is not None:
            return
        if oracles.ud is not None:
            source = (self.qp.number, self.node.gid)
            oracles.ud.post(operation.data, *source, self.peer.qp.number, operation.immediate)
        message = b"" if kind == kinds.WRITE_IMM and oracles.rc is not None else operation.data
        if kind in MESSAGES:
            if oracles.rc is not None:
                oracles.rc.post_message(index, message, operation.immediate)
            if oracles.uc is not None:
                oracles.uc.post_message(index, message, operation.immediate)
        if kind in WRITES:
            if oracles.rc is not None:
                oracles.rc.post_write(index, self._place(operation), operation.data)
            if oracles.uc is not None:
                oracles.uc.post_write(index, operation.data)
        if oracles.counter is not None and kind in ATOMICS:
            oracles.counter.post(self.name, index, operation.addend, compare if kind == kinds.SWAP else None)
        if oracles.board is not None and kind == kinds.BOARD_WRITE:
            oracles.board.post_write(operation.version)
        elif oracles.board is not None and kind == kinds.BOARD_READ:
            self._floors[index] = oracles.board.completed

    def _place(self, operation: Operation) -> int:
        """The request that first wrote where this one writes or reads back."""
        return operation.earlier if operation.earlier >= 0 else operation.index

    # what completes

    def take(self, completion: Completion) -> None:
        """A completion of this queue pair."""
        if completion.status:
            self.node.world.wire.failed((self.node.number, self.qp.number), completion.status)
        if completion.wr_id & RECEIVE_BIT:
            index = completion.wr_id & ~RECEIVE_BIT
            if index in self.receives.done or index >= self.receives.posted:
                text = f"{self.name}: receive {index} completed again, or was not posted"
                self.node.world.report.fail("every receive once", text)
                return
            self.receives.done.add(index)
            self._received(completion)
            if not self.scenario.receives_first and not self.stopped:
                self.post_receives(1)
            return
        for index in self.oracles.order.complete(completion.wr_id, completion.status):
            self._succeeded(self.operations[index])
        if completion.status == SUCCESS:
            self._check_opcode(completion, COMPLETED[self.operations[completion.wr_id].kind])

    def take_late(self, completion: Completion) -> None:
        """A receive that was done without an event, found when all is over."""
        self.late = True
        self.take(completion)

    def _check_opcode(self, completion: Completion, opcode: int) -> None:
        """A completion names what is done."""
        if completion.opcode != opcode:
            text = f"{self.name}: {completion.wr_id:#x} completed as opcode {completion.opcode}, not {opcode}"
            self.node.world.report.fail("completions say what is done", text)

    def _succeeded(self, operation: Operation) -> None:
        """A send request is done."""
        if operation.trespass is not None:
            return
        oracles, index, kind = self.oracles, operation.index, operation.kind
        sight = self.sights[index]
        rc = oracles.rc
        if rc is not None:
            if kind in MESSAGES:
                rc.succeed_message(index)
            if kind in WRITES and sight.remote is not None:
                rc.succeed_write(index, self._place(operation), self.peer.shared.arena.read(sight.remote))
            elif kind == kinds.READ:
                rc.succeed_read(index, self.shared.arena.read(sight.local), operation.data)
            elif kind == kinds.READ_BACK:
                rc.succeed_read_back(index, self._place(operation), self.shared.arena.read(sight.local))
        if oracles.counter is not None and kind in ATOMICS:
            original = int.from_bytes(self.shared.arena.read(sight.local), sys.byteorder)
            oracles.counter.complete(self.name, index, original)
            self._known = oracles.counter.known
        if oracles.board is not None and kind == kinds.BOARD_WRITE:
            oracles.board.succeed_write(operation.version)
        elif oracles.board is not None and kind == kinds.BOARD_READ:
            name = f"{self.name}: read {index}"
            oracles.board.succeed_read(name, self._floors[index], self.shared.arena.read(sight.local))

    def _received(self, completion: Completion) -> None:
        """A receive's completion: what the peer's request brought."""
        oracles, direction = self.oracles, self.peer.oracles
        index = completion.wr_id & ~RECEIVE_BIT
        buffer = self.receives.buffers[index]
        if not oracles.order.receive(completion.status, index):
            return
        immediate = completion.imm_data if completion.wc_flags & WITH_IMMEDIATE else None
        written = self._written(immediate)
        self._check_opcode(completion, RECEIVED if written is None else RECEIVED_WRITE)
        length = 0 if written is not None else completion.byte_len
        data = self.shared.arena.read(buffer, length)
        if direction.ud is not None:
            frames, with_grh = self.node.world.frames, bool(completion.wc_flags & WITH_GRH)
            gid = frames.sender(data[:GRH_BYTES], completion.slid, with_grh)
            body, source = data[GRH_BYTES:], completion.src_qp
            direction.ud.deliver(body, completion.qp_num, source, gid, immediate)
        if direction.rc is not None:
            clean = self.shared.arena.untouched_from(buffer, length)
            request = direction.rc.deliver(data, immediate, clean)
            if self.late and request >= 0 and self.peer.operations[request].solicited:
                text = f"{self.peer.name}: nobody was told of request {request}"
                self.node.world.report.fail("solicited events are told", text)
            if written is not None and request >= 0:
                self._check_written(request, written, completion.byte_len)
        if direction.uc is not None:
            direction.uc.deliver(data if written is None else written, immediate)

    def _check_written(self, request: int, written: bytes, byte_len: int) -> None:
        """A write with immediate has been told of: its bytes are there, and so many as it says."""
        report, name = self.node.world.report, f"{self.peer.name}: write {request}"
        expected = self.peer.operations[request].data
        check_constant(report, name, written, expected)
        if byte_len != len(expected):
            report.fail("every message unchanged", f"{name} of {len(expected)} bytes says {byte_len}")

    def _written(self, immediate: int | None) -> bytes | None:
        """The bytes that a write with this immediate brought, if that is what it belongs to."""
        if immediate is None or self.scenario.service == UD:
            return None
        for operation in self.peer.operations:
            if operation.immediate == immediate and operation.kind == kinds.WRITE_IMM:
                remote = self.peer.sights[operation.index].remote
                return self.shared.arena.read(remote) if remote is not None else None
        return None

    # the end

    def finish(self) -> None:
        """The world is at rest: ask the oracles, look at what nobody may have changed."""
        oracles = self.oracles
        oracles.order.finish()
        self._check_receives()
        places = {
            operation.index: self.peer.shared.arena.read(sight.remote)
            for operation, sight in zip(self.operations, self.sights, strict=True)
            if sight.remote is not None and operation.kind in WRITES
        }
        if oracles.rc is not None:
            oracles.rc.finish(places)
        if oracles.uc is not None:
            oracles.uc.finish(places)
        for operation in self.operations:
            self._check_source(operation)

    def _check_receives(self) -> None:
        """After an error nothing stays in a reliable queue pair's own receive queue."""
        order, receives = self.oracles.order, self.receives
        left = receives.posted - receives.taken
        if self.oracles.rc is not None and self.srq is None and order.failed and not order.abandoned and left:
            text = f"{self.name}: {left} receives are neither done nor flushed"
            self.node.world.report.fail("everything flushes", text)

    def _check_source(self, operation: Operation) -> None:
        """What a request only reads is as it was; what a refused read would have filled is untouched too."""
        sight, kind = self.sights[operation.index], operation.kind
        arena, buffer = self.shared.arena, sight.local
        if operation.trespass is None:
            if kind in ATOMICS or kind in (kinds.READ_BACK, kinds.BOARD_READ, RELAY):
                return
            if kind in READS and sight.remote is not None:
                arena, buffer = self.peer.shared.arena, sight.remote
        name = f"{self.name}: the source of request {operation.index}"
        check_constant(self.node.world.report, name, arena.read(buffer), operation.data)
