"""What crosses between an adapter and a link: a run of equal segments in one preallocated buffer.

For native framing a segment is LRH … VCRC, for RoCE it is a UDP payload BTH … ICRC.  Buffers are made once;
nobody keeps an offset into one beyond the call that handed it over.
"""

from softhca.machine.primitives import address_of

CAPACITY = 65_536


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
    """Outgoing: ``packets`` segments to the destination of ``route``."""

    def __init__(self):
        super().__init__()
        self.packets = 0
        self.route = None

    def reset(self):
        """Empty it, for the next run."""
        self.length = 0
        self.stride = 0
        self.packets = 0
        self.route = None


class Arrival(SegmentBuffer):
    """Incoming, in one ``framing``, with what the link knows of it.

    ``source`` and ``destination`` are GIDs of 16 bytes (None for a native packet without GRH),
    ``source_port`` the UDP port it came from, ``traffic_class`` the ToS or traffic class byte.
    """

    def __init__(self):
        super().__init__()
        self.framing = 0
        self.source = None
        self.source_port = 0
        self.destination = None
        self.traffic_class = 0
