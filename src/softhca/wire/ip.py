"""Ethernet, IPv4, IPv6 and UDP headers, RoCEv2's envelope (IBTA vol. 1, annex A17; RFC 791, 8200, 768)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from softhca.wire.layout import Field, Header, Octets

ETHERTYPE_IPV4 = 0x0800
ETHERTYPE_VLAN = 0x8100
ETHERTYPE_IPV6 = 0x86DD
ETHERTYPE_SERVICE_VLAN = 0x88A8
"""A provider's tag, outside of that of a VLAN (IEEE 802.1ad)."""
PROTOCOL_UDP = 17
IPV6_EXTENSIONS = (0, 43, 60)
"""Hop-by-hop options, routing, destination options: each says how long it is (RFC 8200, 4)."""
IPV6_FRAGMENT = 44
IPV6_AUTHENTICATION = 51
ROCE_PORT = 4791
DONT_FRAGMENT = 0x4000
MORE_FRAGMENTS = 0x2000
FRAGMENT_OFFSET_MASK = 0x1FFF

# ECN, the low two bits of the traffic class (RFC 3168)
ECN_MASK = 3
ECT0 = 2
"""Its sender reacts to marks."""
MARKED = 3
"""CE: it has met congestion."""


def internet_checksum(data: Octets) -> int:
    """RFC 1071: one's complement of the one's-complement sum of big-endian 16-bit words."""
    number = int.from_bytes(bytes(data) + bytes(len(data) % 2), "big")
    # 2^16 is 1 modulo 2^16 − 1, so the remainder is the sum of the words with all carries added
    total = number % 0xFFFF or (0xFFFF if number else 0)
    return total ^ 0xFFFF


@dataclass(frozen=True, slots=True)
class Ethernet(Header):
    """Ethernet II header; a VLAN tag is a :class:`Vlan` behind it."""

    LENGTH_BYTES: ClassVar[int] = 14
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("destination", 48, as_bytes=True),
        Field("source", 48, as_bytes=True),
        Field("ethertype", 16),
    )

    destination: bytes = bytes(6)
    source: bytes = bytes(6)
    ethertype: int = ETHERTYPE_IPV4


@dataclass(frozen=True, slots=True)
class Vlan(Header):
    """IEEE 802.1Q tag: tag control information and the type of what follows."""

    LENGTH_BYTES: ClassVar[int] = 4
    LAYOUT: ClassVar[tuple[Field, ...]] = (Field("tci", 16), Field("ethertype", 16))

    tci: int = 0
    ethertype: int = ETHERTYPE_IPV4


@dataclass(frozen=True, slots=True)
class LinuxCooked(Header):
    """Linux cooked capture, what ``tcpdump -i any`` puts in Ethernet's place (LINKTYPE_LINUX_SLL)."""

    LENGTH_BYTES: ClassVar[int] = 16
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("packet_type", 16),
        Field("hardware_type", 16),
        Field("address_length_bytes", 16),
        Field("address", 64, as_bytes=True),
        Field("ethertype", 16),
    )

    packet_type: int = 0
    hardware_type: int = 0
    address_length_bytes: int = 0
    address: bytes = bytes(8)
    ethertype: int = ETHERTYPE_IPV4


@dataclass(frozen=True, slots=True)
class LinuxCooked2(Header):
    """The second version of it (LINKTYPE_LINUX_SLL2)."""

    LENGTH_BYTES: ClassVar[int] = 20
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("ethertype", 16),
        Field("reserved16", 16),
        Field("interface_index", 32),
        Field("hardware_type", 16),
        Field("packet_type", 8),
        Field("address_length_bytes", 8),
        Field("address", 64, as_bytes=True),
    )

    ethertype: int = ETHERTYPE_IPV4
    reserved16: int = 0
    interface_index: int = 0
    hardware_type: int = 0
    packet_type: int = 0
    address_length_bytes: int = 0
    address: bytes = bytes(8)


@dataclass(frozen=True, slots=True)
class Ipv4(Header):
    """IPv4 header without options; ``fragment`` holds the three flags and the 13-bit offset."""

    LENGTH_BYTES: ClassVar[int] = 20
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("version", 4),
        Field("header_words", 4),
        Field("traffic_class", 8),
        Field("total_length_bytes", 16),
        Field("identification", 16),
        Field("fragment", 16),
        Field("hop_limit", 8),
        Field("protocol", 8),
        Field("checksum", 16),
        Field("source", 32, as_bytes=True),
        Field("destination", 32, as_bytes=True),
    )

    version: int = 4
    header_words: int = 5
    traffic_class: int = 0
    total_length_bytes: int = 20
    identification: int = 0
    fragment: int = DONT_FRAGMENT
    hop_limit: int = 64
    protocol: int = PROTOCOL_UDP
    checksum: int = 0
    source: bytes = bytes(4)
    destination: bytes = bytes(4)

    def with_checksum(self) -> Ipv4:
        """The same header with its right header checksum."""
        blank = replace(self, checksum=0)
        return replace(blank, checksum=internet_checksum(blank.encode()))


@dataclass(frozen=True, slots=True)
class Ipv6(Header):
    """IPv6 header; a UDP header follows at once (``next_header`` 17) in RoCEv2."""

    LENGTH_BYTES: ClassVar[int] = 40
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("version", 4),
        Field("traffic_class", 8),
        Field("flow_label", 20),
        Field("payload_length_bytes", 16),
        Field("next_header", 8),
        Field("hop_limit", 8),
        Field("source", 128, as_bytes=True),
        Field("destination", 128, as_bytes=True),
    )

    version: int = 6
    traffic_class: int = 0
    flow_label: int = 0
    payload_length_bytes: int = 0
    next_header: int = PROTOCOL_UDP
    hop_limit: int = 64
    source: bytes = bytes(16)
    destination: bytes = bytes(16)


@dataclass(frozen=True, slots=True)
class Udp(Header):
    """UDP header; RoCEv2 sends ``checksum`` 0 and the ICRC does its work."""

    LENGTH_BYTES: ClassVar[int] = 8
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("source_port", 16),
        Field("destination_port", 16),
        Field("length_bytes", 16),
        Field("checksum", 16),
    )

    source_port: int = 0
    destination_port: int = ROCE_PORT
    length_bytes: int = 8
    checksum: int = 0
