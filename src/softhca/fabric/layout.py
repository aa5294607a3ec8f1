"""Where the nodes of a fabric stand in a picture: trees level by level, grids as grids, others on a circle.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from softhca.fabric.dimension_order import DimensionOrderRouting
from softhca.fabric.graph import NO_SWITCH, Graph, Ints
from softhca.fabric.routing_engine import RoutingError
from softhca.fabric.up_down import tree_levels

Places = NDArray[np.float64]
STEP = 34.0
"""Between two nodes that have names, in points."""
HOST_STEP = 13.0


def places(graph: Graph) -> Places:
    """x and y of each node, by index, from 0; y grows downwards."""
    hosts = _hosts_of(graph)
    levels = tree_levels(graph)
    found = np.zeros((len(graph.topology.nodes), 2))
    if levels is not None and levels.max(initial=0) <= 8:
        _tree(graph, levels, hosts, found)
    else:
        _plane(graph, hosts, found)
    if len(found):
        found -= found.min(axis=0)
    return found


def _hosts_of(graph: Graph) -> list[list[int]]:
    """The nodes that hang on each switch; the last list has those that hang on none."""
    found: list[list[int]] = [[] for _ in range(len(graph) + 1)]
    seen: set[int] = set()
    ends = graph.endpoints
    for node, port, switch in zip(ends.node.tolist(), ends.port.tolist(), ends.switch.tolist(), strict=True):
        if port and node not in seen and switch != NO_SWITCH:
            seen.add(node)
            found[switch].append(node)
    found[-1] = [node for node in graph.topology.end_nodes if node not in seen]
    return found


def _tree(graph: Graph, levels: Ints, hosts: list[list[int]], found: Places) -> None:
    """Leaves beside each other with their hosts below, each level above the next."""
    leaves = np.flatnonzero(levels == 0)
    columns = [max(1, math.ceil(math.sqrt(2 * len(hosts[leaf])))) for leaf in leaves]
    width = sum(max(count * HOST_STEP, STEP) + HOST_STEP for count in columns)
    top = int(levels.max(initial=0))
    row = max(4 * STEP, width / (3 * (top + 1)))
    x = 0.0
    for leaf, count in zip(leaves, columns, strict=True):
        span = max(count * HOST_STEP, STEP) + HOST_STEP
        found[graph.switches[leaf]] = x + span / 2, top * row
        _block(hosts[leaf], x + span / 2, top * row + STEP, count, found)
        x += span
    for level in range(1, top + 1):
        here = np.flatnonzero(levels == level)
        for place, switch in enumerate(here):
            found[graph.switches[switch]] = x * (place + 0.5) / len(here), (top - level) * row
    _block(hosts[-1], x / 2, (top + 1) * row + STEP, max(1, len(hosts[-1])), found)


def _block(nodes: list[int], middle: float, top: float, columns: int, found: Places) -> None:
    for place, node in enumerate(nodes):
        row, column = divmod(place, columns)
        wide = min(columns, len(nodes) - row * columns)
        found[node] = middle + (column - (wide - 1) / 2) * HOST_STEP, top + row * HOST_STEP


def _plane(graph: Graph, hosts: list[list[int]], found: Places) -> None:
    """Switches on a grid or a circle, each with its hosts below it."""
    most = max((len(group) for group in hosts), default=0)
    columns = max(1, math.ceil(math.sqrt(most)))
    room = max(columns * HOST_STEP + STEP, 2 * STEP)
    at = _grid(graph)
    if at is None:
        count = max(len(graph), 1)
        radius = max(room * count / (2 * math.pi), 2 * room)
        angle = 2 * math.pi * np.arange(count) / count
        spots = np.stack([radius * np.sin(angle), -radius * np.cos(angle)], axis=1)
    else:
        spots = at * room
    for switch in range(len(graph)):
        x, y = spots[switch]
        found[graph.switches[switch]] = x, y
        _block(hosts[switch], x + STEP * 0.2, y + STEP * 0.7, columns, found)
    bottom = float(found[:, 1].max(initial=0.0)) + 2 * STEP
    _block(hosts[-1], 0.0, bottom, max(1, len(hosts[-1])), found)


def _grid(graph: Graph) -> Places | None:
    """Coordinates of a torus or mesh in a plane: the first two dimensions, further ones beside each other."""
    try:
        routing = DimensionOrderRouting(graph)
    except RoutingError:
        return None
    point = routing.point.astype(np.float64)
    if len(routing.axes) == 1:  # a ring is a circle
        return None
    spots = point[:, [1, 0]].copy()
    for axis in range(2, len(routing.axes)):
        across = (axis - 2) % 2
        spots[:, across] += point[:, axis] * (spots[:, across].max() + 1.6)
    spots[:, 0] += 0.16 * spots[:, 1]  # so that closing links are seen beside the others
    return spots
