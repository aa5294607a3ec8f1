"""Subnet administration on the wire: its header and records (IBTA vol. 1, chapter 15).

Component n of a record, which a bit of the component mask stands for, is field n of its layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from softhca.management.attributes import NodeInfo, PortInfo
from softhca.management.subnet_attributes import SMInfo, SwitchInfo
from softhca.wire.layout import Field, Header

CLASS_VERSION = 2

ATTRIBUTE_INFORM_INFO = 0x0003
ATTRIBUTE_NODE_RECORD = 0x0011
ATTRIBUTE_PORT_INFO_RECORD = 0x0012
ATTRIBUTE_SWITCH_INFO_RECORD = 0x0014
ATTRIBUTE_SM_INFO_RECORD = 0x0018
ATTRIBUTE_LINK_RECORD = 0x0020
ATTRIBUTE_SERVICE_RECORD = 0x0031
ATTRIBUTE_PATH_RECORD = 0x0035
ATTRIBUTE_MC_MEMBER_RECORD = 0x0038
ATTRIBUTE_MULTI_PATH_RECORD = 0x003A

STATUS_NO_RESOURCES = 0x0100
STATUS_REQUEST_INVALID = 0x0200
STATUS_NO_RECORDS = 0x0300
STATUS_TOO_MANY_RECORDS = 0x0400
STATUS_INVALID_GID = 0x0500
STATUS_INSUFFICIENT_COMPONENTS = 0x0600
STATUS_DENIED = 0x0700

TRAP_GID_IN, TRAP_GID_OUT, TRAP_GROUP_CREATED, TRAP_GROUP_DELETED = 64, 65, 66, 67


@dataclass(frozen=True, slots=True)
class AdministrationHeader(Header):
    """What stands between the common header and the data: RMPP's header, the key, how long a record is (in
    8 bytes), and which components of the record are asked for (15.2.1.1, 13.6.2.1).
    """

    LENGTH_BYTES: ClassVar[int] = 32
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("rmpp_version", 8),
        Field("rmpp_type", 8),
        Field("rmpp_response_time", 5),
        Field("rmpp_flags", 3),
        Field("rmpp_status", 8),
        Field("segment_number", 32),
        Field("payload_length", 32),
        Field("sm_key", 64),
        Field("attribute_offset", 16),
        Field("reserved16", 16),
        Field("component_mask", 64),
    )

    rmpp_version: int = 0
    rmpp_type: int = 0
    rmpp_response_time: int = 0
    rmpp_flags: int = 0
    rmpp_status: int = 0
    segment_number: int = 0
    payload_length: int = 0
    sm_key: int = 0
    attribute_offset: int = 0
    reserved16: int = 0
    component_mask: int = 0


@dataclass(frozen=True, slots=True)
class NodeRecord(Header):
    """A port's node: its NodeInfo and description (15.2.5.2)."""

    LENGTH_BYTES: ClassVar[int] = 108
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("lid", 16),
        Field("reserved_16", 16),
        *NodeInfo.LAYOUT,
        Field("node_description", 512, True),
    )

    lid: int = 0
    reserved_16: int = 0
    base_version: int = 1
    class_version: int = 1
    node_type: int = 0
    num_ports: int = 0
    system_image_guid: int = 0
    node_guid: int = 0
    port_guid: int = 0
    partition_cap: int = 0
    device_id: int = 0
    revision: int = 0
    local_port_num: int = 0
    vendor_id: int = 0
    node_description: bytes = bytes(64)


@dataclass(frozen=True, slots=True)
class PortInfoRecord(Header):
    """A port's PortInfo, as its bytes (15.2.5.3)."""

    LENGTH_BYTES: ClassVar[int] = 68
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("endport_lid", 16),
        Field("port_num", 8),
        Field("options", 8),
        Field("port_info", 8 * PortInfo.LENGTH_BYTES, True),
    )

    endport_lid: int = 0
    port_num: int = 0
    options: int = 0
    port_info: bytes = bytes(PortInfo.LENGTH_BYTES)


@dataclass(frozen=True, slots=True)
class SwitchInfoRecord(Header):
    """A switch's SwitchInfo, as its bytes (15.2.5.5)."""

    LENGTH_BYTES: ClassVar[int] = 24
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("lid", 16),
        Field("reserved16", 16),
        Field("switch_info", 8 * SwitchInfo.LENGTH_BYTES, True),
    )

    lid: int = 0
    reserved16: int = 0
    switch_info: bytes = bytes(SwitchInfo.LENGTH_BYTES)


