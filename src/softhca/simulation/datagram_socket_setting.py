"""A setting of datagram sockets: some on each adapter of a world, which send to those of all others."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

from softhca.driver.services import start_datagrams
from softhca.simulation.datagram_sockets import QKEY, DatagramSocketEnd
from softhca.simulation.generation import Generation
from softhca.simulation.scenarios import Scenario
from softhca.simulation.world import World


class DatagramSocketSetting(Generation[DatagramSocketEnd]):
    """One generation, ready when it is made; used as `softhca.simulation.setting.Setting`."""

    def __init__(self, world: World, scenario: Scenario, seed: int, generation: int = 1) -> None:
        super().__init__(world, scenario, seed, f"datagram-sockets/{generation}")
        mtu = min(node.mtu for node in self.living)
        numbers = itertools.count()
        for node in self.living:
            for _ in range(scenario.sockets):
                dice = random.Random(self._dice.getrandbits(64))
                end = DatagramSocketEnd(
                    node, self._pds[node.number], next(numbers), dice, scenario.operations,
                    scenario.largest_bytes, mtu,
                )  # fmt: skip
                start_datagrams(end.qp, QKEY, self._dice.randrange(1 << 24))
                self.ends.append(end)
        for end in self.ends:
            end.meet(
                [(other, self._way(end, other, mtu)) for other in self.ends if other.node is not end.node]
            )
        for end in self.ends:
            end.agree()

    def _way(self, end: DatagramSocketEnd, other: DatagramSocketEnd, mtu: int) -> int:
        """An address handle."""
        here, there = end.node, other.node
        path = self.world.frames.paths(here.number, there.number, mtu, self._dice)[0]
        # By their GRH a socket's datagrams say whose they are.
        vector = replace(path, dgid=there.gid).vector()
        return here.device.create_ah(self._pds[here.number], vector)

    def finish(self) -> None:
        """The world is at rest: ask what has arrived."""
        for end in self.ends:
            end.finish()
