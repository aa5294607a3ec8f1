"""Bursts in captures: where a kernel cuts a sender's UDP datagrams late (UDP_SEGMENT) or joins those that
arrive (UDP_GRO), a capture between shows several packets behind one IP and UDP header.

All have the length of the first, but the last may be shorter.  Nothing says that length: it is the one with
which the first packet's ICRC is right.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace

from softhca.wire import icrc
from softhca.wire.bth import Bth
from softhca.wire.capture_file import LINKTYPE_INFINIBAND
from softhca.wire.errors import WireError
from softhca.wire.framing import DUMMY_LRH, ROCE_V4, masked
from softhca.wire.identification import recover
from softhca.wire.ip import Ipv4, Ipv6, Udp
from softhca.wire.opcodes import EXTENSION_HEADERS, OPCODES
from softhca.wire.packet import Envelope, envelope
from softhca.wire.route import V4_MAPPED_PREFIX, Route

LEAST_BYTES = Bth.LENGTH_BYTES + icrc.LENGTH_BYTES
"""The shortest packet."""
MOST_BYTES = LEAST_BYTES + sum(size for _, _, size in EXTENSION_HEADERS) + 4096
"""No packet is longer."""
_IPV4_LENGTH = len(DUMMY_LRH) + 2  # where the lengths stand in what the ICRC covers
_IPV6_LENGTH = len(DUMMY_LRH) + 4
_UDP_LENGTH, _UDP_CHECKSUM = 4, 2  # from the end
_PATH_MTUS = (4096, 2048, 1024, 512, 256)


def cut_burst(data: bytes, link_type: int) -> list[bytes]:
    """The frames that a captured one would have been, packet by packet; itself alone where it is no burst."""
    try:
        found = None if link_type == LINKTYPE_INFINIBAND else envelope(data, link_type)
    except WireError:
        found = None
    if found is None:
        return [data]
    burst = data[found.start : found.end]
    length = _packet_bytes(found, burst)
    if not length:
        return [data]
    link = b"".join(header.encode() for header in found.link)
    packets = (burst[place : place + length] for place in range(0, len(burst), length))
    return [link + _framed(found, number, packet) for number, packet in enumerate(packets)]


def _packet_bytes(found: Envelope, burst: bytes) -> int:
    """How long the packets of ``burst`` are (BTH … ICRC); 0: it is none."""
    data = memoryview(burst)
    first = Bth.LENGTH_BYTES
    bth = burst[:4] + b"\xff" + burst[5:first]
    covered = bytearray(masked(found.framing, _headers(found, LEAST_BYTES, 0)))
    ip_length, counted = (_IPV4_LENGTH, Ipv4.LENGTH_BYTES) if found.framing == ROCE_V4 else (_IPV6_LENGTH, 0)
    for length in _lengths(burst):
        datagram = Udp.LENGTH_BYTES + length
        covered[ip_length : ip_length + 2] = (datagram + counted).to_bytes(2, "big")
        covered[-_UDP_LENGTH:-_UDP_CHECKSUM] = datagram.to_bytes(2, "big")
        end = length - icrc.LENGTH_BYTES
        right = zlib.crc32(data[first:end], zlib.crc32(bth, zlib.crc32(covered)))
        if right == int.from_bytes(data[end:length], "little"):
            return length
    return 0


def _lengths(burst: bytes) -> Iterator[int]:
    """Those that the packets of ``burst`` may have, those of whole path MTUs first."""
    most = min(MOST_BYTES, len(burst) - LEAST_BYTES)
    row = OPCODES.get(burst[0]) if burst else None
    if row is not None:
        yield from (n for mtu in _PATH_MTUS if (n := LEAST_BYTES + row.extension_bytes + mtu) <= most)
    yield from range(LEAST_BYTES, most + 1, 4)


def _headers(found: Envelope, length: int, number: int) -> bytes:
    """IP and UDP headers of a packet of ``length`` bytes, the one of that ``number`` in its burst."""
    ip, udp = found.network
    total = Udp.LENGTH_BYTES + length
    front: Ipv4 | Ipv6
    if isinstance(ip, Ipv4):
        identification = ip.identification + number & 0xFFFF
        total += Ipv4.LENGTH_BYTES
        front = replace(ip, total_length_bytes=total, identification=identification).with_checksum()
    else:
        front = replace(ip, payload_length_bytes=total)
    return front.encode() + replace(udp, length_bytes=Udp.LENGTH_BYTES + length).encode()


def _framed(found: Envelope, number: int, packet: bytes) -> bytes:
    """One packet of the burst with headers of its own.

    The kernel that cuts a burst counts IPv4 identifications up; what one that joins packets has left out is
    found from the ICRC.
    """
    headers = _headers(found, len(packet), number)
    ip = found.network[0]
    if found.framing != ROCE_V4 or not isinstance(ip, Ipv4) or len(packet) < LEAST_BYTES:
        return headers + packet
    end = len(packet) - icrc.LENGTH_BYTES
    right = icrc.of_packet(ROCE_V4, headers, packet[:end])
    difference = right ^ int.from_bytes(packet[end:], "little")
    if difference:
        ends = V4_MAPPED_PREFIX + ip.source, V4_MAPPED_PREFIX + ip.destination
        route = Route(ROCE_V4, *ends, identification=ip.identification + number & 0xFFFF)
        identification = recover(route, difference, len(packet))
        if identification >= 0:
            return _headers(found, len(packet), identification - ip.identification) + packet
    return headers + packet
