"""A link of whole Ethernet frames over a Unix socket, as qemu's ``-netdev dgram`` speaks it: an adapter of
ours joins a guest without any privilege.

It has the interface of softhca's RoCEv2 link.  IP and UDP headers are real, so that the ICRC of what arrives
is checked with every field that it covers, the identification too, which a socket would not show; what fails
is dropped and counted.  One IPv4 or IPv6 address a link.

``python interop_ethernet.py SOCKET PEER_SOCKET MAC ADDRESS PROGRAM`` runs a pyverbs program on softhca with
such a link, instead of what ``SOFTHCA_DEVICES`` names.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import sys
from pathlib import Path
from typing import Any

from interop_neighbours import Neighbours

from softhca.links.link import Link
from softhca.runtime import assembly
from softhca.simulation.frames import Datagram, header_bytes, unwrap
from softhca.wire.errors import WireError
from softhca.wire.flows import FIRST_SOURCE_PORT
from softhca.wire.framing import ROCE_V4, ROCE_V6
from softhca.wire.icrc import of_packet
from softhca.wire.ip import ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet
from softhca.wire.route import V4_MAPPED_PREFIX

SENT, AGAIN = 1, 0
ACTIVE_MTU_BYTES = 4096
PORTS = 0x4000
_FRAME_BYTES = 65_536
_MOST_AT_ONCE = 64
_WAITING = 512
_ICRC_BYTES = 4
_LEAST_BYTES = 16  # BTH and ICRC
_COUNTERS = ("frames_sent", "packets_received", "icrc_mismatches", "drops")


class EthernetLink(Link):
    """The link of one port with ``address`` and ``mac``, on the Unix socket ``own``; frames go to ``peer``.

    Frames to a neighbour that is not known yet wait until it answers, a bounded number of them.
    """

    def __init__(self, own: str, peer: str, mac: bytes, address: str) -> None:
        packed = ipaddress.ip_address(address).packed
        self.address = address
        super().__init__(ROCE_V4 if len(packed) == 4 else ROCE_V6)
        self.gid = V4_MAPPED_PREFIX + packed if len(packed) == 4 else packed
        self.active_mtu = ACTIVE_MTU_BYTES
        self.blocked_fileno = -1
        self.neighbours = Neighbours(mac, packed)
        self._ethertype = ETHERTYPE_IPV4 if len(packed) == 4 else ETHERTYPE_IPV6
        self._peer = peer
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        with contextlib.suppress(FileNotFoundError):
            Path(own).unlink()  # of one that was killed
        self._socket.bind(own)
        self._waiting: list[tuple[bytes, bytes]] = []
        self._partial: Any = None
        self._offset = 0
        self._figures = dict.fromkeys(_COUNTERS, 0)

    def fileno(self) -> int:
        """The socket; −1 when closed."""
        return self._socket.fileno()

    def counters(self) -> dict[str, int]:
        """What was sent, received and dropped."""
        return dict(self._figures)

    def source_port_for(
        self, entropy: int, destination: bytes | None = None, source: bytes | None = None
    ) -> int:
        """The UDP source port of a flow."""
        return FIRST_SOURCE_PORT + entropy % PORTS

    def send(self, burst: Any) -> int:
        """As `RoceUdpLink.send`: every segment is a frame."""
        self._flush()
        offset = self._offset if self._partial is burst else 0
        stride = burst.stride or burst.length
        while offset < burst.length:
            data = bytes(burst.data[offset : min(offset + stride, burst.length)])
            destination = burst.route.destination[16 - len(self.neighbours.address) :]
            if not self._put(destination, burst.route.headers(len(data)) + data):
                self._partial, self._offset = burst, offset
                return AGAIN
            offset += stride
        self._partial = None
        return SENT

    def abandon(self, burst: Any) -> None:
        """As `RoceUdpLink.abandon`."""
        if self._partial is burst:
            self._partial = None

    def receive(self, arrival: Any) -> bool:
        """As `RoceUdpLink.receive`; neighbours' questions are answered on the way."""
        for _ in range(_MOST_AT_ONCE):
            try:
                frame = self._socket.recv(_FRAME_BYTES)
            except BlockingIOError:
                return False
            datagram = self._datagram(frame)
            if datagram is not None:
                self._fill(arrival, datagram)
                return True
        return False

    def _datagram(self, frame: bytes) -> Datagram | None:
        """The RoCE packet to this port in a frame, if it is one and its ICRC is right."""
        try:
            ethernet = Ethernet.decode(frame)
        except WireError:
            return None
        body = frame[Ethernet.LENGTH_BYTES :]
        if not ethernet.destination[0] & 1 and ethernet.destination != self.neighbours.mac:
            return None  # a hub sends everything to everybody
        answer = self.neighbours.take(ethernet.ethertype, body)
        if answer is not None:
            self._out(answer)
        self._flush()
        datagram = unwrap(self.framing, body) if ethernet.ethertype == self._ethertype else ""
        if isinstance(datagram, str) or datagram.destination != self.gid:
            return None
        self._figures["packets_received"] += 1
        if not self._sound(body[: header_bytes(self.framing)], datagram.payload):
            self._figures["icrc_mismatches"] += 1
            return None
        return datagram

    def _sound(self, headers: bytes, payload: bytes) -> bool:
        """Whether the ICRC is right with these headers; what is too short to have one has none."""
        if len(payload) < _LEAST_BYTES:
            return False
        icrc = int.from_bytes(payload[-_ICRC_BYTES:], "little")
        return bool(of_packet(self.framing, headers, payload[:-_ICRC_BYTES]) == icrc)

    def _fill(self, arrival: Any, datagram: Datagram) -> None:
        arrival.data[: len(datagram.payload)] = memoryview(datagram.payload)
        arrival.length = arrival.stride = len(datagram.payload)
        arrival.framing = self.framing
        arrival.source, arrival.destination = datagram.source, datagram.destination
        arrival.source_port, arrival.traffic_class = datagram.source_port, datagram.traffic_class

    def _put(self, destination: bytes, packet: bytes) -> bool:
        """Send a packet, or keep it until the neighbour is known; False when there is no room now."""
        mac = self.neighbours.known.get(destination)
        if mac is not None:
            return self._out(self._framed(mac, packet))
        if all(waiting != destination for waiting, _ in self._waiting):
            self._out(self.neighbours.ask(destination))
        if len(self._waiting) < _WAITING:
            self._waiting.append((destination, packet))
        return True

    def _flush(self) -> None:
        """Send what waited for neighbours that have answered."""
        waiting, self._waiting = self._waiting, []
        for destination, packet in waiting:
            mac = self.neighbours.known.get(destination)
            if mac is None or not self._out(self._framed(mac, packet)):
                self._waiting.append((destination, packet))

    def _framed(self, mac: bytes, packet: bytes) -> bytes:
        return Ethernet(mac, self.neighbours.mac, self._ethertype).encode() + packet

    def _out(self, frame: bytes) -> bool:
        try:
            self._socket.sendto(frame, self._peer)
        except BlockingIOError:
            return False
        except OSError:  # nobody is there: lost, as on a cable without another end
            self._figures["drops"] += 1
            return True
        self._figures["frames_sent"] += 1
        return True

    def close(self) -> None:
        """Close the socket and remove its name; may be called again."""
        if self._socket.fileno() >= 0:
            with contextlib.suppress(OSError):
                Path(self._socket.getsockname()).unlink()
            self._socket.close()

    def __enter__(self) -> EthernetLink:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def main() -> None:
    own, peer, mac, address, *program = sys.argv[1:]
    # its name; its link is made here, and is no other process's
    os.environ["SOFTHCA_DEVICES"] = "softhca0=udp:127.0.0.1?share=0"
    assembly.open_link = lambda _: EthernetLink(own, peer, bytes.fromhex(mac), address)  # type: ignore[assignment,return-value]
    from softhca import pyverbs_alias

    sys.argv = [sys.argv[0], *program]
    pyverbs_alias.main()


if __name__ == "__main__":
    main()
