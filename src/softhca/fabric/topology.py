"""What a fabric consists of: nodes, their ports, and the links between them.

A `Topology` is checked when it is made and never changes: links that fail are left out of a new one
(`Topology.without`).  Nodes and links are named by their index everywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from softhca.machine.arguments import check_kind

MAX_PORTS = 254
"""The highest port number of a node (IBTA vol. 1, 14.2.5.3; 255 means none in forwarding tables)."""
MAX_NODES = 0xBFFF
"""As many as there are unicast LIDs (IBTA vol. 1, 4.1.3)."""
GUID_LAST = (1 << 64) - 1


class NodeKind(IntEnum):
    """What a node is, by NodeInfo's NodeType."""

    CHANNEL_ADAPTER = 1
    SWITCH = 2
    ROUTER = 3


class LinkWidth(IntEnum):
    """Lanes of a link; ``code`` is what PortInfo's LinkWidthActive has for it (IBTA vol. 1, 14.2.5.6)."""

    X1 = 1
    X2 = 2
    X4 = 4
    X8 = 8
    X12 = 12

    @property
    def code(self) -> int:
        """The one bit of PortInfo's widths."""
        return _WIDTH_CODES[self]

    def __str__(self) -> str:
        return f"{self.value}x"


_WIDTH_CODES = {LinkWidth.X1: 1, LinkWidth.X4: 2, LinkWidth.X8: 4, LinkWidth.X12: 8, LinkWidth.X2: 16}


class LinkSpeed(IntEnum):
    """Speeds of a lane, from the slowest; ``data_mbps`` is what a lane carries without its line code."""

    SDR = 0
    DDR = 1
    QDR = 2
    FDR = 3
    EDR = 4
    HDR = 5
    NDR = 6
    XDR = 7

    @property
    def code(self) -> int:
        """The bit of PortInfo's LinkSpeed fields; 4 (QDR) for what only the extended fields tell."""
        return _SPEEDS[self][0]

    @property
    def extended_code(self) -> int:
        """The bit of PortInfo's LinkSpeedExt fields; 0 for what they do not know: SDR … QDR, and XDR."""
        return _SPEEDS[self][1]

    @property
    def extended2_code(self) -> int:
        """The bit of PortInfo's LinkSpeedExt2 fields, which know XDR alone; 0 for all others."""
        return int(self is LinkSpeed.XDR)

    @property
    def data_mbps(self) -> int:
        """Megabits of data a second and lane."""
        return _SPEEDS[self][2]


_SPEEDS = {
    LinkSpeed.SDR: (1, 0, 2_000),
    LinkSpeed.DDR: (2, 0, 4_000),
    LinkSpeed.QDR: (4, 0, 8_000),
    LinkSpeed.FDR: (4, 1, 13_636),
    LinkSpeed.EDR: (4, 2, 25_000),
    LinkSpeed.HDR: (4, 4, 50_000),
    LinkSpeed.NDR: (4, 8, 100_000),
    LinkSpeed.XDR: (4, 0, 200_000),
}


class TopologyError(ValueError):
    """A topology that cannot be, in one line.  ``node`` and ``link`` are the index of what is wrong, None
    where it is neither; ``line`` is the line of the file, None where there is none."""

    def __init__(
        self, reason: str, *, node: int | None = None, link: int | None = None, line: int | None = None
    ) -> None:
        super().__init__(reason if line is None else f"line {line}: {reason}")
        self.reason = reason
        self.node = node
        self.link = link
        self.line = line


