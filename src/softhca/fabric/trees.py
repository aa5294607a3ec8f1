"""Multicast trees: how copies of a group's packets reach all members, as masks of ports for the multicast
forwarding tables (IBTA vol. 1, 14.2.5.12).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from softhca.fabric.graph import NO_SWITCH, Bools, Graph, Ints
from softhca.fabric.routing_engine import RoutingEngine, RoutingError
from softhca.fabric.up_down import UpDownRouting
from softhca.machine.arguments import check_kind, whole


def multicast_tree(graph: Graph, routing: RoutingEngine, members: Collection[int]) -> dict[int, Bools]:
    """The ports, by number of the switch, by which a packet of the group leaves (but that by which it came).
    ``members`` are endpoints.  A switch that is a member has its port 0.

    Where routes go up and down (`UpDownRouting`) the tree hangs from one switch and its links lead down, so
    that packets of the group make no credit loop with others.  RoutingError: a member is cut off.  TypeError,
    ValueError: a member is no endpoint.
    """
    check_kind(graph, Graph, "graph of a fabric")
    last = len(graph.endpoints) - 1
    chosen = np.array(sorted(whole(member, "an endpoint", 0, last) for member in members), np.int64)
    switches = graph.endpoints.switch[chosen]
    if (switches == NO_SWITCH).any():
        raise RoutingError("a member of a multicast group hangs on no switch")
    ports: dict[int, Bools] = {}
    for endpoint, switch in zip(chosen, switches, strict=True):
        _mask(graph, ports, int(switch))[graph.endpoints.exit_port[endpoint]] = True
    wanted = np.unique(switches)
    if not len(wanted):
        return {}
    root, usable = _root(graph, routing, wanted)
    parent, parent_port = _parents(graph, root, usable)
    for switch in wanted:
        at = int(switch)
        while at != root:
            above, port = int(parent[at]), int(parent_port[at])
            if above == NO_SWITCH:
                raise RoutingError("a member of a multicast group is cut off")
            _mask(graph, ports, at)[graph.peer_port[above, port]] = True
            mask = _mask(graph, ports, above)
            known = bool(mask[port])
            mask[port] = True
            if known:
                break
            at = above
    return ports


def without_copies(graph: Graph, tree: dict[int, Bools], endpoints: Collection[int]) -> None:
    """Let endpoints of a tree send, and get no copies."""
    for endpoint in endpoints:
        mask = tree.get(int(graph.endpoints.switch[endpoint]))
        if mask is not None:
            mask[graph.endpoints.exit_port[endpoint]] = False


def _mask(graph: Graph, ports: dict[int, Bools], switch: int) -> Bools:
    return ports.setdefault(switch, np.zeros(graph.peer.shape[1], np.bool_))


def _root(graph: Graph, routing: RoutingEngine, members: Ints) -> tuple[int, Bools | None]:
    """Where the tree hangs, and which ports may lead away from it (None: all)."""
    if isinstance(routing, UpDownRouting):
        peak = routing.peak(members)
        if peak is not None:
            return peak, routing.down
    hops = graph.distances[:, members].astype(np.int64)
    return int((hops.max(axis=1) * 100_000 + hops.sum(axis=1)).argmin()), None


def _parents(graph: Graph, root: int, usable: Bools | None) -> tuple[Ints, Ints]:
    """The switch above each in the tree of fewest hops, and its port that leads there."""
    parent = np.full(len(graph), NO_SWITCH, np.int32)
    port_above = np.zeros(len(graph), np.int32)
    reached = np.zeros(len(graph), np.bool_)
    reached[root] = True
    front = np.array([root])
    linked = graph.peer != NO_SWITCH
    if usable is not None:
        linked = linked & usable
    while len(front):
        place, port = np.nonzero(linked[front])
        above = front[place]
        below = graph.peer[above, port]
        new, first = np.unique(below, return_index=True)
        first = first[~reached[new]]
        front = below[first]
        parent[front], port_above[front] = above[first], port[first]
        reached[front] = True
    return parent, port_above
