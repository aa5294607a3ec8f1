"""How management datagrams cross a fabric: packet by packet, hop by hop, by directed routes and by LID.

Nodes have their agents (`subnet_agent`, `performance_agent`); programs are *endpoints* at ports of channel
adapters: subnet managers and tools.  A datagram is carried to its end and answered at once: there is no time
between two hops.  What time there is comes in as ``now``, in nanoseconds.

* Directed routes follow the ports that the packet names, over every link that is up (14.2.2).
* LID-routed packets follow switches' linear tables; subnet management needs a link that is up, all else one
  that is ACTIVE.  After `MOST_HOPS` hops a packet has gone in a circle.
* A request for an endpoint goes to the manager at its port where it is one for managers (subnet
  administration, SMInfo, traps), else to the first endpoint there that has asked nothing itself: a server.
* Reports of subnet administration go to the first endpoint at a port that has set InformInfo.
* The upper 16 bits of the transaction ID of an endpoint's request are the plane's while it is under way.

Nothing raises, whatever the 256 bytes hold, and every datagram has one fate, which is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from softhca.fabric import subnet_agent
from softhca.fabric.link_training import trained
from softhca.fabric.node_state import NO_PORT, NodeState
from softhca.fabric.notices import Notices
from softhca.fabric.performance_agent import PerformanceAgent
from softhca.fabric.port_state import (
    ACTIVE,
    DOWN,
    INIT,
    IS_SM,
    PHYS_DISABLED,
    PHYS_LINK_UP,
    PHYS_POLLING,
    PortState,
    active_rate,
)
from softhca.fabric.subnet_agent import SubnetAgent
from softhca.fabric.topology import End, Topology
from softhca.machine.arguments import whole
from softhca.management import constants as c
from softhca.management.administration_attributes import ATTRIBUTE_INFORM_INFO
from softhca.management.directed_route import BY_LID, LOST, begin, enter

MOST_HOPS = 64
MOST_ENDPOINTS = 0xFFFE
MULTICAST_FIRST = 0xC000

# fates of a datagram
ANSWERED = "answered"
DELIVERED = "delivered"
TAKEN_SILENTLY = "taken"
FATES = (
    ANSWERED,  # an agent has answered, and the answer has come back
    DELIVERED,  # an endpoint has got it
    TAKEN_SILENTLY,  # an agent has got it, and there is no answer
    "drops_length",  # no 256 bytes
    "drops_route",  # a directed route that cannot be: its counts, or a port that there is not
    "drops_link_down",  # the next link of its way is not up, or not ACTIVE where it must be
    "drops_no_route",  # a switch has no port for its LID, or it is no unicast LID
    "drops_loop",  # it has gone in a circle
    "drops_wrong_lid",  # it has come to a port that has another LID
    "drops_unclaimed",  # nobody at the port takes its class, or has asked for this response
    "drops_full",  # the endpoint has no room
)


class Datagram(NamedTuple):
    """A MAD under way: LIDs of its ends (0xFFFF for a directed route's), queue pairs, and the 256 bytes.
    ``length_bytes``: so many of them its sender has said to be of use."""

    dlid: int
    slid: int
    dqpn: int
    sqpn: int
    data: bytes
    length_bytes: int = c.MAD_BYTES


Place = tuple[NodeState, int]
"""A node and the port by which a packet has come in (0: a switch's own)."""


class Endpoint:
    """A program at a port.  ``deliver(datagram) -> bool`` gives it one; False: it has no room.

    ``is_adapter``: it is the port's own adapter, which gets the requests that no other program here takes.
    """

    def __init__(self, number: int, node: NodeState, port: PortState, deliver: Callable[[Datagram], bool]):
        self.number = number
        self.node = node
        self.port = port
        self.deliver = deliver
        self.is_manager = False
        self.has_asked = False
        self.has_subscribed = False
        self.is_adapter = False

    def is_at(self, place: Place) -> bool:
        """Whether a packet that has come to a place has come to this program's port."""
        return place[0] is self.node and (self.node.is_switch or place[1] == self.port.number)


class MadPlane:
    """The management datagrams of a fabric of this topology.  ``counters`` are fates and
    `subnet_agent.COUNTERS`."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.counters = dict.fromkeys((*FATES, *subnet_agent.COUNTERS), 0)
        self.nodes = [NodeState(topology, index) for index in range(len(topology.nodes))]
        self.notices = Notices(self._send_trap)
        self.epoch = 0
        """Changes whenever the way of a packet may: by a Set of subnet management, and by a link."""
        self._now = 0
        self._agents = [SubnetAgent(node, self.notices, self._retrain, self.counters) for node in self.nodes]
        self._performance = [PerformanceAgent(node, self.counters) for node in self.nodes]
        self._peers: list[list[tuple[NodeState, PortState] | None]] = [
            [self._peer_of(node.index, number) for number in range(len(node.ports))] for node in self.nodes
        ]
        self._endpoints: dict[int, Endpoint] = {}
        self._at: dict[End, list[Endpoint]] = {}
        self._next_number = 1

    def peer(self, node: NodeState, number: int) -> tuple[NodeState, PortState] | None:
        """The node and port at the other end of a port's link; None: it has none."""
        return self._peers[node.index][number]

    def _peer_of(self, node: int, number: int) -> tuple[NodeState, PortState] | None:
        end = self.topology.peer(node, number)
        if end is None:
            return None
        peer = self.nodes[end.node]
        port = peer.ports[end.port]
        return None if port is None else (peer, port)

    # endpoints

    def attach(self, end: End, deliver: Callable[[Datagram], bool]) -> Endpoint:
        """A program at a port of a channel adapter, or at a switch's port 0.  ValueError: no such port, or
        too many programs."""
        node = self.nodes[end.node] if 0 <= end.node < len(self.nodes) else None
        port = node.port(end.port) if node is not None else None
        if node is None or port is None or not port.own:
            raise ValueError(f"no program can be at port {end.port} of node {end.node}")
        if len(self._endpoints) >= MOST_ENDPOINTS:
            raise ValueError(f"more than {MOST_ENDPOINTS} programs")
        while self._next_number in self._endpoints or not self._next_number:
            self._next_number = (self._next_number + 1) & 0xFFFF
        endpoint = Endpoint(self._next_number, node, port, deliver)
        self._next_number = (self._next_number + 1) & 0xFFFF
        self._endpoints[endpoint.number] = endpoint
        self._at.setdefault(End(*end), []).append(endpoint)
        return endpoint

    def detach(self, endpoint: Endpoint, now: int) -> None:
        """A program goes."""
        self.set_manager(endpoint, False, now)
        self._endpoints.pop(endpoint.number, None)
        end = End(endpoint.node.index, endpoint.port.number)
        self._at[end] = [each for each in self._at.get(end, []) if each is not endpoint]

    def set_manager(self, endpoint: Endpoint, is_manager: bool, now: int) -> None:
        """An endpoint is a subnet manager from now on, or no more; its port says so (IsSM)."""
        endpoint.is_manager = is_manager
        port = endpoint.port
        end = End(endpoint.node.index, port.number)
        some = any(each.is_manager for each in self._at.get(end, []))
        mask = port.info.capability_mask & ~IS_SM | (IS_SM if some else 0)
        if mask != port.info.capability_mask:
            port.change(capability_mask=mask)
            self.notices.raise_capability(endpoint.node, port, now)

    # links

    def fail(self, link: int, now: int) -> bool:
        """A link's cable goes out; False: it was out already.  ValueError: there is no such link."""
        return self._cable(link, True, now)

    def restore(self, link: int, now: int) -> bool:
        """A link's cable is in again; False: it was.  ValueError: there is no such link."""
        return self._cable(link, False, now)

    def _cable(self, link: int, failed: bool, now: int) -> bool:
        whole(link, "the index of a link", 0, len(self.topology.links) - 1)
        self._now = now
        ends = self.topology.links[link].end_a, self.topology.links[link].end_b
        ports = [self.nodes[end.node].ports[end.port] for end in ends]
        assert ports[0] is not None
        assert ports[1] is not None
        if ports[0].failed == failed:
            return False
        for port in ports:
            assert port is not None
            port.failed = failed
        self._train(self.nodes[ends[0].node], ports[0], failed)
        return True

    def is_failed(self, link: int) -> bool:
        """Whether a link's cable is out.  ValueError: there is no such link."""
        whole(link, "the index of a link", 0, len(self.topology.links) - 1)
        end = self.topology.links[link].end_a
        port = self.nodes[end.node].ports[end.port]
        return port is not None and port.failed

    def _retrain(self, node: NodeState, port: PortState) -> None:
        self._train(node, port, False)

    def _train(self, node: NodeState, port: PortState, lost: bool) -> None:
        """A link goes down, and up to INIT where its cable and both ports let it, with the best width and
        speed that both have enabled.  ``lost``: nobody asked for that, so both ends count it."""
        self.epoch += 1
        peer = self.peer(node, port.number)
        ends = [(node, port)] + ([peer] if peer is not None else [])
        agreed = None
        if peer is not None and not any(each.disabled or each.failed for _, each in ends):
            agreed = trained(port.info, peer[1].info)
        up = agreed is not None
        rate = {} if agreed is None else active_rate(*agreed)
        for owner, each in ends:
            before = each.state
            physical = PHYS_LINK_UP if up else PHYS_DISABLED if each.disabled else PHYS_POLLING
            each.change(state=INIT if up else DOWN, phys_state=physical, **rate)
            if lost and before != DOWN:
                each.count("link_downed")
            if owner.is_switch and each.state != before:
                owner.set_switch_info(port_state_change=1)
                self.notices.raise_link_state(owner, self._now)

    # datagrams

    def send(self, endpoint: Endpoint, datagram: Datagram, now: int) -> str:
        """An endpoint sends a datagram from its port: its fate.  The endpoint has got the answer of an agent
        when this returns."""
        self._now = now
        if len(datagram.data) != c.MAD_BYTES:
            return self._fate("drops_length")
        mad = bytearray(datagram.data)
        if not mad[3] & c.RESPONSE:
            endpoint.has_asked = True
            endpoint.has_subscribed |= _is_subscription(mad)
        stamp = bytes(mad[8:10])
        if _is_request(mad):
            mad[8:10] = endpoint.number.to_bytes(2, "big")
        place: Place = endpoint.node, endpoint.port.number
        if mad[1] == c.CLASS_SUBN_DIRECTED:
            return self._fate(self._directed(place, datagram, mad, endpoint, stamp))
        return self._fate(self._to_lid(place, datagram, mad, endpoint, stamp))

    def _fate(self, fate: str) -> str:
        if fate != ANSWERED:  # agents count those themselves
            self.counters[fate] += 1
        return fate

    @property
    def now_ns(self) -> int:
        """The time of the last call."""
        return self._now

    @property
    def next_deadline_ns(self) -> int:
        """When `expire` has something to do."""
        return self.notices.next_deadline_ns

    def expire(self, now: int) -> None:
        """Send the traps that are due."""
        self._now = now
        self.notices.expire(now)

    def _send_trap(self, node: NodeState, port: PortState, mad: bytearray, lid: int, now: int) -> None:
        datagram = Datagram(lid, port.info.lid, 0, 0, b"")
        self._fate(self._to_lid((node, port.number), datagram, mad, None, b"\0\0"))

    # directed routes

    def _directed(
        self, place: Place, datagram: Datagram, mad: bytearray, sender: Endpoint, stamp: bytes
    ) -> str:
        """A directed-route packet leaves an endpoint's port, be it by LID at first."""
        if not 0 < datagram.dlid < c.LID_PERMISSIVE or (mad[4] & 0x80):
            found = self._along(place, mad)
        else:
            found = self._by_lid(place, datagram.dlid, subnet=True)
            if not isinstance(found, str):
                if mad[7] and not found[0].is_switch:
                    return "drops_route"
                found = self._along((found[0], found[1] if not mad[7] else 0), mad, arrived=True)
        if isinstance(found, str):
            return found
        return self._arrived(found, datagram, mad, sender, stamp)

    def _along(self, place: Place, mad: bytearray, arrived: bool = False) -> Place | str:
        """Where a directed-route packet's way from a place ends; the name of a fate where it is lost.
        ``arrived``: it has come into the node just now."""
        node, number = place
        leaving = enter(mad, number, node.is_switch) if arrived or not mad[7] else begin(mad)
        while leaving > 0:
            port = node.port(leaving)
            if not arrived and leaving != number and not node.is_switch:
                port = None  # an endpoint's way begins at its own port
            if port is None or not port.number:
                return "drops_route"
            peer = self._peers[node.index][leaving]
            if peer is None or not port.up:
                port.count("xmit_discards")
                return "drops_link_down"
            port.sent += 1
            node, entered = peer
            entered.received += 1
            number = entered.number
            arrived = True
            leaving = enter(mad, number, node.is_switch)
        if leaving == LOST:
            return "drops_route"
        if leaving == BY_LID:
            if not mad[4] & 0x80:
                return "drops_route"
            return self._by_lid((node, 0), int.from_bytes(mad[32:34], "big"), subnet=True)
        return node, number

    # LID routes

    def _to_lid(
        self, place: Place, datagram: Datagram, mad: bytearray, sender: Endpoint | None, stamp: bytes
    ) -> str:
        subnet = mad[1] == c.CLASS_SUBN_LID
        lid = datagram.dlid
        if subnet and lid == c.LID_PERMISSIVE:
            return self._arrived(place, datagram, mad, sender, stamp)
        found = self._by_lid(place, lid, subnet)
        if isinstance(found, str):
            return found
        return self._arrived(found, datagram, mad, sender, stamp)

    def _by_lid(self, place: Place, lid: int, subnet: bool) -> Place | str:
        """Where a packet to a LID ends that leaves a node by a port (a switch: by its table)."""
        node, number = place
        if node.is_switch:
            leaving = node.forward(lid)
        else:
            leaving = number
            own = node.own_port(number)
            if own.has_lid(lid):
                return node, number
        if lid >= MULTICAST_FIRST or not lid:
            return "drops_no_route"
        for _ in range(MOST_HOPS):
            if node.is_switch and not leaving:
                return node, 0
            port = node.port(leaving) if leaving != NO_PORT else None
            if port is None:
                return "drops_no_route"
            peer = self._peers[node.index][leaving]
            if peer is None or not port.up or not (subnet or port.state == ACTIVE):
                port.count("xmit_discards")
                return "drops_link_down"
            port.sent += 1
            node, entered = peer
            entered.received += 1
            if not node.is_switch:
                return (node, entered.number) if entered.has_lid(lid) else "drops_wrong_lid"
            leaving = node.forward(lid)
            if leaving == NO_PORT:
                entered.count("rcv_switch_relay_errors")
        return "drops_loop"

    # at the end of the way

    def _arrived(
        self, place: Place, datagram: Datagram, mad: bytearray, sender: Endpoint | None, stamp: bytes
    ) -> str:
        node, number = place
        management_class, method = mad[1], mad[3]
        subnet = management_class in c.SUBNET_CLASSES
        if method & c.RESPONSE:
            return self._response(place, datagram, mad)
        if subnet and (mad[16] << 8 | mad[17]) != c.ATTRIBUTE_SM_INFO and method != c.METHOD_TRAP:
            self.epoch += method == c.METHOD_SET
            answered = self._agents[node.index].answer(mad, number, self._now)
        elif management_class == c.CLASS_PERF:
            answered = self._performance[node.index].answer(mad)
        else:
            return self._request(place, datagram, mad)
        if not answered or sender is None:
            return TAKEN_SILENTLY
        return self._back(place, datagram, mad, sender, stamp)

    def _back(self, place: Place, datagram: Datagram, mad: bytearray, sender: Endpoint, stamp: bytes) -> str:
        """An agent's answer goes back to the endpoint that asked."""
        node, number = place
        if mad[1] == c.CLASS_SUBN_DIRECTED:
            home = self._along(place, mad, arrived=False)
        elif sender.is_at(place):
            home = place
        else:
            slid = datagram.slid or sender.port.info.lid
            home = self._by_lid((node, 0 if node.is_switch else number), slid, mad[1] == c.CLASS_SUBN_LID)
        if isinstance(home, str):
            return home
        if not sender.is_at(home):
            return "drops_wrong_lid"
        mad[8:10] = stamp
        answer = Datagram(datagram.slid, datagram.dlid, datagram.sqpn, datagram.dqpn, bytes(mad))
        return ANSWERED if sender.deliver(answer) else "drops_full"

    def _response(self, place: Place, datagram: Datagram, mad: bytearray) -> str:
        """A response of an endpoint: to the one that asked, if that is at this port."""
        endpoint = self._endpoints.get(mad[8] << 8 | mad[9])
        if endpoint is None or not endpoint.is_at(place):
            return "drops_unclaimed"
        mad[8:10] = b"\0\0"
        return self._deliver(endpoint, datagram, mad)

    def _request(self, place: Place, datagram: Datagram, mad: bytearray) -> str:
        """A request, or a datagram that has no response, for an endpoint."""
        node, number = place
        here = self._at.get(End(node.index, 0 if node.is_switch else number), ())
        for endpoint in sorted(here, key=lambda each: each.is_adapter):
            if _is_for(endpoint, mad):
                return self._deliver(endpoint, datagram, mad)
        return "drops_unclaimed"

    def _deliver(self, endpoint: Endpoint, datagram: Datagram, mad: bytearray) -> str:
        return DELIVERED if endpoint.deliver(datagram._replace(data=bytes(mad))) else "drops_full"


def _is_request(mad: bytearray) -> bool:
    return not mad[3] & c.RESPONSE and mad[3] not in c.UNANSWERED_METHODS


def _is_subscription(mad: bytearray) -> bool:
    attribute = mad[16] << 8 | mad[17]
    return (mad[1], mad[3], attribute) == (c.CLASS_SUBN_ADM, c.METHOD_SET, ATTRIBUTE_INFORM_INFO)


def _is_for(endpoint: Endpoint, mad: bytearray) -> bool:
    """Whether a request is for an endpoint at the port that it has come to."""
    if mad[1] == c.CLASS_SUBN_ADM and mad[3] == c.METHOD_REPORT:
        return endpoint.has_subscribed
    if mad[1] in c.SUBNET_CLASSES or mad[1] == c.CLASS_SUBN_ADM:
        return endpoint.is_manager
    return endpoint.is_adapter or not (endpoint.is_manager or endpoint.has_asked)
