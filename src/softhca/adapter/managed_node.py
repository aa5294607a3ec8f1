"""The adapter as the subnet management agents of its ports see it (`management.agents.ManagedNode`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from softhca.adapter.attributes import MTU_4096, PHYS_LINK_UP, VL_0, VL_0_TO_14
from softhca.management.attributes import NodeInfo, PortInfo

if TYPE_CHECKING:
    from softhca.adapter.engine import Adapter
    from softhca.adapter.port import Port

DESCRIPTION = "softhca"
EXTENDED_SPEED_SHIFT = 4
EXTENDED2_SPEED_SHIFT = 8
"""ibv_port_attr's active speeds from 16 (FDR) on are PortInfo's extended ones, from 1; from 256 (XDR) on the
second extended ones."""
SPEED_QDR = 4
RESPONSE_TIME = 18
"""How soon an agent answers: within 4.096 µs × 2^18."""


class ManagedAdapter:
    """``adapter``, asked at ``port``."""

    description = DESCRIPTION

    def __init__(self, adapter: Adapter, port: Port) -> None:
        self._adapter = adapter
        self._port = port

    def node_info(self) -> NodeInfo:
        """`ManagedNode.node_info`."""
        attributes = self._adapter.device_attributes
        return NodeInfo(
            num_ports=len(self._adapter.ports),
            system_image_guid=attributes["sys_image_guid"],
            node_guid=attributes["node_guid"],
            port_guid=int.from_bytes(self._port.gid_table[0][8:], "big"),
            partition_cap=self._adapter.config.pkey_table_length,
            device_id=attributes["vendor_part_id"],
            revision=attributes["hw_ver"],
            local_port_num=self._port.number,
            vendor_id=attributes["vendor_id"],
        )

    def port_info(self, port_number: int) -> PortInfo | None:
        """`ManagedNode.port_info`."""
        number = port_number or self._port.number
        if number > len(self._adapter.ports):
            return None
        port = self._adapter.ports[number - 1]
        own = port.own
        lanes = VL_0_TO_14 if port.native else VL_0
        return PortInfo(
            gid_prefix=port.gid_prefix,
            lid=port.lid,
            sm_lid=port.sm_lid,
            local_port_num=self._port.number,
            link_width_enabled=own.active_width,
            link_width_supported=own.active_width,
            link_width_active=own.active_width,
            link_speed_supported=SPEED_QDR,
            state=port.state,
            phys_state=PHYS_LINK_UP,
            lmc=port.lmc,
            link_speed_active=min(own.active_speed, SPEED_QDR),
            link_speed_enabled=SPEED_QDR,
            neighbor_mtu=own.active_mtu,
            sm_sl=port.sm_sl,
            vl_cap=lanes,
            mtu_cap=MTU_4096,
            operational_vls=lanes,
            p_key_violations=min(port.bad_pkeys(), 0xFFFF),
            q_key_violations=min(self._adapter.counters.drops_qkey, 0xFFFF),
            guid_cap=min(self._adapter.config.gid_table_length, 0xFF),
            subnet_timeout=port.subnet_timeout,
            resp_time_value=RESPONSE_TIME,
            link_speed_ext2_active=own.active_speed >> EXTENDED2_SPEED_SHIFT & 1,
            link_speed_ext2_supported=own.active_speed >> EXTENDED2_SPEED_SHIFT & 1,
            link_speed_ext2_enabled=own.active_speed >> EXTENDED2_SPEED_SHIFT & 1,
            link_speed_ext_active=own.active_speed >> EXTENDED_SPEED_SHIFT & 0xF,
            link_speed_ext_supported=own.active_speed >> EXTENDED_SPEED_SHIFT & 0xF,
            link_speed_ext_enabled=own.active_speed >> EXTENDED_SPEED_SHIFT & 0xF,
        )

    def set_port_info(self, port_number: int, values: Mapping[str, int]) -> None:
        """`ManagedNode.set_port_info`; without a state the port stays in the one that it is in."""
        number = port_number or self._port.number
        state = self._adapter.ports[number - 1].state
        self._adapter.set_port_info(number, **{"state": state, **values})
