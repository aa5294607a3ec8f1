"""Routing: from a topology to linear forwarding tables, which say for each switch and destination LID the
port by which packets leave (IBTA vol. 1, 14.2.5.11).

A routing engine (`RoutingEngine`) says which ports of each switch lead on to each other switch; LIDs then
share those that are as good as each other:

* ``min-hop``: any shortest way.  Rings of switches can have credit loops.
* ``up-down``: first up, then down, by a height that each switch has; never a credit loop.
* ``fat-tree``: the same in a tree, where each destination has its own way down (D-mod-K): traffic that is
  shifted by any distance meets no other.
* ``dimension-order``: in tori and meshes, dimension by dimension; two virtual lanes, chosen by service
  levels, break the rings.

What an engine cannot route is a `RoutingError`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from softhca.fabric.dimension_order import DimensionOrderRouting
from softhca.fabric.division import LOCAL_RUNNER, Part, Runner, parts_of
from softhca.fabric.graph import NO_SWITCH, Bytes, Graph
from softhca.fabric.lids import Lids, assign_lids
from softhca.fabric.routing_engine import Destinations, MinHopRouting, RoutingEngine, RoutingError
from softhca.fabric.topology import Topology
from softhca.fabric.up_down import FatTreeRouting, UpDownRouting
from softhca.machine.arguments import check_kind, whole

NO_ROUTE = 255
"""The port of a forwarding table that means none."""


@dataclass(frozen=True)
class Routes:
    """The routes of a fabric.  ``tables[s, lid]`` is a port of switch s, `NO_ROUTE` where there is none."""

    graph: Graph
    lids: Lids
    destinations: Destinations
    engine: str
    routing: RoutingEngine
    tables: Bytes

    def way(self, source: int, lid: int) -> list[tuple[int, int]]:
        """The switches, by number, that a packet from a switch to a LID crosses, each with the port by which
        it leaves; RoutingError where it goes round or ends nowhere, ValueError where there is no such switch.
        """
        whole(source, "a switch's number", 0, len(self.graph) - 1)
        check_kind(lid, (int, np.integer), "LID")
        owner = int(self.lids.owner[lid]) if 0 <= lid <= self.lids.top else -1
        goal = int(self.graph.endpoints.switch[owner]) if owner >= 0 else NO_SWITCH
        found: list[tuple[int, int]] = []
        switch = source
        while len(found) <= len(self.graph):
            port = int(self.tables[switch, lid]) if 0 <= lid <= self.lids.top else NO_ROUTE
            if port == NO_ROUTE:
                raise RoutingError(f"switch {self.name(switch)} has no route to LID {lid}")
            found.append((switch, port))
            if switch == goal and port == self.graph.endpoints.exit_port[owner]:
                return found
            switch = int(self.graph.peer[switch, port])
            if switch == NO_SWITCH:
                raise RoutingError(f"a route to LID {lid} ends at {self.name(found[-1][0])}[{port}]")
        raise RoutingError(f"a route to LID {lid} goes round at {self.name(switch)}")

    def name(self, switch: int) -> str:
        """The name of the node that a switch's number stands for.  ValueError: for none."""
        whole(switch, "a switch's number", 0, len(self.graph) - 1)
        return self.graph.topology.nodes[int(self.graph.switches[switch])].name


Engine = Callable[[Graph], RoutingEngine]

ENGINES: dict[str, Engine] = {
    "fat-tree": FatTreeRouting,
    "up-down": UpDownRouting,
    "dimension-order": DimensionOrderRouting,
    "min-hop": MinHopRouting,
}
"""The routing engines by name."""


SWITCHES_A_PART = 64


def route(
    topology: Topology | Graph,
    engine: str = "fat-tree",
    lids: Lids | None = None,
    lmc: int = 0,
    runner: Runner = LOCAL_RUNNER,
) -> Routes:
    """Forwarding tables for all switches by an engine of `ENGINES`; LIDs are assigned where none are given.
    ``runner`` makes the tables, some switches at a time.

    RoutingError: there is no such engine, or it cannot route this fabric.  TypeError: what is no topology,
    graph or LIDs.
    """
    check_kind(lids, (Lids, type(None)), "assignment of LIDs")
    if not isinstance(engine, str) or engine not in ENGINES:
        raise RoutingError(f"no routing engine is named {engine!r}; there are {', '.join(ENGINES)}")
    graph = topology if isinstance(topology, Graph) else Graph(topology)
    lids = assign_lids(graph, lmc) if lids is None else lids
    destinations = Destinations.of(graph, lids)
    routing = ENGINES[engine](graph)
    tables = np.full((len(graph), lids.top + 1), NO_ROUTE, np.uint8)
    parts = parts_of(len(graph), SWITCHES_A_PART)
    made = runner.run(_rows, (graph, routing, destinations), parts)
    for (start, end), rows in zip(parts, made, strict=True):
        tables[start:end, destinations.lid] = rows
    return Routes(graph, lids, destinations, engine, routing, tables)


def _rows(shared: tuple[Graph, RoutingEngine, Destinations], part: Part) -> Bytes:
    """The ports of some switches to all destinations."""
    graph, routing, destinations = shared
    rows: Bytes = np.empty((part[1] - part[0], len(destinations.lid)), np.uint8)
    for place, switch in enumerate(range(*part)):
        rows[place] = _row(graph, routing, switch, destinations)
    return rows


def _row(graph: Graph, routing: RoutingEngine, switch: int, destinations: Destinations) -> Bytes:
    """The ports of one switch to all destinations."""
    allowed = routing.ports(switch)
    choices = allowed.sum(axis=1, dtype=np.int32)
    by_rank = np.argsort(~allowed, axis=1, kind="stable").astype(np.uint8)  # the allowed ports first
    count = choices[destinations.switch]
    picked = routing.share(switch, destinations, count) % np.maximum(count, 1)
    row: Bytes = by_rank[destinations.switch, picked]
    row[count == 0] = NO_ROUTE
    own = destinations.switch == switch
    row[own] = graph.endpoints.exit_port[destinations.endpoint[own]]
    return row
