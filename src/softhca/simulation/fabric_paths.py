"""Worlds whose adapters are joined by switches: every packet goes through a `SwitchedFabric`.

Adapter N has the LIDs 2N and 2N + 1, as on all native links of worlds.  Where a link of the layout fails, it
does so when the seed says; forwarding tables lead past it a while later, as a fabric manager has it, and back
when the link has returned.  Oracles: at rest all packets have left the switches and all credits are back;
where segments are preserved, none is broken up without a time-out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, cast

from softhca.fabric.switching.events import PS_PER_NS, PS_PER_US
from softhca.fabric.switching.fabric import SwitchedFabric
from softhca.fabric.switching.packet import Packet
from softhca.fabric.switching.port import PortSettings
from softhca.fabric.switching.switch import NO_PORT
from softhca.fabric.switching.transmit_queues import SegmentOrder
from softhca.fabric.topology import End, Link, LinkSpeed, LinkWidth, NodeKind, Topology, make_node
from softhca.wire.opcodes import FIRST, LAST, ONLY, OPCODES

if TYPE_CHECKING:
    from softhca.simulation.world import Flight, World

REROUTE_NS = 60_000
RETURN_NS = 300_000
LATE_PS = 100 * PS_PER_US
RULES = ("switches come to rest", "segments stay whole")


PLAIN = PortSettings()


@dataclass(frozen=True)
class Layout:
    """``text`` says what the adapters are joined by.  ``links`` (adapters' are made: each at the next port of
    the switch of that index) join switches; ``fails`` is the index of one that fails.  ``slow``: an adapter
    whose link is a quarter as wide.  ``managers``: adapters with a subnet manager, which write the forwarding
    tables; the first one, the master, dies."""

    text: str
    adapters_at: tuple[int, ...]
    switches: int = 1
    links: tuple[tuple[int, int], ...] = ()
    settings: PortSettings = PLAIN
    slow: int = 0
    fails: int = -1
    managers: tuple[int, ...] = ()


LAYOUTS = {
    "star": Layout("one switch, and a slow link to the first adapter", (0, 0, 0, 0, 0), slow=1,
                   settings=PortSettings(buffer_blocks=128)),
    "segment star": Layout(
        "one switch that preserves segments, and a slow link to the first adapter", (0, 0, 0, 0, 0), slow=1,
        settings=PortSettings(buffer_blocks=128, segment_timeout_ps=20 * PS_PER_US),
    ),
    "two spines": Layout("two leaves and two spines, of whose links one fails", (0, 0, 1, 1), 4,
                         ((0, 2), (0, 3), (1, 2), (1, 3)), fails=0),
    "managed": Layout("two leaves and three spines with two managers, of which the master dies", (0, 0, 1, 1),
                      5, ((0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)), managers=(1, 3)),
}  # fmt: skip


class FabricPaths:
    """The fabric of a world; adapters are its end nodes behind the switches."""

    def __init__(self, world: World, name: str, dice: Random) -> None:
        self._world = world
        self._layout = layout = LAYOUTS[name]
        self._hosts = layout.switches
        self.topology = _topology(layout)
        self.fabric = SwitchedFabric(
            self.topology, self._tables(()), self._arrived, settings=layout.settings, lost=self._lost,
            seed=dice.getrandbits(32),
        )  # fmt: skip
        self._planned_ns = -1
        self._watch_segments()
        if layout.fails >= 0:
            world.wire.disorder()  # packets on the way before and after may overtake each other
            fails_ns = world.now + dice.randrange(5_000, 200_000)
            world.at(fails_ns, self._fail)
            world.at(fails_ns + REROUTE_NS, self._reroute, (layout.fails,))
            world.at(fails_ns + RETURN_NS, self._restore)
            world.at(fails_ns + RETURN_NS + REROUTE_NS, self._reroute, ())
        if layout.managers:
            from softhca.simulation.fabric_managers import FabricManagers  # needs numpy and scipy

            world.wire.disorder()
            ends = tuple(self._hosts + number - 1 for number in layout.managers)
            FabricManagers(world, self, ends, tuple(range(len(layout.links))), dice)

    # packets

    def carry(self, flight: Flight, data: bytes) -> None:
        """A packet that an adapter sends now; ``flight`` arrives when it does."""
        opcode = OPCODES.get(_opcode(data))
        position = ONLY if opcode is None else opcode.position
        packet = Packet(
            int.from_bytes(data[6:8], "big"), int.from_bytes(data[2:4], "big"), len(data), sl=data[1] >> 4,
            message=flight.numbers[0], begins=position in (FIRST, ONLY), ends=position in (LAST, ONLY),
            content=flight,
        )  # fmt: skip
        self._keep_up()
        self.fabric.send(self._hosts + flight.from_node.number - 1, packet)
        self._plan()

    def _arrived(self, node: int, packet: Packet, now_ps: int) -> None:
        if now_ps - packet.born_ps > LATE_PS:
            self._world.wire.disorder()
        self._world.at(self._world.now, self._world.arrive, packet.content)

    def _lost(self, packet: Packet, reason: str) -> None:
        self._world.drop(cast("Flight", packet.content), reason)

    # time

    def _keep_up(self) -> None:
        """What is due in the fabric happens first."""
        self.fabric.events.run(self._world.now * PS_PER_NS)

    def _plan(self) -> None:
        next_ps = self.fabric.events.next_ps()
        if next_ps is None:
            return
        time_ns = -(-next_ps // PS_PER_NS)
        if self._planned_ns < self._world.now or time_ns < self._planned_ns:
            self._planned_ns = time_ns
            self._world.at(time_ns, self._turn, time_ns)

    def _turn(self, time_ns: int) -> None:
        if time_ns == self._planned_ns:
            self._planned_ns = -1
            self._keep_up()
            self._plan()

    # links that fail

    def _fail(self, _: object) -> None:
        self.cable(self._layout.fails, True)

    def _restore(self, _: object) -> None:
        self.cable(self._layout.fails, False)

    def cable(self, link: int, fails: bool) -> None:
        """A link's cable goes out, or is in again."""
        self._keep_up()
        self._world.trace.add(self._world.now, "link down" if fails else "link up", 0, link=link)
        (self.fabric.fail if fails else self.fabric.restore)(link)
        self._plan()

    def _reroute(self, without: tuple[int, ...]) -> None:
        self._keep_up()
        for index, table in self._tables(without).items():
            self.fabric.switches[index].forwarding = table

    def _tables(self, without: tuple[int, ...]) -> dict[int, Sequence[int]]:
        """Shortest ways to every LID, of several the one whose number the LID says."""
        layout = self._layout
        ways = _ways(layout, without)
        count = len(layout.adapters_at)
        tables: dict[int, Sequence[int]] = {}
        for switch in range(layout.switches):
            table = [NO_PORT] * (2 * count + 2)
            for number, leaf in enumerate(layout.adapters_at, 1):
                for lid in (2 * number, 2 * number + 1):
                    if leaf == switch:
                        table[lid] = _host_port(layout, number)
                    elif ways[switch, leaf]:
                        table[lid] = ways[switch, leaf][lid % len(ways[switch, leaf])]
            tables[switch] = table
        return tables

    # oracles

    def _watch_segments(self) -> None:
        self._orders: list[_WatchedOrder] = []
        timeout_ps = self._layout.settings.segment_timeout_ps
        if timeout_ps is not None:
            for switch in self.fabric.switches.values():
                for port in switch.ports[1:]:
                    order = _WatchedOrder(timeout_ps, self._broken_up)
                    port.queues[0] = order
                    self._orders.append(order)

    def _broken_up(self, text: str) -> None:
        self._world.report.fail(RULES[1], text)

    def finish(self) -> None:
        """The world is at rest."""
        for text in self.fabric.stuck():
            self._world.report.fail(RULES[0], text)


