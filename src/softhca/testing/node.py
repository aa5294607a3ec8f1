"""One adapter of a network, and the devices that are open on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from softhca.adapter.engine import Adapter
from softhca.driver import registry
from softhca.driver.channels import EmbeddedChannel
from softhca.driver.device import DeviceDriver
from softhca.memory.host import HostMemory

if TYPE_CHECKING:
    from softhca.testing.network import Network
    from softhca.verbs.device import Context

HOST_MEMORY_BYTES = 256 << 20
"""Address space for what the library allocates; pages that nobody touches cost nothing."""


class Node:
    """Adapter ``number`` of ``network``; ``seed`` is its generator's (keys, numbers of queue pairs).

    ``name`` is the device's, for `Context(name=…)`, which works until the network is closed.
    ``notifications`` counts how often the adapter had an event or a reply for a host; ``hosts`` and
    ``devices`` belong together.
    """

    def __init__(
        self,
        network: Network,
        number: int,
        name: str,
        seed: int,
        ports: int = 1,
        overhead_for: Callable[[bytes], int] | None = None,
        **config: Any,
    ) -> None:
        self.network = network
        self.number = number
        self.name = name
        made = network.addressing.config(number, ports, **config)
        self.adapter: Any = Adapter(made, seed, overhead_for=overhead_for, now=network.now)
        self.adapter.notify = self._notified
        self.notifications = 0
        self.hosts: list[int] = []
        self.devices: list[DeviceDriver] = []
        self._contexts: list[Context] = []
        self._is_offered = False

    def __repr__(self) -> str:
        return f"<adapter {self.number}>"

    @property
    def gid(self) -> bytes:
        """Its first GID."""
        found: bytes = self.adapter.port.gid_table[0]
        return found

    @property
    def lid(self) -> int:
        """Its base LID; 0 on RoCE links."""
        found: int = self.adapter.port.lid
        return found

    def _notified(self) -> None:
        self.notifications += 1

    def open(self) -> DeviceDriver:
        """One more device on this adapter."""
        network, adapter = self.network, self.adapter
        number = -1
        channel = EmbeddedChannel(
            HostMemory(HOST_MEMORY_BYTES),
            lambda: adapter.kick(network.now),
            network.poll,
            network.wait,
            lambda: adapter.detach_host(number),
        )
        number = adapter.attach_host(channel)
        device = DeviceDriver(self.name, channel)
        self.hosts.append(number)
        self.devices.append(device)
        return device

    def offer(self) -> None:
        """Let this process find the adapter by its name, as `softhca.verbs` does, until the network is
        closed.  ValueError when there is a device of that name.
        """
        if not self._is_offered:
            if self.name in registry.names():
                raise ValueError(f"there is a device {self.name!r} already")
            registry.register(self.name, self.open)
            self._is_offered = True

    def context(self) -> Context:
        """An open context; closed with the network."""
        from softhca.verbs.device import Context

        self.offer()
        self._contexts.append(Context(name=self.name))
        return self._contexts[-1]

    def close(self) -> None:
        """Close what is open, and be found no more."""
        if self._is_offered:
            registry.unregister(self.name)
        for context in self._contexts:
            context.close()
        for device in self.devices:
            device.close()
