"""A topology in motion: switches and end nodes over its links, with forwarding tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

from softhca.fabric.switching.congestion import CongestionControl
from softhca.fabric.switching.end_node import EndNode
from softhca.fabric.switching.events import EventQueue
from softhca.fabric.switching.packet import Packet
from softhca.fabric.switching.port import Port, PortCounters, PortSettings, connect
from softhca.fabric.switching.switch import Switch
from softhca.fabric.topology import End, Topology
from softhca.machine.arguments import check_kind, whole

Deliver = Callable[[int, Packet, int], None]
"""Called with the node's index, the packet and the time in picoseconds when a packet has arrived."""


class SwitchedFabric:
    """``forwarding[node]`` is the table of the switch with that index, by LID.

    An end node's port 1 is its port here; further ports are not used.  ``congestion`` makes the congestion
    control of a flow; ``lost`` is called with each packet that does not arrive, and why.  Everything is
    determined by the arguments, ``seed`` (which packets are lost) and the calls.  TypeError: what is no
    topology, tables or settings; ValueError: a node, link or loss that cannot be.
    """

    def __init__(
        self,
        topology: Topology,
        forwarding: Mapping[int, Sequence[int]],
        deliver: Deliver,
        *,
        settings: PortSettings | None = None,
        congestion: Callable[[], CongestionControl] | None = None,
        notify_ps: int = 0,
        multicast: Mapping[int, Mapping[int, Sequence[int]]] | None = None,
        lost: Callable[[Packet, str], None] | None = None,
        seed: int = 0,
    ) -> None:
        check_kind(topology, Topology, "topology")
        check_kind(forwarding, Mapping, "mapping of nodes to forwarding tables")
        check_kind(settings, (PortSettings, type(None)), "settings of ports")
        self.topology = topology
        self.events = EventQueue()
        self.switches: dict[int, Switch] = {}
        self.ends: dict[int, EndNode] = {}
        self._random = Random(seed)
        settings = settings or PortSettings()
        for index, node in enumerate(topology.nodes):
            if node.is_switch:
                groups = (multicast or {}).get(index)
                self.switches[index] = Switch(
                    self.events, node.port_count, settings, forwarding.get(index, ()), groups
                )
            else:
                self.ends[index] = EndNode(
                    self.events, settings, self._deliverer(index, deliver), congestion, notify_ps
                )
        for port in self.ports():
            port.lost = lost
        for link in topology.links:
            a, b = self._port(link.end_a), self._port(link.end_b)
            if a is not None and b is not None:
                connect(a, b, link.data_mbps)

    @staticmethod
    def _deliverer(index: int, deliver: Deliver) -> Callable[[Packet, int], None]:
        return lambda packet, now_ps: deliver(index, packet, now_ps)

    def _port(self, end: End) -> Port | None:
        switch = self.switches.get(end.node)
        if switch is not None:
            return switch.ports[end.port]
        return self.ends[end.node].port if end.port == 1 else None

    def ports(self) -> Iterator[Port]:
        """Every port, but for the management ports of switches."""
        for switch in self.switches.values():
            yield from switch.ports[1:]
        for end in self.ends.values():
            yield end.port

    def _ends_of(self, link: int) -> list[Port]:
        found = self.topology.links[whole(link, "the index of a link", 0, len(self.topology.links) - 1)]
        return [port for port in map(self._port, (found.end_a, found.end_b)) if port is not None]

    def send(self, node: int, packet: Packet) -> None:
        """An end node sends a packet.  ValueError: the node is none."""
        check_kind(packet, Packet, "packet")
        try:
            end = self.ends[node]
        except (KeyError, TypeError):
            raise ValueError(f"{node!r} is no end node of this fabric") from None
        end.send(packet)

    def fail(self, link: int) -> None:
        """The link goes down: what is on it is lost, what waits for it discarded."""
        for port in self._ends_of(link):
            if port.up:
                port.link_down()

    def restore(self, link: int) -> None:
        """The link comes up again, at its speed; nothing where it is up."""
        ports = self._ends_of(link)
        if len(ports) == 2 and not ports[0].up:
            connect(ports[0], ports[1], self.topology.links[link].data_mbps)

    def degrade(self, link: int, loss: float) -> None:
        """Each packet over the link is lost with a probability of ``loss`` (bit errors)."""
        if not 0 <= loss <= 1:
            raise ValueError(f"no probability: {loss}")
        for port in self._ends_of(link):
            port.loss, port.random = loss, self._random

    def stuck(self) -> list[str]:
        """At rest: what should not be so, in words: packets in buffers, credits that have not come back."""
        found = []
        for port in self.ports():
            peer = port.peer
            for vl in range(port.settings.lanes):
                if port.queued_blocks(vl) or port.receiver.used[vl]:
                    found.append(f"packets are left in a port {port.number} on VL {vl}")
                elif port.up and peer is not None and port.credits.limit[vl] != peer.receiver.limit(vl):
                    found.append(f"a port {port.number} does not know all of its peer's room on VL {vl}")
        return found

    def counters(self, end: End) -> PortCounters:
        """What a port has counted; KeyError, IndexError where there is none."""
        port = self._port(end)
        if port is None:
            raise KeyError(end)
        return port.counters
