"""Programs that speak management datagrams at a fabric's ports: what tools and managers do, in small."""

from __future__ import annotations

from collections import deque

from softhca.fabric.mad_plane import Datagram, MadPlane
from softhca.fabric.topology import End, Topology
from softhca.management import constants as c
from softhca.management.attributes import NodeInfo, PortInfo
from softhca.management.directed_route import DirectedRoute
from softhca.management.mad import Mad, MadHeader
from softhca.management.performance_attributes import PortCounters
from softhca.management.subnet_attributes import SwitchInfo
from softhca.wire.layout import Header

PERMISSIVE = 0xFFFF


class Tool:
    """A program at a port; `answers` is what it has got."""

    def __init__(self, plane: MadPlane, end: tuple[int, int]) -> None:
        self.plane = plane
        self.answers: deque[Datagram] = deque()
        self.room = True
        self.endpoint = plane.attach(End(*end), self._deliver)
        self.fate = ""
        self.now = 0

    def _deliver(self, datagram: Datagram) -> bool:
        if self.room:
            self.answers.append(datagram)
        return self.room

    def send(self, mad: Mad, lid: int = PERMISSIVE, qpn: int = 0) -> Mad | None:
        """Send a datagram; the answer, if one came at once."""
        datagram = Datagram(lid, self.endpoint.port.info.lid, qpn, qpn, mad.encode())
        before = len(self.answers)
        self.fate = self.plane.send(self.endpoint, datagram, self.now)
        return Mad.decode(self.answers.pop().data) if len(self.answers) > before else None

    def directed(
        self,
        path: list[int],
        attribute: int,
        data: bytes = b"",
        *,
        method: int = c.METHOD_GET,
        modifier: int = 0,
        m_key: int = 0,
        transaction_id: int = 5,
        slid: int = PERMISSIVE,
        lid: int = PERMISSIVE,
    ) -> Mad | None:
        """Ask the node at the end of a directed route."""
        mad = smp(c.CLASS_SUBN_DIRECTED, method, attribute, modifier, data, m_key, transaction_id, path, slid)
        return self.send(mad, lid)

    def by_lid(
        self,
        lid: int,
        attribute: int,
        data: bytes = b"",
        *,
        method: int = c.METHOD_GET,
        modifier: int = 0,
        m_key: int = 0,
    ) -> Mad | None:
        """Ask the port that has a LID."""
        return self.send(smp(c.CLASS_SUBN_LID, method, attribute, modifier, data, m_key, 5, [], 0), lid)

    def counters(self, lid: int, port: int, clear: int | None = None) -> PortCounters:
        """PortCounters of a port; ``clear``: the counters whose bits are set begin anew."""
        asked = PortCounters(port_select=port, counter_select=clear or 0)
        method = c.METHOD_GET if clear is None else c.METHOD_SET
        answer = self.general(method, c.ATTRIBUTE_PORT_COUNTERS, asked, lid)
        assert answer is not None, self.fate
        assert answer.header.status == 0
        return PortCounters.decode(answer.data)

    def general(
        self,
        method: int,
        attribute: int,
        data: Header | bytes,
        lid: int,
        management_class: int = c.CLASS_PERF,
    ) -> Mad | None:
        """Send to queue pair 1 of the port that has a LID."""
        header = MadHeader(
            management_class=management_class, method=method, attribute_id=attribute, transaction_id=9
        )
        return self.send(Mad.make(header, data if isinstance(data, bytes) else data.encode()), lid, 1)

    def port_info(self, path: list[int], port: int = 0) -> PortInfo:
        """PortInfo by directed route."""
        answer = self.directed(path, c.ATTRIBUTE_PORT_INFO, modifier=port)
        assert answer is not None, self.fate
        return PortInfo.decode(answer.data)

    def set_port(self, path: list[int], port: int = 0, *, key: int = 0, **values: int) -> Mad | None:
        """Set PortInfo: fields that nobody names change nothing."""
        said = {"m_key_violations": 1, "p_key_violations": 1, "q_key_violations": 1, **values}
        data = PortInfo(**said).encode()  # type: ignore[arg-type]
        return self.directed(path, c.ATTRIBUTE_PORT_INFO, data, method=c.METHOD_SET, modifier=port, m_key=key)


def smp(
    management_class: int,
    method: int,
    attribute: int,
    modifier: int,
    data: bytes,
    m_key: int,
    transaction_id: int,
    path: list[int],
    slid: int,
) -> Mad:
    """A subnet management packet that begins its way."""
    header = MadHeader(
        management_class=management_class,
        method=method,
        attribute_id=attribute,
        attribute_modifier=modifier,
        transaction_id=transaction_id,
        class_specific=len(path),
    )
    mad = Mad.make(header, data)
    body = bytearray(mad.body)
    body[:12] = DirectedRoute(m_key=m_key, dr_slid=slid).encode()
    body[104 + 1 : 104 + 1 + len(path)] = bytes(path)
    return Mad(header, bytes(body))


def paths(topology: Topology, start: int) -> dict[int, list[int]]:
    """A shortest directed route from a node to each."""
    found: dict[int, list[int]] = {start: []}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        if node != start and not topology.nodes[node].is_switch:
            continue
        for port in range(1, topology.nodes[node].port_count + 1):
            peer = topology.peer(node, port)
            if peer is not None and peer.node not in found:
                found[peer.node] = [*found[node], port]
                waiting.append(peer.node)
    return found


def lid_of(node: int) -> int:
    """The LID that `bring_up` gives a node."""
    return node + 1


def bring_up(tool: Tool, sm_lid: int | None = None) -> None:
    """Do by directed routes what a subnet manager does: LIDs, forwarding tables, ACTIVE links."""
    topology = tool.plane.topology
    start = tool.endpoint.node.index
    own = lid_of(start) if sm_lid is None else sm_lid
    ways = paths(topology, start)
    for node, path in ways.items():
        zero = topology.nodes[node].is_switch
        facts = {"lid": lid_of(node), "sm_lid": own, "subnet_timeout": 18}
        answer = tool.set_port(path, **facts, **({} if zero else {"state": 0}))
        assert answer is not None, tool.fate
        assert answer.header.status & 0x7FFF == 0
        if zero:
            _forwarding(tool, node, path)
    for state in (3, 4):
        for node, path in ways.items():
            for port in range(1, topology.nodes[node].port_count + 1):
                if topology.peer(node, port) is not None:
                    info = tool.port_info(path, port)
                    values = {name: getattr(info, name) for name in ("lid", "sm_lid", "subnet_timeout")}
                    tool.set_port(path, port, **values, state=state)


def _forwarding(tool: Tool, node: int, path: list[int]) -> None:
    topology = tool.plane.topology
    table = bytearray([0xFF]) * (64 * (len(topology.nodes) // 64 + 1))
    for target, way in paths(topology, node).items():
        table[lid_of(target)] = way[0] if way else 0
    info = SwitchInfo(linear_fdb_top=len(table) - 1, lifetime=18).encode()
    tool.directed(path, c.ATTRIBUTE_SWITCH_INFO, info, method=c.METHOD_SET)
    for block in range(len(table) // 64):
        data = bytes(table[block * 64 : block * 64 + 64])
        answer = tool.directed(path, c.ATTRIBUTE_LINEAR_FORWARDING, data, method=c.METHOD_SET, modifier=block)
        assert answer is not None
        assert answer.header.status == c.DIRECTION


def node_info(answer: Mad | None) -> NodeInfo:
    """What NodeInfo says."""
    assert answer is not None
    return NodeInfo.decode(answer.data)
