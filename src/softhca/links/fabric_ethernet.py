"""The link of an adapter's port to an Ethernet that is served: RoCEv2 packets with their IP and UDP headers.

A burst leaves as one message, a run (`fabric.ethernet.frames`), and comes as one: what the switches have let
through of it, one after the other.  A port that has too much to send takes no more (``AGAIN``), as one does
whose link is paused.  What is sent to a group reaches the ports that have joined it.
"""

from __future__ import annotations

import errno
import select
from typing import TYPE_CHECKING

from softhca.links import fabric_messages as messages
from softhca.links.fabric import FabricLink, Joined, join
from softhca.wire.framing import ROCE_V4, ROCE_V6
from softhca.wire.ip import Ipv4, Ipv6, Udp
from softhca.wire.route import V4_MAPPED_PREFIX, is_multicast

if TYPE_CHECKING:
    from softhca.wire.burst import Arrival, Burst
    from softhca.wire.route import Route

FIRST_SOURCE_PORT = 0xC000
SOURCE_PORTS = 0x4000
MOST_HEADERS = 256
JOIN_MS = 1000


class EthernetLink(FabricLink):
    """Joins an Ethernet, as `FabricLink`, at the host's port that has the GID ``gid``; ``mbps`` is its
    speed."""

    is_native = False

    def __init__(self, name: str, node: str = "", joined: Joined | None = None) -> None:
        joined = joined or join(name, node)
        gid, mbps = messages.ethernet_facts(joined[1])
        is_ipv4 = gid.startswith(V4_MAPPED_PREFIX)
        super().__init__(name, node, joined, ROCE_V4 if is_ipv4 else ROCE_V6)
        self.gid, self.mbps = gid, mbps
        self.counts = False  # packets are merged anew at the other end
        ip_bytes = Ipv4.LENGTH_BYTES if is_ipv4 else Ipv6.LENGTH_BYTES
        self._is_ipv4 = is_ipv4
        self._front = bytearray(ip_bytes + Udp.LENGTH_BYTES)
        self._route: Route | None = None
        self._headers: dict[int, bytes] = {}
        self._sources: dict[bytes, bytes] = {}
        self._groups: set[bytes] = set()

    def source_port_for(
        self, entropy: int, destination: bytes | None = None, source: bytes | None = None
    ) -> int:
        """The UDP source port of a flow, by which switches choose among ways."""
        return FIRST_SOURCE_PORT + entropy % SOURCE_PORTS

    def preserves_bursts(self, destination: bytes) -> bool:
        """`Link.preserves_bursts`: switches forward packet by packet."""
        return False

    def join(self, gid: bytes) -> None:
        """`Link.join`, but for what this link itself sends there.  OSError: EINVAL for a GID that is no group
        of the link's IP version, ENOBUFS for too many groups, ENETDOWN where the fabric has gone, EAGAIN
        where it takes nothing.
        """
        if gid in self._groups:
            return
        if not is_multicast(gid) or gid.startswith(V4_MAPPED_PREFIX) != self._is_ipv4:
            raise OSError(errno.EINVAL, "it is no multicast group of the link's IP version")
        if len(self._groups) >= messages.MOST_GROUPS:
            raise OSError(errno.ENOBUFS, f"a link has {messages.MOST_GROUPS} groups at most")
        self._tell(gid, True)
        self._groups.add(gid)

    def leave(self, gid: bytes) -> None:
        """`Link.leave`; OSError EAGAIN where the fabric takes nothing."""
        if gid in self._groups:
            if self.socket is not None:
                self._tell(gid, False)
            self._groups.discard(gid)

    def _tell(self, gid: bytes, member: bool) -> None:
        """Tell the fabric whether this port is in a group."""
        made = self.socket
        if made is None:
            raise OSError(errno.ENETDOWN, "the fabric has gone")
        waiting = select.poll()
        waiting.register(made, select.POLLOUT)
        waiting.poll(JOIN_MS)
        made.send(messages.encode(messages.GROUP, {"group": gid.hex(), "member": member}))

    def send(self, burst: Burst) -> int:
        """`Link.send`."""
        route: Route = burst.route  # type: ignore[assignment]
        if route.framing != self.framing:
            self.send_errors += 1
            return -errno.EAFNOSUPPORT
        return self._send(burst, self._headers_of(route, min(burst.stride or burst.length, burst.length)))

    def _headers_of(self, route: Route, payload_bytes: int) -> bytes:
        """The headers of a route's first packet; those of the last route are kept."""
        if route is not self._route or len(self._headers) > MOST_HEADERS:
            self._route = route
            self._headers.clear()
        found = self._headers.get(payload_bytes)
        if found is None:
            found = self._headers[payload_bytes] = bytes(route.headers(payload_bytes))
        return found

    def _read_front(self, arrival: Arrival) -> None:
        front = self._front
        source = bytes(front[12:16]) if self._is_ipv4 else bytes(front[8:24])
        known = self._sources.get(source)
        if known is None:
            if len(self._sources) >= MOST_HEADERS:
                self._sources.clear()
            known = self._sources[source] = V4_MAPPED_PREFIX + source if self._is_ipv4 else source
        arrival.source, arrival.destination = known, self._destination(front)
        arrival.source_port = front[-8] << 8 | front[-7]
        arrival.traffic_class = front[1] if self._is_ipv4 else (front[0] & 0xF) << 4 | front[1] >> 4

    def _destination(self, front: bytearray) -> bytes:
        """Where packets with these headers went: to this port, or a group."""
        if self._is_ipv4:
            is_group = front[16] & 0xF0 == 0xE0
            return V4_MAPPED_PREFIX + bytes(front[16:20]) if is_group else self.gid
        return bytes(front[24:40]) if front[24] == 0xFF else self.gid


def open_fabric_link(name: str, node: str = "") -> FabricLink:
    """The link to a fabric of either kind; errors as `FabricLink`."""
    joined = join(name, node)
    if joined[1].get("kind") == messages.ETHERNET:
        return EthernetLink(name, node, joined)
    return FabricLink(name, node, joined)
