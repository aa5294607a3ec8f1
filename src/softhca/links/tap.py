"""A link that is listened to: every packet that passes goes into a capture file as well.

``SOFTHCA_CAPTURE`` names a file, for all links of this process, or an existing folder, for two files a link:
what it sent and what it received (so that the captures of several processes can be joined without
doubles).  Packets are written as raw IP with the headers that the kernel gives them; every segment of a burst
is a packet of its own. What a UDP socket does not report about a received packet is written as 64 (hop limit)
and 0 (identification, flow label).

A capture that cannot be written is given up with one line in the log: it never disturbs the traffic.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from softhca.links.variables import CAPTURE
from softhca.links.wrapped import WrappedLink
from softhca.wire.framing import ROCE_V4, ROCE_V6
from softhca.wire.pcapng import PcapngWriter
from softhca.wire.route import ROCE_PORT, Route
from softhca.wire.vxlan import VXLAN_PORT

LINK_TYPE_RAW_IP = 101

_PSEUDO_V4_BYTES, _PSEUDO_V6_BYTES = 20, 40
_UDP_BYTES = 8
_UDP_PROTOCOL = 17
_MAX_ROUTES = 4096

_log = logging.getLogger("softhca.capture")


class CaptureFile:
    """One pcapng file; what one call adds is written with one system call.

    OSError when it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._pending = bytearray()
        self._lock = threading.Lock()
        try:
            self._writer = PcapngWriter(self)  # type: ignore[arg-type]
            self._commit()
        except BaseException:
            self._close()
            raise

    def write(self, data: bytes) -> int:
        """Part of the stream that the pcapng writer writes to."""
        self._pending += data
        return len(data)

    def add_interface(self, name: str) -> int:
        """Describe one more source of packets; returns its number, also where the file has ended."""
        with self._lock:
            number = self._writer.add_interface(LINK_TYPE_RAW_IP, name)
            self._commit_or_end()
        return number

    def add(self, interface: int, packets: list[bytes], time_ns: int) -> None:
        """Append ``packets``, all of one moment (nanoseconds since 1970)."""
        with self._lock:
            if self._fd < 0:
                return
            for packet in packets:
                self._writer.write(interface, time_ns, packet)
            self._commit_or_end()

    def _commit_or_end(self) -> None:
        if self._fd < 0:
            self._pending.clear()
            return
        try:
            self._commit()
        except OSError as error:
            _log.warning("capture %s ends here: %s", self.path, error.strerror)
            self._close()

    def _commit(self) -> None:
        view = memoryview(bytes(self._pending))
        self._pending.clear()
        while view:
            view = view[os.write(self._fd, view) :]

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        """Close the file; what is added afterwards is lost."""
        with self._lock:
            self._close()


class TapLink(WrappedLink):
    """The link that it wraps; what passes is written to the two captures as well.

    Captures that are ``owned`` are closed with the link.
    """

    def __init__(self, link: Any, sent: CaptureFile, received: CaptureFile, owned: bool = False) -> None:
        super().__init__(link)
        self._owned = owned
        self._sent = sent
        self._received = received
        self._sent_interface = sent.add_interface(f"{link.address} sent")
        self._received_interface = received.add_interface(f"{link.address} received")
        self._routes: dict[tuple[bytes, int, bytes, int, bool], Route] = {}

    def send(self, burst: Any) -> int:
        """As the link's; a burst is written when it has gone out whole."""
        result: int = self._link.send(burst)
        if result > 0:
            packets = packets_of(burst, burst.route, burst.counted)
            self._sent.add(self._sent_interface, packets, time.time_ns())
        return result

    def receive(self, arrival: Any) -> bool:
        """As the link's."""
        result = bool(self._link.receive(arrival))
        if result:
            packets = packets_of(arrival, self._route_of(arrival))
            self._received.add(self._received_interface, packets, time.time_ns())
        return result

    def close(self) -> None:
        """Close the link, and the captures that are its own."""
        self._link.close()
        if self._owned:
            self._sent.close()
            self._received.close()

    def _route_of(self, arrival: Any) -> Route:
        # one flow of a sender's may go to the link's address and to groups
        key = (
            arrival.source,
            arrival.source_port,
            arrival.destination,
            arrival.traffic_class,
            arrival.frames,
        )
        route = self._routes.get(key)
        if route is None:
            if len(self._routes) >= _MAX_ROUTES:
                self._routes.clear()
            route = Route(
                arrival.framing,
                arrival.source,
                arrival.destination,
                source_port=arrival.source_port,
                traffic_class=arrival.traffic_class,
                destination_port=VXLAN_PORT if arrival.frames else ROCE_PORT,
            )
            self._routes[key] = route
        return route


