"""A setting of lines: connections between programs whose requests name queues (XRC), or have one each."""

from __future__ import annotations

import itertools

from softhca.driver import services
from softhca.simulation.conditions import RETRIES, TIMEOUT
from softhca.simulation.exchanges import (
    FLUSH_ABROAD,
    FLUSH_GLOBAL,
    FLUSH_PERSISTENT,
    FOREIGN_KEY,
    NO_QUEUE,
    ODD_CELL,
    RIGHTS,
    Exchange,
    ExchangeProgram,
    Line,
)
from softhca.simulation.kinds import ADD, ATOMIC_WRITE, FLUSH, SEND, WRITE
from softhca.simulation.oracle import check_resources
from softhca.simulation.scenarios import Scenario, dice_of
from softhca.simulation.world import World

SPAN_NS = 2_000_000
"""Requests are posted within this time."""


class ExchangeSetting:
    """One generation of programs; used as `softhca.simulation.setting.Setting`.

    ``lines`` of a scenario: so many from each adapter to each other one; ``queues``: each program has so many
    shared receive queues in an XRC domain, 0: lines are of RC.  ``quit``: one of these queues is closed while
    it is used.  ``violation``: lines end with a request that must be refused.
    """

    def __init__(self, world: World, scenario: Scenario, seed: int, generation: int = 1) -> None:
        self.world = world
        self.scenario = scenario
        self._dice = dice = dice_of(scenario, seed, f"exchanges/{generation}")
        living = [node for node in world.nodes.values() if node.engine is not None]
        faults = world.faults
        breakable = bool(
            faults.loss or faults.burst_loss or faults.corruption or faults.truncation or faults.partitions
            or faults.flap_ns or faults.crashes or faults.stall_ns
        )  # fmt: skip
        self.programs = [ExchangeProgram(node, dice, breakable, scenario.queues > 0) for node in living]
        self.lines: list[Line] = []
        self._alive = len(living) == len(world.nodes)
        depth = scenario.operations + 1
        receives = scenario.receives_first or scenario.operations
        for program in self.programs:
            program.open_cq(2 * depth * scenario.lines * len(self.programs))
            for _ in range(scenario.queues):
                program.add_inbox(receives, scenario.largest_bytes)
        for source, target in itertools.permutations(self.programs, 2):
            for index in range(scenario.lines):
                inboxes = target.inboxes
                if not scenario.queues:
                    inboxes = [target.add_inbox(receives, scenario.largest_bytes)]
                elif scenario.quit and index % 2:
                    inboxes = inboxes[1:]  # what becomes of the first one is nothing to this line
                line = Line(len(self.lines), source, target, inboxes, depth, scenario.largest_bytes)
                self.lines.append(line)

    def start(self) -> None:
        """Connect, post receives and requests, and let a queue be closed."""
        now, dice, scenario = self.world.now, self._dice, self.scenario
        for program in self.programs:
            program.node.tasks.append(program.turn)
        for line in self.lines:
            self._connect(line)
        for inbox in [inbox for program in self.programs for inbox in program.inboxes]:
            for slot in range(inbox.receives):
                inbox.post(slot)
        for line in self.lines:
            for moment in sorted(dice.randrange(SPAN_NS) for _ in range(scenario.operations)):
                self._plan(now + moment, line, line.plan(dice.choice(scenario.kinds), dice))
            if scenario.violation and dice.random() < 0.7:
                self._plan(now + SPAN_NS, line, self._offence(line))
        if scenario.quit:
            for program in self.programs:
                self._plan_close(program, now + dice.randrange(SPAN_NS))

    def _offence(self, line: Line) -> Exchange:
        xrc = bool(self.scenario.queues)
        offence = self._dice.choice((NO_QUEUE, FOREIGN_KEY) if xrc else (FLUSH_ABROAD, ODD_CELL, FOREIGN_KEY))
        kinds = {FLUSH_ABROAD: FLUSH, ODD_CELL: ATOMIC_WRITE, FOREIGN_KEY: WRITE, NO_QUEUE: SEND}
        return line.plan(ADD if offence == NO_QUEUE and self._dice.random() < 0.5 else kinds[offence],
                         self._dice, offence)  # fmt: skip

    def _connect(self, line: Line) -> None:
        dice, left, right = self._dice, line.source.node, line.target.node
        paths = self.world.frames.paths(left.number, right.number, min(left.mtu, right.mtu), dice)
        psns = [dice.randrange(1 << 24) for _ in range(2)]
        how = services.Reliability(TIMEOUT, RETRIES, RETRIES, 1, 4, 4)
        ends = ((line.qp, line.peer), (line.peer, line.qp))
        rights = RIGHTS | FLUSH_GLOBAL | FLUSH_PERSISTENT
        for own, (qp, peer) in enumerate(ends):
            services.connect(qp, paths[own], peer.number, psns[own], psns[1 - own], rights, how)

    def _plan(self, time_ns: int, line: Line, exchange: Exchange) -> None:
        def post(_: object) -> None:
            if self._alive:
                line.post(exchange)
                line.source.node.turn()

        self.world.at(time_ns, post)

    def _plan_close(self, program: ExchangeProgram, time_ns: int) -> None:
        def close(_: object) -> None:
            if self._alive:
                program.inboxes[0].close_queue(self.world.now)
                program.node.turn()

        self.world.at(time_ns, close)

    def adapter_crashed(self, number: int) -> None:
        """The adapter of a host is about to die, and with it what this world is about."""
        self._alive = False

    def finish(self) -> None:
        """The world is at rest."""
        if not self._alive:
            return
        for line in self.lines:
            line.judge()
            ends = [each.status for each in line.exchanges]
            self.world.trace.add(
                self.world.now, "line", line.source.node.number, qp=line.qp.number,
                failed=sum(map(bool, ends)),
            )  # fmt: skip
        for program in self.programs:
            for inbox in program.inboxes:
                asked = [each for line in self.lines for each in line.exchanges
                         if each.kind == ADD and each.inbox is inbox and not each.offence]  # fmt: skip
                inbox.judge(asked)

    def destroy(self) -> None:
        """Take everything down."""
        if self._alive:
            for line in self.lines:
                line.close()
            for program in self.programs:
                program.close()

    def check_resources(self) -> None:
        """Nothing is left."""
        for program in self.programs if self._alive else ():
            check_resources(self.world.report, program.node.number, program.node.resources())
