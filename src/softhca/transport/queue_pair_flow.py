"""The flow of a queue pair, or of an end-to-end context: send and receive side take turns on one route."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from softhca.transport.flow import Flow
from softhca.transport.migration import FOLLOW, READY
from softhca.transport.notification import notification_route, put_notification
from softhca.transport.pacing import Both
from softhca.transport.states import BEHAVIOUR, RESET, RTR
from softhca.wire.burst import CAPACITY
from softhca.wire.opcodes import ACKNOWLEDGE, ATOMIC_ACK, READ_RESPONSE
from softhca.wire.route import Route

if TYPE_CHECKING:
    from softhca.transport.congestion import CongestionControl
    from softhca.transport.connection import Connection
    from softhca.transport.pacing import PacketPacing
    from softhca.wire.burst import Arrival, Burst
    from softhca.wire.packet_view import PacketView
    from softhca.wire.raw import RawView

_NATIVE = cython.declare(cython.int, 0)
_RTR = cython.declare(cython.int, RTR)
_RESET = cython.declare(cython.int, RESET)
_READ_RESPONSE = cython.declare(cython.uint, READ_RESPONSE)
_ACKNOWLEDGE = cython.declare(cython.uint, ACKNOWLEDGE)
_ATOMIC_ACK = cython.declare(cython.uint, ATOMIC_ACK)
_RECEIVES = cython.declare(tuple, tuple([behaviour.receive for behaviour in BEHAVIOUR]))
_FLUSH_SEND = cython.declare(tuple, tuple([behaviour.flush_send for behaviour in BEHAVIOUR]))


class QueuePairFlow(Flow):
    """The flow of ``queue_pair``, which makes it and keeps it for life.

    ``limiter`` is what its turns are asked of: its congestion control, its pacing, both, or None.
    None of its methods raises on anything that comes from the peer or from the rings.
    """

    telling_route: Route
    limiter: CongestionControl

    def __init__(self, queue_pair: Connection) -> None:
        row = queue_pair.row
        Flow.__init__(
            self, queue_pair.environment, queue_pair.number, row.shares_bursts, row.multicasts
        )
        self.qp = queue_pair
        self.replied_last = False
        self.overtaken = False
        self.tells = False
        self.paced = False
        self.telling_route = None
        self.limiter = None

    def clear(self) -> None:
        """The queue pair is in RESET: no route, no window, nothing to remember."""
        self.route = None
        self.window = None
        self.service_level = 0
        self.waiting = False
        self.replied_last = False
        self.overtaken = False
        self.quick_replies = 0
        self.control_by(None)
        self.pace_by(None)

    def control_by(self, control: CongestionControl | None) -> None:
        """Have this congestion control from now on, or none; what another one has said is forgotten."""
        self.control = control
        self.tells = False
        self.telling_route = None
        self._limit()

    def pace_by(self, pacing: PacketPacing | None) -> None:
        """Keep to this rate limit from now on, or to none; it holds whatever way the packets go."""
        self.pacing = pacing
        self._limit()

    def _limit(self) -> None:
        """Ask whoever there is; who waits for a moment asks anew."""
        self.limiter = self.control
        if self.pacing is not None:
            self.limiter = self.pacing if self.control is None else Both(self.control, self.pacing)
        self.not_before_ns = 0
        self.burst_limit_bytes = CAPACITY
        if self.paced:
            self.paced = False
            self.environment.schedule(self)

    def receive(self, view: PacketView, arrival: Arrival, now: int) -> None:
        """Take a packet for this queue pair."""
        qp = self.qp
        qp.counters.packets_received += 1
        qp.counters.bytes_received += view.payload_bytes
        if cython.cast(cython.int, view.service) != qp.service:
            qp.drop("drops_service", view.psn)
            return
        if not _RECEIVES[qp.state]:
            qp.drop("drops_state", view.psn)
            return
        if qp.instance and view.reserved7 != qp.instance:
            qp.drop("drops_instance", view.psn)
            return
        if qp.migration:
            self._consider_path(view, arrival, now)
        if not qp.established and qp.state == _RTR:
            qp.establish()
        if (
            view.operation == _ACKNOWLEDGE
            or view.operation == _READ_RESPONSE
            or view.operation == _ATOMIC_ACK
        ):
            qp.requester.receive(view, arrival, now)
        else:
            qp.responder.receive(view, arrival, now)

    def _consider_path(self, view: PacketView, arrival: Arrival, now: int) -> None:
        """A packet says whether the peer is ready to migrate, or has done so (`transport.migration`)."""
        qp = self.qp
        route: Route
        if not view.migreq:
            qp.migrate(READY, now)
        elif qp.alternate is not None:
            route = qp.alternate.route
            if route.framing == _NATIVE:
                if arrival.slid == route.dlid:
                    qp.migrate(FOLLOW, now)
            elif arrival.source == route.destination and arrival.destination == route.source:
                qp.migrate(FOLLOW, now)

    def receive_raw(self, view: RawView, arrival: Arrival, now: int) -> None:
        """Take a raw datagram (`wire.raw`) for this queue pair, which is a raw one."""
        qp = self.qp
        qp.counters.packets_received += 1
        qp.counters.bytes_received += view.payload_bytes
        if not _RECEIVES[qp.state]:
            qp.drop("drops_state", -1)
            return
        qp.responder.receive_raw(view, arrival, now)

    def receive_notification(self, now: int) -> None:
        """The peer tells of congestion (a CNP, IBTA A17.9.3)."""
        self.qp.count("cnps_received" if self.control.notified(now) else "cnps_ignored")

    def marked(self, now: int) -> None:
        """Packets of the peer that have come were marked for congestion on their way."""
        self.qp.count("packets_marked")
        if self.control.marked(now):
            self.tells = True
            self.environment.schedule(self)

    def expire(self, now: int) -> None:
        self.qp.requester.expire(now)
        self.qp.responder.expire(now)
        if self.paced:
            if now >= self.not_before_ns:
                self.paced = False
                self.environment.schedule(self)
            else:
                self.environment.arm(self, self.not_before_ns)

    def resume(self, now: int) -> None:
        self.qp.requester.resume(now)
        self.qp.responder.resume(now)

    def produce(self, burst: Burst, now: int) -> int:
        """The two sides take turns; but a delayed acknowledgement lets the requester go first, once, and goes
        behind it where it fits."""
        if self.limiter is not None:
            return self._controlled(burst, now)
        return self._take_turn(burst, now)

    def _controlled(self, burst: Burst, now: int) -> int:
        """The same within what congestion control and pacing allow: a notification that is due goes first,
        and data not before its moment."""
        n: cython.int
        length: cython.uint = burst.length
        qp = self.qp
        if self.tells:
            if burst.packets:
                return 0
            self.tells = False
            if _RECEIVES[qp.state]:
                if self.telling_route is None:
                    self.telling_route = notification_route(self.route)
                put_notification(burst, self.telling_route, qp.pkey, qp.dest_qp)
                qp.count("cnps_sent")
                qp.count_sent(1, burst.length)
                return 1
        self.not_before_ns = self.limiter.departure(now)
        self.burst_limit_bytes = self.limiter.burst_limit()
        if now < self.not_before_ns:
            return self._wait(burst, now)
        self.paced = False
        n = self._take_turn(burst, now)
        if n > 0:
            self.limiter.sent(burst.length - length, n, now)
        return n

    def _wait(self, burst: Burst, now: int) -> int:
        """Requests wait for their moment, and let others have the window meanwhile; answers go, but for those
        to READs."""
        n: cython.int = 0
        qp = self.qp
        if qp.state == _RESET:
            return 0
        if _FLUSH_SEND[qp.state]:
            qp.flush()
        if self.window is not None and self.window.turn is self:
            self.window.leave(self)
        qp.requester.give_way()
        if not self.paced:
            self.paced = True
            self.environment.arm(self, self.not_before_ns)
        if qp.responder.has_work():
            n = qp.responder.produce(burst, now)
        return n

    def _take_turn(self, burst: Burst, now: int) -> int:
        """What `produce` does where nothing limits the flow."""
        n: cython.int = 0
        joined: cython.int
        qp = self.qp
        if qp.state == _RESET:
            return 0
        if _FLUSH_SEND[qp.state]:
            qp.flush()
        if qp.responder.has_work() and not self._requester_first():
            n = qp.responder.produce(burst, now)
            self.replied_last = n != 0
            self.overtaken = False
            if n:
                return n
        n = qp.requester.produce(burst, now)
        self.replied_last = False
        if qp.responder.has_work():
            if n == 0:
                return qp.responder.produce(burst, now)
            joined = qp.responder.join(burst, now)
            self.overtaken = joined == 0
            n += joined
        return n

    def _requester_first(self) -> bool:
        """Whether it is the requester's turn although the responder has something to send as well."""
        if not self.qp.requester.has_work():
            return False
        return self.replied_last or (not self.overtaken and self.qp.responder.may_delay_ack())

    def may_delay_ack(self) -> bool:
        return self.qp.responder.may_delay_ack() and not self.qp.requester.has_work()

    def has_work(self) -> bool:
        return self.tells or self.qp.responder.has_work() or self.qp.requester.has_work()

    def has_requests(self) -> bool:
        return self.qp.requester.has_work()
