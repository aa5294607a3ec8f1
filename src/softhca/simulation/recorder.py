"""Tells the oracles what a program posts and what it sees, and looks at the memory that this is about."""

from __future__ import annotations

import sys

from softhca.driver.device import Completion
from softhca.simulation import kinds
from softhca.simulation.arena import Buffer
from softhca.simulation.endpoint import Endpoint
from softhca.simulation.frames import GRH_BYTES
from softhca.simulation.kinds import (
    ATOMICS,
    COMPLETED,
    MESSAGES,
    READS,
    RECEIVED,
    RECEIVED_WRITE,
    RELAY,
    SUCCESS,
    UD,
    WRITES,
)
from softhca.simulation.operations import Operation
from softhca.simulation.oracle import check_constant

WORD_BYTES = 4
WITH_GRH = 1
WITH_IMMEDIATE = 2
"""ibv_wc_flags"""


class Recorder:
    """Stands by one program.  ``counter_value`` is what it knows of the peer's counter; ``late``: what comes
    now was done without an event, and found when all is over.  ``solicited``: the sender of what came last
    may have wanted it to be seen at once.
    """

    def __init__(self, end: Endpoint) -> None:
        self.end = end
        self.report = end.node.world.report
        self.counter_value = 0
        self.late = False
        self.solicited = True
        self._floors: dict[int, int] = {}

    # what is posted

    def posts_receive(self) -> None:
        """A receive was posted to the queue pair's own queue or to a shared one."""
        if self.end.host.srq is None:
            self.end.node.world.wire.posted(self.end.address, 1)

    def posts(self, operation: Operation, compare: int) -> None:
        """A request is about to be sent; ``compare`` of a compare-and-swap."""
        oracles, index, kind = self.end.oracles, operation.index, operation.kind
        violation = operation.violation
        oracles.order.post(operation.signaled, violation.status if violation is not None else 0)
        if violation is not None:
            return
        if oracles.ud is not None:
            data, named = operation.data, self.end.qp.number
            if self.end.peer.raw_services:
                # it fills whole words, and says what it is instead of who sent it
                data, named = data + bytes(-len(data) % WORD_BYTES), self.end.target(operation)
            oracles.ud.post(data, named, self.end.node.gid, self.end.destination_qp, operation.immediate)
        message = b"" if kind == kinds.WRITE_IMM and oracles.rc is not None else operation.data
        if kind in MESSAGES:
            if oracles.rc is not None:
                oracles.rc.post_message(index, message, operation.immediate)
            if oracles.uc is not None:
                oracles.uc.post_message(index, message, operation.immediate)
        if kind in WRITES:
            if oracles.rc is not None:
                oracles.rc.post_write(index, _first_writer(operation), operation.data)
            if oracles.uc is not None:
                oracles.uc.post_write(index, operation.data)
        if oracles.counter is not None and kind in ATOMICS:
            swapped = compare if kind == kinds.SWAP else None
            oracles.counter.post(self.end.name, index, operation.addend, swapped)
        if oracles.board is not None and kind == kinds.BOARD_WRITE:
            oracles.board.post_write(operation.version)
        elif oracles.board is not None and kind == kinds.BOARD_READ:
            self._floors[index] = oracles.board.completed

    # what completes

    def fails(self, status: int) -> None:
        """The program is told of an error."""
        self.end.node.world.wire.failed(self.end.address, status)

    def completes(self, index: int, completion: Completion) -> None:
        """Send request ``index`` is done, or has failed."""
        end = self.end
        for done in end.oracles.order.complete(index, completion.status):
            self._succeeded(end.operations[done])
        if completion.status == SUCCESS:
            self._check_opcode(completion, COMPLETED[end.operations[index].kind])

    def receives(self, index: int, completion: Completion) -> bool:
        """Receive ``index`` is done: what the peer's request brought; False when it cannot be."""
        if not self.end.receives.complete(index):
            text = f"{self.end.name}: receive {index} completed again, or was not posted"
            self.report.fail("every receive once", text)
            return False
        if self.end.oracles.order.receive(completion.status, index):
            self._received(self.end.receives.buffers[index], completion)
        return True

    def _check_opcode(self, completion: Completion, opcode: int) -> None:
        """A completion names what is done."""
        if completion.opcode != opcode:
            what = f"{self.end.name}: {completion.wr_id:#x}"
            text = f"{what} completed as opcode {completion.opcode}, not {opcode}"
            self.report.fail("completions say what is done", text)

    def _succeeded(self, operation: Operation) -> None:
        """A send request is done."""
        if operation.violation is not None:
            return
        oracles, index, kind = self.end.oracles, operation.index, operation.kind
        sight, here, there = self.end.sights[index], self.end.host.arena, self.end.peer.host.arena
        rc = oracles.rc
        if rc is not None:
            if kind in MESSAGES:
                rc.succeed_message(index)
            if kind in WRITES and sight.remote is not None:
                rc.succeed_write(index, _first_writer(operation), there.read(sight.remote))
            elif kind == kinds.READ:
                rc.succeed_read(index, here.read(sight.local), operation.data)
            elif kind == kinds.READ_BACK:
                rc.succeed_read_back(index, _first_writer(operation), here.read(sight.local))
        if oracles.counter is not None and kind in ATOMICS:
            original = int.from_bytes(here.read(sight.local), sys.byteorder)
            oracles.counter.complete(self.end.name, index, original)
            self.counter_value = oracles.counter.known
        if oracles.board is not None and kind == kinds.BOARD_WRITE:
            oracles.board.succeed_write(operation.version)
        elif oracles.board is not None and kind == kinds.BOARD_READ:
            name = f"{self.end.name}: read {index}"
            oracles.board.succeed_read(name, self._floors[index], here.read(sight.local))

    def _received(self, buffer: Buffer, completion: Completion) -> None:
        """A receive succeeded: give what it brought to the oracles of the peer's direction."""
        direction, arena = self.end.peer.oracles, self.end.host.arena
        immediate = completion.imm_data if completion.wc_flags & WITH_IMMEDIATE else None
        written = self._written(immediate)
        self._check_opcode(completion, RECEIVED if written is None else RECEIVED_WRITE)
        length = 0 if written is not None else completion.byte_len
        data = arena.read(buffer, length)
        if direction.ud is not None:
            frames, with_grh = self.end.node.world.frames, bool(completion.wc_flags & WITH_GRH)
            gid = frames.sender(data[:GRH_BYTES], completion.slid, with_grh)
            body = data if self.end.raw_services else data[GRH_BYTES:]
            source, member = completion.src_qp, (self.end.node.gid, completion.qp_num)
            direction.ud.deliver(body, member, source, gid, immediate)
        if direction.rc is not None:
            request = direction.rc.deliver(data, immediate, arena.untouched_from(buffer, length))
            self.solicited = request < 0 or self.end.peer.operations[request].solicited
            if request >= 0:
                self._check_request(request, written, completion.byte_len)
        if direction.uc is not None:
            direction.uc.deliver(data if written is None else written, immediate)

    def _written(self, immediate: int | None) -> bytes | None:
        """The bytes that a write with this immediate brought, if that is what it belongs to."""
        if immediate is None or self.end.scenario.service == UD:
            return None
        peer = self.end.peer
        for operation in peer.operations:
            if operation.immediate == immediate and operation.kind == kinds.WRITE_IMM:
                remote = peer.sights[operation.index].remote
                return self.end.host.arena.read(remote) if remote is not None else None
        return None

    def _check_request(self, request: int, written: bytes | None, byte_len: int) -> None:
        """The peer's request was told of in time; the bytes of a write are there, as many as it says."""
        name, operation = self.end.peer.name, self.end.peer.operations[request]
        if self.late and operation.solicited:
            self.report.fail("solicited events are reported", f"{name}: no completion of request {request}")
        if written is None:
            return
        name, expected = f"{name}: write {request}", operation.data
        check_constant(self.report, name, written, expected)
        if byte_len != len(expected):
            text = f"{name} of {len(expected)} bytes says {byte_len}"
            self.report.fail("every message unchanged", text)

    # the end

    def finish(self) -> None:
        """The world is at rest: ask the oracles, look at what nobody may have changed."""
        end, oracles = self.end, self.end.oracles
        oracles.order.finish()
        self._check_receives()
        places = {
            operation.index: end.peer.host.arena.read(sight.remote)
            for operation, sight in zip(end.operations, end.sights, strict=True)
            if sight.remote is not None and operation.kind in WRITES
        }
        if oracles.rc is not None:
            oracles.rc.finish(places)
        if oracles.uc is not None:
            oracles.uc.finish(places)
        for operation in end.operations:
            self._check_source(operation)

    def _check_receives(self) -> None:
        """After an error nothing stays in a reliable queue pair's own receive queue."""
        end, order, receives = self.end, self.end.oracles.order, self.end.receives
        left = receives.posted - receives.taken
        own = end.oracles.rc is not None and end.host.srq is None
        if own and order.failed and not order.abandoned and left:
            text = f"{end.name}: {left} receives are neither done nor flushed"
            self.report.fail("everything flushes", text)

    def _check_source(self, operation: Operation) -> None:
        """What a request only reads is as it was; what a refused read would have filled is untouched too."""
        sight, kind = self.end.sights[operation.index], operation.kind
        arena, buffer = self.end.host.arena, sight.local
        if operation.violation is None:
            if kind in ATOMICS or kind in (kinds.READ_BACK, kinds.BOARD_READ, RELAY):
                return
            if kind in READS and sight.remote is not None:
                arena, buffer = self.end.peer.host.arena, sight.remote
        name = f"{self.end.name}: the source of request {operation.index}"
        check_constant(self.report, name, arena.read(buffer), operation.data)


def _first_writer(operation: Operation) -> int:
    """The request that first wrote where this one writes or reads back."""
    return operation.earlier if operation.earlier >= 0 else operation.index
