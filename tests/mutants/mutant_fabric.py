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
REQUESTS = "fabric/manager/requests.py"
DISCOVERY = "fabric/manager/discovery.py"
CONFIGURATION = "fabric/manager/configuration.py"
STATES = "fabric/manager/states.py"
MANAGER = "fabric/manager/manager.py"

ON_TOPOLOGIES = "fabric/test_fabric_topology.py"
ON_FILES = "fabric/test_fabric_topology_file.py"
ON_ROUTES = "fabric/test_fabric_routing.py"
ON_MANAGER = "fabric/test_fabric_manager.py"
ON_RECORDS = "fabric/test_fabric_administration.py"

FABRIC: tuple[tuple[Mutant, str], ...] = (
    (m("fabric-guid-twice", TOPOLOGY, "            if owners.setdefault(guid, index) != index:", "            if False:",
       "two nodes with one GUID are taken for one by every tool"), ON_TOPOLOGIES),
    (m("fabric-two-links-at-a-port", TOPOLOGY, "            if end in at:", "            if False:",
       "a port with two cables is described"), ON_TOPOLOGIES),
    (m("fabric-keys-protect-nothing", CONFIGURATION, '    PORT.put(wanted, "m_key_protect_bits", 1 if plan.m_key else 0)\n', "",
       "whoever reads a port gets the key that is to protect it"), ON_RECORDS),
    (m("fabric-62-hops", DISCOVERY, "if len(path) > HOPS_LAST:", "if len(path) >= HOPS_LAST:",
       "a node at the end of the longest path that there may be is not found"), ON_MANAGER),
    (m("fabric-multicast-of-16-ports", "fabric/manager/inventory.py", "place = modifier >> 28, 0", "place = modifier >> 29, 0",
       "of what a large switch multicasts, half is said of other ports"), ON_RECORDS),
    (m("ethernet-idle-links-begin-in-the-past", "fabric/ethernet/plane.py", "        events.run(now * PS_PER_NS)\n", "",
       "after a pause a slow link takes no time"), "fabric/test_fabric_ethernet_plane.py"),
    (m("fabric-half-link", FILE, "    if (back.peer, back.peer_port) != (blocks[end.node].name, end.port):", "    if False:",
       "a file whose ends disagree is read as one of them says"), ON_FILES),
    (m("fabric-up-after-down", UP_DOWN, "        climbs = (below == FAR) & (cost != FAR)", "        climbs = cost != FAR",
       "packets that have gone down go up again: credit loops"), ON_ROUTES),
    (m("fabric-one-middle-for-all", UP_DOWN, "graph.distances[island[hops[island].argmin()], island]", "graph.distances[int(hops.argmin()), island]",
       "in a fabric in two parts the hosts of one do not reach each other"), ON_ROUTES),
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
    (m("manager-gives-up-at-once", REQUESTS, "            if request.tries <= self._retries:", "            if False:",
       "one lost datagram makes a node unknown"), ON_MANAGER),
    (m("manager-window-without-end", REQUESTS, "while self._waiting and len(self._under_way) < self._window:", "while self._waiting and False:",
       "a manager sends nothing"), ON_MANAGER),
    (m("manager-believes-any-guid", DISCOVERY, "        if node is None or node.peers.get(end[1], other) == other:", "        if True:",
       "two nodes with one GUID are taken for one"), ON_MANAGER),
    (m("manager-crosses-links-twice", DISCOVERY, "            if leads and forwards and port not in node.peers:", "            if leads:",
       "channel adapters are asked to pass packets on"), ON_MANAGER),
    (m("manager-leaves-links-armed", CONFIGURATION, "                PORT.put(wanted, \"state\", ACTIVE)", "                PORT.put(wanted, \"state\", ARMED)",
       "links never become ACTIVE"), ON_MANAGER),
    (m("manager-trusts-its-memory-after-a-reset", CONFIGURATION, "        del shadow[key]", "        pass",
       "the table of a switch that has been reset stays empty"), ON_MANAGER),
    (m("manager-does-not-clear-changes", CONFIGURATION, "replace(wanted, port_state_change=int(clear))", "replace(wanted, port_state_change=0)",
       "each light sweep becomes a heavy one"), ON_MANAGER),
    (m("manager-wrong-half-of-a-mask", CONFIGURATION, "data[2 * place + 1 - bit // 8]", "data[2 * place + bit // 8]",
       "copies of multicast packets leave by other ports"), ON_MANAGER),
    (m("manager-never-polls", STATES, "    (STANDBY, LOST): (DISCOVERING, (SWEEP,)),\n", "",
       "nobody takes over when the master is gone"), ON_MANAGER),
    (m("manager-hands-over-and-stays", STATES, "    (MASTER, ACKNOWLEDGE): (STANDBY, (POLL,)),", "    (MASTER, ACKNOWLEDGE): (MASTER, ()),",
       "two masters configure one fabric"), ON_MANAGER),
    (m("manager-trusts-strangers", MANAGER, "                if info.sm_key == self.config.sm_key:", "                if True:",
       "a manager without the SM_Key is given the fabric"), ON_MANAGER),
    (m("manager-forgets-lids", MANAGER, "        return said | self._known_lids", "        return {}",
       "hosts get other LIDs when a link fails"), ON_MANAGER),
    (m("manager-ignores-traps", MANAGER, "        if notice.trap_number != TRAP_BAD_M_KEY:\n            self._sweep()", "        if notice.trap_number == TRAP_BAD_M_KEY:\n            self._sweep()",
       "a failed link is noticed by the next light sweep only"), ON_MANAGER),
)  # fmt: skip
