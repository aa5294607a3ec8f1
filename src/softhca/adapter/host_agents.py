"""Agents of hosts: programs that take part in management through queue pairs 0 and 1 of a port.

A host registers for a class and methods with a ring of its own, in which it finds what came for it; what it
sends comes by a command.  What the ring has no room for is dropped and counted (`drops_client_full`).  A
request that is sent with a time-out is sent again as often as asked, and then its end is in the ring, too:
the datagram as the host sent it, with the status ETIMEDOUT.

Queue pair 0 configures the port and others: hosts have it where ``AdapterConfig.host_subnet_management`` says
so.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from softhca.adapter.resources import Kind, Resource
from softhca.adapter.rings import cost_of, layout_of
from softhca.machine.primitives import address_of
from softhca.management.constants import GENERAL_QPN, RESPONSE, SUBNET_CLASSES, SUBNET_QPN
from softhca.management.dispatcher import Client
from softhca.management.mad import Address, MadHeader
from softhca.management.pending import is_request, request_key
from softhca.queues.control_fields import AGENT_EVENTS, EVENT_MAD
from softhca.queues.layout import MAD_BYTES, MAD_ENTRY_BYTES, MAD_HEADER, MAX_AGENT_ENTRIES
from softhca.queues.ring import RingLayout, RingProducer

if TYPE_CHECKING:
    from softhca.adapter.engine import Adapter
    from softhca.adapter.hosts import Host
    from softhca.adapter.management_flow import ManagementFlow

MAX_PENDING = 256
"""So many requests of one agent may wait for responses, with a time-out."""
PENDING_BYTES = 2048
"""What each of them may cost: 1 KiB, and as much for one that was answered and is still in the list of
deadlines."""
MAX_RETRIES = 255
MAX_METHOD = 0x7F
_HEADER = MAD_HEADER.packing()
_MAX_QPN = 0xFFFFFF
_MAX_SL = 15
_MAX_PATH_BITS = 0x7F
_NS_PER_MS = 1_000_000

Fields = dict[str, Any]


class HostAgent(Client):
    """A host's registration with ``flow``'s dispatcher; ``layout`` is its ring, ``element`` its number."""

    def __init__(
        self,
        host: Host,
        flow: ManagementFlow,
        layout: RingLayout,
        element: int,
        management_class: int,
        class_version: int,
        methods: frozenset[int],
    ) -> None:
        super().__init__(management_class, class_version, methods, self._delivered)
        self.flow = flow
        self.element = element
        self._host = host
        self._ring = RingProducer(layout)
        self._entry = bytearray(MAD_ENTRY_BYTES)
        self._address = address_of(self._entry)

    def _delivered(self, data: bytes, source: Address) -> bool:
        if not self._put(0, data, source):
            return False
        header = MadHeader.decode(data)
        if header.method & RESPONSE:
            self.flow.pending.answered(self, request_key(header), source)
        return True

    def timed_out(self, data: bytes, destination: Address) -> bool:
        """Nobody has answered a request; False: there is no room to say so yet."""
        return self._put(errno.ETIMEDOUT, data, destination) or bool(self._ring.broken)

    def _put(self, status: int, data: bytes, other: Address) -> bool:
        gid, own_gid = (
            (int.from_bytes(each[:8], "big"), int.from_bytes(each[8:], "big"))
            for each in (other.gid or bytes(16), other.own_gid or bytes(16))
        )
        self._entry[: _HEADER.size] = _HEADER.pack(
            status,
            other.qpn,
            other.qkey,
            other.pkey,
            other.lid,
            other.sl,
            other.path_bits,
            other.gid is not None,
            other.traffic_class,
            *gid,
            *own_gid,
        )
        self._entry[_HEADER.size :] = data
        if not self._ring.push(self._address, MAD_ENTRY_BYTES):
            return False
        self._host.report_event(EVENT_MAD, self.element)
        return True


def register_agent(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """REGISTER_AGENT: a class's requests by method go to the host, and responses to what it asks.

    The host pays for the ring, and for all requests that may wait, at once.
    """
    port = adapter.port_of(fields["port_num"])
    management_class = fields["mgmt_class"]
    subnet = management_class in SUBNET_CLASSES
    flow = port.management[SUBNET_QPN if subnet else GENERAL_QPN]
    if flow is None:
        raise OSError(errno.EOPNOTSUPP, f"mgmt_class: port {port.number} is RoCEv2 and has no queue pair 0")
    if subnet and not adapter.config.host_subnet_management:
        raise OSError(errno.EPERM, "mgmt_class: this adapter keeps queue pair 0 to itself")
    if not management_class:
        raise OSError(errno.EINVAL, "mgmt_class = 0: there is no such class")
    asked = fields["methods_low"] | fields["methods_high"] << 64
    methods = frozenset(method for method in range(MAX_METHOD + 1) if asked >> method & 1)
    layout = layout_of(
        host.address_map,
        fields,
        least_entries=1,
        most_entries=MAX_AGENT_ENTRIES,
        least_entry_bytes=MAD_ENTRY_BYTES,
        most_entry_bytes=MAD_ENTRY_BYTES,
    )
    cost_bytes = cost_of(layout, produces=True) + MAX_PENDING * PENDING_BYTES
    adapter.resources.afford(host.number, cost_bytes, adapter.config.max_host_bytes)
    number = adapter.resources.reserve(Kind.AGENT)
    agent = HostAgent(host, flow, layout, number, management_class, fields["class_version"], methods)
    flow.dispatcher.register(agent)
    adapter.resources.add(Kind.AGENT, number, host.number, agent, (), cost_bytes)
    return {"agent": number}


def unregister_agent(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """UNREGISTER_AGENT: nothing is written into its ring afterwards."""
    resource = adapter.resources.find(Kind.AGENT, fields["agent"], host.number)
    release_agent(adapter, host, resource)
    adapter.resources.remove(resource)
    return {}


def release_agent(adapter: Adapter, host: Host, resource: Resource) -> None:
    """An agent goes: its methods are free, and what it has asked is nobody's."""
    agent: HostAgent = resource.element
    agent.flow.dispatcher.unregister(agent)
    agent.flow.pending.forget(agent)
    if not len(agent.flow.pending):
        adapter.timers.disarm(agent.flow)
    host.forget(AGENT_EVENTS, resource.number)


