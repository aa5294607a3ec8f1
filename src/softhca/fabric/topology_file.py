"""Topologies as files: what ibnetdiscover prints, which ibsim reads too, and a short form in YAML.

Both are hostile: a file is at most `MAX_BYTES` long, and what cannot be is refused with its line and the
reason (`TopologyError`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from softhca.fabric.generators import guid_of
from softhca.fabric.topology import (
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
from softhca.machine.arguments import check_kind

MAX_BYTES = 64 << 20

_KINDS = {
    "switch": NodeKind.SWITCH,
    "ca": NodeKind.CHANNEL_ADAPTER,
    "hca": NodeKind.CHANNEL_ADAPTER,
    "rt": NodeKind.ROUTER,
    "router": NodeKind.ROUTER,
}
_WORDS = {NodeKind.SWITCH: "Switch", NodeKind.CHANNEL_ADAPTER: "Ca", NodeKind.ROUTER: "Rt"}
_LETTERS = {NodeKind.SWITCH: "S", NodeKind.CHANNEL_ADAPTER: "H", NodeKind.ROUTER: "R"}
_GUID_LINES = {NodeKind.SWITCH: "switchguid", NodeKind.CHANNEL_ADAPTER: "caguid", NodeKind.ROUTER: "rtguid"}

_ATTRIBUTE = re.compile(r"(\w+)\s*=\s*(0[xX][0-9a-fA-F]{1,16}|\d{1,19})\s*(?:\(([0-9a-fA-F]{1,16})\))?\s*")
_NODE = re.compile(r'(switch|hca|ca|rt|router)\s+(\d{1,4})\s*"([^"]*)"\s*(.*)', re.IGNORECASE)
_PORT = re.compile(
    r"\[(\d{1,4})\](?:\[ext [^\]]*\])?\s*(?:\(([0-9a-fA-F]{1,16})\))?\s*"
    r'"([^"]*)"\s*\[(\d{1,4})\](?:\[ext [^\]]*\])?\s*(?:\(([0-9a-fA-F]{1,16})\))?\s*(.*)'
)
_NAMED_GUID = re.compile(r"[SHR]-([0-9a-fA-F]{16})")
_RATE = re.compile(r"\b(1|2|4|8|12)x([SDQFEHNX]DR)\b")
_WIDTH_OPTION = re.compile(r"\bw=(\d{1,2})\b")
_QUOTED = re.compile(r'"([^"]*)"')
_HEADINGS = ("Non-Chassis Nodes", "Chassis ")


@dataclass
class _Port:
    """What a file says of a port: where it leads, by name."""

    line: int
    peer: str
    peer_port: int
    width: LinkWidth | None
    speed: LinkSpeed | None


@dataclass
class _Block:
    """What a file says of a node."""

    line: int
    name: str
    kind: NodeKind
    port_count: int
    description: str
    attributes: dict[str, tuple[int, int | None]]
    enhanced_port_zero: bool = False
    port_guids: dict[int, int] = field(default_factory=dict)
    ports: dict[int, _Port] = field(default_factory=dict)


def read_ibnetdiscover(text: str) -> Topology:
    """The topology that ibnetdiscover has printed, or that is written by hand in the same form.

    A link is said by both of its nodes, and by each as the other has it.  LIDs are passed over: a manager
    gives them.  GUIDs that are not said follow from names such as ``S-0002c90200401234``, else from the place
    in the file.  Links are 4x HDR unless the file says otherwise (``4xEDR`` behind ``#``, or ``w=1``).
    """
    check_kind(text, str, "text of a topology")
    if len(text) > MAX_BYTES:
        raise TopologyError(f"a file of more than {MAX_BYTES} bytes")
    blocks = _read_blocks(text)
    names = {block.name: index for index, block in enumerate(blocks)}
    nodes = tuple(_node(index, block) for index, block in enumerate(blocks))
    links: list[Link] = []
    lines: list[int] = []
    for index, block in enumerate(blocks):
        for number, port in block.ports.items():
            link = _link(blocks, names, End(index, number), port)
            if link is not None:
                links.append(link)
                lines.append(port.line)
    return checked(nodes, links, [block.line for block in blocks], lines)


def checked(
    nodes: tuple[Node, ...], links: list[Link], node_lines: list[int], link_lines: list[int]
) -> Topology:
    """The topology; what is wrong with it is told with the line of the file."""
    try:
        return Topology(nodes, tuple(links))
    except TopologyError as error:
        line = None
        if error.node is not None:
            line = node_lines[error.node]
        elif error.link is not None:
            line = link_lines[error.link]
        raise TopologyError(error.reason, node=error.node, link=error.link, line=line) from None


def _read_blocks(text: str) -> list[_Block]:
    blocks: list[_Block] = []
    names: set[str] = set()
    attributes: dict[str, tuple[int, int | None]] = {}
    current: _Block | None = None
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if not line or line.startswith("#") or line.startswith(_HEADINGS):
            continue
        if line[0] == "[":
            if current is None:
                raise TopologyError("a port before any node", line=number)
            _read_port(current, line, number)
        elif (match := _NODE.fullmatch(line)) is not None:
            current = _block(match, number, attributes)
            attributes = {}
            if current.name in names:
                raise TopologyError(f"two nodes are named {current.name!r}", line=number)
            names.add(current.name)
            blocks.append(current)
        elif (match := _ATTRIBUTE.match(line)) is not None and _is_rest(line[match.end() :]):
            guid = int(match[3], 16) if match[3] else None
            attributes[match[1].lower()] = (_integer(match[2]), guid)
        else:
            raise TopologyError(f"neither node, port nor GUID: {line[:60]!r}", line=number)
    return blocks


def _is_rest(text: str) -> bool:
    return not text or text.startswith("#")


def _integer(text: str) -> int:
    return int(text, 16) if text[:2].lower() == "0x" else int(text)


def _block(match: re.Match[str], line: int, attributes: dict[str, tuple[int, int | None]]) -> _Block:
    rest = match[4]
    if not _is_rest(rest):
        raise TopologyError(f"what is {rest[:60]!r} behind a node?", line=line)
    quoted = _QUOTED.search(rest)
    return _Block(
        line, match[3], _KINDS[match[1].lower()], int(match[2]), quoted[1] if quoted else "", attributes,
        "enhanced port 0" in rest,
    )  # fmt: skip


def _read_port(block: _Block, line: str, number: int) -> None:
    match = _PORT.fullmatch(line)
    if match is None:
        raise TopologyError(f"no port: {line[:60]!r}", line=number)
    port = int(match[1])
    rest = match[6]
    if port in block.ports:
        raise TopologyError(f"port {port} of {block.name} twice", line=number)
    width, speed = None, None
    if (rate := _RATE.search(rest)) is not None:
        width, speed = LinkWidth(int(rate[1])), LinkSpeed[rate[2]]
    elif (option := _WIDTH_OPTION.search(rest)) is not None:
        width = _width(option[1], number)
    elif not _is_rest(rest):
        raise TopologyError(f"what is {rest[:60]!r} behind a port?", line=number)
    if match[2]:
        block.port_guids[port] = int(match[2], 16)
    block.ports[port] = _Port(number, match[3], int(match[4]), width, speed)


def _width(text: str, line: int) -> LinkWidth:
    try:
        return LinkWidth(int(text))
    except ValueError:
        raise TopologyError(f"no link is {text} lanes wide", line=line) from None


def _node(index: int, block: _Block) -> Node:
    said = block.attributes
    named = _NAMED_GUID.fullmatch(block.name)
    guid, own_port_guid = said.get(_GUID_LINES[block.kind], (0, None))
    guid = guid or (int(named[1], 16) if named else 0) or guid_of(index)
    port_guids: list[int] = []
    if block.kind is NodeKind.SWITCH:
        port_guids = [own_port_guid or guid]
    elif block.port_guids:
        port_guids = [
            block.port_guids.get(port, guid + port) for port in range(1, min(block.port_count, 255) + 1)
        ]
    if not 1 <= block.port_count <= 254:
        raise TopologyError(f"{block.name} has {block.port_count} ports; expected 1 to 254", line=block.line)
    return make_node(
        block.name,
        block.kind,
        block.port_count,
        guid,
        port_guids=port_guids,
        system_guid=said.get("sysimgguid", (0, None))[0],
        description=block.description,
        vendor_id=said.get("vendid", (0, None))[0] & 0xFF_FFFF,
        device_id=said.get("devid", (0, None))[0] & 0xFFFF,
        enhanced_port_zero=block.enhanced_port_zero,
    )


def _link(blocks: list[_Block], names: dict[str, int], end: End, port: _Port) -> Link | None:
    """The link of a port, None where the other end has made it already."""
    here = f"{blocks[end.node].name}[{end.port}]"
    if port.peer not in names:
        raise TopologyError(f"{here} is linked to {port.peer!r}, which is no node", line=port.line)
    other = End(names[port.peer], port.peer_port)
    back = blocks[other.node].ports.get(other.port)
    if back is None:
        raise TopologyError(
            f"half a link: {here} is linked to {port.peer}[{port.peer_port}], which says nothing of it",
            line=port.line,
        )
    if (back.peer, back.peer_port) != (blocks[end.node].name, end.port):
        raise TopologyError(
            f"half a link: {here} is linked to {port.peer}[{port.peer_port}], which is linked to "
            f"{back.peer}[{back.peer_port}]",
            line=port.line,
        )
    if other < end:
        return None
    width = port.width or back.width or LinkWidth.X4
    speed = next((speed for speed in (port.speed, back.speed) if speed is not None), LinkSpeed.HDR)
    return Link(end, other, width, speed)


Lids = Callable[[int, int], tuple[int, int]]
"""Gives a node's and port's base LID and LMC."""


def write_ibnetdiscover(topology: Topology, lids: Lids | None = None) -> str:
    """The topology as ibnetdiscover prints it; reading it gives the same nodes and links, under names made of
    GUIDs.  ``lids`` fills in the LIDs behind ``#`` (else 0)."""
    check_kind(topology, Topology, "topology")
    names = [f"{_LETTERS[node.kind]}-{node.guid:016x}" for node in topology.nodes]
    where = lids or (lambda node, port: (0, 0))
    return "\n".join(
        line
        for index in range(len(topology.nodes))
        for line in (*_node_lines(topology, names, index, where), "")
    )


def _node_lines(topology: Topology, names: list[str], index: int, lids: Lids) -> Iterator[str]:
    node = topology.nodes[index]
    yield f"vendid={node.vendor_id:#x}"
    yield f"devid={node.device_id:#x}"
    yield f"sysimgguid={node.system_guid:#x}"
    head = f'{_WORDS[node.kind]}\t{node.port_count} "{names[index]}"\t\t# "{_plain(node.description)}"'
    if node.is_switch:
        lid, lmc = lids(index, 0)
        yield f"switchguid={node.guid:#x}({node.port_guid(0):x})"
        yield f"{head} {'enhanced' if node.enhanced_port_zero else 'base'} port 0 lid {lid} lmc {lmc}"
    else:
        yield f"{_GUID_LINES[node.kind]}={node.guid:#x}"
        yield head
    for port in range(1, node.port_count + 1):
        other, link = topology.peer(index, port), topology.link_at(index, port)
        if other is None or link is None:
            continue
        peer = topology.nodes[other.node]
        own_guid = "" if node.is_switch else f"({node.port_guid(port):x})"
        peer_guid = "" if peer.is_switch else f"({peer.port_guid(other.port):x})"
        lid, lmc = lids(index, port)
        own = "" if node.is_switch else f"lid {lid} lmc {lmc} "
        peer_lid = lids(other.node, 0 if peer.is_switch else other.port)[0]
        yield (
            f'[{port}]{own_guid}\t"{names[other.node]}"[{other.port}]{peer_guid}\t\t# '
            f'{own}"{_plain(peer.description)}" lid {peer_lid} {topology.links[link]}'
        )


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() and c != '"' else "?" for c in text)
