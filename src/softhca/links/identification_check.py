"""The IPv4 identification that a received datagram really bore, seen by a raw socket: an opt-in check.

The ICRC covers the identification and an ordinary UDP socket does not report it. A raw socket sees the whole
header, but it needs CAP_NET_RAW, and it gets what the kernel merged as one long datagram: use it beside a
link that was opened with ``gro=False``, for peers that send plain datagrams.  `CheckedLink` is both: a link
that counts what its check finds.
"""

from __future__ import annotations

import collections
import errno
import logging
import socket
import struct
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from softhca.links.wrapped import WrappedLink
from softhca.wire.framing import ROCE_V4
from softhca.wire.icrc import syndrome
from softhca.wire.identification import recover
from softhca.wire.route import Route

if TYPE_CHECKING:
    from softhca.wire.burst import Arrival

_IP_MIN_BYTES, _UDP_BYTES = 20, 8
_DONT_FRAGMENT, _MORE_FRAGMENTS, _OFFSET_MASK = 0x4000, 0x2000, 0x1FFF
_KEPT = 1024
_DATAGRAM_BYTES = 65_535
_MAX_ROUTES = 4096
_LEAST_PACKET_BYTES = 16

_log = logging.getLogger("softhca.links")


@dataclass(frozen=True, slots=True)
class SeenDatagram:
    """One datagram as it arrived: identification, DF, sender (packed address and port) and payload."""

    identification: int
    dont_fragment: bool
    source: bytes
    source_port: int
    payload: bytes


class RawIdentificationCheck:
    """Sees every datagram to (``address``, ``port``) beside the link that receives it.

    PermissionError without CAP_NET_RAW, ValueError when ``address`` is not IPv4 (IPv6 has no identification).
    """

    def __init__(self, address: str, port: int) -> None:
        if ":" in address:
            raise ValueError(f"{address}: only IPv4 headers have an identification")
        self._port = port
        self._kept: collections.deque[SeenDatagram] = collections.deque(maxlen=_KEPT)
        try:
            self._raw = socket.socket(
                socket.AF_INET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.IPPROTO_UDP)
        except PermissionError as error:
            raise PermissionError(
                errno.EPERM, "checking IPv4 identifications takes CAP_NET_RAW, for a raw socket") from error
        try:
            self._raw.bind((address, 0))
        except OSError:
            self._raw.close()
            raise

    def fileno(self) -> int:
        """The raw socket, for epoll."""
        return self._raw.fileno()

    def next_datagram(self) -> SeenDatagram | None:
        """The next datagram to this port that the socket saw, None when there is none now."""
        while True:
            try:
                packet = self._raw.recv(_DATAGRAM_BYTES)
            except BlockingIOError:
                return None
            seen = self._parse(packet)
            if seen is not None:
                return seen

    def _parse(self, packet: bytes) -> SeenDatagram | None:
        """A whole datagram to our port, else None.  The kernel has checked the IP header, not UDP's."""
        if len(packet) < _IP_MIN_BYTES:
            return None
        start = (packet[0] & 0xF) * 4
        if len(packet) < start + _UDP_BYTES:
            return None
        source_port, destination_port, length, _ = struct.unpack_from("!HHHH", packet, start)
        identification, fragment = struct.unpack_from("!HH", packet, 4)
        if destination_port != self._port or fragment & (_MORE_FRAGMENTS | _OFFSET_MASK):
            return None
        if not _UDP_BYTES <= length <= len(packet) - start:
            return None
        return SeenDatagram(identification, bool(fragment & _DONT_FRAGMENT), packet[12:16], source_port,
                            packet[start + _UDP_BYTES : start + length])

    def identification_of(self, arrival: Arrival) -> int | None:
        """Identification of what a link has just received, None when the raw socket missed it.

        ValueError for a merged arrival: its datagrams' headers are gone.
        """
        if arrival.length > arrival.stride:
            raise ValueError("datagrams were merged; open the link with gro=False to check identifications")
        while (seen := self.next_datagram()) is not None:
            self._kept.append(seen)
        source = arrival.source or b""
        wanted = (source[12:], arrival.source_port, bytes(arrival.data[: arrival.length]))
        for index, seen in enumerate(self._kept):
            if (seen.source, seen.source_port, seen.payload) == wanted:
                # Both sockets see datagrams in one order: what came before was lost by the link.
                for _ in range(index + 1):
                    self._kept.popleft()
                return seen.identification
        return None

    def close(self) -> None:
        """Close the raw socket; may be called again."""
        self._raw.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


class CheckedLink(WrappedLink):
    """The link that it wraps, which was opened with ``gro=False`` on an IPv4 address.

    Of every datagram received, the identification that its ICRC covers is compared with the one that its
    IPv4 header bore.  `counters` has the results beside the link's own: ``identifications_checked``,
    ``identification_mismatches`` (the first is logged, too) and ``identifications_missed`` (the raw socket
    had no room).  Nothing is dropped here.  Errors as `RawIdentificationCheck`.
    """

    def __init__(self, link: Any) -> None:
        super().__init__(link)
        self._check = RawIdentificationCheck(link.address, link.port)
        self._routes: dict[tuple[bytes, int], Route] = {}
        self.identifications_checked = 0
        self.identification_mismatches = 0
        self.identifications_missed = 0

    def counters(self) -> dict[str, int]:
        """The link's counters, and what the check found."""
        return {
            **self._link.counters(),
            "identifications_checked": self.identifications_checked,
            "identification_mismatches": self.identification_mismatches,
            "identifications_missed": self.identifications_missed,
        }

    def receive(self, arrival: Any) -> bool:
        """As the link's."""
        result = bool(self._link.receive(arrival))
        if result and not arrival.frames:  # which have no ICRC
            self._compare(arrival)
        return result

    def _compare(self, arrival: Any) -> None:
        borne = self._check.identification_of(arrival)
        if borne is None:
            self.identifications_missed += 1
            return
        self.identifications_checked += 1
        if borne == self._covered(arrival):
            return
        if not self.identification_mismatches:
            _log.warning("%s: a datagram from port %d bore identification %d, which its ICRC does not cover",
                         self._link.address, arrival.source_port, borne)
        self.identification_mismatches += 1

    def _covered(self, arrival: Any) -> int:
        """The identification with which the ICRC is right, −1 when there is none."""
        key = (arrival.source, arrival.source_port)
        route = self._routes.get(key)
        if route is None:
            if len(self._routes) >= _MAX_ROUTES:
                self._routes.clear()
            route = Route(ROCE_V4, arrival.source, arrival.destination, source_port=arrival.source_port,
                          destination_port=self._link.port)
            self._routes[key] = route
        if arrival.length < _LEAST_PACKET_BYTES:
            return -1
        difference = syndrome(route, arrival.address, arrival.length)
        return recover(route, difference, arrival.length) if difference else route.identification

    def close(self) -> None:
        """Close the raw socket and the link; may be called again."""
        self._check.close()
        self._link.close()