def send_mad(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """SEND_MAD: a datagram of an agent's; the end of one with ``timeout_ms`` is reported in any case."""
    agent: HostAgent = adapter.resources.find(Kind.AGENT, fields["agent"], host.number).element
    flow, data = agent.flow, fields["mad"]
    if len(data) != MAD_BYTES:
        raise OSError(errno.EINVAL, f"mad: a datagram has {MAD_BYTES} bytes, not {len(data)}")
    if fields["retries"] > MAX_RETRIES:
        raise OSError(
            errno.EINVAL, f"retries = {fields['retries']}: a MAD is sent again {MAX_RETRIES} times at most"
        )
    destination = destination_of(flow, fields)
    header = MadHeader.decode(data)
    timeout_ns = fields["timeout_ms"] * _NS_PER_MS
    if not timeout_ns or not is_request(header):
        flow.dispatcher.send(agent, data, destination)
        return {}
    if flow.pending.has(agent, request_key(header)):
        raise OSError(errno.EINVAL, "mad: a request of this transaction ID waits for its response")
    if flow.pending.count(agent) >= MAX_PENDING:
        raise OSError(errno.EAGAIN, f"agent: {MAX_PENDING} requests of it wait for their responses")
    flow.ask(agent, data, destination, timeout_ns, fields["retries"], now)
    return {}


def destination_of(flow: ManagementFlow, fields: Fields) -> Address:
    """Where a datagram is to go; EINVAL for what cannot be."""
    port = flow.port
    if not 0 < fields["qpn"] <= _MAX_QPN and flow.number == GENERAL_QPN:
        raise OSError(errno.EINVAL, f"qpn = {fields['qpn']}: it takes no datagrams of queue pair 1")
    if flow.number == SUBNET_QPN and (fields["qpn"] or fields["is_global"]):
        raise OSError(errno.EINVAL, "qpn, is_global: queue pair 0 sends to queue pair 0, without a GRH")
    if fields["sl"] > _MAX_SL or fields["path_bits"] > _MAX_PATH_BITS:
        raise OSError(errno.EINVAL, "sl, path_bits: a service level has 4 bits, path bits are 7")
    if fields["pkey_index"] >= len(port.pkeys):
        raise OSError(
            errno.EINVAL, f"pkey_index = {fields['pkey_index']}: the table has {len(port.pkeys)} P_Keys"
        )
    if not fields["dlid"] if port.native else not fields["is_global"]:
        raise OSError(errno.EINVAL, "dlid, dgid: a native port sends to a LID, a RoCE port to a GID")
    return Address(
        qpn=fields["qpn"],
        qkey=fields["qkey"],
        pkey=port.pkey(fields["pkey_index"]) if flow.number == GENERAL_QPN else 0xFFFF,
        lid=fields["dlid"],
        sl=fields["sl"],
        path_bits=fields["path_bits"],
        gid=fields["dgid"] if fields["is_global"] else None,
        traffic_class=fields["traffic_class"],
    )
