"""Attributes as lists of fields: NodeDescription, NodeInfo, PortInfo (IBTA vol. 1, 14.2.5), ClassPortInfo
(13.4.8.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from softhca.management.constants import BASE_VERSION
from softhca.wire.layout import Field, Header

NODE_DESCRIPTION_BYTES = 64
NODE_TYPE_CA = 1


@dataclass(frozen=True, slots=True)
class NodeInfo(Header):
    """What a node is: its type, GUIDs, maker, how many ports it has, and by which one it was asked."""

    LENGTH_BYTES: ClassVar[int] = 40
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("base_version", 8),
        Field("class_version", 8),
        Field("node_type", 8),
        Field("num_ports", 8),
        Field("system_image_guid", 64),
        Field("node_guid", 64),
        Field("port_guid", 64),
        Field("partition_cap", 16),
        Field("device_id", 16),
        Field("revision", 32),
        Field("local_port_num", 8),
        Field("vendor_id", 24),
    )

    base_version: int = BASE_VERSION
    class_version: int = 1
    node_type: int = NODE_TYPE_CA
    num_ports: int = 1
    system_image_guid: int = 0
    node_guid: int = 0
    port_guid: int = 0
    partition_cap: int = 1
    device_id: int = 0
    revision: int = 0
    local_port_num: int = 1
    vendor_id: int = 0


@dataclass(frozen=True, slots=True)
class PortInfo(Header):
    """What a port is and how a subnet manager has configured it, under ``ibv_port_attr``'s names where it has
    them.
    """

    LENGTH_BYTES: ClassVar[int] = 64
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("m_key", 64),
        Field("gid_prefix", 64),
        Field("lid", 16),
        Field("sm_lid", 16),
        Field("capability_mask", 32),
        Field("diag_code", 16),
        Field("m_key_lease_period", 16),
        Field("local_port_num", 8),
        Field("link_width_enabled", 8),
        Field("link_width_supported", 8),
        Field("link_width_active", 8),
        Field("link_speed_supported", 4),
        Field("state", 4),
        Field("phys_state", 4),
        Field("link_down_default_state", 4),
        Field("m_key_protect_bits", 2),
        Field("reserved3", 3),
        Field("lmc", 3),
        Field("link_speed_active", 4),
        Field("link_speed_enabled", 4),
        Field("neighbor_mtu", 4),
        Field("sm_sl", 4),
        Field("vl_cap", 4),
        Field("init_type", 4),
        Field("vl_high_limit", 8),
        Field("vl_arbitration_high_cap", 8),
        Field("vl_arbitration_low_cap", 8),
        Field("init_type_reply", 4),
        Field("mtu_cap", 4),
        Field("vl_stall_count", 3),
        Field("hoq_life", 5),
        Field("operational_vls", 4),
        Field("partition_enforcement_inbound", 1),
        Field("partition_enforcement_outbound", 1),
        Field("filter_raw_inbound", 1),
        Field("filter_raw_outbound", 1),
        Field("m_key_violations", 16),
        Field("p_key_violations", 16),
        Field("q_key_violations", 16),
        Field("guid_cap", 8),
        Field("client_reregister", 1),
        Field("multicast_pkey_trap_suppression", 2),
        Field("subnet_timeout", 5),
        Field("reserved3b", 3),
        Field("resp_time_value", 5),
        Field("local_phy_errors", 4),
        Field("overrun_errors", 4),
        Field("max_credit_hint", 16),
        Field("reserved1", 1),
        Field("link_speed_ext2_active", 2),
        Field("link_speed_ext2_supported", 2),
        Field("link_speed_ext2_enabled", 3),
        Field("link_round_trip_latency", 24),
        Field("capability_mask2", 16),
        Field("link_speed_ext_active", 4),
        Field("link_speed_ext_supported", 4),
        Field("reserved3c", 3),
        Field("link_speed_ext_enabled", 5),
    )

    m_key: int = 0
    gid_prefix: int = 0
    lid: int = 0
    sm_lid: int = 0
    capability_mask: int = 0
    diag_code: int = 0
    m_key_lease_period: int = 0
    local_port_num: int = 1
    link_width_enabled: int = 0
    link_width_supported: int = 0
    link_width_active: int = 0
    link_speed_supported: int = 0
    state: int = 0
    phys_state: int = 0
    link_down_default_state: int = 0
    m_key_protect_bits: int = 0
    reserved3: int = 0
    lmc: int = 0
    link_speed_active: int = 0
    link_speed_enabled: int = 0
    neighbor_mtu: int = 0
    sm_sl: int = 0
    vl_cap: int = 0
    init_type: int = 0
    vl_high_limit: int = 0
    vl_arbitration_high_cap: int = 0
    vl_arbitration_low_cap: int = 0
    init_type_reply: int = 0
    mtu_cap: int = 0
    vl_stall_count: int = 0
    hoq_life: int = 0
    operational_vls: int = 0
    partition_enforcement_inbound: int = 0
    partition_enforcement_outbound: int = 0
    filter_raw_inbound: int = 0
    filter_raw_outbound: int = 0
    m_key_violations: int = 0
    p_key_violations: int = 0
    q_key_violations: int = 0
    guid_cap: int = 0
    client_reregister: int = 0
    multicast_pkey_trap_suppression: int = 0
    subnet_timeout: int = 0
    reserved3b: int = 0
    resp_time_value: int = 0
    local_phy_errors: int = 0
    overrun_errors: int = 0
    max_credit_hint: int = 0
    reserved1: int = 0
    link_speed_ext2_active: int = 0
    link_speed_ext2_supported: int = 0
    link_speed_ext2_enabled: int = 0
    link_round_trip_latency: int = 0
    capability_mask2: int = 0
    link_speed_ext_active: int = 0
    link_speed_ext_supported: int = 0
    reserved3c: int = 0
    link_speed_ext_enabled: int = 0


@dataclass(frozen=True, slots=True)
class ClassPortInfo(Header):
    """What a port has of a management class: versions, capabilities, how soon it answers (4.096 µs ×
    2^``resp_time_value``), and where requests are redirected and traps are sent.
    """

    LENGTH_BYTES: ClassVar[int] = 72
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("base_version", 8),
        Field("class_version", 8),
        Field("capability_mask", 16),
        Field("capability_mask2", 27),
        Field("resp_time_value", 5),
        Field("redirect_gid", 128, True),
        Field("redirect_traffic_class", 8),
        Field("redirect_sl", 4),
        Field("redirect_flow_label", 20),
        Field("redirect_lid", 16),
        Field("redirect_pkey", 16),
        Field("reserved8", 8),
        Field("redirect_qpn", 24),
        Field("redirect_qkey", 32),
        Field("trap_gid", 128, True),
        Field("trap_traffic_class", 8),
        Field("trap_sl", 4),
        Field("trap_flow_label", 20),
        Field("trap_lid", 16),
        Field("trap_pkey", 16),
        Field("trap_hop_limit", 8),
        Field("trap_qpn", 24),
        Field("trap_qkey", 32),
    )

    base_version: int = BASE_VERSION
    class_version: int = 1
    capability_mask: int = 0
    capability_mask2: int = 0
    resp_time_value: int = 18
    redirect_gid: bytes = bytes(16)
    redirect_traffic_class: int = 0
    redirect_sl: int = 0
    redirect_flow_label: int = 0
    redirect_lid: int = 0
    redirect_pkey: int = 0
    reserved8: int = 0
    redirect_qpn: int = 0
    redirect_qkey: int = 0
    trap_gid: bytes = bytes(16)
    trap_traffic_class: int = 0
    trap_sl: int = 0
    trap_flow_label: int = 0
    trap_lid: int = 0
    trap_pkey: int = 0
    trap_hop_limit: int = 0
    trap_qpn: int = 0
    trap_qkey: int = 0


def node_description(text: str) -> bytes:
    """The attribute NodeDescription: ``text`` in UTF-8, 64 bytes, cut or filled with zeros."""
    return text.encode()[:NODE_DESCRIPTION_BYTES].decode(errors="ignore").encode().ljust(
        NODE_DESCRIPTION_BYTES, b"\0"
    )
