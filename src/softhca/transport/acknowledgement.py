"""What a reliable requester does with what comes back (IBTA vol. 1, 9.7.5, 9.7.6 and table 57 for what
ends a request).

An acknowledgement answers for everything before its PSN, except RDMA READs and atomics whose own response
is missing: that one was lost, and the requester goes back to it (implied NAK, 9.7.5.2.6).  Responses
outside ``una_psn`` … ``high_psn`` − 1 are ghosts of earlier transmissions and change nothing.
"""

from __future__ import annotations

import errno
from array import array
from typing import TYPE_CHECKING

import cython

from softhca.machine.primitives import address_of, store64
from softhca.queues.layout import (
    WC_BAD_RESP_ERR,
    WC_LOC_PROT_ERR,
    WC_REM_ACCESS_ERR,
    WC_REM_INV_RD_REQ_ERR,
    WC_REM_INV_REQ_ERR,
    WC_REM_OP_ERR,
    WC_RETRY_EXC_ERR,
    WC_RNR_RETRY_EXC_ERR,
)
from softhca.queues.operations import ATOMIC, ATOMIC_WRITE, FLUSH, LOCAL, READ
from softhca.transport.conditions import (
    ANSWERED,
    FRESH,
    NOT_READY,
    RECOVERIES,
    UNPLACED,
    conditions_that,
    recoveries_that,
)
from softhca.transport.credits import CREDITS, INVALID
from softhca.transport.migration import FAIL
from softhca.transport.observation import (
    GHOST_RESPONSE,
    HELD_RESULT,
    IMPLIED_NAK,
    MEMORY_HELD,
    NAK_NAMES,
    NAK_RECEIVED,
    RETRANSMISSION,
    RETRY_EXHAUSTED,
    RNR_NAK_RECEIVED,
    RNR_RETRY_EXHAUSTED,
    RNR_WAIT_OVER,
    SEQUENCE_ERROR,
    TIMEOUT,
    WAIT_NS,
)
from softhca.transport.request import Request
from softhca.transport.requester import RequestTransmitter
from softhca.transport.retry import RNR_TIMER_NS
from softhca.transport.states import BEHAVIOUR
from softhca.wire import aeth, opcodes
from softhca.wire.psn import distance

if TYPE_CHECKING:
    from softhca.transport.connection import Connection
    from softhca.transport.sending import RequestSource
    from softhca.wire.burst import Arrival
    from softhca.wire.packet_view import PacketView

# bits 5 and 6 of an AETH's syndrome, as a number
ACK = aeth.KIND_ACK >> 5
RNR_NAK = aeth.KIND_RNR_NAK >> 5
NAK = aeth.KIND_NAK >> 5

