"""A setting with one end in gates: their host and a software adapter's program over native links."""

from __future__ import annotations

from typing import Any

from softhca.driver.services import Reliability
from softhca.simulation.conditions import Conditions
from softhca.simulation.gates_node import GatesNode
from softhca.simulation.gates_sides import MTU_BYTES, ROOM_BYTES, GatesSide, Side, SoftwareSide
from softhca.simulation.gates_talks import Ground, Messages, Refusal, Talk, Withdrawal
from softhca.simulation.kinds import RC
from softhca.simulation.node import Node
from softhca.simulation.oracle import check_resources, first_difference
from softhca.simulation.oracle_wire_packets import Terms
from softhca.simulation.scenarios import Scenario, dice_of
from softhca.simulation.world import World

STEP_CLOCKS, MOST_CLOCKS, QUIET_CLOCKS = 64, 4_000_000, 64
MOST_EVENTS, LIMIT_NS = 50_000, 5_000_000_000
MESSAGES_QP, REFUSAL_QP, WITHDRAWAL_QP = 1, 2, 3
TIMEOUT, RETRIES, RNR_FOREVER, RNR_TIMER = 5, 7, 7, 1
READS = 3
"""Of each side, under way at most."""


class GatesSetting:
    """The one generation; used as `softhca.simulation.setting.Setting`, but `play` lets time go by."""

    def __init__(self, world: World, scenario: Scenario, seed: int, generation: int = 1) -> None:
        self.world = world
        dice = dice_of(scenario, seed, "gates")
        node = world.nodes[1]
        self.node = GatesNode(world, 2)
        world.join(self.node)
        world.trace.add(world.now, "start", 2, scenario=scenario.name, seed=seed, gid=self.node.gid.hex())
        self.gates, self.software = GatesSide(self.node), SoftwareSide(node)
        lossy = not Conditions.draw(scenario, world.faults, dice).lossless
        ground = Ground(self.gates, self.software, world.report, lossy)
        quarter = ROOM_BYTES // 4
        self.withdrawal = Withdrawal(ground, WITHDRAWAL_QP, 2 * quarter, quarter, dice)
        self.talks: dict[int, Talk] = {
            MESSAGES_QP: Messages(ground, MESSAGES_QP, 0, quarter, dice, scenario),
            REFUSAL_QP: Refusal(ground, REFUSAL_QP, quarter, quarter // 4, dice),
            WITHDRAWAL_QP: self.withdrawal,
        }
        self._psns = {qp: (dice.randrange(1 << 24), dice.randrange(1 << 24)) for qp in self.talks}
        self._lossy = lossy
        self._peer: Node = node

    def start(self) -> None:
        """All begins with `play`."""

    def play(self) -> None:
        """Until all talks have finished and both are at rest; a violation where that takes too long."""
        self.node.bench.run(self._play)

    async def _play(self, context: Any) -> None:
        await self.gates.start(context)
        for qp in self.talks:
            await self._connect(context, qp)
        await self.gates.connect(context, Withdrawal.OWNER_QP, 0, 0, (0, 0), 0, 1)
        for talk in self.talks.values():
            await talk.begin(context)
        while not all(talk.finished for talk in self.talks.values()):
            if self.node.bench.clock > MOST_CLOCKS:
                left = [qp for qp, talk in self.talks.items() if not talk.finished]
                self.world.report.fail("every request completes", f"queue pairs {left} of the gates wait")
                break
            await self.node.elapse(context, STEP_CLOCKS)
            await self._look(context)
        await self.node.bench.until_quiet(context, QUIET_CLOCKS, MOST_CLOCKS)
        await self.node.elapse(context, STEP_CLOCKS)
        self.world.run(MOST_EVENTS, LIMIT_NS)
        await self._look(context)

    async def _look(self, context: Any) -> None:
        """Take all completions."""
        sides: tuple[Side, Side] = (self.gates, self.software)
        for side in sides:
            for done in side.poll():
                qp = WITHDRAWAL_QP if done.qp == Withdrawal.OWNER_QP else done.qp
                self.world.trace.add(
                    self.world.now, "completion", 2 if side is self.gates else 1, qp=done.qp, work=done.work,
                    status=done.status,
                )  # fmt: skip
                await self.talks[qp].ended(context, side, done)

    async def _connect(self, context: Any, qp: int) -> None:
        psns, lid = self._psns[qp], self._peer.engine.port.lid
        number = self.software.new_queue_pair(qp)
        how = Reliability(TIMEOUT, RETRIES, RNR_FOREVER, RNR_TIMER, READS, READS)
        self.software.connect(qp, self.node.lid, psns, how)
        await self.gates.connect(context, qp, number, lid, psns, TIMEOUT, READS)
        ends = (self.node.number, qp), (self._peer.number, number)
        for one, peer, own, theirs in ((*ends, *psns), (*ends[::-1], *psns[::-1])):
            terms = Terms(
                f"queue pair {one[1]} of adapter {one[0]}", own, theirs, MTU_BYTES, TIMEOUT, RETRIES,
                RNR_FOREVER, RNR_TIMER, READS, strict=False,
            )  # fmt: skip
            # the gates' engines come to a packet when they have done with those before it
            self.world.wire.connect(one, peer, RC, terms, prompt=one[0] != self.node.number)

    def adapter_crashed(self, number: int) -> None:
        """Adapters of such a world do not die."""

    def finish(self) -> None:
        """The world is at rest: all bytes of both sides are as they should be."""
        self.withdrawal.finish()
        for side in (self.gates, self.software):
            found = side.content()
            if found != side.image:
                at = first_difference(found, bytes(side.image))
                self.world.report.fail("no byte without the right", f"byte {at} of the {side.name}")
            if not side.untouched():
                self.world.report.fail("no byte without the right", f"the {side.name}'s closed memory")
        self.world.wire.finish()

    def destroy(self) -> None:
        """Take everything down."""
        self.software.destroy()

    def check_resources(self) -> None:
        """Nothing is left."""
        check_resources(self.world.report, self._peer.number, self._peer.resources())