class _WatchedOrder(SegmentOrder):
    """Looks at what leaves: after a packet that does not end its segment the next is of the same one, unless
    a time-out came between."""

    def __init__(self, timeout_ps: int, fail: Callable[[str], None]) -> None:
        super().__init__(timeout_ps)
        self._fail = fail
        self._left: deque[tuple[int, int, bool, int]] = deque(maxlen=1)

    def pop(self, now_ps: int, blocks: int) -> None:
        assert self._head is not None
        packet = self._waiting[self._head][0]
        super().pop(now_ps, blocks)
        if self._left:
            slid, dlid, ended, timeouts = self._left[0]
            same = (slid, dlid) == (packet.slid, packet.dlid)
            if not ended and not same and timeouts == self.timeouts:
                self._fail(f"a packet of {packet.slid} breaks up a segment of {slid}")
        self._left.append((packet.slid, packet.dlid, packet.ends, self.timeouts))


def _opcode(data: bytes) -> int:
    """BTH's opcode, behind LRH and, where LNH says so, GRH."""
    return data[8 + 40 * (data[1] & 1)]


def _host_port(layout: Layout, number: int) -> int:
    """The port of its switch at which an adapter is."""
    leaf = layout.adapters_at[number - 1]
    return layout.adapters_at[:number].count(leaf)


