"""Local identifiers: which port has which (IBTA vol. 1, 4.1.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from softhca.fabric.graph import Graph, Ints
from softhca.machine.arguments import check_kind

FIRST_LID = 1
LAST_LID = 0xBFFF
"""Those of unicast; multicast groups have 0xC000 to 0xFFFE."""
FIRST_MULTICAST_LID = 0xC000
LAST_LMC = 7


class LidError(ValueError):
    """More LIDs are needed than there are, or an LMC that cannot be; one line."""


@dataclass(frozen=True)
class Lids:
    """``base`` is the lowest LID of each endpoint (`Graph.endpoints`), ``lmc`` how many low bits of it are
    free: it has 2^lmc.  ``owner`` is the endpoint of each LID up to the highest, −1 where there is none.
    """

    base: Ints
    lmc: Ints
    owner: Ints

    @property
    def top(self) -> int:
        """The highest LID that anybody has; 0: none."""
        return len(self.owner) - 1

    def of(self, endpoint: int) -> range:
        """All LIDs of an endpoint."""
        base = int(self.base[endpoint])
        return range(base, base + (1 << int(self.lmc[endpoint])))


def assign_lids(graph: Graph, lmc: int = 0, known: Mapping[int, int] | None = None) -> Lids:
    """LIDs for all endpoints: 2^``lmc`` for each port of a channel adapter or router, one for a switch.

    ``known`` has LIDs that ports (by their GUID) have had; each keeps its own where that is free and fits.
    The others get the lowest free ones, switches too.  LidError: there are not enough.  TypeError: what is
    no graph, LMC or mapping.
    """
    check_kind(graph, Graph, "graph of a fabric")
    check_kind(lmc, int, "LMC")
    check_kind(known, (Mapping, type(None)), "mapping of GUIDs to LIDs")
    if not 0 <= lmc <= LAST_LMC:
        raise LidError(f"an LMC of {lmc}; expected 0 to {LAST_LMC}")
    endpoints = graph.endpoints
    sizes = np.where(endpoints.port == 0, 0, lmc).astype(np.int32)
    base = np.zeros(len(endpoints), np.int32)
    owner = np.full(LAST_LID + 1, -1, np.int32)
    nodes = graph.topology.nodes
    for index in range(len(endpoints)):
        guid = nodes[endpoints.node[index]].port_guid(int(endpoints.port[index]))
        lid = (known or {}).get(guid, 0)
        step = 1 << int(sizes[index])
        fits = FIRST_LID <= lid <= LAST_LID + 1 - step and lid % step == 0
        if fits and (owner[lid : lid + step] < 0).all():
            base[index] = lid
            owner[lid : lid + step] = index
    following = {0: FIRST_LID, lmc: max(FIRST_LID, 1 << lmc)}
    for index in map(int, np.flatnonzero(base == 0)):
        step = 1 << int(sizes[index])
        lid = following[int(sizes[index])]
        while lid + step <= LAST_LID + 1 and (owner[lid : lid + step] >= 0).any():
            lid += step
        if lid + step > LAST_LID + 1:
            raise LidError(f"{len(endpoints)} ports with an LMC of {lmc} need more LIDs than there are")
        base[index] = lid
        owner[lid : lid + step] = index
        following[int(sizes[index])] = lid + step
    used = np.flatnonzero(owner >= 0)
    return Lids(base, sizes, owner[: int(used[-1]) + 1 if len(used) else 1].copy())
