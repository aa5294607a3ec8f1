"""A node of a fabric as its management agents know it: ports, forwarding tables, what it tells by traps."""

from __future__ import annotations

from dataclasses import replace

from softhca.fabric.port_state import PortState
from softhca.fabric.topology import Node, Topology
from softhca.management.attributes import NodeInfo, node_description
from softhca.management.subnet_attributes import SwitchInfo

CA_PKEYS = 64
SWITCH_PKEYS = 32
LINEAR_ENTRIES = 0xC000
MULTICAST_ENTRIES = 1024
MULTICAST_FIRST = 0xC000
MULTICAST_BLOCK = 32
POSITION_PORTS = 16
NO_PORT = 0xFF
"""What a forwarding table has for a LID that leads nowhere."""
LINEAR_BLOCK = 64


class NodeState:
    """Node ``index`` of a topology, as it comes from the factory: no LIDs, empty tables."""

    def __init__(self, topology: Topology, index: int) -> None:
        node = topology.nodes[index]
        self.index = index
        self.node: Node = node
        self.is_switch = node.is_switch
        self.ports = [
            None if number == 0 and not node.is_switch else self._port(topology, number)
            for number in range(node.port_count + 1)
        ]
        self.description = node_description(node.description)
        self.linear = bytearray()
        self.linear_top = 0
        self.multicast: dict[int, bytes] = {}
        self.switch_info = SwitchInfo()
        if node.is_switch:
            self.switch_info = SwitchInfo(
                linear_fdb_cap=LINEAR_ENTRIES,
                multicast_fdb_cap=MULTICAST_ENTRIES,
                lifetime=18,
                partition_enforcement_cap=SWITCH_PKEYS,
                inbound_enforcement_cap=1,
                outbound_enforcement_cap=1,
                filter_raw_inbound_cap=1,
                filter_raw_outbound_cap=1,
                enhanced_port_zero=int(node.enhanced_port_zero),
            )
        self._info = [self._node_info(number) for number in range(node.port_count + 1)]

    def _port(self, topology: Topology, number: int) -> PortState:
        link = topology.link_at(self.index, number)
        return PortState(self.node, number, None if link is None else topology.links[link])

    def _node_info(self, number: int) -> bytes:
        node = self.node
        return NodeInfo(
            node_type=int(node.kind),
            num_ports=node.port_count,
            system_image_guid=node.system_guid,
            node_guid=node.guid,
            port_guid=node.port_guid(number if number or node.is_switch else 1),
            partition_cap=self.pkeys_cap(number if not node.is_switch else 0),
            device_id=node.device_id,
            local_port_num=number,
            vendor_id=node.vendor_id,
        ).encode()

    def info(self, entrance: int) -> bytes:
        """NodeInfo for who has come in by a port."""
        return self._info[entrance]

    def pkeys_cap(self, port: int) -> int:
        """How many P_Keys a port's table has."""
        return SWITCH_PKEYS if self.is_switch else CA_PKEYS

    def port(self, number: int) -> PortState | None:
        """A port by its number; None: there is none."""
        return self.ports[number] if 0 <= number < len(self.ports) else None

    def own_port(self, entrance: int) -> PortState:
        """The port that the agent of an entrance speaks for: a switch's port 0, else the entrance."""
        port = self.ports[0 if self.is_switch else entrance]
        assert port is not None
        return port

    def forward(self, lid: int) -> int:
        """By which port a switch sends on what goes to a unicast LID: 0 is itself, `NO_PORT` nowhere."""
        port = self.ports[0]
        if port is not None and port.info.lid and port.has_lid(lid):
            return 0
        return self.linear[lid] if lid <= self.linear_top and lid < len(self.linear) else NO_PORT

    def multicast_ports(self, mlid: int) -> list[int]:
        """By which ports a switch sends on what goes to a multicast LID; 0 is itself (14.2.5.12)."""
        block, place = divmod(mlid - MULTICAST_FIRST, MULTICAST_BLOCK)
        found = []
        for position in range(len(self.ports) // POSITION_PORTS + 1):
            data = self.multicast.get(position << 28 | block)
            if data is not None:
                mask = data[2 * place] << 8 | data[2 * place + 1]
                found += [position * POSITION_PORTS + bit for bit in range(POSITION_PORTS) if mask >> bit & 1]
        return found

    def set_switch_info(self, **values: int) -> None:
        """Fields of SwitchInfo have these values from now on."""
        self.switch_info = replace(self.switch_info, **values)
        self.linear_top = self.switch_info.linear_fdb_top

    def set_linear(self, block: int, data: bytes) -> None:
        """Entries of 64 LIDs."""
        at = block * LINEAR_BLOCK
        if len(self.linear) < at + LINEAR_BLOCK:
            self.linear.extend(bytes([NO_PORT]) * (at + LINEAR_BLOCK - len(self.linear)))
        self.linear[at : at + LINEAR_BLOCK] = data

    def linear_block(self, block: int) -> bytes:
        """Entries of 64 LIDs."""
        data = bytes(self.linear[block * LINEAR_BLOCK : (block + 1) * LINEAR_BLOCK])
        return data or bytes([NO_PORT]) * LINEAR_BLOCK
