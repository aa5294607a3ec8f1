"""What agents of a fabric's nodes let a manager set, and what they refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mad_tools import Tool, bring_up, lid_of

from softhca.fabric.mad_plane import MadPlane
from softhca.fabric.port_state import ACTIVE, ARMED, DOWN, INIT
from softhca.fabric.topology import End, Link, NodeKind, Topology, make_node
from softhca.management import constants as c
from softhca.management.attributes import PortInfo
from softhca.management.mad import Mad, MadHeader
from softhca.management.performance_attributes import (
    ALL_PORTS,
    PortCounters,
    PortCountersExtended,
    PortRcvErrorDetails,
    PortXmitDiscardDetails,
)
from softhca.management.subnet_attributes import TABLES, SwitchInfo

BAD_VALUE = c.STATUS_BAD_VALUE | c.DIRECTION
BAD_ATTRIBUTE = c.STATUS_BAD_ATTRIBUTE | c.DIRECTION
OK = c.DIRECTION
SWITCH, HOST = [1], [1, 2]


def pair() -> tuple[MadPlane, Tool]:
    """A host, a switch of eight ports, and a host at its port 2."""
    nodes = (
        make_node("h0", NodeKind.CHANNEL_ADAPTER, 1, 0x10),
        make_node("s", NodeKind.SWITCH, 8, 0x20),
        make_node("h1", NodeKind.CHANNEL_ADAPTER, 1, 0x30),
    )
    plane = MadPlane(Topology(nodes, (Link(End(0, 1), End(1, 1)), Link(End(1, 2), End(2, 1)))))
    return plane, Tool(plane, (0, 1))


def status(answer: Mad | None) -> int:
    assert answer is not None
    assert answer.header.method == c.METHOD_GET_RESPONSE
    return answer.header.status


REFUSED = -1
CHANGES = {
    # state: what it is after a Set of 0, DOWN, INIT, ARMED, ACTIVE; what goes down trains to INIT at once
    DOWN: (DOWN, DOWN, REFUSED, REFUSED, REFUSED),
    INIT: (INIT, INIT, REFUSED, ARMED, REFUSED),
    ARMED: (ARMED, INIT, REFUSED, ARMED, ACTIVE),
    ACTIVE: (ACTIVE, INIT, REFUSED, REFUSED, ACTIVE),
}


@pytest.mark.parametrize("asked", range(5))
@pytest.mark.parametrize("before", CHANGES)
def test_every_change_of_a_port_s_state(before: int, asked: int) -> None:
    plane, tool = pair()
    reached = {DOWN: [], INIT: [], ARMED: [ARMED], ACTIVE: [ARMED, ACTIVE]}[before]
    for state in reached:
        assert status(tool.set_port(SWITCH, 2, state=state)) == OK
    if before == DOWN:
        plane.fail(1, 0)
    assert tool.port_info(SWITCH, 2).state == before
    answer = tool.set_port(SWITCH, 2, state=asked)
    expected = CHANGES[before][asked]
    assert status(answer) == (BAD_VALUE if expected == REFUSED else OK)
    assert tool.port_info(SWITCH, 2).state == (before if expected == REFUSED else expected)


@pytest.mark.parametrize(
    ("path", "port", "values"),
    [
        (HOST, 0, {"lid": 0xC000}),
        (HOST, 0, {"lid": 0xFFFF}),
        (HOST, 0, {"lid": 5, "lmc": 1}),
        (HOST, 0, {"lid": 0xBFFC, "lmc": 3}),
        (HOST, 0, {"sm_lid": 0xC001}),
        (HOST, 0, {"state": INIT}),
        (HOST, 0, {"phys_state": 5}),
        (SWITCH, 2, {"neighbor_mtu": 6}),
        (SWITCH, 2, {"operational_vls": 5}),
        (SWITCH, 2, {"link_width_enabled": 8}),
        (SWITCH, 2, {"link_speed_enabled": 8}),
        (SWITCH, 2, {"link_speed_ext_enabled": 8}),
        (SWITCH, 2, {"link_down_default_state": 3}),
        (SWITCH, 0, {"state": 1}),
        (SWITCH, 9, {}),
        (HOST, 2, {}),
    ],
)
def test_a_set_of_port_info_that_cannot_be_changes_nothing(
    path: list[int], port: int, values: dict[str, int]
) -> None:
    plane, tool = pair()
    node = plane.nodes[1 if path == SWITCH else 2]
    before = [each.encoded for each in node.ports if each is not None]
    assert status(tool.set_port(path, port, **values)) == BAD_VALUE
    assert [each.encoded for each in node.ports if each is not None] == before
    assert plane.counters["refused_value"] == 1


def test_a_port_that_nobody_has_configured_has_all_its_lanes() -> None:
    _, tool = pair()
    for path, port in ((HOST, 1), (SWITCH, 0), (SWITCH, 2)):
        info = tool.port_info(path, port)
        assert info.operational_vls == info.vl_cap == 4  # VL 0 to 7


def test_what_a_set_of_port_info_changes_at_each_kind_of_port() -> None:
    _, tool = pair()
    own = {"lid": 8, "lmc": 3, "sm_lid": 7, "gid_prefix": 0xFEC0 << 48, "sm_sl": 2, "subnet_timeout": 9}
    link = {
        "neighbor_mtu": 4,
        "operational_vls": 3,
        "vl_high_limit": 5,
        "hoq_life": 12,
        "link_width_enabled": 1,
    }
    for path, port, changed, left in (
        (HOST, 1, own | link, {}),
        (SWITCH, 0, own, link),
        (SWITCH, 2, link, own),
    ):
        before = tool.port_info(path, port)
        assert status(tool.set_port(path, port, **own, **link)) == OK
        after = tool.port_info(path, port)
        assert {name: getattr(after, name) for name in changed} == changed
        assert {name: getattr(after, name) for name in left} == {name: getattr(before, name) for name in left}
        fixed = (
            "capability_mask",
            "mtu_cap",
            "vl_cap",
            "link_width_supported",
            "link_speed_supported",
            "guid_cap",
        )
        assert [getattr(after, name) for name in fixed] == [getattr(before, name) for name in fixed]


def test_all_ones_enable_what_is_supported_and_zero_leaves_it() -> None:
    _, tool = pair()
    before = tool.port_info(SWITCH, 2)
    tool.set_port(SWITCH, 2, link_width_enabled=1, link_speed_enabled=1, link_speed_ext_enabled=30)
    tool.set_port(SWITCH, 2)
    after = tool.port_info(SWITCH, 2)
    assert (after.link_width_enabled, after.link_speed_enabled, after.link_speed_ext_enabled) == (1, 1, 30)
    tool.set_port(SWITCH, 2, link_width_enabled=255, link_speed_enabled=15, link_speed_ext_enabled=31)
    assert tool.port_info(SWITCH, 2) == before


def block(attribute: int, first: int) -> bytes:
    table = TABLES[attribute]
    return table.encode([first] * table.entries)


@pytest.mark.parametrize(
    ("attribute", "path", "modifier", "data", "expected"),
    [
        (c.ATTRIBUTE_PKEY_TABLE, HOST, 0, block(c.ATTRIBUTE_PKEY_TABLE, 0x8001), OK),
        (c.ATTRIBUTE_PKEY_TABLE, HOST, 1, block(c.ATTRIBUTE_PKEY_TABLE, 0x8001), OK),
        (c.ATTRIBUTE_PKEY_TABLE, HOST, 2, b"", BAD_VALUE),
        (c.ATTRIBUTE_PKEY_TABLE, SWITCH, 8 << 16, block(c.ATTRIBUTE_PKEY_TABLE, 7), OK),
        (c.ATTRIBUTE_PKEY_TABLE, SWITCH, 9 << 16, b"", BAD_VALUE),
        (c.ATTRIBUTE_PKEY_TABLE, SWITCH, 1, b"", BAD_VALUE),
        (c.ATTRIBUTE_SL_TO_VL_TABLE, SWITCH, 1 << 8 | 8, block(c.ATTRIBUTE_SL_TO_VL_TABLE, 3), OK),
        (c.ATTRIBUTE_SL_TO_VL_TABLE, SWITCH, 1 << 8 | 9, b"", BAD_VALUE),
        (c.ATTRIBUTE_SL_TO_VL_TABLE, SWITCH, 9 << 8 | 1, b"", BAD_VALUE),
        (c.ATTRIBUTE_SL_TO_VL_TABLE, HOST, 0, block(c.ATTRIBUTE_SL_TO_VL_TABLE, 3), OK),
        (c.ATTRIBUTE_VL_ARBITRATION, SWITCH, 1 << 16 | 2, block(c.ATTRIBUTE_VL_ARBITRATION, 0x0E10), OK),
        (c.ATTRIBUTE_VL_ARBITRATION, SWITCH, 3 << 16 | 2, block(c.ATTRIBUTE_VL_ARBITRATION, 0x0010), OK),
        (
            c.ATTRIBUTE_VL_ARBITRATION,
            SWITCH,
            1 << 16 | 2,
            block(c.ATTRIBUTE_VL_ARBITRATION, 0x0F10),
            BAD_VALUE,
        ),
        (c.ATTRIBUTE_VL_ARBITRATION, SWITCH, 2 << 16 | 2, b"", BAD_VALUE),
        (c.ATTRIBUTE_VL_ARBITRATION, SWITCH, 1 << 16 | 9, b"", BAD_VALUE),
        (c.ATTRIBUTE_LINEAR_FORWARDING, SWITCH, 767, block(c.ATTRIBUTE_LINEAR_FORWARDING, 8), OK),
        (c.ATTRIBUTE_LINEAR_FORWARDING, SWITCH, 768, b"", BAD_VALUE),
        (c.ATTRIBUTE_LINEAR_FORWARDING, SWITCH, 0, block(c.ATTRIBUTE_LINEAR_FORWARDING, 9), BAD_VALUE),
        (c.ATTRIBUTE_LINEAR_FORWARDING, HOST, 0, b"", BAD_VALUE),
        (c.ATTRIBUTE_MULTICAST_FORWARDING, SWITCH, 31, block(c.ATTRIBUTE_MULTICAST_FORWARDING, 6), OK),
        (c.ATTRIBUTE_MULTICAST_FORWARDING, SWITCH, 32, b"", BAD_VALUE),
        (c.ATTRIBUTE_MULTICAST_FORWARDING, SWITCH, 1 << 28, b"", BAD_VALUE),
        (c.ATTRIBUTE_MULTICAST_FORWARDING, SWITCH, 1 << 9, b"", BAD_VALUE),
        (c.ATTRIBUTE_LED_INFO, SWITCH, 8, b"\x80\0\0\0", OK),
        (c.ATTRIBUTE_LED_INFO, SWITCH, 9, b"", BAD_VALUE),
        (c.ATTRIBUTE_GUID_INFO, HOST, 0, bytes(8) + b"\1" * 56, OK),
        (c.ATTRIBUTE_GUID_INFO, HOST, 1, b"", BAD_VALUE),
        (c.ATTRIBUTE_SWITCH_INFO, HOST, 0, b"", BAD_VALUE),
        (c.ATTRIBUTE_SWITCH_INFO, SWITCH, 0, SwitchInfo(linear_fdb_top=0xC000).encode(), BAD_VALUE),
        (c.ATTRIBUTE_SWITCH_INFO, SWITCH, 0, SwitchInfo(multicast_fdb_top=0xC400).encode(), BAD_VALUE),
        (
            c.ATTRIBUTE_SWITCH_INFO,
            SWITCH,
            0,
            SwitchInfo(default_multicast_primary_port=9).encode(),
            BAD_VALUE,
        ),
        (c.ATTRIBUTE_NODE_INFO, SWITCH, 0, b"", BAD_ATTRIBUTE),
        (c.ATTRIBUTE_NODE_DESCRIPTION, SWITCH, 0, b"", BAD_ATTRIBUTE),
        (0x7777, SWITCH, 0, b"", BAD_ATTRIBUTE),
    ],
)
def test_what_is_set_is_read_and_what_cannot_be_is_refused(
    attribute: int, path: list[int], modifier: int, data: bytes, expected: int
) -> None:
    _, tool = pair()
    asked = {"method": c.METHOD_SET, "modifier": modifier}
    answer = tool.directed(path, attribute, data, **asked)  # type: ignore[arg-type]
    assert status(answer) == expected
    told = tool.directed(path, attribute, modifier=modifier)
    assert told is not None
    if expected == OK:
        own = (0x31).to_bytes(8, "big") if attribute == c.ATTRIBUTE_GUID_INFO else b""
        assert told.data == (own + data[len(own) :]).ljust(64, b"\0")
    elif told.header.status == OK:
        assert told.data[: len(data) or 64] != data or not data


def test_what_a_switch_is_told_of_its_tables() -> None:
    _, tool = pair()
    said = SwitchInfo(linear_fdb_top=99, default_port=3, lifetime=7, multicast_fdb_top=0xC3FF)
    tool.directed(SWITCH, c.ATTRIBUTE_SWITCH_INFO, said.encode(), method=c.METHOD_SET)
    answer = tool.directed(SWITCH, c.ATTRIBUTE_SWITCH_INFO)
    assert answer is not None
    info = SwitchInfo.decode(answer.data)
    assert (info.linear_fdb_top, info.default_port, info.lifetime, info.multicast_fdb_top) == (
        99,
        3,
        7,
        0xC3FF,
    )
    assert info.linear_fdb_cap == 0xC000


@pytest.mark.parametrize(
    ("change", "expected"),
    [({"base_version": 2}, c.STATUS_BAD_VERSION), ({"class_version": 2}, c.STATUS_BAD_VERSION)],
)
def test_another_version_is_refused(change: dict[str, int], expected: int) -> None:
    _, tool = pair()
    bring_up(tool)
    for management_class, attribute, lid, qpn in (
        (c.CLASS_SUBN_LID, c.ATTRIBUTE_NODE_INFO, lid_of(1), 0),
        (c.CLASS_PERF, c.ATTRIBUTE_CLASS_PORT_INFO, lid_of(1), 1),
    ):
        header = MadHeader(management_class=management_class, method=1, attribute_id=attribute)
        assert status(tool.send(Mad.make(replace(header, **change)), lid, qpn)) == expected


def test_methods_without_a_response_are_dropped() -> None:
    plane, tool = pair()
    bring_up(tool)
    for method in (c.METHOD_SEND, c.METHOD_REPORT, 0x7F):
        header = MadHeader(management_class=c.CLASS_PERF, method=method)
        assert tool.send(Mad.make(header), lid_of(1), 1) is None
        assert tool.directed(SWITCH, c.ATTRIBUTE_NODE_INFO, method=method) is None
    assert plane.counters["drops_method"] == 6


# performance management


def counted(tool: Tool, attribute: int, data: bytes, method: int = c.METHOD_GET) -> bytes:
    answer = tool.general(method, attribute, data, lid_of(1))
    assert answer is not None
    assert answer.header.status == 0
    return answer.data


def test_counters_are_told_up_to_what_their_fields_hold() -> None:
    plane, tool = pair()
    bring_up(tool)
    port = plane.nodes[1].ports[2]
    assert port is not None
    port.count("symbol_error", 70_000)
    port.count("local_link_integrity_errors", 16)
    port.count("neighbor_mtu_discards", 3)
    port.count("dlid_mapping_errors", 4)
    counters = tool.counters(lid_of(1), 2)
    assert (counters.symbol_error, counters.local_link_integrity_errors, counters.port_select) == (
        0xFFFF,
        15,
        2,
    )
    for attribute, layout, name, value in (
        (c.ATTRIBUTE_PORT_XMIT_DISCARD_DETAILS, PortXmitDiscardDetails, "neighbor_mtu_discards", 3),
        (c.ATTRIBUTE_PORT_RCV_ERROR_DETAILS, PortRcvErrorDetails, "dlid_mapping_errors", 4),
    ):
        data = counted(tool, attribute, layout(port_select=2).encode())
        assert getattr(layout.decode(data), name) == value


def test_traffic_is_counted_in_both_attributes_and_cleared_in_each() -> None:
    plane, tool = pair()
    bring_up(tool)
    port = plane.nodes[1].ports[2]
    assert port is not None
    before = port.sent
    tool.by_lid(lid_of(2), c.ATTRIBUTE_NODE_INFO)
    assert port.sent == before + 1
    counters = tool.counters(lid_of(1), 2, clear=1 << 14)
    assert counters.xmit_pkts == 0
    assert counters.xmit_data == port.sent * 72
    ask = PortCountersExtended(port_select=2).encode()
    extended = PortCountersExtended.decode(counted(tool, c.ATTRIBUTE_PORT_COUNTERS_EXTENDED, ask))
    assert (extended.xmit_pkts, extended.unicast_xmit_pkts) == (port.sent, port.sent)
    assert (extended.rcv_pkts, extended.rcv_data) == (port.received, port.received * 72)
    clear = PortCountersExtended(port_select=2, counter_select=1 << 3).encode()
    counted(tool, c.ATTRIBUTE_PORT_COUNTERS_EXTENDED, clear, c.METHOD_SET)
    extended = PortCountersExtended.decode(counted(tool, c.ATTRIBUTE_PORT_COUNTERS_EXTENDED, ask))
    assert (extended.rcv_pkts, extended.xmit_pkts) == (0, port.sent)


def test_all_ports_at_once_and_ports_that_are_not_there() -> None:
    plane, tool = pair()
    bring_up(tool)
    for number in (1, 2, 8):
        port = plane.nodes[1].ports[number]
        assert port is not None
        port.count("link_downed", number)
    assert tool.counters(lid_of(1), ALL_PORTS).link_downed == 11
    assert tool.counters(lid_of(1), ALL_PORTS, clear=0xFFFF).link_downed == 0
    assert tool.counters(lid_of(1), 8).link_downed == 0
    for number in (9, 254):
        bad = tool.general(
            c.METHOD_GET, c.ATTRIBUTE_PORT_COUNTERS, PortCounters(port_select=number), lid_of(1)
        )
        assert bad is not None
        assert bad.header.status == c.STATUS_BAD_VALUE
    unknown = tool.general(c.METHOD_GET, 0x7777, b"", lid_of(1))
    assert unknown is not None
    assert unknown.header.status == c.STATUS_BAD_ATTRIBUTE


def test_port_info_is_asked_with_extended_speeds_too() -> None:
    _, tool = pair()
    answer = tool.directed(SWITCH, c.ATTRIBUTE_PORT_INFO, modifier=c.EXTENDED_SPEEDS_BIT | 2)
    assert answer is not None
    assert PortInfo.decode(answer.data) == tool.port_info(SWITCH, 2)
    assert PortInfo.decode(answer.data).link_speed_ext_active == 4


def test_the_keys_of_a_port_end_with_the_last_that_is_one() -> None:
    plane, _ = pair()
    port = plane.nodes[0].ports[1]
    assert port is not None
    assert port.key_list() == [0xFFFF]
    for block, keys, found in (
        (0, (0xFFFF, 0, 0x8000, 0), [0xFFFF]),  # the key 0 of a full member is none
        (1, (0x8001, 0x8000), [0xFFFF, 0, 0x8000, *[0] * 29, 0x8001]),
        (1, (0, 0), [0xFFFF]),
    ):
        port.set_pkeys(block, b"".join(key.to_bytes(2, "big") for key in keys).ljust(64, b"\0"))
        assert port.key_list() == found


@pytest.mark.parametrize(("ports", "positions"), [(15, 1), (16, 2), (31, 2), (32, 3)])
def test_a_table_of_groups_has_a_position_for_each_16_ports_with_port_0(ports: int, positions: int) -> None:
    nodes = make_node("h", NodeKind.CHANNEL_ADAPTER, 1, 0x10), make_node("s", NodeKind.SWITCH, ports, 0x100)
    tool = Tool(MadPlane(Topology(nodes, (Link(End(0, 1), End(1, 1)),))), (0, 1))
    attribute = c.ATTRIBUTE_MULTICAST_FORWARDING
    found = [status(tool.directed(SWITCH, attribute, modifier=each << 28)) for each in range(positions + 1)]
    assert found == [OK] * positions + [BAD_VALUE]


@pytest.mark.parametrize("place", [0, 1, 31])
def test_lane_15_is_not_arbitrated_whatever_the_others_are(place: int) -> None:
    plane, tool = pair()
    port = plane.nodes[1].ports[2]
    assert port is not None
    for lane, expected in ((14, OK), (15, BAD_VALUE)):
        entries = [(0, 64)] * 32
        entries[place] = lane, 64
        data = b"".join(bytes(each) for each in entries)
        answer = tool.directed(
            SWITCH, c.ATTRIBUTE_VL_ARBITRATION, data, method=c.METHOD_SET, modifier=1 << 16 | 2
        )
        assert status(answer) == expected
        assert (port.arbitration[1] == data) == (expected == OK)


def test_a_change_of_a_port_is_told_until_a_manager_says_that_it_has_seen_it() -> None:
    plane, tool = pair()
    bring_up(tool)
    node = plane.nodes[1]
    for clear, told in ((0, 1), (0, 1), (1, 0), (0, 0)):
        if told:
            node.set_switch_info(port_state_change=1)
        data = replace(node.switch_info, port_state_change=clear).encode()
        answer = tool.directed(SWITCH, c.ATTRIBUTE_SWITCH_INFO, data, method=c.METHOD_SET)
        assert answer is not None
        assert SwitchInfo.decode(answer.data).port_state_change == told
