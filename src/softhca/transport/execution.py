"""SEND and RDMA WRITE carried out at the receiver, packet by packet (IBTA vol. 1, 9.7.4.1, 9.8.2.2).

SENDs are the same for reliable and unreliable connections; of an RDMA WRITE the former look at the key once
for the whole message, the latter for each packet (`unreliable_receiver`).  What a failure means to the peer
is the service's matter, so `execute` says what went wrong and the service answers or stays silent.  Nothing
is written before everything that can be known of the packet has been checked.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import cython

from softhca.memory.regions import REMOTE_WRITE, Region
from softhca.memory.windows import TrackedRegion
from softhca.queues.layout import (
    MAX_MESSAGE_BYTES,
    WC_LOC_LEN_ERR,
    WC_LOC_PROT_ERR,
    WC_RECV,
    WC_RECV_RDMA_WITH_IMM,
    WC_REM_INV_REQ_ERR,
    WC_WITH_IMM,
    WC_WITH_INV,
)
from softhca.transport.receiving import NO_RECEIVE
from softhca.wire import opcodes

if TYPE_CHECKING:
    from softhca.transport.connection import Connection
    from softhca.transport.receiving import MessageSink, ReceiveQueue
    from softhca.wire.burst import Arrival
    from softhca.wire.packet_view import PacketView

# outcomes of `execute`; `failure` is the completion status for a receive that is held
DONE = 0
NOT_READY = 1  # no receive is posted
INVALID = 2  # invalid request
ACCESS = 3  # key, right, domain or range of the remote address
OPERATIONAL = 4  # the receiver's own trouble
LENGTH = 5  # more than the receive can hold
INVALIDATION = 6  # the key that a SEND with Invalidate names cannot be invalidated
HELD = 7  # the memory cannot be touched now; the message stands where it stood before the packet

NOTHING = -1  # no message is under way

_DONE = cython.declare(cython.int, DONE)
_NOT_READY = cython.declare(cython.int, NOT_READY)
_INVALID = cython.declare(cython.int, INVALID)
_ACCESS = cython.declare(cython.int, ACCESS)
_OPERATIONAL = cython.declare(cython.int, OPERATIONAL)
_LENGTH = cython.declare(cython.int, LENGTH)
_INVALIDATION = cython.declare(cython.int, INVALIDATION)
_HELD = cython.declare(cython.int, HELD)
_NOTHING = cython.declare(cython.int, NOTHING)
_NO_RECEIVE = cython.declare(cython.int, NO_RECEIVE)
_SEND = cython.declare(cython.uint, opcodes.SEND)
_WRITE = cython.declare(cython.uint, opcodes.WRITE)
_FIRST = cython.declare(cython.uint, opcodes.FIRST)
_MIDDLE = cython.declare(cython.uint, opcodes.MIDDLE)
_LAST = cython.declare(cython.uint, opcodes.LAST)
_ONLY = cython.declare(cython.uint, opcodes.ONLY)
_REMOTE_WRITE = cython.declare(cython.uint, REMOTE_WRITE)
_MAX_MESSAGE = cython.declare(cython.ulonglong, MAX_MESSAGE_BYTES)
_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_EACCES = cython.declare(cython.int, errno.EACCES)
_EAGAIN = cython.declare(cython.int, errno.EAGAIN)
_LENGTH_ERROR = cython.declare(cython.int, WC_LOC_LEN_ERR)
_PROTECTION_ERROR = cython.declare(cython.int, WC_LOC_PROT_ERR)
_INVALID_REQUEST_ERROR = cython.declare(cython.int, WC_REM_INV_REQ_ERR)
_RECV = cython.declare(cython.uint, WC_RECV)
_RECV_RDMA_WITH_IMM = cython.declare(cython.uint, WC_RECV_RDMA_WITH_IMM)
_WITH_IMM = cython.declare(cython.uint, WC_WITH_IMM)
_WITH_INV = cython.declare(cython.uint, WC_WITH_INV)


class MessageExecutor:
    """The message under way: ``operation`` (SEND, WRITE or NOTHING), ``received_bytes`` of it, the target of
    a WRITE; and the ``queue`` of ``sink`` that gives its receive, or gave that of the message before.
    """

    queue: ReceiveQueue
    region: Region

    def __init__(self, connection: Connection, sink: MessageSink) -> None:
        self.connection = connection
        self.sink = sink
        self.queue = None
        self.now = 0
        self.operation = _NOTHING
        self.received_bytes = 0
        self.failure = 0
        self.region = None
        self.generation = 0
        self.va = 0
        self.length_bytes = 0

    def in_sequence(self, view: PacketView) -> bool:
        """The opcode sequence rule (9.7.4.1.2): inside a message only its own middle or last, otherwise a
        first or only."""
        begins: cython.bint = view.position == _FIRST or view.position == _ONLY
        if self.operation == _NOTHING:
            return begins
        return not begins and cython.cast(cython.int, view.operation) == self.operation

    def length_ok(self, view: PacketView) -> bool:
        """The payload rule (9.7.4.1.6, C9-195 to C9-199): first and middle are full and unpadded, last is
        not empty."""
        pmtu: cython.uint = self.connection.path_mtu_bytes
        if view.position == _FIRST or view.position == _MIDDLE:
            return view.payload_bytes == pmtu and view.pad == 0
        if view.position == _LAST and view.payload_bytes == 0:
            return False
        return view.payload_bytes <= pmtu

    def execute(self, view: PacketView, arrival: Arrival, now: int) -> int:
        """Carry out one packet that is in sequence and of right length; an outcome, with ``failure`` set."""
        self.now = now
        self.failure = _INVALID_REQUEST_ERROR
        if view.operation == _SEND:
            return self.place_send(view, arrival)
        return self.place_write(view, arrival)

    def acquire(self, view: PacketView) -> int:
        """Make sure that a receive is acquired from the queue to which the message goes; an outcome."""
        status: cython.int
        self.queue = self.sink.receive_queue(view)
        if self.queue is None:
            return _INVALID
        status = self.queue.acquire()
        if status == 0:
            return _DONE
        if status == _NO_RECEIVE:
            return _NOT_READY
        self.failure = status
        return _OPERATIONAL

    def complete(self, status: int, length_bytes: int, now: int) -> bool:
        """Complete the receive that is acquired, if there is one, with an error; whether there is one."""
        if self.queue is None or not self.queue.acquired:
            return False
        self.queue.complete(status, _RECV, 0, length_bytes, 0, self.connection.dest_qp, False, now)
        return True

    def place_send(self, view: PacketView, arrival: Arrival) -> int:
        outcome: cython.int
        status: cython.int
        if self.operation == _NOTHING:
            outcome = self.acquire(view)
            if outcome != _DONE:
                return outcome
            status = self.queue.resolve()
            if status:
                self.failure = status
                return _OPERATIONAL
            self.received_bytes = 0
        if self.received_bytes + view.payload_bytes > self.queue.buffers.total_bytes:
            self.failure = _LENGTH_ERROR
            return _LENGTH
        if view.payload_bytes:
            status = self.queue.buffers.scatter(
                self.received_bytes, view.payload_bytes, arrival.payload_address + view.payload
            )
            if status == -_EAGAIN:
                return _HELD
            if status:
                self.failure = _PROTECTION_ERROR
                return _OPERATIONAL
        self.received_bytes += view.payload_bytes
        if view.has_ieth and self.connection.environment.memory_windows.invalidate(
            view.invalidate_key, self.connection.number, self.connection.pd, True
        ):
            self.connection.count("key_refusals")
            self.operation = _NOTHING
            return _INVALIDATION
        self.ended(view, _RECV)
        return _DONE

    def place_write(self, view: PacketView, arrival: Arrival) -> int:
        outcome: cython.int
        result: cython.int
        ends: cython.bint = view.position == _LAST or view.position == _ONLY
        if self.operation == _NOTHING:
            outcome = self.begin_write(view)
            if outcome != _DONE:
                return outcome
        if self.received_bytes + view.payload_bytes > self.length_bytes:
            return _INVALID
        if ends != (self.received_bytes + view.payload_bytes == self.length_bytes):
            return _INVALID
        if view.has_immdt:
            outcome = self.acquire(view)
            if outcome != _DONE:
                return outcome
        if view.payload_bytes:
            if (
                not self.region.valid
                or self.region.generation != self.generation
                or not self.region.access & _REMOTE_WRITE
                or self.region.pd != self.connection.pd
            ):
                return _ACCESS
            result = self.region.write(
                (self.va + self.received_bytes) & _MASK64,
                arrival.payload_address + view.payload,
                view.payload_bytes,
            )
            if result == -_EAGAIN:
                return _HELD
            if result:
                return _ACCESS if result == -_EACCES else _OPERATIONAL
        self.received_bytes += view.payload_bytes
        self.ended(view, _RECV_RDMA_WITH_IMM)
        return _DONE

    def begin_write(self, view: PacketView) -> int:
        """A first or only of an RDMA WRITE: the right of the queue pair, then the key over the whole range
        (the key of an empty WRITE is not looked at)."""
        self.received_bytes = 0
        self.va = view.reth_va
        self.length_bytes = view.reth_length
        self.release_target()
        if not self.connection.access & _REMOTE_WRITE or self.length_bytes > _MAX_MESSAGE:
            return _INVALID
        if self.length_bytes == 0:
            return _DONE
        return _DONE if self.resolve_target(view.reth_rkey, self.va, self.length_bytes) else _ACCESS

    def resolve_target(self, rkey: int, va: int, n: int) -> bool:
        """Look up the key of an RDMA WRITE; False when it does not give the right to these bytes."""
        region: Region = self.connection.environment.regions.find(
            rkey, self.connection.pd, va, n, _REMOTE_WRITE, self.connection.number
        )
        if region is None:
            self.connection.count("key_refusals")
            return False
        self.region = region
        self.generation = region.generation
        if region.tracked:
            cython.cast(TrackedRegion, region).begin_use(self)
        return True

    def release_target(self) -> None:
        """The RDMA WRITE under way is over."""
        if self.region is not None:
            if self.region.tracked:
                cython.cast(TrackedRegion, self.region).end_use(self)
            self.region = None

    def ended(self, view: PacketView, opcode: int) -> None:
        """The packet is in place: note where the message stands and complete its receive with the last
        one."""
        flags: cython.uint = 0
        imm_or_key: cython.uint = 0
        if view.position == _FIRST or view.position == _MIDDLE:
            self.operation = view.operation
            return
        self.operation = _NOTHING
        self.release_target()
        if opcode == _RECV_RDMA_WITH_IMM and not view.has_immdt:
            return
        if view.has_immdt:
            flags = _WITH_IMM
            imm_or_key = view.immediate
        elif view.has_ieth:
            flags = _WITH_INV
            imm_or_key = view.invalidate_key
        self.queue.complete(
            0,
            opcode,
            flags,
            self.received_bytes & _WORD,
            imm_or_key,
            self.connection.dest_qp,
            view.solicited,
            self.now,
        )

    def abandon(self) -> None:
        """Give the message under way up; the receive acquired for it waits for the next one to that queue."""
        self.operation = _NOTHING
        self.release_target()
