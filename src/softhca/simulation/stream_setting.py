"""A setting of streams: connections between all adapters of a world, with data both ways."""

from __future__ import annotations

import itertools
import random

from softhca.simulation.generation import Generation, connector
from softhca.simulation.scenarios import Scenario
from softhca.simulation.streams import Plan, StreamEnd
from softhca.simulation.world import World


class StreamSetting(Generation[StreamEnd]):
    """One generation, connected when it is made; used as `softhca.simulation.setting.Setting`."""

    def __init__(self, world: World, scenario: Scenario, seed: int, generation: int = 1) -> None:
        super().__init__(world, scenario, seed, f"streams/{generation}")
        numbers = itertools.count()
        for left, right in itertools.combinations(self.living, 2):
            for _ in range(scenario.streams):
                dice = random.Random(self._dice.getrandbits(64))
                plans = [Plan.draw(dice, scenario.largest_bytes) for _ in range(2)]
                one, other = (
                    StreamEnd(node, self._pds[node.number], next(numbers), dice, *own)
                    for node, own in ((left, plans), (right, plans[::-1]))
                )
                connector(world, left, right, self._dice, 1)(one.qp, other.qp)
                one.meet(other)
                other.meet(one)
                self.ends += [one, other]

    def finish(self) -> None:
        """The world is at rest: ask what has arrived."""
        for left, right in zip(self.ends[::2], self.ends[1::2], strict=True):
            left.finish(right)
            right.finish(left)
