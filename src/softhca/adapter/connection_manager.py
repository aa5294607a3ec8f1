"""The communication manager of a port, behind its queue pair 1, and the channels of hosts that use it.

`PortConnections` gives the sans-IO manager (`management.cm`) datagrams and time; `HostConnections` is a
host's channel: a ring in which the host finds what happened to its connections.  What the ring has no room
for waits, except requests: those are dropped, and their peers ask again.
"""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from softhca.adapter.connection_instances import HostInstances
from softhca.adapter.resources import Kind
from softhca.adapter.rings import FULL_RING_RETRY_NS
from softhca.machine.primitives import address_of
from softhca.management.cm import messages as m
from softhca.management.cm.elements import (
    NEVER_NS,
    REQUEST,
    SIDR_REQUEST,
    Connection,
    Event,
    end_of,
    is_datagrams,
    number_of,
    place_of,
)
from softhca.management.cm.instances import Instances
from softhca.management.cm.manager import ConnectionManager
from softhca.management.mad import Address
from softhca.queues.control_fields import CM_EVENTS, EVENT_CM, QPT_RC, QPT_RD, QPT_UC, QPT_XRC_SEND
from softhca.queues.layout import CM_ENTRY_BYTES, CM_HEADER, CM_PRIVATE_BYTES
from softhca.queues.ring import RingLayout, RingProducer
from softhca.transport.flow import Flow

if TYPE_CHECKING:
    from softhca.adapter.engine import Adapter
    from softhca.adapter.hosts import EventSink, Host
    from softhca.adapter.management_flow import ManagementFlow
    from softhca.adapter.port import Port
    from softhca.wire.route import Route

CONNECTION_BYTES = 4096
"""What a connection may cost the adapter."""
QP_TYPES = {
    m.SERVICE_RC: QPT_RC, m.SERVICE_UC: QPT_UC, m.SERVICE_RD: QPT_RD, m.SERVICE_EXTENDED: QPT_XRC_SEND
}  # fmt: skip
"""Queue pair types by REQ's transport service type; of reliable datagrams it is an EE context that is
connected.  REQ's extended type says something of the extended service alone (12.6.5); there it is XRC.
"""
_HEADER = CM_HEADER.packing()
_EMPTY = dict.fromkeys(CM_HEADER.names, 0)
_GID = struct.Struct(">QQ")
_NO_GID = bytes(16)


class PortConnections(Flow):
    """The manager of the port behind ``management``, its queue pair 1.  As a flow it has a timer, and sends
    nothing itself.
    """

    def __init__(self, adapter: Adapter, management: ManagementFlow, guid: int, seed: int) -> None:
        Flow.__init__(self, adapter, management.number)
        self.management = management
        self.port = management.port
        self.manager = ConnectionManager(self._send, guid, seed, self._check_path, self._owns)
        self.instances = Instances(random.Random(seed))
        self.channels: list[HostConnections] = []
        self._adapter = adapter

    def deliver(self, data: bytes, source: Address) -> bool:
        """Take a datagram of the class."""
        home = self._home_of(m.connection_of(data))
        home.manager.receive(data, source, self._adapter.now)
        home.arm()
        return True

    def _home_of(self, number: int) -> PortConnections:
        """Whose connection of that number comes along here: another port's, when it has moved here."""
        if number and not self.manager.has(number):
            for port in self._adapter.ports:
                management = port.management[1]
                if management.has_connections and management.connections.manager.has(number):
                    return management.connections
        return self

    def _send(self, data: bytes, to: Address) -> bool:
        """Send a datagram by the port that its way begins at."""
        port = self.port
        by_gid = to.own_gid is not None and to.own_gid not in port.gids
        if by_gid or (to.own_lid and to.own_lid != port.lid):
            port = port_at(self._adapter, to.own_gid or _NO_GID, to.own_lid) or port
        return port.management[1].dispatcher.send_own(data, to)

    def migrated(self, qpn: int, route: Route) -> None:
        """A queue pair of the adapter goes along another path."""
        with_gids = not self.port.native or route.has_grh
        gids = (route.destination, route.source) if with_gids else (_NO_GID, _NO_GID)
        self.manager.migrated(qpn, *gids, route.dlid, route.slid, route.sl, route.traffic_class)

    def _check_path(self, lap: m.Lap, connection: Connection) -> int:
        """APR's status of a path that a peer proposes: it must lead to a port of this adapter, and be another
        one than that which the connection has.
        """
        port = port_at(self._adapter, lap.alternate_remote_gid, lap.alternate_remote_lid)
        if port is None:
            native = self.port.native and not any(lap.alternate_remote_gid)
            return m.APR_INVALID_LID if native else m.APR_INVALID_GID
        if not port.native and not any(lap.alternate_local_gid):
            return m.APR_INVALID_GID
        if port.native and not lap.alternate_local_lid:
            return m.APR_INVALID_LID
        if not port.native and not lap.alternate_hop_limit:
            return m.APR_INVALID_HOP_LIMIT
        peer = connection.peer
        here = port_at(self._adapter, peer.own_gid or _NO_GID, peer.own_lid) or self.port
        there = lap.alternate_local_lid if peer.gid is None else lap.alternate_local_gid
        return m.APR_IS_CURRENT if port is here and there == place_of(peer) else m.APR_LOADED

    @staticmethod
    def _owns(connection: Connection) -> bool:
        """Whether a host names a queue pair or EE context that is not another program's."""
        owner = connection.owner
        return isinstance(owner, HostConnections) and owner.may_name(connection.local_end)

    def instance_of(self, host: int, vector: Mapping[str, Any], peer: int) -> int:
        """The instance number of a host's queue pair that is brought to RTR (`HostInstances.expected`)."""
        for channel in self.channels:
            if channel.instances.is_of_program(host):
                found = channel.instances.expected(vector, peer)
                if found:
                    return found
        return 0

    def arm(self) -> None:
        """See to it that the manager's time comes."""
        deadline = self.manager.next_deadline()
        for channel in self.channels:
            if channel.waiting:
                deadline = min(deadline, self._adapter.now + FULL_RING_RETRY_NS)
                break
        if deadline < NEVER_NS:
            self.environment.arm(self, deadline)

    def expire(self, now: int) -> None:
        """The manager's time has come, or rings may have room again."""
        for channel in self.channels:
            channel.flush()
        self.manager.expire(now)
        self.arm()


