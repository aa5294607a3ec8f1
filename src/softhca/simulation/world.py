"""A world: adapters, the simulated links between them, and virtual time.

Single-threaded; everything that happens is an entry of one heap, ordered by (time, sequence), and all dice
come from the world's seed.  So (scenario, seed) decides every byte: no clock, no global generator, no
memory address of this process is ever looked at.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

from softhca.adapter.config import AdapterConfig
from softhca.adapter.engine import NEVER, PORT_NUMBER, Adapter
from softhca.adapter.resources import Kind
from softhca.driver.channels import EmbeddedChannel
from softhca.driver.device import DeviceDriver
from softhca.links.decisions import Script
from softhca.links.faults import Faults
from softhca.links.impairment import PASSED, Impairment, is_off, phase_ns
from softhca.memory.host import HostMemory
from softhca.simulation.arena import Arena
from softhca.simulation.oracle import Report
from softhca.simulation.trace import Trace
from softhca.wire.burst import Arrival, Burst
from softhca.wire.framing import ROCE_V4, ROCE_V6

START_NS = 1_000_000
HOST_MEMORY_BYTES = 256 << 20
MILLION = 1_000_000
BURSTS_A_TURN = 1_000
TURNS = 1_000

_new_engine: Callable[..., Any] = Adapter

Tap = Callable[[int, str, int, int, int, bytes], object]
"""A listener: (time_ns, ``sent`` or ``received``, from adapter, to adapter, UDP source
port, packet BTH … ICRC)."""


class Node:
    """Adapter ``number`` of a world with the one device open on it, and the host's memory.

    ``programs`` are asked for something to do whenever the adapter had something to do.
    """

    def __init__(self, world: World, number: int, gid: bytes, mtu: int) -> None:
        dice = random.Random(f"{world.seed}/adapter/{number}")
        faults = world.faults
        self.world = world
        self.number = number
        self.gid = gid
        self.arena = Arena(number, dice)
        self.programs: list[Callable[[], bool]] = []
        self._skew_ppm = dice.randint(-faults.skew_ppm, faults.skew_ppm) if faults.skew_ppm else 0
        self._stall_phase_ns = phase_ns(f"{world.seed}/{faults.seed}/stall/{number}", faults.stall_period_ns)
        self._wake_ns = NEVER
        config = AdapterConfig(gids=(gid,), active_mtu=mtu)
        self.engine = _new_engine(config, seed=dice.getrandbits(64), now=self.clock())
        self.engine.observer = self._observe
        self._burst = Burst()
        channel = EmbeddedChannel(
            HostMemory(HOST_MEMORY_BYTES),
            lambda: self.engine.kick(self.clock()),
            lambda: False,
            lambda ready, timeout_s: ready(),
            lambda: self.engine.detach_host(self._host),
        )
        self._host = self.engine.attach_host(channel)
        self.device = DeviceDriver(f"adapter{number}", channel)

    def clock(self) -> int:
        """What the adapter believes the time is."""
        now = self.world.now
        return now + now * self._skew_ppm // MILLION

    def _observe(self, event: str, qp: int, psn: int, state: str, reason: str) -> None:
        """Something happened inside the adapter (`softhca.transport.observation`)."""
        self.world.trace.inside(self.world.now, event, self.number, qp, psn, state, reason)

    def _world_time(self, local_ns: int) -> int:
        """The first moment of the world at which `clock` shows ``local_ns``."""
        moment = local_ns * MILLION // (MILLION + self._skew_ppm)
        while moment + moment * self._skew_ppm // MILLION < local_ns:
            moment += 1
        return moment

    def stalled_until(self) -> int:
        """0, or when the adapter goes on."""
        period_ns, stall_ns = self.world.faults.stall_period_ns, self.world.faults.stall_ns
        moment = self.world.now + self._stall_phase_ns
        return self.world.now + period_ns - moment % period_ns if is_off(moment, period_ns, stall_ns) else 0

    def turn(self) -> None:
        """Let the adapter and its programs do all that can be done at this moment; then plan the next one."""
        wake_ns = self.stalled_until()
        if not wake_ns:
            now = self.clock()
            self.engine.expire(now)
            for _ in range(TURNS):
                busy = self._transmit(now)
                for program in self.programs:
                    busy = program() or busy
                if not busy:
                    break
            else:
                self.world.report.fail("adapters come to rest", f"adapter {self.number} always has work")
            deadline_ns = self.engine.next_deadline()
            if deadline_ns >= NEVER:
                return
            wake_ns = max(self._world_time(deadline_ns), self.world.now + 1)
        if wake_ns < self._wake_ns or self._wake_ns <= self.world.now:
            self._wake_ns = wake_ns
            self.world.at(wake_ns, lambda: self._wake(wake_ns))

    def _wake(self, planned_ns: int) -> None:
        if planned_ns == self._wake_ns:
            self._wake_ns = NEVER
            self.turn()

    def _transmit(self, now: int) -> bool:
        for sent in range(BURSTS_A_TURN):
            if not self.engine.transmit(PORT_NUMBER, self._burst, now):
                return sent > 0
            self.world.carry(self, self._burst)
        return True

    def resources(self) -> dict[str, int]:
        """What exists in the adapter, and the bytes charged to its windows."""
        counts = {kind.name: self.engine.resources.count(kind) for kind in Kind}
        windows = self.engine.port.windows.values()
        counts["bytes in flight"] = sum(window.in_flight_bytes for window in windows)
        counts["window waiters"] = sum(len(window.waiters) for window in windows)
        return counts


class World:
    """Time ``now`` (ns), ``nodes`` by number, the ``report`` of the oracles and the ``trace``."""

    def __init__(
        self,
        seed: str,
        faults: Faults,
        trace: Trace,
        tap: Tap | None = None,
        ip: int = 4,
        script: Script | None = None,
    ) -> None:
        self.seed = seed
        self.faults = faults
        self.trace = trace
        self.report = Report()
        self.ip = ip
        self.nodes: dict[int, Node] = {}
        self._tap = tap
        self._script = script
        self._heap: list[tuple[int, int, Callable[[], object]]] = []
        self._sequence = 0
        self._links: dict[tuple[int, int], Impairment] = {}
        self._by_gid: dict[bytes, Node] = {}
        self._arrival = Arrival()
        self.now = START_NS

    def add(self, number: int, mtu: int = 3) -> Node:
        """Adapter ``number`` at 192.0.2.``number`` or 2001:db8::``number``; ``mtu`` is an ``ibv_mtu``."""
        gid = gid_of(number, self.ip)
        node = self.nodes[number] = self._by_gid[gid] = Node(self, number, gid, mtu)
        return node

    def at(self, time_ns: int, action: Callable[[], object]) -> None:
        """Do something at a moment, after what was planned for it before."""
        self._sequence += 1
        heapq.heappush(self._heap, (time_ns, self._sequence, action))

    def run(self, events: int, limit_ns: int) -> None:
        """Until nothing is planned any more; a violation when that takes too many events or too long."""
        end_ns = self.now + limit_ns
        for _ in range(events):
            if not self._heap:
                return
            self.now, _, action = heapq.heappop(self._heap)
            self.report.now = self.now
            if self.now > end_ns:
                break
            action()
        self.report.fail("worlds come to rest", f"still busy at {self.now} ns")

    def carry(self, source: Node, burst: Any) -> None:
        """Hand an adapter's burst to the link towards its destination, packet by packet."""
        route = burst.route
        node = self._by_gid[route.destination]
        link = self._link(source.number, node.number)
        port, traffic_class = route.source_port, route.traffic_class
        for offset in range(0, burst.length, burst.stride):
            data = bytes(burst.buffer[offset : min(offset + burst.stride, burst.length)])
            self.trace.packet(self.now, "sent", source.number, data)
            if self._tap is not None:
                self._tap(self.now, "sent", source.number, node.number, route.source_port, data)
            copies, number = link.send(data, self.now), self.trace.packets
            if not copies:
                self.trace.packet(self.now, "lost", source.number, data, link.lost_because)
            for copy in copies:
                self.at(
                    copy.time_ns,
                    lambda copy=copy, number=number: self._arrive(  # type: ignore[misc]
                        source, node, copy.data, copy.what, port, traffic_class, number
                    ),
                )

    def _link(self, source: int, destination: int) -> Impairment:
        link = self._links.get((source, destination))
        if link is None:
            link = Impairment(self.faults, self.seed, source, destination, self._script)
            self._links[source, destination] = link
        return link

    def _arrive(
        self,
        source: Node,
        node: Node,
        data: bytes,
        what: str,
        source_port: int,
        traffic_class: int,
        number: int,
    ) -> None:
        """A packet reaches an adapter; one that stands still takes it when it goes on."""
        until_ns = node.stalled_until()
        if until_ns:
            again = (source, node, data, what, source_port, traffic_class, number)
            self.at(until_ns, lambda: self._arrive(*again))
            return
        self.trace.packet(self.now, "received", node.number, data, "" if what == PASSED else what, number)
        if self._tap is not None:
            self._tap(self.now, "received", source.number, node.number, source_port, data)
        arrival = self._arrival
        arrival.buffer[: len(data)] = data
        arrival.length = arrival.stride = len(data)
        arrival.framing = ROCE_V4 if self.ip == 4 else ROCE_V6
        arrival.source = source.gid
        arrival.source_port = source_port
        arrival.destination = node.gid
        arrival.traffic_class = traffic_class
        node.engine.receive(PORT_NUMBER, arrival, node.clock())
        node.turn()

    def close(self) -> None:
        """Close every device and give the memory back."""
        for node in self.nodes.values():
            node.device.close()


def gid_of(number: int, ip: int) -> bytes:
    """The GID of adapter ``number``, from the addresses for documentation (RFC 5737, RFC 3849)."""
    if ip == 4:
        return bytes(10) + b"\xff\xff\xc0\x00\x02" + bytes([number])
    return bytes.fromhex("20010db8") + bytes(11) + bytes([number])
