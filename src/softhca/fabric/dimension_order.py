"""Dimension-order routing of tori and meshes.

Dimensions are told by port numbers: a link between ports 1 and 2 and one between 1 and 2 elsewhere are of the
same dimension, the lower number leads forward.  The dimension with the lowest numbers goes first.  In a ring
the shorter way is taken; where one link of a ring is missing, the other way round.

A ring could wait for itself, so that each packet says by a bit of its service level for each dimension
whether its way there crosses the ring's seam, and then has virtual lane 1 in that dimension, else 0.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from softhca.fabric.graph import NO_SWITCH, Bools, Bytes, Graph, Ints
from softhca.fabric.routing_engine import SERVICE_LEVELS, Destinations, RoutingError

MOST_DIMENSIONS = 4
"""Each has a bit of the 16 service levels."""


Turns = tuple[NDArray[np.int8], Bools]


class DimensionOrderRouting:
    """Dimension by dimension.  RoutingError: the fabric is no torus, or a ring of it lacks two links."""

    lanes = 2

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.axes = _axes(graph)
        self.sizes, self.point = _points(graph, self.axes)
        self._grid = np.full(self.sizes, NO_SWITCH, np.int32)
        self._grid[tuple(self.point.T)] = np.arange(len(graph))
        self._turns = [self._turns_of(axis) for axis in range(len(self.axes))]

    def _turns_of(self, axis: int) -> Turns:
        """For each switch and goal within its ring: 1 forward, −1 back, 0 arrived; and whether the way
        crosses the seam, which is behind the last of the ring.
        """
        size, ports = self.sizes[axis], self.axes[axis]
        direction = np.zeros((len(self._graph), size), np.int8)
        crosses = np.zeros((len(self._graph), size), np.bool_)
        goals = np.arange(size)
        for switch in range(len(self._graph)):
            here = int(self.point[switch, axis])
            ring = self._ring(switch, ports[0], axis)
            gaps = np.flatnonzero(ring == NO_SWITCH)
            if len(gaps) > 1 and size > 1:
                raise RoutingError(f"a ring of dimension {axis} lacks {len(gaps)} links")
            ahead = (goals - here) % size
            forward = ahead * 2 <= size
            if len(gaps):
                forward = ahead <= (int(gaps[0]) - here) % size
            direction[switch] = np.where(ahead == 0, 0, np.where(forward, 1, -1))
            crosses[switch] = np.where(forward, goals < here, goals > here)
        return direction, crosses

    def _ring(self, switch: int, forward: int, axis: int) -> Ints:
        """The switch that follows each place of the ring that a switch is in."""
        point: list[int | slice] = [int(place) for place in self.point[switch]]
        point[axis] = slice(None)
        following: Ints = self._graph.peer[self._grid[tuple(point)], forward]
        return following

    def ports(self, switch: int) -> Bools:
        found = np.zeros((len(self._graph), self._graph.peer.shape[1]), np.bool_)
        open_ = np.ones(len(self._graph), np.bool_)
        for axis, (forward, back) in enumerate(self.axes):
            turn = self._turns[axis][0][switch][self.point[:, axis]]
            found[open_ & (turn > 0), forward] = True
            found[open_ & (turn < 0), back] = True
            open_ &= turn == 0
        return found

    def share(self, switch: int, destination: Destinations, choices: Ints) -> Ints:
        return np.zeros(len(destination.lid), np.int32)

    def service_levels(self) -> Bytes | None:
        levels = np.zeros((len(self._graph), len(self._graph)), np.uint8)
        at = np.broadcast_to(np.arange(len(self._graph))[:, None], levels.shape)
        for axis, (_, crosses) in enumerate(self._turns):
            goal = np.broadcast_to(self.point[:, axis], levels.shape)
            levels |= crosses[at, goal].astype(np.uint8) << axis
            point = [self.point[at, other] for other in range(len(self.axes))]
            point[axis] = goal
            at = self._grid[tuple(point)]
        return levels

    def lanes_of(self, switch: int) -> Bytes | None:
        lanes = np.zeros((self._graph.peer.shape[1], SERVICE_LEVELS), np.uint8)
        levels = np.arange(SERVICE_LEVELS)
        for axis, ports in enumerate(self.axes):
            lanes[list(ports)] = levels >> axis & 1
        return lanes


def _axes(graph: Graph) -> list[tuple[int, int]]:
    """The port numbers of each dimension, that which leads forward first."""
    source, port = np.nonzero(graph.peer != NO_SWITCH)
    pairs = {(int(a), int(b)) for a, b in zip(port, graph.peer_port[source, port], strict=True) if a <= b}
    axes = sorted(pairs)
    used = [number for pair in axes for number in pair]
    if not axes or len(set(used)) != len(used) or len(axes) > MOST_DIMENSIONS:
        raise RoutingError(
            "no torus: links of a dimension have the same two port numbers at all switches, and there are 1 "
            f"to {MOST_DIMENSIONS} dimensions"
        )
    return axes


def _points(graph: Graph, axes: list[tuple[int, int]]) -> tuple[list[int], Ints]:
    """The sizes of the dimensions and each switch's coordinates.  RoutingError: they do not make a grid."""
    sizes = [_longest(graph, axis) for axis in axes]
    points = np.full((len(graph), len(axes)), -1, np.int32)
    if len(graph):
        points[0] = 0
    todo = deque([0] if len(graph) else [])
    while todo:
        switch = todo.popleft()
        for axis, (forward, back) in enumerate(axes):
            for port, step in ((forward, 1), (back, -1)):
                peer = int(graph.peer[switch, port])
                if peer == NO_SWITCH:
                    continue
                expected = points[switch].copy()
                expected[axis] = (expected[axis] + step) % sizes[axis]
                if points[peer].min() < 0:
                    points[peer] = expected
                    todo.append(peer)
                elif (points[peer] != expected).any():
                    raise RoutingError("no torus: links of its dimensions do not meet again")
    whole = len(np.unique(points, axis=0)) == len(graph) == int(np.prod(sizes, dtype=np.int64))
    if not whole or (len(axes) and points.min(initial=0) < 0):
        raise RoutingError("no torus: a point of the grid has no switch, or two")
    for axis, (forward, _) in enumerate(axes):
        ends = np.flatnonzero(graph.peer[:, forward] == NO_SWITCH)
        if len(ends):  # the seam goes where a ring is open
            points[:, axis] = (points[:, axis] - points[ends[0], axis] - 1) % sizes[axis]
    return sizes, points


def _longest(graph: Graph, axis: tuple[int, int]) -> int:
    """How many switches the longest ring of a dimension has."""
    from scipy.sparse import csgraph, csr_array

    source = np.flatnonzero(graph.peer[:, axis[0]] != NO_SWITCH)
    target = graph.peer[source, axis[0]]
    ones = np.ones(len(source), np.int8)
    matrix = csr_array((ones, (source, target)), shape=(len(graph), len(graph)))
    _, part = csgraph.connected_components(matrix, directed=False)
    return int(np.bincount(part).max())