# completion status by NAK code; others are reserved
NAK_STATUS: dict[int, int] = {
    aeth.NAK_INVALID_REQUEST: WC_REM_INV_REQ_ERR,
    aeth.NAK_REMOTE_ACCESS: WC_REM_ACCESS_ERR,
    aeth.NAK_REMOTE_OPERATIONAL: WC_REM_OP_ERR,
    aeth.NAK_INVALID_RD_REQUEST: WC_REM_INV_RD_REQ_ERR,
}
_READ = cython.declare(cython.int, READ)
_ATOMIC = cython.declare(cython.int, ATOMIC)
# Bit n: requests of kind n are answered by one empty READ response.
_EMPTY = cython.declare(cython.uint, 1 << ATOMIC_WRITE | 1 << FLUSH)
# Bit n: requests of kind n have an answer of their own, which no later one implies.
_ANSWERED = cython.declare(cython.uint, 1 << READ | 1 << ATOMIC | 1 << ATOMIC_WRITE | 1 << FLUSH)
_LOCAL = cython.declare(cython.int, LOCAL)
_EAGAIN = cython.declare(cython.int, errno.EAGAIN)
_ACK = cython.declare(cython.uint, ACK)
_RNR_NAK = cython.declare(cython.uint, RNR_NAK)
_NAK = cython.declare(cython.uint, NAK)
_NAK_SEQUENCE = cython.declare(cython.uint, aeth.NAK_PSN_SEQUENCE)
_INVALID = cython.declare(cython.uint, INVALID)
_ACKNOWLEDGE = cython.declare(cython.uint, opcodes.ACKNOWLEDGE)
_READ_RESPONSE = cython.declare(cython.uint, opcodes.READ_RESPONSE)
_FIRST = cython.declare(cython.uint, opcodes.FIRST)
_MIDDLE = cython.declare(cython.uint, opcodes.MIDDLE)
_ONLY = cython.declare(cython.uint, opcodes.ONLY)
_BAD_RESPONSE = cython.declare(cython.int, WC_BAD_RESP_ERR)
_PROTECTION_ERROR = cython.declare(cython.int, WC_LOC_PROT_ERR)
_RETRY_EXCEEDED = cython.declare(cython.int, WC_RETRY_EXC_ERR)
_RNR_RETRY_EXCEEDED = cython.declare(cython.int, WC_RNR_RETRY_EXC_ERR)
_TRANSMIT = cython.declare(tuple, tuple([behaviour.transmit for behaviour in BEHAVIOUR]))
_CREDITS = cython.declare(tuple, CREDITS)
_NOT_READY = cython.declare(cython.int, NOT_READY)
_UNPLACED = cython.declare(cython.int, UNPLACED)
_FRESH = cython.declare(cython.int, FRESH)
_ANSWERED_ALREADY = cython.declare(cython.int, ANSWERED)
_TRANSMITS = cython.declare(cython.uint, conditions_that("transmits"))
_ANSWER = cython.declare(cython.uint, conditions_that("answer"))
_CREDITS_COME = cython.declare(cython.uint, conditions_that("credits"))
_DELAY = cython.declare(cython.uint, conditions_that("delay"))
_PERSIST = cython.declare(cython.uint, conditions_that("persist"))
_IMPLIED_NAK = cython.declare(cython.uint, recoveries_that("implied_nak"))
_SEQUENCE_NAK = cython.declare(cython.uint, recoveries_that("sequence_nak"))
_RNR_NAKS = cython.declare(cython.uint, recoveries_that("rnr_nak"))
_REFUSED = cython.declare(tuple, tuple([row.refused for row in RECOVERIES]))


