"""A world: hosts with adapters, the simulated links between them, and virtual time.

Single-threaded; everything that happens is an entry of one heap, ordered by (time, sequence), and all dice
come from the world's seed.  So (scenario, seed) decides every byte: no clock, no global generator, no
memory address of this process is ever looked at.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from softhca.links.decisions import Script
from softhca.links.faults import Faults
from softhca.links.impairment import PASSED, Delivery, Impairment
from softhca.simulation.conditions import TIMER_NS
from softhca.simulation.echo import Echo
from softhca.simulation.ethernet_paths import EthernetPaths
from softhca.simulation.fabric_paths import FabricPaths
from softhca.simulation.forger import Forger
from softhca.simulation.frames import frames_of, header_bytes, place_of, port_at, unwrap
from softhca.simulation.node import Node
from softhca.simulation.oracle import Report
from softhca.simulation.oracle_congestion import NOTIFICATION, CongestionOracle
from softhca.simulation.oracle_wire import WireOracle
from softhca.simulation.tamperer import Tamperer
from softhca.simulation.trace import Trace
from softhca.testing.timeline import Timeline
from softhca.transport.congestion import DcqcnSettings
from softhca.transport.uniform import UniformBursts
from softhca.wire.burst import Arrival

START_NS = 1_000_000
DAMAGED = ("corrupted", "truncated")
DISORDERLY = ("reordered", "duplicated")
LATE_NS = 200_000
NOTIFICATION_BYTE = bytes([NOTIFICATION])
RECEIVING = (2, 3, 4, 5)
"""ibv_qp_state: RTR to SQE."""
TAMPERED = "tampered"
CUT = "cut"
"""Why a packet is lost whose port has failed."""

Tap = Callable[[int, str, int, int, bytes], object]
"""A listener: (time_ns, ``sent`` or ``received``, from adapter, to adapter, IP packet)."""


class Flight:
    """Packets of one burst that arrive together: of equal length but the last, each BTH … ICRC.

    ``numbers`` are the packets' in the trace, −1 for one that no adapter sent.  ``source`` is what the
    receiving host sees of their sender, ``port_number`` the port that they arrive by.
    """

    def __init__(
        self, from_node: Node, node: Node, packets: list[bytes], number: int, what: str,
        source: bytes | None, source_port: int, traffic_class: int, destination: bytes, port_number: int = 1,
    ) -> None:  # fmt: skip
        self.from_node = from_node
        self.node = node
        self.port_number = port_number
        self.packets = packets
        self.numbers = [number]
        self.what = what
        self.source = source
        self.source_port = source_port
        self.traffic_class = traffic_class
        self.destination = destination


class World(Timeline):
    """Time ``now`` (ns), ``nodes`` by number, the ``report`` of the oracles and the ``trace``.

    ``losses``: when which queue pair's packets vanished or were damaged, by (adapter, queue pair) they were
    for; ``late``: when those were sent that arrive later than a requester's timer.
    """

    def __init__(
        self,
        seed: str,
        faults: Faults,
        trace: Trace,
        tap: Tap | None = None,
        link: str = "ipv4",
        script: Script | None = None,
    ) -> None:
        super().__init__(START_NS)
        self.seed = seed
        self.faults = faults
        self.trace = trace
        self.report = Report()
        self.frames = frames_of(link)
        self.framing = self.frames.framing
        trace.raw = self.frames.raw
        self.nodes: dict[int, Node] = {}
        self._places: list[int] = []
        self._cut: set[int] = set()
        self.losses: dict[tuple[int, int], list[int]] = {}
        self.late: dict[tuple[int, int], list[int]] = {}
        self.wire = WireOracle(self.report, self.losses)
        self._tap = tap
        self._script = script
        # Links carry the headers only where something may happen to them.
        damaging = script is not None and script.damages
        self._whole = faults.corruption > 0 or faults.truncation > 0 or damaging
        self._links: dict[tuple[int, int], Impairment] = {}
        self._arrival = Arrival()
        self.window_bytes = 0
        self.patience = 1
        self.uniform: UniformBursts | None = None
        self._bursts = 0
        # In such a world adapters say first what they cannot do with what has arrived.
        self._holds = False
        self._forger: Forger | None = None
        self._tamperer: Tamperer | None = None
        self._echo: Echo | None = None
        self._paths: FabricPaths | None = None
        self.ethernet: EthernetPaths | None = None
        self.congestion: CongestionOracle | None = None
        self.dcqcn: DcqcnSettings | None = None

    def add(self, number: int, mtu: int = 3, ports: int = 1) -> Node:
        """Adapter ``number`` (`frames` says where its ports are); ``mtu`` is an ``ibv_mtu``."""
        node = Node(self, number, mtu, ports)
        self.join(node)
        return node

    def join(self, node: Any) -> None:
        """One more adapter, whatever it is made of, with the attributes of a `Node` that links use."""
        self.nodes[node.number] = node
        self._places += [place_of(node.number, port) for port in node.ports]

    def cut(self, number: int, port_number: int, cut: bool) -> None:
        """Nothing passes by a port of adapter ``number`` any more, or it does again."""
        if cut:
            self._cut.add(place_of(number, port_number))
        else:
            self._cut.discard(place_of(number, port_number))

    def forge(self, share: float, withdraws: bool = False) -> None:
        """Let a forger send packets of its own behind so many of the packets (`Forger`)."""
        self._forger = Forger(f"{self.seed}/{self.faults.seed}/forger", share, self.frames, withdraws)

    def hold(self) -> None:
        """Expect that registered memory is held now and then."""
        self._holds = True

    def tamper(self, share: float) -> None:
        """Let so many of the requests be replaced by malformed ones."""
        self._tamperer = Tamperer(f"{self.seed}/{self.faults.seed}/tamperer", share, self.frames)

    def limit_windows(self, window_bytes: int) -> None:
        """Let adapters that are added have windows of so many bytes, on paths that cut bursts."""
        self.window_bytes = window_bytes

    def echo(self) -> None:
        """Let NAKs follow RNR NAKs that say nothing new."""
        self._echo = Echo(f"{self.seed}/{self.faults.seed}/echo", self.frames)

    def switch(self, layout: str, dice: random.Random) -> FabricPaths:
        """Let all packets go through switches, joined as the layout of that name says."""
        self._paths = FabricPaths(self, layout, dice)
        return self._paths

    def wire_up(self, layout: str, dice: random.Random) -> EthernetPaths:
        """Let all packets go through Ethernet switches, as the layout of that name says, and adapters that
        are added from now on have the congestion control that it says."""
        self.ethernet = EthernetPaths(self, layout, dice)
        self.dcqcn = self.ethernet.layout.dcqcn
        if self.dcqcn is not None:
            self.congestion = CongestionOracle(self.report, self.dcqcn)
        return self.ethernet

    # time

    def run(self, events: int, limit_ns: int) -> None:
        """Until nothing is planned any more; a violation when that takes too long, or ``patience`` times too
        many events."""
        if not self.play(events * self.patience, limit_ns, self.report.advance):
            self.report.fail("worlds come to rest", f"still busy at {self.now} ns")

    # packets

    def carry(self, source: Any, burst: Any) -> None:
        """Hand an adapter's burst to the links towards its destination, packet by packet."""
        own = place_of(source.number, burst.route.port_number)
        self._bursts += 1
        for place in self.frames.destinations(burst.route, self._places):
            if place != own:
                self._send(source, own, place, burst)

    def _send(self, source: Node, own: int, place: int, burst: Any) -> None:
        """All packets of a burst; those that arrive together, untouched, do so as one run."""
        route, now, trace, frames = burst.route, self.now, self.trace, self.frames
        number, port_number = port_at(place)
        node = self.nodes[number]
        link = self._link(own, place)
        length, stride = burst.length, burst.stride
        linked, raw = frames.linked, frames.raw
        packets = memoryview(burst.buffer)
        run: Flight | None = None
        run_ns = 0
        for offset in range(0, length, stride):
            data = packets[offset : min(offset + stride, length)].tobytes()
            transport = frames.transport(data) if linked else data
            trace.packet(now, "sent", source.number, transport)
            told = self.congestion is not None and self.congestion.sent(
                now, node.number, transport, route.traffic_class, self._bursts
            )
            if not raw and not told:
                self.wire.sent(now, source.number, node.number, transport, route, data)
            frame = frames.whole(route, data) if self._whole else data
            if self._tap is not None:
                self._tap(now, "sent", source.number, node.number, frames.whole(route, data))
            if self.ethernet is not None:
                self.ethernet.carry(self._flight(source, node, route, PASSED, data, data), route, data)
                continue
            if self._paths is not None:
                self._paths.carry(self._flight(source, node, route, PASSED, data, data), data)
                continue
            cut = not self._cut.isdisjoint((own, place))
            copies = [] if cut else link.send(frame, now)
            if not copies:
                trace.packet(now, "lost", source.number, transport, CUT if cut else link.lost_because)
                self._lost(node, data)
            elif copies[0].time_ns - now > TIMER_NS:
                self.late.setdefault(self._receiver(node, data), []).append(now)
            wrong = self._tamperer.instead(route, data) if self._tamperer is not None else None
            if wrong is not None:
                copies = [Delivery(copy.time_ns, wrong, TAMPERED) for copy in copies]
            for copy in copies:
                if copy.what in DISORDERLY or copy.time_ns - now > LATE_NS:
                    self.wire.disorder()
                if run is not None and copy.what == PASSED and copy.time_ns == run_ns:
                    run.packets.append(data)
                    run.numbers.append(trace.packets)
                    continue
                flight = self._flight(source, node, route, copy.what, copy.data, data)
                flight.port_number = port_number
                if copy.what == PASSED:
                    run, run_ns = flight, copy.time_ns
                self.at(copy.time_ns, self.arrive, flight)
            if self._forger is not None:
                self._forge(source, node, route, data)
            if self._echo is not None:
                intact = [copy.time_ns for copy in copies if copy.what not in DAMAGED]
                # where none comes, a repeated one would be news
                for packet, delay_ns in self._echo.after(route, data) if intact else ():
                    self._add(source, node, route, route.source, packet, "forged", intact[0] + delay_ns)

    def _flight(self, source: Node, node: Node, route: Any, what: str, frame: bytes, data: bytes) -> Flight:
        if what == TAMPERED:
            data = frame
        elif what in DAMAGED:
            self._lost(node, data)
            data = frame  # the receiving host looks at the headers when it is there
        port, traffic_class = route.source_port, route.traffic_class
        return Flight(
            source, node, [data], self.trace.packets, what, route.source, port, traffic_class,
            route.destination,
        )  # fmt: skip

    def _forge(self, source: Node, node: Node, route: Any, data: bytes) -> None:
        assert self._forger is not None
        forged = self._forger.after(route, data)
        if forged is not None:
            packet, gid, delay_ns = forged
            self._add(source, node, route, gid, packet, "forged", self.now + delay_ns)

    def _add(
        self, source: Node, node: Node, route: Any, gid: bytes | None, packet: bytes, what: str, time_ns: int
    ) -> None:
        """A packet that no adapter has sent will arrive, as from ``gid``."""
        flight = Flight(source, node, [packet], -1, what, gid, route.source_port, 0, route.destination)
        self.at(time_ns, self.arrive, flight)

    def _lost(self, node: Node, data: bytes) -> None:
        self.losses.setdefault(self._receiver(node, data), []).append(self.now)

    def _receiver(self, node: Node, data: bytes) -> tuple[int, int]:
        """The adapter and queue pair that a packet is for."""
        return node.number, int.from_bytes(self.frames.transport(data)[5:8], "big")

    def drop(self, flight: Flight, reason: str) -> None:
        """Packets that were under way do not arrive."""
        for number, data in zip(flight.numbers, flight.packets, strict=True):
            transport = self.frames.transport(data)
            self.trace.packet(self.now, "lost", flight.node.number, transport, reason, number)
            self._lost(flight.node, data)

    def _link(self, source: int, destination: int) -> Impairment:
        link = self._links.get((source, destination))
        if link is None:
            link = Impairment(self.faults, self.seed, source, destination, self._script)
            self._links[source, destination] = link
        return link

    def arrive(self, flight: Flight) -> None:
        """Packets reach a host; an adapter that stands still takes them when it goes on."""
        node = flight.node
        if node.engine is None:
            self.drop(flight, "crash")
            return
        until_ns = node.stalled_until()
        if until_ns:
            self.at(until_ns, self.arrive, flight)
            return
        if flight.what in DAMAGED and not self.frames.linked and not self._mend(flight):
            return
        if flight.what == PASSED:
            transports = flight.packets
            if self.frames.linked:
                transports = [self.frames.transport(data) for data in flight.packets]
            self.trace.arrivals(self.now, node.number, transports, flight.numbers)
        else:
            self._note_arrival(flight)
        if not self._holds:
            self._judge_arrival(flight)
        if self._tap is not None:
            for data in flight.packets:
                self._tap_arrival(flight, data)
        if self.congestion is not None:
            self._judge_marks(self.congestion, flight)
        arrival, together = self._arrival, b"".join(flight.packets)
        arrival.buffer[: len(together)] = together
        arrival.length = len(together)
        arrival.stride = len(flight.packets[0])
        arrival.framing = self.framing
        arrival.source = flight.source
        arrival.source_port = flight.source_port
        arrival.destination = flight.destination
        arrival.traffic_class = flight.traffic_class
        node.engine.receive(flight.port_number, arrival, node.clock())
        if self._holds:
            self._judge_arrival(flight)
        node.turn()
        if self.congestion is not None:
            self.congestion.settled(self.now, node.number)

    def _judge_marks(self, oracle: CongestionOracle, flight: Flight) -> None:
        """Tell the oracle of congestion control what a queue pair is about to get."""
        for data in flight.packets:
            found = flight.node.engine.queue_pairs.get(int.from_bytes(data[5:8], "big"))
            alive = found is not None and found.state in RECEIVING
            oracle.arrives(self.now, flight.node.number, data, flight.traffic_class, alive)

    def _judge_arrival(self, flight: Flight) -> None:
        """Tell the oracle of the wire which packets an adapter takes."""
        number = flight.node.number
        if flight.numbers[0] < 0:
            return
        for data in flight.packets:
            transport = self.frames.transport(data)
            if transport[:1] == NOTIFICATION_BYTE:
                continue
            if flight.what not in DAMAGED:
                self.wire.received(self.now, number, transport)
            elif not self.frames.linked:
                self.wire.damaged(self.now, number, transport, flight)

    def _note_arrival(self, flight: Flight) -> None:
        """A packet that something happened to is about to be taken."""
        number, node = flight.numbers[0], flight.node
        transport = self.frames.transport(flight.packets[0])
        self.trace.packet(self.now, "received", node.number, transport, flight.what, number)
        if number < 0:
            self.wire.forged(node.number, transport)
        elif flight.what == TAMPERED:
            self.wire.malformed(node.number, transport)

    def _mend(self, flight: Flight) -> bool:
        """Let the receiving host's IP layer look at a damaged packet; whether its adapter is given it."""
        found = unwrap(self.framing, flight.packets[0])
        if not isinstance(found, str) and found.destination not in flight.node.gids:
            found = "not for this host"
        if isinstance(found, str):
            payload = flight.packets[0][header_bytes(self.framing) :]
            self.trace.packet(self.now, "lost", flight.node.number, payload, found, flight.numbers[0])
            return False
        flight.source, flight.destination = found.source, found.destination
        flight.source_port, flight.traffic_class = found.source_port, found.traffic_class
        flight.packets = [found.payload]
        return True

    def _tap_arrival(self, flight: Flight, data: bytes) -> None:
        """Show a packet as it would stand in a capture at the receiving host."""
        assert self._tap is not None
        packet = self.frames.whole(flight, data)
        self._tap(self.now, "received", flight.from_node.number, flight.node.number, packet)

    def close(self) -> None:
        """Close every device and give the memory back."""
        for node in self.nodes.values():
            node.close()
