"""Whole packets as representations: any framing in, headers by name, the same bytes out.  For tools and
tests.

A damaged or reserved packet is a :class:`WireError`; one that is no RDMA packet at all is ``None``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from softhca.wire import icrc, vcrc
from softhca.wire.aeth import Aeth
from softhca.wire.atomicacketh import AtomicAckEth
from softhca.wire.atomiceth import AtomicEth
from softhca.wire.bth import Bth
from softhca.wire.capture_file import (
    LINKTYPE_ETHERNET,
    LINKTYPE_INFINIBAND,
    LINKTYPE_IPV4,
    LINKTYPE_IPV6,
    LINKTYPE_LINUX_SLL,
    LINKTYPE_LINUX_SLL2,
    LINKTYPE_RAW,
)
from softhca.wire.deth import Deth
from softhca.wire.errors import WireError
from softhca.wire.feth import Feth
from softhca.wire.framing import NATIVE, ROCE_V4, ROCE_V6
from softhca.wire.grh import NEXT_HEADER_IBA, Grh
from softhca.wire.ieth import Ieth
from softhca.wire.immdt import ImmDt
from softhca.wire.ip import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_SERVICE_VLAN,
    ETHERTYPE_VLAN,
    FRAGMENT_OFFSET_MASK,
    IPV6_AUTHENTICATION,
    IPV6_EXTENSIONS,
    IPV6_FRAGMENT,
    MORE_FRAGMENTS,
    PROTOCOL_UDP,
    ROCE_PORT,
    Ethernet,
    Ipv4,
    Ipv6,
    LinuxCooked,
    LinuxCooked2,
    Udp,
    Vlan,
)
from softhca.wire.layout import Header
from softhca.wire.lrh import LNH_GLOBAL, LNH_LOCAL, Lrh
from softhca.wire.opcodes import OPCODES, Opcode
from softhca.wire.rdeth import Rdeth
from softhca.wire.reth import Reth
from softhca.wire.route import Route
from softhca.wire.xrceth import Xrceth

EXTENSIONS: dict[str, type[Header]] = {
    "rdeth": Rdeth,
    "deth": Deth,
    "xrceth": Xrceth,
    "feth": Feth,
    "reth": Reth,
    "atomiceth": AtomicEth,
    "aeth": Aeth,
    "atomicacketh": AtomicAckEth,
    "immdt": ImmDt,
    "ieth": Ieth,
}

MAX_VLAN_TAGS = 4

_LINKS: dict[int, type[Ethernet | LinuxCooked | LinuxCooked2]] = {
    LINKTYPE_ETHERNET: Ethernet,
    LINKTYPE_LINUX_SLL: LinuxCooked,
    LINKTYPE_LINUX_SLL2: LinuxCooked2,
}


@dataclass(frozen=True)
class Transport:
    """BTH … ICRC, in every framing.  ``padding`` are the pad bytes as they were, ``icrc`` as it came."""

    bth: Bth
    extensions: tuple[Header, ...] = ()
    payload: bytes = b""
    padding: bytes = b""
    icrc: int = 0

    @property
    def opcode(self) -> Opcode:
        """The opcode's row of the table."""
        return OPCODES[self.bth.opcode]

    def covered(self) -> bytes:
        """BTH … pad."""
        headers = (self.bth, *self.extensions)
        return b"".join(header.encode() for header in headers) + self.payload + self.padding

    def encode(self) -> bytes:
        """BTH … ICRC."""
        return self.covered() + self.icrc.to_bytes(icrc.LENGTH_BYTES, "little")


