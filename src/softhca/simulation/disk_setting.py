"""A setting of disks: an I/O unit on the first adapter of a world, hosts on the others."""

from __future__ import annotations

import random

from softhca.driver.errors import DriverError
from softhca.simulation.disks import BLOCKS_A_HOST, DiskHost
from softhca.simulation.node import Node
from softhca.simulation.oracle import check_resources
from softhca.simulation.scenarios import Scenario, dice_of
from softhca.simulation.world import World
from softhca.storage.discovery import UnitAddress
from softhca.storage.disk import MemoryDisk
from softhca.storage.io_unit import IoUnit, UnitConfig

MAX_EVENTS = 200_000
LIMIT_NS = 300_000_000_000
"""The communication manager tries for a long time to reach a host that is cut off."""
FAILURE_NS = 30_000
"""How long after a command has begun something fails, at most: in the middle of it, or right behind it."""
AWAY_NS = 60_000_000
"""How long a port stays down, at most: sometimes longer than retries last."""
GUID = 0x0200_5EFF_FE00_D15C


class DiskSetting:
    """One generation; used as `softhca.simulation.setting.Setting`."""

    def __init__(self, world: World, scenario: Scenario, seed: int, generation: int = 1) -> None:
        self.world = world
        self._dice = dice_of(scenario, seed, f"disks/{generation}")
        living = [node for node in world.nodes.values() if node.engine is not None]
        self._unit_node, *others = living
        disk = MemoryDisk(BLOCKS_A_HOST * len(living))
        config = UnitConfig(
            GUID, generation, GUID + generation, request_limit=6, max_transfer_bytes=12_288,
            max_channels=len(living),
        )  # fmt: skip
        self.unit: IoUnit | None = None
        self.hosts: list[DiskHost] = []
        self._failures = scenario.failures
        self._chance = 2 * scenario.failures / (scenario.operations * len(others))
        try:
            self.unit = IoUnit(
                [(self._unit_node.device, 1)], [disk], config, self._dice.getrandbits(64)
            )
        except DriverError:  # that of an earlier generation is still there
            return
        unit = UnitAddress(self._unit_node.gid, self._unit_node.engine.port.lid)
        for index, node in enumerate(others):
            dice = random.Random(self._dice.getrandbits(64))
            target = config.target_port, config.service
            first = index * BLOCKS_A_HOST
            self.hosts.append(DiskHost(node, unit, target, disk, first, scenario.operations, dice))

    def start(self) -> None:
        """Begin: all hosts log in at about the same time."""
        if self.unit is not None:
            self._unit_node.tasks.append(self.unit.serve)
        for host in self.hosts:
            host.node.tasks.append(host.turn)
            host.on_begin = self._maybe_break
            self.world.at(self.world.now + self._dice.randrange(100_000), host.log_in)

    def _maybe_break(self) -> None:
        """A command has begun: perhaps something fails now."""
        if self._failures and self._dice.random() < self._chance:
            self._failures -= 1
            self.world.at(self.world.now + self._dice.randrange(1, FAILURE_NS), self._break)

    def _break(self, _: object) -> None:
        """A channel of the unit ends, or a host's port goes down for a while."""
        dice = self._dice
        assert self.unit is not None
        if dice.random() < 0.5 and self.unit.channels:
            channel = dice.choice(self.unit.channels)
            self.world.trace.add(self.world.now, "channel", self._unit_node.number, qp=channel.qp.number)
            self.unit.end_channel(channel)
            self._unit_node.turn()
            return
        node = dice.choice(self.hosts).node
        self._set_link(node, False)
        self.world.at(self.world.now + dice.randrange(1, AWAY_NS), lambda _: self._set_link(node, True))

    def _set_link(self, node: Node, up: bool) -> None:
        if node.engine is not None:
            self.world.trace.add(self.world.now, "link", node.number, up=up)
            node.engine.set_link(1, up)
            node.turn()

    def adapter_crashed(self, number: int) -> None:
        """An adapter is about to die: its program does nothing more, and the hosts of a unit neither."""
        for host in self.hosts:
            if number in (host.node.number, self._unit_node.number):
                host.stopped = True

    def finish(self) -> None:
        """The world is at rest: compare every block."""
        cut = any(partition.end_ns >= self.world.now for partition in self.world.faults.partitions)
        for host in self.hosts:
            host.finish(cut)
            self.world.trace.add(
                self.world.now, "disk", host.node.number, performed=host.performed, logins=host.logins
            )

    def destroy(self) -> None:
        """Take everything down, where its adapter still lives."""
        for host in self.hosts:
            if host.alive:
                host.close()
        if self.unit is not None:
            self.unit.close()

    def check_resources(self) -> None:
        """Nothing is left, when peers have been told and time-waits are over."""
        for node in self.world.nodes.values():
            node.tasks.clear()
            node.turn()
        self.world.run(MAX_EVENTS, LIMIT_NS)
        for number, node in self.world.nodes.items():
            check_resources(self.world.report, number, node.resources())
