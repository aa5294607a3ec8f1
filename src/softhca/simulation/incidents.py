"""What happens to programs in the middle of their talk: regions taken back, queues drained, pairs left."""

from __future__ import annotations

import random
from collections.abc import Iterable

from softhca.queues.control_fields import EVENT_SQ_DRAINED
from softhca.simulation.asynchronous_events import complain
from softhca.simulation.conditions import GIVE_UP_NS
from softhca.simulation.host import Host
from softhca.simulation.program import Pair, Program
from softhca.simulation.scenarios import Scenario
from softhca.simulation.world import World
from softhca.transport.states import ERR, RTS, SQD

REVOKE_NS, DRAIN_NS, LEAVE_NS = 100_000, 60_000, 200_000
"""How long after the start at most."""
DESTROYED = 0.4
"""So many of those who leave destroy their queue pair at once."""


class Incidents:
    """Plans what a scenario has happen, at moments and to programs that the dice choose."""

    def __init__(self, world: World, scenario: Scenario, dice: random.Random) -> None:
        self._world = world
        self._scenario = scenario
        self._dice = dice

    def plan(self, hosts: Iterable[Host], pairs: list[Pair]) -> None:
        """From now on things may happen."""
        world, dice = self._world, self._dice
        for host in hosts if self._scenario.revoke else ():
            world.at(world.now + dice.randrange(REVOKE_NS), Host.revoke, host)
        for pair in pairs if self._scenario.drain else ():
            time_ns = world.now + dice.randrange(DRAIN_NS)
            world.at(time_ns, self._drain, pair[dice.randrange(2)])
        for pair in pairs if self._scenario.quit else ():
            leaver = pair[dice.randrange(2)]
            world.at(world.now + dice.randrange(LEAVE_NS), self._leave, leaver)

    def _drain(self, program: Program) -> None:
        """A program lets what has begun come to its end, and nothing else begin (IBTA vol. 1, 10.3.1)."""
        if not _in_state(program, RTS):
            return
        program.qp.modify({"qp_state": SQD, "en_sqd_async_notify": 1})
        program.node.turn()
        self._world.at(self._world.now + GIVE_UP_NS, self._resume, program)

    def _resume(self, program: Program) -> None:
        """Long enough after that: the program was told that it is drained, and goes on; later still where so
        much was lost that it is not.
        """
        if not program.host.alive:
            return
        attributes = program.qp.query()
        if attributes["qp_state"] != SQD:
            return
        if attributes["sq_draining"]:
            self._world.at(self._world.now + GIVE_UP_NS, self._resume, program)
            return
        program.node.hear()
        if (EVENT_SQ_DRAINED, program.qp.number) not in program.node.events:
            complain(program.node, f"{program.name}: no event for the drained send queue")
        program.qp.modify({"qp_state": RTS})
        program.qp.ring()
        program.wake()
        program.node.turn()

    def _leave(self, program: Program) -> None:
        """A program takes its queue pair to the error state, and still waits for all its completions; or it
        destroys it.
        """
        if not program.host.alive:
            return
        program.stopped = True
        if self._dice.random() < DESTROYED:
            program.oracles.order.abandoned = True
            program.destroy()
        else:
            program.qp.modify({"qp_state": ERR})
        program.node.turn()


def _in_state(program: Program, state: int) -> bool:
    """Whether a program's adapter lives and its queue pair is in a state."""
    return program.host.alive and program.qp.query()["qp_state"] == state
