"""What links of a world carry: whole IP packets, and what a host's IP layer makes of damaged ones.

An adapter hands over and takes UDP payloads, as a socket would.  Faults act on the packet with its IP and
UDP headers, so that a flipped bit may lie in an address, a port or a length; then this module decides, as a
kernel does, whether anything and what reaches the adapter.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from softhca.wire.errors import WireError
from softhca.wire.framing import ROCE_V4
from softhca.wire.ip import PROTOCOL_UDP, ROCE_PORT, Ipv4, Ipv6, Udp, internet_checksum
from softhca.wire.route import V4_MAPPED_PREFIX, Route

IPV4_BYTES = 28
IPV6_BYTES = 48
"""IP and UDP header together."""


class Datagram(NamedTuple):
    """What a host's IP layer gives to a socket: addresses as GIDs, and the UDP payload."""

    source: bytes
    destination: bytes
    source_port: int
    traffic_class: int
    payload: bytes


class Envelopes:
    """IP and UDP headers by flow and length; they are few in a world."""

    def __init__(self, framing: int) -> None:
        self.framing = framing
        self._known: dict[tuple[Any, ...], bytes] = {}

    def of(self, source: bytes, destination: bytes, port: int, traffic_class: int, length: int) -> bytes:
        """The headers in front of ``length`` bytes BTH … ICRC."""
        key = (source, destination, port, traffic_class, length)
        headers = self._known.get(key)
        if headers is None:
            route = Route(self.framing, source, destination, port, traffic_class)
            headers = self._known[key] = route.headers(length)
        return headers


def header_bytes(framing: int) -> int:
    """Length of IP and UDP header together."""
    return IPV4_BYTES if framing == ROCE_V4 else IPV6_BYTES


def unwrap(framing: int, packet: bytes) -> Datagram | str:
    """What a socket is given of an IP packet that may be damaged; a word why not, otherwise.

    A packet that ends early is given as far as it goes, as if who cut it had mended the lengths: the adapter
    shall see it too.
    """
    room = header_bytes(framing)
    if len(packet) < room:
        return "no header"
    try:
        datagram = _ipv4(packet) if framing == ROCE_V4 else _ipv6(packet)
    except WireError:
        return "no header"
    return datagram


def _ipv4(packet: bytes) -> Datagram | str:
    ip = Ipv4.decode(packet)
    udp = Udp.decode(packet, 20)
    if internet_checksum(packet[:20]):
        return "IP checksum"
    if packet[0] != 0x45 or ip.protocol != PROTOCOL_UDP or udp.destination_port != ROCE_PORT:
        return "not RoCE"
    source, destination = V4_MAPPED_PREFIX + ip.source, V4_MAPPED_PREFIX + ip.destination
    return _datagram(source, destination, udp, ip.traffic_class, ip.total_length_bytes - 20, packet[28:])


def _ipv6(packet: bytes) -> Datagram | str:
    ip = Ipv6.decode(packet)
    udp = Udp.decode(packet, 40)
    if packet[0] >> 4 != 6 or ip.next_header != PROTOCOL_UDP or udp.destination_port != ROCE_PORT:
        return "not RoCE"
    return _datagram(ip.source, ip.destination, udp, ip.traffic_class, ip.payload_length_bytes, packet[48:])


def _datagram(
    source: bytes, destination: bytes, udp: Udp, traffic_class: int, ip_bytes: int, payload: bytes
) -> Datagram | str:
    if udp.length_bytes > ip_bytes or udp.length_bytes < 8 or udp.checksum:
        return "UDP length" if not udp.checksum else "UDP checksum"
    return Datagram(source, destination, udp.source_port, traffic_class, payload[: udp.length_bytes - 8])
