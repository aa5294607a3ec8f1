"""The receive side of reliable datagrams: an EE context executes the messages of its peer, each for the queue
pair that it names (IBTA vol. 1, 9.7.8, 9.9.3).

PSNs, gaps, duplicates and answers are those of a reliable connection.  Besides, each request names its queue
pair (BTH) and bears a Q_Key (DETH).  A queue pair that is not there, of another reliable datagram domain, or
with another Q_Key gets it the NAK "invalid RD request".  What a packet accesses is decided by its queue pair:
its protection domain, its rights, its memory windows.

A NAK, but for sequence and RNR, ends the message and not the EE context: the responder executes nothing more
until a RESYNC says where the next message begins.  What the queue pair has acquired for a message that is not
finished then ends as aborted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from softhca.queues.layout import WC_RECV, WC_REM_ABORT_ERR, WC_WR_FLUSH_ERR
from softhca.transport.ee_context import EndToEndContext
from softhca.transport.engines import ReceiveEngine
from softhca.transport.execution import NOTHING, OPERATIONAL
from softhca.transport.receiving import MessageSink, ReceiveQueue
from softhca.transport.replies import (
    INVALID_RD_REQUEST,
    INVALID_REQUEST,
    REMOTE_OPERATIONAL,
    ResponseGenerator,
)
from softhca.transport.responder import Responder
from softhca.transport.states import BEHAVIOUR, ERR, RD
from softhca.wire import opcodes
from softhca.wire.psn import distance

if TYPE_CHECKING:
    from softhca.transport.context import QueuePair
    from softhca.transport.replay import Resource
    from softhca.wire.burst import Arrival, Burst
    from softhca.wire.packet_view import PacketView

MOST_QUEUES = 16
"""Queue pairs whose receives an EE context keeps its side of at a time; for others it is made again."""

_MOST_QUEUES = cython.declare(cython.int, MOST_QUEUES)
_RESYNC = cython.declare(cython.uint, opcodes.RESYNC)
_MASK = cython.declare(cython.uint, 0xFFFFFF)
_HALF = cython.declare(cython.uint, 1 << 23)
_SEND = cython.declare(cython.uint, opcodes.SEND)
_WRITE = cython.declare(cython.uint, opcodes.WRITE)
_NOTHING = cython.declare(cython.int, NOTHING)
_OPERATIONAL = cython.declare(cython.int, OPERATIONAL)
_ERR = cython.declare(cython.int, ERR)
_RD = cython.declare(cython.int, RD)
_ABORTED = cython.declare(cython.int, WC_REM_ABORT_ERR)
_RECV = cython.declare(cython.uint, WC_RECV)
_FLUSHED = cython.declare(cython.int, WC_WR_FLUSH_ERR)
_INVALID_RD = cython.declare(cython.uint, INVALID_RD_REQUEST)
_INVALID_REQUEST = cython.declare(cython.uint, INVALID_REQUEST)
_REMOTE_OPERATIONAL = cython.declare(cython.uint, REMOTE_OPERATIONAL)
_RECEIVES = cython.declare(tuple, tuple([behaviour.receive for behaviour in BEHAVIOUR]))


class RdReceiver(ReceiveEngine):
    """The receive engine of a queue pair: its receives, which several EE contexts may take at a time.

    ``sinks`` are those of EE contexts that may have acquired one; ``incarnation`` changes whenever the queue
    pair gives up what is under way, so that no message goes on in another life of it.
    """

    sinks: set[EeSink]

    def __init__(self, qp: QueuePair) -> None:
        self.qp = qp
        self.queue = ReceiveQueue(qp)
        self.sinks = set()
        self.incarnation = 0
        self.epsn = 0
        self.now = 0

    def start(self, now: int) -> None:
        self.now = now

    def release(self, flushed: bool) -> None:
        """Take from the EE contexts what they have acquired."""
        self.incarnation += 1
        for sink in list(self.sinks):
            sink.forget(self.qp, flushed)
        self.sinks.clear()

    def flush(self) -> None:
        self.release(True)
        self.queue.flush(self.now)

    def reset(self) -> None:
        self.release(False)
        self.queue.reset()


def receiver_of(qp: QueuePair) -> RdReceiver:
    """The receive engine of a queue pair of reliable datagrams."""
    return cython.cast(RdReceiver, qp.receive_engine())


class EeSink(MessageSink):
    """Where the messages of an EE context go: to the queue pairs that they name.  ``qp`` is the packet's that
    is looked at, ``queues`` are this EE context's sides of their receives."""

    qp: QueuePair
    queues: dict[int, ReceiveQueue]

    def __init__(self, ee: EndToEndContext) -> None:
        self.ee = ee
        self.qp = None
        self.queues = {}

    def receive_queue(self, view: PacketView) -> ReceiveQueue | None:
        queue: ReceiveQueue
        if self.qp is None:
            return None
        queue = self.queues.get(self.qp.number)
        if queue is None:
            if len(self.queues) >= _MOST_QUEUES:
                self.forget_idle()
            queue = ReceiveQueue(self.qp)
            queue.ee_context = self.ee.ee_number
            self.queues[self.qp.number] = queue
            receiver_of(self.qp).sinks.add(self)
        return queue

    def forget_idle(self) -> None:
        """Keep only what holds a receive: that of the message under way."""
        queue: ReceiveQueue
        for number, queue in list(self.queues.items()):
            if not queue.acquired:
                del self.queues[number]
                receiver_of(queue.qp).sinks.discard(self)

    def forget(self, qp: QueuePair, flushed: bool) -> None:
        """A queue pair gives up what is under way: what is acquired of it ends, with a completion where
        it is ``flushed``."""
        queue: ReceiveQueue = self.queues.pop(qp.number, None)
        if queue is None or not queue.acquired:
            return
        if flushed:
            queue.complete(_FLUSHED, _RECV, 0, 0, 0, 0, False, 0)
        else:
            queue.acquired = False
            queue.ring.release(1)

    def flush(self, now: int) -> None:
        """The EE context has ended: what it has acquired is not filled any more."""
        queue: ReceiveQueue
        queues = self.queues
        self.queues = {}
        for queue in queues.values():
            receiver_of(queue.qp).sinks.discard(self)
            if queue.acquired:
                queue.complete(_ABORTED, _RECV, 0, 0, 0, 0, False, now)

    def reset(self) -> None:
        self.flush(0)


