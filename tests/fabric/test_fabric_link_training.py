"""Links are trained to the widest and the fastest that both ends have enabled, from 1x SDR to 12x XDR."""

from __future__ import annotations

import pytest
from mad_tools import Tool

from softhca.fabric.link_training import trained
from softhca.fabric.mad_plane import MadPlane
from softhca.fabric.manager.managed_fabric import ManagedFabric
from softhca.fabric.packet_plane import PacketPlane
from softhca.fabric.topology import End, Link, LinkSpeed, LinkWidth, NodeKind, Topology, make_node
from softhca.management import constants as c
from softhca.management.administration_attributes import PathRecord
from softhca.management.administration_tables import component

SWITCH, HOST = [1], [1, 2]
DOWN, INIT, ACTIVE = 1, 2, 4
POLLING, LINK_UP = 2, 5
OK, BAD_VALUE = 0, 0x1C

GBPS = {
    LinkSpeed.SDR: 2.5, LinkSpeed.DDR: 5, LinkSpeed.QDR: 10, LinkSpeed.FDR: 14, LinkSpeed.EDR: 25,
    LinkSpeed.HDR: 50, LinkSpeed.NDR: 100, LinkSpeed.XDR: 200,
}  # fmt: skip
RATES = {
    2: 2.5, 3: 10, 4: 30, 5: 5, 6: 20, 7: 40, 8: 60, 9: 80, 10: 120, 11: 14, 12: 56, 13: 112, 14: 168, 15: 25,
    16: 100, 17: 200, 18: 300, 19: 28, 20: 50, 21: 400, 22: 600, 23: 800, 24: 1200, 25: 1600,
}  # fmt: skip
"""Gb/s by the codes of records."""
SPEED_CODES = {
    # LinkSpeedActive, LinkSpeedExtActive, LinkSpeedExt2Active; ibv_port_attr's
    LinkSpeed.SDR: (1, 0, 0, 1), LinkSpeed.DDR: (2, 0, 0, 2), LinkSpeed.QDR: (4, 0, 0, 4),
    LinkSpeed.FDR: (4, 1, 0, 16), LinkSpeed.EDR: (4, 2, 0, 32), LinkSpeed.HDR: (4, 4, 0, 64),
    LinkSpeed.NDR: (4, 8, 0, 128), LinkSpeed.XDR: (4, 0, 1, 256),
}  # fmt: skip
RATED = [(width, speed) for width in LinkWidth for speed in LinkSpeed]


def pair(width: LinkWidth = LinkWidth.X4, speed: LinkSpeed = LinkSpeed.HDR) -> Topology:
    """Two hosts at a switch; the second one's link is as said, the first one's the best there is."""
    nodes = (
        make_node("one", NodeKind.CHANNEL_ADAPTER, 1, 0x100),
        make_node("switch", NodeKind.SWITCH, 2, 0x200),
        make_node("two", NodeKind.CHANNEL_ADAPTER, 1, 0x300),
    )
    links = (
        Link(End(0, 1), End(1, 1), LinkWidth.X12, LinkSpeed.XDR),
        Link(End(1, 2), End(2, 1), width, speed),
    )
    return Topology(nodes, links)


def active(tool: Tool, path: list[int], port: int) -> tuple[int, int, int, int, int]:
    info = tool.port_info(path, port)
    return (
        info.state, info.link_width_active, info.link_speed_active,
        info.link_speed_ext_active, info.link_speed_ext2_active,
    )  # fmt: skip


@pytest.mark.parametrize(("width", "speed"), RATED)
def test_ports_and_paths_have_the_rate_of_a_link_of_each_width_and_speed(
    width: LinkWidth, speed: LinkSpeed
) -> None:
    managed = ManagedFabric(pair(width, speed))
    manager = managed.add((0, 1))
    managed.settle()
    assert manager.problems == []
    found = manager.fabric.routes.graph.topology
    assert {(str(link.width), link.speed) for link in found.links} == {
        ("12x", LinkSpeed.XDR), (str(width), speed),
    }  # fmt: skip
    ports = manager.administration.inventory.ports
    lids = {port.guid: port.lid for port in ports if port.guid in (0x101, 0x301)}
    wanted = PathRecord(slid=lids[0x101], dlid=lids[0x301])
    mask = component(PathRecord, "slid") | component(PathRecord, "dlid")
    (record,) = [
        PathRecord.decode(each)
        for each in manager.administration.paths.records(wanted, mask, ports[0], True)
        if each
    ]
    best = int(width) * GBPS[speed]
    assert RATES[record.rate] == max(rate for rate in RATES.values() if rate <= best)
    plane = PacketPlane(managed.plane)
    port = plane.join(End(2, 1), lambda data, stride: True, lambda: None, lambda: None)
    facts = port.facts()
    assert (facts["width"], facts["speed"]) == (width.code, SPEED_CODES[speed][3])


