"""What a manager writes into nodes, and what it takes for written, each by itself."""

from __future__ import annotations

from typing import Any

from softhca.fabric.generators import torus
from softhca.fabric.manager import configuration
from softhca.fabric.manager.configuration import activation_writes, forget_reset
from softhca.fabric.manager.discovery import FoundNode
from softhca.fabric.manager.managed_fabric import ManagedFabric
from softhca.fabric.manager.packets import PORT
from softhca.fabric.topology import NodeKind
from softhca.management import constants as c
from softhca.management.attributes import NodeInfo
from softhca.management.subnet_attributes import SwitchInfo

SWITCH_GUID, ADAPTER_GUID = 0x100, 0x200


def port_info(**values: int) -> bytes:
    data = bytearray(64)
    for name, value in values.items():
        PORT.put(data, name, value)
    return bytes(data)


def switch(top: int = 5, **ports: Any) -> FoundNode:
    info = NodeInfo(node_type=NodeKind.SWITCH, num_ports=4, node_guid=SWITCH_GUID)
    return FoundNode(info, {0: b"\1"}, switch=SwitchInfo(linear_fdb_top=top), **ports)


def adapter(**values: int) -> FoundNode:
    info = NodeInfo(node_type=NodeKind.CHANNEL_ADAPTER, num_ports=1, node_guid=ADAPTER_GUID)
    return FoundNode(info, {1: b"\1\2"}, ports={1: port_info(**values)})


def test_a_port_that_is_made_active_is_not_asked_to_register_once_more() -> None:
    node = adapter(state=configuration.ARMED, lid=7, client_reregister=1)
    (write,) = activation_writes({ADAPTER_GUID: node})
    assert (PORT.get(write.data, "state"), PORT.get(write.data, "client_reregister")) == (4, 0)
    assert list(activation_writes({ADAPTER_GUID: adapter(state=configuration.ACTIVE)})) == []


def test_nodes_that_were_reset_or_are_gone_have_nothing_of_what_was_written() -> None:
    guids = SWITCH_GUID, ADAPTER_GUID, 9
    for top, lid, kept in ((5, 7, {1, 2}), (0, 7, {2}), (5, 0, {1}), (0, 0, set())):
        shadow = {(guid, c.ATTRIBUTE_PKEY_TABLE, number): b"x" for number, guid in enumerate(guids, 1)}
        forget_reset({SWITCH_GUID: switch(top), ADAPTER_GUID: adapter(lid=lid)}, shadow)
        assert {modifier for _, _, modifier in shadow} == kept


def test_what_was_written_last_is_not_known_until_the_node_has_said_so() -> None:
    node, shadow = switch(), {}

    def write(data: bytes) -> list[configuration.Write]:
        return list(
            configuration._table(shadow, node, SWITCH_GUID, c.ATTRIBUTE_LINEAR_FORWARDING, 3, data)
        )

    (first,) = write(b"old")
    first.done(b"")
    assert write(b"old") == []
    write(b"new")  # nobody answers: the node may have it or not
    (again,) = write(b"old")
    again.done(b"")
    assert write(b"old") == []


def test_blocks_of_keys_that_are_no_more_are_emptied_once() -> None:
    node, shadow, problems = adapter(), {}, []

    def write(keys: list[int]) -> dict[int, bytes]:
        found = list(
            configuration._pkey_writes(ADAPTER_GUID, node, 1, keys, 128, shadow, problems.append)
        )
        for each in found:
            each.done(b"")
        return {each.modifier: each.data for each in found}

    keys = list(range(0x8001, 0x8001 + 70))
    assert [block for block, data in write(keys).items() if any(data)] == [0, 1, 2]
    assert write(keys) == {}
    assert write(keys[:32]) == {1: bytes(64), 2: bytes(64)}
    assert write(keys[:32]) == {}
    assert problems == []


def test_a_switch_s_own_packets_have_lanes_too() -> None:
    fabric = torus([3, 3], 1)
    managed = ManagedFabric(fabric)
    managed.add((0, 1))
    managed.settle()
    for node in managed.plane.nodes:
        if node.is_switch:
            for port in node.ports[1:]:
                if port is not None and port.linked:
                    assert port.sl_to_vl[0] == port.sl_to_vl[1] != b""
