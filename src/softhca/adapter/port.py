"""A port: its P_Key and GID tables, what it knows of senders, and the windows towards destinations.

Both tables of peers are bounded, and the peer that has been silent for longest gives way.
"""

import cython

from softhca.adapter.counters import PortCounters
from softhca.transport.window import DestinationWindow
from softhca.wire.drops import DROP_ICRC
from softhca.wire.icrc import syndrome
from softhca.wire.identification import recover
from softhca.wire.route import Route

IDENTIFICATION_WINDOW = 4096

_DROP_ICRC = cython.declare(cython.int, DROP_ICRC)
_WINDOW = cython.declare(cython.uint, IDENTIFICATION_WINDOW)
_ROCE_V4 = cython.declare(cython.int, 1)


class Source:
    """One flow that packets come from (address and UDP port), and how its ICRC is checked.

    A socket does not show the IPv4 identification that the ICRC covers.  0 is tried first; else it is
    recovered from the CRC's difference, which lets one damaged packet in 2^16 pass.  So what is recovered
    must lie near what the same sender used last (``IDENTIFICATION_WINDOW`` either way); a sender that jumps
    is believed when a second packet lies near the first one behind the jump, at the price of that first one.
    """

    def __init__(self, route, counters):
        self.route = route
        self.counters = counters
        self.identification = -1
        self.candidate = -1

    def check(self, address, n):
        """0 when the packet BTH…ICRC, ``n`` bytes at ``address``, is sound, else ``DROP_ICRC``."""
        found: cython.int
        difference: cython.uint = syndrome(self.route, address, n)
        if difference == 0:
            if self.identification < 0:
                # One that leaves it 0 counts at most the segments of a burst that was cut on its way.
                self.identification = 0
            return 0
        if self.route.framing != _ROCE_V4:
            return _DROP_ICRC
        found = recover(self.route, difference, n, self.identification, _WINDOW)
        if found < 0 and self.identification >= 0:
            found = self._jump(difference, n)
        if found < 0:
            return _DROP_ICRC
        self.identification = found
        self.counters.identifications_recovered += 1
        return 0

    def _jump(self, difference, n):
        """The identification of a packet that lies near the last one that was refused; −1 otherwise."""
        found: cython.int = recover(self.route, difference, n, self.candidate, _WINDOW)
        if found >= 0 and self.candidate >= 0:
            self.candidate = -1
            return found
        self.candidate = recover(self.route, difference, n)
        return -1


class Port:
    """Port 1 of an adapter.  ``config`` gives the tables, ``overhead_for`` (GID → bytes) the cost of a
    datagram to a destination beyond its own bytes (see ``DestinationWindow``), or None.
    """

    def __init__(self, config, overhead_for=None):
        self.config = config
        self.counters = PortCounters()
        self.gids = frozenset(config.gids)
        self.pkeys = config.pkeys
        self.overhead_for = overhead_for
        self.sources = {}
        self.windows = {}
        self.last_source = None

    def source_of(self, arrival):
        """What is known of the sender of ``arrival``; it is made when it is new.  None: it cannot be a
        sender.
        """
        source: Source = self.last_source
        if (
            source is not None
            and source.route.source_port == arrival.source_port
            and source.route.source == arrival.source
            and source.route.destination == arrival.destination
            and source.route.framing == arrival.framing
        ):
            return source
        key = (arrival.source, arrival.source_port, arrival.destination, arrival.framing)
        source = self.sources.pop(key, None)
        if source is None:
            try:
                route = Route(arrival.framing, arrival.source, arrival.destination, arrival.source_port)
            except (ValueError, TypeError):
                return None
            source = Source(route, self.counters)
            if len(self.sources) >= self.config.max_sources:
                self.sources.pop(next(iter(self.sources)))
        self.sources[key] = source
        self.last_source = source
        return source

    def window_for(self, destination):
        """The window towards a destination GID, one for all queue pairs.

        When there are too many, the one used longest ago in which nothing is in flight and nobody waits is
        forgotten here; its users keep theirs.  A busy one never is, so there are at most as many more as
        queue pairs that send.
        """
        window = self.windows.pop(destination, None)
        if window is None:
            if len(self.windows) >= self.config.max_windows:
                self._forget_window()
            overhead = self.overhead_for(destination) if self.overhead_for is not None else 0
            window = DestinationWindow(packet_overhead_bytes=overhead)
        self.windows[destination] = window
        return window

    def _forget_window(self):
        for destination, window in self.windows.items():
            if window.in_flight_bytes == 0 and not window.waiters and window.turn is None:
                del self.windows[destination]
                return

    def pkey(self, index):
        """The P_Key at ``index`` of the table; 0 (which matches nothing) beyond its end."""
        return self.pkeys[index] if 0 <= index < len(self.pkeys) else 0


def pkeys_match(ours, theirs):
    """Whether two P_Keys name one partition and at least one is a full member (IBTA vol. 1, 10.9.1.2,
    C10-119).
    """
    if (ours ^ theirs) & 0x7FFF or not ours & 0x7FFF:
        return False
    return ((ours | theirs) & 0x8000) != 0
