"""Transmission of bursts from an adapter to its links, with one pending burst that a link had no room for.

The route of a burst determines its link: the ring to a peer on the same host, or the port's own link.
The link is looked up for a route's first burst, and again when the links have changed (``epoch``).

For the adapter a burst counts as sent once it is filled.  While a burst is pending, nothing else is taken
from the adapter; the burst is offered to its link again at the next turn, or after ``RETRY_NS``.  A full ring
to one peer would block all others, so there the wait is bounded.  A reliable burst goes by the port's
own link at once (the PSNs restore the order).  Any other burst is dropped after ``LIFETIME_NS``, as a switch
drops the head of a queue that is not drained.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

import cython

from softhca.links.link import AGAIN, SENT, Link
from softhca.wire.burst import Burst
from softhca.wire.icrc import seal
from softhca.wire.route import ROCE_PORT

if TYPE_CHECKING:
    from softhca.adapter.engine import Adapter
    from softhca.runtime.same_host_port import SameHostPort
    from softhca.runtime.same_host_ring import PacketReceiver
    from softhca.wire.route import Route

__all__ = ["BURSTS", "LIFETIME_NS", "NEVER", "RETRY_NS", "Transmitter"]

NEVER = (1 << 63) - 1

BURSTS = 8
"""Most bursts that one call sends."""

RETRY_NS = 200_000
"""After so long a pending burst is offered to its link again."""

LIFETIME_NS = 1_000_000
"""How long an unreliable burst waits for room in the ring to a peer on this host."""

_AGAIN = cython.declare(cython.int, AGAIN)
_ENOBUFS = cython.declare(cython.int, errno.ENOBUFS)
_EPIPE = cython.declare(cython.int, errno.EPIPE)
_BURSTS = cython.declare(cython.int, BURSTS)
_LIFETIME_NS = cython.declare(cython.ulonglong, LIFETIME_NS)
_ROCE_PORT = cython.declare(cython.uint, ROCE_PORT)
_NEVER = cython.declare(cython.ulonglong, NEVER)
_SENT = cython.declare(cython.int, SENT)
_RETRY_NS = cython.declare(cython.ulonglong, RETRY_NS)


class Transmitter:
    """Takes bursts from a port of ``adapter`` and gives them to their links, ``link`` where there is no
    shorter one.

    ``pending``: the burst is filled, and its link had no room for it when it was last tried, at ``tried_ns``,
    nor since ``pending_ns``; ``waits_for`` is that link (None: the port's own).  ``dropped`` counts bursts
    that found no room for too long.  ``rings``: those of packets from peers on this host,
    `PacketReceiver` each, which are read beside the link; ``ring_of`` gives the ring for a route to such a
    peer, or None.  Both are a `SameHostPort`'s, where `use_rings` has named one.
    """

    waits_for: Link
    rings: list[PacketReceiver]
    ring_of: Callable[[Route], Link]

    def __init__(self, adapter: Adapter, link: Link, port_number: int = 1) -> None:
        self.adapter = adapter
        self.port_number = port_number
        self.link = link
        self.burst = Burst()
        self.pending = False
        self.pending_ns = 0
        self.tried_ns = 0
        self.waits_for = None
        self.dropped = 0
        self.rings = []
        self.ring_of = None
        self.epoch = 0

    def use_rings(self, port: SameHostPort) -> None:
        """Read and use the rings of a `SameHostPort`."""
        self.rings = port.receivers
        self.ring_of = port.link_of
        port.changed = self.links_changed
        self.links_changed()

    def links_changed(self) -> None:
        """Another link may be there for a route, or one may be there no more."""
        self.epoch += 1

    def transmit(self, now: int) -> bool:
        """Send what is due, a bounded number of bursts; whether anything was sent."""
        worked: cython.bint = False
        result: cython.int
        _turn: cython.int
        for _turn in range(_BURSTS):
            if not self.pending and not self.adapter.transmit(self.port_number, self.burst, now):
                break
            result = self.carry(self.burst, now) if self.epoch else self.send_sealed(self.burst)
            if result == _AGAIN:
                if not self.pending:
                    self.pending = True
                    self.pending_ns = now
                self.tried_ns = now
                break
            self.pending = False
            worked = True
        return worked

    def carry(self, burst: Burst, now: int) -> int:
        """Give a burst to the link of its route; that link's answer."""
        link: Link = self.waits_for if self.pending else self.link_of(burst.route)
        result: cython.int
        self.waits_for = link
        if link is None:
            return self.send_sealed(burst)
        result = link.send(burst)
        if result == _SENT:
            return result
        if result == -_EPIPE or burst.reliable():
            # it may overtake what the ring still holds, which may also be lost: PSNs detect both
            self.waits_for = None
            return self.send_sealed(burst)
        if result == _AGAIN and not (self.pending and now - self.pending_ns > _LIFETIME_NS):
            return result
        link.abandon(burst)
        self.dropped += 1
        return -_ENOBUFS

    def send_sealed(self, burst: Burst) -> int:
        """Give a burst to the port's own link, whatever its route's link was when it was written."""
        if not burst.has_icrc:
            seal(burst)
        return self.link.send(burst)

    def link_of(self, route: Route) -> Link:
        """The link that carries a route; None: the port's own."""
        link: Link
        if route.link_epoch != self.epoch:
            # the ring carries packets of the transport; frames (`adapter.segment`) have another port
            link = route.link = self.ring_of(route) if route.destination_port == _ROCE_PORT else None
            route.link_epoch = self.epoch
            route.needs_icrc = link is None or link.needs_icrc
        return route.link

    def deadline(self) -> int:
        """When a burst that is pending is to be offered again; ``NEVER`` when none is."""
        if not self.pending:
            return _NEVER
        return self.tried_ns + _RETRY_NS