def _switch_ports(layout: Layout) -> list[tuple[End, End]]:
    """Both ends of the links between switches, at the ports behind those of adapters."""
    following = [layout.adapters_at.count(switch) + 1 for switch in range(layout.switches)]
    ends = []
    for a, b in layout.links:
        ends.append((End(a, following[a]), End(b, following[b])))
        following[a] += 1
        following[b] += 1
    return ends


def _topology(layout: Layout) -> Topology:
    ports = len(layout.adapters_at) + len(layout.links)
    nodes = [make_node(f"switch{n}", NodeKind.SWITCH, ports, 0x100 + n) for n in range(layout.switches)]
    links = [Link(a, b, LinkWidth.X4, LinkSpeed.SDR) for a, b in _switch_ports(layout)]
    for number, leaf in enumerate(layout.adapters_at, 1):
        nodes.append(make_node(f"adapter{number}", NodeKind.CHANNEL_ADAPTER, 1, 0x1000 + 16 * number))
        width = LinkWidth.X1 if number == layout.slow else LinkWidth.X4
        end = End(layout.switches + number - 1, 1)
        links.append(Link(End(leaf, _host_port(layout, number)), end, width, LinkSpeed.SDR))
    return Topology(tuple(nodes), tuple(links))


def _ways(layout: Layout, without: tuple[int, ...]) -> dict[tuple[int, int], list[int]]:
    """By switch and destination switch the ports of the shortest ways, without some links."""
    neighbours: list[list[tuple[int, int]]] = [[] for _ in range(layout.switches)]
    for index, (a, b) in enumerate(_switch_ports(layout)):
        if index not in without:
            neighbours[a.node].append((a.port, b.node))
            neighbours[b.node].append((b.port, a.node))
    ways: dict[tuple[int, int], list[int]] = {}
    for target in range(layout.switches):
        distance = {target: 0}
        waiting = deque([target])
        while waiting:
            at = waiting.popleft()
            for _, neighbour in neighbours[at]:
                if neighbour not in distance:
                    distance[neighbour] = distance[at] + 1
                    waiting.append(neighbour)
        for switch in range(layout.switches):
            ways[switch, target] = [
                port for port, neighbour in neighbours[switch]
                if distance.get(neighbour, layout.switches) < distance.get(switch, 0)
            ]  # fmt: skip
    return ways


__all__ = ["LAYOUTS", "RULES", "FabricPaths", "Layout"]
