"""Alternate paths of connections at the adapter: what hosts may load, and ports that fail."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from softhca.adapter.config import MTU_BYTES
from softhca.adapter.paths import check_vector
from softhca.adapter.port import PORT_ACTIVE, PORT_DOWN, Port
from softhca.queues.control_fields import EVENT_PORT_ACTIVE, EVENT_PORT_ERR
from softhca.transport.connection import Connection
from softhca.transport.migration import ARMED, FAIL, MIGRATED, MOVE, REARMED, TABLE, AlternatePath
from softhca.transport.states import RC, UC
from softhca.wire.flows import flow_label

if TYPE_CHECKING:
    from softhca.adapter.engine import Adapter

Fields = dict[str, Any]


def alternate_of(adapter: Adapter, connection: Connection, attributes: Fields) -> AlternatePath | None:
    """The path of ``alt_ah_attr``, whose companions ``alt_pkey_index``, ``alt_port_num`` and ``alt_timeout``
    are taken out of ``attributes``; None: there is none.  OSError EINVAL, EOPNOTSUPP for what cannot be.
    """
    pkey_index, number, timeout = (
        attributes.pop(name, 0) for name in ("alt_pkey_index", "alt_port_num", "alt_timeout")
    )
    vector = attributes.get("alt_ah_attr")
    if vector is None:
        return None
    if connection.service not in (RC, UC):
        raise OSError(errno.EOPNOTSUPP, "alt_ah_attr: only RC and UC have alternate paths")
    port = adapter.port_of(number, "alt_port_num")
    if pkey_index >= len(port.pkeys):
        raise OSError(errno.EINVAL, f"alt_pkey_index = {pkey_index}: the table has {len(port.pkeys)} P_Keys")
    if timeout > 31:
        raise OSError(errno.EINVAL, f"alt_timeout = {timeout}: expected 0…31")
    _check_mtu(connection, port, attributes)
    check_vector(vector, port, connected=True)
    peer = attributes.get("dest_qp_num", connection.dest_qp)
    vector, route = port.paths.find(vector, port, flow_label(connection.number, peer))
    attributes["alt_ah_attr"] = vector
    return AlternatePath(vector, route, port.number, port.pkey(pkey_index), pkey_index, timeout)


def _check_mtu(connection: Connection, port: Port, attributes: Fields) -> None:
    path_mtu = MTU_BYTES.get(attributes["path_mtu"], 0) if "path_mtu" in attributes else 0
    if (path_mtu or connection.path_mtu_bytes) > MTU_BYTES[port.own.active_mtu]:
        raise OSError(errno.EINVAL, f"alt_port_num = {port.number}: its active_mtu is less than path_mtu")


def check_migration(connection: Connection, attributes: Fields, alternate: AlternatePath | None) -> None:
    """EINVAL for a step of path migration that the consumer cannot ask for."""
    wanted = attributes.get("path_mig_state")
    if wanted is None:
        if alternate is not None and connection.migration != MIGRATED:
            raise OSError(errno.EINVAL, "alt_ah_attr: an armed path is replaced with path_mig_state REARM")
        return
    if wanted == REARMED:
        if alternate is None and connection.alternate is None:
            raise OSError(errno.EINVAL, "path_mig_state: there is no alternate path to rearm")
    elif wanted == ARMED:
        raise OSError(errno.EINVAL, "path_mig_state: ARMED follows REARM by itself, when the peer rearms")
    elif wanted == MIGRATED:
        if (connection.migration, MOVE) not in TABLE:
            raise OSError(errno.EINVAL, "path_mig_state: REARM is not ARMED yet, and cannot migrate")
        if alternate is not None and connection.migration != MIGRATED:
            raise OSError(errno.EINVAL, "alt_ah_attr: this one is not armed, and cannot be migrated to")


def port_failed(adapter: Adapter, port: Port, now: int) -> None:
    """A port carries nothing any more: armed connections leave it."""
    for queue_pair in list(adapter.queue_pairs.values()):
        if queue_pair.migration == ARMED and queue_pair.flow.port_number == port.number:
            queue_pair.migrate(FAIL, now)


def path_taken(adapter: Adapter, queue_pair: Connection) -> None:
    """A queue pair has gone to its alternate path: so do the messages of its connection."""
    for port in adapter.ports:
        management = port.management[1]
        if management.has_connections:
            management.connections.migrated(queue_pair.number, queue_pair.flow.route)


def set_link(adapter: Adapter, port_number: int, up: bool) -> None:
    """The link of a port has gone, or is back; OSError EINVAL: there is no such port.  Every host is told."""
    port = adapter.port_of(port_number)
    state = PORT_DOWN
    if up:
        state = PORT_ACTIVE if not port.native or port.lid else port.state
    if port.state == state:
        return
    port.set_state(state)
    for host in adapter.hosts.values():
        host.report_event(EVENT_PORT_ACTIVE if up else EVENT_PORT_ERR, port_number)
    if not up:
        port_failed(adapter, port, adapter.now)
