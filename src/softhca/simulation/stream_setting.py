"""A setting of streams: connections between all adapters of a world, with data both ways."""

from __future__ import annotations

import itertools
import random

from softhca.driver import services
from softhca.simulation.conditions import RETRIES, TIMEOUT
from softhca.simulation.oracle import check_resources
from softhca.simulation.scenarios import Scenario, dice_of
from softhca.simulation.streams import Plan, StreamEnd
from softhca.simulation.world import World

ALL_RIGHTS = 7


def connect(world: World, left: StreamEnd, right: StreamEnd, dice: random.Random) -> None:
    """Take the queue pairs of both ends to RTS; and the ends know each other."""
    mtu = min(left.node.mtu, right.node.mtu)
    paths = world.frames.paths(left.node.number, right.node.number, mtu, dice)
    how = services.Reliability(TIMEOUT, RETRIES, RETRIES, 1, 1, 1)
    psns = dice.randrange(1 << 24), dice.randrange(1 << 24)
    services.connect(left.qp, paths[0], right.qp.number, psns[1], psns[0], ALL_RIGHTS, how)
    services.connect(right.qp, paths[1], left.qp.number, psns[0], psns[1], ALL_RIGHTS, how)
    left.meet(right)
    right.meet(left)


class StreamSetting:
    """One generation, connected when it is made; used as `softhca.simulation.setting.Setting`."""

    def __init__(self, world: World, scenario: Scenario, seed: int, generation: int = 1) -> None:
        self.world = world
        self._dice = dice_of(scenario, seed, f"streams/{generation}")
        living = [node for node in world.nodes.values() if node.engine is not None]
        self._pds = {node.number: node.device.alloc_pd() for node in living}
        self._crashes = {node.number: node.crashes for node in living}
        self.streams: list[tuple[StreamEnd, StreamEnd]] = []
        numbers = itertools.count()
        for left, right in itertools.combinations(living, 2):
            for _ in range(scenario.streams):
                dice = random.Random(self._dice.getrandbits(64))
                plans = [Plan.draw(dice, scenario.largest_bytes) for _ in range(2)]
                ends = [
                    StreamEnd(node, self._pds[node.number], next(numbers), dice, *own)
                    for node, own in ((left, plans), (right, plans[::-1]))
                ]
                connect(world, ends[0], ends[1], self._dice)
                self.streams.append((ends[0], ends[1]))

    @property
    def _ends(self) -> list[StreamEnd]:
        return [end for stream in self.streams for end in stream]

    def start(self) -> None:
        """Begin."""
        for end in self._ends:
            end.node.tasks.append(end.turn)
            self.world.at(self.world.now, end.wake)

    def adapter_crashed(self, number: int) -> None:
        """The adapter of a host is about to die: its ends do nothing more."""
        for end in self._ends:
            if end.node.number == number:
                end.stopped = True

    def finish(self) -> None:
        """The world is at rest: ask what has arrived."""
        for left, right in self.streams:
            left.finish(right)
            right.finish(left)

    def _alive(self, number: int) -> bool:
        return self._crashes[number] == self.world.nodes[number].crashes

    def destroy(self) -> None:
        """Take everything down, where its adapter still lives."""
        for end in self._ends:
            if self._alive(end.node.number):
                end.close()
        for number, pd in self._pds.items():
            if self._alive(number):
                self.world.nodes[number].device.dealloc_pd(pd)

    def check_resources(self) -> None:
        """Nothing is left."""
        for number in self._pds:
            check_resources(self.world.report, number, self.world.nodes[number].resources())
