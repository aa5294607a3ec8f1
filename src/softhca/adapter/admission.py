"""Whether a queue pair may have a packet: its service, its state, its P_Key, and where the packet is from."""

from __future__ import annotations

import cython

from softhca.adapter.port import pkeys_match, same_port
from softhca.transport.connection import Connection
from softhca.transport.flow import Flow
from softhca.transport.migration import ARMED
from softhca.transport.states import ERR, INIT, RESET
from softhca.wire import drops
from softhca.wire.burst import Arrival
from softhca.wire.link_view import LinkView
from softhca.wire.packet_view import PacketView
from softhca.wire.route import Route

_ARMED = cython.declare(cython.int, ARMED)
_RESET = cython.declare(cython.int, RESET)
_INIT = cython.declare(cython.int, INIT)
_ERR = cython.declare(cython.int, ERR)
_NATIVE = cython.declare(cython.int, 0)
_PKEY = cython.declare(cython.int, drops.DROP_PKEY)
_SERVICE = cython.declare(cython.int, drops.DROP_SERVICE)
_SOURCE = cython.declare(cython.int, drops.DROP_SOURCE)
_STATE = cython.declare(cython.int, drops.DROP_STATE)
_UNKNOWN_QP = cython.declare(cython.int, drops.DROP_UNKNOWN_QP)


def receives(queue_pair: Connection) -> bool:
    """Whether a queue pair takes packets in its present state."""
    return queue_pair.state != _RESET and queue_pair.state != _INIT and queue_pair.state != _ERR


def expects(queue_pair: Connection, port_number: int) -> bool:
    """Whether a queue pair may get packets by a port that is not its own: the peer's, when it migrates."""
    return queue_pair.migration == _ARMED and queue_pair.alternate.port_number == port_number


def from_peer(queue_pair: Connection, arrival: Arrival, link: LinkView, port_number: int) -> bool:
    """Whether a packet that has come by a port, of native ones with the headers ``link``, comes from where a
    queue pair's packets come from: the connected peer's port, with ``strict_source_port`` its UDP port too;
    of an armed connection also the other end of its alternate path; anywhere for datagrams.
    """
    if not queue_pair.connected:
        return True
    flow: Flow = queue_pair.flow
    if flow.port_number == port_number and _along(queue_pair, flow.route, arrival, link):
        return True
    return expects(queue_pair, port_number) and _along(queue_pair, queue_pair.alternate.route, arrival, link)


def _along(queue_pair: Connection, route: Route, arrival: Arrival, link: LinkView) -> bool:
    if route is None:
        return False
    if arrival.framing == _NATIVE:
        return same_port(route, link)
    if route.destination != arrival.source:
        return False
    return queue_pair.source_port == 0 or queue_pair.source_port == arrival.source_port


def admitted(
    queue_pair: Connection, arrival: Arrival, view: PacketView, link: LinkView, port_number: int
) -> int:
    """Whether a queue pair (None: there is none of this number) may have the packet; 0 or a drop reason, the
    first in the standard's order (IBTA vol. 1, 9.6.1)."""
    if queue_pair is None:
        return _UNKNOWN_QP
    if queue_pair.service != view.service:
        return _SERVICE
    if not receives(queue_pair):
        return _STATE
    if not pkeys_match(queue_pair.pkey, view.pkey):
        return _PKEY
    return 0 if from_peer(queue_pair, arrival, link, port_number) else _SOURCE
