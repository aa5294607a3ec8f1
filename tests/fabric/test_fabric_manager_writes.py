"""What a manager writes into nodes, and what it takes for written, each by itself."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

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


def test_what_nobody_has_answered_is_written_again_as_it_was() -> None:
    node, shadow = adapter(), {}
    for _ in range(2):
        place = node, ADAPTER_GUID, c.ATTRIBUTE_SL_TO_VL_TABLE, 3, b"data", 1
        assert len(list(configuration._table(shadow, *place))) == 1
        writes = configuration._pkey_writes(ADAPTER_GUID, node, 1, [5], 128, shadow, lambda _: None)
        assert len(list(writes)) == 1


def test_a_switch_s_own_port_is_made_active_by_nobody() -> None:
    armed = port_info(state=configuration.ARMED)
    node = switch(ports={0: armed, 2: armed})
    assert [write.modifier for write in activation_writes({SWITCH_GUID: node})] == [2]


def test_an_adapter_with_one_lid_has_not_been_reset() -> None:
    node = adapter(lid=7)
    node.ports[2] = port_info()
    shadow = {(ADAPTER_GUID, c.ATTRIBUTE_PKEY_TABLE, 1): b"x"}
    forget_reset({ADAPTER_GUID: node}, shadow)
    assert len(shadow) == 1


def test_changes_of_a_switch_s_ports_are_cleared_once_they_have_been_seen() -> None:
    node = switch()
    (write,) = configuration.switch_info_writes({SWITCH_GUID: node, 9: adapter()}, 40, 0xC005)
    said = SwitchInfo.decode(write.data)
    assert (said.linear_fdb_top, said.multicast_fdb_top, said.port_state_change) == (40, 0xC005, 1)
    for change, clear, writes in ((0, True, 0), (1, False, 0), (1, True, 1)):
        node.switch = replace(said, port_state_change=change)
        found = list(configuration.switch_info_writes({SWITCH_GUID: node}, 40, 0xC005, clear))
        assert len(found) == writes
    found[0].done(replace(said, port_state_change=0).encode())
    assert list(configuration.switch_info_writes({SWITCH_GUID: node}, 40, 0xC005)) == []
    (again,) = configuration.switch_info_writes({SWITCH_GUID: node}, 40, 0xC006, clear=False)
    assert SwitchInfo.decode(again.data).port_state_change == 0


def test_where_one_lane_is_enough_no_lanes_are_written() -> None:
    routes: Any = SimpleNamespace(routing=SimpleNamespace(lanes=1))
    assert list(configuration.lane_writes({}, routes, [], {})) == []


def answered(writes: Any) -> dict[tuple[int, int], bytes]:
    """What is written, by attribute and modifier, and taken by the node."""
    found = {}
    for write in list(writes):
        write.done(b"")
        found[write.attribute, write.modifier] = write.data
    return found


def test_keys_of_a_table_that_is_no_whole_number_of_blocks_are_emptied_too() -> None:
    node, shadow = adapter(), {}

    def write(port: int, count: int) -> list[int]:
        place = ADAPTER_GUID, node, port, [5] * count, 40, shadow, lambda _: None
        return [modifier for _, modifier in answered(configuration._pkey_writes(*place))]

    node.paths[2] = b"\1\3"
    assert write(1, 33) == [0, 1]
    assert write(1, 1) == [0, 1]
    assert write(1, 1) == []
    assert write(2, 1) == [0]  # each port has a table of its own


def test_lanes_are_written_for_each_pair_of_ports_and_their_arbitration() -> None:
    node = switch(peers={2: (7, 1), 3: (8, 1)})
    lanes = np.zeros((4, 16), np.uint8)
    lanes[2, :3] = (1, 0, 1)
    routing = SimpleNamespace(lanes=2, lanes_of=lambda number: lanes)
    routes: Any = SimpleNamespace(routing=routing, graph=SimpleNamespace(switches=np.array([0])))
    found = answered(configuration.lane_writes({SWITCH_GUID: node}, routes, [SWITCH_GUID], {}))
    tables, arbitration = c.ATTRIBUTE_SL_TO_VL_TABLE, c.ATTRIBUTE_VL_ARBITRATION
    assert {place for place in found if place[0] == tables} == {
        (tables, entering << 8 | leaving) for entering in (0, 2, 3) for leaving in (2, 3)
    }
    assert found[tables, 2] == found[tables, 3 << 8 | 2] == bytes((0x10, 0x10)) + bytes(6)
    assert found[tables, 2 << 8 | 3] == bytes(8)
    for port in (2, 3):
        assert found[arbitration, 1 << 16 | port] == bytes((0, 64, 1, 64)).ljust(64, b"\0")
    assert len(found) == 8


def test_a_group_s_ports_stand_in_blocks_by_its_lid_and_go_with_it() -> None:
    node, shadow = switch(), {}
    routes: Any = SimpleNamespace(graph=SimpleNamespace(switches=np.array([0])))

    def write(trees: Any) -> dict[int, bytes]:
        place = {SWITCH_GUID: node}, routes, [SWITCH_GUID], trees, shadow
        return {at: data for (_, at), data in answered(configuration.multicast_writes(*place)).items()}

    ports = np.zeros(40, np.bool_)
    ports[[1, 9, 17]] = True
    first = configuration.MULTICAST_FIRST
    block = configuration.MULTICAST_BLOCK
    found = write({first + block + 2: {0: ports}, first: {1: ports}})
    assert found == {  # position 0 has ports 0 to 15, the higher byte first
        1: bytes(4) + bytes((0x02, 0x02)) + bytes(58), 1 << 28 | 1: bytes(4) + bytes((0, 2)) + bytes(58),
    }  # fmt: skip
    assert write({first + block + 2: {0: ports}}) == {}
    assert write({}) == {1: bytes(64), 1 << 28 | 1: bytes(64)}
    assert write({}) == {}
