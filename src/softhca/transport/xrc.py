"""Extended reliable connections (XRC): initiators, targets, and the domain whose shared receive queues the
targets serve (IBTA vol. 1, annex A14).

A connection leads from an *initiator* queue pair, which only sends, to a *target* queue pair, which only
receives.  Each request names a shared receive queue of the target's XRC domain in its XRCETH.  That queue
gives the receive of a SEND or of an immediate, its completion queue takes the completion, and its protection
domain decides about all memory that the request accesses: the target has none of its own.  So a node needs
one connection to a host, not one to each process of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from softhca.transport.acknowledgement import Sender
from softhca.transport.engines import ReceiveEngine, SendEngine
from softhca.transport.execution import NOTHING
from softhca.transport.receiving import MessageSink, ReceiveQueue
from softhca.transport.replies import INVALID_REQUEST
from softhca.transport.responder import Responder

if TYPE_CHECKING:
    from softhca.queues.shared_receive import SharedReceiveQueue
    from softhca.transport.connection import Connection
    from softhca.transport.context import QueuePair
    from softhca.transport.request import Request
    from softhca.transport.window import DestinationWindow
    from softhca.wire.burst import Arrival
    from softhca.wire.packet_view import PacketView

MOST_QUEUES = 64
"""Shared receive queues that one target keeps its side of at a time; for others it is made again."""

_MOST_QUEUES = cython.declare(cython.int, MOST_QUEUES)
_INVALID_REQUEST = cython.declare(cython.uint, INVALID_REQUEST)
_NOTHING = cython.declare(cython.int, NOTHING)


class XrcDomain:
    """The shared receive queues that targets of one XRC domain may serve.

    Whoever has opened the domain adds its queues to it and makes targets in it.
    """

    _queues: dict[int, SharedReceiveQueue]
    _targets: set[XrcSink]

    def __init__(self) -> None:
        self._queues = {}
        self._targets = set()

    def add(self, shared: SharedReceiveQueue) -> None:
        """A shared receive queue (`SharedReceiveQueue`) with a completion queue joins the domain."""
        self._queues[shared.number] = shared

    def find(self, number: int) -> SharedReceiveQueue:
        """The shared receive queue with a number; None: there is none in this domain."""
        return self._queues.get(number)

    def remove(self, shared: SharedReceiveQueue) -> None:
        """A shared receive queue is about to be destroyed.

        A connection in the middle of a message to it cannot go on: its target fails.  The others forget it.
        """
        self._queues.pop(shared.number, None)
        for target in list(self._targets):
            target.forget(shared.number)

    def enter(self, target: XrcSink) -> None:
        """The sink of a target in this domain has come to life."""
        self._targets.add(target)

    def leave(self, target: XrcSink) -> None:
        """It is gone."""
        self._targets.discard(target)


class XrcSender(Sender):
    """The send engine of an initiator: each packet names the shared receive queue that its work request
    names."""

    def step(self, request: Request, window: DestinationWindow) -> int:
        self.writer.xrc_srq = request.work.remote_qpn
        return Sender.step(self, request, window)


class XrcSink(MessageSink):
    """Where a target's messages go: to the shared receive queues of its domain, which the packets name."""

    queues: dict[int, ReceiveQueue]

    def __init__(self, qp: QueuePair) -> None:
        self.qp = qp
        self.domain = qp.domain
        self.queues = {}

    def receive_queue(self, view: PacketView) -> ReceiveQueue | None:
        queue: ReceiveQueue = self.queues.get(view.xrc_srq)
        if queue is not None:
            return queue
        shared = self.domain.find(view.xrc_srq)
        if shared is None:
            return None
        if len(self.queues) >= _MOST_QUEUES:
            self.forget_idle()
        queue = ReceiveQueue(self.qp, shared)
        self.queues[shared.number] = queue
        self.domain.enter(self)
        return queue

    def forget_idle(self) -> None:
        """Keep only what holds a receive: that of the message under way."""
        self.queues = {number: queue for number, queue in self.queues.items() if queue.acquired}

    def forget(self, number: int) -> None:
        """The shared receive queue ``number`` is about to be destroyed."""
        queue: ReceiveQueue = self.queues.get(number)
        if queue is not None and queue.acquired:
            self.qp.fail()
        self.queues.pop(number, None)

    def flush(self, now: int) -> None:
        queue: ReceiveQueue
        for queue in self.queues.values():
            queue.flush(now)

    def reset(self) -> None:
        queue: ReceiveQueue
        for queue in self.queues.values():
            queue.reset()
        self.queues = {}
        self.domain.leave(self)


class XrcResponder(Responder):
    """The receive engine of a target.

    What a packet accesses is decided by the protection domain of the shared receive queue that it names, so
    the connection takes that one on with each packet.
    """

    def __init__(self, connection: Connection, sink: XrcSink) -> None:
        Responder.__init__(self, connection, sink)
        self.domain = sink.domain
        self.srq = 0

    def enter(self, view: PacketView) -> bool:
        """Act for the shared receive queue that the packet names; False: it names none of the domain."""
        shared = self.domain.find(view.xrc_srq)
        if shared is None:
            return False
        self.connection.pd = shared.pd
        return True

    def expected(self, view: PacketView, arrival: Arrival) -> None:
        if self.execution.operation != _NOTHING and view.xrc_srq != self.srq:
            self.refuse(_INVALID_REQUEST)  # a message does not change its queue
        elif self.enter(view):
            self.srq = view.xrc_srq
            Responder.expected(self, view, arrival)
        else:
            self.refuse(_INVALID_REQUEST)

    def duplicate(self, view: PacketView) -> None:
        if self.enter(view):
            Responder.duplicate(self, view)
        else:
            self.connection.drop("drops_resources", view.psn)


class NoSender(SendEngine):
    """A target sends no requests, so it expects no answers."""

    def __init__(self, qp: QueuePair) -> None:
        self.qp = qp
        self.una_psn = 0

    def receive(self, view: PacketView, arrival: Arrival, now: int) -> None:
        self.qp.drop("drops_unexpected_response", view.psn)


class NoReceiver(ReceiveEngine):
    """An initiator takes no requests."""

    def __init__(self, qp: QueuePair) -> None:
        self.qp = qp
        self.epsn = 0

    def receive(self, view: PacketView, arrival: Arrival, now: int) -> None:
        self.qp.drop("drops_opcode", view.psn)
