"""Commands of hosts for the communication manager of a port: channels, listeners, connections, SIDR."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from softhca.adapter.connection_manager import QP_TYPES, HostConnections, PortConnections, port_at
from softhca.adapter.gid_table import NO_GID
from softhca.adapter.host_agents import destination_of
from softhca.adapter.resources import Kind, Resource
from softhca.adapter.rings import cost_of, layout_of
from softhca.management.cm import messages as m
from softhca.management.cm.elements import EE_CONTEXT
from softhca.management.constants import GENERAL_QKEY, GENERAL_QPN, LID_PERMISSIVE
from softhca.management.mad import Address
from softhca.queues.control_fields import CM_WAY, QPT_RD
from softhca.queues.layout import CM_ENTRY_BYTES, MAX_CM_ENTRIES
from softhca.wire.route import V4_MAPPED_PREFIX

if TYPE_CHECKING:
    from softhca.adapter.engine import Adapter
    from softhca.adapter.hosts import Host

_SERVICES = {qp_type: service for service, qp_type in QP_TYPES.items()}
_WIDTHS = {
    "qp_num": 24,
    "starting_psn": 24,
    "retry_cnt": 3,
    "rnr_retry": 3,
    "srq": 1,
    "flow_control": 1,
    "flow_label": 20,
    "sl": 4,
    "path_mtu": 4,
    "ack_timeout": 5,
    "packet_rate": 6,
    "cm_response_timeout": 5,
    "max_cm_retries": 4,
}
"""Bits that messages have for what a command says in more."""
_WAY = tuple(name for name, _ in CM_WAY)
_NARROW = _WIDTHS | {f"alternate_{name}": _WIDTHS[name] for name in _WAY if name in _WIDTHS}

Fields = dict[str, Any]


def open_cm(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """OPEN_CM: a channel, in whose ring the host finds what happens to its connections on a port; events go
    to its event channel, where it names one.
    """
    sink = host.event_channel(fields["channel"]) if fields["channel"] else None
    connections = adapter.port_of(fields["port_num"]).management[1].connections
    layout = layout_of(
        host.address_map,
        fields,
        least_entries=1,
        most_entries=MAX_CM_ENTRIES,
        least_entry_bytes=CM_ENTRY_BYTES,
        most_entry_bytes=CM_ENTRY_BYTES,
    )
    cost_bytes = cost_of(layout, produces=True)
    adapter.resources.afford(host.number, cost_bytes, adapter.config.max_host_bytes)
    number = adapter.resources.reserve(Kind.CM)
    channel = HostConnections(adapter, host, connections, layout, number, cost_bytes, sink)
    connections.channels.append(channel)
    adapter.resources.add(Kind.CM, number, host.number, channel, (), cost_bytes)
    return {"cm": number}


def close_cm(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """CLOSE_CM: all that was begun on the channel ends; its peers are told."""
    resource = adapter.resources.find(Kind.CM, fields["cm"], host.number)
    release_channel(adapter, host, resource)
    adapter.resources.remove(resource)
    return {}


def release_channel(adapter: Adapter, host: Host, resource: Resource) -> None:
    """A channel goes: nothing is written into its ring afterwards."""
    channel: HostConnections = resource.element
    channel.connections.channels.remove(channel)
    channel.connections.manager.destroy_all(channel, adapter.now)
    channel.connections.arm()
    channel.end()


def _channel(adapter: Adapter, host: Host, fields: Fields) -> HostConnections:
    found: HostConnections = adapter.resources.find(Kind.CM, fields["cm"], host.number).element
    return found


def _channel_for(adapter: Adapter, host: Host, fields: Fields) -> HostConnections:
    """The channel of a command that sends; EINVAL for a value that its message has no room for."""
    channel = _channel(adapter, host, fields)
    for name, bits in _NARROW.items():
        value = fields.get(name, 0)
        if value >> bits:
            raise OSError(errno.EINVAL, f"{name} = {value}: expected 0…{(1 << bits) - 1}")
    return channel


def cm_listen(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """CM_LISTEN: requests for a service ID go to the channel."""
    channel = _channel(adapter, host, fields)
    channel.require_room()
    number = channel.connections.manager.listen(channel, fields["service_id"], fields["backlog"])
    channel.add(number)
    return {"id": number}


def cm_connect(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """CM_CONNECT: send REQ."""
    channel = _channel_for(adapter, host, fields)
    channel.require_room()
    port = channel.connections.port
    peer = _peer(channel.connections, fields)
    service = _SERVICES.get(fields["qp_type"])
    if service is None:
        raise OSError(errno.EINVAL, f"qp_type: {fields['qp_type']} is no type of a connected queue pair")
    _require_own(channel, fields)
    request = m.Req.of(
        service_id=fields["service_id"],
        partition_key=peer.pkey,
        transport_service_type=service,
        extended_transport_type=m.EXTENDED_XRC if service == m.SERVICE_EXTENDED else 0,
        remote_cm_response_timeout=fields["cm_response_timeout"],
        local_cm_response_timeout=fields["cm_response_timeout"],
        max_cm_retries=fields["max_cm_retries"],
        path_mtu=fields["path_mtu"],
        retry_count=fields["retry_cnt"],
        primary_local_lid=port.lid if port.native else LID_PERMISSIVE,
        primary_remote_lid=peer.lid if port.native else LID_PERMISSIVE,
        primary_local_gid=peer.own_gid or bytes(16),
        primary_remote_gid=peer.gid or bytes(16),
        primary_flow_label=fields["flow_label"],
        primary_traffic_class=fields["traffic_class"],
        primary_hop_limit=fields["hop_limit"],
        primary_sl=fields["sl"],
        primary_subnet_local=int(port.native),
        primary_ack_timeout=fields["ack_timeout"],
        private_data=_private(m.Req, fields),
        **_queue_pair(fields),
        **_alternate_of_request(adapter, fields),
    )
    request = channel.instances.request(request, peer)
    number = channel.connections.manager.connect(channel, peer, request, now)
    channel.instances.sent(number, request)
    channel.add(number)
    channel.connections.arm()
    return {"id": number}


def cm_reply(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """CM_REPLY: accept a request."""
    channel = _channel_for(adapter, host, fields)
    _require_own(channel, fields)
    reply = m.Rep.of(
        failover_accepted=_failover(fields["failover"]),
        target_ack_delay=adapter.device_attributes["local_ca_ack_delay"],
        private_data=_private(m.Rep, fields),
        **_queue_pair(fields),
    )
    reply = channel.instances.reply(fields["id"], reply)
    channel.connections.manager.reply(channel, fields["id"], reply, now)
    channel.instances.forget(fields["id"])
    channel.connections.arm()
    return {}


def cm_ready(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """CM_READY: send RTU."""
    channel = _channel(adapter, host, fields)
    channel.connections.manager.ready(channel, fields["id"], fields["private_data"], now)
    return {}


def cm_reject(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """CM_REJECT: send REJ."""
    channel = _channel(adapter, host, fields)
    channel.connections.manager.reject(
        channel, fields["id"], fields["reason"], fields["ari"], fields["private_data"], now
    )
    channel.instances.forget(fields["id"])
    return {}


def cm_disconnect(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """CM_DISCONNECT: send DREQ, or DREP where DREQ has come."""
    channel = _channel(adapter, host, fields)
    channel.connections.manager.disconnect(channel, fields["id"], fields["private_data"], now)
    channel.connections.arm()
    return {}


def cm_establish(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """CM_ESTABLISH: the peer's data have come."""
    channel = _channel(adapter, host, fields)
    channel.connections.manager.establish(channel, fields["id"], now)
    return {}


