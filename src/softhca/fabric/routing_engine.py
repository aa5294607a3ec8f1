"""What a routing engine knows of a fabric (`RoutingEngine`), and what all of them share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from softhca.fabric.graph import NO_SWITCH, Bools, Bytes, Graph, Ints
from softhca.fabric.lids import Lids

SERVICE_LEVELS = 16


class RoutingError(ValueError):
    """A fabric that an engine cannot route, in one line."""


class RoutingEngine(Protocol):
    """What an engine knows of a fabric."""

    lanes: int
    """How many virtual lanes must be there so that no credit loop is."""

    def ports(self, switch: int) -> Bools:
        """Which ports (second axis) lead on to each switch (first axis), all equally good."""

    def share(self, switch: int, destination: Destinations, choices: Ints) -> Ints:
        """Which of its choices each LID takes, any number from 0: it counts modulo ``choices``."""

    def service_levels(self) -> Bytes | None:
        """The service level from each switch to each; None: any will do."""

    def lanes_of(self, switch: int) -> Bytes | None:
        """The virtual lane by outgoing port and service level; None: 0 everywhere."""


@dataclass(frozen=True)
class Destinations:
    """All LIDs, sorted: their endpoint's switch, its rank among those of that switch, and which of the
    endpoint's LIDs it is.
    """

    lid: Ints
    endpoint: Ints
    switch: Ints
    rank: Ints
    path: Ints

    @classmethod
    def of(cls, graph: Graph, lids: Lids) -> Destinations:
        """Those that hang on a switch."""
        lid = np.flatnonzero(lids.owner >= 0).astype(np.int32)
        endpoint = lids.owner[lid]
        on_switch = graph.endpoints.switch[endpoint] != NO_SWITCH
        lid, endpoint = lid[on_switch], endpoint[on_switch]
        switch = graph.endpoints.switch[endpoint]
        host = np.where(graph.endpoints.port > 0, 1, 0)
        rank = np.zeros(len(host), np.int32)
        order = np.lexsort((np.arange(len(host)), graph.endpoints.switch))
        places = _places(graph.endpoints.switch[order], host[order])
        rank[order] = places
        return cls(lid, endpoint, switch, rank[endpoint], lid - lids.base[endpoint])


def _places(groups: Ints, counted: Ints) -> Ints:
    """How many of its group (equal neighbours) are counted before each."""
    before = np.cumsum(counted) - counted
    first = np.r_[True, groups[1:] != groups[:-1]] if len(groups) else np.zeros(0, np.bool_)
    starts = before[first]
    result: Ints = before - starts[np.cumsum(first) - 1] if len(groups) else before
    return result


def spread(switch: int, destinations: Destinations, choices: Ints, allowed: Bools) -> Ints:
    """Shares LIDs evenly: those with the same choice of ports take them in turn, in an order that each switch
    mixes in its own way (else all that one switch sends to another would take the same port there).
    """
    packed = np.packbits(allowed, axis=1)
    _, kind = np.unique(packed, axis=0, return_inverse=True)
    group = kind.reshape(-1)[destinations.switch]
    mixed = (destinations.lid.astype(np.uint32) + np.uint32(switch)) * np.uint32(0x9E37_79B1)
    mixed = (mixed ^ mixed >> np.uint32(15)) * np.uint32(0x85EB_CA6B + 2 * switch & 0xFFFF_FFFF)
    order = np.lexsort((mixed, group))
    place = np.zeros(len(group), np.int32)
    place[order] = _places(group[order], np.ones(len(group), np.int64))
    return place


class MinHopRouting:
    """All shortest ways."""

    lanes = 1

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._distances = graph.distances

    def ports(self, switch: int) -> Bools:
        peer = self._graph.peer[switch]
        found = np.zeros((len(self._graph), len(peer)), np.bool_)
        linked = np.flatnonzero(peer >= 0)
        nearer = self._distances[peer[linked]].astype(np.int16) + 1 == self._distances[switch]
        found[:, linked] = nearer.T
        return found

    def share(self, switch: int, destination: Destinations, choices: Ints) -> Ints:
        return spread(switch, destination, choices, self.ports(switch))

    def service_levels(self) -> Bytes | None:
        return None

    def lanes_of(self, switch: int) -> Bytes | None:
        return None
