"""One direction between two ports: all that a framing needs and that the ICRC covers in front of the BTH."""

import sys

import cython

from softhca.machine.primitives import address_of, copy, crc32
from softhca.wire.framing import NATIVE, ROCE_V4, ROCE_V6, masked
from softhca.wire.grh import LENGTH_BYTES as GRH_BYTES
from softhca.wire.grh import Grh
from softhca.wire.ip import ROCE_PORT, Ipv4, Ipv6, Udp
from softhca.wire.lrh import LENGTH_BYTES as LRH_BYTES
from softhca.wire.lrh import LNH_GLOBAL, LNH_LOCAL, Lrh
from softhca.wire.vcrc import LENGTH_BYTES as VCRC_BYTES

__all__ = ["NATIVE", "ROCE_PORT", "ROCE_V4", "ROCE_V6", "V4_MAPPED_PREFIX", "Route", "gid_of", "is_multicast"]

V4_MAPPED_PREFIX = bytes(10) + b"\xff\xff"



def gid_of(packed):
    """The GID that an IP address of 4 or 16 bytes is."""
    return V4_MAPPED_PREFIX + packed if len(packed) == 4 else packed


def is_multicast(gid):
    """Whether a GID names a group: IPv6's ff00::/8, or 224.0.0.0/4 as an IPv4-mapped GID."""
    return gid[0] == 0xFF or (gid.startswith(V4_MAPPED_PREFIX) and gid[12] & 0xF0 == 0xE0)


_AF_INET = 2  # Linux's numbers; this package opens no socket
_AF_INET6 = 10
_BTH_BYTES = 12


