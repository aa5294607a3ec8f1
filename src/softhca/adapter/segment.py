"""The Ethernet segment of a RoCE port: which adapters a frame goes to.

Frames travel between adapters as VXLAN (RFC 7348).  Who carries the station with an address is learned from
frames that arrive, as a switch does, for a bounded number of stations and a bounded time.  A frame for a
station that is not known, or for a group, goes to all adapters that are named (``vteps``) or found on this
host (``neighbours``), and to the own port where that has rules.  Who is only learned from gets no such
frames: an address in a datagram proves nothing, and a forged one would get a copy of all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from softhca.adapter.steering import Steering
from softhca.wire.framing import ROCE_V4, ROCE_V6
from softhca.wire.route import V4_MAPPED_PREFIX, Route
from softhca.wire.vxlan import VXLAN_PORT

if TYPE_CHECKING:
    from softhca.adapter.port import Port
    from softhca.transport.window import DestinationWindow

MOST_STATIONS = 4096
MOST_VTEPS = 256
"""To so many adapters at most goes a frame that all are to get."""
STATION_NS = 300_000_000_000
"""A station that is not heard for so long is forgotten, as Linux's bridges and VXLAN interfaces do."""
NEIGHBOURS_NS = 100_000_000
"""After so long the adapters of this host are looked for again."""

Destination = tuple[Route, "DestinationWindow"]


class Segment:
    """The segment ``vni`` as ``port`` sees it.  ``vteps`` are GIDs; ``neighbours``, where it is set, gives
    those of adapters on this host; ``listen``, where it is set, is called before the first rule and the first
    frame, so that the link opens what frames arrive by (OSError where it cannot)."""

    neighbours: Callable[[], tuple[bytes, ...]] | None
    listen: Callable[[], object] | None

    def __init__(self, port: Port, vni: int, vteps: tuple[bytes, ...] = ()) -> None:
        self.vni = vni
        self.vteps = vteps
        self.neighbours = None
        self.listen = None
        self.steering = Steering()
        self._port = port
        self._stations: dict[bytes, tuple[bytes, int]] = {}
        self._found: tuple[bytes, ...] = ()
        self._found_ns: int | None = None
        self._destinations: dict[bytes, Destination] = {}

    def open(self) -> None:
        """Frames are going to be sent or received.  OSError where the link cannot."""
        if self.listen is not None:
            self.listen()

    def learn(self, mac: bytes, gid: bytes, now: int) -> None:
        """A frame from the station ``mac`` came from the adapter with this GID; groups are no stations."""
        if mac[0] & 1:
            return
        if mac not in self._stations and len(self._stations) >= MOST_STATIONS:
            del self._stations[next(iter(self._stations))]
        self._stations[mac] = gid, now

    def destinations(self, mac: bytes, now: int) -> tuple[Destination, ...]:
        """Where a frame to ``mac`` goes: routes with their windows, the own port's included."""
        own = self._port.own.gids[0]
        if mac in self.steering.stations:
            return (self._to(own),)
        known, heard_ns = self._stations.get(mac, (b"", 0))
        if known and now - heard_ns <= STATION_NS:
            return (self._to(known),) if known != own or len(self.steering) else ()
        gids = dict.fromkeys((own,) if len(self.steering) else ())
        gids.update(dict.fromkeys(gid for gid in self.vteps + self._neighbours(now) if gid != own))
        return tuple(self._to(gid) for gid in list(gids)[:MOST_VTEPS])

    def renew(self) -> None:
        """Make ways anew: the port's addresses have changed."""
        self._destinations.clear()

    def _neighbours(self, now: int) -> tuple[bytes, ...]:
        """Adapters on this host, as they were found lately."""
        if self.neighbours is not None and (
            self._found_ns is None or now - self._found_ns >= NEIGHBOURS_NS
        ):
            self._found, self._found_ns = self.neighbours(), now
        return self._found

    def _to(self, gid: bytes) -> Destination:
        """The way to the adapter with a GID."""
        found = self._destinations.get(gid)
        if found is None:
            if len(self._destinations) >= MOST_STATIONS:
                self._destinations.clear()
            framing = ROCE_V4 if gid.startswith(V4_MAPPED_PREFIX) else ROCE_V6
            port = self._port
            own = port.own.gids[0]
            route = Route(framing, own, gid, port.source_port_for(0, gid, own),
                          destination_port=VXLAN_PORT, port_number=port.number)  # fmt: skip
            found = self._destinations[gid] = route, port.window_for(route.peer)
        return found