def cm_resolve(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """CM_RESOLVE: send SIDR_REQ."""
    channel = _channel_for(adapter, host, fields)
    channel.require_room()
    peer = _peer(channel.connections, fields)
    request = m.SidrReq(
        partition_key=peer.pkey, service_id=fields["service_id"], private_data=_private(m.SidrReq, fields)
    )
    number = channel.connections.manager.resolve(
        channel, peer, request, fields["cm_response_timeout"], fields["max_cm_retries"], now
    )
    channel.add(number)
    channel.connections.arm()
    return {"id": number}


def cm_answer(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """CM_ANSWER: send SIDR_REP."""
    channel = _channel_for(adapter, host, fields)
    answer = m.SidrRep(
        status=fields["status"],
        qpn=fields["qp_num"],
        qkey=fields["qkey"],
        private_data=_private(m.SidrRep, fields),
    )
    channel.connections.manager.answer(channel, fields["id"], answer)
    channel.remove(fields["id"])
    return {}


def cm_destroy(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """CM_DESTROY: let go of a listener, connection or resolution."""
    channel = _channel(adapter, host, fields)
    channel.connections.manager.destroy(channel, fields["id"], now)
    channel.remove(fields["id"])
    channel.connections.arm()
    return {}


def cm_load_path(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """CM_LOAD_PATH: send LAP."""
    channel = _channel_for(adapter, host, fields)
    proposed = _alternate(adapter, fields)
    if not proposed:
        raise OSError(errno.EINVAL, "dgid, dlid: the path leads nowhere")
    lap = m.Lap(private_data=_private(m.Lap, fields), **proposed)
    channel.connections.manager.load_path(channel, fields["id"], lap, now)
    channel.connections.arm()
    return {}


def cm_answer_path(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """CM_ANSWER_PATH: send APR."""
    channel = _channel(adapter, host, fields)
    said = fields["information"]
    if len(said) > len(m.Apr().additional_information):
        raise OSError(errno.EINVAL, f"information: APR has 72 bytes of it, not {len(said)}")
    apr = m.Apr(
        additional_information_length=len(said),
        ap_status=fields["status"],
        additional_information=said.ljust(72, b"\0"),
        private_data=_private(m.Apr, fields),
    )
    channel.connections.manager.answer_path(channel, fields["id"], apr, now)
    return {}


def _alternate(adapter: Adapter, path: Fields) -> Fields:
    """An alternate path as REQ and LAP have it; nothing where there is none.  EINVAL: it begins at no port of
    the adapter.
    """
    if not any(path["dgid"]) and not path["dlid"]:
        return {}
    port = port_at(adapter, path["own_gid"], path["own_lid"])
    if port is None:
        raise OSError(errno.EINVAL, "own_gid, own_lid: no port of the adapter has them")
    return {
        "alternate_local_lid": port.lid if port.native else LID_PERMISSIVE,
        "alternate_remote_lid": path["dlid"] if port.native else LID_PERMISSIVE,
        "alternate_local_gid": path["own_gid"],
        "alternate_remote_gid": path["dgid"],
        "alternate_flow_label": path["flow_label"],
        "alternate_packet_rate": path["packet_rate"],
        "alternate_traffic_class": path["traffic_class"],
        "alternate_hop_limit": path["hop_limit"],
        "alternate_sl": path["sl"],
        "alternate_subnet_local": int(port.native),
        "alternate_ack_timeout": path["ack_timeout"],
    }


def _alternate_of_request(adapter: Adapter, fields: Fields) -> Fields:
    """The same of CM_CONNECT's fields."""
    if not any(fields["alternate_dgid"]) and not fields["alternate_dlid"]:
        return {}
    return _alternate(adapter, {name: fields[f"alternate_{name}"] for name in _WAY})


def _failover(value: int) -> int:
    if value > m.FAILOVER_REJECTED:
        raise OSError(errno.EINVAL, f"failover: 0 (accepted), 1 (not supported) or 2 (rejected), not {value}")
    return value


def _private(kind: type[m.Message], fields: Fields) -> bytes:
    try:
        return m.padded(kind, fields["private_data"])
    except ValueError as error:
        raise OSError(errno.EINVAL, f"private_data: {error}") from None


def _require_own(channel: HostConnections, fields: Fields) -> None:
    """EINVAL where the end is another program's: to the peer that would be one that has forgotten its
    connection, which the peer then ends (12.9.8.3.1).
    """
    number = fields["qp_num"]
    if not channel.may_name(number | EE_CONTEXT if fields["qp_type"] == QPT_RD else number):
        raise OSError(errno.EINVAL, f"qp_num = {number}: it is another program's")


def _queue_pair(fields: Fields) -> Fields:
    """A queue pair, or an EE context, as REQ and REP carry it."""
    datagrams = fields["qp_type"] == QPT_RD
    if datagrams and not fields["qp_num"]:
        raise OSError(errno.EINVAL, "qp_num: of reliable datagrams it is the number of an EE context, not 0")
    return {
        "local_qpn": 0 if datagrams else fields["qp_num"],
        "local_eecn": fields["qp_num"] if datagrams else 0,
        "starting_psn": fields["starting_psn"],
        "responder_resources": fields["responder_resources"],
        "initiator_depth": fields["initiator_depth"],
        "rnr_retry_count": fields["rnr_retry"],
        "srq": fields["srq"],
        "end_to_end_flow_control": fields["flow_control"],
    }


def _peer(connections: PortConnections, fields: Fields) -> Address:
    """The peer's queue pair 1, as a datagram there is addressed, from the entry of the own GID table that is
    named; EINVAL for what cannot be.
    """
    gid = fields["dgid"]
    asked = {
        "qpn": GENERAL_QPN,
        "qkey": GENERAL_QKEY,
        "path_bits": 0,
        "dlid": fields["dlid"],
        "sl": fields["sl"],
        "pkey_index": fields["pkey_index"],
        "dgid": gid,
        "is_global": any(gid),
        "traffic_class": fields["traffic_class"],
    }
    peer = destination_of(connections.management, asked)
    index = fields["sgid_index"]
    if not index:
        return replace(peer, own_gid=connections.management.own_gid(peer))
    table = connections.port.gid_table
    if index >= len(table):
        raise OSError(errno.EINVAL, f"sgid_index = {index}: the table has {len(table)} GIDs")
    own = table[index]
    if own == NO_GID:
        raise OSError(errno.EINVAL, f"sgid_index = {index}: its address has gone, and the entry is empty")
    if not connections.port.native and own.startswith(V4_MAPPED_PREFIX) != gid.startswith(V4_MAPPED_PREFIX):
        raise OSError(errno.EINVAL, f"sgid_index = {index}: it is of another version of IP than dgid")
    return replace(peer, own_gid=own)
