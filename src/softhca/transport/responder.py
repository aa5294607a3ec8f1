"""The receive side of a reliable connection (IBTA vol. 1, 9.7.4, 9.7.5.1).

Every request packet is one of three by its PSN: the expected one, which is checked in the order of the
standard and executed; a duplicate (up to 2^23 before), which is answered again but, reads and atomics
apart, not executed again; or one beyond a gap, for which the requester gets one sequence NAK.

Checks of an expected packet: opcode sequence, operation allowed, length, resources (receive, READ
resources), key and range; the first that fails decides the answer.  All but "no receive" (RNR NAK) end the
connection.

A packet whose memory is held is refused with an RNR NAK too, wherever in a message it stands: a receive "or
other resource" is not there now (resources not ready, a fault of class B: 9.9.3, 9.7.5.2.8).  Nothing of it
counts; the message goes on with its repetition.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import cython

from softhca.memory.regions import REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, Region, RegionTable
from softhca.queues.control_fields import EVENT_QP_ACCESS_ERR, EVENT_QP_FATAL, EVENT_QP_REQ_ERR
from softhca.queues.layout import MAX_MESSAGE_BYTES, WC_REM_INV_REQ_ERR
from softhca.transport.engines import ReceiveEngine
from softhca.transport.execution import (
    ACCESS,
    DONE,
    HELD,
    INVALID,
    INVALIDATION,
    LENGTH,
    NOT_READY,
    NOTHING,
    OPERATIONAL,
    MessageExecutor,
)
from softhca.transport.migration import MIGRATED
from softhca.transport.observation import (
    ACKNOWLEDGED,
    ATOMIC_AGAIN,
    DUPLICATE_ANSWERED,
    EXPECTED,
    GAP,
    HELD_REQUEST,
    MEMORY_HELD,
    READ_AGAIN,
)
from softhca.transport.replay import Resource, resources_for
from softhca.transport.replies import (
    INVALID_REQUEST,
    REMOTE_ACCESS,
    REMOTE_OPERATIONAL,
    RNR,
    SEQUENCE,
    ResponseGenerator,
)
from softhca.transport.states import ERR
from softhca.transport.window import DestinationWindow
from softhca.wire import feth, opcodes
from softhca.wire.psn import distance

if TYPE_CHECKING:
    from softhca.transport.connection import Connection
    from softhca.transport.receiving import MessageSink
    from softhca.wire.burst import Arrival, Burst
    from softhca.wire.packet_view import PacketView

# outcome of a SEND or RDMA WRITE packet → NAK and, when no receive completes in error, asynchronous event
ANSWERS: dict[int, tuple[int, int]] = {
    INVALID: (INVALID_REQUEST, EVENT_QP_REQ_ERR),
    LENGTH: (INVALID_REQUEST, EVENT_QP_REQ_ERR),
    ACCESS: (REMOTE_ACCESS, EVENT_QP_ACCESS_ERR),
    OPERATIONAL: (REMOTE_OPERATIONAL, EVENT_QP_FATAL),
}
_EVENTS: dict[int, int] = {
    INVALID_REQUEST: EVENT_QP_REQ_ERR,
    REMOTE_ACCESS: EVENT_QP_ACCESS_ERR,
    REMOTE_OPERATIONAL: EVENT_QP_FATAL,
}

_DONE = cython.declare(cython.int, DONE)
_NOT_READY = cython.declare(cython.int, NOT_READY)
_INVALIDATION = cython.declare(cython.int, INVALIDATION)
_HELD = cython.declare(cython.int, HELD)
_NOTHING = cython.declare(cython.int, NOTHING)
_RNR = cython.declare(cython.uint, RNR)
_MIGRATED = cython.declare(cython.int, MIGRATED)
_SEQUENCE = cython.declare(cython.uint, SEQUENCE)
_INVALID_REQUEST = cython.declare(cython.uint, INVALID_REQUEST)
_REMOTE_ACCESS = cython.declare(cython.uint, REMOTE_ACCESS)
_REMOTE_OPERATIONAL = cython.declare(cython.uint, REMOTE_OPERATIONAL)
_REMOTE_READ = cython.declare(cython.uint, REMOTE_READ)
_REMOTE_ATOMIC = cython.declare(cython.uint, REMOTE_ATOMIC)
_REMOTE_WRITE = cython.declare(cython.uint, REMOTE_WRITE)
_FLUSH_SHIFT = cython.declare(cython.uint, 8)  # from a placement type to the right that it takes
_SELECTIVITY_REGION = cython.declare(cython.uint, feth.REGION)
_MAX_MESSAGE = cython.declare(cython.ulonglong, MAX_MESSAGE_BYTES)
_SEND = cython.declare(cython.uint, opcodes.SEND)
_WRITE = cython.declare(cython.uint, opcodes.WRITE)
_READ_REQUEST = cython.declare(cython.uint, opcodes.READ_REQUEST)
_COMPARE_SWAP = cython.declare(cython.uint, opcodes.COMPARE_SWAP)
_FETCH_ADD = cython.declare(cython.uint, opcodes.FETCH_ADD)
_ATOMIC_WRITE = cython.declare(cython.uint, opcodes.ATOMIC_WRITE)
_FLUSH = cython.declare(cython.uint, opcodes.FLUSH)
_FIRST = cython.declare(cython.uint, opcodes.FIRST)
_MIDDLE = cython.declare(cython.uint, opcodes.MIDDLE)
_INVALID_REQUEST_ERROR = cython.declare(cython.int, WC_REM_INV_REQ_ERR)
_ERR = cython.declare(cython.int, ERR)
_EACCES = cython.declare(cython.int, errno.EACCES)
_EAGAIN = cython.declare(cython.int, errno.EAGAIN)


class Responder(ReceiveEngine):
    """The receive engine of a reliable connection, whose messages go to ``sink``.

    ``epsn`` is the PSN expected next; ``gap_psn`` the last one beyond the present gap, ``nak_sent``: the gap,
    or that the packet expected cannot be taken now, has been answered by a NAK.  ``execution`` carries the
    messages out, ``replies`` writes the answers.
    """

    def __init__(self, connection: Connection, sink: MessageSink) -> None:
        self.connection = connection
        self.flow = connection.flow
        self.sink = sink
        self.execution = MessageExecutor(connection, sink)
        self.replies = ResponseGenerator(connection, sink)
        self.now = 0
        self.epsn = 0
        self.gap_psn = 0
        self.nak_sent = False

    def begin(self, psn: int) -> None:
        self.epsn = psn
        self.replies.msn = 0

    def start(self, now: int) -> None:
        self.now = now
        resources: cython.uint = resources_for(self.connection.max_dest_rd_atomic)
        if self.replies.ring.capacity != resources:
            self.replies.ring.resize(resources)

    def receive(self, view: PacketView, arrival: Arrival, now: int) -> None:
        gap: cython.int = distance(self.epsn, view.psn)
        self.now = now
        if gap == 0:
            # An RNR NAK that still waits to be sent stops everything, so that what follows is not half
            # executed.
            if self.replies.nak_pending == 0 or self.replies.nak_pending == _SEQUENCE:
                self.expected(view, arrival)
        elif gap > 0:
            self.gap(view.psn)
        else:
            self.connection.count("duplicates")
            self.duplicate(view)

    def produce(self, burst: Burst, now: int) -> int:
        self.now = now
        return self.replies.produce(burst, now)

    def join(self, burst: Burst, now: int) -> int:
        self.now = now
        return self.replies.join(burst)

    def has_work(self) -> bool:
        return self.replies.has_work()

    def may_delay_ack(self) -> bool:
        return self.replies.may_delay_ack()

    def expire(self, now: int) -> None:
        self.replies.expire(now)

    def resume(self, now: int) -> None:
        self.replies.resume()

    def flush(self) -> None:
        self.replies.flush()
        self.execution.abandon()
        self.sink.flush(self.now)

    def reset(self) -> None:
        self.replies.clear()
        self.replies.msn = 0
        self.epsn = 0
        self.gap_psn = 0
        self.nak_sent = False
        self.execution.abandon()
        self.sink.reset()

    def gap(self, psn: int) -> None:
        """A packet beyond the expected one: drop it and say so once (9.7.4.1.1, 9.7.5.2.8)."""
        self.connection.count("out_of_sequence")
        if self.nak_sent:
            if self.replies.nak_pending == _SEQUENCE and distance(self.gap_psn, psn) > 0:
                self.gap_psn = psn
            return
        self.nak_sent = True
        self.replies.nak_pending = _SEQUENCE
        self.replies.nak_psn = self.epsn
        self.gap_psn = psn
        self.connection.observe(GAP, psn, EXPECTED, self.epsn)
        self.flow.environment.schedule(self.flow)

    def expected(self, view: PacketView, arrival: Arrival) -> None:
        """Check and execute the packet whose turn it is."""
        if view.operation == _SEND or view.operation == _WRITE:
            self.message(view, arrival)
        elif self.execution.operation != _NOTHING:
            self.refuse(_INVALID_REQUEST)
        elif view.operation == _READ_REQUEST:
            self.read_request(view)
        elif view.operation == _COMPARE_SWAP or view.operation == _FETCH_ADD:
            self.atomic_request(view)
        elif view.operation == _ATOMIC_WRITE:
            self.atomic_write(view, arrival)
        elif view.operation == _FLUSH:
            self.flush_request(view)
        else:
            self.refuse(_INVALID_REQUEST)

    def message(self, view: PacketView, arrival: Arrival) -> None:
        """A packet of a SEND or RDMA WRITE."""
        outcome: cython.int
        ends: cython.bint = view.position != _FIRST and view.position != _MIDDLE
        if not self.execution.in_sequence(view) or not self.execution.length_ok(view):
            self.execution.failure = _INVALID_REQUEST_ERROR
            self.message_failed(view, INVALID)
            return
        outcome = self.execution.execute(view, arrival, self.now)
        if self.connection.state == _ERR:
            # Its completion was lost, so the consumer will never know of it: the peer must not believe it
            # done.
            self.replies.fatal(view.psn, _REMOTE_OPERATIONAL, -1)
        elif outcome == _DONE:
            self.advance(1)
            if ends:
                self.replies.msn = (self.replies.msn + 1) & 0xFFFFFF
            if view.ack_request:
                self.replies.acknowledge_through(view.psn)
            elif self.replies.ack_pending:
                self.replies.ack_psn = view.psn
        elif outcome == _INVALIDATION:
            # The message itself has arrived and is acknowledged; what fails is local (error class J).
            self.advance(1)
            self.replies.msn = (self.replies.msn + 1) & 0xFFFFFF
            self.replies.acknowledge_through(view.psn)
            length_bytes = self.execution.received_bytes & 0xFFFFFFFF
            self.execution.complete(_INVALID_REQUEST_ERROR, length_bytes, self.now)
            self.replies.dying = True
            self.connection.fail(-1)
        else:
            self.message_failed(view, outcome)

    def message_failed(self, view: PacketView, outcome: int) -> None:
        """Answer a SEND or RDMA WRITE packet that could not be executed."""
        if outcome == _NOT_READY:
            self.not_ready(view.psn)
            return
        if outcome == _HELD:
            self.held_request(view.psn)
            return
        code, event = ANSWERS[outcome]
        if self.execution.complete(self.execution.failure, 0, self.now):
            event = -1
        self.replies.fatal(view.psn, code, event)

    def not_ready(self, psn: int) -> None:
        """An RNR NAK for the expected packet: nothing is executed before it has come again (9.7.5.2.8).

        Where that is the first of an RDMA WRITE, its key is not in use: it will be looked up again.
        """
        if self.execution.operation == _NOTHING:
            self.execution.release_target()
        self.nak_sent = True
        self.replies.refuse(psn, _RNR | (self.connection.min_rnr_timer & 31))

    def held_request(self, psn: int) -> None:
        """The memory of the expected packet is held: it is to come again."""
        self.connection.observe(MEMORY_HELD, psn, HELD_REQUEST)
        self.not_ready(psn)

    def advance(self, packets: int) -> None:
        """The expected packet has been executed: the next one is ``packets`` further on, and there is no
        gap now."""
        self.epsn = (self.epsn + packets) & 0xFFFFFF
        self.nak_sent = False
        if self.replies.nak_pending == _SEQUENCE:
            if distance(self.gap_psn, self.epsn) > 0:
                self.replies.nak_pending = 0
                self.replies.acknowledge_through((self.epsn - 1) & 0xFFFFFF)
            else:
                self.nak_sent = True
                self.replies.nak_psn = self.epsn

    def announce(self) -> None:
        self.replies.acknowledge_through((self.epsn - 1) & 0xFFFFFF)

    def refuse(self, code: int) -> None:
        """NAK ``code`` to the expected packet, of an RDMA READ or atomic: the connection ends."""
        self.execution.complete(_INVALID_REQUEST_ERROR, 0, self.now)
        self.replies.fatal(self.epsn, code, _EVENTS[code])

    def read_request(self, view: PacketView) -> None:
        """RDMA READ: check it and note it to be answered (9.7.4.1.3 to 9.7.4.1.5)."""
        resource: Resource
        packets: cython.uint = 1
        n: cython.ulonglong = view.reth_length
        if not self.connection.access & _REMOTE_READ or n > _MAX_MESSAGE:
            self.refuse(_INVALID_REQUEST)
            return
        if n:
            packets = (n + self.connection.path_mtu_bytes - 1) // self.connection.path_mtu_bytes
        region = None
        if n:
            region = self.connection.environment.regions.find(
                view.reth_rkey, self.connection.pd, view.reth_va, n, _REMOTE_READ, self.connection.number
            )
            if region is None:
                self.connection.count("key_refusals")
                self.refuse(_REMOTE_ACCESS)
                return
        resource = self.replies.ring.add(self.epsn, packets)
        if resource is None:
            self.refuse(_INVALID_REQUEST)
            return
        window: DestinationWindow = self.flow.window
        window.responses.asked_on(window.near_limit())
        resource.va = view.reth_va
        resource.length_bytes = n
        resource.rkey = view.reth_rkey
        resource.region = region
        if region is not None:
            resource.generation = region.generation
            resource.pd = region.pd
        self.answered_later(resource, packets)

    def answered_later(self, resource: Resource, packets: int) -> None:
        """A READ or atomic is accepted: its answer acknowledges everything before it as well."""
        self.advance(packets)
        self.replies.msn = (self.replies.msn + 1) & 0xFFFFFF
        resource.msn = self.replies.msn
        self.replies.ack_pending = False
        self.replies.ring.ask(resource, 0, packets, resource.length_bytes)
        self.flow.environment.schedule(self.flow)

    def atomic_request(self, view: PacketView) -> None:
        """Compare-and-swap or fetch-and-add: check it, execute it once, keep the result for a replay."""
        resource: Resource
        region: Region
        result: cython.ulonglong
        if not self.connection.access & _REMOTE_ATOMIC or view.atomic_va & 7:
            self.refuse(_INVALID_REQUEST)
            return
        region = self.connection.environment.regions.find(
            view.atomic_rkey, self.connection.pd, view.atomic_va, 8, _REMOTE_ATOMIC, self.connection.number
        )
        if region is None:
            self.connection.count("key_refusals")
            self.refuse(_REMOTE_ACCESS)
            return
        if not self.replies.ring.has_place():
            self.refuse(_INVALID_REQUEST)
            return
        if view.operation == _COMPARE_SWAP:
            result = region.compare_swap(view.atomic_va, view.compare, view.swap_add)
        else:
            result = region.fetch_add(view.atomic_va, view.swap_add)
        if region.fault == -_EAGAIN:
            # before the oldest resource, which may still be asked for again, makes room for it
            self.held_request(view.psn)
            return
        if region.fault:
            self.refuse(_REMOTE_ACCESS if region.fault == -_EACCES else _REMOTE_OPERATIONAL)
            return
        resource = self.replies.ring.add(self.epsn, 1)
        resource.atomic = True
        resource.va = view.atomic_va
        resource.length_bytes = 8
        resource.rkey = view.atomic_rkey
        resource.region = region
        resource.generation = region.generation
        resource.result = result
        self.answered_later(resource, 1)

    def atomic_write(self, view: PacketView, arrival: Arrival) -> None:
        """ATOMIC WRITE: check it, put its eight bytes into place at once, answer by an empty READ response
        (annex A19).  It takes a READ resource, for a repetition is answered and not done again."""
        region: Region
        result: cython.int
        if (
            not self.connection.access & _REMOTE_WRITE
            or view.reth_va & 7
            or view.reth_length != 8
            or view.payload_bytes != 8
        ):
            self.refuse(_INVALID_REQUEST)
            return
        region = self.connection.environment.regions.find(
            view.reth_rkey, self.connection.pd, view.reth_va, 8, _REMOTE_WRITE, self.connection.number
        )
        if region is None:
            self.connection.count("key_refusals")
            self.refuse(_REMOTE_ACCESS)
            return
        if not self.replies.ring.has_place():
            self.refuse(_INVALID_REQUEST)
            return
        result = region.put_word(view.reth_va, arrival.payload_address + view.payload)
        if result == -_EAGAIN:
            self.held_request(view.psn)
            return
        if result:
            self.refuse(_REMOTE_ACCESS if result == -_EACCES else _REMOTE_OPERATIONAL)
            return
        self.answered_empty(view)

    def flush_request(self, view: PacketView) -> None:
        """FLUSH: what was written before it is visible to all of the host, for it was copied there, and this
        thread's stores are seen in their order.  So there is nothing to do but to check the request, and to
        answer it by an empty READ response (annex A19).  Persistence is a right that no region gives.
        """
        region: Region
        regions: RegionTable = self.connection.environment.regions
        rights: cython.uint = view.placement << _FLUSH_SHIFT
        va: cython.ulonglong = view.reth_va
        length: cython.ulonglong = view.reth_length
        if (
            rights == 0
            or rights & ~self.connection.access  # which has no right for reserved types
            or view.selectivity > _SELECTIVITY_REGION
        ):
            self.refuse(_INVALID_REQUEST)
            return
        if view.selectivity == _SELECTIVITY_REGION:
            region = regions.live_key(view.reth_rkey)
            if region is not None:
                va = region.va
                length = region.length
        region = regions.find(
            view.reth_rkey, self.connection.pd, va, length, rights, self.connection.number
        )
        if region is None:
            self.connection.count("key_refusals")
            self.refuse(_REMOTE_ACCESS)
            return
        if not self.replies.ring.has_place():
            self.refuse(_INVALID_REQUEST)
            return
        self.answered_empty(view)

    def answered_empty(self, view: PacketView) -> None:
        """The request has been carried out: let an empty READ response answer it, and its repetitions."""
        resource: Resource = self.replies.ring.add(self.epsn, 1)
        resource.va = view.reth_va
        resource.length_bytes = 0
        resource.rkey = view.reth_rkey
        resource.region = None
        self.answered_later(resource, 1)

    def duplicate(self, view: PacketView) -> None:
        """A request that has been executed: SEND and RDMA WRITE are acknowledged again, the others
        replayed."""
        if self.replies.nak_pending and self.replies.nak_pending != _SEQUENCE:
            return
        if view.operation == _SEND or view.operation == _WRITE:
            self.connection.observe(DUPLICATE_ANSWERED, view.psn, ACKNOWLEDGED)
            self.replies.acknowledge_through(view.psn)
            self.replies.asked_again = True
        elif view.operation == _READ_REQUEST:
            self.read_again(view)
        elif view.operation == _COMPARE_SWAP or view.operation == _FETCH_ADD:
            self.atomic_again(view)
        elif view.operation == _ATOMIC_WRITE or view.operation == _FLUSH:
            self.empty_again(view)

    def same_range(self, resource: Resource, view: PacketView, index: int) -> bool:
        """Whether a repeated RDMA READ asks for a part of what was asked at first (9.7.4.1.1)."""
        offset: cython.ulonglong = index * cython.cast(cython.ulonglong, self.connection.path_mtu_bytes)
        return (
            not resource.atomic
            and view.reth_rkey == resource.rkey
            and view.reth_va == ((resource.va + offset) & 0xFFFFFFFFFFFFFFFF)
            and view.reth_length <= resource.length_bytes - offset
        )

    def read_again(self, view: PacketView) -> None:
        """Answer a repeated RDMA READ, or a part of it, from memory; key and range are checked anew.

        The answer to a part begins with FIRST or ONLY, as that to any request.  Linux's SoftRoCE takes these
        for an error inside of an answer that it has in part; it wants MIDDLE or LAST, and gets them: its
        packets are known by their MigReq, which is 1 where nobody migrates paths, and 0 between ends that are
        ready to (`migration`).
        """
        index: cython.uint
        packets: cython.uint = 1
        pmtu: cython.ulonglong = self.connection.path_mtu_bytes
        resource: Resource = self.replies.ring.find(view.psn)
        if resource is None:
            self.connection.drop("drops_resources", view.psn)
            return
        index = distance(resource.first_psn, view.psn)
        if not self.same_range(resource, view, index):
            self.connection.drop("drops_sequence", view.psn)
            return
        if (
            resource.pending
            and resource.next_index <= index
            and resource.begin_index <= index < resource.end_index
        ):
            return  # it will be sent anyway
        if view.reth_length:
            packets = (view.reth_length + pmtu - 1) // pmtu
            region = self.connection.environment.regions.find(
                view.reth_rkey,
                self.connection.pd,
                view.reth_va,
                view.reth_length,
                _REMOTE_READ,
                self.connection.number,
            )
            if region is not resource.region or region is None:
                self.connection.count("key_refusals")
                self.replies.fatal(view.psn, _REMOTE_ACCESS, _EVENTS[_REMOTE_ACCESS])
                return
        self.connection.observe(DUPLICATE_ANSWERED, view.psn, READ_AGAIN)
        window: DestinationWindow = self.flow.window
        if window.responses.lost(window.near_limit()):
            window.lost()
        self.replies.ring.ask(
            resource,
            index,
            index + packets,
            index * pmtu + view.reth_length,
        )
        resource.resumed = index > 0 and not view.migreq and self.connection.migration == _MIGRATED
        self.flow.environment.schedule(self.flow)

    def empty_again(self, view: PacketView) -> None:
        """Answer a repeated ATOMIC WRITE, whose bytes may have been written over since, or FLUSH."""
        psn: cython.uint = view.psn
        resource: Resource = self.replies.ring.find(psn)
        if (
            resource is None
            or resource.atomic
            or resource.length_bytes
            or view.reth_va != resource.va
            or view.reth_rkey != resource.rkey
        ):
            self.connection.drop("drops_resources", psn)
            return
        self.connection.observe(DUPLICATE_ANSWERED, psn, ATOMIC_AGAIN)
        self.replies.ring.ask(resource, 0, 1, 0)
        self.flow.environment.schedule(self.flow)

    def atomic_again(self, view: PacketView) -> None:
        """Give the saved result of a repeated atomic, but only while its key is valid."""
        resource: Resource = self.replies.ring.find(view.psn)
        if (
            resource is None
            or not resource.atomic
            or view.atomic_va != resource.va
            or view.atomic_rkey != resource.rkey
        ):
            self.connection.drop("drops_resources", view.psn)
            return
        region = self.connection.environment.regions.find(
            resource.rkey, self.connection.pd, resource.va, 8, _REMOTE_ATOMIC, self.connection.number
        )
        if region is None or region is not resource.region or region.generation != resource.generation:
            self.connection.count("key_refusals")
            self.replies.fatal(view.psn, _REMOTE_ACCESS, _EVENTS[_REMOTE_ACCESS])
            return
        self.connection.observe(DUPLICATE_ANSWERED, view.psn, ATOMIC_AGAIN)
        self.replies.ring.ask(resource, 0, 1, 8)
        self.flow.environment.schedule(self.flow)
