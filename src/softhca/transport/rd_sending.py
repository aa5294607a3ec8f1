"""The send side of reliable datagrams: queue pairs give messages to EE contexts, which carry them out (IBTA
vol. 1, 9.7.8, 9.9.2).

A send queue has one message under way, an EE context too.  So an EE context takes the messages that queue
pairs have for it in turn, and each pair of queue pair and EE context keeps its order.  A request whose EE
context is in trouble is set aside (`ee_error_cache`), and the queue goes on; all complete in the order in
which they were posted.

A message that fails for what the peer or the own memory says of it, or whose queue pair ends, is *aborted*:
the EE context begins what follows at a PSN that was never sent, and a RESYNC makes the responder expect that.
An EE context that does not get through (retries exceeded) is in error itself, and so are the messages that it
has.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

import cython

from softhca.queues.layout import (
    FENCE,
    WC_INV_EEC_STATE_ERR,
    WC_INV_EECN_ERR,
    WC_LOC_RDD_VIOL_ERR,
    WC_MW_BIND_ERR,
    WC_RETRY_EXC_ERR,
    WC_WR_FLUSH_ERR,
)
from softhca.queues.operations import LOCAL
from softhca.transport.acknowledgement import Sender
from softhca.transport.conditions import FRESH, NOT_READY
from softhca.transport.ee_context import EndToEndContext
from softhca.transport.engines import SendEngine
from softhca.transport.key_work import execute_local
from softhca.transport.request import Request
from softhca.transport.sending import RequestSource, SendQueue
from softhca.transport.states import BEHAVIOUR
from softhca.wire.psn import distance

if TYPE_CHECKING:
    from softhca.transport.context import QueuePair
    from softhca.transport.window import DestinationWindow
    from softhca.wire.burst import Burst
    from softhca.wire.packet_view import PacketView

RESYNC_KIND = 31
"""A request's ``kind`` of what no work request asks for: none of those of `queues.operations`."""
HIGH_QKEY = 1 << 31
"""A Q_Key of a work request with this bit stands for the queue pair's own (IBTA vol. 1, 10.2.4)."""
SLOW_PART = 16
"""What an EE context has in flight is waited for unusually long after this part of the time-out: so a queue
stands still for a short time only before it sets a request aside, and nothing is sent again too early."""
EE_FAULTS = frozenset({WC_RETRY_EXC_ERR, WC_INV_EEC_STATE_ERR})
"""Completion statuses that say something of the EE context and nothing of the request."""

_RESYNC = cython.declare(cython.int, RESYNC_KIND)
_SLOW_PART = cython.declare(cython.ulonglong, SLOW_PART)
_LOCAL = cython.declare(cython.int, LOCAL)
_FRESH = cython.declare(cython.int, FRESH)
_NOT_READY = cython.declare(cython.int, NOT_READY)
_FENCE = cython.declare(cython.uint, FENCE)
_HIGH = cython.declare(cython.uint, HIGH_QKEY)
_FLUSHED = cython.declare(cython.int, WC_WR_FLUSH_ERR)
_NO_CONTEXT = cython.declare(cython.int, WC_INV_EECN_ERR)
_NOT_ITS_STATE = cython.declare(cython.int, WC_INV_EEC_STATE_ERR)
_OTHER_DOMAIN = cython.declare(cython.int, WC_LOC_RDD_VIOL_ERR)
_RETRY_EXCEEDED = cython.declare(cython.int, WC_RETRY_EXC_ERR)
_BIND_ERROR = cython.declare(cython.int, WC_MW_BIND_ERR)
_UNLIMITED = cython.declare(cython.ulonglong, 1 << 62)
_RESYNC_COST = cython.declare(cython.ulonglong, 64)
_START_SEND = cython.declare(tuple, tuple([behaviour.start_send for behaviour in BEHAVIOUR]))


