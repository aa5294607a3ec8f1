"""Hosts joined by Ethernet switches."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from softhca.fabric.ethernet.port import Frame, Port, join
from softhca.fabric.ethernet.settings import SwitchSettings
from softhca.fabric.ethernet.switch import EthernetSwitch, Lost
from softhca.fabric.switching.events import PS_PER_NS, EventQueue

Deliver = Callable[[int, Frame, int], None]
"""Called with the host's number, the frame and the time in picoseconds when a frame has arrived."""
MOST_WAITING_BYTES = 64 << 20
FULL_HOST = "host full"


@dataclass(frozen=True, slots=True)
class Cabling:
    """Hosts 1, 2 … stand at the switches ``hosts_at`` (numbered from 0); ``trunks`` join two switches each.

    ``host_mbps`` is the speed of hosts' links, ``slow`` those that have another one, ``trunk_mbps`` that
    of trunks.  ``delay_ns`` is each link's.  ValueError for what cannot be.
    """

    hosts_at: tuple[int, ...]
    trunks: tuple[tuple[int, int], ...] = ()
    host_mbps: int = 40_000
    trunk_mbps: int = 40_000
    delay_ns: int = 500
    slow: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if not self.hosts_at or min(self.hosts_at) < 0:
            raise ValueError("hosts stand at switches, which are numbered from 0")
        if any(a == b or min(a, b) < 0 for a, b in self.trunks):
            raise ValueError("a trunk joins two switches")
        speeds = (self.host_mbps, self.trunk_mbps, *(mbps for _, mbps in self.slow))
        if min(speeds) < 1 or self.delay_ns < 0:
            raise ValueError("links carry a megabit a second at least, and take no less than no time")

    @property
    def switches(self) -> int:
        """How many there are."""
        return 1 + max(*self.hosts_at, *(end for trunk in self.trunks for end in trunk), 0)

    def speed_of(self, host: int) -> int:
        """The speed of a host's link, in megabits a second."""
        return dict(self.slow).get(host, self.host_mbps)


class EthernetHost:
    """Host ``number`` at its one port."""

    def __init__(self, network: EthernetNetwork, number: int) -> None:
        self.number = number
        self.port = Port(network.events, self, 0)
        self._network = network

    def arrived(self, port: Port, frame: Frame, now_ps: int) -> None:
        """`Owner.arrived`."""
        self._network.deliver(self.number, frame, now_ps)

    def left(self, port: Port, frame: Frame, now_ps: int) -> None:
        """`Owner.left`."""


class EthernetNetwork:
    """``cabling`` with ``settings`` of all switches.  ``deliver`` gets what arrives, ``lost`` what does not.
    Everything is determined by the arguments, ``seed`` (which frames are marked) and the calls."""

    def __init__(
        self, cabling: Cabling, deliver: Deliver, *, settings: SwitchSettings | None = None, lost: Lost,
        seed: int = 0,
    ) -> None:
        self.cabling = cabling
        self.deliver = deliver
        self.events = EventQueue()
        self.drops: Counter[str] = Counter()
        self._told = lost
        settings, dice = settings or SwitchSettings(), Random(seed)
        ends: list[list[tuple[Port | None, int]]] = [[] for _ in range(cabling.switches)]
        self.hosts = {number: EthernetHost(self, number) for number in range(1, len(cabling.hosts_at) + 1)}
        for number, at in enumerate(cabling.hosts_at, 1):
            ends[at].append((self.hosts[number].port, number))
        for a, b in cabling.trunks:
            ends[a].append((None, b))
            ends[b].append((None, a))
        self.switches = [
            EthernetSwitch(self.events, len(here), settings, dice, self._lost) for here in ends
        ]
        self._join_all(ends)
        self._find_ways(ends)

    def _join_all(self, ends: list[list[tuple[Port | None, int]]]) -> None:
        cabling, delay_ps = self.cabling, self.cabling.delay_ns * PS_PER_NS
        open_ends: dict[tuple[int, int], deque[Port]] = {}
        for at, here in enumerate(ends):
            for number, (host_port, other) in enumerate(here):
                port = self.switches[at].ports[number]
                if host_port is not None:
                    join(port, host_port, cabling.speed_of(other), delay_ps)
                elif waiting := open_ends.get((other, at)):
                    join(port, waiting.popleft(), cabling.trunk_mbps, delay_ps)
                else:
                    open_ends.setdefault((at, other), deque()).append(port)

    def _find_ways(self, ends: list[list[tuple[Port | None, int]]]) -> None:
        """The shortest ways of all switches to all hosts."""
        for target in range(len(ends)):
            far = {target: 0}
            waiting = deque([target])
            while waiting:
                at = waiting.popleft()
                for port, other in ends[at]:
                    if port is None and other not in far:
                        far[other] = far[at] + 1
                        waiting.append(other)
            there = [host for port, host in ends[target] if port is not None]
            for at, here in enumerate(ends):
                if at == target:
                    continue
                nearer = [number for number, (port, other) in enumerate(here)
                          if port is None and at in far and far.get(other, far[at]) < far[at]]  # fmt: skip
                self.switches[at].ways.update(dict.fromkeys(there, nearer))
            for number, (port, host) in enumerate(ends[target]):
                if port is not None:
                    self.switches[target].ways[host] = [number]

    def send(self, frame: Frame) -> None:
        """A host sends a frame; it is lost where the host has too much to send already."""
        port = self.hosts[frame.source].port
        if sum(port.queued) + frame.length_bytes > MOST_WAITING_BYTES:
            self._lost(frame, FULL_HOST)
            return
        port.send(frame, self.events.now_ps)

    def _lost(self, frame: Frame, why: str) -> None:
        self.drops[why] += 1
        self._told(frame, why)

    def ports(self) -> Iterator[Port]:
        """All ports, those of switches first."""
        for switch in self.switches:
            yield from switch.ports
        for host in self.hosts.values():
            yield host.port

    def toward(self, host: int) -> Port:
        """The port of a switch behind which a host stands."""
        peer = self.hosts[host].port.peer
        assert peer is not None
        return peer

    def stuck(self) -> list[str]:
        """At rest: what should not be so, in words."""
        found = [f"switch {at}: {text}" for at, each in enumerate(self.switches) for text in each.at_rest()]
        for port in self.ports():
            if any(port.queued):
                found.append(f"a port {port.number} has frames left: {port.queued}")
        return found
