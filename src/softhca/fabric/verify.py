"""Whether routes are right: who reaches whom in how many hops, how many routes a link carries, and whether
channels can wait for each other in a ring (a credit loop).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softhca.fabric.division import LOCAL_RUNNER, Part, Runner, parts_of
from softhca.fabric.graph import NO_SWITCH, Bools, Ints
from softhca.fabric.routing import NO_ROUTE, Routes
from softhca.machine.arguments import check_kind

_BLOCK = 1024
"""So many destinations at a time, which bounds the memory."""
_SOURCES = 64


@dataclass(frozen=True)
class Reachability:
    """``hosts_apart`` counts the pairs of a switch with hosts and a LID of a host without a way;
    ``switches_apart`` those of any other switch and LID, which in a tree some have: the management ports of
    two roots.  ``most_hops`` is the longest way between hosts in links.  ``loads[s, p]``: over how many such
    ways (switch with hosts, LID of a host) a port of a switch is.
    """

    hosts_apart: int
    switches_apart: int
    most_hops: int
    loads: NDArray[np.int64]

    @property
    def whole(self) -> bool:
        """Whether every host reaches every host."""
        return not self.hosts_apart


def reach(routes: Routes, runner: Runner = LOCAL_RUNNER) -> Reachability:
    """Follow every route from every switch; ``runner`` does so, some destinations at a time.  TypeError:
    these are no routes."""
    check_kind(routes, Routes, "routes of a fabric")
    graph, destinations = routes.graph, routes.destinations
    loads = np.zeros(graph.peer.shape, np.int64)
    lonely = 0 if graph.is_pair else int((graph.endpoints.switch == NO_SWITCH).sum())
    hosts_apart = int(graph.has_hosts.sum() or 1) * lonely
    switches_apart, most_hops = 0, int(graph.is_pair)
    parts = parts_of(len(destinations.lid), _BLOCK)
    for apart, of_switches, hops, carried in runner.run(_reach_part, routes, parts):
        hosts_apart += apart
        switches_apart += of_switches
        most_hops = max(most_hops, hops)
        loads += carried
    return Reachability(hosts_apart, switches_apart, most_hops, loads)


def _reach_part(routes: Routes, part: Part) -> tuple[int, int, int, NDArray[np.int64]]:
    """The same of some destinations: pairs of hosts and of switches apart, the longest way, loads."""
    graph, destinations = routes.graph, routes.destinations
    is_host = graph.endpoints.port[destinations.endpoint] > 0
    leaves, others = np.flatnonzero(graph.has_hosts), np.flatnonzero(~graph.has_hosts)
    loads = np.zeros(graph.peer.shape, np.int64)
    chosen = np.arange(*part)
    hosts = chosen[is_host[chosen]]
    apart, hops = _follow(routes, leaves, hosts, loads)
    of_switches = _follow(routes, others, hosts, None)[0]
    of_switches += _follow(routes, np.arange(len(graph)), chosen[~is_host[chosen]], None)[0]
    return apart, of_switches, hops, loads


def _follow(routes: Routes, sources: Ints, chosen: Ints, loads: NDArray[np.int64] | None) -> tuple[int, int]:
    """How many of these pairs have no way, and the longest way's links, of ``sources`` to the destinations at
    the indices ``chosen``.
    """
    graph, destinations = routes.graph, routes.destinations
    lids, goal = destinations.lid[chosen], destinations.switch[chosen]
    last = graph.endpoints.exit_port[destinations.endpoint[chosen]]
    if not len(chosen) or not len(sources):
        return 0, 0
    at = np.repeat(sources, len(chosen))
    to = np.tile(np.arange(len(chosen)), len(sources))
    apart, hops = 0, 1
    while len(at):
        port = routes.tables[at, lids[to]]
        arrived = (at == goal[to]) & (port == last[to])  # by another port it comes to somebody else
        following = np.where(port == NO_ROUTE, NO_SWITCH, graph.peer[at, np.where(port == NO_ROUTE, 0, port)])
        if loads is not None:
            known = port != NO_ROUTE
            np.add.at(loads, (at[known], port[known]), 1)
        going = ~arrived & (following != NO_SWITCH)
        apart += int((~arrived & ~going).sum())
        at, to = following[going], to[going]
        hops += 1
        if hops > len(graph) + 1:
            return apart + len(at), hops
    return apart, hops


Channel = tuple[int, int, int]
"""A switch's number, its outgoing port, and the virtual lane."""