class RdMessage:
    """A work request that its send queue has begun.  ``ee`` is the EE context that has it (None: it needs
    none), ``aside``: the error cache holds it; ``status`` is that of its completion once it has ``ended``.
    """

    def __init__(self, queue: RdSender, request: Request) -> None:
        self.queue = queue
        self.request = request
        self.ee: EndToEndContext = None
        self.aside = False
        self.ended = False
        self.status = 0


class RdSender(SendEngine):
    """The send engine of a queue pair.

    ``order`` are the messages that were begun and have not completed, as they were posted; there are never
    more than the ring has entries.  ``current`` is the one that keeps those behind it waiting.
    """

    current: RdMessage
    order: deque[RdMessage]

    def __init__(self, qp: QueuePair) -> None:
        self.qp = qp
        self.ring = SendQueue(qp)
        self.order = deque()
        self.current = None
        self.now = 0
        self.una_psn = 0

    def doorbell(self, now: int) -> None:
        self.now = now
        self.ask_turn()

    def start(self, now: int) -> None:
        self.doorbell(now)

    def resume(self, now: int) -> None:
        self.now = now

    def produce(self, burst: Burst, now: int) -> int:
        """Begin what may begin; the packets are the EE contexts'."""
        message: RdMessage = self.current
        left: cython.uint = self.ring.capacity
        request: Request
        self.now = now
        if message is not None and message.ee is None and self.order[0] is message:
            self.current = None
            self.begin_message(message)
        while self.current is None and _START_SEND[self.qp.state]:
            if left == 0:
                self.ask_turn()
                break
            left -= 1
            request = self.ring.take(False)
            if request is None:
                break
            message = RdMessage(self, request)
            self.order.append(message)
            self.begin_message(message)
        return 0

    def ask_turn(self) -> None:
        """There may be something to begin."""
        self.qp.environment.schedule(self.qp.flow)

    def begin_message(self, message: RdMessage) -> None:
        """A work request has its turn.

        What changes keys, and what is fenced, waits for the end of all that was posted before.
        """
        request: Request = message.request
        if request.status:
            self.end(message, request.status, self.now)
        elif (request.kind == _LOCAL or request.work.flags & _FENCE) and self.order[0] is not message:
            self.current = message
        elif request.kind == _LOCAL:
            self.end(message, _BIND_ERROR if execute_local(request.work, self.qp) else 0, self.now)
        else:
            self.give(message)

    def give(self, message: RdMessage) -> None:
        """To the EE context that the work request names, if it may have it."""
        ee: EndToEndContext = self.qp.environment.ee_contexts.get(message.request.work.ah)
        if ee is None:
            self.end(message, _NO_CONTEXT, self.now)
        elif ee.domain is not self.qp.domain:
            self.end(message, _OTHER_DOMAIN, self.now)
        elif not ee.takes_messages():
            self.end(message, _NOT_ITS_STATE, self.now)
        else:
            message.ee = ee
            if not (ee.stalled and self.qp.environment.ee_errors.put(message)):
                self.current = message
            ee.put(message, self.now)

    def set_aside(self, message: RdMessage) -> None:
        """The EE context of a message is in trouble: go on with the next one, if the cache has a place."""
        if self.current is message and self.qp.environment.ee_errors.put(message):
            self.current = None
            self.ask_turn()

    def place_free(self) -> None:
        """There is a place in the error cache, for which this queue has waited."""
        message: RdMessage = self.current
        if message is not None and message.ee is not None and message.ee.stalled:
            self.set_aside(message)

    def end(self, message: RdMessage, status: int, now: int) -> None:
        """A message has ended; it completes when all that was posted before has."""
        if now:
            self.now = now
        message.ended = True
        message.status = status
        self.let_go(message)
        self.complete()
        if self.order and self.current is not None and self.order[0] is self.current:
            self.ask_turn()

    def let_go(self, message: RdMessage) -> None:
        """Nobody waits for the message any more."""
        if self.current is message:
            self.current = None
            self.ask_turn()
        if message.aside:
            self.qp.environment.ee_errors.remove(message)

    def complete(self) -> None:
        """Complete what has ended and has nothing before it."""
        message: RdMessage
        while self.order and self.order[0].ended:
            message = self.order.popleft()
            self.ring.retire(message.request, message.status, self.now)
            if message.status and not self.stays(message.status):
                self.qp.fail_sending()
        if self.qp.draining and not self.order:
            self.qp.drained()

    def stays(self, status: int) -> bool:
        """Whether the queue goes on behind a request that ends so: where the EE context is at fault, and
        there is an error cache, it does; else it is in error (SQE: 10.3.1)."""
        return status in EE_FAULTS and self.qp.environment.ee_errors.capacity > 0

    def abandon(self, message: RdMessage) -> None:
        """Take a message that has not ended from its EE context."""
        if message.aside:
            self.qp.environment.ee_errors.remove(message)
        if message.ee is not None:
            message.ee.abort(message)

    def flush(self) -> None:
        message: RdMessage
        status: cython.int
        self.current = None
        self.qp.environment.ee_errors.forget(self)
        while self.order:
            message = self.order.popleft()
            status = message.status
            if not message.ended:
                self.abandon(message)
                status = _FLUSHED
            self.ring.retire(message.request, status, self.now)
        self.ring.flush(self.now)

    def reset(self) -> None:
        message: RdMessage
        self.current = None
        self.qp.environment.ee_errors.forget(self)
        while self.order:
            message = self.order.popleft()
            if not message.ended:
                self.abandon(message)
            self.ring.drop(message.request)
        self.ring.reset()

    def drained(self) -> bool:
        return not self.order


