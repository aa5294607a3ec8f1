"""Worlds whose RoCEv2 adapters are joined by Ethernet switches: all packets go through an `EthernetNetwork`.

Adapter N is host N.  What queues are too full for is lost, what long ones have is marked.  Oracles: at rest
nothing is left in switches; where they pause senders, nothing is lost; and that of congestion control
(`oracle_congestion`), where adapters have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from softhca.fabric.ethernet.network import Cabling, EthernetNetwork
from softhca.fabric.ethernet.port import Frame
from softhca.fabric.ethernet.settings import Marking, Pausing, SwitchSettings
from softhca.fabric.switching.events import PS_PER_US
from softhca.testing.ethernet import frame_of
from softhca.testing.event_pump import EventPump
from softhca.transport.congestion import DcqcnSettings
from softhca.wire.ip import ECN_MASK

if TYPE_CHECKING:
    from softhca.simulation.world import Flight, World

LATE_PS = 100 * PS_PER_US
RULES = ("switches come to rest", "with pauses nothing is lost")

LINK_MBPS, SLOW_MBPS = 10_000, 1_000
DCQCN = DcqcnSettings(
    line_mbps=LINK_MBPS, gain=0.0625, alpha_ns=15_000, increase_ns=20_000, increase_bytes=20_000,
    additive_mbps=100, hyper_mbps=300, least_mbps=50, cut_ns=8_000, notify_ns=8_000,
)  # fmt: skip
"""Numbers for the short lives of worlds."""


@dataclass(frozen=True)
class EthernetLayout:
    """``text`` says how adapters are joined; ``dcqcn``: they have congestion control."""

    text: str
    cabling: Cabling
    settings: SwitchSettings
    dcqcn: DcqcnSettings | None = None


_STAR = Cabling((0,) * 4, host_mbps=LINK_MBPS, slow=((1, SLOW_MBPS),))
_MARKS = Marking(2_000, 12_000, 0.5)
LAYOUTS = {
    "tail drop": EthernetLayout(
        "one switch with short queues, and a slow link to the first adapter", _STAR,
        SwitchSettings(queue_bytes=12_000, marking=None),
    ),
    "marks": EthernetLayout(
        "the same with long queues that mark, and adapters that slow down", _STAR,
        SwitchSettings(queue_bytes=1 << 20, marking=_MARKS), DCQCN,
    ),
    "marks and pauses": EthernetLayout(
        "two switches that mark, and pause those who do not slow down in time",
        Cabling((0, 1, 1), ((0, 1),), host_mbps=LINK_MBPS, trunk_mbps=LINK_MBPS, slow=((1, SLOW_MBPS),)),
        SwitchSettings(buffer_bytes=120_000, queue_bytes=120_000, marking=_MARKS,
                       pausing=Pausing(9_000, 5_000, tuple(range(6)))), DCQCN,
    ),
}  # fmt: skip


class EthernetPaths:
    """The Ethernet of a world."""

    def __init__(self, world: World, name: str, dice: Random) -> None:
        self._world = world
        self.layout = LAYOUTS[name]
        self.network = EthernetNetwork(
            self.layout.cabling, self._arrived, settings=self.layout.settings, lost=self._lost,
            seed=dice.getrandbits(32),
        )  # fmt: skip
        self._pump = EventPump(world, self.network.events)

    def carry(self, flight: Flight, route: object, data: bytes) -> None:
        """A packet that an adapter sends now; ``flight`` arrives when it does."""
        frame = frame_of(flight.from_node.number, flight.node.number, route, data,
                         (flight, self._world.now))  # fmt: skip
        self._pump.keep_up()
        self.network.send(frame)
        self._pump.plan()

    def _arrived(self, host: int, frame: Frame, now_ps: int) -> None:
        flight, born_ns = frame.content
        if self._world.now - born_ns > LATE_PS // 1_000:
            self._world.wire.disorder()
        flight.traffic_class = flight.traffic_class & ~ECN_MASK | frame.ecn
        self._world.at(self._world.now, self._world.arrive, flight)

    def _lost(self, frame: Frame, why: str) -> None:
        if self.layout.settings.pausing is not None:
            text = f"{frame.length_bytes} bytes to host {frame.destination}: {why}"
            self._world.report.fail(RULES[1], text)
        self._world.drop(frame.content[0], why)

    def finish(self) -> None:
        """The world is at rest."""
        for text in self.network.stuck():
            self._world.report.fail(RULES[0], text)