class Sender(RequestTransmitter):
    """The whole sender of a reliable connection."""

    def __init__(self, connection: Connection, source: RequestSource) -> None:
        super().__init__(connection, source)
        self.result = array("Q", [0])
        self.result_address = address_of(self.result)

    def receive(self, view: PacketView, arrival: Arrival, now: int) -> None:
        self.now = now
        if not _TRANSMIT[self.connection.state]:
            self.connection.drop("drops_state", view.psn)
            return
        if distance(self.una_psn, view.psn) < 0 or distance(view.psn, self.high_psn) <= 0:
            if (
                distance(view.psn, self.una_psn) == 1
                and view.operation == _ACKNOWLEDGE
                and view.syndrome >> 5 == _ACK
            ):
                self.take_credits(view)  # unsolicited: new credits for a connection at rest (9.7.7.2.4)
                if (_CREDITS_COME >> self.condition) & 1:
                    self.go_on()
            else:
                self.connection.count("ghost_acks")
                self.connection.observe(GHOST_RESPONSE, view.psn)
            return
        if view.operation == _READ_RESPONSE:
            self.read_response(view, arrival)
        elif view.operation != _ACKNOWLEDGE:
            self.atomic_response(view)
        elif (view.syndrome >> 5) & 3 == _ACK:
            self.acknowledged(view)
        elif (view.syndrome >> 5) & 3 == _RNR_NAK:
            self.rnr_nak(view)
        elif (view.syndrome >> 5) & 3 == _NAK:
            self.nak(view)
        else:
            self.connection.drop("drops_unexpected_response", view.psn)
        if self.retry.deadline_ns:
            self.rearm()
        self.check_drained()

    def advance(self, end: int) -> bool:
        """Everything before PSN ``end`` is acknowledged; False when an RDMA READ or atomic before it is
        not answered.

        Requests that are done complete in order.  A READ that ``end`` lies inside of is not missing
        anything yet.
        """
        request: Request
        last: cython.uint
        before: cython.uint = self.una_psn
        whole: cython.bint = True
        while self.head != self.tail:
            request = self.at(self.head)
            if request.kind == _LOCAL or request.status or request.packets == 0:
                break
            last = (request.first_psn + request.packets) & 0xFFFFFF
            if (_ANSWERED >> request.kind) & 1 and request.received < request.packets:
                whole = distance(last, end) < 0
                break
            if distance(last, end) < 0:
                if distance(self.una_psn, end) > 0:
                    self.una_psn = end
                break
            self.una_psn = last
            self.retire(0)
        if self.una_psn != before:
            self.progressed()
        return whole

    def progressed(self) -> None:
        """Something new has been answered: retries count anew, the timer starts again, the window gets
        room."""
        self.recovery = _FRESH
        self.retry.progress()
        self.settle()
        if self.cursor < self.head or (
            self.cursor == self.head and distance(self.cursor_psn(), self.una_psn) > 0
        ):
            # an answer to an earlier transmission has overtaken the go-back
            self.cursor = self.head
            self.cursor_packet = 0
            if self.head != self.tail:
                self.cursor_packet = distance(self.at(self.head).first_psn, self.una_psn)
            self.rd_outstanding = 0
        if (_TRANSMITS >> self.condition) & 1:
            if distance(self.una_psn, self.cursor_psn()) > 0:
                self.retry.restart(self.now)
            else:
                self.retry.deadline_ns = 0
        if (_ANSWER >> self.condition) & 1:
            self.go_on()

    def take_credits(self, view: PacketView) -> None:
        """MSN and credit count of an AETH: how far the sends may go (9.7.7.2)."""
        code: cython.uint = view.syndrome & 31
        self.informed = True
        if code == _INVALID:
            self.limited = False
        else:
            self.limited = True
            credits: cython.uint = _CREDITS[code]
            self.lsn = (view.msn + credits) & 0xFFFFFF

    def acknowledged(self, view: PacketView) -> None:
        """ACK: all before and including its PSN."""
        self.connection.counters.acks_received += 1
        self.take_credits(view)
        if not self.advance((view.psn + 1) & 0xFFFFFF):
            self.implied_nak()
        elif (_ANSWER >> self.condition) & 1:
            self.go_on()

    def implied_nak(self) -> None:
        """A later acknowledgement came without the response to an RDMA READ or atomic: ask for that again,
        once.  While the delay of an RNR NAK runs nothing is sent; what is missing goes out when it is over.
        """
        if (_IMPLIED_NAK >> self.recovery) & 1 and not self.goes_again() and self.head != self.tail:
            self.connection.count("implied_naks")
            self.again(IMPLIED_NAK)

    def goes_again(self) -> bool:
        """Whether the oldest packet will be sent (again) whatever is heard of it."""
        return not (_TRANSMITS >> self.condition) & 1 or self.cursor_psn() == self.una_psn

    def again(self, reason: str) -> None:
        """One retry: go back to the oldest unanswered PSN, take the alternate path, or give up."""
        if not _TRANSMIT[self.connection.state]:
            return
        if self.retry.spend_retry():
            self.connection.observe(RETRANSMISSION, self.una_psn, reason)
            self.rewind(True)
        elif not self.connection.migrate(FAIL, self.now):
            self.connection.observe(RETRY_EXHAUSTED, self.una_psn, reason)
            self.fail_head(_RETRY_EXCEEDED)

    def rnr_nak(self, view: PacketView) -> None:
        """RNR NAK: everything before its PSN is acknowledged; that request waits for the delay
        (9.7.5.2.8)."""
        self.connection.count("rnr_naks_received")
        self.connection.observe(RNR_NAK_RECEIVED, view.psn, WAIT_NS, RNR_TIMER_NS[view.syndrome & 31])
        if not (_TRANSMITS >> self.condition) & 1:
            return
        if not (_RNR_NAKS >> self.recovery) & 1 and self.cursor_psn() == self.una_psn == view.psn:
            return  # its delay is over, and the packet has not gone again since
        if not self.advance(view.psn):
            self.implied_nak()
        elif not _TRANSMIT[self.connection.state] or self.head == self.tail:
            return
        elif self.una_psn != view.psn:
            self.implied_nak()
        elif self.retry.spend_rnr_retry():
            self.rewind(False)
            self.recovery = _REFUSED[self.recovery]
            self.retry.delay(view.syndrome & 31, self.now)
            self.condition = _NOT_READY
        else:
            self.connection.observe(RNR_RETRY_EXHAUSTED, view.psn)
            self.fail_head(_RNR_RETRY_EXCEEDED)

    def nak(self, view: PacketView) -> None:
        """NAK: everything before its PSN is acknowledged; a sequence error is retried, the others end the
        request."""
        code: cython.uint = view.syndrome & 31
        self.connection.count("naks_received")
        self.connection.observe(NAK_RECEIVED, view.psn, NAK_NAMES[code])
        if not self.advance(view.psn):
            self.implied_nak()
            return
        if not _TRANSMIT[self.connection.state] or self.head == self.tail:
            return
        if self.una_psn != view.psn:
            self.implied_nak()  # slices of an RDMA READ before it are missing
        elif code == _NAK_SEQUENCE:
            if (_SEQUENCE_NAK >> self.recovery) & 1 and not self.goes_again():
                self.again(SEQUENCE_ERROR)
        elif code in NAK_STATUS:
            self.fail_head(NAK_STATUS[code])
        else:
            self.connection.drop("drops_unexpected_response", view.psn)

    def read_response(self, view: PacketView, arrival: Arrival) -> None:
        """A packet of an RDMA READ's response: the next one is placed, a later one shows a loss."""
        request: Request
        index: cython.uint
        n: cython.ulonglong
        result: cython.int = 0
        if not self.advance(view.psn):
            self.implied_nak()
            return
        if not _TRANSMIT[self.connection.state] or self.head == self.tail:
            return
        request = self.at(self.head)
        if (request.kind != _READ and not (_EMPTY >> request.kind) & 1) or request.status:
            # Either something before the READ is still unanswered, which advance() has just ruled out, or a
            # lie.
            self.fail_head(_BAD_RESPONSE)
            return
        if view.psn != self.una_psn:
            if distance(self.una_psn, view.psn) > 0:
                self.implied_nak()
            return
        index = distance(request.first_psn, view.psn)
        if not self.read_position_ok(request, view, index) or not self.carries_answer(view):
            self.fail_head(_BAD_RESPONSE)
            return
        n = view.payload_bytes
        if n:
            result = request.scatter(
                index * cython.cast(cython.ulonglong, self.connection.path_mtu_bytes),
                n,
                arrival.payload_address + view.payload,
            )
        if result:
            self.placement_failed(result)
            return
        if view.has_aeth:
            self.take_credits(view)
        self.answered(request, index)

    def read_position_ok(self, request: Request, view: PacketView, index: int) -> bool:
        """Whether length and position are those of packet ``index`` of this READ's response.

        The end of a slice must be a LAST or ONLY; before it every packet is full.  A FIRST may stand
        anywhere, for there a slice may have been requested again.
        """
        pmtu: cython.ulonglong = self.connection.path_mtu_bytes
        rest: cython.ulonglong = request.length_bytes - index * pmtu
        if (_EMPTY >> request.kind) & 1:
            return view.position == _ONLY and view.payload_bytes == 0
        ends: cython.bint = index + 1 == request.packets or (index + 1) % request.slice_packets == 0
        if ends:
            if view.position == _FIRST or view.position == _MIDDLE:
                return False
        elif view.position != _FIRST and view.position != _MIDDLE:
            return False
        return view.payload_bytes == (rest if rest < pmtu else pmtu)

    def carries_answer(self, view: PacketView) -> bool:
        """Whether the AETH of a response, if it has one, is that of an ACK: a NAK is a packet of its own, and
        bytes beside one are no answer."""
        return not view.has_aeth or (view.syndrome >> 5) & 3 == _ACK

    def atomic_response(self, view: PacketView) -> None:
        """The original value of a compare-and-swap or fetch-and-add, placed in host byte order."""
        request: Request
        result: cython.int
        if not self.advance(view.psn):
            self.implied_nak()
            return
        if not _TRANSMIT[self.connection.state] or self.head == self.tail:
            return
        request = self.at(self.head)
        if (
            view.psn != self.una_psn or request.kind != _ATOMIC or request.status
            or not self.carries_answer(view)
        ):
            self.fail_head(_BAD_RESPONSE)
            return
        store64(self.result_address, view.atomic_original)
        result = request.scatter(0, 8, self.result_address)
        if result:
            self.placement_failed(result)
            return
        self.take_credits(view)
        self.answered(request, 0)

    def placement_failed(self, result: int) -> None:
        """An answer cannot be placed, for −errno ``result``.  Where the memory is held it is dropped and
        asked for again; no retry is spent, and all are there again, for the peer has answered.  What it has
        sent behind that answer may come later, and shows no loss then."""
        if result != -_EAGAIN:
            self.fail_head(_PROTECTION_ERROR)
            return
        self.connection.observe(MEMORY_HELD, self.una_psn, HELD_RESULT)
        if (_TRANSMITS >> self.condition) & 1:
            self.retry.progress()
            self.recovery = _ANSWERED_ALREADY
            self.rewind(False)
            self.retry.stop()
            self.condition = _UNPLACED
            self.flow.environment.wait_for_memory(self.flow)

    def answered(self, request: Request, index: int) -> None:
        """Response packet ``index`` of the oldest request is in place."""
        request.received = index + 1
        self.una_psn = (request.first_psn + index + 1) & 0xFFFFFF
        if self.rd_outstanding and (
            request.received == request.packets or request.received % request.slice_packets == 0
        ):
            self.rd_outstanding -= 1
        if request.received == request.packets:
            self.retire(0)
        self.progressed()

    def expire(self, now: int) -> None:
        """The transport timer, the delay of an RNR NAK, or the wait of a stalled sender may be over."""
        self.now = now
        self.armed_ns = 0
        if self.flow.window is not None:
            self.flow.window.check_stall(self.flow, now)
        if not _TRANSMIT[self.connection.state]:
            return
        self.end_stall(now)
        if self.retry.deadline_ns and now >= self.retry.deadline_ns:
            self.overdue()
        self.rearm()

    def overdue(self) -> None:
        """The transport timer, the persist timer, or the delay of an RNR NAK is over."""
        if (_DELAY >> self.condition) & 1:
            self.retry.stop()
            self.connection.observe(RNR_WAIT_OVER, self.una_psn)
            self.go_on()
            return
        quiet: cython.bint = self.flow.window.quiet(self.retry.interval_ns, self.now)
        if self.retry.persisting:
            self.retry.deadline_ns = 0
            if (_PERSIST >> self.condition) & 1:
                self.probe = quiet
                self.go_on()
            return
        if self.writer.held and distance(self.una_psn, self.asked_psn) <= 0:
            # nothing in flight asks for an answer, and the packet that would was held when it was last tried:
            # this shows no loss
            self.rewind(False)
            return
        self.connection.count("timeouts")
        self.probe = quiet
        self.again(TIMEOUT)
