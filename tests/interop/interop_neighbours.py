"""Who has which Ethernet address: ARP (RFC 826) and IPv6 neighbour discovery (RFC 4861), both sides."""

from __future__ import annotations

import ipaddress
import struct

from softhca.wire.errors import WireError
from softhca.wire.ip import ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, Ipv6, internet_checksum

ETHERTYPE_ARP = 0x0806
BROADCAST = b"\xff" * 6

_ARP = struct.Struct("!HHBBH6s4s6s4s")
_ASKING, _TELLING = 1, 2
_ICMPV6 = 58
_SOLICITATION, _ADVERTISEMENT = 135, 136
_SOLICITED_OVERRIDE = 0x6000_0000
_SOURCE_OPTION, _TARGET_OPTION = 1, 2
_NEIGHBOUR = struct.Struct("!BBHI16s")
_HOP_LIMIT = 255  # RFC 4861: nothing that was forwarded is believed


class Neighbours:
    """What one host knows of its link, and what it answers.

    ``mac`` and ``address`` (packed, 4 or 16 bytes) are its own; ``known`` grows with what others tell.
    """

    def __init__(self, mac: bytes, address: bytes) -> None:
        self.mac = mac
        self.address = address
        self.known: dict[bytes, bytes] = {}

    def ask(self, address: bytes) -> bytes:
        """The frame that asks for the Ethernet address of ``address``."""
        if len(address) == 4:
            body = _ARP.pack(1, ETHERTYPE_IPV4, 6, 4, _ASKING, self.mac, self.address, bytes(6), address)
            return Ethernet(BROADCAST, self.mac, ETHERTYPE_ARP).encode() + body
        group = ipaddress.IPv6Address("ff02::1:ff00:0").packed[:13] + address[13:]
        return self._message(b"\x33\x33" + group[12:], group, _SOLICITATION, 0, address, _SOURCE_OPTION)

    def take(self, ethertype: int, body: bytes) -> bytes | None:
        """Learn from what stands behind an Ethernet header; the frame that answers it, if one is due."""
        if ethertype == ETHERTYPE_ARP:
            return self._take_arp(body)
        return self._take_icmpv6(body) if ethertype == ETHERTYPE_IPV6 else None

    def _take_arp(self, body: bytes) -> bytes | None:
        if len(body) < _ARP.size or len(self.address) != 4:
            return None
        *kind, operation, mac, address, _, wanted = _ARP.unpack_from(body)
        if kind != [1, ETHERTYPE_IPV4, 6, 4] or wanted != self.address:
            return None
        self.known[address] = mac
        if operation != _ASKING:
            return None
        answer = _ARP.pack(1, ETHERTYPE_IPV4, 6, 4, _TELLING, self.mac, self.address, mac, address)
        return Ethernet(mac, self.mac, ETHERTYPE_ARP).encode() + answer

    def _take_icmpv6(self, body: bytes) -> bytes | None:
        try:
            ip = Ipv6.decode(body)
        except WireError:
            return None
        message = body[Ipv6.LENGTH_BYTES :][: ip.payload_length_bytes]
        if ip.next_header != _ICMPV6 or ip.hop_limit != _HOP_LIMIT or len(message) < _NEIGHBOUR.size + 8:
            return None
        covered = _pseudo(ip.source, ip.destination, message) + message
        if len(self.address) != 16 or internet_checksum(covered):
            return None
        kind, _, _, _, target = _NEIGHBOUR.unpack_from(message)
        option, words, mac = struct.unpack_from("!BB6s", message, _NEIGHBOUR.size)
        if words != 1:
            return None
        if (kind, option, target) == (_SOLICITATION, _SOURCE_OPTION, self.address):
            self.known[ip.source] = mac
            return self._message(
                mac, ip.source, _ADVERTISEMENT, _SOLICITED_OVERRIDE, self.address, _TARGET_OPTION
            )
        if (kind, option) == (_ADVERTISEMENT, _TARGET_OPTION):
            self.known[target] = mac
        return None

    def _message(
        self, mac: bytes, destination: bytes, kind: int, flags: int, target: bytes, option: int
    ) -> bytes:
        body = _NEIGHBOUR.pack(kind, 0, 0, flags, target) + struct.pack("!BB6s", option, 1, self.mac)
        checksum = internet_checksum(_pseudo(self.address, destination, body) + body)
        body = body[:2] + checksum.to_bytes(2, "big") + body[4:]
        ip = Ipv6(
            payload_length_bytes=len(body), next_header=_ICMPV6, hop_limit=_HOP_LIMIT,
            source=self.address, destination=destination,
        )  # fmt: skip
        return Ethernet(mac, self.mac, ETHERTYPE_IPV6).encode() + ip.encode() + body


def _pseudo(source: bytes, destination: bytes, message: bytes) -> bytes:
    """The header that ICMPv6's checksum covers besides the message (RFC 8200, 8.1)."""
    return source + destination + struct.pack("!II", len(message), _ICMPV6)