class HostConnections:
    """A host's channel on ``connections``' port: an `Owner`.

    ``numbers`` are its listeners, connections and resolutions, for each of which the host pays;
    ``waiting`` are entries that its ring had no room for; ``instances`` the numbers of its connections.
    ``sink``: the event channel that is told of entries, None: the host's event ring is.
    """

    def __init__(
        self,
        adapter: Adapter,
        host: Host,
        connections: PortConnections,
        layout: RingLayout,
        number: int,
        ring_bytes: int,
        sink: EventSink | None = None,
    ) -> None:
        self.connections = connections
        self.numbers: set[int] = set()
        self.waiting: deque[bytes] = deque()
        self.instances = HostInstances(adapter, host.number, connections.instances)
        self._adapter = adapter
        self._host = host
        self._number = number
        self._ring_bytes = ring_bytes
        self._sink = sink
        self._ring = RingProducer(layout)
        self._entry = bytearray(CM_ENTRY_BYTES)
        self._address = address_of(self._entry)

    def deliver(self, event: Event) -> bool:
        """Tell the host; a request that it has no room for, or cannot afford, is refused."""
        entry = entry_of(self.instances.read(event))
        if event.kind in (REQUEST, SIDR_REQUEST):
            if self.waiting or not self.affords() or not self._put(entry):
                self.instances.forget(event.number)
                return False
            self.add(event.number)
            return True
        if self.waiting or not self._put(entry):
            self.waiting.append(entry)
            self.connections.arm()
        if not self.connections.manager.has(event.number):
            self.remove(event.number)  # with this event it is over
        return True

    def flush(self) -> None:
        """Put what waits into the ring."""
        while self.waiting and (self._put(self.waiting[0]) or self._ring.broken):
            self.waiting.popleft()

    def _put(self, entry: bytes) -> bool:
        self._entry[:] = entry
        if not self._ring.push(self._address, CM_ENTRY_BYTES):
            return False
        if self._sink is None:
            self._host.report_event(EVENT_CM, self._number)
        else:
            self._sink.post(EVENT_CM, self._number)
        return True

    def end(self) -> None:
        """The channel goes: events of it that still wait must not name a later one of its number."""
        self._host.forget(CM_EVENTS, self._number)
        if self._sink is not None:
            self._sink.forget(EVENT_CM, self._number)

    def may_name(self, end: int) -> bool:
        """Whether the host may say that a queue pair, or EE context, is the end of a connection: no other
        program has it.
        """
        kind = Kind.EEC if is_datagrams(end) else Kind.QP
        resource = self._adapter.resources.get(kind, number_of(end))
        return resource is None or self.instances.may_be_of_program(resource.host)

    def affords(self) -> bool:
        """Whether the host may have another connection."""
        cost_bytes = self._adapter.resources.cost(self._host.number) + CONNECTION_BYTES
        return cost_bytes <= self._adapter.config.max_host_bytes

    def require_room(self) -> None:
        """OSError ENOMEM where it may not."""
        limit_bytes = self._adapter.config.max_host_bytes
        self._adapter.resources.afford(self._host.number, CONNECTION_BYTES, limit_bytes)

    def add(self, number: int) -> None:
        """The host has another one."""
        self.numbers.add(number)
        self._charge()

    def remove(self, number: int) -> None:
        """The host has let go of it; once more is no error."""
        self.numbers.discard(number)
        self.instances.forget(number)
        self._charge()

    def _charge(self) -> None:
        resource = self._adapter.resources.find(Kind.CM, self._number, self._host.number)
        cost_bytes = self._ring_bytes + len(self.numbers) * CONNECTION_BYTES
        self._adapter.resources.charge(resource, cost_bytes)


