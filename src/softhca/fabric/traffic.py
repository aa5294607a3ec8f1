"""Traffic over a routed fabric in virtual time: who sends what to whom, what arrives and when, and what links
carry; links may fail and come back meanwhile, and routes are made anew a while later.

A *message* is cut into packets of the MTU; its latency is from its making to the arrival of its last packet.
Everything follows from the arguments and the seed.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from softhca.fabric.graph import NO_SWITCH, Bytes, Graph
from softhca.fabric.routing import Routes
from softhca.fabric.switching.congestion import CongestionControl
from softhca.fabric.switching.events import EventQueue
from softhca.fabric.switching.fabric import SwitchedFabric
from softhca.fabric.switching.packet import DATA_VLS, Packet
from softhca.fabric.switching.port import Port, PortSettings
from softhca.fabric.topology import End, Topology
from softhca.machine.arguments import check_kind

HEADERS_BYTES = 26
"""Of each packet: LRH, BTH, ICRC and VCRC."""
PATTERNS = ("uniform", "permutation", "incast")
MOST_WAITING_BYTES = 1 << 20
"""Who has so much under way makes no message: it is held back."""
FAIL, RESTORE, REROUTE = range(3)
Rerouting = Callable[[frozenset[int]], Routes | None]
"""Routes without some links; None: there are none, and the old ones stay."""


class TrafficError(ValueError):
    """Traffic that cannot be, in one line."""


@dataclass(frozen=True)
class Traffic:
    """What hosts send for ``duration_ps``.  TrafficError: it cannot be; TypeError: a number is none.

    ``pattern``: ``uniform``, each message to any other host; ``permutation``, each host to one other, and
    each from one; ``incast``, all to the first host.  ``load`` is the share of its link that each sender
    offers, in messages of ``message_bytes`` that come at random moments.
    """

    pattern: str = "uniform"
    load: float = 0.5
    message_bytes: int = 4096
    mtu_bytes: int = 4096
    duration_ps: int = 100_000_000
    seed: int = 1

    def __post_init__(self) -> None:
        check_kind(self.load, (int, float), "load")
        for number in (self.message_bytes, self.mtu_bytes, self.duration_ps, self.seed):
            check_kind(number, int, "number of bytes, picoseconds, or the seed")
        if self.pattern not in PATTERNS:
            raise TrafficError(f"no pattern is named {self.pattern!r}; there are {', '.join(PATTERNS)}")
        if not 0 < self.load <= 1:
            raise TrafficError(f"a load of {self.load:g}; expected up to 1, what a sender's link carries")
        if not 1 <= self.message_bytes <= 1 << 24:
            raise TrafficError(f"messages of {self.message_bytes} bytes; expected 1 to {1 << 24}")
        if self.mtu_bytes not in (256, 512, 1024, 2048, 4096) or self.duration_ps < 1:
            raise TrafficError("an MTU is 256 to 4096 bytes, and the time is more than none")


@dataclass(frozen=True)
class LinkEvent:
    """A link, by index, fails at ``time_ps``, or comes back."""

    time_ps: int
    link: int
    fails: bool = True


@dataclass
class Figures:
    """What has come of it.  Bytes are messages' own; ``latencies_ps`` are of messages that have arrived."""

    offered: int = 0
    held_back: int = 0
    delivered: int = 0
    lost: int = 0
    packets_sent: int = 0
    packets_delivered: int = 0
    bytes_in_time: int = 0
    drops: Counter[str] = field(default_factory=Counter)
    latencies_ps: array[int] = field(default_factory=lambda: array("q"))
    last_delivery_ps: int = 0
    reroutes: int = 0
    unroutable: int = 0

    def percentile_ps(self, share: float) -> int:
        """The latency that so many of the messages that have arrived have not passed; 0 of none."""
        if not self.latencies_ps:
            return 0
        ordered = np.sort(np.frombuffer(self.latencies_ps, np.int64))
        return int(ordered[min(int(share * len(ordered)), len(ordered) - 1)])


class _Message:
    """One that is under way: whose, since when, and how many packets are missing."""

    __slots__ = ("born_ps", "bytes", "missing", "sender")

    def __init__(self, sender: _Sender, born_ps: int, size: int, packets: int) -> None:
        self.sender = sender
        self.born_ps = born_ps
        self.bytes = size
        self.missing = packets


