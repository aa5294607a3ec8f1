"""A setting of conversations: connections by the communication manager between all adapters of a world."""

from __future__ import annotations

import itertools
import random

from softhca.simulation.conversations import SERVICE_ID, Caller, Plan, Side
from softhca.simulation.oracle import check_resources
from softhca.simulation.scenarios import Scenario, dice_of
from softhca.simulation.world import World

MAX_EVENTS = 100_000
LIMIT_NS = 300_000_000_000
"""The communication manager sends again each half second, 15 times, and programs think long."""


class ConversationSetting:
    """One generation of programs; used as `softhca.simulation.setting.Setting`."""

    def __init__(self, world: World, scenario: Scenario, seed: int, generation: int = 1) -> None:
        self.world = world
        self.scenario = scenario
        dice = dice_of(scenario, seed, f"conversations/{generation}")
        living = [node for node in world.nodes.values() if node.engine is not None]
        sides = 2 * scenario.conversations * len(living)
        service_id = SERVICE_ID + generation
        self.callers = {
            node.number: Caller(node, sides, scenario.operations, service_id) for node in living
        }
        self._forsaken: set[int] = set()
        self.pairs: list[tuple[Side, Side]] = []
        for left, right in itertools.permutations(living, 2):
            for _ in range(scenario.conversations):
                own = random.Random(dice.getrandbits(64))
                plan = Plan.draw(
                    own, scenario.rounds, scenario.operations, scenario.largest_bytes, scenario.rounds > 1
                )
                mtu = min(left.mtu, right.mtu)
                paths = world.frames.paths(left.number, right.number, mtu, own)
                active, passive = (
                    Side(self.callers[node.number], len(self.pairs), at, plan, paths[at], own)
                    for at, node in enumerate((left, right))
                )
                active.peer, passive.peer = passive, active
                self.pairs.append((active, passive))

    def start(self) -> None:
        """Begin: everybody calls at about the same time."""
        for caller in self.callers.values():
            caller.node.tasks.append(caller.turn)
        for active, _ in self.pairs:
            active.caller.later(active.dice.randrange(100_000), active.call)

    def adapter_crashed(self, number: int) -> None:
        """The adapter of a host is about to die: its program does nothing more."""
        if number in self.callers:
            self.callers[number].stopped = True
            self._forsaken.add(number)

    def finish(self) -> None:
        """The world is at rest: what has come of the conversations.  Who was cut off for ever, or has lost
        its adapter, may not know what the other one does.
        """
        cut = any(partition.end_ns >= self.world.now for partition in self.world.faults.partitions)
        for active, passive in self.pairs:
            if not cut and not self._forsaken & {side.caller.node.number for side in (active, passive)}:
                active.judge()
            self.world.trace.add(
                self.world.now, "conversation", active.caller.node.number, index=active.index,
                rounds=active.round, states=[active.state, passive.state], stale=active.stale,
                received=[active.received, passive.received],
            )  # fmt: skip

    def destroy(self) -> None:
        """Take everything down, where its adapter still lives."""
        for caller in self.callers.values():
            if caller.alive:
                caller.close()

    def check_resources(self) -> None:
        """Nothing is left, when peers have been told and time-waits are over."""
        for caller in self.callers.values():
            caller.node.tasks.clear()
            caller.node.turn()
        self.world.run(MAX_EVENTS, LIMIT_NS)
        for number, caller in self.callers.items():
            check_resources(self.world.report, number, caller.node.resources())
