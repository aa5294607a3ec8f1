"""The sender of a reliable connection: what may be sent now (IBTA vol. 1, 9.7.2, 9.7.3).

Theory of operation
-------------------
Work requests stand in a queue; each was given its PSNs when it was taken, an RDMA READ one for every
packet of its response.  Four places in PSN space, in this order: ``una_psn``, the oldest PSN that is not
answered; the *cursor* (``cursor``, ``cursor_packet``), where the next packet comes from; ``high_psn``, the
first PSN never sent; ``next_psn``, what the next work request begins with.  To send again is to set the
cursor back to ``una_psn`` (`rewind`); every kind of loss does just that.  For an RDMA READ that is
answered in part ``una_psn`` lies inside it, so only the missing part is requested again.

What is sent is charged to the destination's window and stands in ``in_flight`` until it is answered.  Who
waits for room in the window has asked for an answer (`must_request_ack`): a burst that fills it ends with
AckReq, and a queue pair that others leave no room in the middle of a message sends one packet beyond it,
which asks; so does one whose time is over while nobody is answered (``probe``).  A long RDMA READ goes out in
slices, each charged with the response that it asks for.  What forbids the next packet is the sender's
``condition``, and the event that ends it has the sender ask for a turn (`conditions`).  Memory that is held
(`Environment.wait_for_memory`) is such a condition; what is in flight then has been asked for, as far as that
could be foreseen: ``asked_psn`` is behind the last packet that asks for an answer.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import cython

from softhca.queues.layout import FENCE, WC_LOC_PROT_ERR, WC_LOC_QP_OP_ERR, WC_MW_BIND_ERR, WC_WR_FLUSH_ERR
from softhca.queues.operations import ATOMIC, ATOMIC_WRITE, FLUSH, LOCAL, READ, WRITE
from softhca.transport.conditions import (
    CREDITS,
    FRESH,
    IDLE,
    MEMORY,
    ORDER,
    READS,
    READY,
    RECOVERIES,
    STALLED,
    UNPLACED,
    WINDOW,
    conditions_that,
)
from softhca.transport.engines import SendEngine
from softhca.transport.key_work import execute_local
from softhca.transport.observation import HELD_RESULT, HELD_SOURCE, MEMORY_HELD, MEMORY_TRIED
from softhca.transport.request import Request
from softhca.transport.retry import InFlightTable, RetryState
from softhca.transport.segmentation import MAX_BURST_BYTES, MAX_BURST_PACKETS, UNLIMITED, PacketWriter
from softhca.transport.states import BEHAVIOUR
from softhca.transport.uniform import READ_PACKETS, UniformMessages
from softhca.transport.window import (
    BURST_OVERHEAD_BYTES,
    FULL_BURST_BYTES,
    MOST_STALL_NS,
    DestinationWindow,
)
from softhca.wire import opcodes
from softhca.wire.psn import distance

if TYPE_CHECKING:
    from softhca.transport.connection import Connection
    from softhca.transport.sending import RequestSource
    from softhca.wire.burst import Burst

_IDLE = cython.declare(cython.int, IDLE)
_READY = cython.declare(cython.int, READY)
_WINDOW = cython.declare(cython.int, WINDOW)
_READS = cython.declare(cython.int, READS)
_CREDITS = cython.declare(cython.int, CREDITS)
_ORDER = cython.declare(cython.int, ORDER)
_MEMORY = cython.declare(cython.int, MEMORY)
_STALLED = cython.declare(cython.int, STALLED)
_UNPLACED = cython.declare(cython.int, UNPLACED)
_FRESH = cython.declare(cython.int, FRESH)
# a bit for each condition that such an event ends
_TRANSMITS = cython.declare(cython.uint, conditions_that("transmits"))
_DOORBELL = cython.declare(cython.uint, conditions_that("doorbell"))
_GO_BACK = cython.declare(cython.uint, conditions_that("go_back"))
_MEMORY_THERE = cython.declare(cython.uint, conditions_that("memory"))
_STALL = cython.declare(cython.uint, conditions_that("stall"))
_PATH = cython.declare(cython.uint, conditions_that("path"))
_DELAY = cython.declare(cython.uint, conditions_that("delay"))
_LOST = cython.declare(tuple, tuple([row.lost for row in RECOVERIES]))
_OTHER = cython.declare(tuple, tuple([row.other for row in RECOVERIES]))
_EAGAIN = cython.declare(cython.int, errno.EAGAIN)
_READ = cython.declare(cython.int, READ)
_WRITE = cython.declare(cython.int, WRITE)
_ATOMIC = cython.declare(cython.int, ATOMIC)
_ATOMIC_WRITE = cython.declare(cython.int, ATOMIC_WRITE)
_FLUSH = cython.declare(cython.int, FLUSH)
_LOCAL = cython.declare(cython.int, LOCAL)
_FENCE = cython.declare(cython.uint, FENCE)
_PROTECTION_ERROR = cython.declare(cython.int, WC_LOC_PROT_ERR)
_OPERATION_ERROR = cython.declare(cython.int, WC_LOC_QP_OP_ERR)
_FLUSHED = cython.declare(cython.int, WC_WR_FLUSH_ERR)
_BIND_ERROR = cython.declare(cython.int, WC_MW_BIND_ERR)
_BURST_OVERHEAD = cython.declare(cython.ulonglong, BURST_OVERHEAD_BYTES)
_FULL_BURST = cython.declare(cython.ulonglong, FULL_BURST_BYTES + BURST_OVERHEAD_BYTES)
_STALL_NS = cython.declare(cython.ulonglong, MOST_STALL_NS)
_START_SEND = cython.declare(tuple, tuple([behaviour.start_send for behaviour in BEHAVIOUR]))
_TRANSMIT = cython.declare(tuple, tuple([behaviour.transmit for behaviour in BEHAVIOUR]))
_UNLIMITED = cython.declare(cython.ulonglong, UNLIMITED)
_ACK_COST = cython.declare(cython.ulonglong, 64)
_SEND_MIDDLE = cython.declare(cython.uint, opcodes.RC_SEND_MIDDLE)
_PAIR = cython.declare(cython.uint, READ_PACKETS)
_MOST_BYTES = cython.declare(cython.ulonglong, MAX_BURST_BYTES)
_MOST_PACKETS = cython.declare(cython.ulonglong, MAX_BURST_PACKETS)


class RequestTransmitter(SendEngine):
    """Decides what of the requests of ``source`` is sent and when; what comes back is `Sender`'s
    (acknowledgement.py).

    Requests under way are those from ``head`` (the oldest that has not completed) to ``tail`` (the next one
    to ask the source for); both are counters that never go back.
    """

    condition: int
    recovery: int
    cursor: int
    cursor_packet: int
    una_psn: int
    next_psn: int
    high_psn: int
    asked_psn: int
    next_ssn: int
    lsn: int
    limited: bool
    informed: bool
    rd_outstanding: int
    slice_packets: int
    begun: int
    pushed: bool
    beyond: bool
    probe: bool
    unrequested_bytes: int
    armed_ns: int

    def __init__(self, connection: Connection, source: RequestSource) -> None:
        places = 1
        while places < source.capacity:
            places *= 2
        self.connection = connection
        self.flow = connection.flow
        self.source = source
        self.writer = PacketWriter(connection)
        self.requests: list[Request] = [None] * places
        self.mask = places - 1
        self.head = 0
        self.tail = 0
        self.now = 0
        self.retry = RetryState()
        self.in_flight = InFlightTable()
        self.uniform = UniformMessages()
        self.stalled_until_ns = 0
        self.start_psns(0)

    def start_psns(self, psn: int) -> None:
        """Begin with ``psn``, SSN 1, all retries and no limit of credits."""
        self.retry.progress()
        self.cursor = self.head
        self.cursor_packet = 0
        self.una_psn = psn
        self.next_psn = psn
        self.high_psn = psn
        self.asked_psn = psn
        self.next_ssn = 1
        self.lsn = 0
        self.limited = False
        self.informed = False
        self.rd_outstanding = 0
        self.condition = _IDLE
        self.recovery = _FRESH
        self.unrequested_bytes = 0
        self.armed_ns = 0
        self.slice_packets = 1
        self.uniform.forget()
        self.begun = 0
        self.pushed = False
        self.beyond = False
        self.probe = False

    def begin(self, psn: int) -> None:
        self.start_psns(psn)

    def start(self, now: int) -> None:
        """RTR → RTS and later changes of attributes."""
        self.now = now
        connection = self.connection
        self.retry.configure(connection.timeout, connection.retry_count, connection.rnr_retry)
        self.slice_packets = max(1, connection.environment.read_slice_bytes // connection.path_mtu_bytes)
        self.uniform.choose(connection)
        self.doorbell(now)

    def doorbell(self, now: int) -> None:
        self.now = now
        if _START_SEND[self.connection.state] and (_DOORBELL >> self.condition) & 1:
            self.condition = _READY
            self.flow.environment.schedule(self.flow)

    def resume(self, now: int) -> None:
        self.now = now
        if not (_MEMORY_THERE >> self.condition) & 1:
            return
        if self.condition == _UNPLACED:
            self.retry.stop()
            self.connection.observe(MEMORY_TRIED, self.una_psn, HELD_RESULT)
        else:
            self.connection.observe(MEMORY_TRIED, self.cursor_psn(), HELD_SOURCE)
        self.go_on()

    def has_work(self) -> bool:
        if self.flow.window is not None and self.flow.window.turn is self.flow:
            return True
        return self.condition == _READY

    def at(self, place: int) -> Request:
        """The request of counter ``place``."""
        return self.requests[place & self.mask]

    def current(self) -> Request:
        """The request at the cursor, a new one from the source; None when there is none to be sent."""
        request: Request
        if self.cursor < self.tail:
            return self.at(self.cursor)
        if not _START_SEND[self.connection.state] or self.tail - self.head > self.mask:
            return None
        request = self.source.next(
            self.head == self.tail and self.una_psn == self.next_psn == self.high_psn, self.now
        )
        if request is None:
            if self.source.waits:
                self.block(_ORDER)
            return None
        self.requests[self.tail & self.mask] = request
        self.tail += 1
        self.number(request)
        return request

    def retire(self, status: int) -> None:
        """The oldest request has ended with ``status``."""
        request: Request = self.at(self.head)
        self.requests[self.head & self.mask] = None
        self.head += 1
        if not status and request.packets > 1:
            self.uniform.succeeded(request)
        self.source.retire(request, status, self.now)

    def number(self, request: Request) -> None:
        """Give a request that was taken the next PSNs and SSNs."""
        messages: cython.uint = 1
        request.segment(self.connection.path_mtu_bytes, self.next_psn)
        request.ssn = self.next_ssn
        self.next_psn = (self.next_psn + request.packets) & 0xFFFFFF
        if request.kind == _LOCAL:
            messages = 0
        elif request.kind == _READ and request.packets:
            # the responder counts each slice as a message
            request.slice_packets = (
                _PAIR if self.uniform.takes(request) else self.slice_packets
            )
            messages = (request.packets + request.slice_packets - 1) // request.slice_packets
        elif request.kind == _WRITE and request.packets > 1 and self.uniform.takes(request):
            request.separate = True
            messages = request.packets
        self.next_ssn = (self.next_ssn + messages) & 0xFFFFFF
        self.cursor_packet = 0

    def cursor_psn(self) -> int:
        """PSN of the next packet to be sent."""
        if self.cursor >= self.tail:
            return self.next_psn
        return (self.at(self.cursor).first_psn + self.cursor_packet) & 0xFFFFFF

    def produce(self, burst: Burst, now: int) -> int:
        """Fill ``burst`` with what may be sent; packets written."""
        window: DestinationWindow = self.flow.window
        request: Request
        written: cython.uint
        length: cython.uint = burst.length
        stalled: cython.bint = self.condition == _STALLED
        transmits: cython.bint = (_TRANSMITS >> self.condition) & 1 != 0
        self.now = now
        if not transmits or not _TRANSMIT[self.connection.state] or window is None:
            if transmits:
                self.condition = _IDLE
            if window is not None:
                window.leave(self.flow)
            return 0
        if self.in_flight.given_up(window.epoch):
            return self.stall(window, stalled)
        self.condition = _READY
        self.stalled_until_ns = 0
        self.begun = burst.packets
        self.pushed = False
        self.beyond = False
        self.writer.begin(burst, self.flow.route, _UNLIMITED, window.packet_overhead_bytes)
        waits: cython.bint = not self.probe and self.must_wait(window)
        if waits:
            self.block(_WINDOW)
        while not waits:
            request = self.current()
            if request is None:
                if self.condition == _READY:
                    self.condition = _IDLE
                break
            if self.step(request, window) == 0:
                break
            if self.cursor_packet >= request.packets:
                self.cursor += 1
                self.cursor_packet = 0
        written = burst.packets - self.begun
        if written:
            if not self.beyond:
                window.leave(self.flow)
            self.probe = False
            if (self.retry.deadline_ns == 0 or self.retry.persisting) and _TRANSMIT[self.connection.state]:
                self.retry.restart(now)
                self.rearm()
            self.connection.count_sent(written, burst.length - length)
        if self.condition == _WINDOW:
            window.wait(self.flow, now)
            self.persist()
        # one that found no place behind others keeps its turn
        elif not written and not (self.begun and self.condition == _READY):
            window.leave(self.flow)
        self.check_drained()
        return written

    def must_wait(self, window: DestinationWindow) -> bool:
        """Whether the next request stays in its ring, for there is no room to send it: what waits is neither
        taken nor judged, so that only what is under way has to be remembered."""
        return (
            self.cursor == self.tail
            and window.room(self.flow) == 0
            and _START_SEND[self.connection.state]
            and self.source.can_wait()
        )

    def block(self, reason: int) -> int:
        """Nothing more until an event that ends the condition ``reason``."""
        self.condition = reason
        return 0

    def wait_memory(self) -> int:
        """The memory that the packet at the cursor comes from is held."""
        self.connection.observe(MEMORY_HELD, self.cursor_psn(), HELD_SOURCE)
        self.flow.environment.wait_for_memory(self.flow)
        return self.block(_MEMORY)

    def step(self, request: Request, window: DestinationWindow) -> int:
        """Send what is possible of the request at the cursor and move the cursor; 0 when the burst ends
        here."""
        if request.status:
            if self.head != self.cursor:
                return self.block(_ORDER)
            self.fail_head(request.status)
            return 0
        if request.kind == _LOCAL:
            return self.step_local(request)
        if self.cursor_packet == 0 and request.work.flags & _FENCE and self.rd_outstanding:
            return self.block(_READS)
        if request.kind == _READ:
            return self.step_read(request, window)
        if request.kind == _ATOMIC or request.kind == _ATOMIC_WRITE or request.kind == _FLUSH:
            return self.step_atomic(request, window)
        return self.step_message(request, window)

    def step_local(self, request: Request) -> int:
        """LOCAL_INV, BIND_MW and REG_MR have their turn when everything before them is done, and what is
        behind them starts afterwards: the strictest order of those that 10.8.3.3 allows."""
        if self.head != self.cursor:
            return self.block(_ORDER)
        if execute_local(request.work, self.connection):
            self.fail_head(_BIND_ERROR)
            return 0
        self.retire(0)
        # unless its completion was lost, which has flushed the queue
        return self.cursor < self.head

    def step_message(self, request: Request, window: DestinationWindow) -> int:
        """SEND and RDMA WRITE: as many packets as burst, window and credits allow."""
        limit: cython.uint = request.packets
        before: cython.uint = self.writer.burst.length
        first: cython.bint = self.writer.burst.packets == self.begun
        probing: cython.bint = False
        asking: cython.bint
        written: cython.int
        if (
            self.limited
            and request.limited
            and distance(request.ssn, self.lsn) < 0
            and distance(self.una_psn, request.first_psn) >= 0
        ):
            # Beyond the credits only a lone packet may go, to learn whether there are new ones (9.7.7.2.5).
            if self.cursor_packet or self.una_psn != request.first_psn:
                return self.block(_CREDITS)
            probing = True
            limit = 1
        self.writer.budget_bytes = self.budget(window)
        asking = probing or self.must_ask(request, window)
        written = self.writer.message(request, self.cursor_packet, limit, asking)
        if written == 0 and self.writer.burst.packets == 0 and (self.probe or self.must_request_ack()):
            self.beyond = asking = True
            self.probe = False
            self.writer.budget_bytes = _UNLIMITED
            written = self.writer.message(request, self.cursor_packet, 1, True)
        if written == -_EAGAIN:
            return self.wait_memory()
        if written < 0:
            request.status = _PROTECTION_ERROR
            return self.block(_ORDER) if self.head != self.cursor else self.step(request, window)
        if written == 0:
            return self.block(_WINDOW) if self.writer.burst.packets == 0 else 0
        self.cursor_packet += written
        if asking or self.writer.held or self.cursor_packet == request.packets:
            self.unrequested_bytes = 0
            self.asked_psn = (request.first_psn + self.cursor_packet) & 0xFFFFFF
        else:
            self.unrequested_bytes += self.writer.burst.length - before
        self.sent(
            self.writer.burst.length
            - before
            + written * window.packet_overhead_bytes
            + (_BURST_OVERHEAD if first else 0),
            self.pushed,
        )
        self.pushed = True
        if self.writer.held:
            return self.wait_memory()
        if self.cursor_packet < request.packets and not probing:
            return self.block(_WINDOW) if self.beyond else 0
        return 1

    def budget(self, window: DestinationWindow) -> int:
        """What the present burst may weigh in all, so that the window is kept.

        Each queue pair is charged for a burst of its own, also where several share one: so no more is under
        way, and to be remembered, than without sharing.
        """
        room: cython.ulonglong = window.room(self.flow)
        if self.writer.burst.packets == self.begun:
            room = room - _BURST_OVERHEAD if room > _BURST_OVERHEAD else 0
        return room + self.writer.burst.length + self.writer.burst.packets * window.packet_overhead_bytes

    def must_ask(self, request: Request, window: DestinationWindow) -> bool:
        """Whether the last packet of this burst asks for an acknowledgement.

        It does when another full burst would leave more than half the window unasked for, or would find too
        little room, for then nobody may go on before an answer comes; always where others share the window,
        for they may leave none; where it waits for its moment between bursts, which may be longer than its
        timer; and while nothing is known of the peer's credits, for without them the next one must wait.
        """
        weight: cython.ulonglong = _FULL_BURST
        if window.waiters or (window.in_flight_bytes and window.sender is not self.flow):
            return True
        if self.flow.pacing is not None:
            return True
        if request.packets > 1 and request.kind == _WRITE and not (self.cursor_packet or request.separate):
            weight = (
                self.connection.path_mtu_bytes + _BURST_OVERHEAD
            )  # longer than the next packets: a burst of its own
        weight += self.writer.burst.length
        return (
            2 * (self.unrequested_bytes + weight + _FULL_BURST) > window.limit_bytes
            or (request.limited and not self.informed)
            or window.in_flight_bytes + weight + max(self.full_burst(window), _FULL_BURST)
            > window.limit_bytes
        )

    def full_burst(self, window: DestinationWindow) -> int:
        """What as many packets of the path MTU as fit into one burst cost."""
        size: cython.ulonglong = (
            self.writer.packet_bytes(_SEND_MIDDLE, self.connection.path_mtu_bytes) + self.writer.frame_bytes
        )
        packets: cython.ulonglong = min(_MOST_BYTES // size, _MOST_PACKETS)
        return packets * (size + window.packet_overhead_bytes) + _BURST_OVERHEAD

    def must_request_ack(self) -> bool:
        """Whether something is in flight, but nothing whose answer was asked for and has not come."""
        return distance(self.una_psn, self.cursor_psn()) > 0 and distance(self.una_psn, self.asked_psn) <= 0

    def admitted(self, window: DestinationWindow, cost_bytes: int) -> bool:
        """Whether a READ or atomic may go whose answer costs so much: there is room, or it is the probe."""
        if window.admits(self.flow, cost_bytes):
            return True
        if not self.probe or self.writer.burst.packets != self.begun:
            return False
        self.beyond = True
        return True

    def step_read(self, request: Request, window: DestinationWindow) -> int:
        """RDMA READ: the request for one slice of the response."""
        index: cython.uint = self.cursor_packet
        end: cython.uint = (index // request.slice_packets + 1) * request.slice_packets
        cost: cython.ulonglong
        if self.connection.max_rd_atomic == 0:
            request.status = _OPERATION_ERROR
            return self.step(request, window)
        if self.rd_outstanding >= self.connection.max_rd_atomic:
            return self.block(_READS)
        if end > request.packets:
            end = request.packets
        cost = request.length_bytes - index * cython.cast(cython.ulonglong, self.connection.path_mtu_bytes)
        if cost > (end - index) * cython.cast(cython.ulonglong, self.connection.path_mtu_bytes):
            cost = (end - index) * cython.cast(cython.ulonglong, self.connection.path_mtu_bytes)
        cost += (end - index) * (16 + window.packet_overhead_bytes) + _BURST_OVERHEAD
        if not self.admitted(window, cost):
            return self.block(_WINDOW)
        self.writer.budget_bytes = _UNLIMITED
        if not self.writer.read_request(request, index, end):
            return 0
        self.cursor_packet = end
        self.asked_psn = (request.first_psn + end) & 0xFFFFFF
        self.rd_outstanding += 1
        self.sent(cost, False)
        self.pushed = False
        return 1

    def step_atomic(self, request: Request, window: DestinationWindow) -> int:
        """Compare-and-swap, fetch-and-add, ATOMIC WRITE or FLUSH."""
        written: cython.int
        if self.connection.max_rd_atomic == 0:
            request.status = _OPERATION_ERROR
            return self.step(request, window)
        if self.rd_outstanding >= self.connection.max_rd_atomic:
            return self.block(_READS)
        if not self.admitted(window, _ACK_COST + _BURST_OVERHEAD):
            return self.block(_WINDOW)
        self.writer.budget_bytes = _UNLIMITED
        if request.kind == _ATOMIC:
            written = self.writer.atomic_request(request)
        elif request.kind == _FLUSH:
            written = self.writer.flush_request(request)
        else:
            written = self.writer.atomic_write_request(request)
        if written == -_EAGAIN:
            return self.wait_memory()
        if written < 0:
            request.status = _PROTECTION_ERROR
            return self.block(_ORDER) if self.head != self.cursor else self.step(request, window)
        if written == 0:
            return 0
        self.cursor_packet = 1
        self.asked_psn = (request.first_psn + 1) & 0xFFFFFF
        self.rd_outstanding += 1
        self.sent(_ACK_COST + _BURST_OVERHEAD, False)
        self.pushed = False
        return 1

    def sent(self, cost_bytes: int, joined: bool) -> None:
        """Packets up to the cursor have gone out: charge them and note when they are answered for.

        ``joined``: together with those noted before, for one acknowledgement of the burst answers for all.
        """
        psn: cython.uint = (self.at(self.cursor).first_psn + self.cursor_packet) & 0xFFFFFF
        self.flow.window.depart(cost_bytes, self.now)
        self.flow.window.sender = self.flow
        self.in_flight.push((psn - 1) & 0xFFFFFF, cost_bytes, self.flow.window.epoch, joined)
        if distance(self.high_psn, psn) > 0:
            self.high_psn = psn

    def rewind(self, lost: bool) -> None:
        """Send again from ``una_psn`` on.  ``lost``: because something did not arrive, which narrows the
        window."""
        window: DestinationWindow = self.flow.window
        self.cursor = self.head
        self.cursor_packet = 0
        if self.head != self.tail:
            self.cursor_packet = distance(self.at(self.head).first_psn, self.una_psn)
        self.rd_outstanding = 0
        self.unrequested_bytes = 0
        self.asked_psn = self.una_psn
        self.recovery = _LOST[self.recovery] if lost else _OTHER[self.recovery]
        self.retry.deadline_ns = 0
        window.give_up(self.in_flight.clear(window.epoch))
        if lost:
            window.lost()
            self.connection.count("retransmissions")
        if (_GO_BACK >> self.condition) & 1:
            self.go_on()

    def go_on(self) -> None:
        """The wait is over: ask for a turn, to look whether there is something to send.  Who has a place in
        the window goes on waiting there, unless what was asked for has come and more is in flight."""
        placed: cython.bint = self.condition == _WINDOW or not (_TRANSMITS >> self.condition) & 1
        if placed and self.flow.waiting and not self.probe and not self.must_request_ack():
            self.condition = _WINDOW
            self.persist()
            return
        self.stalled_until_ns = 0
        self.condition = _READY
        self.flow.environment.schedule(self.flow)

    def persist(self) -> None:
        """Room in the window is waited for: if nothing is in flight the timer runs for that."""
        if self.retry.deadline_ns == 0:
            self.retry.persist(self.now)
            self.rearm()

    def fail_head(self, status: int) -> None:
        """The oldest request ends with ``status``, everything else flushed, and the queue pair is in
        error."""
        request: Request
        if self.head != self.tail:
            request = self.at(self.head)
            self.requests[self.head & self.mask] = None
            self.head += 1
            self.source.fail(request, status, self.now)
        self.connection.fail()

    def settle(self) -> None:
        """Give back to the window what is answered for."""
        cost: cython.ulonglong = self.in_flight.settle(self.una_psn, self.flow.window.epoch)
        if cost:
            self.flow.window.on_ack(cost, self.now)

    def stall(self, window: DestinationWindow, already: bool) -> int:
        """What is in flight was given up: nothing more until there is a sign of life, or for long."""
        window.leave(self.flow)
        if not already:
            self.stalled_until_ns = self.now + _STALL_NS
            self.rearm()
        return self.block(_STALLED)

    def end_stall(self, now: int) -> None:
        """Enough of waiting for a sign of life, if it is time: what was in flight is forgotten."""
        if (_STALL >> self.condition) & 1 and now >= self.stalled_until_ns:
            self.in_flight.clear(self.flow.window.epoch)
            self.go_on()

    def rearm(self) -> None:
        """Have the environment call at the earlier deadline, unless it will call before anyway."""
        deadline: cython.ulonglong = self.retry.deadline_ns
        if self.stalled_until_ns and (deadline == 0 or self.stalled_until_ns < deadline):
            deadline = self.stalled_until_ns
        if deadline and (self.armed_ns == 0 or deadline < self.armed_ns):
            self.armed_ns = deadline
            self.flow.environment.arm(self.flow, deadline)

    def check_drained(self) -> None:
        """Tell when a draining queue has nothing left under way."""
        if self.connection.draining and self.head == self.tail:
            self.connection.drained()

    def flush(self) -> None:
        self.forget()
        while self.head != self.tail:
            self.retire(_FLUSHED)
        self.source.flush(self.now)
        self.cursor = self.head

    def reset(self) -> None:
        self.forget()
        while self.head != self.tail:
            self.source.drop(self.at(self.head))
            self.requests[self.head & self.mask] = None
            self.head += 1
        self.source.reset()
        self.start_psns(0)

    def drained(self) -> bool:
        return self.head == self.tail

    def forget(self) -> None:
        """Nothing is awaited any more; the window gets back what this queue pair had in flight."""
        self.retry.stop()
        self.rd_outstanding = 0
        self.condition = _IDLE
        self.leave_window()

    def path_changed(self, now: int) -> None:
        self.now = now
        connection = self.connection
        self.uniform.choose(self.connection)
        self.retry.configure(connection.timeout, connection.retry_count, connection.rnr_retry)
        self.retry.progress()
        if self.head != self.tail and not (_DELAY >> self.condition) & 1 and _TRANSMIT[connection.state]:
            self.rewind(False)

    def leave_window(self) -> None:
        if self.flow.window is None:
            return
        self.stalled_until_ns = 0
        self.flow.window.give_up(self.in_flight.clear(self.flow.window.epoch))
        self.flow.window.quit(self.flow)
        if (_PATH >> self.condition) & 1:
            self.go_on()
