"""The control commands of queue pairs (see ``commands.py``)."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from softhca.adapter.config import MTU_BYTES
from softhca.adapter.path_migration import alternate_of, check_migration
from softhca.adapter.paths import check_vector
from softhca.adapter.port import Port
from softhca.adapter.resources import Kind, Resource
from softhca.adapter.rings import cost_of, layout_of
from softhca.management.constants import GENERAL_QPN
from softhca.memory.regions import FLUSH_GLOBAL, FLUSH_PERSISTENT, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE
from softhca.queues import qp_attributes
from softhca.queues.control_fields import (
    CREATE_TELLS_LOSSES,
    QP_EVENTS,
)
from softhca.queues.ring import RingConsumer
from softhca.queues.wqe import receive_bytes, send_bytes
from softhca.transport.connection import Connection
from softhca.transport.context import QueuePair
from softhca.transport.pacing import LEAST_RATE_KBPS, MOST_RATE_KBPS
from softhca.transport.services import BY_RAW_SERVICE, SERVICES, Service, of_type
from softhca.transport.states import FRAMES, RAW, RD, UC, broken_rule
from softhca.wire.flows import flow_label
from softhca.wire.route import Route

if TYPE_CHECKING:
    from softhca.adapter.engine import Adapter
    from softhca.adapter.hosts import Host

NO_SRQ = 0
NO_DOMAIN = 0
"""Of a queue pair without a protection domain: no key is of that one."""
_REMOTE_RIGHTS = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | FLUSH_GLOBAL | FLUSH_PERSISTENT
_CAPABILITIES = ("max_send_wr", "max_recv_wr", "max_send_sge", "max_recv_sge", "max_inline_data")

Fields = dict[str, Any]


def _check_capabilities(adapter: Adapter, fields: Fields) -> None:
    """EINVAL for capabilities beyond the adapter's limits."""
    config = adapter.config
    limits = {
        "max_send_wr": config.max_qp_wr,
        "max_recv_wr": config.max_qp_wr,
        "max_send_sge": config.max_sge,
        "max_recv_sge": config.max_sge,
        "max_inline_data": config.max_inline_bytes,
    }
    for name, limit in limits.items():
        if fields[name] > limit:
            raise OSError(errno.EINVAL, f"{name} = {fields[name]} is beyond the adapter's {limit}")


def work_ring(
    adapter: Adapter, host: Host, fields: Fields, prefix: str, entries: int, entry_bytes: int
) -> RingConsumer:
    """One work queue's ring, checked against what it must hold."""
    return RingConsumer(
        layout_of(
            host.address_map,
            fields,
            least_entries=max(entries, 1),
            most_entries=adapter.config.max_qp_wr,
            least_entry_bytes=entry_bytes,
            most_entry_bytes=entry_bytes,
            prefix=prefix,
        )
    )


def _uses_of(adapter: Adapter, host: Host, row: Service, fields: Fields) -> dict[str, Resource]:
    """What the new queue pair stands on, by the names of the command's fields; EINVAL for what it cannot
    have."""
    kinds: dict[str, Kind] = {}
    if row.sends:
        kinds.update(pd=Kind.PD, send_cq=Kind.CQ)
    else:
        kinds["xrcd"] = Kind.XRCD  # a target: its domain has all the rest
    if row.domain:
        kinds["rdd"] = Kind.RDD
    if row.receives:
        kinds["recv_cq"] = Kind.CQ
        if fields["srq"] != NO_SRQ and row.number != RD:  # that service is older
            kinds["srq"] = Kind.SRQ
    for name in ("pd", "send_cq", "recv_cq", "srq", "xrcd", "rdd"):
        if fields[name] and name not in kinds:
            raise OSError(errno.EINVAL, f"{name}: a queue pair of {row.name} has none")
    find = adapter.resources.find
    return {name: find(kind, fields[name], host.number, name) for name, kind in kinds.items()}


