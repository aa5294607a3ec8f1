"""Raw packet queue pairs of Ethernet ports: whole frames, without any transport of IBA.

A message is one frame: destination, source, EtherType, payload, as the program wrote it.  It leaves in a
VXLAN datagram (RFC 7348) to each adapter that the segment names for its destination (`adapter.segment`).
Nothing is acknowledged; which queue pairs receive a frame, the rules of flow steering say.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import cython

from softhca.machine.primitives import address_of
from softhca.queues.layout import WC_LOC_LEN_ERR, WC_LOC_PROT_ERR, WC_RECV
from softhca.transport.conditions import WINDOW
from softhca.transport.raw import RawReceiver
from softhca.transport.receiving import NO_RECEIVE
from softhca.transport.unreliable import UnreliableTransmitter
from softhca.wire.ethernet import HEADER_BYTES as ETHERNET_BYTES
from softhca.wire.ethernet import VLAN_BYTES
from softhca.wire.vxlan import HEADER_BYTES as VXLAN_BYTES
from softhca.wire.vxlan import put_vxlan

if TYPE_CHECKING:
    from softhca.transport.context import QueuePair
    from softhca.transport.request import Request
    from softhca.transport.sending import RequestSource
    from softhca.transport.window import DestinationWindow
    from softhca.wire.burst import Arrival, Burst
    from softhca.wire.raw import RawView
    from softhca.wire.route import Route

BEYOND_MTU_BYTES = ETHERNET_BYTES + VLAN_BYTES
"""How much longer than the port's MTU a frame may be: its header, and one tag."""

_BEYOND_MTU = cython.declare(cython.uint, BEYOND_MTU_BYTES)
_ETHERNET_BYTES = cython.declare(cython.uint, ETHERNET_BYTES)
_VXLAN_BYTES = cython.declare(cython.uint, VXLAN_BYTES)
_ADDRESSES_BYTES = cython.declare(cython.uint, 12)
_LENGTH_ERROR = cython.declare(cython.int, WC_LOC_LEN_ERR)
_PROTECTION_ERROR = cython.declare(cython.int, WC_LOC_PROT_ERR)
_EAGAIN = cython.declare(cython.int, errno.EAGAIN)
_NO_RECEIVE = cython.declare(cython.int, NO_RECEIVE)
_RECV = cython.declare(cython.uint, WC_RECV)
_WINDOW = cython.declare(cython.int, WINDOW)


class FrameSender(UnreliableTransmitter):
    """The send side.  ``index`` is how many of the present frame's ``destinations`` have been served; each
    is a route with its window.
    """

    def __init__(self, qp: QueuePair, source: RequestSource) -> None:
        UnreliableTransmitter.__init__(self, qp, source)
        self.destinations: tuple[tuple[Route, DestinationWindow], ...] = ()
        self.vni = 0
        self.addresses = bytearray(_ADDRESSES_BYTES)
        self.addresses_address = address_of(self.addresses)

    def write(self, request: Request, burst: Burst) -> bool:
        """Write the frame for its next destination; True when that was the last one.  A burst goes to one.
        """
        count: cython.uint
        if self.index == 0 and not self.direct(request):
            return False
        count = len(self.destinations)
        if count == 0:
            return True
        route, window = self.destinations[self.index]
        if burst.packets and burst.route is not route:
            return False
        if burst.packets == 0:
            self.aim(burst, route, window)
        if not self.put(request, burst):
            return False
        self.index += 1
        return self.index == count

    def direct(self, request: Request) -> bool:
        """Find where the frame goes; False where it cannot be sent, or its bytes are not there now."""
        n: cython.ulonglong = request.length_bytes
        result: cython.int
        if n < _ETHERNET_BYTES or n > self.qp.path_mtu_bytes + _BEYOND_MTU:
            self.fail_head(_LENGTH_ERROR)
            return False
        result = request.payload(0, _ADDRESSES_BYTES, self.addresses_address)
        if result:
            self.unreadable(result)
            return False
        macs = bytes(self.addresses)
        self.vni, self.destinations = self.flow.environment.frame_destinations(
            self.flow.port_number, macs[:6], macs[6:]
        )
        return True

    def put(self, request: Request, burst: Burst) -> bool:
        """Append the frame to the burst; False when it does not fit, or when the work request has failed."""
        n: cython.uint = request.length_bytes
        size: cython.uint = n + _VXLAN_BYTES
        result: cython.int
        if not self.writer.fits(size):
            if burst.packets == 0:
                self.condition = _WINDOW
            return False
        result = request.payload(0, n, burst.address + burst.length + _VXLAN_BYTES)
        if result:
            self.unreadable(result)
            return False
        put_vxlan(burst.data, burst.length, self.vni)
        if burst.packets == 0:
            burst.stride = size
        elif size < burst.stride:
            burst.closed = True
        burst.has_icrc = True  # there is none to be made
        burst.packets += 1
        burst.length += size
        return True


class FrameReceiver(RawReceiver):
    """The receive side: the whole frame, from the start of the receive's buffers on."""

    def receive_raw(self, view: RawView, arrival: Arrival, now: int) -> None:
        """Take a frame.  Without a receive it is dropped; one that is longer than the receive ends that with
        a length error, and the queue pair's work."""
        status: cython.int
        result: cython.int = 0
        n: cython.uint = view.payload_bytes
        self.now = now
        self.queue.slid = self.queue.service_level = self.queue.path_bits = 0
        status = self.queue.acquire()
        if status == _NO_RECEIVE:
            self.qp.drop("drops_no_receive", -1)
            return
        if status == 0:
            status = self.queue.resolve()
        if status == 0 and n > self.queue.buffers.total_bytes:
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
        self.queue.complete(0, _RECV, 0, n, 0, 0, False, now)
