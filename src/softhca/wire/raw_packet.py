"""Whole raw datagrams as representations: headers by name, the same bytes out.  For tools and tests.

`wire.packet` is the same for packets with IBA transport.  A damaged packet, and one that no adapter may send,
is a :class:`WireError`; one that is no raw datagram is ``None``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from softhca.wire import vcrc
from softhca.wire.capture_file import LINKTYPE_INFINIBAND
from softhca.wire.errors import WireError
from softhca.wire.grh import NEXT_HEADER_IBA
from softhca.wire.ip import ETHERTYPE_IPV6, Ipv6
from softhca.wire.layout import Header
from softhca.wire.lrh import LNH_IPV6, LNH_LOCAL, LNH_RAW, Lrh
from softhca.wire.raw import LEAST_PACKET_BYTES, RAW_IPV6
from softhca.wire.rwh import Rwh


@dataclass(frozen=True)
class RawPacket:
    """One raw datagram; ``payload`` is what follows LRH and RWH, with its padding; ``vcrc`` None where there
    is none, as in some captures.
    """

    lrh: Lrh
    rwh: Rwh | None
    payload: bytes
    vcrc: int | None = None

    @property
    def service(self) -> int:
        """`RAW_IPV6`, or the RWH's EtherType."""
        return RAW_IPV6 if self.rwh is None else self.rwh.ethertype

    @property
    def ipv6(self) -> Ipv6 | None:
        """The IPv6 header, in either encoding."""
        return Ipv6.decode(self.payload) if self.service in (RAW_IPV6, ETHERTYPE_IPV6) else None

    @property
    def source(self) -> str:
        """Sender's LID (``lid 5``)."""
        return f"lid {self.lrh.slid}"

    @property
    def destination(self) -> str:
        """Receiver's LID."""
        return f"lid {self.lrh.dlid}"

    @property
    def vcrc_ok(self) -> bool | None:
        """Whether the VCRC is right; None where there is none."""
        return None if self.vcrc is None else self.vcrc == vcrc.compute(self._covered())

    def with_vcrc(self) -> RawPacket:
        """The same packet with a right VCRC."""
        return replace(self, vcrc=vcrc.compute(self._covered()))

    def encode(self) -> bytes:
        """The packet as it was, or as the fields say."""
        tail = b"" if self.vcrc is None else self.vcrc.to_bytes(vcrc.LENGTH_BYTES, "little")
        return self._covered() + tail

    def _covered(self) -> bytes:
        return self.lrh.encode() + (b"" if self.rwh is None else self.rwh.encode()) + self.payload

    def headers(self) -> Iterator[tuple[str, Header]]:
        """All headers by lower-case name, outermost first."""
        for header in (self.lrh, self.rwh, self.ipv6):
            if header is not None:
                yield type(header).__name__.lower(), header


def decode_raw(data: bytes, link_type: int = LINKTYPE_INFINIBAND) -> RawPacket | None:
    """Read one captured frame; None when it is no raw datagram.

    WireError for a wrong or too short length, for what says that it is IPv6 and is not, and for IPv6 that
    says that IBA transport follows (C9-208).
    """
    if link_type != LINKTYPE_INFINIBAND:
        return None
    lrh = Lrh.decode(data)
    if lrh.lnh >= LNH_LOCAL:
        return None
    end = 4 * lrh.packet_length_words
    if len(data) - end not in (0, vcrc.LENGTH_BYTES):
        raise WireError(f"LRH says {end} bytes, {len(data)} were captured")
    if end < LEAST_PACKET_BYTES:
        raise WireError(f"a raw packet has {LEAST_PACKET_BYTES} bytes at least, not {end}")
    rwh = Rwh.decode(data, Lrh.LENGTH_BYTES) if lrh.lnh == LNH_RAW else None
    start = Lrh.LENGTH_BYTES + (0 if rwh is None else Rwh.LENGTH_BYTES)
    check = int.from_bytes(data[end:], "little") if len(data) > end else None
    packet = RawPacket(lrh, rwh, data[start:end], check)
    header = packet.ipv6
    if header is not None and header.version != 6:
        raise WireError(f"IPv6 header of version {header.version}")
    if header is not None and header.next_header == NEXT_HEADER_IBA:
        raise WireError("a raw datagram whose IPv6 header says that IBA transport follows (C9-208)")
    return packet


def assemble_raw(slid: int, dlid: int, service: int, payload: bytes, sl: int = 0) -> RawPacket:
    """A packet of a raw service, padded, with a right VCRC; the payload is taken as it is."""
    rwh = None if service == RAW_IPV6 else Rwh(ethertype=service)
    front = Lrh.LENGTH_BYTES + (0 if rwh is None else Rwh.LENGTH_BYTES)
    total = max(LEAST_PACKET_BYTES, front + len(payload) + -len(payload) % 4)
    lnh = LNH_IPV6 if rwh is None else LNH_RAW
    lrh = Lrh(vl=sl, sl=sl, lnh=lnh, dlid=dlid, packet_length_words=total // 4, slid=slid)
    return RawPacket(lrh, rwh, payload.ljust(total - front, b"\0")).with_vcrc()