@dataclass(frozen=True, slots=True)
class Node:
    """A switch, channel adapter or router.

    ``name`` is unique in its topology.  ``port_guids``: of a switch the GUID of its management port 0, of
    others one for each port from 1.  ``port_count`` leaves a switch's port 0 out.
    """

    name: str
    kind: NodeKind
    guid: int
    port_count: int
    port_guids: tuple[int, ...]
    system_guid: int = 0
    description: str = ""
    vendor_id: int = 0
    device_id: int = 0
    enhanced_port_zero: bool = False

    @property
    def is_switch(self) -> bool:
        """Whether it forwards packets, and has a management port 0."""
        return self.kind is NodeKind.SWITCH

    def port_guid(self, port: int) -> int:
        """The GUID of a port; all ports of a switch have that of port 0."""
        return self.port_guids[0 if self.is_switch else port - 1]

    @property
    def addressed_ports(self) -> range:
        """The ports that have LIDs: a switch's port 0, every port of others."""
        return range(1) if self.is_switch else range(1, self.port_count + 1)


def make_node(
    name: str,
    kind: NodeKind,
    port_count: int,
    guid: int,
    *,
    port_guids: Sequence[int] = (),
    system_guid: int = 0,
    description: str = "",
    vendor_id: int = 0,
    device_id: int = 0,
    enhanced_port_zero: bool = False,
) -> Node:
    """A node with the GUIDs that it is not given: those of a switch's port 0 and of the system are the
    node's, those of other ports follow it, the description is the name."""
    if not port_guids:
        port_guids = [guid] if kind is NodeKind.SWITCH else [guid + port for port in range(1, port_count + 1)]
    return Node(
        name, kind, guid, port_count, tuple(port_guids), system_guid or guid, description or name,
        vendor_id, device_id, enhanced_port_zero,
    )  # fmt: skip


class End(NamedTuple):
    """One end of a link: the index of a node, and a port of it from 1."""

    node: int
    port: int


@dataclass(frozen=True, slots=True)
class Link:
    """A cable between two ports."""

    end_a: End
    end_b: End
    width: LinkWidth = LinkWidth.X4
    speed: LinkSpeed = LinkSpeed.HDR

    @property
    def data_mbps(self) -> int:
        """Megabits of data a second in each direction."""
        return self.width.value * self.speed.data_mbps

    def __str__(self) -> str:
        return f"{self.width}{self.speed.name}"


@dataclass(frozen=True)
class Topology:
    """A fabric's nodes and links, whole and checked.

    TypeError: what is no node or link, a name that is no text, a number that is none.

    TopologyError: a name, node GUID or port GUID that another one has, a GUID that is 0 or no 64 bits, too
    many nodes or ports, a link to a node or port that is not there, to itself, or to a port that has one.
    """

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    _peers: list[list[End | None]] = field(init=False, repr=False, compare=False)
    _at: dict[End, int] = field(init=False, repr=False, compare=False)
    _names: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(self.nodes))
        object.__setattr__(self, "links", tuple(self.links))
        object.__setattr__(self, "_names", _checked_names(self.nodes))
        _check_guids(self.nodes)
        at = _checked_ends(self.nodes, self.links)
        peers: list[list[End | None]] = [[None] * (node.port_count + 1) for node in self.nodes]
        for link in self.links:
            peers[link.end_a.node][link.end_a.port] = link.end_b
            peers[link.end_b.node][link.end_b.port] = link.end_a
        object.__setattr__(self, "_peers", peers)
        object.__setattr__(self, "_at", at)

    def peer(self, node: int, port: int) -> End | None:
        """The end that a port is linked to; None where no link is, at a switch's port 0 too.  IndexError:
        there is no such node."""
        ports = self._peers[node]
        return ports[port] if 0 <= port < len(ports) else None

    def link_at(self, node: int, port: int) -> int | None:
        """The index of the link at a port; None where there is none."""
        return self._at.get(End(node, port))

    def index(self, name: str) -> int:
        """The index of the node with a name; KeyError: there is none."""
        return self._names[name]

    @property
    def switches(self) -> tuple[int, ...]:
        """The indices of all switches."""
        return tuple(index for index, node in enumerate(self.nodes) if node.is_switch)

    @property
    def end_nodes(self) -> tuple[int, ...]:
        """The indices of all that is no switch: channel adapters and routers."""
        return tuple(index for index, node in enumerate(self.nodes) if not node.is_switch)

    def without(self, links: Collection[int]) -> Topology:
        """The same nodes, and the links but those of these indices."""
        gone = frozenset(links)
        return Topology(self.nodes, tuple(link for index, link in enumerate(self.links) if index not in gone))

    def end_text(self, end: End) -> str:
        """An end as people write it: ``name[port]``."""
        return f"{self.nodes[end.node].name}[{end.port}]"


