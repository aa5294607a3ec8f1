"""The way of bursts from an adapter to its links, with the one burst that a link had no room for.

A burst that was filled counts as sent for the adapter, so it is not given up: while it is pending nothing
else is taken from the adapter, and it is offered again, at the next turn or after ``RETRY_NS``.
"""

import cython

from softhca.links.link import AGAIN
from softhca.runtime.same_host_ring import PacketSender
from softhca.wire.burst import Burst

__all__ = ["BURSTS", "NEVER", "PORT", "RETRY_NS", "Transmitter"]

NEVER = (1 << 63) - 1

PORT = 1

BURSTS = 8
"""So many bursts are sent in one call at most."""

RETRY_NS = 200_000
"""A burst that the link had no room for is offered again so long after it was."""

_AGAIN = cython.declare(cython.int, AGAIN)
_BURSTS = cython.declare(cython.int, BURSTS)
_NEVER = cython.declare(cython.ulonglong, NEVER)
_PORT = cython.declare(cython.int, PORT)
_RETRY_NS = cython.declare(cython.ulonglong, RETRY_NS)


class Transmitter:
    """Takes bursts from ``adapter`` and gives them to ``link``, or to the ring of the neighbour that they are
    for (``rings``, by GID).  ``pending``: the burst is filled, and the link had no room for it."""

    def __init__(self, adapter, link):
        self.adapter = adapter
        self.link = link
        self.burst = Burst()
        self.pending = False
        self.tried_ns = 0
        self.rings = None

    def transmit(self, now):
        """Send what is due, a bounded number of bursts; whether anything was sent."""
        burst: Burst = self.burst
        worked: cython.bint = False
        _turn: cython.int
        for _turn in range(_BURSTS):
            if not self.pending:
                if not self.adapter.transmit(_PORT, burst, now):
                    break
                if self.rings is not None and self.send_near(burst):
                    worked = True
                    continue
            self.pending = self.link.send(burst) == _AGAIN
            if self.pending:
                self.tried_ns = now
                break
            worked = True
        return worked

    def send_near(self, burst):
        """Hand a burst of a reliable connection to a neighbour on this host; False: the link is its way."""
        ring: PacketSender = self.rings.get(burst.route.destination)
        return ring is not None and burst.data[0] >> 5 == 0 and ring.send(burst)

    def deadline(self):
        """When a burst that is pending is to be offered again; ``NEVER`` when none is."""
        if not self.pending:
            return _NEVER
        return self.tried_ns + _RETRY_NS
