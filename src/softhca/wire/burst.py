"""What crosses between an adapter and a link: a run of equal segments in one preallocated buffer.

For native framing a segment is LRH … VCRC, for RoCE it is a UDP payload BTH … ICRC.  Buffers are made once;
nobody keeps an offset into one beyond the call that handed it over.
"""

import cython

from softhca.machine.primitives import address_of

CAPACITY = 65_536

HEAD_BYTES = 512
"""More than the headers of any packet, or than a whole management datagram with them."""

_RELIABLE = cython.declare(cython.uint, 1 << 0 | 1 << 2 | 1 << 5)


class SegmentBuffer:
    """``CAPACITY`` bytes as ``data`` (typed memoryview), at ``address``; ``length`` used, ``stride`` a
    segment.

    All segments are ``stride`` bytes long, the last may be shorter.
    """

    def __init__(self):
        self.buffer = bytearray(CAPACITY)
        self.data = memoryview(self.buffer)
        self.address = address_of(self.buffer)
        self.capacity = CAPACITY
        self.length = 0
        self.stride = 0


class Burst(SegmentBuffer):
    """Outgoing: ``packets`` segments to the destination of ``route``, of one queue pair or several.

    ``closed``: its last segment is shorter than the others, so that none may follow.
    ``counted``: their ICRCs were made for the IPv4 identifications 0, 1, 2 …, in their order, as the route
    says (`Route.counted`); else for the route's own.
    ``has_icrc``: they were made; else four zeros stand in their place, and `icrc.seal` makes them.
    """

    def __init__(self):
        super().__init__()
        self.packets = 0
        self.route = None
        self.counted = False
        self.closed = False
        self.has_icrc = True

    def reliable(self):
        """Whether the first of its packets is of a service that sends again what is lost (RC, RD, XRC)."""
        return _RELIABLE >> (self.data[self.route.prefix_bytes] >> 5) & 1 != 0

    def reset(self):
        """Empty it, for the next run."""
        self.length = 0
        self.stride = 0
        self.packets = 0
        self.route = None
        self.counted = False
        self.closed = False
        self.has_icrc = True


class Arrival(SegmentBuffer):
    """Incoming, in one ``framing``, with what the link knows of it.

    ``source`` and ``destination`` are GIDs of 16 bytes, ``source_port`` the UDP port it came from,
    ``traffic_class`` the ToS or traffic class byte.  ``has_icrc``: each is to be checked by its ICRC; false
    where the link, and no packet, has said that there are none.  ``frames``: it came to the port of VXLAN and
    holds Ethernet frames (`wire.vxlan`).  Payloads are copied from
    ``payload_address``, by their offsets in ``data``: ``address``, or where the link has left them, of which
    it has put no more than the first `HEAD_BYTES` of each segment into ``data``.  There the sender may change
    them meanwhile: they are copied once and not looked at.

    Of native packets the link says nothing more: each has these in its own headers, where the adapter reads
    them, one packet at a time, before it hands the packet on: the GIDs (None without a GRH), ``grh``, the
    GRH's offset in the buffer (−1 for none), ``slid``, ``sl`` and ``path_bits``, the low bits of the DLID
    that the port's LMC leaves open.
    """

    def __init__(self):
        super().__init__()
        self.framing = 0
        self.source = None
        self.source_port = 0
        self.destination = None
        self.traffic_class = 0
        self.has_icrc = True
        self.frames = False
        self.payload_address = self.address
        self.grh = -1
        self.slid = 0
        self.sl = 0
        self.path_bits = 0
