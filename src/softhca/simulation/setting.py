"""A setting: one generation of programs between all adapters of a world, from connecting to destroying."""

from __future__ import annotations

from softhca.simulation.asynchronous_events import check_events
from softhca.simulation.conditions import Conditions
from softhca.simulation.connections import Connections
from softhca.simulation.host import Host
from softhca.simulation.incidents import Incidents
from softhca.simulation.kinds import RC
from softhca.simulation.oracle import check_resources
from softhca.simulation.pager import Pager
from softhca.simulation.program import Program
from softhca.simulation.program_planner import ProgramPlanner, break_receives
from softhca.simulation.scenarios import Scenario, dice_of
from softhca.simulation.window_race import WindowRace
from softhca.simulation.world import World


class Setting:
    """Programs, connected when it is made; `start` lets them talk, `finish` asks the oracles.

    Where an adapter crashes, `adapter_crashed` ends the programs there; another generation begins when
    it is back.
    """

    def __init__(self, world: World, scenario: Scenario, seed: int, generation: int = 1) -> None:
        self.world = world
        self.scenario = scenario
        dice = dice_of(scenario, seed, f"setting/{generation}")
        name = f"{scenario.name}/{seed}/{generation}"
        living = [node for node in world.nodes.values() if node.engine is not None]
        self.hosts = {node.number: Host(node, name) for node in living}
        conditions = Conditions.draw(scenario, world.faults, dice)
        planner = ProgramPlanner(world, conditions, dice, self.hosts, seed, generation)
        self.datagrams = planner.datagrams
        self.pairs = planner.pairs()
        self._incidents = Incidents(world, scenario, dice)
        connections = Connections(world, conditions, dice)
        for host in self.hosts.values():
            if scenario.holds:
                purpose = f"pager/{generation}/{host.node.number}"
                host.pager = Pager(host, world, scenario, dice_of(scenario, seed, purpose))
            host.open()
            programs = self._programs_of(host)
            for program in programs:
                break_receives(program)
            if programs:
                connections.make_queues(host, programs)
        for pair in self.pairs:
            connections.connect(pair)
        self._races = self._make_races(name)

    def _make_races(self, name: str) -> list[WindowRace]:
        """One for each host as the owner of windows, its neighbour being the peer."""
        if not self.scenario.races:
            return []
        hosts = list(self.hosts.values())
        neighbours = [*hosts[1:], hosts[0]]
        return [
            WindowRace(self.world, owner, peer, self.scenario.races, name)
            for owner, peer in zip(hosts, neighbours, strict=True)
        ]

    @property
    def programs(self) -> list[Program]:
        """All of them."""
        return [program for pair in self.pairs for program in pair]

    def _programs_of(self, host: Host) -> list[Program]:
        return [program for program in self.programs if program.host is host]

    def start(self) -> None:
        """Post receives and begin."""
        world, scenario = self.world, self.scenario
        for program in self.programs:
            program.post_receives(scenario.receives_first or len(program.receives.buffers))
            if scenario.receive_every_ns:
                program.plan_refill()
        for program in self.programs:
            world.at(world.now, program.wake)
        for host in self.hosts.values():
            host.arm_srq()
            if host.pager is not None:
                host.pager.plan()
        self._incidents.plan(self.hosts.values(), self.pairs)
        for race in self._races:
            race.start()

    def adapter_crashed(self, number: int) -> None:
        """The adapter of a host is about to die: its programs will see nothing more."""
        for program in self.programs:
            if program.node.number == number:
                program.stopped = True
                program.oracles.order.abandoned = True

    def finish(self) -> None:
        """The world is at rest: ask the oracles, look at events and memory."""
        for host in self.hosts.values():
            host.drain()
        for host in self.hosts.values():
            check_events(host, self._programs_of(host))
        for program in self.programs:
            program.recorder.finish()
        self.datagrams.finish()
        for race in self._races:
            race.finish()
        self.world.wire.finish()
        for host in self.hosts.values():
            host.check_memory(counted=self.scenario.service == RC)

    def destroy(self) -> None:
        """Take everything down, where its adapter still lives."""
        for race in self._races:
            race.destroy()
        for host in self.hosts.values():
            if host.alive:
                for program in self._programs_of(host):
                    program.destroy()
                host.destroy()

    def check_resources(self) -> None:
        """Nothing is left."""
        for host in self.hosts.values():
            check_resources(self.world.report, host.node.number, host.node.resources())
