"""A fabric that is served by turns of a test, and links that join it from the same thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from softhca.fabric.mad_plane import MadPlane
from softhca.fabric.manager.managed_fabric import ManagedFabric
from softhca.fabric.topology import End, Link, NodeKind, Topology, make_node
from softhca.links.fabric import FabricLink
from softhca.runtime.fabric_loop import FabricLoop
from softhca.runtime.fabric_server import FabricServer
from softhca.wire.bth import Bth
from softhca.wire.burst import Arrival, Burst
from softhca.wire.framing import NATIVE
from softhca.wire.opcodes import RC_SEND_ONLY
from softhca.wire.packet import assemble
from softhca.wire.route import Route

SECOND_NS = 1_000_000_000
MOST_TURNS = 100_000


def star(hosts: int) -> Topology:
    """One switch."""
    nodes = [make_node("s", NodeKind.SWITCH, hosts, 0x100)]
    nodes += [make_node(f"h{n}", NodeKind.CHANNEL_ADAPTER, 1, 0x1000 + 16 * n) for n in range(hosts)]
    return Topology(tuple(nodes), tuple(Link(End(0, n + 1), End(n + 1, 1)) for n in range(hosts)))


class Served:
    """A fabric under a name of this test's own, up already.  ``now_ns`` is its time."""

    def __init__(
        self, hosts: int = 3, name: str = "adapters", topology: Topology | None = None
    ) -> None:
        self.name = f"softhca-test-{name}-{os.getpid()}"
        self.now_ns = 0
        topology = topology or star(hosts)
        self.plane = MadPlane(topology)
        self.managed = ManagedFabric(topology, self.plane)
        self.managed.add((0, 0))
        self.managed.settle()
        self.loop = FabricLoop(self.plane, lambda: self.now_ns, self.managed)
        self.server = FabricServer(self.loop, self.name)
        self.server.open()
        self.links: list[FabricLink] = []

    def call(self, what: Callable[[], Any]) -> Any:
        """What a call in another thread gives, or raises, while the fabric has its turns."""
        found: list[Any] = []

        def run() -> None:
            try:
                found.append(what())
            except Exception as error:
                found.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        while thread.is_alive():
            self.loop.turn(0.01)
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    def join(self, node: str = "") -> FabricLink:
        """A link that has joined."""
        made: FabricLink = self.call(lambda: FabricLink(self.name, node))
        self.links.append(made)
        return made

    def until(self, done: Callable[[], bool]) -> None:
        """Turns until something is so."""
        for _ in range(MOST_TURNS):
            if done():
                return
            self.loop.turn(0.001)
        raise AssertionError("it never came to that")

    def counter(self, name: str) -> int:
        """One of all counters."""
        return self.server.counters()[name]

    def close(self) -> None:
        """End all."""
        for link in self.links:
            link.close()
        self.server.close()


def packet(source: int, destination: int, payload: bytes = b"data", psn: int = 0) -> bytes:
    """A sound packet between two LIDs."""
    route = Route(NATIVE, bytes(16), bytes(16), slid=source, dlid=destination)
    return assemble(route, Bth(RC_SEND_ONLY, dest_qp=77, psn=psn), (), payload).encode()


def burst_of(*packets: bytes) -> Burst:
    """A burst, whose route is of no matter to a fabric's link."""
    made = Burst()
    data = b"".join(packets)
    made.buffer[: len(data)] = data
    made.length, made.stride, made.packets = len(data), len(packets[0]), len(packets)
    made.route = Route(NATIVE, bytes(16), bytes(16))
    return made


def take(link: FabricLink) -> tuple[bytes, int] | None:
    """The next burst that has come to a link, and its stride."""
    arrival = Arrival()
    if not link.receive(arrival):
        return None
    assert arrival.framing == NATIVE
    return bytes(arrival.buffer[: arrival.length]), arrival.stride