class _Sender:
    """A host that makes messages, at moments of its own."""

    def __init__(self, run: TrafficRun, host: int, seed: int, mbps: int) -> None:
        self.run = run
        self.host = host
        self.waiting_bytes = 0
        self.dice = Random(seed)
        traffic = run.traffic
        self.mean_ps = traffic.message_bytes * 8_000_000 / (mbps * traffic.load)

    def plan(self) -> None:
        """The next message."""
        pause_ps = max(int(self.dice.expovariate(1) * self.mean_ps), 1)
        self.run.events.plan(self.run.events.now_ps + pause_ps, self, 0)

    def fire(self, what: int, argument: Any, now_ps: int) -> None:
        """`Handler.fire`: make a message."""
        if now_ps < self.run.traffic.duration_ps:
            self.run.offer(self, now_ps)
            self.plan()


class TrafficRun:
    """``traffic`` over ``topology`` with its first ``routes``; ``run`` lets time go on.

    ``events_at`` are links that fail or come back; ``reroute_ps`` after each, ``reroute`` makes new routes.
    """

    def __init__(
        self,
        topology: Topology,
        routes: Routes,
        traffic: Traffic,
        *,
        settings: PortSettings | None = None,
        congestion: Callable[[int], CongestionControl] | None = None,
        events_at: Sequence[LinkEvent] = (),
        reroute: Rerouting = lambda gone: None,
        reroute_ps: int = 50_000_000,
    ) -> None:
        self.topology = topology
        self.traffic = traffic
        self.figures = Figures()
        self.hosts = _hosts(topology, routes.graph)
        if len(self.hosts) < 2:
            raise TrafficError("fewer than two hosts whose port 1 is linked to a switch")
        if not 1 <= routes.routing.lanes <= DATA_VLS:
            raise TrafficError(f"routes that need {routes.routing.lanes} virtual lanes")
        settings = settings or PortSettings(lanes=routes.routing.lanes)
        rates = {host: topology.links[_link_at(topology, host)].data_mbps for host in self.hosts}
        made = None if congestion is None else lambda: congestion(min(rates.values()))
        self.fabric = SwitchedFabric(
            topology, {}, self._arrived, settings=settings, congestion=made, lost=self._has_lost,
            seed=traffic.seed,
        )  # fmt: skip
        self.events: EventQueue = self.fabric.events
        base = routes.lids.base.tolist()
        self.lids = {node: base[at] for node, at in _first_ports(routes.graph).items()}
        self._levels: Bytes | None = None
        self._leaf: dict[int, int] = {}
        self._apply(routes)
        dice = Random(traffic.seed)
        self._partners = _partners(traffic.pattern, self.hosts, dice)
        self.senders = [_Sender(self, host, dice.getrandbits(64), rates[host]) for host in self._partners]
        for sender in self.senders:
            sender.plan()
        self._reroute, self._reroute_ps = reroute, reroute_ps
        self._gone: set[int] = set()
        for each in events_at:
            self.events.plan(each.time_ps, self, FAIL if each.fails else RESTORE, each.link)

    # routes

    def _apply(self, routes: Routes) -> None:
        """Let switches have these tables, and senders these service levels."""
        graph = routes.graph
        for number, index in enumerate(graph.switches.tolist()):
            switch = self.fabric.switches[index]
            switch.forwarding = routes.tables[number].tolist()
            lanes = routes.routing.lanes_of(number)
            if lanes is None:
                switch.sl_to_vl = {None: [0] * 16}
                continue
            rows = lanes.tolist()
            count = len(switch.ports)
            switch.sl_to_vl = {(a, b): rows[b] for a in range(count) for b in range(count)}
            switch.sl_to_vl[None] = [0] * 16
        self._levels = routes.routing.service_levels()
        leaves = graph.endpoints.switch.tolist()
        self._leaf = {node: leaves[at] for node, at in _first_ports(graph).items()}

    def _level(self, source: int, destination: int) -> int:
        leaves = self._leaf[source], self._leaf[destination]
        if self._levels is None or NO_SWITCH in leaves:
            return 0
        return int(self._levels[leaves])

    def fire(self, what: int, argument: Any, now_ps: int) -> None:
        """`Handler.fire`: a link fails or comes back, or routes are made anew."""
        if what == REROUTE:
            found = self._reroute(frozenset(self._gone))
            if found is None or found.routing.lanes > self.fabric.ends[self.hosts[0]].port.settings.lanes:
                self.figures.unroutable += 1
            else:
                self.figures.reroutes += 1
                self._apply(found)
            return
        if what == FAIL:
            self._gone.add(argument)
            self.fabric.fail(argument)
        else:
            self._gone.discard(argument)
            self.fabric.restore(argument)
        self.events.plan(now_ps + self._reroute_ps, self, REROUTE)

    # messages

    def offer(self, sender: _Sender, now_ps: int) -> None:
        """A sender makes a message, unless it has too much under way."""
        traffic, figures = self.traffic, self.figures
        choices = self._partners[sender.host]
        host = choices[0] if len(choices) == 1 else sender.dice.choice(choices)
        if sender.waiting_bytes >= MOST_WAITING_BYTES:
            figures.held_back += 1
            return
        figures.offered += 1
        size, mtu = traffic.message_bytes, traffic.mtu_bytes
        packets = -(-size // mtu)
        message = _Message(sender, now_ps, size, packets)
        sender.waiting_bytes += size
        slid, dlid, sl = self.lids[sender.host], self.lids[host], self._level(sender.host, host)
        for number in range(packets):
            length = min(mtu, size - number * mtu) + HEADERS_BYTES
            figures.packets_sent += 1
            self.fabric.send(sender.host, Packet(
                slid, dlid, length, sl=sl, message=figures.offered, begins=not number,
                ends=number == packets - 1, content=message,
            ))  # fmt: skip

    def _arrived(self, node: int, packet: Packet, now_ps: int) -> None:
        message = packet.content
        assert isinstance(message, _Message)
        figures = self.figures
        payload = packet.length_bytes - HEADERS_BYTES
        message.sender.waiting_bytes -= payload
        figures.packets_delivered += 1
        figures.last_delivery_ps = now_ps
        if now_ps <= self.traffic.duration_ps:
            figures.bytes_in_time += payload
        if message.missing > 0:
            message.missing -= 1
            if not message.missing:
                figures.delivered += 1
                figures.latencies_ps.append(now_ps - message.born_ps)

    def _has_lost(self, packet: Packet, reason: str) -> None:
        message = packet.content
        self.figures.drops[reason] += 1
        if not isinstance(message, _Message):
            return  # a notification of congestion
        message.sender.waiting_bytes -= packet.length_bytes - HEADERS_BYTES
        if message.missing > 0:
            message.missing = -1
            self.figures.lost += 1

    # time

    @property
    def unfinished(self) -> int:
        """Messages that have neither arrived nor been lost."""
        return self.figures.offered - self.figures.delivered - self.figures.lost

    def run(self, until_ps: int) -> None:
        """Let time go on until then."""
        self.events.run(until_ps)

    def loads(self) -> dict[End, float]:
        """What each end of a link has sent: the share of the time until now that it was sending."""
        now_ps = max(self.events.now_ps, 1)
        found = {}
        for link in self.topology.links:
            for end in (link.end_a, link.end_b):
                port = self.port(end)
                if port is not None:
                    sent_ps = port.counters.transmitted_data * 32_000_000 / link.data_mbps
                    found[end] = sent_ps / now_ps
        return found

    def port(self, end: End) -> Port | None:
        """The port at an end of a link; None: a host's second one, which is not used."""
        switch = self.fabric.switches.get(end.node)
        if switch is not None:
            return switch.ports[end.port]
        return self.fabric.ends[end.node].port if end.port == 1 else None


def _hosts(topology: Topology, graph: Graph) -> list[int]:
    """Nodes whose port 1 is linked to a switch, that are none themselves."""
    return [
        node for node in topology.end_nodes
        if (peer := topology.peer(node, 1)) is not None and peer.node in graph.number
    ]  # fmt: skip


def _first_ports(graph: Graph) -> dict[int, int]:
    """Which endpoint is each node's port 1."""
    ends = graph.endpoints
    ports = enumerate(zip(ends.node.tolist(), ends.port.tolist(), strict=True))
    return {node: at for at, (node, port) in ports if port == 1}


def _link_at(topology: Topology, host: int) -> int:
    found = topology.link_at(host, 1)
    assert found is not None
    return found


def _partners(pattern: str, hosts: Sequence[int], dice: Random) -> dict[int, list[int]]:
    """To whom each sender sends."""
    if pattern == "incast":
        return {host: [hosts[0]] for host in hosts[1:]}
    if pattern == "permutation":
        order = list(hosts)
        dice.shuffle(order)  # each sends to the next in a ring of all, so none to itself
        return {host: [order[(at + 1) % len(order)]] for at, host in enumerate(order)}
    return {host: [other for other in hosts if other != host] for host in hosts}
