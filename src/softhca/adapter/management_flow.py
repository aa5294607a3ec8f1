"""Queue pairs 0 and 1 of a port: flows that carry management datagrams between the port and its dispatchers.

Queue pair 1 stands on every port and takes datagrams with its own Q_Key; queue pair 0 stands on native ports
and has virtual lane 15, no Q_Key and no P_Key (IBTA vol. 1, 10.2.5, 14.2).  A datagram is one packet and one
burst, and what waits to be sent is bounded.  Anybody may send to queue pair 1, and a datagram costs more to
answer than to receive: so a port takes `PERIOD_NS` apart on average, and drops the others (`drops_rate`).
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from softhca.adapter.config import MANAGEMENT_LANE
from softhca.adapter.gid_table import NO_GID
from softhca.adapter.managed_node import ManagedAdapter
from softhca.adapter.rings import FULL_RING_RETRY_NS
from softhca.management.agents import ServiceAgent, SubnetManagementAgent
from softhca.management.constants import (
    CLASS_COMM_MGT,
    CLASS_PERF,
    COMM_MGT_VERSION,
    GENERAL_QKEY,
    GENERAL_QPN,
    LID_PERMISSIVE,
    MAD_BYTES,
    METHOD_SEND,
    SUBNET_CLASSES,
    SUBNET_QPN,
)
from softhca.management.dispatcher import Client, Dispatcher
from softhca.management.mad import Address, MadHeader
from softhca.management.pending import NEVER_NS, Pending, PendingRequests, request_key
from softhca.transport.flow import Flow
from softhca.wire import opcodes
from softhca.wire.build import put_bth, put_deth, put_icrc, put_vcrc
from softhca.wire.framing import NATIVE, ROCE_V4, ROCE_V6
from softhca.wire.icrc import compute
from softhca.wire.route import V4_MAPPED_PREFIX, Route
from softhca.wire.vcrc import compute as variant_crc

if TYPE_CHECKING:
    from softhca.adapter.connection_manager import PortConnections
    from softhca.adapter.engine import Adapter
    from softhca.adapter.host_agents import HostAgent
    from softhca.adapter.port import Port

MAX_WAITING = 64
PERIOD_NS = 2_000_000
MOST_AT_ONCE = 128
"""So many datagrams may come without a pause after a silence."""
CONNECTION_PERIOD_NS = 100_000
MOST_CONNECTIONS_AT_ONCE = 1024
"""The same of messages for connections, of which each takes three."""
CLASS_AT = 1
"""Where a datagram has its management class."""
ENTROPY = 1
"""Management datagrams of a port leave from one UDP source port."""
HOP_LIMIT = 64
HIGHEST_LEVEL = 15
MAX_ROUTES = 64
"""Ways to peers that a queue pair keeps: to lay one out anew costs a sixth of what a connection does; and as
many of those that datagrams have come by."""


class RateLimit:
    """So many at once after a silence, and then one each ``period_ns``."""

    def __init__(self, period_ns: int, most_at_once: int) -> None:
        self._period_ns = period_ns
        self._most_ns = (most_at_once - 1) * period_ns
        self._due_ns = 0

    def take(self, now: int) -> bool:
        """Whether one may pass at ``now``; by ``_due_ns`` those that did would all have come in turn."""
        due_ns = max(self._due_ns, now)
        if due_ns - now > self._most_ns:
            return False
        self._due_ns = due_ns + self._period_ns
        return True


class ManagementFlow(Flow):
    """Queue pair ``qpn`` of ``port``, with its `Dispatcher`.

    ``agents_at_link`` are the classes whose agents for this port are at the other end of its link, as those
    of a served fabric's nodes are, and its manager: datagrams of them leave the port, to its own LID, too.
    ``leaves`` is whether what `produce` has made last is one.
    """

    def __init__(self, adapter: Adapter, port: Port, qpn: int, seed: int = 0) -> None:
        Flow.__init__(self, adapter, qpn)
        self.port = port
        self.port_number = port.number
        self.service_level = HIGHEST_LEVEL if qpn == SUBNET_QPN else 0
        self.dispatcher = Dispatcher(port.number, qpn, self.queue)
        self.pending = PendingRequests()
        self._adapter = adapter
        self._seed = seed
        self._connections: PortConnections | None = None
        self.agents_at_link: frozenset[int] = frozenset()
        self.leaves = False
        self._waiting: deque[tuple[bytes, Address, Route]] = deque()
        self._routes: dict[tuple[object, ...], Route] = {}
        self._sources: dict[tuple[Any, ...], Address] = {}
        self._psn = 0
        self._rate = RateLimit(PERIOD_NS, MOST_AT_ONCE)
        self._connection_rate = RateLimit(CONNECTION_PERIOD_NS, MOST_CONNECTIONS_AT_ONCE)

    @property
    def has_connections(self) -> bool:
        """Whether anything has needed the communication manager yet."""
        return self._connections is not None

    @property
    def connections(self) -> PortConnections:
        """Queue pair 1's communication manager, made when it is first needed: most programs need none, and
        to import what it is made of takes a fifth of the time in which a device opens.
        """
        if self._connections is None:
            from softhca.adapter.connection_manager import PortConnections

            guid = self._adapter.device_attributes["node_guid"]
            self._connections = PortConnections(self._adapter, self, guid, self._seed)
        return self._connections

    def receive(self, view: Any, arrival: Any, now: int) -> None:
        """Take a datagram that has come for this queue pair."""
        dispatcher = self.dispatcher
        if self.number == GENERAL_QPN and view.qkey != GENERAL_QKEY:
            dispatcher.counters["drops_qkey"] += 1
            return
        management_class = arrival.buffer[view.payload + CLASS_AT] if view.payload_bytes > CLASS_AT else 0
        rate = self._connection_rate if management_class == CLASS_COMM_MGT else self._rate
        if not rate.take(now):
            dispatcher.counters["drops_rate"] += 1
            return
        native = arrival.framing == NATIVE
        way = (
            view.source_qp,
            GENERAL_QKEY if self.number == GENERAL_QPN else 0,
            view.pkey,
            arrival.slid if native else 0,
            arrival.sl if native else 0,
            arrival.path_bits if native else 0,
            arrival.source,
            arrival.destination,
            arrival.traffic_class,
        )
        source = self._sources.get(way)
        if source is None:
            if len(self._sources) >= MAX_ROUTES:
                self._sources.clear()
            source = self._sources[way] = Address(*way)
        data = bytes(arrival.buffer[view.payload : view.payload + view.payload_bytes])
        dispatcher.receive(data, source)

    def ask(
        self, agent: HostAgent, data: bytes, destination: Address, timeout_ns: int, retries: int, now: int
    ) -> None:
        """Send a request of a host's agent, again ``retries`` times where no response comes within
        ``timeout_ns`` of each, and report to the agent when none has come at all.  OSError as
        `Dispatcher.send`."""
        key = request_key(MadHeader.decode(data))
        request = Pending(agent, key, data, destination, timeout_ns, retries, now + timeout_ns)
        self.pending.add(request)  # before it is sent: the port itself may answer at once
        try:
            self.dispatcher.send(agent, data, destination)
        except OSError:
            self.pending.answered(agent, key)
            raise
        self.environment.arm(self, request.deadline_ns)

    def expire(self, now: int) -> None:
        """Send again what has had no response in time, or give it up."""
        for request in self.pending.due(now):
            agent = cast("HostAgent", request.client)
            if request.retries:
                self.pending.add(request.again(now))
                with contextlib.suppress(OSError):  # no room, or no way any more: that is one try less
                    self.dispatcher.send(agent, request.data, request.destination)
            elif agent.timed_out(request.data, request.destination):
                self.dispatcher.cancel(agent, MadHeader.decode(request.data), request.destination)
            else:
                self.pending.add(request.later(now + FULL_RING_RETRY_NS))
        if self.pending.next_ns != NEVER_NS:
            self.environment.arm(self, self.pending.next_ns)

    def queue(self, data: bytes, destination: Address) -> bool:
        """Send a datagram when it is its turn; False when too many wait, or no route leads there."""
        if len(self._waiting) >= MAX_WAITING:
            return False
        try:
            route = self._route_to(destination)
        except (OSError, OverflowError, ValueError):
            return False
        self._waiting.append((data, destination, route))
        self.environment.schedule(self)
        return True

    def _route_to(self, to: Address) -> Route:
        """The way to a peer.  All that it is made of tells whether one that is kept may be used again."""
        port = self.port
        if not port.native and to.gid is None:
            raise ValueError("a RoCE port sends to a GID")
        source = self.own_gid(to)
        key: tuple[object, ...]
        if port.native:
            slid = port.source_lid(to.path_bits) if port.lid else LID_PERMISSIVE
            key = (source, to.gid, to.traffic_class, slid, to.lid, to.sl)
        else:
            key = (source, to.gid, to.traffic_class, port.source_port_for(ENTROPY, None, source))
        route = self._routes.get(key)
        if route is None:
            route = self._native_route(source, to, slid) if port.native else self._roce_route(source, to)
            if len(self._routes) >= MAX_ROUTES:
                self._routes.clear()
            self._routes[key] = route
        return route

    def _native_route(self, source: bytes, to: Address, slid: int) -> Route:
        subnet = self.number == SUBNET_QPN
        route = Route(
            NATIVE,
            source,
            to.gid or bytes(16),
            traffic_class=to.traffic_class,
            hop_limit=HOP_LIMIT,
            slid=slid,
            dlid=to.lid,
            sl=to.sl,
            has_grh=to.gid is not None and not subnet,
            port_number=self.port.number,
        )
        if subnet:
            route.vl = MANAGEMENT_LANE
        return route

    def _roce_route(self, source: bytes, to: Address) -> Route:
        gid = to.gid or b""
        return Route(
            ROCE_V4 if gid.startswith(V4_MAPPED_PREFIX) else ROCE_V6,
            source,
            gid,
            self.port.source_port_for(ENTROPY, None, source),
            traffic_class=to.traffic_class,
            hop_limit=HOP_LIMIT,
            port_number=self.port.number,
        )

    def own_gid(self, to: Address) -> bytes:
        """The GID that the datagram was sent to that is answered, if it is the port's; else the first of its
        version of IP.
        """
        if to.own_gid is not None and to.own_gid in self.port.gids:
            return to.own_gid
        is_v4 = to.gid is not None and to.gid.startswith(V4_MAPPED_PREFIX)
        filled = [gid for gid in self.port.gid_table if gid != NO_GID] or [NO_GID]
        like = [gid for gid in filled if gid.startswith(V4_MAPPED_PREFIX) == is_v4]
        found: bytes = (like or filled)[0]
        return found

    def produce(self, burst: Any, now: int) -> int:
        """One datagram, in a burst of its own."""
        if burst.packets or not self._waiting:
            return 0
        data, to, route = self._waiting.popleft()
        self.leaves = data[CLASS_AT] in self.agents_at_link
        burst.route = route
        start = route.prefix_bytes
        o = put_bth(
            burst.data, start, opcodes.UD_SEND_ONLY, False, 0, to.pkey, to.qpn, False, self._psn
        )
        self._psn = (self._psn + 1) & 0xFFFFFF
        o = put_deth(burst.data, o, to.qkey, self.number)
        burst.buffer[o : o + MAD_BYTES] = data
        n = o + MAD_BYTES - start
        put_icrc(burst.data, start + n, compute(route, burst.address + start, n))
        n += 4
        if route.suffix_bytes:
            route.put_front(burst.address, n)
            put_vcrc(burst.data, start + n, variant_crc(burst.data, 0, start + n))
        burst.length = burst.stride = start + n + route.suffix_bytes
        burst.packets = 1
        return 1

    def has_work(self) -> bool:
        """Whether a datagram waits to be sent."""
        return bool(self._waiting)

    def has_requests(self) -> bool:
        """The same: nothing here is an acknowledgement."""
        return bool(self._waiting)


def management_flows(
    adapter: Adapter, port: Port, seed: int
) -> tuple[ManagementFlow | None, ManagementFlow]:
    """Queue pairs 0 (None on a RoCE port) and 1 of a port, with the agents and the communication manager
    that every port has; ``seed`` makes the manager's numbers.
    """
    subnet = None
    if port.native:
        subnet = ManagementFlow(adapter, port, SUBNET_QPN)
        for management_class in sorted(SUBNET_CLASSES):
            subnet.dispatcher.register(SubnetManagementAgent(management_class, ManagedAdapter(adapter, port)))
    general = ManagementFlow(adapter, port, GENERAL_QPN, seed ^ port.number)
    general.dispatcher.register(ServiceAgent(CLASS_PERF))

    def deliver(data: bytes, source: Address) -> bool:
        return general.connections.deliver(data, source)

    general.dispatcher.register(Client(CLASS_COMM_MGT, COMM_MGT_VERSION, {METHOD_SEND}, deliver))
    return subnet, general
