"""What a RoCE port knows of those who send to it, and whether the ICRC of their packets is right.

Whoever can send to this port can name as many sources as he likes.  So nothing is made for one before a
packet of it has proved sound, and then only what IPv4 needs (`Source`).  What is known of a connected peer
lives as long as its connections; all others share a table of their own, in which the one that has been silent
for longest gives way.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import cython

from softhca.wire.arriving import ArrivingRoute
from softhca.wire.drops import DROP_ICRC
from softhca.wire.framing import ROCE_V4, ROCE_V6
from softhca.wire.icrc import syndrome
from softhca.wire.identification import recover

if TYPE_CHECKING:
    from softhca.adapter.counters import PortCounters
    from softhca.transport.connection import Connection
    from softhca.wire.burst import Arrival

FlowKey = tuple[bytes, int, bytes]
"""A sender's address, its UDP port, and the address that it sends to."""

IDENTIFICATION_WINDOW = 4096

_DROP_ICRC = cython.declare(cython.int, DROP_ICRC)
_WINDOW = cython.declare(cython.ulonglong, IDENTIFICATION_WINDOW)
# Linux lets an identification grow by up to one a clock tick, of 1 ms at least, while nothing is sent.
_GROWTH_SHIFT = cython.declare(cython.int, 19)  # one in 0.52 ms
_ROCE_V4 = cython.declare(cython.int, ROCE_V4)
_ROCE_V6 = cython.declare(cython.int, ROCE_V6)


class Sender:
    """An address that packets come from: what one of its flows used last as IPv4 identification (−1: none
    that is counted), and when.  Linux counts one for each pair of addresses, whatever the port.
    """

    def __init__(self) -> None:
        self.identification = -1
        self.seen_ns = 0


class Source:
    """One IPv4 flow that sound packets have come from (addresses and UDP port), and what the next may bear.

    A socket does not show the IPv4 identification that the ICRC covers.  0 is tried first; else it is
    recovered from the CRC's difference, which lets one damaged packet in 2^16 pass.  So what is recovered
    must lie near what the same flow, or another of its ``sender``'s, used last (``IDENTIFICATION_WINDOW``
    either way, and more with the time since, in which Linux lets it grow by chance).  A flow that jumps is
    believed when a second packet lies near the first one behind the jump, at the price of that first one.
    """

    def __init__(self, address: bytes, port: int, destination: bytes, sender: Sender) -> None:
        self.address = address
        self.port = port
        self.destination = destination
        self.sender = sender
        # One that leaves it 0 counts at most the segments of a burst that was cut on its way.
        self.identification = 0
        self.seen_ns = 0
        self.counts = False
        self.candidate = -1

    def believes(self, found: int, now: int) -> bool:
        """Whether the next packet may bear this identification; what is believed is what it used last."""
        if not (self._expects(found, now) or self._jumps(found)):
            return False
        self.take(found, now)
        return True

    def take(self, found: int, now: int) -> None:
        """The flow has used this identification."""
        self.counts = True
        self.identification = self.sender.identification = found
        self.seen_ns = self.sender.seen_ns = now

    def _expects(self, found: int, now: int) -> bool:
        """Whether an identification lies near the last one of this flow, or of any of its sender's."""
        if not self.counts:
            return _near(found, self.identification, _WINDOW)
        growth: cython.ulonglong = (now - self.seen_ns) >> _GROWTH_SHIFT
        if _near(found, self.identification, _WINDOW + growth):
            return True
        growth = (now - self.sender.seen_ns) >> _GROWTH_SHIFT
        return _near(found, self.sender.identification, _WINDOW + growth)

    def _jumps(self, found: int) -> bool:
        """Whether an identification lies near the last one that was refused; if not, it is that."""
        if self.candidate >= 0 and _near(found, self.candidate, _WINDOW):
            self.candidate = -1
            return True
        self.candidate = found
        return False


