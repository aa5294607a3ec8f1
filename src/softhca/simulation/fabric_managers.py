"""Subnet managers of a world's switches: one is master, one stands by; the master dies under load.

Datagrams of managers and agents cross the same links as the packets, step by step, and what the master writes
into switches is what they forward by.  Links fail before the master dies, so that it may do so in the middle
of re-routing, and while there is none; later they return.  Oracles: the standby is master in time, and by
what stands in the switches every adapter reaches every other one over links that are up.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from softhca.fabric.manager import states
from softhca.fabric.manager.managed_fabric import ManagedFabric
from softhca.fabric.manager.manager import FabricManager, ManagerConfig
from softhca.fabric.topology import End

if TYPE_CHECKING:
    from softhca.simulation.fabric_paths import FabricPaths
    from softhca.simulation.world import World

STEP_NS = 2_000
"""A round of datagrams: there, an answer, and back."""
POLL_NS, POLLS = 20_000, 3
TIMEOUT_NS, RETRIES = 10_000, 2
LIGHT_SWEEP_NS = 200_000
SWEEP_NS = 200_000
"""A heavy sweep takes no longer, also where some datagrams are lost with a link."""
TAKEOVER_NS = (POLLS + 1) * (POLL_NS + TIMEOUT_NS * (RETRIES + 1)) + SWEEP_NS
"""From the death of a master until the standby has routed anew."""
MENDED_NS = LIGHT_SWEEP_NS + 2 * SWEEP_NS
"""From a change of links until a master has routed anew: it hears of it by a trap, or by a light sweep; and
that may find it in a sweep that began before."""
RULES = ("a standby takes over in time", "all adapters reach each other again")


class FabricManagers:
    """The managers of a world, at adapters' ports.  ``fails`` are the links that may fail."""

    def __init__(
        self, world: World, paths: FabricPaths, ends: tuple[int, ...], fails: tuple[int, ...], dice: Random
    ) -> None:
        self._world = world
        self._paths = paths
        self._hosts = [node for node in range(len(paths.topology.nodes)) if not self._is_switch(node)]
        self.managed = ManagedFabric(paths.topology)
        self.managed.now = world.now
        for number, node in enumerate(self._hosts, 1):  # as on all native links of worlds
            self.managed.plane.nodes[node].own_port(1).change(lid=2 * number, lmc=1)
        for priority, end in enumerate(ends):
            guid = paths.topology.nodes[end].port_guid(1)
            self.managed.add((end, 1), _config(guid, len(ends) - priority))
        self.managed.settle()
        self._tables: dict[int, bytes] = {}
        self._write()
        self._end_ns = self._plan(dice, fails)
        self._planned_ns = -1
        self._plan_turn(world.now)

    def _is_switch(self, node: int) -> bool:
        return self._paths.topology.nodes[node].is_switch

    def _plan(self, dice: Random, fails: tuple[int, ...]) -> int:
        """What happens when; the time at which managers have nothing to do any more."""
        world = self._world
        first, second = dice.sample(fails, 2)
        fail_ns = world.now + dice.randrange(20_000, 200_000)
        death_ns = fail_ns + dice.randrange(60_000)  # while it routes anew, or a little later
        again_ns = death_ns + dice.randrange(TAKEOVER_NS)
        mended_ns = max(death_ns + TAKEOVER_NS, again_ns) + MENDED_NS
        back_ns = mended_ns + dice.randrange(100_000)
        whole_ns = back_ns + MENDED_NS
        world.at(fail_ns, self._cable, (first, True))
        world.at(death_ns, self._die)
        world.at(again_ns, self._cable, (second, True))
        world.at(death_ns + TAKEOVER_NS, self._check_master)
        world.at(mended_ns, self._check_pairs)
        for link in (first, second):
            world.at(back_ns, self._cable, (link, False))
        world.at(whole_ns, self._check_pairs)
        return whole_ns

    @property
    def master(self) -> FabricManager | None:
        """Who is it now."""
        found = [each for each in self.managed.managers if each.state == states.MASTER]
        return found[0] if len(found) == 1 else None

    # time

    def _plan_turn(self, time_ns: int) -> None:
        """The next round of datagrams, unless one comes before."""
        time_ns = min(time_ns, self._end_ns)
        if self._planned_ns < self._world.now or time_ns < self._planned_ns:
            self._planned_ns = time_ns
            self._world.at(time_ns, self._turn, time_ns)

    def _turn(self, time_ns: int) -> None:
        """A round of datagrams, and what is due."""
        if time_ns != self._planned_ns:
            return
        self._planned_ns = -1
        managed, now = self.managed, self._world.now
        managed.now = now
        managed.plane.expire(now)
        for manager in managed.managers:
            if manager.next_deadline_ns <= now:
                manager.expire(now)
        busy = managed.step()
        self._write()
        deadlines = [managed.plane.next_deadline_ns, *(each.next_deadline_ns for each in managed.managers)]
        if now < self._end_ns:
            self._plan_turn(now + STEP_NS if busy else max(now + STEP_NS, min(deadlines)))

    def _write(self) -> None:
        """Switches forward by what stands in their tables."""
        fabric = self._paths.fabric
        for index, switch in fabric.switches.items():
            node = self.managed.plane.nodes[index]
            table = bytes(node.linear[: node.linear_top + 1])
            if self._tables.get(index) != table:
                self._tables[index] = table
                switch.forwarding = list(table)

    # what happens

    def _cable(self, what: tuple[int, bool]) -> None:
        link, fails = what
        plane = self.managed.plane
        (plane.fail if fails else plane.restore)(link, self._world.now)
        self._paths.cable(link, fails)
        self._plan_turn(self._world.now + STEP_NS)

    def _die(self, _: object) -> None:
        master = self.master
        if master is not None:
            self._world.trace.add(self._world.now, "manager dies", 0, sweeps=master.sweeps)
            self.managed.remove(master)
            self._plan_turn(self._world.now + STEP_NS)

    # oracles

    def _check_master(self, _: object) -> None:
        master = self.master
        if master is None or not master.sweeps:
            states_now = [states.NAMES[each.state] for each in self.managed.managers]
            self._fail(RULES[0], f"{TAKEOVER_NS} ns after the master's death the others are {states_now}")
        else:
            self._world.trace.add(self._world.now, "manager took over", 0, sweeps=master.sweeps)

    def _check_pairs(self, _: object) -> None:
        for source in self._hosts:
            for number, goal in enumerate(self._hosts, 1):
                if goal != source:
                    for lid in (2 * number, 2 * number + 1):
                        self._check_pair(source, goal, lid)

    def _check_pair(self, source: int, goal: int, lid: int) -> None:
        """A packet of an adapter reaches the one that has the LID, over links that are up."""
        at, port = source, 1
        for _ in range(len(self._paths.topology.nodes)):
            link = self._paths.topology.link_at(at, port)
            end = self._paths.topology.peer(at, port)
            if link is None or end is None or self.managed.plane.is_failed(link):
                break
            at = end.node
            if at == goal:
                return
            if not self._is_switch(at):
                break
            table = self._paths.fabric.switches[at].forwarding
            port = table[lid] if lid < len(table) else 0
        name = self._paths.topology.nodes[source].name
        self._fail(RULES[1], f"{name} does not reach LID {lid}: its packets end at {End(at, port)}")

    def _fail(self, rule: str, text: str) -> None:
        self._world.report.fail(rule, text)


def _config(guid: int, priority: int) -> ManagerConfig:
    return ManagerConfig(
        guid, priority=priority, lmc=1, engine="up-down", window=8, timeout_ns=TIMEOUT_NS, retries=RETRIES,
        light_sweep_ns=LIGHT_SWEEP_NS, poll_ns=POLL_NS, polls=POLLS,
    )  # fmt: skip
