"""A setting of mailboxes: connections in both directions between all adapters of a world."""

from __future__ import annotations

import itertools
import random

from softhca.driver import services
from softhca.simulation.conditions import RETRIES, TIMEOUT
from softhca.simulation.mailboxes import End, Plan, Reader, Writer
from softhca.simulation.oracle import check_resources
from softhca.simulation.scenarios import Scenario, dice_of
from softhca.simulation.world import World

ALL_RIGHTS = 7
READS_AT_ONCE = 4


def connect_ends(world: World, left: End, right: End, dice: random.Random) -> None:
    """Take the queue pairs of two ends to RTS."""
    mtu = min(left.node.mtu, right.node.mtu)
    paths = world.frames.paths(left.node.number, right.node.number, mtu, dice)
    how = services.Reliability(TIMEOUT, RETRIES, RETRIES, 1, READS_AT_ONCE, READS_AT_ONCE)
    for one, other in zip(left.qps, right.qps, strict=True):
        psns = dice.randrange(1 << 24), dice.randrange(1 << 24)
        services.connect(one, paths[0], other.number, psns[1], psns[0], ALL_RIGHTS, how)
        services.connect(other, paths[1], one.number, psns[0], psns[1], ALL_RIGHTS, how)


class MailboxSetting:
    """One generation, connected when it is made; used as `softhca.simulation.setting.Setting`."""

    def __init__(self, world: World, scenario: Scenario, seed: int, generation: int = 1) -> None:
        self.world = world
        self.scenario = scenario
        self._dice = dice_of(scenario, seed, f"mailboxes/{generation}")
        living = [node for node in world.nodes.values() if node.engine is not None]
        self._pds = {node.number: node.device.alloc_pd() for node in living}
        self._crashes = {node.number: node.crashes for node in living}
        self.directions: list[tuple[Writer, Reader]] = []
        numbers = itertools.count()
        for left, right in itertools.permutations(living, 2):
            for _ in range(scenario.pairs):
                dice = random.Random(self._dice.getrandbits(64))
                plan = Plan.draw(dice, scenario.operations, scenario.largest_bytes)
                writer = Writer(left, self._pds[left.number], next(numbers), dice, plan)
                reader = Reader(right, self._pds[right.number], next(numbers), dice, plan)
                writer.reader, reader.writer = reader, writer
                connect_ends(world, writer, reader, self._dice)
                self.directions.append((writer, reader))

    @property
    def _ends(self) -> list[End]:
        return [end for direction in self.directions for end in direction]

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
        for _, reader in self.directions:
            reader.finish()

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
