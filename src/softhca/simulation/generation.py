"""What generations of programs have in common: ends on living adapters, and protection domains for them."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from softhca.driver import services
from softhca.driver.device import QpHandle
from softhca.simulation.conditions import RETRIES, TIMEOUT
from softhca.simulation.node import Node
from softhca.simulation.oracle import check_resources
from softhca.simulation.scenarios import Scenario, dice_of
from softhca.simulation.world import World

ALL_RIGHTS = 7


class Stoppable:
    """A program at an adapter; ``stopped``: that dies, or a request has failed, and it does nothing more."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.stopped = False

    def later(self, delay_ns: int, action: Callable[[], None]) -> None:
        """Do something in a while, unless the program has stopped by then."""

        def now(_: object) -> None:
            if not self.stopped:
                action()
                self.node.turn()

        self.node.world.at(self.node.world.now + delay_ns, now)


class GenerationEnd(Stoppable, ABC):
    """A program at one end of a connection, with dice of its own."""

    def __init__(self, node: Node, dice: random.Random) -> None:
        super().__init__(node)
        self.dice = dice

    @abstractmethod
    def turn(self) -> bool:
        """Go on; whether there was anything to do."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back."""

    def wake(self, _: object = None) -> None:
        """Begin, or look again."""
        self.node.turn()

    def violate(self, rule: str, text: str) -> None:
        """The rule does not hold."""
        self.node.world.report.fail(rule, f"adapter {self.node.number}: {text}")


E = TypeVar("E", bound=GenerationEnd)


class Generation(Generic[E]):
    """Programs ``ends`` on the adapters that live when it is made, with dice for ``purpose``."""

    def __init__(self, world: World, scenario: Scenario, seed: int, purpose: str) -> None:
        self.world = world
        self.ends: list[E] = []
        self.living = [node for node in world.nodes.values() if node.engine is not None]
        self._dice = dice_of(scenario, seed, purpose)
        self._pds = {node.number: node.device.alloc_pd() for node in self.living}
        self._crashes = {node.number: node.crashes for node in self.living}

    def start(self) -> None:
        """Begin."""
        for end in self.ends:
            end.node.tasks.append(end.turn)
            self.world.at(self.world.now, end.wake)

    def adapter_crashed(self, number: int) -> None:
        """The adapter of a host is about to die: its ends do nothing more."""
        for end in self.ends:
            if end.node.number == number:
                end.stopped = True

    def _alive(self, number: int) -> bool:
        return self._crashes[number] == self.world.nodes[number].crashes

    def destroy(self) -> None:
        """Take everything down, where its adapter still lives."""
        for end in self.ends:
            if self._alive(end.node.number):
                end.close()
        for number, pd in self._pds.items():
            if self._alive(number):
                self.world.nodes[number].device.dealloc_pd(pd)

    def check_resources(self) -> None:
        """Nothing is left."""
        for number in self._pds:
            check_resources(self.world.report, number, self.world.nodes[number].resources())


def connector(
    world: World, left: Node, right: Node, dice: random.Random, reads: int
) -> Callable[[QpHandle, QpHandle], None]:
    """Takes pairs of queue pairs between two adapters to RTS, all along one path; ``reads`` at once."""
    mtu = min(left.mtu, right.mtu)
    paths = world.frames.paths(left.number, right.number, mtu, dice)
    how = services.Reliability(TIMEOUT, RETRIES, RETRIES, 1, reads, reads)

    def connect(one: QpHandle, other: QpHandle) -> None:
        psns = dice.randrange(1 << 24), dice.randrange(1 << 24)
        services.connect(one, paths[0], other.number, psns[1], psns[0], ALL_RIGHTS, how)
        services.connect(other, paths[1], one.number, psns[0], psns[1], ALL_RIGHTS, how)

    return connect