class EeReplies(ResponseGenerator):
    """What an EE context answers.  ``peer_qp`` is the queue pair that its answers go to; ``refused`` the
    syndrome of the NAK that holds until a RESYNC comes, 0 for none."""

    def __init__(self, ee: EndToEndContext, sink: MessageSink) -> None:
        self.ee = ee
        self.peer_qp = 0
        self.refused = 0
        ResponseGenerator.__init__(self, ee, sink)

    def aim(self) -> None:
        """The packets to be written are for the peer's EE context, and its queue pair."""
        self.writer.ee_context = self.ee.remote_ee
        self.connection.dest_qp = self.peer_qp

    def produce(self, burst: Burst, now: int) -> int:
        self.aim()
        return ResponseGenerator.produce(self, burst, now)

    def join(self, burst: Burst) -> int:
        self.aim()
        return ResponseGenerator.join(self, burst)

    def fatal(self, psn: int, code: int, event: int) -> None:
        """Answer ``psn`` with NAK ``code``: the message is over, the EE context is not."""
        self.refused = code
        self.refuse(psn, code)


class EeResponder(Responder):
    """The receive engine of an EE context.

    ``qp`` is the queue pair of the packet that is looked at, ``begun`` that of the message under way,
    ``source_qp`` the one that it comes from, ``incarnation`` what its receive engine said when it began.
    ``resynced``: a RESYNC has come, with the PSN ``floor``, and less than half of all PSNs have followed it.
    """

    qp: QueuePair
    begun: QueuePair

    def __init__(self, ee: EndToEndContext, sink: EeSink) -> None:
        Responder.__init__(self, ee, sink)
        self.ee = ee
        self.messages = sink
        self.replies = self.answers = EeReplies(ee, sink)
        self.qp = None
        self.begun = None
        self.source_qp = 0
        self.incarnation = 0
        self.resynced = False
        self.floor = 0

    def receive(self, view: PacketView, arrival: Arrival, now: int) -> None:
        gap: cython.int = distance(self.epsn, view.psn)
        self.now = now
        if view.operation == _RESYNC:
            self.resync(view, gap)
        elif self.answers.refused:
            if gap <= 0:
                self.answers.refuse(view.psn, self.answers.refused)
        else:
            self.answers.peer_qp = self.connection.dest_qp = view.source_qp
            Responder.receive(self, view, arrival, now)

    def resync(self, view: PacketView, gap: int) -> None:
        """The requester goes on behind this packet (9.7.8); a repeated one is acknowledged again."""
        self.answers.peer_qp = view.source_qp
        if gap < 0:
            if self.was_passed_over(view.psn):
                self.connection.drop("drops_sequence", view.psn)
                return
            self.connection.count("duplicates")
            self.answers.acknowledge_through(view.psn)
            return
        self.abort_message()
        self.resynced = True
        self.floor = view.psn
        self.answers.clear()
        self.answers.refused = 0
        self.nak_sent = False
        self.epsn = (view.psn + 1) & 0xFFFFFF
        self.answers.acknowledge_through(view.psn)

    def was_passed_over(self, psn: int) -> bool:
        """Whether a RESYNC has gone past this PSN, which is behind.  What it stands for was given up, and may
        never have been executed here; whoever has not sent that RESYNC must not believe it done."""
        return self.resynced and ((self.epsn - psn) & _MASK) > ((self.epsn - self.floor) & _MASK)

    def abort_message(self) -> None:
        """The message under way does not go on."""
        self.execution.complete(_ABORTED, 0, self.now)
        self.execution.abandon()

    def expected(self, view: PacketView, arrival: Arrival) -> None:
        if self.resynced and (self.epsn - self.floor) & _MASK >= _HALF:
            self.resynced = False  # all that is behind has come since
        if self.execution.operation != _NOTHING and not self.continues(view):
            self.abort_message()
            self.answers.fatal(view.psn, _INVALID_REQUEST, -1)
            return
        if not self.enter(view):
            self.abort_message()
            self.answers.fatal(view.psn, _INVALID_RD, -1)
            return
        self.begun = self.qp
        self.source_qp = view.source_qp
        self.incarnation = receiver_of(self.qp).incarnation
        Responder.expected(self, view, arrival)
        if self.qp.state == _ERR and not self.answers.refused:
            # its completion was lost: the peer must not believe the message done
            self.answers.fatal(view.psn, _REMOTE_OPERATIONAL, -1)
        if self.answers.refused:
            self.abort_message()

    def continues(self, view: PacketView) -> bool:
        """Whether the packet is for the queue pair of the message under way, which lives on."""
        return (
            view.dest_qp == self.begun.number
            and view.source_qp == self.source_qp
            and self.incarnation == receiver_of(self.begun).incarnation
        )

    def enter(self, view: PacketView) -> bool:
        """Act for the queue pair that the packet names; False: it may not have the packet."""
        qp: QueuePair = self.connection.environment.queue_pairs.get(view.dest_qp)
        if qp is None or qp.service != _RD or not _RECEIVES[qp.state] or qp.domain is not self.ee.domain:
            return False
        if qp.qkey != view.qkey:
            self.connection.count("drops_qkey")
            return False
        self.qp = self.messages.qp = qp
        self.connection.number = qp.number
        self.connection.pd = qp.pd
        self.connection.access = qp.access
        self.connection.min_rnr_timer = qp.min_rnr_timer
        return True

    def message_failed(self, view: PacketView, outcome: int) -> None:
        """What is wrong with a receive is its queue pair's own fault: that is in error then."""
        Responder.message_failed(self, view, outcome)
        if outcome == _OPERATIONAL:
            self.qp.fail()

    def duplicate(self, view: PacketView) -> None:
        """As of a connection; an answer is given again only to who may still wait for it."""
        resource: Resource
        if self.was_passed_over(view.psn):
            self.connection.drop("drops_sequence", view.psn)
            return
        if view.operation != _SEND and view.operation != _WRITE:
            resource = self.answers.ring.find(view.psn)
            if resource is None or (resource.first_psn + resource.packets) & 0xFFFFFF != self.epsn:
                self.connection.drop("drops_resources", view.psn)
                return
        if self.enter(view):
            Responder.duplicate(self, view)
        else:
            self.connection.drop("drops_resources", view.psn)

    def reset(self) -> None:
        self.answers.refused = 0
        self.resynced = False
        self.qp = self.begun = self.messages.qp = None
        Responder.reset(self)

    def flush(self) -> None:
        self.answers.refused = 0
        Responder.flush(self)