def packets_of(burst: Any, route: Route, counted: bool = False) -> list[bytes]:
    """The segments of ``burst`` as IP packets on ``route``; ``counted``: identifications are 0, 1, 2 …"""
    stride = burst.stride or burst.length
    data = memoryview(burst.data)
    packets = []
    for place, at in enumerate(range(0, burst.length, stride or 1)):
        if counted:
            route.identification = place
        packets.append(packet_of(route, bytes(data[at : min(at + stride, burst.length)])))
    return packets


def packet_of(route: Route, payload: bytes) -> bytes:
    """``payload`` as a UDP datagram in an IP packet, checksums right."""
    headers = bytearray(route.headers(len(payload)))
    udp = len(headers) - _UDP_BYTES
    length = (_UDP_BYTES + len(payload)).to_bytes(2, "big")
    addresses = headers[udp - 8 : udp] if route.framing == ROCE_V4 else headers[udp - 32 : udp]
    covered = b"".join((addresses, bytes((0, _UDP_PROTOCOL)), length, headers[udp:], payload))
    headers[-2:] = udp_checksum(covered).to_bytes(2, "big")
    return bytes(headers) + payload


def udp_checksum(covered: bytes) -> int:
    """RFC 768: the one's complement of the one's-complement sum of 16-bit words; 0 is sent as 0xFFFF.

    One's-complement addition is addition modulo 0xFFFF, so the whole is one remainder.
    """
    padded = covered + bytes(len(covered) % 2)
    return 0xFFFF - int.from_bytes(padded, "big") % 0xFFFF or 0xFFFF


_files: dict[Path, tuple[int, CaptureFile]] = {}
_links = 0
_files_lock = threading.Lock()


def tapped(link: Any, environment: Mapping[str, str] = os.environ) -> Any:
    """``link`` itself, or listened to when ``SOFTHCA_CAPTURE`` is set.

    OSError when the capture cannot be made; the link is closed then.
    """
    place = environment.get(CAPTURE, "")
    if not place or link.framing not in (ROCE_V4, ROCE_V6):
        return link
    try:
        return _listen(link, Path(place))
    except BaseException:
        link.close()
        raise


def _listen(link: Any, path: Path) -> TapLink:
    if not path.is_dir():
        capture = _shared_file(path)
        return TapLink(link, capture, capture)
    stem = path / f"{os.getpid()}-{_next_link()}"
    sent = CaptureFile(stem.with_suffix(".sent.pcapng"))
    try:
        received = CaptureFile(stem.with_suffix(".received.pcapng"))
    except BaseException:
        sent.close()
        raise
    return TapLink(link, sent, received, owned=True)


def _next_link() -> int:
    global _links
    with _files_lock:
        _links += 1
        return _links


def _shared_file(path: Path) -> CaptureFile:
    """This process's capture at ``path``; a forked child gets a file of its own, with its id in the name."""
    pid = os.getpid()
    with _files_lock:
        owner, capture = _files.get(path, (pid, None))
        if capture is None or owner != pid:
            capture = CaptureFile(path if owner == pid else path.with_name(f"{path.name}.{pid}"))
            _files[path] = (pid, capture)
        return capture