@pytest.mark.parametrize(("width", "speed"), RATED)
def test_what_is_enabled_acts_when_the_link_is_trained_again(width: LinkWidth, speed: LinkSpeed) -> None:
    tool = Tool(MadPlane(pair(LinkWidth.X12, LinkSpeed.XDR)), (0, 1))
    before = active(tool, SWITCH, 2)
    assert before == (INIT, LinkWidth.X12.code, *SPEED_CODES[LinkSpeed.XDR][:3])
    older, extended, second, _ = SPEED_CODES[speed]
    values = {
        "link_width_enabled": width.code,
        "link_speed_enabled": older,
        "link_speed_ext_enabled": extended or 30,
        "link_speed_ext2_enabled": second or 6,
    }
    supported = width in (LinkWidth.X1, LinkWidth.X4, LinkWidth.X12)
    answer = tool.set_port(SWITCH, 2, **values)
    assert answer is not None
    assert answer.header.status & 0x7FFF == (OK if supported else BAD_VALUE)
    if not supported:
        return
    assert active(tool, SWITCH, 2) == before
    tool.set_port(SWITCH, 2, state=DOWN)
    expected = INIT, width.code, *SPEED_CODES[speed][:3]
    assert active(tool, SWITCH, 2) == active(tool, HOST, 1) == expected
    values = {"link_width": 255, "link_speed": 15, "link_speed_ext": 31, "link_speed_ext2": 7}
    tool.set_port(SWITCH, 2, **{f"{name}_enabled": ones for name, ones in values.items()})
    tool.set_port(SWITCH, 2, state=DOWN)
    assert active(tool, SWITCH, 2) == active(tool, HOST, 1) == before


def test_a_link_whose_ends_have_nothing_in_common_stays_down() -> None:
    plane = MadPlane(pair())
    tool = Tool(plane, (0, 1))
    tool.set_port(SWITCH, 2, link_speed_enabled=1, link_speed_ext_enabled=30)
    tool.set_port(HOST, 1, link_speed_enabled=2, link_speed_ext_enabled=30)
    tool.set_port(SWITCH, 2, state=DOWN)
    info = tool.port_info(SWITCH, 2)
    assert (info.state, info.phys_state) == (DOWN, POLLING)
    assert tool.directed(HOST, c.ATTRIBUTE_NODE_INFO) is None
    assert tool.fate == "drops_link_down"
    tool.set_port(SWITCH, 2, link_speed_enabled=3, phys_state=POLLING)
    info = tool.port_info(SWITCH, 2)
    assert (info.state, info.phys_state, info.link_speed_active) == (INIT, LINK_UP, 2)
    assert active(tool, HOST, 1) == active(tool, SWITCH, 2)


def test_a_cable_that_comes_back_is_trained_anew_too() -> None:
    plane = MadPlane(pair())
    tool = Tool(plane, (0, 1))
    tool.set_port(HOST, 1, link_width_enabled=1)
    plane.fail(1, 0)
    plane.restore(1, 0)
    assert active(tool, SWITCH, 2) == active(tool, HOST, 1) == (INIT, 1, 4, 4, 0)


@pytest.mark.parametrize(
    "changed",
    [{"link_width_enabled": 0}, {"link_speed_enabled": 0, "link_speed_ext_enabled": 0}],
)
def test_two_ports_without_a_common_width_or_speed_agree_on_nothing(changed: dict[str, int]) -> None:
    info = Tool(MadPlane(pair()), (0, 1)).port_info(SWITCH, 2)
    assert trained(info, info) == (LinkWidth.X4, LinkSpeed.HDR)
    other = type(info)(**{name: getattr(info, name) for name in info.__slots__} | changed)
    assert trained(info, other) is None
    assert trained(other, info) is None


def test_the_manager_makes_a_link_active_that_was_trained_again_and_tells_its_rate() -> None:
    managed = ManagedFabric(pair())
    manager = managed.add((0, 1))
    managed.settle()
    tool = Tool(managed.plane, (0, 1))
    tool.now = managed.now
    tool.set_port(SWITCH, 2, link_width_enabled=1, link_speed_ext_enabled=2)
    tool.set_port(SWITCH, 2, state=DOWN)
    managed.run_until(managed.now + 20_000_000_000)
    assert active(tool, SWITCH, 2) == (ACTIVE, 1, 4, 2, 0)
    rates = {(str(link.width), link.speed) for link in manager.fabric.routes.graph.topology.links}
    assert ("1x", LinkSpeed.EDR) in rates
