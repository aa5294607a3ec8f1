"""Hosts joined by Ethernet switches."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Protocol

from softhca.fabric.ethernet.port import LINK_DOWN, Frame, Port, join
from softhca.fabric.ethernet.settings import SwitchSettings
from softhca.fabric.ethernet.switch import EthernetSwitch, Lost
from softhca.fabric.switching.events import PS_PER_NS, EventQueue

Deliver = Callable[[int, Frame, int], None]
"""Called with the host's number, the frame and the time in picoseconds when a frame has arrived."""
MOST_WAITING_BYTES = 64 << 20
FULL_HOST = "host full"


class Cable(NamedTuple):
    """A link from a switch, numbered from 0, to host ``other``, numbered from 1, or where that is no host to
    another switch."""

    switch: int
    other: int
    is_host: bool
    mbps: int
    delay_ns: int


class Cabled(Protocol):
    """How hosts and switches are joined."""

    @property
    def switches(self) -> int:
        """How many switches there are."""

    @property
    def cables(self) -> Sequence[Cable]:
        """All links.  Each host has one."""


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

    @property
    def cables(self) -> tuple[Cable, ...]:
        """`Cabled.cables`: those of hosts first."""
        delay = self.delay_ns
        hosts = [Cable(at, n, True, self.speed_of(n), delay) for n, at in enumerate(self.hosts_at, 1)]
        return (*hosts, *(Cable(a, b, False, self.trunk_mbps, delay) for a, b in self.trunks))


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
        self._network.left(self.number)

    def lost(self, port: Port, frame: Frame, why: str) -> None:
        """`Owner.lost`."""
        self._network.lose(frame, why)


class EthernetNetwork:
    """``cabling`` with ``settings`` of all switches.  ``deliver`` gets what arrives, ``lost`` what does not.
    Everything is determined by the arguments, ``seed`` (which frames are marked) and the calls.

    ``links`` are both ends of each cable; ``left`` is called with a host's number after a frame has gone out
    there."""

    def __init__(
        self, cabling: Cabled, deliver: Deliver, *, settings: SwitchSettings | None = None, lost: Lost,
        seed: int = 0,
    ) -> None:
        self.cabling = cabling
        self.deliver = deliver
        self.left: Callable[[int], None] = lambda host: None
        self.events = EventQueue()
        self.drops: Counter[str] = Counter()
        self._told = lost
        settings, dice = settings or SwitchSettings(), Random(seed)
        cables = cabling.cables
        # of each switch, port by port: what is there, and whether that is a host
        self._ends: list[list[tuple[int, bool]]] = [[] for _ in range(cabling.switches)]
        numbers = [self._number(cable) for cable in cables]
        self.hosts = {
            number: EthernetHost(self, number)
            for number in sorted(cable.other for cable in cables if cable.is_host)
        }
        self.switches = [
            EthernetSwitch(self.events, len(here), settings, dice, self.lose) for here in self._ends
        ]
        self.links: list[tuple[Port, Port]] = []
        for cable, (near, far) in zip(cables, numbers, strict=True):
            port = self.switches[cable.switch].ports[near]
            other = self.switches[cable.other].ports[far] if far >= 0 else self.hosts[cable.other].port
            join(port, other, cable.mbps, cable.delay_ns * PS_PER_NS)
            self.links.append((port, other))
        self._find_ways()

    def _number(self, cable: Cable) -> tuple[int, int]:
        """The next free ports at the ends of a cable; −1 at a host."""
        here = self._ends[cable.switch]
        here.append((cable.other, cable.is_host))
        near = len(here) - 1
        if cable.is_host:
            return near, -1
        there = self._ends[cable.other]
        there.append((cable.switch, False))
        return near, len(there) - 1

    def _find_ways(self) -> None:
        """The shortest ways of all switches to all hosts, over links that are up."""
        ends = [
            [(port, *end) for port, end in zip(switch.ports, here, strict=True) if port.up]
            for switch, here in zip(self.switches, self._ends, strict=True)
        ]
        for switch in self.switches:
            switch.ways.clear()
        for target, here in enumerate(ends):
            there = [(other, port.number) for port, other, is_host in here if is_host]
            if not there:
                continue
            self.switches[target].ways.update({host: [number] for host, number in there})
            far = _distances(ends, target)
            for at, distance in far.items():
                if at != target:
                    nearer = [port.number for port, other, is_host in ends[at]
                              if not is_host and far.get(other, distance) < distance]  # fmt: skip
                    self.switches[at].ways.update({host: nearer for host, _ in there})

    def set_link(self, index: int, up: bool) -> bool:
        """A cable fails, or is put in again; False: it was so already.  Ways are found anew at once."""
        ports = self.links[index]
        if ports[0].up == up:
            return False
        for port in ports:
            if up:
                port.bring_up()
            else:
                port.take_down(self.events.now_ps)
        self._find_ways()
        return True

    def send(self, frame: Frame) -> None:
        """A host sends a frame; it is lost where the host has too much to send already."""
        port = self.hosts[frame.source].port
        if not port.up:
            self.lose(frame, LINK_DOWN)
        elif sum(port.queued) + frame.length_bytes > MOST_WAITING_BYTES:
            self.lose(frame, FULL_HOST)
        else:
            port.send(frame, self.events.now_ps)

    def lose(self, frame: Frame, why: str) -> None:
        """A frame does not arrive."""
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


def _distances(ends: Sequence[Sequence[tuple[Port, int, bool]]], target: int) -> dict[int, int]:
    """How many links each switch is away from one; those that cannot reach it are left out."""
    far = {target: 0}
    waiting = deque([target])
    while waiting:
        at = waiting.popleft()
        for _, other, is_host in ends[at]:
            if not is_host and other not in far:
                far[other] = far[at] + 1
                waiting.append(other)
    return far