@dataclass(frozen=True, slots=True)
class SMInfoRecord(Header):
    """A subnet manager, as SMInfo's bytes (15.2.5.10)."""

    LENGTH_BYTES: ClassVar[int] = 25
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("lid", 16),
        Field("reserved16", 16),
        Field("sm_info", 8 * SMInfo.LENGTH_BYTES, True),
    )

    lid: int = 0
    reserved16: int = 0
    sm_info: bytes = bytes(SMInfo.LENGTH_BYTES)


@dataclass(frozen=True, slots=True)
class LinkRecord(Header):
    """A link, from one of its ends (15.2.5.13)."""

    LENGTH_BYTES: ClassVar[int] = 8
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("from_lid", 16),
        Field("from_port", 8),
        Field("to_port", 8),
        Field("to_lid", 16),
        Field("reserved16", 16),
    )

    from_lid: int = 0
    from_port: int = 0
    to_port: int = 0
    to_lid: int = 0
    reserved16: int = 0


@dataclass(frozen=True, slots=True)
class ServiceRecord(Header):
    """A service that a port offers, for ``lease`` seconds (0xFFFFFFFF: for ever; 15.2.5.14)."""

    LENGTH_BYTES: ClassVar[int] = 176
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("service_id", 64),
        Field("service_gid", 128, True),
        Field("service_pkey", 16),
        Field("reserved16", 16),
        Field("lease", 32),
        Field("key", 128, True),
        Field("name", 512, True),
        Field("data", 512, True),
    )

    service_id: int = 0
    service_gid: bytes = bytes(16)
    service_pkey: int = 0
    reserved16: int = 0
    lease: int = 0
    key: bytes = bytes(16)
    name: bytes = bytes(64)
    data: bytes = bytes(64)


@dataclass(frozen=True, slots=True)
class PathRecord(Header):
    """A path between two ports: LIDs, service level, MTU, rate (15.2.5.16)."""

    LENGTH_BYTES: ClassVar[int] = 64
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("service_id_msb", 8),
        Field("service_id_lsb", 56),
        Field("dgid", 128, True),
        Field("sgid", 128, True),
        Field("dlid", 16),
        Field("slid", 16),
        Field("raw_traffic", 1),
        Field("reserved3", 3),
        Field("flow_label", 20),
        Field("hop_limit", 8),
        Field("traffic_class", 8),
        Field("reversible", 1),
        Field("num_path", 7),
        Field("pkey", 16),
        Field("qos_class", 12),
        Field("sl", 4),
        Field("mtu_selector", 2),
        Field("mtu", 6),
        Field("rate_selector", 2),
        Field("rate", 6),
        Field("packet_lifetime_selector", 2),
        Field("packet_lifetime", 6),
        Field("preference", 8),
        Field("reserved48", 48),
    )

    service_id_msb: int = 0
    service_id_lsb: int = 0
    dgid: bytes = bytes(16)
    sgid: bytes = bytes(16)
    dlid: int = 0
    slid: int = 0
    raw_traffic: int = 0
    reserved3: int = 0
    flow_label: int = 0
    hop_limit: int = 0
    traffic_class: int = 0
    reversible: int = 0
    num_path: int = 0
    pkey: int = 0
    qos_class: int = 0
    sl: int = 0
    mtu_selector: int = 0
    mtu: int = 0
    rate_selector: int = 0
    rate: int = 0
    packet_lifetime_selector: int = 0
    packet_lifetime: int = 0
    preference: int = 0
    reserved48: int = 0


MULTI_PATH_GIDS = 11
"""So many GIDs one datagram has room for."""


