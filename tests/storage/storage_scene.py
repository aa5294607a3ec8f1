"""Hosts and an I/O unit on a network in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

from softhca.driver.adapters import HostAdapters
from softhca.storage import BlockDevice, IoUnit, MemoryDisk, Route, UnitAddress, UnitConfig
from softhca.storage.initiator_channel import ChannelFailed, HostConfig, InitiatorChannel
from softhca.testing import Network, Node

GUID = 0x0002_C903_0000_1234


class Scene:
    """``hosts`` adapters with ``ports`` each, and a unit with ``unit_adapters`` of ``unit_ports``, all of
    which the unit is attached by.  ``stopped``: the unit serves nothing meanwhile.
    """

    def __init__(
        self,
        network: Network,
        hosts: int = 1,
        ports: int = 1,
        unit_adapters: int = 1,
        unit_ports: int = 1,
        disks: Sequence[MemoryDisk] | None = None,
        **config,
    ) -> None:
        self.network = network
        self.hosts = [network.add(ports=ports) for _ in range(hosts)]
        self.units = [network.add(ports=unit_ports) for _ in range(unit_adapters)]
        for host in self.hosts:
            host.offer()
        self.adapters = HostAdapters()
        self.disks = list(disks or [MemoryDisk(4096)])
        devices = [unit.open() for unit in self.units]
        places = [(device, port) for device in devices for port in range(1, unit_ports + 1)]
        self.unit = IoUnit(places, self.disks, UnitConfig(**{"guid": GUID, **config}), seed=1)
        self.stopped = False
        network.tasks.append(lambda: not self.stopped and self.unit.serve())

    @property
    def disk(self) -> MemoryDisk:
        return self.disks[0]

    def address(self, unit: int = 0, port: int = 1) -> UnitAddress:
        node = self.units[unit]
        found = node.adapter.ports[port - 1]
        return UnitAddress(found.gid_table[0], found.lid, self.unit.config.port)

    def route(self, host: int = 0, port: int = 1, unit: int = 0, unit_port: int = 1) -> Route:
        return Route(self.hosts[host].name, port, self.address(unit, unit_port))

    def device(self, *routes: Route, **options) -> BlockDevice:
        config = HostConfig(**options.pop("config", {}))
        return BlockDevice(
            self.adapters, routes or [self.route()], seed=options.pop("seed", 1), config=config, **options
        )


def granted(scene: Scene, channel: InitiatorChannel) -> InitiatorChannel:
    """The channel, once the unit has granted it; ChannelFailed."""
    while not channel.ready:
        channel.turn()
        if channel.failed:
            channel.close()
            raise ChannelFailed(channel.failed)
        scene.network.run(lambda: not channel.idle)
    return channel


_cuts: WeakKeyDictionary[Network, list[set[bytes]]] = WeakKeyDictionary()


def cut(network: Network, *pairs: tuple[Node, int]) -> Callable[[], None]:
    """Nothing passes a node's port any more; what heals it."""
    cuts = _cuts.setdefault(network, [])
    mine = {node.adapter.ports[port - 1].gid_table[0] for node, port in pairs}
    cuts.append(mine)

    def fate(sent):
        ends = {sent.route.source, sent.route.destination}
        return None if any(ends & each for each in cuts) else sent.data

    network.tamper = fate
    return lambda: cuts.remove(mine)
