"""Discovery: what nodes are there, by directed routes from the manager's own port (14.4.3).

Each link is crossed once: NodeInfo of what is behind a port says who it is and by which port it was reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from softhca.fabric.manager.packets import PORT
from softhca.fabric.manager.requests import Requests
from softhca.fabric.topology import (
    MAX_PORTS,
    End,
    Link,
    LinkSpeed,
    LinkWidth,
    Node,
    NodeKind,
    Topology,
    make_node,
)
from softhca.management import constants as c
from softhca.management.attributes import NodeInfo
from softhca.management.directed_route import HOPS_LAST
from softhca.management.subnet_attributes import SwitchInfo
from softhca.wire.errors import WireError

PHYS_LINK_UP = 5


@dataclass(slots=True)
class FoundNode:
    """A node as it answered.  ``paths`` lead to its agent, by the port of entrance where that is a channel
    adapter's, else by 0; ``ports`` are PortInfos; ``peers`` says what ports lead to: GUID and port.
    """

    info: NodeInfo
    paths: dict[int, bytes]
    description: str = ""
    switch: SwitchInfo | None = None
    ports: dict[int, bytes] = field(default_factory=dict)
    port_guids: dict[int, int] = field(default_factory=dict)
    peers: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def is_switch(self) -> bool:
        """Whether it is one."""
        return self.info.node_type == NodeKind.SWITCH

    def path(self, port: int) -> bytes:
        """The way to the agent that configures a port."""
        return self.paths[0 if self.is_switch else port]


class Discovery:
    """One sweep.  ``nodes`` by GUID; ``own`` is the manager's node and port; ``problems`` are lines."""

    def __init__(self, requests: Requests, problem: Callable[[str], None]) -> None:
        self.nodes: dict[int, FoundNode] = {}
        self.own: tuple[int, int] = (0, 0)
        self._requests = requests
        self._problem = problem

    def start(self) -> None:
        """Ask the own node."""
        self._requests.get(
            b"", c.ATTRIBUTE_NODE_INFO, lambda status, data: self._reached(b"", None, status, data)
        )

    def _explore(self, path: bytes, behind: tuple[int, int]) -> None:
        """Ask what is behind a port that is up."""
        if len(path) > HOPS_LAST:
            self._problem(f"more than {HOPS_LAST} hops away")
            return
        self._requests.get(
            path, c.ATTRIBUTE_NODE_INFO, lambda status, data: self._reached(path, behind, status, data)
        )

    def _reached(self, path: bytes, behind: tuple[int, int] | None, status: int | None, data: bytes) -> None:
        """NodeInfo has come, or nothing has."""
        if status != c.STATUS_OK:
            self._problem(f"no NodeInfo by {list(path)}")
            return
        try:
            info = NodeInfo.decode(data)
            kind = NodeKind(info.node_type)
        except (WireError, ValueError):
            self._problem(f"no node by {list(path)}: its NodeInfo cannot be")
            return
        entrance = info.local_port_num
        if not info.node_guid or not 1 <= info.num_ports <= MAX_PORTS or entrance > info.num_ports:
            self._problem(f"no node by {list(path)}: its NodeInfo cannot be")
            return
        found = info.node_guid, entrance
        if behind is None:
            self.own = found
        elif self._is_taken(behind, found) or self._is_taken(found, behind):
            return
        known = self.nodes.get(info.node_guid)
        if known is None:
            known = self.nodes[info.node_guid] = FoundNode(info, {})
            self._ask_node(known, path)
        if behind is not None:
            self.nodes[behind[0]].peers[behind[1]] = found
            known.peers[entrance] = behind
        port = 0 if kind is NodeKind.SWITCH else entrance
        if port not in known.paths:
            known.paths[port] = path
            known.port_guids[port] = info.port_guid
            ports = range(info.num_ports + 1) if kind is NodeKind.SWITCH else (entrance,)
            for number in ports:
                self._ask_port(known, info.node_guid, number, path)

    def _is_taken(self, end: tuple[int, int], other: tuple[int, int]) -> bool:
        """Whether an end of a link has another link already, so that two nodes have one GUID."""
        node = self.nodes.get(end[0])
        if node is None or node.peers.get(end[1], other) == other:
            return False
        self._problem(f"two nodes have the GUID {end[0]:#018x}")
        return True

    def _ask_node(self, node: FoundNode, path: bytes) -> None:
        def describe(status: int | None, data: bytes) -> None:
            if status == c.STATUS_OK:
                node.description = data.rstrip(b"\0").decode(errors="replace")

        def switch(status: int | None, data: bytes) -> None:
            if status == c.STATUS_OK:
                node.switch = SwitchInfo.decode(data)

        self._requests.get(path, c.ATTRIBUTE_NODE_DESCRIPTION, describe)
        if node.is_switch:
            self._requests.get(path, c.ATTRIBUTE_SWITCH_INFO, switch)

    def _ask_port(self, node: FoundNode, guid: int, port: int, path: bytes) -> None:
        def answered(status: int | None, data: bytes) -> None:
            if status != c.STATUS_OK:
                self._problem(f"no PortInfo of port {port} by {list(path)}")
                return
            node.ports[port] = data
            leads = port > 0 and PORT.get(data, "phys_state") == PHYS_LINK_UP
            forwards = node.is_switch or (guid, port) == self.own
            if leads and forwards and port not in node.peers:
                self._explore(path + bytes([port]), (guid, port))

        self._requests.get(path, c.ATTRIBUTE_PORT_INFO, answered, port)

    # what was found, as a topology

    def topology(self) -> Topology:
        """Nodes in the order of their discovery; links that are up and that both ends have told of.
        TopologyError where they cannot be one fabric."""
        guids = list(self.nodes)
        index = {guid: place for place, guid in enumerate(guids)}
        texts = Counter(_plain(node.description) for node in self.nodes.values())
        nodes = [self._node(guid, texts) for guid in guids]
        links = []
        for guid in guids:
            for port, (other, other_port) in self.nodes[guid].peers.items():
                known = other in self.nodes and self.nodes[other].peers.get(other_port) == (guid, port)
                if known and (index[guid], port) < (index[other], other_port):
                    ends = End(index[guid], port), End(index[other], other_port)
                    links.append(Link(*ends, *link_rate(self.nodes[guid].ports.get(port))))
        return Topology(tuple(nodes), tuple(links))

    def _node(self, guid: int, texts: Counter[str]) -> Node:
        found = self.nodes[guid]
        kind = NodeKind(found.info.node_type)
        text = _plain(found.description)
        letter = "HSR"[kind - 1]
        count = found.info.num_ports
        guids = [found.port_guids.get(port, 0) for port in ([0] if found.is_switch else range(1, count + 1))]
        for place, known in enumerate(guids):
            if not known:  # a port that was not reached, so that nobody knows its GUID
                guids[place] = guid + place + 1 + (1 << 56)
        return make_node(
            text if text and texts[text] == 1 else f"{letter}-{guid:016x}", kind, count, guid,
            port_guids=guids, system_guid=found.info.system_image_guid, description=text,
            vendor_id=found.info.vendor_id, device_id=found.info.device_id,
            enhanced_port_zero=bool(found.switch and found.switch.enhanced_port_zero),
        )  # fmt: skip


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() and c not in '"[]' else "?" for c in text)


_WIDTHS = {width.code: width for width in LinkWidth}
_EXTENDED = {speed.extended_code: speed for speed in LinkSpeed if speed.extended_code}
_SPEEDS = {1: LinkSpeed.SDR, 2: LinkSpeed.DDR, 4: LinkSpeed.QDR}


def link_rate(info: bytes | None) -> tuple[LinkWidth, LinkSpeed]:
    """What a port's PortInfo says of its link's width and speed."""
    if info is None:
        return LinkWidth.X1, LinkSpeed.SDR
    width = _WIDTHS.get(PORT.get(info, "link_width_active"), LinkWidth.X1)
    if PORT.get(info, "link_speed_ext2_active") == LinkSpeed.XDR.extended2_code:
        return width, LinkSpeed.XDR
    extended = _EXTENDED.get(PORT.get(info, "link_speed_ext_active"))
    return width, extended or _SPEEDS.get(PORT.get(info, "link_speed_active"), LinkSpeed.SDR)