class EeSource(RequestSource):
    """The messages of one EE context: ``under_way`` the one that its sender has, ``queue`` the others in the
    order in which queue pairs have put them.  ``resync``: a RESYNC goes before the next one."""

    under_way: RdMessage
    queue: OrderedDict[RdMessage, None]

    def __init__(self, ee: EndToEndContext) -> None:
        # two places: a sender with one request asks for the next, to learn that there is one
        RequestSource.__init__(self, 2)
        self.ee = ee
        self.under_way = None
        self.queue = OrderedDict()
        self.resync = False
        self.resynchronisation = Request(0, 0)

    def next(self, at_rest: bool, now: int) -> Request | None:
        self.waits = not at_rest and self.can_wait()
        if not at_rest:
            return None
        if self.resync:
            self.resync = False
            self.resynchronisation.kind = _RESYNC
            return self.resynchronisation
        if not self.queue:
            return None
        self.under_way, _ = self.queue.popitem(last=False)
        return self.under_way.request

    def can_wait(self) -> bool:
        return self.resync or bool(self.queue)

    def retire(self, request: Request, status: int, now: int) -> None:
        message: RdMessage = self.under_way
        if message is None or message.request is not request:
            return  # a RESYNC
        self.under_way = None
        message.queue.end(message, _NOT_ITS_STATE if status == _FLUSHED else status, now)

    def drop(self, request: Request) -> None:
        """The EE context is reset: its messages end with an error all the same, for their queues live on."""
        self.retire(request, _FLUSHED, 0)

    def flush(self, now: int) -> None:
        message: RdMessage
        self.resync = False
        while self.queue:
            message, _ = self.queue.popitem(last=False)
            message.queue.end(message, _NOT_ITS_STATE, now)

    def reset(self) -> None:
        self.flush(0)