@dataclass(frozen=True, slots=True)
class MultiPathRecord(Header):
    """A question for paths from each of ``sgid_count`` ports to each of ``dgid_count``, whose GIDs are
    ``gids`` in this order (15.2.5.20).  The answer is PathRecords."""

    LENGTH_BYTES: ClassVar[int] = 24 + 16 * MULTI_PATH_GIDS
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("raw_traffic", 1),
        Field("reserved3", 3),
        Field("flow_label", 20),
        Field("hop_limit", 8),
        Field("traffic_class", 8),
        Field("reversible", 1),
        Field("num_path", 7),
        Field("pkey", 16),
        Field("qos_class", 12),
        Field("sl", 4),
        Field("mtu_selector", 2),
        Field("mtu", 6),
        Field("rate_selector", 2),
        Field("rate", 6),
        Field("packet_lifetime_selector", 2),
        Field("packet_lifetime", 6),
        Field("service_id_msb", 8),
        Field("independence_selector", 2),
        Field("reserved6", 6),
        Field("sgid_count", 8),
        Field("dgid_count", 8),
        Field("service_id_lsb", 56),
        Field("gids", 128 * MULTI_PATH_GIDS, True),
    )

    raw_traffic: int = 0
    reserved3: int = 0
    flow_label: int = 0
    hop_limit: int = 0
    traffic_class: int = 0
    reversible: int = 0
    num_path: int = 0
    pkey: int = 0
    qos_class: int = 0
    sl: int = 0
    mtu_selector: int = 0
    mtu: int = 0
    rate_selector: int = 0
    rate: int = 0
    packet_lifetime_selector: int = 0
    packet_lifetime: int = 0
    service_id_msb: int = 0
    independence_selector: int = 0
    reserved6: int = 0
    sgid_count: int = 0
    dgid_count: int = 0
    service_id_lsb: int = 0
    gids: bytes = bytes(16 * MULTI_PATH_GIDS)


@dataclass(frozen=True, slots=True)
class MCMemberRecord(Header):
    """A multicast group, and a port's membership in it (15.2.5.17).  JoinState: 1 full member, 2 non-member,
    4 send only.
    """

    LENGTH_BYTES: ClassVar[int] = 52
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("mgid", 128, True),
        Field("port_gid", 128, True),
        Field("qkey", 32),
        Field("mlid", 16),
        Field("mtu_selector", 2),
        Field("mtu", 6),
        Field("traffic_class", 8),
        Field("pkey", 16),
        Field("rate_selector", 2),
        Field("rate", 6),
        Field("packet_lifetime_selector", 2),
        Field("packet_lifetime", 6),
        Field("sl", 4),
        Field("flow_label", 20),
        Field("hop_limit", 8),
        Field("scope", 4),
        Field("join_state", 4),
        Field("proxy_join", 1),
        Field("reserved23", 23),
    )

    mgid: bytes = bytes(16)
    port_gid: bytes = bytes(16)
    qkey: int = 0
    mlid: int = 0
    mtu_selector: int = 0
    mtu: int = 0
    traffic_class: int = 0
    pkey: int = 0
    rate_selector: int = 0
    rate: int = 0
    packet_lifetime_selector: int = 0
    packet_lifetime: int = 0
    sl: int = 0
    flow_label: int = 0
    hop_limit: int = 0
    scope: int = 0
    join_state: int = 0
    proxy_join: int = 0
    reserved23: int = 0


@dataclass(frozen=True, slots=True)
class InformInfo(Header):
    """Who wants to be told of which traps, or no more (13.4.8.3)."""

    LENGTH_BYTES: ClassVar[int] = 36
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("gid", 128, True),
        Field("lid_range_begin", 16),
        Field("lid_range_end", 16),
        Field("reserved16", 16),
        Field("is_generic", 8),
        Field("subscribe", 8),
        Field("type", 16),
        Field("trap_number", 16),
        Field("qpn", 24),
        Field("reserved3", 3),
        Field("resp_time_value", 5),
        Field("reserved8", 8),
        Field("producer_type", 24),
    )

    gid: bytes = bytes(16)
    lid_range_begin: int = 0
    lid_range_end: int = 0
    reserved16: int = 0
    is_generic: int = 1
    subscribe: int = 0
    type: int = 0xFFFF
    trap_number: int = 0xFFFF
    qpn: int = 1
    reserved3: int = 0
    resp_time_value: int = 0
    reserved8: int = 0
    producer_type: int = 0xFF_FFFF


def matches(record: Header, wanted: Header, component_mask: int) -> bool:
    """Whether a record has what is wanted in each component that the mask names."""
    for place, field in enumerate(record.LAYOUT):
        if component_mask >> place & 1 and getattr(record, field.name) != getattr(wanted, field.name):
            return False
    return True