@dataclass(frozen=True)
class Packet:
    """One RDMA packet.

    ``link`` are headers of the capture's link type, ``network`` IP and UDP or LRH and GRH, ``vcrc`` None
    where there is none, ``trailer`` what the link put behind the packet (Ethernet fills short frames).
    """

    framing: int
    link: tuple[Header, ...]
    network: tuple[Header, ...]
    transport: Transport
    vcrc: int | None = None
    trailer: bytes = b""

    def encode(self) -> bytes:
        """The frame as it was, or as the fields say."""
        return b"".join(header.encode() for header in self.link) + self._without_link() + self.trailer

    def _without_link(self) -> bytes:
        tail = b"" if self.vcrc is None else self.vcrc.to_bytes(vcrc.LENGTH_BYTES, "little")
        return self._network_bytes() + self.transport.encode() + tail

    def _network_bytes(self) -> bytes:
        return b"".join(header.encode() for header in self.network)

    @cached_property
    def right_icrc(self) -> int:
        """The ICRC that the packet should have."""
        return icrc.of_packet(self.framing, self._network_bytes(), self.transport.covered())

    @property
    def icrc_ok(self) -> bool:
        """Whether the packet's ICRC is right."""
        return self.transport.icrc == self.right_icrc

    @property
    def vcrc_ok(self) -> bool | None:
        """Whether the packet's VCRC is right; None where it has none."""
        if self.vcrc is None:
            return None
        return self.vcrc == vcrc.compute(self._without_link()[: -vcrc.LENGTH_BYTES])

    def with_crcs(self) -> Packet:
        """The same packet with right ICRC and, where it has one, right VCRC."""
        sealed = replace(self, transport=replace(self.transport, icrc=self.right_icrc))
        if self.vcrc is None:
            return sealed
        return replace(sealed, vcrc=vcrc.compute(sealed._without_link()[: -vcrc.LENGTH_BYTES]))

    def headers(self) -> Iterator[tuple[str, Header]]:
        """All headers by lower-case name, outermost first."""
        for header in (*self.link, *self.network, self.transport.bth, *self.transport.extensions):
            yield type(header).__name__.lower(), header

    @property
    def source(self) -> str:
        """Sender's IP address or GID, or its LID (``lid 5``)."""
        return self._address("source")

    @property
    def destination(self) -> str:
        """Receiver's IP address or GID, or its LID."""
        return self._address("destination")

    def _address(self, side: str) -> str:
        first = self.network[0]
        if self.framing != NATIVE:
            return str(ipaddress.ip_address(getattr(first, side)))
        if len(self.network) > 1:
            return str(ipaddress.ip_address(getattr(self.network[1], "sgid" if side == "source" else "dgid")))
        return f"lid {getattr(first, 'slid' if side == 'source' else 'dlid')}"


def decode_transport(data: bytes) -> Transport:
    """Read BTH … ICRC; WireError for what :class:`softhca.wire.packet_view.PacketView` would drop."""
    if len(data) % 4:
        raise WireError(f"a transport packet is whole words, not {len(data)} bytes")
    bth = Bth.decode(data)
    row = OPCODES.get(bth.opcode)
    if row is None:
        raise WireError(f"reserved opcode 0x{bth.opcode:02x}")
    if bth.tver:
        raise WireError(f"transport header version {bth.tver}")
    offset = Bth.LENGTH_BYTES
    extensions = []
    for name in row.headers:
        header = EXTENSIONS[name].decode(data, offset)
        extensions.append(header)
        offset += header.LENGTH_BYTES
    end = len(data) - icrc.LENGTH_BYTES
    if offset > end:
        raise WireError(f"{row.name} is cut short: no ICRC")
    if bth.pad > end - offset:
        raise WireError(f"pad count {bth.pad} is larger than the payload of {end - offset} bytes")
    if end > offset and not row.payload:
        raise WireError(f"{row.name} carries {end - offset} bytes where no payload may be")
    return Transport(
        bth,
        tuple(extensions),
        data[offset : end - bth.pad],
        data[end - bth.pad : end],
        int.from_bytes(data[end:], "little"),
    )


class Envelope(NamedTuple):
    """What stands around a RoCEv2 packet in a captured frame: BTH … ICRC are ``start`` to ``end``."""

    framing: int
    link: tuple[Header, ...]
    network: tuple[Ipv4 | Ipv6, Udp]
    start: int
    end: int


