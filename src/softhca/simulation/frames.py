"""What links of a world carry: whole packets, with the headers of their framing.

On RoCE links an adapter hands over and takes UDP payloads, as a socket would.  Faults act on the packet with
its IP and UDP headers, so that a flipped bit may lie in an address, a port or a length; then this module
decides, as a host's kernel does, whether anything and what reaches the adapter.  On native links the adapter
writes and reads the whole packet LRH … VCRC itself.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, NamedTuple

from softhca.adapter.config import NATIVE as NATIVE_PORT
from softhca.adapter.config import AdapterConfig, PortConfig, native_gid
from softhca.driver.services import Path
from softhca.testing.addressing import GUID, is_group
from softhca.testing.addressing import gid as gid_of
from softhca.wire import vcrc
from softhca.wire.errors import WireError
from softhca.wire.framing import NATIVE, ROCE_V4, ROCE_V6
from softhca.wire.icrc import of_packet
from softhca.wire.ip import PROTOCOL_UDP, ROCE_PORT, Ipv4, Ipv6, Udp, internet_checksum
from softhca.wire.lrh import LNH_GLOBAL
from softhca.wire.route import V4_MAPPED_PREFIX, Route

BTH_BYTES = 12
ICRC_BYTES = 4
LRH_BYTES = 8
GRH_BYTES = 40
IPV4_BYTES = 28
IPV6_BYTES = 48
GROUP_LID = 0xC001
"""IP and UDP header together."""


PLACES_A_PORT = 100
"""Port 1 of adapter N is at the place N, its port 2 at N + 100, and so on: addresses are places'."""


def place_of(number: int, port_number: int) -> int:
    """Where a port of adapter ``number`` is."""
    return number + PLACES_A_PORT * (port_number - 1)


def port_at(place: int) -> tuple[int, int]:
    """Which adapter and port are at a place."""
    return place % PLACES_A_PORT, place // PLACES_A_PORT + 1


class Datagram(NamedTuple):
    """What a host's IP layer gives to a socket: addresses as GIDs, and the UDP payload."""

    source: bytes
    destination: bytes
    source_port: int
    traffic_class: int
    payload: bytes


class Frames:
    """RoCE links: addresses are 192.0.2.N or 2001:db8::N (RFC 5737, RFC 3849)."""

    linked = False
    """Whether adapters see whole packets."""
    raw = False
    """Whether packets are raw datagrams."""

    def __init__(self, framing: int) -> None:
        self.framing = framing
        self._known: dict[tuple[Any, ...], bytes] = {}

    def gid(self, number: int) -> bytes:
        """The GID of adapter ``number``, or of the port at a place."""
        return gid_of(number, self.framing)

    def config(self, number: int, mtu: int, ports: int = 1) -> AdapterConfig:
        """How adapter ``number`` is made, with so many ports; ``mtu`` is an ``ibv_mtu``."""
        further = tuple(PortConfig(**self.port(place_of(number, each), mtu)) for each in range(2, ports + 1))
        return AdapterConfig(**self.port(number, mtu), further_ports=further)

    def port(self, place: int, mtu: int) -> dict[str, Any]:
        """What a port has of its own (`PortConfig`)."""
        return {"gids": (self.gid(place),), "active_mtu": mtu}

    def paths(self, left: int, right: int, mtu: int, dice: random.Random) -> tuple[Path, Path]:
        """The paths of two queue pairs to each other, as their programs know them."""
        sls = dice.randrange(8), dice.randrange(8)
        return Path(self.gid(right), mtu=mtu, sl=sls[0]), Path(self.gid(left), mtu=mtu, sl=sls[1])

    @property
    def group(self) -> bytes:
        """The GID of a multicast group: 233.252.0.1 or ff0e::db8:1 (RFC 5771, RFC 3849)."""
        if self.framing == ROCE_V4:
            return V4_MAPPED_PREFIX + bytes((233, 252, 0, 1))
        return bytes.fromhex("ff0e") + bytes(10) + bytes.fromhex("0db80001")

    def group_path(self, mtu: int, dice: random.Random) -> Path:
        """A path to the group."""
        return Path(self.group, mtu=mtu, sl=dice.randrange(8), dlid=GROUP_LID if self.linked else 0)

    def destinations(self, route: Any, numbers: list[int]) -> list[int]:
        """Which adapters a route leads to; all, where it is a group's."""
        gid = route.destination
        if is_group(gid):
            return numbers
        return [number for number in numbers if self.gid(number) == gid]

    def sender(self, grh: bytes, _slid: int, with_grh: bool) -> bytes:
        """The GID of a datagram's sender: of an IPv4 header in the last 20 bytes of what stands in front of
        it, or of a GRH (IBTA A17.4.5.2); empty when there is none.
        """
        if not with_grh:
            return b""
        return bytes(grh[8:24]) if grh[0] >> 4 == 6 else V4_MAPPED_PREFIX + bytes(grh[32:36])

    def transport(self, data: bytes) -> bytes:
        """BTH … ICRC of what an adapter sent."""
        return data

    def whole(self, flow: Any, data: bytes) -> bytes:
        """The packet on the link, of a route or a flight and what an adapter sent."""
        key = (flow.source, flow.destination, flow.source_port, flow.traffic_class, len(data))
        headers = self._known.get(key)
        if headers is None:
            route = Route(self.framing, *key[:4])
            headers = self._known[key] = route.headers(len(data))
        return headers + data

    def sealed(self, route: Any, data: bytes, body: bytes, source: int = 0) -> tuple[bytes, bytes | None]:
        """``data`` with another BTH … pad and the ICRC that belongs to it; from the forged address
        ``source``, if it is not 0, which comes second.
        """
        gid = self._forged_gid(source) if source else route.source
        forged = Route(self.framing, gid, route.destination, route.source_port)
        icrc = of_packet(self.framing, forged.headers(len(body) + ICRC_BYTES), body)
        return body + icrc.to_bytes(4, "little"), gid

    def _forged_gid(self, number: int) -> bytes:
        if self.framing == ROCE_V4:
            return V4_MAPPED_PREFIX + bytes((203, 0, 113, number))
        return bytes.fromhex("20010db8") + bytes(10) + bytes((1, number))


