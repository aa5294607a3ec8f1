"""Run one world: build it from (scenario, seed), let it come to rest, ask the oracles."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from softhca.driver import services
from softhca.links.decisions import Script
from softhca.links.faults import Faults
from softhca.simulation.arena import ATOMIC_BYTES, Buffer
from softhca.simulation.oracle import CompletionOrder, Violation, check_resources
from softhca.simulation.oracle_rc import CounterOracle, ReliableOracle
from softhca.simulation.oracle_uc import UnreliableOracle
from softhca.simulation.oracle_ud import DatagramOracle
from softhca.simulation.scenarios import (
    RC,
    SCENARIOS,
    UC,
    UD,
    Scenario,
    dice_of,
    faults_of,
    operations_of,
)
from softhca.simulation.trace import Trace
from softhca.simulation.traffic import (
    ALL_RIGHTS,
    DEPTH,
    QKEY,
    Oracles,
    Program,
    Receives,
    check_memory,
    receives_of,
)
from softhca.simulation.world import START_NS, Node, Tap, World

MTU = 3
MAX_EVENTS = 500_000
LIMIT_NS = 120_000_000_000
RELIABILITY = services.Reliability(timeout=8, min_rnr_timer=1, max_rd_atomic=4, max_dest_rd_atomic=4)


class ScenarioError(ValueError):
    """A scenario that does not exist; the message is one line that names the good ones."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a world.  ``digest`` covers the whole trace and all packets."""

    scenario: str
    seed: int
    digest: str
    duration_ns: int
    packets: int
    faults: str
    violations: tuple[Violation, ...]

    def document(self) -> dict[str, Any]:
        """The same as JSON values."""
        document = {name: getattr(self, name) for name in self.__slots__}
        document["violations"] = [
            {"time_ns": found.time_ns, "rule": found.rule, "text": found.text} for found in self.violations
        ]
        return document


def find_scenario(name: str) -> Scenario:
    """The scenario of that name; ScenarioError when there is none."""
    try:
        return SCENARIOS[name]
    except KeyError:
        raise ScenarioError(f"unknown scenario {name!r}: expected one of {', '.join(SCENARIOS)}") from None


def run_world(
    name: str,
    seed: int,
    faults: str = "",
    trace: Trace | None = None,
    tap: Tap | None = None,
    script: Script | None = None,
) -> Outcome:
    """Run scenario ``name`` with ``seed``; ``faults`` (a text for `Faults.parse`) change its own ones.

    ``script`` takes down what befalls single packets, or decides it in place of the dice.
    ScenarioError, FaultsError.
    """
    scenario = find_scenario(name)
    suffered = Faults.parse(faults, faults_of(scenario, seed))
    trace = trace or Trace()
    world = World(f"{name}/{seed}", suffered, trace, tap, scenario.ip, script)
    try:
        setting = Setting(world, scenario, seed)
        setting.run()
    finally:
        world.close()
    duration_ns = world.now - START_NS
    violations = tuple(world.report.violations)
    return Outcome(name, seed, trace.digest, duration_ns, trace.packets, str(suffered), violations)