class Route:
    """Framing, addresses and header fields of one direction, and the CRC state that follows from them.

    ``source`` and ``destination`` are GIDs of 16 bytes, IPv4-mapped for ROCE_V4.  All that the ICRC covers is
    fixed when the route is made, except ``identification`` (IPv4's, 0 unless set otherwise; with
    ``counted``, which its link sets, the place of a packet in its burst);
    ``hop_limit`` may be changed at any time, ``flow_label`` of a native route too.  Native: ``slid``,
    ``dlid``, ``sl`` and ``has_grh``, and ``vl``, the virtual lane (the service level's number, unless set
    otherwise). ``scope`` is the interface index of an IPv6 link-local destination. ValueError when a value
    does not fit.

    A segment in a burst has ``prefix_bytes`` in front of its BTH and ``suffix_bytes`` behind its ICRC: LRH,
    GRH and VCRC of native framing; none of RoCE, whose IP and UDP headers are the link's to write.
    ``peer`` names the port at the other end: its GID, or its LID (2 bytes) where no GRH has the GID;
    ``port_number`` the own one, whose link it begins with.

    ``link`` is kept for who sends: the link that carries it, None for the port's own, as it was found in the
    ``link_epoch``-th state of the links.  ``needs_icrc``: what leaves along it is to have ICRCs, unless that
    link does without.
    """

    def __init__(self, framing, source, destination, source_port=0xC000, traffic_class=0, flow_label=0,
                 hop_limit=64, identification=0, slid=0, dlid=0, sl=0, has_grh=False,
                 destination_port=ROCE_PORT, scope=0, port_number=1):
        if framing not in (NATIVE, ROCE_V4, ROCE_V6):
            raise ValueError(f"unknown framing {framing}")
        self.framing = framing
        self.source = bytes(source)
        self.destination = bytes(destination)
        if len(self.source) != 16 or len(self.destination) != 16:
            raise ValueError("a route's source and destination are GIDs of 16 bytes")
        self.source_port = source_port
        self.destination_port = destination_port
        self.traffic_class = traffic_class
        self.flow_label = flow_label
        self.hop_limit = hop_limit
        self.identification = identification
        self.counted = False
        self.link = None
        self.link_epoch = 0
        self.needs_icrc = True
        self.slid = slid
        self.dlid = dlid
        self.sl = sl
        self.has_grh = has_grh
        self.vl = sl
        self.scope = scope
        self.port_number = port_number
        self.socket_address = self._socket_address()
        self.prefix_bytes = self.suffix_bytes = 0
        if framing == NATIVE:
            self.prefix_bytes = LRH_BYTES + GRH_BYTES if has_grh else LRH_BYTES
            self.suffix_bytes = VCRC_BYTES
        self._prepare()
        self.peer = self.destination if framing != NATIVE or has_grh else dlid.to_bytes(2, "big")

    def _socket_address(self):
        """``struct sockaddr`` of the destination, packed; empty for native framing."""
        if self.framing == NATIVE:
            return b""
        port = self.destination_port.to_bytes(2, "big")
        if self.framing == ROCE_V4:
            if self.source[:12] != V4_MAPPED_PREFIX or self.destination[:12] != V4_MAPPED_PREFIX:
                raise ValueError("a RoCEv2/IPv4 route takes IPv4-mapped GIDs")
            return _AF_INET.to_bytes(2, sys.byteorder) + port + self.destination[12:] + bytes(8)
        family = _AF_INET6.to_bytes(2, sys.byteorder)
        label = (self.flow_label & 0xFFFFF).to_bytes(4, "big")
        return family + port + label + self.destination + self.scope.to_bytes(4, sys.byteorder)

    def _prepare(self):
        """Lay out the pseudo-header whose lengths and identification ``seed`` fills in."""
        headers = self.headers(4)
        self._front = bytearray(headers)
        self._front_data = self._front
        self._front_address = address_of(self._front)
        self._pseudo = bytearray(masked(self.framing, headers))
        self._data = self._pseudo
        self._address = address_of(self._pseudo)
        self._pseudo_bytes = len(self._pseudo)
        self._scratch = bytearray(_BTH_BYTES)
        self._scratch_data = self._scratch
        self._scratch_address = address_of(self._scratch)
        self._seed_bytes = -1
        self._seed_identification = 0
        self._seed = 0
        self._former_bytes = -1
        self._former_identification = 0
        self._former = 0

    def headers(self, transport_bytes, vl=0):
        """The real headers in front of a BTH…ICRC of ``transport_bytes``: IP and UDP, or LRH and GRH.

        Checksums: IPv4's is right, UDP's is 0.  ``vl`` is the native virtual lane.  WireError when a field
        overflows.  For tools; the hot path has ``put_front``.
        """
        if self.framing == NATIVE:
            return self._native_headers(transport_bytes, vl)
        udp = Udp(self.source_port, self.destination_port, 8 + transport_bytes)
        if self.framing == ROCE_V4:
            ip4 = Ipv4(
                traffic_class=self.traffic_class, total_length_bytes=28 + transport_bytes,
                identification=self.identification, hop_limit=self.hop_limit,
                source=self.source[12:], destination=self.destination[12:])
            return ip4.with_checksum().encode() + udp.encode()
        ip6 = Ipv6(
            traffic_class=self.traffic_class, flow_label=self.flow_label, hop_limit=self.hop_limit,
            payload_length_bytes=8 + transport_bytes, source=self.source, destination=self.destination)
        return ip6.encode() + udp.encode()

    def _native_headers(self, transport_bytes, vl):
        grh = b""
        if self.has_grh:
            grh = Grh(
                traffic_class=self.traffic_class, flow_label=self.flow_label, hop_limit=self.hop_limit,
                payload_length_bytes=transport_bytes, sgid=self.source, dgid=self.destination).encode()
        lrh = Lrh(
            vl=vl, sl=self.sl, lnh=LNH_GLOBAL if self.has_grh else LNH_LOCAL, dlid=self.dlid,
            packet_length_words=(8 + len(grh) + transport_bytes) // 4, slid=self.slid)
        return lrh.encode() + grh

    def put_front(self, address, transport_bytes):
        """Write LRH and GRH, ``prefix_bytes`` in all, at ``address`` for a BTH…ICRC of ``transport_bytes``.

        Nothing for RoCE. The length is the caller's to check, as with ``seed``.
        """
        words: cython.uint = (self.prefix_bytes + transport_bytes) // 4
        first: cython.uint
        if self.prefix_bytes == 0:
            return
        self._front_data[0] = (self.vl << 4) & 0xF0
        self._front_data[4] = (words >> 8) & 0x07
        self._front_data[5] = words & 0xFF
        if self.has_grh:
            first = 6 << 28 | (self.traffic_class & 0xFF) << 20 | (self.flow_label & 0xFFFFF)
            self._front_data[8] = first >> 24
            self._front_data[9] = (first >> 16) & 0xFF
            self._front_data[10] = (first >> 8) & 0xFF
            self._front_data[11] = first & 0xFF
            self._front_data[12] = (transport_bytes >> 8) & 0xFF
            self._front_data[13] = transport_bytes & 0xFF
            self._front_data[15] = self.hop_limit & 0xFF
        copy(address, self._front_address, self.prefix_bytes)

    def seed(self, transport_bytes):
        """CRC-32 state after the masked pseudo-header of a packet whose BTH…ICRC is ``transport_bytes`` long.

        The last two values are kept: a short message and its acknowledgement take turns.  The length is the
        caller's to check (a multiple of 4 below 2^16 − 48).
        """
        if self._seed_bytes == transport_bytes and self._seed_identification == self.identification:
            return self._seed
        former: cython.uint = self._former
        known: cython.bint = (
            self._former_bytes == transport_bytes and self._former_identification == self.identification
        )
        self._former = self._seed
        self._former_bytes = self._seed_bytes
        self._former_identification = self._seed_identification
        self._seed_bytes = transport_bytes
        self._seed_identification = self.identification
        if known:
            self._seed = former
            return former
        words: cython.uint = (self._pseudo_bytes + transport_bytes) // 4
        if self.framing == ROCE_V4:
            self._put16(10, 28 + transport_bytes)
            self._put16(12, self.identification)
            self._put16(32, 8 + transport_bytes)
        elif self.framing == ROCE_V6:
            self._put16(12, 8 + transport_bytes)
            self._put16(52, 8 + transport_bytes)
        elif self.has_grh:
            self._put16(12, transport_bytes)
        else:
            self._put16(4, words & 0x7FF)
        self._seed = crc32(0, self._address, self._pseudo_bytes)
        return self._seed

    def _put16(self, offset, value):
        self._data[offset] = (value >> 8) & 0xFF
        self._data[offset + 1] = value & 0xFF

    def masked_bth(self, bth_address):
        """Address of a copy of a BTH in which the congestion byte is ones, as the ICRC takes it."""
        copy(self._scratch_address, bth_address, 12)
        self._scratch_data[4] = 0xFF
        return self._scratch_address

    def word(self, address):
        """The little-endian 32-bit word at ``address``, which need not be aligned."""
        copy(self._scratch_address, address, 4)
        high: cython.uint = self._scratch_data[3]
        middle: cython.uint = self._scratch_data[2]
        return self._scratch_data[0] | self._scratch_data[1] << 8 | middle << 16 | high << 24