def decode(data: bytes, link_type: int) -> Packet | None:
    """Read one captured frame of a capture file's ``link_type``; None when it is no RDMA packet.

    WireError when it is one but damaged, or when the link type is unknown.
    """
    if link_type == LINKTYPE_INFINIBAND:
        return _decode_native(data)
    found = envelope(data, link_type)
    if found is None:
        return None
    framing, link, network, start, end = found
    return Packet(framing, link, network, decode_transport(data[start:end]), None, data[end:])


def envelope(data: bytes, link_type: int) -> Envelope | None:
    """What is around the RoCEv2 packet of a frame; None and WireError as `decode` has them."""
    link, ethertype = _decode_link(data, link_type)
    offset = sum(header.LENGTH_BYTES for header in link)
    if ethertype == ETHERTYPE_IPV4:
        return _open_ipv4(link, data, offset)
    if ethertype == ETHERTYPE_IPV6:
        return _open_ipv6(link, data, offset)
    return None


def _decode_link(data: bytes, link_type: int) -> tuple[tuple[Header, ...], int]:
    """The link's headers and the Ethernet type behind them."""
    if link_type in (LINKTYPE_RAW, LINKTYPE_IPV4, LINKTYPE_IPV6):
        version = data[0] >> 4 if data else 0
        return (), {4: ETHERTYPE_IPV4, 6: ETHERTYPE_IPV6}.get(version, 0)
    kind = _LINKS.get(link_type)
    if kind is None:
        raise WireError(f"unknown link type {link_type}")
    first = kind.decode(data)
    link: list[Header] = [first]
    ethertype = first.ethertype
    while ethertype in (ETHERTYPE_VLAN, ETHERTYPE_SERVICE_VLAN) and len(link) <= MAX_VLAN_TAGS:
        tag = Vlan.decode(data, kind.LENGTH_BYTES + (len(link) - 1) * Vlan.LENGTH_BYTES)
        link.append(tag)
        ethertype = tag.ethertype
    return tuple(link), ethertype


def _open_ipv4(link: tuple[Header, ...], data: bytes, offset: int) -> Envelope | None:
    ip = Ipv4.decode(data, offset)
    if ip.version != 4 or ip.header_words < 5:
        raise WireError(f"IPv4 header of version {ip.version} and {ip.header_words} words")
    if ip.protocol != PROTOCOL_UDP or ip.fragment & FRAGMENT_OFFSET_MASK:
        return None
    udp = Udp.decode(data, offset + 4 * ip.header_words)
    if udp.destination_port != ROCE_PORT:
        return None
    if ip.header_words != 5:
        raise WireError("a RoCEv2 packet has no IPv4 options")
    if ip.fragment & MORE_FRAGMENTS:
        raise WireError("a RoCEv2 packet in IPv4 fragments")
    return _open_udp(ROCE_V4, link, (ip, udp), data, offset, ip.total_length_bytes)


def _open_ipv6(link: tuple[Header, ...], data: bytes, offset: int) -> Envelope | None:
    ip = Ipv6.decode(data, offset)
    if ip.version != 6:
        raise WireError(f"IPv6 header of version {ip.version}")
    start = _behind_extensions(ip.next_header, data, offset + Ipv6.LENGTH_BYTES)
    if start is None:
        return None
    udp = Udp.decode(data, start)
    if udp.destination_port != ROCE_PORT:
        return None
    if start != offset + Ipv6.LENGTH_BYTES:
        raise WireError("a RoCEv2 packet has no IPv6 extension headers")
    return _open_udp(ROCE_V6, link, (ip, udp), data, offset, Ipv6.LENGTH_BYTES + ip.payload_length_bytes)