class NativeFrames(Frames):
    """Native links: adapter N has the LIDs 2N and 2N + 1, and paths are with and without GRH."""

    linked = True

    def __init__(self) -> None:
        super().__init__(NATIVE)

    def gid(self, number: int) -> bytes:
        return native_gid(GUID + number)

    def port(self, place: int, mtu: int) -> dict[str, Any]:
        link = {"framing": NATIVE_PORT, "lid": 2 * place, "lmc": 1, "sm_lid": 2}
        return {**super().port(place, mtu), **link}

    def paths(self, left: int, right: int, mtu: int, dice: random.Random) -> tuple[Path, Path]:
        bits = dice.randrange(2), dice.randrange(2)
        with_grh, sl = dice.random() < 0.5, dice.randrange(8)
        there, back = (
            Path(
                self.gid(number) if with_grh else None,
                mtu=mtu, sl=sl, dlid=2 * number + bits[at], src_path_bits=bits[1 - at],
            )
            for at, number in ((1, right), (0, left))
        )  # fmt: skip
        return there, back

    def destinations(self, route: Any, numbers: list[int]) -> list[int]:
        if route.dlid == GROUP_LID:
            return numbers
        return [number for number in numbers if route.dlid >> 1 == number]

    def sender(self, grh: bytes, slid: int, with_grh: bool) -> bytes:
        gid = self.gid(slid >> 1)
        return gid if not with_grh or bytes(grh[8:24]) == gid else b""

    def transport(self, data: bytes) -> bytes:
        return data[_start(data) : -vcrc.LENGTH_BYTES]

    def whole(self, flow: Any, data: bytes) -> bytes:
        return data

    def sealed(self, route: Any, data: bytes, body: bytes, source: int = 0) -> tuple[bytes, bytes | None]:
        headers = bytearray(data[: _start(data)])
        headers[4:6] = ((len(headers) + len(body) + ICRC_BYTES) // 4).to_bytes(2, "big")
        if len(headers) > LRH_BYTES:
            headers[12:14] = (len(body) + ICRC_BYTES).to_bytes(2, "big")
        if source:
            headers[6:8] = (0x4000 + source).to_bytes(2, "big")
        icrc = of_packet(NATIVE, bytes(headers), body)
        packet = bytes(headers) + body + icrc.to_bytes(4, "little")
        return packet + vcrc.compute(packet).to_bytes(2, "little"), None


class RawFrames(NativeFrames):
    """Native links with raw datagrams on them; ``transport`` is all that is behind the LRH."""

    raw = True

    def paths(self, left: int, right: int, mtu: int, dice: random.Random) -> tuple[Path, Path]:
        there, back = super().paths(left, right, mtu, dice)
        return replace(there, dgid=None), replace(back, dgid=None)

    def transport(self, data: bytes) -> bytes:
        return data[LRH_BYTES : -vcrc.LENGTH_BYTES]


def _start(data: bytes) -> int:
    """Where the BTH of a native packet is."""
    return LRH_BYTES + GRH_BYTES if len(data) > 1 and data[1] & 3 == LNH_GLOBAL else LRH_BYTES


def frames_of(link: str) -> Frames:
    """What links of a kind carry: ``ipv4``, ``ipv6``, ``native`` or ``raw``."""
    if link in ("native", "raw"):
        return NativeFrames() if link == "native" else RawFrames()
    return Frames(ROCE_V4 if link == "ipv4" else ROCE_V6)


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
        return _ipv4(packet) if framing == ROCE_V4 else _ipv6(packet)
    except WireError:
        return "no header"


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
