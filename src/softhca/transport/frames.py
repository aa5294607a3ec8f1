"""Raw packet queue pairs of Ethernet ports: whole frames, without any transport of IBA.

A message is one frame: destination, source, EtherType, payload, as the program wrote it.  It leaves in a
VXLAN datagram (RFC 7348) to each adapter that the segment names for its destination (`adapter.segment`).
Nothing is acknowledged; which queue pairs receive a frame, the rules of flow steering say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from softhca.machine.primitives import address_of
from softhca.queues.layout import WC_LOC_LEN_ERR
from softhca.transport.conditions import WINDOW
from softhca.transport.unreliable import UnreliableTransmitter
from softhca.wire.ethernet import HEADER_BYTES as ETHERNET_BYTES
from softhca.wire.ethernet import VLAN_BYTES
from softhca.wire.vxlan import HEADER_BYTES as VXLAN_BYTES
from softhca.wire.vxlan import put_vxlan

if TYPE_CHECKING:
    from softhca.transport.context import QueuePair
    from softhca.transport.pacing import PacketPacing
    from softhca.transport.request import Request
    from softhca.transport.sending import RequestSource
    from softhca.transport.window import DestinationWindow
    from softhca.wire.burst import Burst
    from softhca.wire.route import Route

BEYOND_MTU_BYTES = ETHERNET_BYTES + VLAN_BYTES
"""How much longer than the port's MTU a frame may be: its header, and one tag."""

_BEYOND_MTU = cython.declare(cython.uint, BEYOND_MTU_BYTES)
_ETHERNET_BYTES = cython.declare(cython.uint, ETHERNET_BYTES)
_VXLAN_BYTES = cython.declare(cython.uint, VXLAN_BYTES)
_ADDRESSES_BYTES = cython.declare(cython.uint, 12)
_LENGTH_ERROR = cython.declare(cython.int, WC_LOC_LEN_ERR)
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
        pacing: PacketPacing = self.flow.pacing
        if self.index == 0:
            if pacing is not None and not pacing.admits(request.length_bytes):
                self.flow.environment.schedule(self.flow)
                return False
            if not self.direct(request):
                return False
        count = len(self.destinations)
        if count == 0:
            if pacing is not None:
                pacing.frame(request.length_bytes, self.now)
            return True
        route, window = self.destinations[self.index]
        if burst.packets and burst.route is not route:
            return False
        if burst.packets == 0:
            self.aim(burst, route, window)
        if not self.put(request, burst):
            return False
        if self.index == 0 and pacing is not None:
            pacing.frame(request.length_bytes, self.now)
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
