"""A node for agents to speak for, and requests to ask them with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from softhca.management import constants as c
from softhca.management.attributes import NodeInfo, PortInfo
from softhca.management.mad import Address, Mad, MadHeader

PEER = Address(qpn=1, qkey=c.GENERAL_QKEY, gid=bytes(10) + b"\xff\xff\xc0\x00\x02\x02")
OTHER = replace(PEER, gid=bytes(10) + b"\xff\xff\xc0\x00\x02\x03")


class Node:
    """Two ports, the agent's is 1.  LID 0 is refused where a state beyond INIT is asked for."""

    description = "a node"

    def __init__(self) -> None:
        self.ports = {1: PortInfo(lid=17, local_port_num=1, state=4), 2: PortInfo(local_port_num=2, state=2)}

    def node_info(self) -> NodeInfo:
        return NodeInfo(num_ports=2, node_guid=0x1234)

    def port_info(self, port_number: int) -> PortInfo | None:
        return self.ports.get(port_number or 1)

    def set_port_info(self, port_number: int, values: Mapping[str, int]) -> None:
        if not values["lid"] and values.get("state", 0) > 2:
            raise ValueError("no LID")
        number = port_number or 1
        self.ports[number] = replace(self.ports[number], **values)


def request(
    attribute: int,
    method: int = c.METHOD_GET,
    management_class: int = c.CLASS_SUBN_LID,
    modifier: int = 0,
    transaction_id: int = 0xAAAA_BBBB_0000_0001,
    data: bytes = b"",
    **others: int,
) -> Mad:
    """A request, by default one of subnet management."""
    header = MadHeader(
        management_class=management_class,
        method=method,
        transaction_id=transaction_id,
        attribute_id=attribute,
        attribute_modifier=modifier,
        **others,
    )
    return Mad.make(header, data)