def _near(found: int, last: int, window: int) -> bool:
    """Whether two identifications are at most ``window`` apart, either way, modulo 2^16."""
    distance: cython.uint = (found - last) & 0xFFFF
    return distance <= window or 0x10000 - distance <= window


class Sources:
    """The sources of one port.  ``limit`` bounds the table of those that no connection has; ``counters`` are
    the port's.

    ``unconnected`` is that table, ``connected`` are the flows that connections have, ``senders`` the
    addresses of both.  ``checked`` counts the ICRCs that were computed.
    """

    routes: tuple[ArrivingRoute, ...]
    unconnected: dict[FlowKey, Source]
    connected: weakref.WeakValueDictionary[FlowKey, Source]
    senders: weakref.WeakValueDictionary[bytes, Sender]
    last: Source

    def __init__(self, limit: int, counters: PortCounters) -> None:
        self.limit = limit
        self.counters = counters
        self.routes = (None, ArrivingRoute(_ROCE_V4), ArrivingRoute(_ROCE_V6))
        self.route = self.routes[_ROCE_V4]
        self.unconnected = {}
        self.connected = weakref.WeakValueDictionary()
        self.senders = weakref.WeakValueDictionary()
        self.last = None
        self.checked = 0

    def aim(self, arrival: Arrival) -> bool:
        """The packets of ``arrival`` are looked at next; False when nobody can send from such an address."""
        route: ArrivingRoute = self.route
        if route.framing != arrival.framing:
            if arrival.framing != _ROCE_V4 and arrival.framing != _ROCE_V6:
                return False
            route = self.route = self.routes[arrival.framing]
        return route.aim(arrival.source, arrival.destination, arrival.source_port)

    def check(self, queue_pair: Connection, address: int, n: int, now: int) -> int:
        """0 when the packet BTH…ICRC, ``n`` bytes at ``address``, is sound, else ``DROP_ICRC``.

        ``queue_pair``: the connected one whose peer has the source's address, or None.
        """
        found: cython.int = 0
        source: Source
        difference: cython.uint = syndrome(self.route, address, n)
        self.checked += 1
        if difference == 0 and queue_pair is not None and queue_pair.source is not None:
            return 0
        if self.route.framing != _ROCE_V4:
            return 0 if difference == 0 else _DROP_ICRC
        if difference:
            found = recover(self.route, difference, n)
            if found < 0:
                return _DROP_ICRC
        source = self._known(queue_pair)
        if source is None:
            source = self._new(queue_pair)
            if difference:
                source.take(found, now)
        elif difference and not source.believes(found, now):
            return _DROP_ICRC
        if difference:
            self.counters.identifications_recovered += 1
        return 0

    def _known(self, queue_pair: Connection) -> Source:
        """The flow that is looked at, if a sound packet of it has come before."""
        source: Source = self.last if queue_pair is None else queue_pair.source
        if source is not None and self._is(source):
            return source
        key = self._key()
        if queue_pair is not None and source is None:
            source = queue_pair.source = self.connected.get(key)
            return source
        source = self.unconnected.pop(key, None)
        if source is not None:
            self.unconnected[key] = source
            self.last = source
        return source

    def _new(self, queue_pair: Connection) -> Source:
        """Remember the flow that is looked at.  A connection keeps the one that it began with."""
        key = self._key()
        sender: Sender = self.senders.get(key[0])
        if sender is None:
            sender = self.senders[key[0]] = Sender()
        source: Source = Source(*key, sender)
        if queue_pair is not None and queue_pair.source is None:
            queue_pair.source = self.connected[key] = source
            return source
        if len(self.unconnected) >= self.limit:
            del self.unconnected[next(iter(self.unconnected))]
        self.unconnected[key] = self.last = source
        return source

    def _key(self) -> FlowKey:
        return self.route.source, self.route.source_port, self.route.destination

    def _is(self, source: Source) -> bool:
        """Whether ``source`` is the flow that is looked at."""
        return (
            source.port == self.route.source_port
            and source.address == self.route.source
            and source.destination == self.route.destination
        )
