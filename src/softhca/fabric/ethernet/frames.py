"""What crosses between an adapter and an Ethernet: a run of RoCEv2 packets with one set of headers.

A run is IP and UDP headers (RFC 791, 8200, 768; IBTA vol. 1, annex A17), as its first packet has them, and
then the UDP payloads BTH … ICRC of its packets, all of one length but the last, which may be shorter.
"""

from __future__ import annotations

from typing import NamedTuple

from softhca.wire.ip import (
    DONT_FRAGMENT,
    ECN_MASK,
    MARKED,
    PROTOCOL_UDP,
    ROCE_PORT,
    Ipv4,
    Ipv6,
    Udp,
    internet_checksum,
)
from softhca.wire.route import V4_MAPPED_PREFIX

IPV4_BYTES = Ipv4.LENGTH_BYTES + Udp.LENGTH_BYTES
IPV6_BYTES = Ipv6.LENGTH_BYTES + Udp.LENGTH_BYTES
ETHERNET_BYTES = 18
"""Header and FCS of a frame."""
LEAST_PAYLOAD_BYTES = 16
MOST_PAYLOAD_BYTES = 4096 + 64
"""BTH, the longest headers behind it, a path MTU's data, ICRC."""
PRIORITY_SHIFT = 5
"""Of the traffic class: the upper three bits of its DSCP are the priority."""


class Run(NamedTuple):
    """``headers`` of the first packet, and the packets' ``payloads``."""

    headers: bytes
    payloads: list[bytes]

    @property
    def is_ipv6(self) -> bool:
        """Whether its packets are IPv6's."""
        return self.headers[0] >> 4 == 6

    @property
    def source(self) -> bytes:
        """The GID of its sender."""
        return self.headers[8:24] if self.is_ipv6 else V4_MAPPED_PREFIX + self.headers[12:16]

    @property
    def destination(self) -> bytes:
        """The GID that it goes to."""
        return self.headers[24:40] if self.is_ipv6 else V4_MAPPED_PREFIX + self.headers[16:20]

    @property
    def source_port(self) -> int:
        """UDP's."""
        return int.from_bytes(self.headers[-8:-6], "big")


def read_run(data: memoryview, stride: int) -> Run | None:
    """The run that an adapter has sent; None: it is none."""
    header_bytes = IPV6_BYTES if data and data[0] >> 4 == 6 else IPV4_BYTES
    payload_bytes = len(data) - header_bytes
    first = min(stride, payload_bytes)
    if first < LEAST_PAYLOAD_BYTES or first > MOST_PAYLOAD_BYTES or first % 4:
        return None
    last = payload_bytes % stride
    if last and (last < LEAST_PAYLOAD_BYTES or last % 4):
        return None
    headers = bytes(data[:header_bytes])
    udp = Udp.decode(headers[-Udp.LENGTH_BYTES :])
    if udp.destination_port != ROCE_PORT or udp.length_bytes != Udp.LENGTH_BYTES + first:
        return None
    if not (_is_ipv6(headers, first) if header_bytes == IPV6_BYTES else _is_ipv4(headers, first)):
        return None
    payloads = data[header_bytes:]
    return Run(headers, [bytes(payloads[at : at + stride]) for at in range(0, payload_bytes, stride)])


def _is_ipv4(headers: bytes, payload_bytes: int) -> bool:
    ip = Ipv4.decode(headers[: Ipv4.LENGTH_BYTES])
    return (
        (ip.version, ip.header_words, ip.protocol, ip.fragment) == (4, 5, PROTOCOL_UDP, DONT_FRAGMENT)
        and ip.total_length_bytes == IPV4_BYTES + payload_bytes
        and internet_checksum(headers[: Ipv4.LENGTH_BYTES]) == 0
    )


def _is_ipv6(headers: bytes, payload_bytes: int) -> bool:
    ip = Ipv6.decode(headers[: Ipv6.LENGTH_BYTES])
    return ip.next_header == PROTOCOL_UDP and ip.payload_length_bytes == Udp.LENGTH_BYTES + payload_bytes


def traffic_class_of(headers: bytes) -> int:
    """The traffic class, or type of service, of a packet."""
    if headers[0] >> 4 == 6:
        return (headers[0] & 0xF) << 4 | headers[1] >> 4
    return headers[1]


def with_facts(headers: bytes, payload_bytes: int, marked: bool) -> bytes:
    """The headers of a packet of such a length, marked CE if it is: lengths and IPv4's checksum are right."""
    made = bytearray(headers)
    udp = Udp.LENGTH_BYTES + payload_bytes
    made[-4:-2] = udp.to_bytes(2, "big")
    ecn = MARKED if marked else traffic_class_of(headers) & ECN_MASK
    if made[0] >> 4 == 6:
        made[1] = made[1] & ~(ECN_MASK << 4) & 0xFF | ecn << 4
        made[4:6] = udp.to_bytes(2, "big")
        return bytes(made)
    made[1] = made[1] & ~ECN_MASK & 0xFF | ecn
    made[2:4] = (Ipv4.LENGTH_BYTES + udp).to_bytes(2, "big")
    made[10:12] = bytes(2)
    made[10:12] = internet_checksum(made[: Ipv4.LENGTH_BYTES]).to_bytes(2, "big")
    return bytes(made)