def _behind_extensions(kind: int, data: bytes, start: int) -> int | None:
    """Where UDP begins behind IPv6 extension headers, of which the first is of ``kind``; None: it is none,
    it is in a later fragment, or what comes before it is cut short."""
    while kind != PROTOCOL_UDP:
        if len(data) < start + 8:
            return None
        if kind in IPV6_EXTENSIONS:
            length = 8 + 8 * data[start + 1]
        elif kind == IPV6_AUTHENTICATION:
            length = 8 + 4 * data[start + 1]
        elif kind == IPV6_FRAGMENT and not int.from_bytes(data[start + 2 : start + 4], "big") >> 3:
            length = 8
        else:
            return None
        kind = data[start]
        start += length
    return start


def _open_udp(
    framing: int,
    link: tuple[Header, ...],
    network: tuple[Ipv4 | Ipv6, Udp],
    data: bytes,
    offset: int,
    total: int,
) -> Envelope:
    """The same behind IP and UDP; ``total`` is the IP packet's length by its own header."""
    start = offset + sum(header.LENGTH_BYTES for header in network)
    end = offset + total
    if end > len(data):
        raise WireError(f"the IP packet is {total} bytes, {len(data) - offset} were captured")
    if network[1].length_bytes != end - start + Udp.LENGTH_BYTES:
        raise WireError(f"UDP length {network[1].length_bytes} in an IP packet of {total} bytes")
    return Envelope(framing, link, network, start, end)


def _decode_native(data: bytes) -> Packet | None:
    lrh = Lrh.decode(data)
    if lrh.lnh not in (LNH_LOCAL, LNH_GLOBAL):
        return None
    end = 4 * lrh.packet_length_words
    tail = len(data) - end
    if tail not in (0, vcrc.LENGTH_BYTES):
        raise WireError(f"LRH says {end} bytes, {len(data)} were captured")
    network: tuple[Header, ...] = (lrh,)
    start = Lrh.LENGTH_BYTES
    if lrh.lnh == LNH_GLOBAL:
        grh = Grh.decode(data, start)
        start += Grh.LENGTH_BYTES
        if grh.version != 6 or grh.next_header != NEXT_HEADER_IBA:
            raise WireError(f"GRH of version {grh.version} with next header 0x{grh.next_header:02x}")
        if grh.payload_length_bytes != end - start:
            raise WireError(f"GRH says {grh.payload_length_bytes} bytes behind it, there are {end - start}")
        network = (lrh, grh)
    check = int.from_bytes(data[end:], "little") if tail else None
    return Packet(NATIVE, (), network, decode_transport(data[start:end]), check)


def assemble(
    route: Route, bth: Bth, extensions: tuple[Header, ...] = (), payload: bytes = b"", vl: int = 0
) -> Packet:
    """A sound packet on ``route``: pad and lengths follow from the payload, the CRCs are right.

    ``bth.pad`` is replaced.  ``vl`` is the virtual lane of a native packet.  There are no link headers.
    """
    pad = -len(payload) % 4
    transport = Transport(replace(bth, pad=pad), extensions, payload, bytes(pad))
    headers = route.headers(len(transport.encode()), vl)
    network = tuple(_network_headers(route.framing, headers))
    return Packet(route.framing, (), network, transport, 0 if route.framing == NATIVE else None).with_crcs()


def _network_headers(framing: int, headers: bytes) -> Iterator[Header]:
    if framing == NATIVE:
        yield Lrh.decode(headers)
        if len(headers) > Lrh.LENGTH_BYTES:
            yield Grh.decode(headers, Lrh.LENGTH_BYTES)
        return
    ip = Ipv4.decode(headers) if framing == ROCE_V4 else Ipv6.decode(headers)
    yield ip
    yield Udp.decode(headers, ip.LENGTH_BYTES)


def captured(route: Route, segment: bytes) -> bytes:
    """A segment that crossed a link, as a capture file of raw IP or InfiniBand shows it."""
    return segment if route.framing == NATIVE else route.headers(len(segment)) + segment
