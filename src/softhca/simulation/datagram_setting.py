"""A setting of reliable datagrams: queue pairs on every adapter that talk to all others by EE contexts."""

from __future__ import annotations

import itertools

from softhca.simulation.conditions import GIVE_UP_NS
from softhca.simulation.datagram_programs import Channel, Datagram, DatagramProgram, RdQueuePair
from softhca.simulation.oracle import check_resources
from softhca.simulation.scenarios import Scenario, dice_of
from softhca.simulation.world import World

SPAN_NS = 2_000_000
"""Requests are posted within this time, and some again after EE contexts have failed and were renewed."""


class DatagramSetting:
    """One generation of programs; used as `softhca.simulation.setting.Setting`.

    ``failures`` of a scenario: so many EE contexts get into error while they are used, and are set up again.
    """

    def __init__(self, world: World, scenario: Scenario, seed: int, generation: int = 1) -> None:
        self.world = world
        self.scenario = scenario
        self._dice = dice = dice_of(scenario, seed, f"datagrams/{generation}")
        living = [node for node in world.nodes.values() if node.engine is not None]
        faults = world.faults
        breakable = bool(
            faults.loss or faults.burst_loss or faults.corruption or faults.truncation or faults.partitions
            or faults.flap_ns or faults.crashes or faults.stall_ns
        )  # fmt: skip
        self.queue_pairs: dict[tuple[int, int], RdQueuePair] = {}
        self.programs = [DatagramProgram(node, dice, self.queue_pairs, breakable) for node in living]
        receives = scenario.receives_first or scenario.operations
        for program in self.programs:
            program.populate(
                scenario.datagrams, scenario.operations, scenario.largest_bytes, receives, scenario.kinds
            )
        pairs = list(itertools.combinations(self.programs, 2))
        self.channels = [
            Channel(number, pair) for number, pair in enumerate(pairs * scenario.contexts)
        ]  # fmt: skip
        self._alive = len(living) == len(world.nodes)

    def start(self) -> None:
        """Connect, post requests, and let EE contexts fail."""
        now, dice = self.world.now, self._dice
        for program in self.programs:
            program.node.tasks.append(program.turn)
        for channel in self.channels:
            channel.connect(dice)
        failing = dice.sample(self.channels, self.scenario.failures)
        for channel in failing:
            self._plan_failure(channel, now + dice.randrange(SPAN_NS // 2))
        count = self.scenario.operations
        later = count // 4 if failing else 0
        for queue_pair in self.queue_pairs.values():
            ways = [each for each in self.channels if queue_pair.program in each.programs]
            moments = sorted(dice.randrange(SPAN_NS) for _ in range(count - later))
            moments += sorted(2 * GIVE_UP_NS + dice.randrange(SPAN_NS) for _ in range(later))
            for moment in moments if ways else ():
                channel = dice.choice(ways)
                other = channel.programs[1 - channel.programs.index(queue_pair.program)]
                target = dice.choice(list(other.by_number.values()))
                self._plan(now + moment, queue_pair.plan(target, channel, dice))

    def _plan(self, time_ns: int, datagram: Datagram) -> None:
        def post(_: object) -> None:
            if self._alive:
                datagram.source.post(datagram)
                datagram.source.program.node.turn()

        self.world.at(time_ns, post)

    def _plan_failure(self, channel: Channel, time_ns: int) -> None:
        own = self._dice.randrange(2)

        def fail(_: object) -> None:
            if self._alive:
                channel.end(own, self.world.now)
                channel.programs[own].node.turn()

        def renew(_: object) -> None:
            if self._alive:
                channel.renew(self.world.now, self._dice)
                for program in channel.programs:
                    program.node.turn()

        self.world.at(time_ns, fail)
        self.world.at(time_ns + GIVE_UP_NS + SPAN_NS, renew)

    def adapter_crashed(self, number: int) -> None:
        """The adapter of a host is about to die, and with it what this world is about."""
        self._alive = False

    def finish(self) -> None:
        """The world is at rest."""
        for queue_pair in self.queue_pairs.values() if self._alive else ():
            queue_pair.judge()
            ends = [each.status for each in queue_pair.datagrams]
            node = queue_pair.program.node
            figures = node.engine.ee_errors.figures()
            self.world.trace.add(
                self.world.now, "datagrams", node.number, qp=queue_pair.qp.number,
                failed=sum(map(bool, ends)), set_aside=figures["ee_error_cache_set_aside"],
            )  # fmt: skip

    def destroy(self) -> None:
        """Take everything down."""
        if self._alive:
            for ee in [ee for channel in self.channels for ee in channel.ees]:
                ee.destroy()
            for program in self.programs:
                program.close()

    def check_resources(self) -> None:
        """Nothing is left."""
        for program in self.programs if self._alive else ():
            check_resources(self.world.report, program.node.number, program.node.resources())