class EeSender(Sender):
    """The send engine of an EE context."""

    def __init__(self, ee: EndToEndContext) -> None:
        self.messages = EeSource(ee)
        Sender.__init__(self, ee, self.messages)
        self.ee = ee

    def waiting(self, message: RdMessage) -> None:
        """A message waits for its turn."""
        self.messages.queue[message] = None

    def step(self, request: Request, window: DestinationWindow) -> int:
        message: RdMessage = self.messages.under_way
        self.writer.ee_context = self.ee.remote_ee
        if request.kind == _RESYNC:
            return self.step_resync(request)
        self.connection.dest_qp = request.work.remote_qpn & 0xFFFFFF
        self.writer.source_qp = message.queue.qp.number
        self.writer.qkey = request.work.remote_qkey
        if self.writer.qkey & _HIGH:
            self.writer.qkey = message.queue.qp.qkey
        return Sender.step(self, request, window)

    def step_resync(self, request: Request) -> int:
        """RESYNC: a packet of one PSN, which the responder acknowledges."""
        self.writer.budget_bytes = _UNLIMITED
        if not self.writer.resync(request.first_psn):
            return 0
        self.cursor_packet = 1
        self.asked_psn = (request.first_psn + 1) & 0xFFFFFF
        self.sent(_RESYNC_COST, False)
        self.pushed = False
        return 1

    def fail_head(self, status: int) -> None:
        """The message under way ends with ``status``; the EE context goes on with the next one, unless it
        does not get through."""
        request: Request
        if status == _RETRY_EXCEEDED or self.head == self.tail:
            Sender.fail_head(self, status)
            return
        request = self.at(self.head)
        if request.kind == _RESYNC:
            Sender.fail_head(self, _RETRY_EXCEEDED)
            return
        self.give_up_head()
        self.messages.fail(request, status, self.now)

    def abort(self, message: RdMessage) -> None:
        """A queue pair takes its message back."""
        if message is self.messages.under_way:
            self.messages.under_way = None
            if self.head != self.tail:
                self.give_up_head()
        else:
            self.messages.queue.pop(message, None)

    def give_up_head(self) -> None:
        """Forget the request under way, and go on behind the PSNs that were sent of it."""
        request: Request = self.at(self.head)
        begun: cython.bint = distance(request.first_psn, self.high_psn) > 0
        self.requests[self.head & self.mask] = None
        self.head += 1
        self.cursor = self.head
        self.cursor_packet = 0
        self.una_psn = self.next_psn = self.asked_psn = self.high_psn
        self.rd_outstanding = 0
        self.unrequested_bytes = 0
        self.recovery = _FRESH
        self.retry.stop()
        self.retry.progress()
        if begun:
            self.messages.resync = True
        if self.flow.window is not None:
            self.flow.window.give_up(self.in_flight.clear(self.flow.window.epoch))
        self.go_on()

    def progressed(self) -> None:
        Sender.progressed(self)
        self.ee.stalled = False

    def rnr_nak(self, view: PacketView) -> None:
        Sender.rnr_nak(self, view)
        if self.condition == _NOT_READY:
            self.report_stall()

    def slow_ns(self) -> int:
        """When what is in flight has been waited for unusually long, 0 where that is known, or nothing is."""
        if self.ee.stalled or self.retry.deadline_ns == 0 or self.retry.persisting:
            return 0
        return self.retry.deadline_ns - self.retry.interval_ns + self.retry.interval_ns // _SLOW_PART

    def rearm(self) -> None:
        slow: cython.ulonglong = self.slow_ns()
        Sender.rearm(self)
        if slow and (self.armed_ns == 0 or slow < self.armed_ns):
            self.armed_ns = slow
            self.flow.environment.arm(self.flow, slow)

    def expire(self, now: int) -> None:
        slow: cython.ulonglong = self.slow_ns()
        if slow and now >= slow:
            self.now = now
            self.report_stall()
        Sender.expire(self, now)

    def report_stall(self) -> None:
        """What is under way takes longer than it should: queue pairs may set aside what they have here."""
        message: RdMessage
        if self.ee.stalled:
            return
        self.ee.stalled = True
        if self.messages.under_way is not None:
            message = self.messages.under_way
            message.queue.set_aside(message)
        for message in list(self.messages.queue):
            message.queue.set_aside(message)

    def flush(self) -> None:
        self.ee.stalled = False
        Sender.flush(self)

    def reset(self) -> None:
        self.ee.stalled = False
        Sender.reset(self)
