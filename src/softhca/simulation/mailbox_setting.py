"""A setting of mailboxes: connections in both directions between all adapters of a world."""

from __future__ import annotations

import itertools
import random

from softhca.simulation.generation import Generation, connector
from softhca.simulation.mailboxes import End, Plan, Reader, Writer
from softhca.simulation.scenarios import Scenario
from softhca.simulation.world import World

READS_AT_ONCE = 4


def connect_ends(world: World, left: End, right: End, dice: random.Random) -> None:
    """Take the queue pairs of two ends to RTS."""
    connect = connector(world, left.node, right.node, dice, READS_AT_ONCE)
    for one, other in zip(left.qps, right.qps, strict=True):
        connect(one, other)


class MailboxSetting(Generation[End]):
    """One generation, connected when it is made; used as `softhca.simulation.setting.Setting`."""

    def __init__(self, world: World, scenario: Scenario, seed: int, generation: int = 1) -> None:
        super().__init__(world, scenario, seed, f"mailboxes/{generation}")
        self._readers: list[Reader] = []
        numbers = itertools.count()
        for left, right in itertools.permutations(self.living, 2):
            for _ in range(scenario.pairs):
                dice = random.Random(self._dice.getrandbits(64))
                plan = Plan.draw(dice, scenario.operations, scenario.largest_bytes)
                writer = Writer(left, self._pds[left.number], next(numbers), dice, plan)
                reader = Reader(right, self._pds[right.number], next(numbers), dice, plan)
                writer.reader, reader.writer = reader, writer
                connect_ends(world, writer, reader, self._dice)
                self.ends += [writer, reader]
                self._readers.append(reader)

    def finish(self) -> None:
        """The world is at rest: ask what has arrived."""
        for reader in self._readers:
            reader.finish()