def _checked_names(nodes: Sequence[Node]) -> dict[str, int]:
    if len(nodes) > MAX_NODES:
        raise TopologyError(f"{len(nodes)} nodes; a subnet has LIDs for {MAX_NODES}")
    names: dict[str, int] = {}
    for index, node in enumerate(nodes):
        check_kind(node, Node, "node")
        check_kind(node.name, str, "name of a node")
        check_kind(node.kind, NodeKind, "kind of a node")
        if not node.name or not node.name.isprintable() or '"' in node.name:
            raise TopologyError(f"a node cannot be named {node.name!r}", node=index)
        if node.name in names:
            raise TopologyError(f"two nodes are named {node.name!r}", node=index)
        if not 1 <= node.port_count <= MAX_PORTS:
            ports = f"{node.port_count} ports; expected 1 to {MAX_PORTS}"
            raise TopologyError(f"{node.name} has {ports}", node=index)
        expected = 1 if node.is_switch else node.port_count
        if len(node.port_guids) != expected:
            raise TopologyError(
                f"{node.name} has {len(node.port_guids)} port GUIDs; expected {expected}", node=index
            )
        names[node.name] = index
    return names


def _check_guids(nodes: Sequence[Node]) -> None:
    """Node GUIDs differ, and so do port GUIDs; a port may have its own node's."""
    owners: dict[int, int] = {}
    for index, node in enumerate(nodes):
        for guid in (node.guid, *node.port_guids):
            if not 0 < guid <= GUID_LAST:
                raise TopologyError(f"{node.name} has the GUID {guid:#x}", node=index)
            if owners.setdefault(guid, index) != index:
                other = nodes[owners[guid]].name
                raise TopologyError(f"{node.name} and {other} have the same GUID {guid:#018x}", node=index)
        if len(set(node.port_guids)) < len(node.port_guids):
            raise TopologyError(f"two ports of {node.name} have the same GUID", node=index)


def _checked_ends(nodes: Sequence[Node], links: Sequence[Link]) -> dict[End, int]:
    at: dict[End, int] = {}
    for index, link in enumerate(links):
        _check_kinds(link)
        if link.end_a == link.end_b:
            raise TopologyError(f"a port is linked to itself: {_text(nodes, link.end_a)}", link=index)
        for end in (link.end_a, link.end_b):
            if not 0 <= end.node < len(nodes):
                raise TopologyError(f"a link to node {end.node}, which is not there", link=index)
            if not 1 <= end.port <= nodes[end.node].port_count:
                ports = f"ports 1 to {nodes[end.node].port_count}, not {end.port}"
                raise TopologyError(f"{nodes[end.node].name} has {ports}", link=index)
            if end in at:
                raise TopologyError(f"two links at {_text(nodes, end)}", link=index)
            at[end] = index
    return at


def _check_kinds(link: Link) -> None:
    check_kind(link, Link, "link")
    check_kind(link.width, LinkWidth, "width of a link")
    check_kind(link.speed, LinkSpeed, "speed of a link")
    for end in (link.end_a, link.end_b):
        check_kind(end, End, "end of a link")
        check_kind(end.node, int, "index of a node")
        check_kind(end.port, int, "number of a port")


def _text(nodes: Sequence[Node], end: End) -> str:
    known = 0 <= end.node < len(nodes)
    return f"{nodes[end.node].name if known else end.node}[{end.port}]"
