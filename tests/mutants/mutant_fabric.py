"""Bugs of topologies, routes and the fabric manager, each with the tests that judge it."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

TOPOLOGY = "fabric/topology.py"
FILE = "fabric/topology_file.py"
LIDS = "fabric/lids.py"
UP_DOWN = "fabric/up_down.py"
TORUS = "fabric/dimension_order.py"
VERIFY = "fabric/verify.py"

ON_TOPOLOGIES = "fabric/test_fabric_topology.py"
ON_FILES = "fabric/test_fabric_topology_file.py"
ON_ROUTES = "fabric/test_fabric_routing.py"

FABRIC: tuple[tuple[Mutant, str], ...] = (
    (m("fabric-guid-twice", TOPOLOGY, "            if owners.setdefault(guid, index) != index:", "            if False:",
       "two nodes with one GUID are taken for one by every tool"), ON_TOPOLOGIES),
    (m("fabric-two-links-at-a-port", TOPOLOGY, "            if end in at:", "            if False:",
       "a port with two cables is described"), ON_TOPOLOGIES),
    (m("fabric-half-link", FILE, "    if (back.peer, back.peer_port) != (blocks[end.node].name, end.port):", "    if False:",
       "a file whose ends disagree is read as one of them says"), ON_FILES),
    (m("fabric-up-after-down", UP_DOWN, "        climbs = (below == FAR) & (cost != FAR)", "        climbs = cost != FAR",
       "packets that have gone down go up again: credit loops"), ON_ROUTES),
    (m("fabric-tree-level-ignored", UP_DOWN, "order // self._stride[level]", "order // self._stride[0]",
       "traffic that is shifted meets on the way up"), ON_ROUTES),
    (m("fabric-long-way-round", TORUS, "            forward = ahead * 2 <= size", "            forward = ahead * 2 >= size",
       "packets go the long way round a ring"), ON_ROUTES),
    (m("fabric-no-seam", TORUS, "levels |= crosses[at, goal].astype(np.uint8) << axis", "levels |= crosses[at, goal].astype(np.uint8) << 7",
       "a ring of a torus waits for itself"), ON_ROUTES),
    (m("fabric-seam-of-another-ring", TORUS, "            at = self._grid[tuple(point)]\n", "",
       "where a link of a torus has failed its rings have credit loops"), ON_ROUTES),
    (m("fabric-loop-not-seen", VERIFY, "    if found == count:", "    if True:",
       "no credit loop is ever told"), ON_ROUTES),
    (m("fabric-gone-round-not-counted", VERIFY, "            return apart + len(at), hops", "            return apart, hops",
       "hosts whose packets go round for ever count as reached"), ON_ROUTES),
    (m("fabric-lid-not-aligned", LIDS, " and lid % step == 0", "",
       "a port keeps a LID whose low bits are not its own"), ON_ROUTES),
)  # fmt: skip
