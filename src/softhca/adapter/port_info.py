"""What changes at a port while it lives, carried through the adapter: what a subnet manager sets at a native
one (PortInfo, IBTA vol. 1, 14.2.5.6), and the addresses of a RoCE one.

Queue pairs and address handles keep their address vectors; what these say of the own port (path bits, a GID's
index) means the port's present LID and GIDs, so their routes are made anew when those change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from softhca.adapter.gid_table import GidChanges
from softhca.adapter.path_migration import port_failed
from softhca.adapter.paths import route_of
from softhca.adapter.port import PORT_ACTIVE, Port
from softhca.adapter.queue_pair_commands import connection_path
from softhca.queues.control_fields import (
    EVENT_GID_CHANGE,
    EVENT_LID_CHANGE,
    EVENT_PKEY_CHANGE,
    EVENT_PORT_ACTIVE,
    EVENT_PORT_ERR,
    EVENT_SM_CHANGE,
)

if TYPE_CHECKING:
    from softhca.adapter.engine import Adapter
    from softhca.wire.route import Route

Fields = Mapping[str, Any]

_EVENTS = (
    (("lid", "lmc"), EVENT_LID_CHANGE),
    (("gid_prefix",), EVENT_GID_CHANGE),
    (("sm_lid", "sm_sl"), EVENT_SM_CHANGE),
)


def set_port_info(adapter: Adapter, port_number: int, **values: int) -> None:
    """Set fields of `Port.set_info`, renew routes, and report what has changed to every host.  ValueError:
    nothing has changed.
    """
    try:
        port = adapter.port_of(port_number)
    except OSError as error:
        raise ValueError(error.strerror) from None
    before = port.info()
    if not port.set_info(**values):
        return
    after = port.info()
    if any(before[name] != after[name] for name in ("lid", "lmc", "gid_prefix")):
        _renew_routes(adapter, port)
    events = [kind for names, kind in _EVENTS if any(before[name] != after[name] for name in names)]
    if (before["state"] == PORT_ACTIVE) != (after["state"] == PORT_ACTIVE):
        events.append(EVENT_PORT_ACTIVE if after["state"] == PORT_ACTIVE else EVENT_PORT_ERR)
    for host in adapter.hosts.values():
        for kind in events:
            host.report_event(kind, port_number)
    if EVENT_PORT_ERR in events:
        port_failed(adapter, port, adapter.now)


def set_pkeys(adapter: Adapter, port_number: int, pkeys: tuple[int, ...]) -> None:
    """Give a port other P_Keys: its queue pairs have what stands at their index now, and every host hears of
    it (10.9.2, 11.6.3).  ValueError: there are too many, or no such port; nothing has changed.
    """
    try:
        port = adapter.port_of(port_number)
    except OSError as error:
        raise ValueError(error.strerror) from None
    if len(pkeys) > adapter.config.pkey_table_length or not all(0 <= key <= 0xFFFF for key in pkeys):
        raise ValueError(f"{len(pkeys)} P_Keys, or one that cannot be")
    if port.pkeys == pkeys:
        return
    port.pkeys = pkeys
    for queue_pair in adapter.queue_pairs.values():
        if queue_pair.flow.port_number == port_number:
            queue_pair.pkey = port.pkey(queue_pair.pkey_index)
    for host in adapter.hosts.values():
        host.report_event(EVENT_PKEY_CHANGE, port_number)


def set_gids(adapter: Adapter, port_number: int, gids: Iterable[bytes]) -> GidChanges:
    """Give a RoCE port these addresses (`Port.set_gids`) and tell every host, where that changes anything.
    ValueError: they cannot be, one is another port's, or there is no such port; nothing has changed.

    Connections and address handles keep their routes: what begins at an address that has gone is sent on, and
    finds no way.  Where one has come back to its place they go on, from a UDP port of its new socket.
    """
    gids = tuple(gids)
    try:
        port = adapter.port_of(port_number)
    except OSError as error:
        raise ValueError(error.strerror) from None
    for other in adapter.ports:
        if other is not port and not other.gids.isdisjoint(gids):
            raise ValueError(f"a GID is that of port {other.number}")
    changes = port.set_gids(gids)
    if not (changes.added or changes.removed):
        return changes
    _renew_routes(adapter, port, frozenset(changes.added))
    port.segment.renew()
    if adapter.same_host is not None:
        adapter.same_host.gids_changed(frozenset(gid for each in adapter.ports for gid in each.gids))
        touched = {*changes.added, *changes.removed}
        for queue_pair in list(adapter.queue_pairs.values()):
            route = queue_pair.flow.route
            if route is not None and (route.destination in touched or route.source in touched):
                adapter.same_host.publish(queue_pair)
    for host in adapter.hosts.values():
        host.report_event(EVENT_GID_CHANGE, port_number)
    return changes


def _renew_routes(adapter: Adapter, port: Port, sources: frozenset[bytes] | None = None) -> None:
    """Make the routes of a port anew; where ``sources`` are given, those alone that begin at one of these,
    and whose entry is that GID's still.
    """
    port.paths.clear()
    for queue_pair in adapter.queue_pairs.values():
        vector = queue_pair.attributes.get("ah_attr")
        flow = queue_pair.flow
        if vector is None or flow.route is None or flow.port_number != port.number:
            continue
        if sources is None or _begins_at(flow.route, vector, port, sources):
            with suppress(OSError):  # there is no socket for it: it keeps its route
                _, flow.route = connection_path(port, queue_pair, vector, queue_pair.dest_qp)
    for handle in adapter.handles.values():
        if handle.port_number != port.number or handle.vector is None:
            continue
        if sources is None or _begins_at(handle.route, handle.vector, port, sources):
            with suppress(OSError):
                handle.route = route_of(handle.vector, port, handle.number)


def _begins_at(route: Route, vector: Fields, port: Port, sources: frozenset[bytes]) -> bool:
    index = vector.get("sgid_index", 0)
    return route.source in sources and index < len(port.gid_table) and port.gid_table[index] == route.source
