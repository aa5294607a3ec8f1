"""What a reliable responder sends: READ responses, atomic acknowledgements, ACKs and NAKs (IBTA vol. 1,
9.7.5.1).

At most one acknowledgement waits to be sent; it stands for everything before its PSN and goes after the
answers to the RDMA READs and atomics that came before it.  An answer to a later READ makes it superfluous,
for it acknowledges what lies before as well.  So a run of packets, however long, gives one ACK.

Answers to READs keep the pace of the window to their destination (`softhca.transport.response_pacing`), and
what is behind them waits with them.

An ACK may be delayed: where the requester has something to send too, the ACK goes behind that, in the same
burst if it fits.  An ACK that the peer asks for again is not delayed: the peer already misses it.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import cython

from softhca.memory.regions import REMOTE_READ
from softhca.queues.control_fields import EVENT_QP_ACCESS_ERR, EVENT_QP_FATAL
from softhca.transport.observation import (
    HELD_ANSWER,
    MEMORY_HELD,
    MEMORY_TRIED,
    NAK_NAMES,
    NAK_SENT,
    RESPONSE_PACED,
    RNR_NAK_SENT,
    WAIT_NS,
)
from softhca.transport.replay import ReplayRing, Resource
from softhca.transport.retry import RNR_TIMER_NS
from softhca.transport.segmentation import UNLIMITED, PacketWriter
from softhca.transport.window import DestinationWindow
from softhca.wire import aeth, opcodes
from softhca.wire.build import put_aeth, put_pad
from softhca.wire.psn import distance

if TYPE_CHECKING:
    from softhca.transport.connection import Connection
    from softhca.transport.receiving import MessageSink
    from softhca.wire.burst import Burst

# NAK syndromes
RNR = aeth.KIND_RNR_NAK
SEQUENCE = aeth.KIND_NAK | aeth.NAK_PSN_SEQUENCE
INVALID_REQUEST = aeth.KIND_NAK | aeth.NAK_INVALID_REQUEST
REMOTE_ACCESS = aeth.KIND_NAK | aeth.NAK_REMOTE_ACCESS
REMOTE_OPERATIONAL = aeth.KIND_NAK | aeth.NAK_REMOTE_OPERATIONAL
INVALID_RD_REQUEST = aeth.KIND_NAK | aeth.NAK_INVALID_RD_REQUEST

_RNR = cython.declare(cython.uint, RNR)
_SEQUENCE = cython.declare(cython.uint, SEQUENCE)
_REMOTE_ACCESS = cython.declare(cython.uint, REMOTE_ACCESS)
_REMOTE_OPERATIONAL = cython.declare(cython.uint, REMOTE_OPERATIONAL)
_REMOTE_READ = cython.declare(cython.uint, REMOTE_READ)
_UNLIMITED = cython.declare(cython.ulonglong, UNLIMITED)
_RESPONSE_FIRST = cython.declare(cython.uint, opcodes.RC_RDMA_READ_RESPONSE_FIRST)
_RESPONSE_MIDDLE = cython.declare(cython.uint, opcodes.RC_RDMA_READ_RESPONSE_MIDDLE)
_RESPONSE_LAST = cython.declare(cython.uint, opcodes.RC_RDMA_READ_RESPONSE_LAST)
_RESPONSE_ONLY = cython.declare(cython.uint, opcodes.RC_RDMA_READ_RESPONSE_ONLY)
_MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_EACCES = cython.declare(cython.int, errno.EACCES)
_EAGAIN = cython.declare(cython.int, errno.EAGAIN)
_ACCESS_EVENT = cython.declare(cython.int, EVENT_QP_ACCESS_ERR)
_FATAL_EVENT = cython.declare(cython.int, EVENT_QP_FATAL)


class ResponseGenerator:
    """Writes what a responder has to answer; ``msn`` counts completed messages.

    ``nak_pending`` is the syndrome of a NAK to be sent for ``nak_psn``, 0 for none; ``dying``: the connection
    is in error because of what came in, and the peer has yet to get the NAK.  ``held``: the memory that the
    next answer comes from is held, and what is behind it waits too.
    ``paced``: the next answer's first burst has to wait until ``departure_ns`` (0: it has no moment yet).
    """

    ack_pending: bool
    asked_again: bool
    ack_psn: int
    nak_pending: int
    nak_psn: int
    dying: bool
    held: bool
    paced: bool
    departure_ns: int
    departs: bool

    def __init__(self, connection: Connection, sink: MessageSink) -> None:
        self.connection = connection
        self.flow = connection.flow
        self.sink = sink
        self.now = 0
        self.held_psn = 0
        self.writer = PacketWriter(connection)
        self.ring = ReplayRing(0)
        self.msn = 0
        self.clear()

    def clear(self) -> None:
        """Nothing is to be sent any more."""
        self.ack_pending = False
        self.asked_again = False
        self.ack_psn = 0
        self.nak_pending = 0
        self.nak_psn = 0
        self.dying = False
        self.held = False
        self.paced = False
        self.departs = False
        self.departure_ns = 0
        self.ring.clear()

    def acknowledge_through(self, psn: int) -> None:
        """An ACK for everything up to ``psn`` is due."""
        if not self.ack_pending or distance(self.ack_psn, psn) > 0:
            self.ack_psn = psn
        self.ack_pending = True
        if not self.flow.scheduled:
            self.flow.environment.schedule(self.flow)

    def has_work(self) -> bool:
        """Whether there is something to send now."""
        if self.held or self.paced:
            return False
        return self.ring.pending != 0 or self.ack_pending or self.nak_pending != 0

    def may_delay_ack(self) -> bool:
        """Whether that is a delayed acknowledgement and nothing else."""
        return (
            self.ack_pending
            and not self.asked_again
            and not self.held
            and self.nak_pending == 0
            and self.ring.pending == 0
        )

    def join(self, burst: Burst) -> int:
        """Write a delayed acknowledgement behind others' packets; how many packets."""
        packets: cython.uint = burst.packets
        length: cython.uint = burst.length
        if not self.may_delay_ack():
            return 0
        self.writer.begin(burst, self.flow.route, _UNLIMITED)
        self.acknowledge()
        if burst.packets == packets:
            return 0
        self.connection.count_sent(burst.packets - packets, burst.length - length)
        return burst.packets - packets

    def resume(self) -> None:
        """Memory may be there again."""
        if self.held:
            self.held = False
            self.connection.observe(MEMORY_TRIED, self.held_psn, HELD_ANSWER)
            self.flow.environment.schedule(self.flow)

    def expire(self, now: int) -> None:
        """The moment of an answer that waits may have come."""
        if self.paced:
            if now >= self.departure_ns:
                self.paced = False
                self.flow.environment.schedule(self.flow)
            else:
                self.flow.environment.arm(self.flow, self.departure_ns)

    def may_depart(self, resource: Resource) -> bool:
        """Whether responses may be written into the present burst; else the flow comes again in time."""
        if self.departs:
            return True
        if self.departure_ns == 0:
            window: DestinationWindow = self.flow.window
            self.departure_ns = window.responses.departure(window.near_limit(), self.now)
        if self.departure_ns < self.flow.not_before_ns:
            self.departure_ns = self.flow.not_before_ns
        if self.now < self.departure_ns:
            self.paced = True
            psn: cython.uint = (resource.first_psn + resource.next_index) & 0xFFFFFF
            self.connection.observe(RESPONSE_PACED, psn, WAIT_NS, self.departure_ns - self.now)
            self.flow.environment.arm(self.flow, self.departure_ns)
            return False
        self.departure_ns = 0
        self.departs = True
        return True

    def produce(self, burst: Burst, now: int) -> int:
        """Write answers in the order of their PSNs, then the acknowledgement; how many packets."""
        resource: Resource
        packets: cython.uint = burst.packets
        length: cython.uint = burst.length
        self.now = now
        self.writer.begin(burst, self.flow.route, _UNLIMITED)
        while True:
            resource = self.ring.next()
            if resource is None:
                self.acknowledge()
                break
            if self.answer(resource) == 0:
                break
        packets = burst.packets - packets
        length = burst.length - length
        if self.departs:
            self.departs = False
            window: DestinationWindow = self.flow.window
            window.responses.sent(window.cost(length, packets))
        if packets:
            self.connection.count_sent(packets, length)
        return packets

    def answer(self, resource: Resource) -> int:
        """Write what fits of the answer to one request; 1 when it is complete."""
        written: cython.int
        psn: cython.uint
        if resource.atomic:
            if not self.writer.atomic_response(
                resource.first_psn, self.sink.credit_code(), resource.msn, resource.result
            ):
                return 0
            self.ring.done(resource)
            return 1
        if not self.may_depart(resource):
            return 0
        while resource.next_index < resource.end_index:
            written = self.read_packet(resource, resource.next_index)
            if written == 0:
                return 0
            psn = (resource.first_psn + resource.next_index) & 0xFFFFFF
            if written == -_EAGAIN:
                self.held = True
                self.held_psn = psn
                self.connection.observe(MEMORY_HELD, psn, HELD_ANSWER)
                self.flow.environment.wait_for_memory(self.flow)
                return 0
            if written < 0:
                self.ring.clear()
                self.fatal(
                    psn,
                    _REMOTE_ACCESS if written == -_EACCES else _REMOTE_OPERATIONAL,
                    _ACCESS_EVENT if written == -_EACCES else _FATAL_EVENT,
                )
                return 1
            resource.next_index += 1
        self.flow.window.responses.answered(resource.end_bytes)
        self.ring.done(resource)
        return 1

    def read_packet(self, resource: Resource, index: int) -> int:
        """Write response packet ``index`` of an RDMA READ; 1 when written, 0 when it does not fit, −errno
        when the memory may not be read any more."""
        o: cython.Py_ssize_t
        result: cython.int
        pmtu: cython.ulonglong = self.connection.path_mtu_bytes
        offset: cython.ulonglong = index * pmtu
        n: cython.ulonglong = resource.end_bytes - offset
        first: cython.bint = index == resource.begin_index and not resource.resumed
        last: cython.bint = index + 1 == resource.end_index
        code: cython.uint
        if n > pmtu:
            n = pmtu
        pad: cython.uint = (4 - (n & 3)) & 3
        if first:
            code = _RESPONSE_ONLY if last else _RESPONSE_FIRST
        else:
            code = _RESPONSE_LAST if last else _RESPONSE_MIDDLE
        if not self.writer.fits(self.writer.packet_bytes(code, n)):
            return 0
        if resource.length_bytes and (
            resource.region.generation != resource.generation
            or not resource.region.access & _REMOTE_READ
            or resource.region.pd != resource.pd
        ):
            return -_EACCES
        o = self.writer.open(
            code, False, pad, False, (resource.first_psn + index) & 0xFFFFFF, self.connection.dest_qp
        )
        if first or last:
            o = put_aeth(self.writer.burst.data, o, self.sink.credit_code(), resource.msn)
        if n:
            result = resource.region.read((resource.va + offset) & _MASK64, self.writer.burst.address + o, n)
            if result:
                return result
        self.writer.close(put_pad(self.writer.burst.data, o + n, pad))
        return 1

    def acknowledge(self) -> None:
        """Write the NAK or ACK that is due, if it fits behind the answers of this burst.

        What was executed after a gap had been noticed (a packet out of order, or a forged one) is
        acknowledged before that is told: a NAK of what the requester has not sent yet would tell it nothing.
        """
        if self.nak_pending:
            if self.nak_pending == _SEQUENCE and self.ack_pending and not self.acknowledge_executed():
                return
            if not self.writer.acknowledge(self.nak_psn, self.nak_pending, self.msn):
                return
            if self.nak_pending >> 5 == 1:
                self.connection.count("rnr_naks_sent")
                delay_ns = RNR_TIMER_NS[self.nak_pending & 31]
                self.connection.observe(RNR_NAK_SENT, self.nak_psn, WAIT_NS, delay_ns)
            else:
                self.connection.count("naks_sent")
                self.connection.observe(NAK_SENT, self.nak_psn, NAK_NAMES[self.nak_pending & 31])
            self.nak_pending = 0
            self.ack_pending = self.asked_again = False
            self.dying = False
        elif self.ack_pending:
            self.acknowledge_executed()

    def acknowledge_executed(self) -> bool:
        """Write the ACK that is due; False where it does not fit."""
        if not self.writer.acknowledge(self.ack_psn, self.sink.credit_code(), self.msn):
            return False
        self.connection.counters.acks_sent += 1
        self.ack_pending = self.asked_again = False
        self.dying = False
        return True

    def refuse(self, psn: int, syndrome: int) -> None:
        """A NAK for ``psn`` is due; it stands for the acknowledgement as well."""
        self.nak_pending = syndrome
        self.nak_psn = psn
        self.ack_pending = False
        self.flow.environment.schedule(self.flow)

    def fatal(self, psn: int, code: int, event: int) -> None:
        """Answer ``psn`` with NAK ``code`` and put the connection in error; ``event`` ≥ 0 is reported."""
        self.dying = True
        self.refuse(psn, code)
        self.connection.fail(event, NAK_NAMES[code & 31])

    def flush(self) -> None:
        """The connection is in error: nothing is to be sent but, where that is why, the NAK that says so, and
        the ACK of what was executed: its completions are told, and consumers disconnect after the last one.
        No ACK goes before an answer to a READ, which will not be sent any more."""
        if self.dying:
            return
        executed: cython.bint = self.ack_pending and self.ring.pending == 0
        psn: cython.uint = self.ack_psn
        self.clear()
        if executed:
            self.ack_psn = psn
            self.ack_pending = self.dying = True
            self.flow.environment.schedule(self.flow)
