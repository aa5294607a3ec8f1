"""Unreliable connections, and what their send side shares with datagrams (IBTA vol. 1, 9.8).

A message is sent once and completes when its last byte has gone (C9-180).  At the receiver nothing is ever
answered: whatever is wrong with a packet ends the message under way without a word (C9-186, C9-188), and
the next first or only packet begins anew whatever its PSN (C9-184).
"""

import cython

from softhca.queues.cqe import WC_LOC_PROT_ERR, WC_MW_BIND_ERR, WC_RECV
from softhca.transport.execution import (
    ACCESS,
    DONE,
    INVALID,
    LENGTH,
    NOT_READY,
    NOTHING,
    OPERATIONAL,
    MessageReceiver,
)
from softhca.transport.request import LOCAL, Request
from softhca.transport.segmentation import MAX_BURST_PACKETS, UNLIMITED
from softhca.transport.sending import SendQueue
from softhca.transport.states import RTS, SQD
from softhca.wire import opcodes

# outcome of a packet that could not be executed → what it is counted as
DROPS: dict[int, str] = {
    NOT_READY: "drops_no_receive",
    INVALID: "drops_length",
    ACCESS: "drops_protection",
    LENGTH: "drops_receive_length",
}

_RTS = cython.declare(cython.int, RTS)
_SQD = cython.declare(cython.int, SQD)
_LOCAL = cython.declare(cython.int, LOCAL)
_DONE = cython.declare(cython.int, DONE)
_OPERATIONAL = cython.declare(cython.int, OPERATIONAL)
_NOTHING = cython.declare(cython.int, NOTHING)
_FIRST = cython.declare(cython.uint, opcodes.FIRST)
_ONLY = cython.declare(cython.uint, opcodes.ONLY)
_SEND = cython.declare(cython.uint, opcodes.SEND)
_WRITE = cython.declare(cython.uint, opcodes.WRITE)
_RECV = cython.declare(cython.uint, WC_RECV)
_PROTECTION_ERROR = cython.declare(cython.int, WC_LOC_PROT_ERR)
_BIND_ERROR = cython.declare(cython.int, WC_MW_BIND_ERR)
_UNLIMITED = cython.declare(cython.ulonglong, UNLIMITED)
_MOST = cython.declare(cython.uint, MAX_BURST_PACKETS)


class UnreliableQueue(SendQueue):
    """A send side that keeps nothing: one request at a time, ``index`` its next packet, ``next_psn`` that
    one's PSN."""

    def __init__(self, qp):
        super().__init__(qp)
        self.next_psn = 0
        self.index = 0
        self.request = None

    def begin(self, psn):
        self.next_psn = psn

    def start(self, now):
        self.doorbell(now)

    def doorbell(self, now):
        self.now = now
        if self.qp.state == _RTS:
            self.ready = True
            self.qp.environment.schedule(self.qp)

    def current(self):
        """The request under way, or the next one; None for none."""
        if self.request is None and self.qp.state == _RTS:
            self.request = self.take()
            if self.request is not None:
                self.request.segment(self.qp.path_mtu_bytes, self.next_psn)
                self.index = 0
        return self.request

    def produce(self, burst, now):
        request: Request
        self.now = now
        if self.qp.state != _RTS and self.qp.state != _SQD:
            self.ready = False
            return 0
        self.writer.begin(burst, self.qp.route, _UNLIMITED)
        while True:
            request = self.current()
            if request is None:
                self.ready = False
                break
            if request.status:
                self.fail_head(request.status)
                break
            if request.kind == _LOCAL:
                self.fail_head(_BIND_ERROR)
                break
            if not self.write(request, burst):
                break
            self.request = None
            self.retire(0)
        if burst.packets:
            self.qp.count_sent(burst.packets, burst.length)
        if self.qp.draining and self.head == self.tail:
            self.qp.drained()
        return burst.packets

    def write(self, request, burst):
        """Write what fits of ``request`` into the burst; True when it has gone whole."""
        written: cython.int = self.writer.message(request, self.index, _MOST, False)
        if written < 0:
            self.fail_head(_PROTECTION_ERROR)
            return False
        self.index += written
        self.next_psn = (self.next_psn + written) & 0xFFFFFF
        return self.index == request.packets

    def fail_head(self, status):
        """The request under way ends with ``status``; the send queue stops (SQE)."""
        self.request = None
        self.retire(status)
        self.qp.fail_sending()

    def flush(self):
        self.request = None
        SendQueue.flush(self)

    def reset(self):
        self.request = None
        SendQueue.reset(self)


class UnreliableSender(UnreliableQueue):
    """The send side of an unreliable connection."""


class UnreliableReceiver(MessageReceiver):
    """The receive side of an unreliable connection; ``epsn`` is the PSN expected next (C9-181)."""

    def __init__(self, qp):
        super().__init__(qp)
        self.epsn = 0

    def begin(self, psn):
        self.epsn = psn

    def drop(self, reason):
        """Drop the packet and with it the message under way; its receive serves the next message."""
        self.qp.count(reason)
        self.abandon()

    def receive(self, view, arrival, now):
        outcome: cython.int
        starts: cython.bint = view.position == _FIRST or view.position == _ONLY
        self.now = now
        if starts:
            if self.operation != _NOTHING:
                self.drop("drops_sequence")
        elif self.operation == _NOTHING or view.psn != self.epsn or not self.in_sequence(view):
            self.drop("drops_sequence")
            return
        self.epsn = (view.psn + 1) & 0xFFFFFF
        if view.operation != _SEND and view.operation != _WRITE:
            self.drop("drops_opcode")
            return
        if not self.length_ok(view):
            self.drop("drops_length")
            return
        outcome = self.execute(view, arrival)
        if outcome == _DONE:
            return
        if outcome == _OPERATIONAL:
            # The receive itself is bad: a local error, which ends the queue pair.
            if self.holding:
                self.finish(self.failure, _RECV, 0, 0, 0, self.qp.dest_qp, False)
            self.abandon()
            self.qp.fail()
            return
        self.drop(DROPS.get(outcome, "drops_protection"))
