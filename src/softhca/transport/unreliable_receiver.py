"""The receive side of unreliable connections (IBTA vol. 1, 9.8.2.2).

Nothing is ever answered.  A packet is judged in the order of figure 117 (C9-171): header fields (the
adapter's, before it comes here), PSN, opcode sequence, operation, receive and lengths, R_Key; the first
thing that is wrong with it is what its drop is counted as.  With the packet goes the message under way,
whose receive waits for the next message (C9-186, C9-188).  A first or only packet begins anew whatever its
PSN (C9-184).
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import cython

from softhca.memory.regions import REMOTE_WRITE
from softhca.queues.control_fields import EVENT_MESSAGES_LOST
from softhca.queues.layout import MAX_MESSAGE_BYTES, WC_RECV_RDMA_WITH_IMM
from softhca.transport.engines import ReceiveEngine
from softhca.transport.execution import (
    ACCESS,
    DONE,
    HELD,
    LENGTH,
    NOT_READY,
    NOTHING,
    OPERATIONAL,
    MessageExecutor,
)
from softhca.transport.observation import MESSAGE_DROPPED, PACKET_DROPPED
from softhca.transport.receiving import ReceiveQueue
from softhca.wire import opcodes

if TYPE_CHECKING:
    from softhca.transport.connection import Connection
    from softhca.transport.receiving import MessageSink
    from softhca.wire.burst import Arrival
    from softhca.wire.packet_view import PacketView

BEGIN = 0  # a message begins
GO_ON = 1  # the message under way goes on, if the PSN is the expected one
BREAK = 2  # the message under way is dropped, and another one begins
REFUSE = 3  # the packet is dropped, and with it the message under way

SEQUENCE: tuple[tuple[int, ...], ...] = (
    # SEND first, middle, last, only;        RDMA WRITE first, middle, last, only
    (BEGIN, REFUSE, REFUSE, BEGIN,           BEGIN, REFUSE, REFUSE, BEGIN),  # no message is under way
    (BREAK, GO_ON, GO_ON, BREAK,             BREAK, REFUSE, REFUSE, BREAK),  # a SEND
    (BREAK, REFUSE, REFUSE, BREAK,           BREAK, GO_ON, GO_ON, BREAK),  # an RDMA WRITE
)  # fmt: skip
"""What a packet is to the message under way (C9-187 to C9-189)."""

# what could not be carried out → what its drop is counted as
DROPS: dict[int, str] = {
    NOT_READY: "drops_no_receive",
    ACCESS: "drops_protection",
    LENGTH: "drops_receive_length",
    HELD: "drops_held",
}

_SEQUENCE = cython.declare(tuple, tuple([verdict for row in SEQUENCE for verdict in row]))
_COLUMNS = cython.declare(cython.int, len(SEQUENCE[0]))
_POSITIONS = cython.declare(cython.int, 4)
_GO_ON = cython.declare(cython.int, GO_ON)
_BREAK = cython.declare(cython.int, BREAK)
_REFUSE = cython.declare(cython.int, REFUSE)
_DONE = cython.declare(cython.int, DONE)
_ACCESS = cython.declare(cython.int, ACCESS)
_HELD = cython.declare(cython.int, HELD)
_OPERATIONAL = cython.declare(cython.int, OPERATIONAL)
_NOTHING = cython.declare(cython.int, NOTHING)
_FIRST = cython.declare(cython.uint, opcodes.FIRST)
_MIDDLE = cython.declare(cython.uint, opcodes.MIDDLE)
_LAST = cython.declare(cython.uint, opcodes.LAST)
_ONLY = cython.declare(cython.uint, opcodes.ONLY)
_SEND = cython.declare(cython.uint, opcodes.SEND)
_WRITE = cython.declare(cython.uint, opcodes.WRITE)
_REMOTE_WRITE = cython.declare(cython.uint, REMOTE_WRITE)
_MAX_MESSAGE = cython.declare(cython.ulonglong, MAX_MESSAGE_BYTES)
_MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_EACCES = cython.declare(cython.int, errno.EACCES)
_EAGAIN = cython.declare(cython.int, errno.EAGAIN)
_RECV_RDMA_WITH_IMM = cython.declare(cython.uint, WC_RECV_RDMA_WITH_IMM)
_LOST = cython.declare(cython.int, EVENT_MESSAGES_LOST)


class UnreliableExecutor(MessageExecutor):
    """Carries out SENDs and RDMA WRITEs of an unreliable connection, each packet judged by itself; ``rkey``
    is that of the RDMA WRITE under way."""

    def __init__(self, connection: Connection, sink: MessageSink) -> None:
        MessageExecutor.__init__(self, connection, sink)
        self.rkey = 0

    def posted(self, view: PacketView) -> bool:
        """Whether there is a receive for the message of this packet, sound or not."""
        queue: ReceiveQueue = self.sink.receive_queue(view)
        return queue is not None and queue.posted()

    def refusal(self, view: PacketView) -> str:
        """What a packet in sequence is dropped for, the first in the order of figure 117; None: nothing."""
        starts: cython.bint = view.position == _FIRST or view.position == _ONLY
        ends: cython.bint = view.position == _LAST or view.position == _ONLY
        # C9-190; C9-199: with a pad the opcode of a first or middle is invalid
        if view.operation == _WRITE and not self.connection.access & _REMOTE_WRITE:
            return "drops_opcode"
        if view.pad and not ends:
            return "drops_opcode"
        if ((starts and view.operation == _SEND) or view.has_immdt) and not self.posted(view):
            return "drops_no_receive"
        if not self.length_ok(view):
            return "drops_length"
        if view.operation == _SEND:
            return None
        if starts:
            self.va = view.reth_va
            self.rkey = view.reth_rkey
            self.length_bytes = view.reth_length
            self.received_bytes = 0
            self.release_target()
            if self.length_bytes > _MAX_MESSAGE:
                return "drops_length"
        if self.received_bytes + view.payload_bytes > self.length_bytes:
            return "drops_length"
        if ends != (self.received_bytes + view.payload_bytes == self.length_bytes):
            return "drops_length"
        if view.payload_bytes and not self.permitted(view.payload_bytes):
            return "drops_protection"
        return None

    def permitted(self, n: int) -> bool:
        """Whether the R_Key lets the next ``n`` bytes be written: this packet's, whatever the message's
        length (C9-192.2.1).  An empty RDMA WRITE does not ask (C9-193)."""
        va: cython.ulonglong = (self.va + self.received_bytes) & _MASK64
        if self.region is not None and self.region.generation == self.generation:
            return (
                self.region.valid
                and self.region.access & _REMOTE_WRITE != 0
                and self.region.pd == self.connection.pd
                and self.region.covers(va, n)
            )
        if self.received_bytes:
            # what the key granted to the packets before has changed
            return False
        return self.resolve_target(self.rkey, va, n)

    def place_write(self, view: PacketView, arrival: Arrival) -> int:
        """Write what a packet of an RDMA WRITE brings; an outcome."""
        outcome: cython.int
        result: cython.int
        if view.has_immdt:
            outcome = self.acquire(view)
            if outcome != _DONE:
                return outcome
        if view.payload_bytes:
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


class UnreliableReceiver(ReceiveEngine):
    """``epsn`` is the PSN expected next (C9-181); ``reported``: the client knows that packets before it are
    missing; ``execution`` carries messages out, which go to ``sink``."""

    def __init__(self, connection: Connection, sink: MessageSink) -> None:
        self.connection = connection
        self.sink = sink
        self.execution = UnreliableExecutor(connection, sink)
        self.now = 0
        self.epsn = 0
        self.reported = False

    def begin(self, psn: int) -> None:
        self.epsn = psn
        self.reported = False

    def receive(self, view: PacketView, arrival: Arrival, now: int) -> None:
        verdict: cython.int = _REFUSE
        in_order: cython.bint = view.psn == self.epsn
        whole: cython.bint = self.execution.operation != _NOTHING
        reason: str
        self.now = now
        if not in_order:
            self.missed()
        if view.operation <= _WRITE:
            verdict = _SEQUENCE[
                (self.execution.operation + 1) * _COLUMNS + view.operation * _POSITIONS + view.position
            ]
        if verdict == _REFUSE or (verdict == _GO_ON and not in_order):
            self.drop("drops_sequence", self.epsn if whole else view.psn, whole)
            if in_order:
                self.expect(view.psn)
            return
        if verdict == _BREAK:
            self.drop("drops_sequence", self.epsn, True)
        self.expect(view.psn)
        reason = self.execution.refusal(view)
        if reason is not None:
            self.drop(reason, view.psn, True)
            return
        self.execute(view, arrival)

    def flush(self) -> None:
        self.execution.abandon()
        self.sink.flush(self.now)

    def reset(self) -> None:
        self.execution.abandon()
        self.sink.reset()

    def missed(self) -> None:
        """A packet is not the one expected (C9-183): report it to the client, if asked to, once until one is
        again (o9-131)."""
        self.connection.count("out_of_sequence")
        if self.connection.tells_losses and not self.reported:
            self.reported = True
            self.connection.environment.event(_LOST, self.connection.number)

    def expect(self, psn: int) -> None:
        """The packet behind ``psn`` comes next (C9-185)."""
        self.epsn = (psn + 1) & 0xFFFFFF
        self.reported = False

    def drop(self, reason: str, psn: int, whole: bool) -> None:
        """Drop the packet and with it the message under way; its receive serves the next message.

        ``whole``: there is a message to be dropped, whose trouble began at ``psn``.
        """
        self.connection.count(reason)
        self.connection.observe(MESSAGE_DROPPED if whole else PACKET_DROPPED, psn, reason[6:])
        self.execution.abandon()

    def execute(self, view: PacketView, arrival: Arrival) -> None:
        """Execute a packet against which nothing is to be said; the receive itself may still be bad."""
        outcome: cython.int = self.execution.execute(view, arrival, self.now)
        if outcome == _DONE:
            return
        if outcome == _OPERATIONAL:
            # A local error, which ends the queue pair.
            self.execution.complete(self.execution.failure, 0, self.now)
            self.execution.abandon()
            self.connection.fail()
            return
        self.drop(DROPS.get(outcome, "drops_protection"), view.psn, True)