def create_qp(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """CREATE_QP: a queue pair in RESET over the host's rings; without a receive ring when it has an SRQ."""
    row = of_type(fields["qp_type"])
    if row is None:
        raise OSError(errno.EOPNOTSUPP, f"qp_type = {fields['qp_type']} is not supported")
    if row.key == BY_RAW_SERVICE and not any(port.native for port in adapter.ports):
        if not adapter.config.ethernet_frames:
            raise OSError(errno.EOPNOTSUPP, "qp_type: no Ethernet frames leave by this adapter's link")
        row = SERVICES[FRAMES]
    service = row.number
    if service not in adapter.config.profile.services:
        raise OSError(errno.EOPNOTSUPP, f"qp_type: this {adapter.config.profile} has no such queue pairs")
    if fields["create_flags"] & ~CREATE_TELLS_LOSSES:
        raise OSError(errno.EOPNOTSUPP, "create_flags: no such flag is supported")
    if fields["create_flags"] and service != UC:
        raise OSError(errno.EINVAL, "create_flags: only UC reports missing packets (o9-131)")
    _check_capabilities(adapter, fields)
    uses = _uses_of(adapter, host, row, fields)
    element = {name: resource.element for name, resource in uses.items()}
    number = adapter.resources.reserve(Kind.QP)
    send_ring = receive_ring = None
    if row.sends:
        send_entry_bytes = send_bytes(fields["max_send_sge"], fields["max_inline_data"])
        send_ring = work_ring(adapter, host, fields, "send_", fields["max_send_wr"], send_entry_bytes)
    if row.receives and "srq" not in uses:
        receive_entry_bytes = receive_bytes(fields["max_recv_sge"])
        receive_ring = work_ring(adapter, host, fields, "recv_", fields["max_recv_wr"], receive_entry_bytes)
    rings = [ring.layout for ring in (send_ring, receive_ring) if ring is not None]
    cost_bytes = sum(map(cost_of, rings))
    adapter.resources.afford(host.number, cost_bytes, adapter.config.max_host_bytes)
    queue_pair = QueuePair(
        adapter,
        number,
        row,
        uses["pd"].number if "pd" in uses else NO_DOMAIN,
        send_ring,
        receive_ring,
        element.get("send_cq"),
        element.get("recv_cq"),
        shared_receive=element.get("srq"),
        domain=element["xrcd"].domain if "xrcd" in uses else element.get("rdd"),
        max_send_wr=fields["max_send_wr"],
        max_recv_wr=fields["max_recv_wr"],
        max_send_sge=fields["max_send_sge"],
        max_recv_sge=fields["max_recv_sge"],
        max_inline_bytes=fields["max_inline_data"],
        signal_all=bool(fields["sq_sig_all"]),
        tells_losses=bool(fields["create_flags"] & CREATE_TELLS_LOSSES),
    )
    slot = enter(adapter, host, queue_pair, tuple(uses.values()), cost_bytes)
    return {"qp_num": number, "doorbell": slot, **{name: fields[name] for name in _CAPABILITIES}}


def enter(
    adapter: Adapter, host: Host, queue_pair: QueuePair, uses: tuple[Resource, ...], cost_bytes: int = 0
) -> int:
    """Enter a queue pair that has been made; its doorbell."""
    adapter.keyed.add(queue_pair)
    try:
        slot = host.take_slot(queue_pair)
    except OSError:
        adapter.keyed.forget(queue_pair)
        raise
    queue_pair.owner = slot
    adapter.resources.add(Kind.QP, queue_pair.number, host.number, queue_pair, uses, cost_bytes)
    adapter.queue_pairs[queue_pair.number] = queue_pair
    return slot


def _check_pacing(rate_kbps: int, fields: Fields) -> None:
    """EINVAL for a rate limit that is none of the adapter's, and for bursts without one."""
    if rate_kbps and not LEAST_RATE_KBPS <= rate_kbps <= MOST_RATE_KBPS:
        raise OSError(
            errno.EINVAL,
            f"rate_limit = {rate_kbps}: the adapter has 0 and {LEAST_RATE_KBPS} … {MOST_RATE_KBPS} kbit/s",
        )
    for name in ("max_burst_sz", "typical_pkt_sz"):
        if fields.get(name) and not rate_kbps:
            raise OSError(errno.EINVAL, f"{name} = {fields[name]}: without rate_limit there is none")


def check_attributes(adapter: Adapter, queue_pair: Connection, port: Port, attributes: Fields) -> None:
    """EINVAL for values that ``port`` cannot have; the state machine's rules are the transport's."""
    config = adapter.config
    if "port_num" in attributes and queue_pair.service == RAW and not port.native:
        raise OSError(errno.EINVAL, f"port_num = {port.number}: a RoCEv2 port has no raw datagrams")
    if attributes.get("pkey_index", 0) >= len(port.pkeys):
        index = attributes["pkey_index"]
        raise OSError(errno.EINVAL, f"pkey_index = {index}: the table has {len(port.pkeys)} P_Keys")
    active_mtu = port.own.active_mtu
    mtu = attributes.get("path_mtu", active_mtu)
    if mtu not in MTU_BYTES or mtu > active_mtu:
        raise OSError(errno.EINVAL, f"path_mtu = {mtu} is beyond the port's active_mtu = {active_mtu}")
    if "rate_limit" in attributes:
        _check_pacing(attributes["rate_limit"], attributes)
    for name in ("max_rd_atomic", "max_dest_rd_atomic"):
        if attributes.get(name, 0) > adapter.device_attributes["max_qp_rd_atom"]:
            limit = adapter.device_attributes["max_qp_rd_atom"]
            raise OSError(errno.EINVAL, f"{name} = {attributes[name]} is beyond the adapter's {limit}")
    if attributes.get("qp_access_flags", 0) & _REMOTE_RIGHTS & ~config.profile.rights:
        raise OSError(errno.EOPNOTSUPP, f"qp_access_flags: this {config.profile} has no such operations")
    if "ah_attr" in attributes:
        check_vector(attributes["ah_attr"], port, connected=True)


def connection_path(
    port: Port, queue_pair: Connection, vector: Fields, peer: int
) -> tuple[Mapping[str, Any], Route]:
    """The path of a connection to the queue pair ``peer`` along a checked address vector: the vector and the
    route, which others may share.
    """
    return port.paths.find(vector, port, flow_label(queue_pair.number, peer))


def modify_connection(
    adapter: Adapter, port: Port, connection: Connection, attributes: Fields, now: int
) -> None:
    """Give a queue pair or an end-to-end context the attributes, all or none."""
    check_attributes(adapter, connection, port, attributes)
    route = pkey = None
    if "ah_attr" in attributes:
        peer = attributes.get("dest_qp_num", connection.dest_qp)
        attributes["ah_attr"], route = connection_path(port, connection, attributes["ah_attr"], peer)
    if "pkey_index" in attributes:
        pkey = port.pkey(attributes["pkey_index"])
    alternate = alternate_of(adapter, connection, attributes)
    rules, before = connection.row.rules, connection.state
    if "path_mig_state" in attributes or alternate is not None:
        broken = broken_rule(rules, before, attributes)
        if broken:
            raise OSError(errno.EINVAL, broken)
        check_migration(connection, attributes, alternate)
    code = connection.modify(attributes, now, route=route, pkey=pkey, alternate=alternate)
    if code:
        raise OSError(code, broken_rule(rules, before, attributes))
    connection.flow.port_number = connection.port_number


def modify_qp(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """MODIFY_QP: the attributes of the mask, all or none."""
    queue_pair = adapter.resources.find(Kind.QP, fields["qp_num"], host.number).element
    attributes = qp_attributes.unpack(fields["attr_mask"], fields)
    port = adapter.port_of(attributes.get("port_num", queue_pair.port_number))
    if queue_pair.service == FRAMES and "port_num" in attributes:
        port.segment.open()
    modify_connection(adapter, port, queue_pair, attributes, now)
    management = port.management[GENERAL_QPN]
    if (
        "dest_qp_num" in attributes
        and "ah_attr" in attributes
        and not queue_pair.instance
        and management.has_connections
    ):
        vector, peer = attributes["ah_attr"], attributes["dest_qp_num"]
        queue_pair.instance = management.connections.instance_of(host.number, vector, peer)
    if not queue_pair.connected:
        # no path of its own: what the port can carry (IBTA vol. 1, 10.2.3)
        queue_pair.path_mtu_bytes = MTU_BYTES[port.own.active_mtu]
    return {}


def query_qp(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """QUERY_QP: all attributes."""
    queue_pair = adapter.resources.find(Kind.QP, fields["qp_num"], host.number).element
    capabilities = {
        "max_send_wr": queue_pair.max_send_wr,
        "max_recv_wr": queue_pair.max_recv_wr,
        "max_send_sge": queue_pair.max_send_sge,
        "max_recv_sge": queue_pair.max_recv_sge,
        "max_inline_data": queue_pair.max_inline_bytes,
    }
    return qp_attributes.flatten({**queue_pair.query(), **capabilities})


def destroy_qp(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """DESTROY_QP: no completion and no event of it comes afterwards."""
    destroy(adapter, host, adapter.resources.find(Kind.QP, fields["qp_num"], host.number))
    return {}


def destroy(adapter: Adapter, host: Host, resource: Resource) -> None:
    """Free a queue pair: its number, timer, doorbell, groups, raw services, what it waits for, and the
    memory windows of type 2 that it has bound.
    """
    queue_pair = resource.element
    adapter.resources.remove(resource)
    del adapter.queue_pairs[queue_pair.number]
    adapter.keyed.forget(queue_pair)
    queue_pair.close()
    adapter.memory_windows.forget_queue_pair(queue_pair.number)
    adapter.timers.disarm(queue_pair.flow)
    adapter.memory_waiters.remove(queue_pair.flow)
    adapter.groups.forget(queue_pair)
    adapter.raw_services.forget(queue_pair)
    host.give_slot(queue_pair.owner)
    host.forget(QP_EVENTS, queue_pair.number)