def credit_loop(routes: Routes, runner: Runner = LOCAL_RUNNER) -> list[Channel] | None:
    """A ring of channels each of which can wait for the next, None where there is none (Dally and Seitz: then
    there is no deadlock).  Every switch counts as a source, as its port 0 sends too.  ``runner`` looks for
    what waits for what, some destinations, or sources where lanes depend on them, at a time.  TypeError:
    these are no routes.
    """
    check_kind(routes, Routes, "routes of a fabric")
    graph, lanes = routes.graph, routes.routing.lanes
    size, ports = graph.peer.shape
    levels = routes.routing.service_levels()
    if levels is None:
        made = runner.run(_dependencies, routes, parts_of(len(routes.destinations.lid), _BLOCK))
        found = np.zeros((size * ports, ports), np.bool_)
    else:
        made = runner.run(_dependencies_by_level, (routes, levels), parts_of(size, _SOURCES))
        found = np.zeros((size * ports * lanes, ports * lanes), np.bool_)
    for some in made:
        found |= some
    return _ring(routes, found)


def _dependencies(routes: Routes, part: Part) -> Bools:
    """``[channel, next port]`` of one lane: some route to these destinations enters by that channel and
    leaves by that port."""
    graph = routes.graph
    size, ports = graph.peer.shape
    found = np.zeros((size * ports, ports), np.bool_)
    lids, goal = routes.destinations.lid[slice(*part)], routes.destinations.switch[slice(*part)]
    for switch in range(size):
        port = routes.tables[switch, lids]
        known = port != NO_ROUTE
        following = graph.peer[switch, np.where(known, port, 0)]
        going = known & (following != NO_SWITCH) & (goal != switch) & (goal != following)
        ahead = routes.tables[following[going], lids[going]]
        on = ahead != NO_ROUTE
        found[switch * ports + port[going][on].astype(np.int64), ahead[on]] = True
    return found


def _dependencies_by_level(shared: tuple[Routes, NDArray[np.uint8]], part: Part) -> Bools:
    """The same where the lane depends on the service level, so that each of these sources is followed on its
    own."""
    routes, levels = shared
    graph, lanes = routes.graph, routes.routing.lanes
    size, ports = graph.peer.shape
    table = np.zeros((size, ports, 16), np.uint8)
    for switch in range(size):
        said = routes.routing.lanes_of(switch)
        if said is not None:
            table[switch] = said
    found = np.zeros((size * ports * lanes, ports * lanes), np.bool_)
    goals = routes.destinations.switch
    for switch in range(*part):
        at = np.full(len(goals), switch, np.int64)
        lids, goal, level = routes.destinations.lid, goals, levels[switch, goals]
        before = np.full(len(goals), -1, np.int64)
        for _ in range(size):
            port = routes.tables[at, lids].astype(np.int64)
            going = (port != NO_ROUTE) & (at != goal)
            at, lids, goal, level, before, port = (
                array[going] for array in (at, lids, goal, level, before, port)
            )
            if not len(at):
                break
            lane = table[at, port, level].astype(np.int64)
            held = before >= 0
            found[before[held], port[held] * lanes + lane[held]] = True
            before = (at * ports + port) * lanes + lane
            at = graph.peer[at, port].astype(np.int64)
    return found


def _ring(routes: Routes, dependencies: Bools) -> list[Channel] | None:
    from scipy.sparse import csgraph, csr_array

    graph = routes.graph
    ports = graph.peer.shape[1]
    lanes = dependencies.shape[1] // ports
    channel, ahead = np.nonzero(dependencies)
    following = graph.peer[channel // (ports * lanes), channel // lanes % ports].astype(np.int64)
    target = following * ports * lanes + ahead
    count = len(dependencies)
    ones = np.ones(len(channel), np.int8)
    matrix = csr_array((ones, (channel, target)), shape=(count, count))
    found, part = csgraph.connected_components(matrix, directed=True, connection="strong")
    if found == count:
        return None
    inside = part == np.bincount(part).argmax()
    path, at = [], int(np.flatnonzero(inside)[0])
    while at not in path:
        path.append(at)
        successors = matrix.indices[matrix.indptr[at] : matrix.indptr[at + 1]]
        at = int(successors[inside[successors]][0])
    return [
        (one // (ports * lanes), one // lanes % ports, one % lanes) for one in path[path.index(at) :]
    ]
