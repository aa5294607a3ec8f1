"""Raw datagrams: packets of other protocols than IBA's transport, on native links (IBTA vol. 1, 9.8.4).

A work request names the address handle that leads to the port and the raw service (`wire.raw`): `RAW_IPV6`,
or the EtherType that its RWH says.  Its message is one packet, filled up with zeros to whole words and to the
least packet (o9-145); it may be longer than the MTU, for all that the frame may hold is its own (o9-148).
Nothing is acknowledged, and a packet bears no queue pair: which one receives it, the adapter knows (o9-146).
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import cython

from softhca.machine.primitives import fill
from softhca.queues.layout import WC_LOC_LEN_ERR, WC_LOC_PROT_ERR, WC_LOC_QP_OP_ERR, WC_RECV
from softhca.transport.conditions import WINDOW
from softhca.transport.datagram import DatagramSender
from softhca.transport.engines import ReceiveEngine
from softhca.transport.receiving import NO_RECEIVE
from softhca.wire import lrh, rwh
from softhca.wire.build import put_vcrc
from softhca.wire.raw import LEAST_PACKET_BYTES, RAW_IPV6, check_ipv6, is_ipv6
from softhca.wire.vcrc import LENGTH_BYTES as VCRC_BYTES
from softhca.wire.vcrc import compute as variant_crc

if TYPE_CHECKING:
    from softhca.transport.context import QueuePair
    from softhca.transport.environment import AddressHandle
    from softhca.transport.receiving import ReceiveQueue
    from softhca.transport.request import Request
    from softhca.wire.burst import Arrival, Burst
    from softhca.wire.raw import RawView

_LONGEST_HEADERS = cython.declare(cython.uint, lrh.LONGEST_HEADERS_BYTES)
_LEAST = cython.declare(cython.uint, LEAST_PACKET_BYTES)
_LRH_BYTES = cython.declare(cython.uint, lrh.LENGTH_BYTES)
_RWH_BYTES = cython.declare(cython.uint, rwh.LENGTH_BYTES)
_LNH_RAW = cython.declare(cython.uint, lrh.LNH_RAW)
_LNH_IPV6 = cython.declare(cython.uint, lrh.LNH_IPV6)
_VCRC_BYTES = cython.declare(cython.uint, VCRC_BYTES)
_RAW_IPV6 = cython.declare(cython.uint, RAW_IPV6)
_LENGTH_ERROR = cython.declare(cython.int, WC_LOC_LEN_ERR)
_PROTECTION_ERROR = cython.declare(cython.int, WC_LOC_PROT_ERR)
_OPERATION_ERROR = cython.declare(cython.int, WC_LOC_QP_OP_ERR)
_EAGAIN = cython.declare(cython.int, errno.EAGAIN)
_NO_RECEIVE = cython.declare(cython.int, NO_RECEIVE)
_RECV = cython.declare(cython.uint, WC_RECV)
_WINDOW = cython.declare(cython.int, WINDOW)


def front_bytes(service: int) -> int:
    """LRH, and RWH where the service has one."""
    return _LRH_BYTES if service == _RAW_IPV6 else _LRH_BYTES + _RWH_BYTES


def packet_bytes(service: int, length_bytes: int) -> int:
    """Length of a packet without its VCRC: whole words, and no fewer than a raw packet has (o9-145)."""
    n: cython.ulonglong = front_bytes(service) + (length_bytes + 3) // 4 * 4
    return n if n > _LEAST else _LEAST


class RawSender(DatagramSender):
    """The send side: each work request names its address handle and, as remote queue pair, the service."""

    def judge(self, request: Request, handle: AddressHandle) -> int:
        """0, or the completion status of a work request that cannot be sent: a raw datagram has no GRH."""
        service: cython.uint = request.work.remote_qpn
        if handle is None or handle.pd != self.qp.pd or handle.port_number != self.qp.flow.port_number:
            return _OPERATION_ERROR
        if service > _RAW_IPV6 or handle.route.has_grh:
            return _OPERATION_ERROR
        if packet_bytes(service, request.length_bytes) > self.qp.path_mtu_bytes + _LONGEST_HEADERS:
            return _LENGTH_ERROR
        return 0

    def put(self, request: Request, burst: Burst) -> bool:
        """Write the packet, the only one of its burst; False without room, or when the request failed.

        What says that it is IPv6 must be, and must not say that IBA transport follows (C9-208); it is looked
        at in the burst, where its sender cannot change it any more.
        """
        service: cython.uint = request.work.remote_qpn
        n: cython.uint = request.length_bytes
        size: cython.uint = packet_bytes(service, n)
        o: cython.uint = front_bytes(service)
        result: cython.int
        if burst.packets:
            return False
        # the writer counts LRH and VCRC itself
        if not self.writer.fits(size - _LRH_BYTES):
            self.condition = _WINDOW
            return False
        if n:
            result = request.payload(0, n, burst.address + o)
            if result:
                self.unreadable(result)
                return False
        if is_ipv6(service) and check_ipv6(burst.data, o, n):
            self.fail_head(_OPERATION_ERROR)
            return False
        fill(burst.address + o + n, 0, size - o - n)
        burst.route.put_front(burst.address, size - _LRH_BYTES)
        burst.data[1] = burst.data[1] & 0xF0 | (_LNH_IPV6 if service == _RAW_IPV6 else _LNH_RAW)
        if service != _RAW_IPV6:
            burst.data[8] = burst.data[9] = 0
            burst.data[10] = service >> 8
            burst.data[11] = service & 0xFF
        put_vcrc(burst.data, size, variant_crc(burst.data, 0, size))
        burst.length = burst.stride = size + _VCRC_BYTES
        burst.packets = 1
        return True


class RawReceiver(ReceiveEngine):
    """The receive side: what follows LRH and RWH, padding too; a completion's source queue pair is the
    service.  One that is longer than the receive is dropped, and the receive waits for the next, as one of an
    unreliable datagram does, or where ``ends_short``, as with Ethernet frames, it ends that with a length
    error, and the queue pair's work.
    """

    def __init__(self, qp: QueuePair, queue: ReceiveQueue, ends_short: bool = False) -> None:
        self.qp = qp
        self.queue = queue
        self.ends_short = ends_short
        self.now = 0

    def receive_raw(self, view: RawView, arrival: Arrival, now: int) -> None:
        status: cython.int
        result: cython.int = 0
        n: cython.uint = view.payload_bytes
        self.now = now
        self.queue.slid = arrival.slid
        self.queue.service_level = arrival.sl
        self.queue.path_bits = arrival.path_bits
        status = self.queue.acquire()
        if status == _NO_RECEIVE:
            self.qp.drop("drops_no_receive", -1)
            return
        if status == 0:
            status = self.queue.resolve()
        if status == 0 and n > self.queue.buffers.total_bytes:
            if not self.ends_short:
                self.qp.drop("drops_receive_length", -1)
                return
            status = _LENGTH_ERROR
        if status == 0:
            result = self.queue.buffers.scatter(0, n, arrival.address + view.payload)
            if result == -_EAGAIN:
                self.qp.drop("drops_held", -1)
                return
            if result:
                status = _PROTECTION_ERROR
        if status:
            self.queue.complete(status, _RECV, 0, 0, 0, 0, False, now)
            self.qp.fail()
            return
        self.queue.complete(0, _RECV, 0, n, 0, view.service, False, now)

    def flush(self) -> None:
        self.queue.flush(self.now)

    def reset(self) -> None:
        self.queue.reset()
