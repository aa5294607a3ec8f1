"""A fabric with managers in virtual time: datagrams cross a `MadPlane`, answers come at once, and time goes
on to the next deadline when nothing is left to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from softhca.fabric.mad_plane import Datagram, Endpoint, MadPlane
from softhca.fabric.manager.manager import FabricManager, ManagerConfig
from softhca.fabric.topology import End, Topology
from softhca.machine.arguments import check_kind, whole

MOST_ROUNDS = 10_000


class ManagedFabric:
    """``plane`` and the managers on it.  ``now`` is the time in nanoseconds."""

    def __init__(self, topology: Topology, plane: MadPlane | None = None) -> None:
        self.plane = plane or MadPlane(topology)
        self.now = 0
        self.managers: dict[FabricManager, Endpoint] = {}
        self.datagrams = 0
        self.loses: Callable[[Datagram], bool] = lambda datagram: False
        self._arrived: deque[tuple[FabricManager, Datagram]] = deque()

    def add(self, end: tuple[int, int], config: ManagerConfig | None = None) -> FabricManager:
        """A manager at a port, which begins at once.  ValueError: no manager can be there; TypeError: what
        is no place or configuration."""
        place = End(*end)
        nodes = self.plane.topology.nodes
        node = nodes[whole(place.node, "the index of a node", 0, len(nodes) - 1)]
        if place.port not in node.addressed_ports:
            raise ValueError(f"no manager can be at port {place.port} of {node.name}")
        check_kind(config, (ManagerConfig, type(None)), "configuration of a manager")
        manager = FabricManager(config or ManagerConfig(node.port_guid(end[1])))

        def deliver(datagram: Datagram) -> bool:
            self._arrived.append((manager, datagram))
            return True

        endpoint = self.plane.attach(End(*end), deliver)
        self.managers[manager] = endpoint
        self.plane.set_manager(endpoint, True, self.now)
        manager.start(self.now)
        return manager

    def remove(self, manager: FabricManager) -> None:
        """A manager goes, without a word."""
        self.plane.detach(self.managers.pop(manager), self.now)

    def step(self) -> bool:
        """Send and deliver all that there is; False: there was nothing."""
        busy = False
        for manager, endpoint in list(self.managers.items()):
            for out in manager.transmit():
                busy = True
                self.datagrams += 1
                lid = endpoint.port.info.lid
                datagram = Datagram(out.dlid, lid, out.qpn, out.qpn, out.data)
                if not self.loses(datagram):
                    self.plane.send(endpoint, datagram, self.now)
        while self._arrived:
            busy = True
            manager, datagram = self._arrived.popleft()
            if manager in self.managers:
                manager.receive(datagram.data, datagram.slid, self.now)
        return busy

    def settle(self) -> None:
        """Go on until nothing is under way, retries too: every manager rests or waits."""
        for _ in range(MOST_ROUNDS * 100):
            if self.step():
                continue
            busy = [manager for manager in self.managers if not manager.is_settled]
            if not busy:
                return
            self.run_until(min(manager.next_deadline_ns for manager in busy))

    def run_until(self, when: int) -> None:
        """Let time go on until then, from deadline to deadline.  TypeError: that is no whole number."""
        check_kind(when, int, "time in nanoseconds")
        while True:
            while self.step():
                pass
            deadlines = [self.plane.next_deadline_ns, *(m.next_deadline_ns for m in self.managers)]
            due = min(deadlines)
            if due > when:
                self.now = max(self.now, when)
                return
            self.now = max(self.now, due)
            self.plane.expire(self.now)
            for manager in self.managers:
                manager.expire(self.now)
