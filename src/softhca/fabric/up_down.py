"""Routes that first go up and then down: up/down routing, and that of fat trees.

Each switch has a height of its own, and a link leads up to the higher one.  A packet that has gone down never
goes up again, so no ring of channels can wait for itself.  A switch that can reach a destination by going
down only does so; the others go up by a shortest way.
"""

from __future__ import annotations

import numpy as np

from softhca.fabric.graph import NO_SWITCH, Bools, Bytes, Graph, Ints
from softhca.fabric.routing_engine import Destinations, RoutingError, spread

FAR = 255


class UpDownRouting:
    """Up/down routing.  Heights are the levels of a tree where the fabric is one, else hops from the switch
    in the middle of what hangs together.
    """

    lanes = 1
    down: Bools
    """Which ports of each switch lead down."""

    def __init__(self, graph: Graph) -> None:
        levels = tree_levels(graph)
        self._graph = graph
        self._order(_heights(graph, levels))
        if levels is not None and self._gaps():
            self._order(_heights(graph, None))

    def _order(self, height: Ints) -> None:
        peer = self._graph.peer
        self._up = (peer != NO_SWITCH) & (height[peer] > height[:, None])
        self.down = (peer != NO_SWITCH) & ~self._up
        self._below, self._cost = _costs(peer, self._up, self.down, height)

    def _gaps(self) -> bool:
        """Whether a switch with hosts does not reach another one."""
        hosts = np.flatnonzero(self._graph.has_hosts)
        return bool((self._cost[np.ix_(hosts, hosts)] == FAR).any())

    def ports(self, switch: int) -> Bools:
        peer = self._graph.peer[switch]
        found = np.zeros((len(self._graph), len(peer)), np.bool_)
        down = np.flatnonzero(self.down[switch])
        below = self._below[switch]
        found[:, down] = (self._below[peer[down]].astype(np.int16) + 1 == below).T & (below != FAR)[:, None]
        up = np.flatnonzero(self._up[switch])
        cost = self._cost[switch]
        climbs = (below == FAR) & (cost != FAR)
        found[:, up] = (self._cost[peer[up]].astype(np.int16) + 1 == cost).T & climbs[:, None]
        return found

    def share(self, switch: int, destination: Destinations, choices: Ints) -> Ints:
        return spread(switch, destination, choices, self.ports(switch))

    def service_levels(self) -> Bytes | None:
        return None

    def lanes_of(self, switch: int) -> Bytes | None:
        return None

    def peak(self, members: Ints) -> int | None:
        """The switch from which all of ``members`` are reached by going down with the fewest hops to the
        farthest and then altogether; None: there is no such switch.
        """
        cost = self._below[:, members].astype(np.int32)
        far = (cost == FAR).any(axis=1)
        score = cost.max(axis=1) * 100_000 + cost.sum(axis=1)
        score[far] = np.iinfo(np.int32).max
        best = int(score.argmin())
        return None if far[best] else best


class FatTreeRouting(UpDownRouting):
    """Up/down routing in a tree, with one way down to each destination from everywhere (D-mod-K).

    RoutingError: the fabric is no tree whose hosts are all at the lowest level, or one of them is cut off.
    """

    def __init__(self, graph: Graph) -> None:
        levels = tree_levels(graph)
        if levels is None:
            raise RoutingError("no fat tree: a link does not lead from one level to the next")
        self._graph = graph
        self._levels = levels
        self._order(_heights(graph, levels))
        if self._gaps():
            raise RoutingError("no fat tree: not all hosts are reached by going up and then down")
        most = self._up.sum(axis=1)
        widths = [most[levels == level].max(initial=1) for level in range(int(levels.max(initial=0)) + 1)]
        self._stride = np.concatenate(([1], np.cumprod(widths, dtype=np.int64)))
        self._hosts = self._most_hosts()

    def _most_hosts(self) -> int:
        endpoints = self._graph.endpoints
        hanging = endpoints.switch[(endpoints.port > 0) & (endpoints.switch != NO_SWITCH)]
        return int(np.bincount(hanging, minlength=1).max(initial=1)) or 1

    def share(self, switch: int, destination: Destinations, choices: Ints) -> Ints:
        order = destination.switch.astype(np.int64) * self._hosts + destination.rank
        level = int(self._levels[switch])
        found: Ints = (order // self._stride[level] + destination.path).astype(np.int32)
        return found


def tree_levels(graph: Graph) -> Ints | None:
    """How many hops above the next switch with hosts each switch is, if each link leads from one level to the
    next; else None.
    """
    leaves = np.flatnonzero(graph.has_hosts)
    if not len(leaves):
        return None
    levels = graph.distances[leaves].min(axis=0).astype(np.int32)
    source, port = np.nonzero(graph.peer != NO_SWITCH)
    steps = np.abs(levels[source] - levels[graph.peer[source, port]])
    return levels if (levels < FAR).all() and (steps == 1).all() else None


def _heights(graph: Graph, levels: Ints | None) -> Ints:
    """A number for each switch, all different: the higher, the nearer to the top."""
    size = len(graph)
    if levels is None:
        far = np.where(graph.distances == FAR, size, graph.distances).astype(np.int64)
        hops = far.max(axis=1, initial=0) * size * 256 + far.sum(axis=1)
        levels = np.zeros(size, np.int32)
        for island in graph.islands:
            middle = graph.distances[island[hops[island].argmin()], island]
            levels[island] = FAR - middle.astype(np.int32)
    return levels * size + (size - 1 - np.arange(size, dtype=np.int32))


def _costs(peer: Ints, up: Bools, down: Bools, height: Ints) -> tuple[Bytes, Bytes]:
    """Hops from each switch to each by going down only, and by going up first; `FAR`: there is no way."""
    size = len(peer)
    below = np.full((size, size), FAR, np.uint8)
    rising = np.argsort(height)
    for switch in rising:
        nearest = below[peer[switch, down[switch]]].min(axis=0, initial=FAR)
        below[switch] = np.where(nearest >= FAR - 1, FAR, nearest + 1)
        below[switch, switch] = 0
    cost = below.copy()
    for switch in rising[::-1]:
        nearest = cost[peer[switch, up[switch]]].min(axis=0, initial=FAR)
        climb = np.where(nearest >= FAR - 1, FAR, nearest + 1)
        cost[switch] = np.where(below[switch] != FAR, below[switch], climb)
    return below, cost