def entry_of(event: Event) -> bytes:
    """An event as the host finds it: the fields of ``CM_HEADER``, and the message's private data."""
    message, source = event.message, event.source
    private_data = b"" if message is None else message.private_data
    values = _EMPTY.copy()
    values["kind"] = event.kind
    values["id"] = event.number
    values["listener"] = event.listener
    values["status"] = event.status
    values["service_id"] = event.service_id
    values["pkey"] = source.pkey
    values["sl"] = source.sl
    values["lid"] = source.lid
    values["traffic_class"] = source.traffic_class
    values["private_bytes"] = len(private_data)
    if source.gid is not None:
        values["gid_prefix"], values["gid_interface"] = _GID.unpack(source.gid)
    if source.own_gid is not None:
        values["own_gid_prefix"], values["own_gid_interface"] = _GID.unpack(source.own_gid)
    if isinstance(message, m.Req):
        values.update(_of_request(message))
    elif isinstance(message, m.Rep):
        values.update(_of_reply(message))
    elif isinstance(message, m.Lap):
        values.update(_way_of(message), failover=0)
    elif isinstance(message, m.SidrReq):
        values.update(pkey=message.partition_key)
    elif isinstance(message, m.SidrRep):
        values.update(qp_num=message.qpn, qkey=message.qkey)
    return _HEADER.pack(*values.values()) + private_data.ljust(CM_PRIVATE_BYTES, b"\0")


def _way_of(message: m.Req | m.Lap) -> dict[str, int]:
    """The alternate path of REQ or LAP, as its receiver takes it: to the sender, from the own port."""
    found = {
        "alternate_lid": message.alternate_local_lid,
        "alternate_own_lid": message.alternate_remote_lid,
        "alternate_flow_label": message.alternate_flow_label,
        "alternate_ack_timeout": message.alternate_ack_timeout,
        "alternate_traffic_class": message.alternate_traffic_class,
        "alternate_hop_limit": message.alternate_hop_limit,
        "alternate_sl": message.alternate_sl,
        "alternate_packet_rate": message.alternate_packet_rate,
    }
    found["alternate_gid_prefix"], found["alternate_gid_interface"] = _GID.unpack(message.alternate_local_gid)
    own_gid = _GID.unpack(message.alternate_remote_gid)
    found["alternate_own_gid_prefix"], found["alternate_own_gid_interface"] = own_gid
    return found


def port_at(adapter: Adapter, gid: bytes, lid: int) -> Port | None:
    """The port of an adapter that has a GID, or on native links, where none is named, a LID."""
    for port in adapter.ports:
        if gid in port.gids if any(gid) else port.native and lid and port.lid == lid:
            return port
    return None


def _of_request(request: m.Req) -> dict[str, int]:
    return {
        **_way_of(request),
        "remote_ca_guid": request.local_ca_guid,
        "qp_num": number_of(end_of(request, request.transport_service_type == m.SERVICE_RD)),
        "starting_psn": request.starting_psn,
        "qkey": request.local_qkey,
        "flow_label": request.primary_flow_label,
        "pkey": request.partition_key,
        "qp_type": QP_TYPES.get(request.transport_service_type, 0),
        "path_mtu": request.path_mtu,
        "responder_resources": request.responder_resources,
        "initiator_depth": request.initiator_depth,
        "retry_cnt": request.retry_count,
        "rnr_retry": request.rnr_retry_count,
        "srq": request.srq,
        "flow_control": request.end_to_end_flow_control,
        "ack_timeout": request.primary_ack_timeout,
        "traffic_class": request.primary_traffic_class,
        "hop_limit": request.primary_hop_limit,
        "sl": request.primary_sl,
    }


def _of_reply(reply: m.Rep) -> dict[str, int]:
    return {
        "remote_ca_guid": reply.local_ca_guid,
        "qp_num": reply.local_eecn or reply.local_qpn,  # the manager leaves one of them
        "qp_type": QPT_RD if reply.local_eecn else 0,
        "starting_psn": reply.starting_psn,
        "qkey": reply.local_qkey,
        "responder_resources": reply.responder_resources,
        "initiator_depth": reply.initiator_depth,
        "rnr_retry": reply.rnr_retry_count,
        "srq": reply.srq,
        "failover": reply.failover_accepted,
        "flow_control": reply.end_to_end_flow_control,
    }
