"""A topology as arrays: switches, the ports between them, and who hangs on which.

Switches have numbers of their own, in the order of their nodes' indices.  An *endpoint* is a port with LIDs:
port 0 of a switch, a port of a channel adapter or router.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softhca.fabric.topology import Topology
from softhca.machine.arguments import check_kind

NO_SWITCH = -1
"""What a port leads to that leads to no switch."""

Ints = NDArray[np.integer[Any]]
Bytes = NDArray[np.uint8]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Endpoints:
    """All endpoints: by node index and port; the number of the switch that each hangs on (`NO_SWITCH`: none,
    it is not linked or to no switch), and by which port of it (0: it is the switch).
    """

    node: Ints
    port: Ints
    switch: Ints
    exit_port: Bytes

    def __len__(self) -> int:
        return len(self.node)


class Graph:
    """The switches of a topology.  ``peer[s, p]`` is the number of the switch that a port leads to, else
    `NO_SWITCH`; ``peer_port[s, p]`` the port there.  TypeError: it is of no topology.
    """

    def __init__(self, topology: Topology) -> None:
        check_kind(topology, Topology, "topology")
        self.topology = topology
        self.switches = np.array(topology.switches, np.int32)
        self.number = {int(node): number for number, node in enumerate(self.switches)}
        ports = max((topology.nodes[node].port_count for node in topology.switches), default=0)
        self.peer: Ints = np.full((len(self.switches), ports + 1), NO_SWITCH, np.int32)
        self.peer_port: Bytes = np.zeros((len(self.switches), ports + 1), np.uint8)
        for link in topology.links:
            a, b = self.number.get(link.end_a.node), self.number.get(link.end_b.node)
            if a is None or b is None:
                continue
            self.peer[a, link.end_a.port], self.peer_port[a, link.end_a.port] = b, link.end_b.port
            self.peer[b, link.end_b.port], self.peer_port[b, link.end_b.port] = a, link.end_a.port

    def __len__(self) -> int:
        return len(self.switches)

    @cached_property
    def endpoints(self) -> Endpoints:
        """All ports with LIDs, in the order of nodes and ports."""
        rows = []
        for index, node in enumerate(self.topology.nodes):
            for port in node.addressed_ports:
                if node.is_switch:
                    rows.append((index, 0, self.number[index], 0))
                    continue
                end = self.topology.peer(index, port)
                switch = NO_SWITCH if end is None else self.number.get(end.node, NO_SWITCH)
                rows.append((index, port, switch, end.port if end and switch != NO_SWITCH else 0))
        table = np.array(rows, np.int32).reshape(len(rows), 4)
        return Endpoints(table[:, 0], table[:, 1], table[:, 2], table[:, 3].astype(np.uint8))

    @cached_property
    def is_pair(self) -> bool:
        """Whether all there is are two ports of adapters, linked to each other."""
        ends = self.endpoints
        if len(self) or len(ends) != 2:
            return False
        end = self.topology.peer(int(ends.node[0]), int(ends.port[0]))
        return end is not None and (end.node, end.port) == (int(ends.node[1]), int(ends.port[1]))

    @cached_property
    def has_hosts(self) -> Bools:
        """Which switches have a channel adapter or router on them."""
        found = np.zeros(len(self), np.bool_)
        hanging = (self.endpoints.switch != NO_SWITCH) & (self.endpoints.port > 0)
        found[self.endpoints.switch[hanging]] = True
        return found

    @cached_property
    def distances(self) -> Bytes:
        """Hops between all pairs of switches; 255: there is no way."""
        from scipy.sparse import csgraph

        found = csgraph.shortest_path(self._matrix, unweighted=True) if len(self) else np.zeros((0, 0))
        return np.minimum(found, 255).astype(np.uint8)

    @cached_property
    def islands(self) -> list[Ints]:
        """The numbers of the switches that hang together, group by group."""
        from scipy.sparse import csgraph

        if not len(self):
            return []
        count, label = csgraph.connected_components(self._matrix, directed=False)
        return [np.flatnonzero(label == number) for number in range(count)]

    @property
    def _matrix(self) -> Any:
        """Which switches are neighbours, as a sparse matrix."""
        from scipy.sparse import csr_array

        source, port = np.nonzero(self.peer >= 0)
        ones = np.ones(len(source), np.int8)
        return csr_array((ones, (source, self.peer[source, port])), shape=(len(self), len(self)))