class Setting:
    """The programs of a world of two adapters, and what they own."""

    def __init__(self, world: World, scenario: Scenario, seed: int) -> None:
        self.world = world
        self.scenario = scenario
        self.seed = seed
        self.nodes = [world.add(1, MTU), world.add(2, MTU)]
        self.counters = [
            node.arena.reserve(ATOMIC_BYTES, bytes(ATOMIC_BYTES), aligned=True) for node in self.nodes
        ]
        self.counter_oracles = [CounterOracle(world.report) for _ in self.nodes]
        faults = world.faults
        self.orderly = not (faults.duplication or faults.reordering)
        self.lossless = not (
            faults.loss or faults.burst_loss or faults.partitions or faults.flap_ns
            or faults.corruption or faults.truncation
        )  # fmt: skip
        self.datagrams = DatagramOracle(world.report, not faults.duplication, self.lossless)
        self.programs: list[tuple[Program, Program]] = []
        self._make_programs()
        for node in self.nodes:
            node.arena.freeze()
        self.keys = [self._open(node) for node in self.nodes]
        self._make_queue_pairs()

    def _make_programs(self) -> None:
        scenario, qps = self.scenario, range(self.scenario.qps)
        work = [
            [operations_of(scenario, self.seed, f"{node.number}/{i}") for i in qps] for node in self.nodes
        ]
        shared = [receives_of(scenario, node, work[1 - at]) for at, node in enumerate(self.nodes)]
        for i in qps:
            pair = []
            for at, node in enumerate(self.nodes):
                receives = shared[at] if scenario.shared else receives_of(scenario, node, [work[1 - at][i]])
                name = f"adapter {node.number} queue pair {i}"
                pair.append(self._program(node, name, work[at][i], receives, self.counters[at]))
            left, right = pair
            left.prepare(right)
            right.prepare(left)
            self._give_oracles(left, right, self.counter_oracles[1])
            self._give_oracles(right, left, self.counter_oracles[0])
            self.programs.append((left, right))

    def _program(
        self, node: Node, name: str, operations: list[Any], receives: Receives, counter: Buffer
    ) -> Program:
        order = CompletionOrder(self.world.report, name, self.scenario.may_fail)
        return Program(node, name, self.scenario, operations, receives, Oracles(order), counter)

    def _give_oracles(self, program: Program, peer: Program, counter: CounterOracle) -> None:
        """The oracles of the direction from ``program`` to its peer."""
        oracles, report = program.oracles, self.world.report
        if self.scenario.service == RC:
            oracles.rc = ReliableOracle(report, oracles.order, peer.oracles.order)
            oracles.counter = counter
        elif self.scenario.service == UC:
            oracles.uc = UnreliableOracle(report, oracles.order, self.orderly, self.lossless)
        else:
            oracles.ud = self.datagrams

    def _open(self, node: Node) -> tuple[int, Any, Any]:
        """Domain, key of the window and shared receive queue of one adapter."""
        pd = node.device.alloc_pd()
        view = memoryview(node.arena.memory)[node.arena.outside :][: node.arena.window_bytes]
        key = node.device.reg_mr(pd, 0, view.nbytes, ALL_RIGHTS, iova=node.arena.va, buffer=view)
        srq = None
        if self.scenario.shared:
            at = self.nodes.index(node)
            count = len(self.programs[0][at].receives.buffers)
            srq = node.device.create_srq(pd, count, 2)
        return pd, key, srq

    def _make_queue_pairs(self) -> None:
        dice = dice_of(self.scenario, self.seed, "psn")
        for pair in self.programs:
            for at, program in enumerate(pair):
                self._make_queue_pair(program, *self.keys[at])
            for program, peer in (pair, pair[::-1]):
                ends = {"qp": program.qp.number, "peer": peer.node.number, "peer_qp": peer.qp.number}
                self.world.trace.add(self.world.now, "queue_pair", program.node.number, **ends)
            psns = [
                self.scenario.first_psn if self.scenario.first_psn >= 0 else dice.randrange(1 << 24)
                for _ in pair
            ]
            for at, program in enumerate(pair):
                self._connect(program, psns[at], psns[1 - at], self.keys[at][0])

    def _make_queue_pair(self, program: Program, pd: int, key: Any, srq: Any) -> None:
        device, count = program.node.device, max(len(program.receives.buffers), 1)
        program.lkey, program.rkey, program.srq = key.lkey, key.rkey, srq
        program.cq = device.create_cq(count + 2 * DEPTH)
        program.qp = device.create_qp(
            pd, self.scenario.service, program.cq, program.cq, srq, DEPTH, 0 if srq else count, 2, 2, 0, False
        )

    def _connect(self, program: Program, psn: int, peer_psn: int, pd: int) -> None:
        path = services.Path(program.peer.node.gid, mtu=MTU)
        if self.scenario.service == UD:
            services.start_datagrams(program.qp, QKEY, psn)
            program.ah = program.node.device.create_ah(pd, path.vector())
            return
        how = RELIABILITY if self.scenario.service == RC else None
        services.connect(program.qp, path, program.peer.qp.number, peer_psn, psn, ALL_RIGHTS, how)

    def run(self) -> None:
        """Start the programs, let the world come to rest, check, destroy, check again."""
        world, scenario = self.world, self.scenario
        programs = [program for pair in self.programs for program in pair]
        for program in programs:
            program.post_receives(scenario.receives_first or len(program.receives.buffers))
            program.node.programs.append(program.turn)
            if scenario.receive_every_ns:
                world.at(world.now + scenario.receive_every_ns, program.refill)
        for node in self.nodes:
            world.trace.add(world.now, "start", node.number, scenario=scenario.name, seed=self.seed)
            world.at(world.now, node.turn)
        world.run(MAX_EVENTS, LIMIT_NS)
        for program in programs:
            program.finish()
        self.datagrams.finish()
        for at, oracle in enumerate(self.counter_oracles):
            value = self.nodes[at].arena.read(self.counters[at])
            oracle.finish(int.from_bytes(value, sys.byteorder))
        check_memory(self.nodes)
        self._destroy(programs)
        for node in self.nodes:
            counters = node.device.query_counters(1)
            drops = {name: count for name, count in counters.items() if count and name.startswith("drops_")}
            world.trace.add(world.now, "end", node.number, **drops)

    def _destroy(self, programs: list[Program]) -> None:
        for program in programs:
            program.qp.destroy()
            program.cq.destroy()
            if program.ah:
                program.node.device.destroy_ah(program.ah)
        for node, (pd, key, srq) in zip(self.nodes, self.keys, strict=True):
            if srq is not None:
                srq.destroy()
            node.device.dereg_mr(key.handle)
            node.device.dealloc_pd(pd)
            check_resources(self.world.report, node.number, node.resources())
