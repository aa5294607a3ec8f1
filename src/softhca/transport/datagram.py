"""Unreliable datagrams: single packets to any queue pair that an address handle leads to (IBTA vol. 1,
9.8.3).

The first 40 bytes of a receive are for the GRH that the packet had.  RoCEv2 has an IP header in its place:
for IPv6 that header, for IPv4 the header in the last 20 of the 40 bytes (annex A17.4.5.2).
A native packet may come without a GRH: then the 40 bytes stay as they are.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import cython

from softhca.machine.primitives import address_of
from softhca.queues.layout import (
    SOLICITED,
    WC_GRH,
    WC_LOC_LEN_ERR,
    WC_LOC_PROT_ERR,
    WC_LOC_QP_OP_ERR,
    WC_RECV,
    WC_WITH_IMM,
)
from softhca.queues.operations import mask
from softhca.transport.conditions import WINDOW
from softhca.transport.engines import ReceiveEngine
from softhca.transport.receiving import NO_RECEIVE
from softhca.transport.request import Request
from softhca.transport.unreliable import UnreliableTransmitter
from softhca.wire.build import put_immdt, put_pad
from softhca.wire.ip import Ipv4, Ipv6
from softhca.wire.route import NATIVE, ROCE_V4

if TYPE_CHECKING:
    from softhca.transport.context import QueuePair
    from softhca.transport.environment import AddressHandle
    from softhca.transport.receiving import ReceiveQueue
    from softhca.wire.burst import Arrival, Burst
    from softhca.wire.packet_view import PacketView

GRH_BYTES = 40
QKEY_OF_QUEUE_PAIR = 0x80000000  # a Q_Key with this bit in a work request means the queue pair's own (10.2.5)

_GRH_BYTES = cython.declare(cython.ulonglong, GRH_BYTES)
_OWN_QKEY = cython.declare(cython.uint, QKEY_OF_QUEUE_PAIR)
_SOLICITED = cython.declare(cython.uint, SOLICITED)
_IMMEDIATE = cython.declare(cython.uint, mask(lambda row: row.immediate))
_LENGTH_ERROR = cython.declare(cython.int, WC_LOC_LEN_ERR)
_PROTECTION_ERROR = cython.declare(cython.int, WC_LOC_PROT_ERR)
_OPERATION_ERROR = cython.declare(cython.int, WC_LOC_QP_OP_ERR)
_EAGAIN = cython.declare(cython.int, errno.EAGAIN)
_NO_RECEIVE = cython.declare(cython.int, NO_RECEIVE)
_RECV = cython.declare(cython.uint, WC_RECV)
_GRH = cython.declare(cython.uint, WC_GRH)
_WITH_IMM = cython.declare(cython.uint, WC_WITH_IMM)
_NATIVE = cython.declare(cython.int, NATIVE)
_WINDOW = cython.declare(cython.int, WINDOW)


class DatagramSender(UnreliableTransmitter):
    """The send side: each work request names its address handle, queue pair and Q_Key.

    The queue pair's service level is that of the current request's address handle.
    """

    def doorbell(self, now: int) -> None:
        request: Request
        self.now = now
        if self.condition != _WINDOW:
            # the turn that is asked for is one of the first request's service level
            request = self.current()
            if request is not None:
                handle = self.qp.environment.address_handle(request.work.ah)
                if handle is not None:
                    self.flow.service_level = handle.service_level
        UnreliableTransmitter.doorbell(self, now)

    def judge(self, request: Request, handle: AddressHandle) -> int:
        """0, or the completion status of a work request that cannot be sent (C9-200: one packet, within
        the PMTU)."""
        if handle is None or handle.pd != self.qp.pd or handle.port_number != self.qp.flow.port_number:
            return _OPERATION_ERROR
        if request.length_bytes > self.qp.path_mtu_bytes:
            return _LENGTH_ERROR
        return 0

    def write(self, request: Request, burst: Burst) -> bool:
        """A burst goes to one destination on one service level: those of its first packet."""
        following: cython.bint = burst.packets != 0
        handle = self.qp.environment.address_handle(request.work.ah)
        status: cython.int = self.judge(request, handle)
        if status:
            self.fail_head(status)
            return False
        if following and (
            handle.route is not burst.route or handle.service_level != self.flow.service_level
        ):
            self.flow.service_level = handle.service_level
            return False
        if not following:
            self.flow.service_level = handle.service_level
            self.aim(burst, handle.route, handle.window)
        return self.put(request, burst)

    def put(self, request: Request, burst: Burst) -> bool:
        """Write the packet; False when it does not fit, or when the work request has failed."""
        o: cython.Py_ssize_t
        result: cython.int
        n: cython.uint = request.length_bytes
        pad: cython.uint = (4 - (n & 3)) & 3
        immediate: cython.bint = (_IMMEDIATE >> request.work.opcode) & 1 != 0
        qkey: cython.uint = request.work.remote_qkey
        code: cython.uint = self.writer.opcode_of(request, 0)
        if not self.writer.fits(self.writer.packet_bytes(code, n)):
            if burst.packets == 0:
                self.condition = _WINDOW
            return False
        self.writer.qkey = self.qp.qkey if qkey & _OWN_QKEY else qkey
        self.writer.source_qp = self.qp.number
        o = self.writer.open(
            code, request.work.flags & _SOLICITED != 0, pad, False, self.next_psn, request.work.remote_qpn
        )
        if immediate:
            o = put_immdt(burst.data, o, request.work.imm_or_key)
        if n:
            result = request.payload(0, n, burst.address + o)
            if result:
                self.unreadable(result)
                return False
        self.writer.close(put_pad(burst.data, o + n, pad))
        self.next_psn = (self.next_psn + 1) & 0xFFFFFF
        return True


class DatagramReceiver(ReceiveEngine):
    """The receive side, whose receives are in ``queue``: packets are judged in the order of figure 117
    (C9-171), and the first thing that is wrong is what the drop is counted as.  The PSN is not looked at
    (o9-144)."""

    grh_key: tuple[object, ...] | None

    def __init__(self, qp: QueuePair, queue: ReceiveQueue) -> None:
        self.qp = qp
        self.queue = queue
        self.now = 0
        self.grh = bytearray(GRH_BYTES)
        self.grh_key = None
        self.grh_address = address_of(self.grh)

    def receive(self, view: PacketView, arrival: Arrival, now: int) -> None:
        status: cython.int
        flags: cython.uint = _WITH_IMM if view.has_immdt else 0
        self.now = now
        self.queue.slid = arrival.slid
        self.queue.service_level = arrival.sl
        self.queue.path_bits = arrival.path_bits
        if view.qkey != self.qp.qkey:
            self.qp.drop("drops_qkey", view.psn)
            return
        if not self.queue.posted():
            self.qp.drop("drops_no_receive", view.psn)
            return
        if view.payload_bytes > self.qp.path_mtu_bytes:
            # C9-205: a wrong length takes no receive
            self.qp.drop("drops_length", view.psn)
            return
        status = self.queue.acquire()
        if status == _NO_RECEIVE:
            self.qp.drop("drops_no_receive", view.psn)
            return
        if status == 0:
            status = self.queue.resolve()
        if status == 0:
            if view.payload_bytes + _GRH_BYTES > self.queue.buffers.total_bytes:
                # C9-205: the receive waits for the next datagram
                self.qp.drop("drops_receive_length", view.psn)
                return
            status = self.place(view, arrival)
        if status == -_EAGAIN:
            # the receive waits for the next datagram
            self.qp.drop("drops_held", view.psn)
            return
        if status:
            self.queue.complete(status, _RECV, 0, 0, 0, view.source_qp, False, now)
            self.qp.fail()
            return
        if arrival.source is not None:
            flags |= _GRH
        self.queue.complete(
            0,
            _RECV,
            flags,
            view.payload_bytes + GRH_BYTES,
            view.immediate if view.has_immdt else 0,
            view.source_qp,
            view.solicited,
            now,
        )

    def flush(self) -> None:
        self.queue.flush(self.now)

    def reset(self) -> None:
        self.queue.reset()

    def place(self, view: PacketView, arrival: Arrival) -> int:
        """Deliver GRH and payload; 0, −EAGAIN where the memory is held, or the completion status with which
        the receive must end."""
        result: cython.int = 0
        if arrival.framing == _NATIVE:
            if arrival.grh >= 0:
                result = self.queue.buffers.scatter(0, _GRH_BYTES, arrival.address + arrival.grh)
        else:
            self.fill_grh(arrival, 12 + 8 + (4 if view.has_immdt else 0) + view.payload_bytes + view.pad + 4)
            result = self.queue.buffers.scatter(0, _GRH_BYTES, self.grh_address)
        if result == 0 and view.payload_bytes:
            result = self.queue.buffers.scatter(
                _GRH_BYTES, view.payload_bytes, arrival.payload_address + view.payload
            )
        return result if result == 0 or result == -_EAGAIN else _PROTECTION_ERROR

    def fill_grh(self, arrival: Arrival, transport_bytes: int) -> None:
        """What stands for the GRH of a RoCE packet whose BTH … ICRC is ``transport_bytes`` long.

        What a socket does not report (hop limit, flow label, identification) is left at a usual value.  The
        last header is kept, for datagrams come in rows.
        """
        key = (arrival.framing, arrival.source, arrival.destination, arrival.traffic_class, transport_bytes)
        if key == self.grh_key:
            return
        self.grh_key = key
        if arrival.framing == ROCE_V4:
            header = (
                bytes(20)
                + Ipv4(
                    traffic_class=arrival.traffic_class,
                    total_length_bytes=28 + transport_bytes,
                    identification=0,
                    hop_limit=64,
                    source=arrival.source[12:],
                    destination=arrival.destination[12:],
                )
                .with_checksum()
                .encode()
            )
        else:
            header = Ipv6(
                traffic_class=arrival.traffic_class,
                payload_length_bytes=8 + transport_bytes,
                hop_limit=64,
                source=arrival.source,
                destination=arrival.destination,
            ).encode()
        self.grh[:] = header  # same length: the buffer stays where it is
