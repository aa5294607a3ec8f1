"""The topology: what it knows of nodes and links, and what cannot be one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from softhca.fabric.topology import (
    MAX_NODES,
    End,
    Link,
    LinkSpeed,
    LinkWidth,
    Node,
    NodeKind,
    Topology,
    TopologyError,
    make_node,
)


def numbered(value: object) -> str:
    """Names of cases without spaces; pytest numbers them."""
    return "case"


SWITCH = make_node("s", NodeKind.SWITCH, 4, 0x10)
HOST = make_node("h", NodeKind.CHANNEL_ADAPTER, 2, 0x20)
OTHER = make_node("t", NodeKind.SWITCH, 4, 0x30, port_guids=[0x31], system_guid=0x3F, description="the other")
NODES = (SWITCH, HOST, OTHER)
LINKS = (
    Link(End(0, 1), End(1, 2)),
    Link(End(0, 3), End(2, 4), LinkWidth.X12, LinkSpeed.FDR),
    Link(End(0, 2), End(0, 4)),
)


def test_peers_and_links_are_found_from_both_ends() -> None:
    fabric = Topology(NODES, LINKS)
    assert fabric.peer(0, 1) == End(1, 2)
    assert fabric.peer(1, 2) == End(0, 1)
    assert fabric.peer(2, 4) == (0, 3)
    assert fabric.link_at(2, 4) == fabric.link_at(0, 3) == 1
    for node, port in ((0, 0), (1, 1), (1, 3), (0, -1)):
        assert fabric.peer(node, port) is None
        assert fabric.link_at(node, port) is None
    assert fabric.index("t") == 2
    with pytest.raises(KeyError):
        fabric.index("T")
    assert (fabric.switches, fabric.end_nodes) == ((0, 2), (1,))
    assert fabric.end_text(End(2, 4)) == "t[4]"


def test_a_switch_has_one_port_guid_and_others_one_a_port() -> None:
    assert SWITCH.port_guids == (0x10,)
    assert [SWITCH.port_guid(port) for port in range(5)] == [0x10] * 5
    assert OTHER.port_guid(3) == 0x31
    assert [HOST.port_guid(1), HOST.port_guid(2)] == [0x21, 0x22]
    assert list(SWITCH.addressed_ports) == [0]
    assert list(HOST.addressed_ports) == [1, 2]
    assert (HOST.description, HOST.system_guid) == ("h", 0x20)
    assert (OTHER.description, OTHER.system_guid) == ("the other", 0x3F)


def test_without_links_the_nodes_stay() -> None:
    fabric = Topology(NODES, LINKS)
    rest = fabric.without([0, 2])
    assert rest.nodes == fabric.nodes
    assert rest.links == (LINKS[1],)
    assert rest.peer(0, 1) is None
    assert fabric.without([]) == fabric


@pytest.mark.parametrize(
    ("width", "speed", "codes", "mbps"),
    [
        (LinkWidth.X1, LinkSpeed.SDR, (1, 1, 0), 2_000),
        (LinkWidth.X4, LinkSpeed.DDR, (2, 2, 0), 16_000),
        (LinkWidth.X8, LinkSpeed.QDR, (4, 4, 0), 64_000),
        (LinkWidth.X12, LinkSpeed.FDR, (8, 4, 1), 163_632),
        (LinkWidth.X2, LinkSpeed.EDR, (16, 4, 2), 50_000),
        (LinkWidth.X4, LinkSpeed.HDR, (2, 4, 4), 200_000),
        (LinkWidth.X4, LinkSpeed.NDR, (2, 4, 8), 400_000),
        (LinkWidth.X4, LinkSpeed.XDR, (2, 4, 0), 800_000),
    ],
)
def test_widths_and_speeds_have_port_infos_codes(
    width: LinkWidth, speed: LinkSpeed, codes: tuple[int, int, int], mbps: int
) -> None:
    assert (width.code, speed.code, speed.extended_code) == codes
    link = replace(LINKS[0], width=width, speed=speed)
    assert link.data_mbps == mbps
    assert str(link) == f"{width.value}x{speed.name}"


def _bad_nodes() -> list[tuple[tuple[Node, ...], str, int]]:
    return [
        ((SWITCH, replace(HOST, name="s")), "two nodes are named 's'", 1),
        ((replace(SWITCH, name=""),), "cannot be named ''", 0),
        ((replace(SWITCH, name='a"b'),), "cannot be named", 0),
        ((replace(SWITCH, name="a\nb"),), "cannot be named", 0),
        ((replace(SWITCH, port_count=0),), "has 0 ports; expected 1 to 254", 0),
        ((replace(SWITCH, port_count=255),), "has 255 ports; expected 1 to 254", 0),
        ((replace(SWITCH, port_guids=(1, 2)),), "has 2 port GUIDs; expected 1", 0),
        ((SWITCH, replace(HOST, port_guids=(1,))), "has 1 port GUIDs; expected 2", 1),
        ((SWITCH, replace(HOST, guid=0x10)), "h and s have the same GUID 0x0000000000000010", 1),
        ((SWITCH, replace(HOST, port_guids=(0x10, 0x22))), "h and s have the same GUID", 1),
        ((HOST, replace(HOST, name="i", guid=5)), "i and h have the same GUID", 1),
        ((replace(HOST, port_guids=(7, 7)),), "two ports of h have the same GUID", 0),
        ((replace(SWITCH, guid=0),), "s has the GUID 0x0", 0),
        ((replace(SWITCH, port_guids=(1 << 64,)),), "s has the GUID 0x10000000000000000", 0),
    ]


def test_the_first_and_the_last_guid_are_ones() -> None:
    node = replace(SWITCH, guid=1, port_guids=((1 << 64) - 1,))
    assert Topology((node,), ()).nodes == (node,)


@pytest.mark.parametrize(("nodes", "reason", "index"), _bad_nodes(), ids=numbered)
def test_nodes_that_cannot_be_are_refused(nodes: tuple[Node, ...], reason: str, index: int) -> None:
    with pytest.raises(TopologyError) as error:
        Topology(nodes, ())
    assert reason in str(error.value)
    assert (error.value.node, error.value.link) == (index, None)


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        (Link(End(0, 1), End(0, 1)), "a port is linked to itself: s[1]"),
        (Link(End(0, 1), End(3, 1)), "a link to node 3, which is not there"),
        (Link(End(-1, 1), End(0, 1)), "a link to node -1, which is not there"),
        (Link(End(0, 0), End(1, 1)), "s has ports 1 to 4, not 0"),
        (Link(End(0, 1), End(1, 3)), "h has ports 1 to 2, not 3"),
        (Link(End(0, 1), End(0, 3)), "two links at s[3]"),
    ],
    ids=numbered,
)
def test_links_that_cannot_be_are_refused(link: Link, reason: str) -> None:
    with pytest.raises(TopologyError) as error:
        Topology(NODES, (LINKS[1], link))
    assert reason in str(error.value)
    assert (error.value.node, error.value.link) == (None, 1)


def test_a_subnet_has_no_more_nodes_than_lids() -> None:
    nodes = tuple(make_node(f"h{n}", NodeKind.CHANNEL_ADAPTER, 1, n << 8) for n in range(1, MAX_NODES + 2))
    assert len(Topology(nodes[:-1], ()).nodes) == MAX_NODES
    with pytest.raises(TopologyError, match="49152 nodes"):
        Topology(nodes, ())


def test_an_error_says_its_line() -> None:
    error = TopologyError("so it is", line=7)
    assert str(error) == "line 7: so it is"
    assert (error.reason, error.line) == ("so it is", 7)
