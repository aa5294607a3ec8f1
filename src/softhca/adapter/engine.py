"""The adapter: a sans-IO engine that turns commands, doorbells, packets and time into packets and events."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import cython

from softhca.adapter.admission import admitted, expects, from_peer, receives
from softhca.adapter.attributes import device_attributes
from softhca.adapter.commands import release, serve_commands
from softhca.adapter.config import MULTICAST_QPN, AdapterConfig
from softhca.adapter.counters import port_figures
from softhca.adapter.hosts import Host, HostSide
from softhca.adapter.keyed import KeyedConnections
from softhca.adapter.management_flow import management_flows
from softhca.adapter.memory_waiters import MemoryWaiters
from softhca.adapter.multicast import MulticastGroups
from softhca.adapter.paged_commands import settle_data_access
from softhca.adapter.path_migration import set_link
from softhca.adapter.paths import SourcePortFor
from softhca.adapter.port import PORT_ARMED, PORT_DOWN, Port, pkeys_match
from softhca.adapter.port_info import set_pkeys, set_port_info
from softhca.adapter.raw_services import RawServices
from softhca.adapter.resources import Kind, ResourceTable, limits_of
from softhca.adapter.scheduler import Scheduler
from softhca.adapter.timers import NEVER, Timers
from softhca.adapter.xrc_domains import XrcDomains
from softhca.machine.primitives import copy
from softhca.management.constants import GENERAL_QPN
from softhca.memory.regions import RegionTable
from softhca.memory.tpt import TranslationTable
from softhca.queues.control_fields import EVENT_CQ_ERR
from softhca.transport.connection import Connection
from softhca.transport.context import QueuePair
from softhca.transport.counters import TransportCounters
from softhca.transport.ee_error_cache import EeErrorCache
from softhca.transport.environment import AddressHandle, Environment
from softhca.transport.flow import Flow
from softhca.transport.observation import PACKET_DROPPED, addressed, observe_event
from softhca.transport.segmentation import MAX_BURST_BYTES
from softhca.transport.services import BY_QP, dispatch_keys
from softhca.transport.window import DestinationWindow
from softhca.wire import drops
from softhca.wire.bth import DEST_QP
from softhca.wire.burst import Arrival, Burst
from softhca.wire.link_view import LinkView
from softhca.wire.packet_view import PacketView
from softhca.wire.raw import RawView
from softhca.wire.route import Route

__all__ = ["NEVER", "Adapter"]

_UD = cython.declare(cython.int, 3)
_MULTICAST_QPN = cython.declare(cython.uint, MULTICAST_QPN)
_DESTINATION = cython.declare(cython.int, drops.DROP_DESTINATION)
_LENGTH = cython.declare(cython.int, drops.DROP_LENGTH)
_PKEY = cython.declare(cython.int, drops.DROP_PKEY)
_RAW = cython.declare(cython.int, drops.DROP_RAW)
_SERVICE = cython.declare(cython.int, drops.DROP_SERVICE)
_SOURCE = cython.declare(cython.int, drops.DROP_SOURCE)
_STATE = cython.declare(cython.int, drops.DROP_STATE)
_TRUNCATED = cython.declare(cython.int, drops.DROP_TRUNCATED)
_UNKNOWN_QP = cython.declare(cython.int, drops.DROP_UNKNOWN_QP)
_NATIVE = cython.declare(cython.int, 0)
_GENERAL_QPN = cython.declare(cython.uint, GENERAL_QPN)
_ARMED = cython.declare(cython.int, PORT_ARMED)
_DOWN = cython.declare(cython.int, PORT_DOWN)
_TURNS = cython.declare(cython.int, 64)
_MOST_BYTES = cython.declare(cython.uint, MAX_BURST_BYTES)
_LEAST_BYTES = cython.declare(cython.uint, 16)
_DEST_QP = cython.declare(cython.uint, DEST_QP)
_BY_QP = cython.declare(cython.int, BY_QP)


class Adapter(Environment):
    """One host channel adapter, with the ports 1, 2 … that ``config`` names; ``port`` is the first of them.

    The engine's contract
    --------------------- *Nothing here blocks, reads a clock, opens a socket or draws from a global
    generator.*  ``now`` is nanoseconds from any origin and never goes back; two adapters with the same
    ``config``, ``seed`` and calls do the same.

    Commands
        ``attach_host`` joins a host (its rings, in shared memory) and ``detach_host`` frees all that it
        owned. ``set_port_info`` is a subnet manager's.  ``set_data_access(False)`` sets the mode bit that
        stops every copy to and from registered memory, while all else goes on; True clears it.  Everything
        else is asked through the host's command ring and done, and answered there, by ``kick``: behind what
        that host rang before.
    Inputs
        ``kick(now)``: a host wrote commands or rang doorbells; in two steps ``ring`` and ``command``, so that
        what was rung can be sent in between.  ``receive(port_number, arrival, now)``: the
        link of a port has a run of packets; the buffer is the link's again when the call returns.
        ``expire(now)``: time has passed; serves doorbells too, so that a loop that polls need not kick.
    Outputs
        ``transmit(port_number, burst, now)``: fills one burst and returns True, or returns False when nothing
        is to be sent now; call it until then, or give others a turn between.  A burst that was filled counts
        as sent.  Traffic to one of the port's own GIDs (native: LIDs) never appears there: it is received
        within ``transmit``, at most 64 bursts a call.  Completions and events appear in the hosts' rings;
        ``take_notifications()`` gives the hosts that got events or replies since it was last called.
    Deadlines
        ``next_deadline()``: the engine wants ``transmit`` and ``expire`` at that moment or soon after; 0 when
        it has something to send now, ``NEVER`` when it waits for nothing.  It may be early, never late.
    Order
        Any.  After any input, ``transmit`` until False, then ``take_notifications`` and ``next_deadline``.
        One thread at a time.
    What never happens
        No packet, ring entry or command that somebody else wrote raises an exception: a packet is dropped and
        counted by reason, a command is refused with an errno, a queue whose ring is broken fails by itself,
        and a host that breaks its control rings or doorbells gets DEVICE_FATAL and is no longer served.
        Nothing grows without a bound that ``config`` names, and no cost depends on how many queue
        pairs or regions exist.

    ``source_port_for`` and ``overhead_for`` are every port's (see `Port`).  ``notify``, when set, is called,
    without arguments, whenever a host has an event or a reply; it must not call back.

    A queue pair lives on the port that its attribute ``port_num`` names: it sends by that, and packets that
    come in by another one are not for it.  What goes from one port to another one leaves by its link.
    """

    def __init__(self, config: AdapterConfig, seed: int = 0, source_port_for: SourcePortFor | None = None,
                 overhead_for: Callable[[bytes], int] | None = None,
                 notify: Callable[[], object] | None = None, now: int = 0) -> None:
        generator = random.Random(seed)
        super().__init__(RegionTable(TranslationTable(), generator), TransportCounters(),
                         withheld_operations=config.profile.withheld_operations)
        self.config = config
        self.device_attributes = device_attributes(config)
        self.notify = notify
        self.ports = tuple(
            Port(config, overhead_for, number, own, source_port_for)
            for number, own in enumerate(config.ports, 1)
        )
        self.port = self._at = self.ports[0]
        for port in self.ports:
            port.management = management_flows(self, port, seed)
        self.strict_source_port = config.strict_source_port
        self.groups = MulticastGroups(config)
        self.raw_services = RawServices()
        self.xrc_domains = XrcDomains()
        self.resources = ResourceTable(limits_of(config), generator.randrange(0x11, 0xFFFFFF))
        self.timers = Timers(now)
        self.memory_waiters = MemoryWaiters()
        self.keyed = KeyedConnections()
        self._keys = dispatch_keys()
        self.ee_errors = EeErrorCache(config.ee_error_cache)
        self.handles: dict[int, AddressHandle] = {}
        self.hosts: dict[int, Host] = {}
        self._kicked: tuple[Host, ...] = ()
        self.commanded = 0
        self.now = now
        self._next_host = 1
        self._view = PacketView()
        self._link = LinkView()
        self._raw = RawView()
        self._loop = Arrival()

    def port_of(self, number: int) -> Port:
        """The port with this number; OSError EINVAL when there is none."""
        if not 0 < number <= len(self.ports):
            raise OSError(errno.EINVAL, f"there is no port {number}")
        return self.ports[number - 1]

    # commands

    def attach_host(self, side: HostSide) -> int:
        """Join a host by its rings (`hosts.HostSide`); its number.

        OSError when the frames do not hold rings (EINVAL, EFAULT) or too many hosts are attached (ENOMEM).
        """
        if len(self.hosts) >= self.config.max_host:
            raise OSError(errno.ENOMEM, f"an adapter serves {self.config.max_host} hosts at most")
        host = Host(self._next_host, side, self._on_notify, self._observed)
        self.hosts[host.number] = host
        self._kicked = tuple(self.hosts.values())
        self._next_host += 1
        return host.number

    def _on_notify(self) -> None:
        """A host has an event or a reply."""
        if self.notify is not None:
            self.notify()

    def _observed(self, kind: int, element: int) -> None:
        """An asynchronous event was reported to a host."""
        if self.observer is not None:
            observe_event(self.observer, kind, element)

    def detach_host(self, number: int) -> None:
        """A host is gone: free everything that it owned.  KeyError when there is no such host."""
        host = self.hosts[number]
        for resource in self.resources.owned(number):
            release(self, host, resource)
        self.resources.leave(number)
        del self.hosts[number]
        self._kicked = tuple(self.hosts.values())
        settle_data_access(self)

    def set_port_info(self, port_number: int, **values: int) -> None:
        """A subnet manager configures the port: ``lid lmc sm_lid sm_sl subnet_timeout gid_prefix state``,
        those that are given (see ``Port.set_info``).  ValueError, and no change, for what cannot be.
        """
        set_port_info(self, port_number, **values)

    def set_pkeys(self, port_number: int, pkeys: tuple[int, ...]) -> None:
        """A subnet manager writes the port's P_Key table; an entry of 0 is empty.  ValueError likewise."""
        set_pkeys(self, port_number, pkeys)

    def set_link(self, port_number: int, up: bool) -> None:
        """The link of a port has failed, or carries packets again: hosts are told, and armed connections
        leave a port that has (`transport.migration`)."""
        set_link(self, port_number, up)

    def set_data_access(self, allowed: bool) -> None:
        """Let the adapter touch registered memory, or not: then every such access is *held*, and what waits
        for it goes on when it is allowed again.  Commands, queues, completions and events do not mind.

        The engine does one thing at a time: when this returns nothing is being copied.
        """
        self.regions.tpt.stopped = not allowed
        if self.same_host is not None:
            self.same_host.allow(allowed)
        if allowed:
            self.memory_available()

    def memory_available(self) -> None:
        """Memory is there again: let all flows that wait for any try at once."""
        for flow in self.memory_waiters.all():
            flow.resume(self.now)

    # inputs

    def kick(self, now: int) -> bool:
        """Serve the doorbells and command rings of all hosts; whether there was anything."""
        rang: cython.bint = self.ring(now)
        if self.commanded and self.command(now):
            return True
        return rang

    def ring(self, now: int) -> bool:
        """Serve the doorbells of all hosts, whether there were any; ``commanded`` is how many commands hosts
        had written before: those that `command` carries out.
        """
        served: cython.bint = False
        host: Host
        self.now = now
        self.commanded = 0
        for host in self._kicked:
            if not host.failed:
                # counted first: whatever was rung before a command is served before it
                host.due = host.asked.count()
                if host.due > 0:
                    self.commanded += host.due
                # what costs more than a look only where there was neither
                if host.ring(now):
                    served = True
                elif host.due <= 0:
                    host.watch()
            if host.pending_events:
                host.events.flush()
        return served

    def command(self, now: int) -> bool:
        """Carry out and answer the commands that `ring` has found, those that are due; whether there were
        any.
        """
        served: cython.bint = False
        host: Host
        self.now = now
        self.commanded = 0
        for host in self._kicked:  # a command of one may end another
            if host.due > 0 and not host.failed:
                if serve_commands(self, host, now):
                    served = True
                else:
                    host.watch()
            host.due = 0
        return served

    def receive(self, port_number: int, arrival: Arrival, now: int) -> None:
        """Take a run of packets from the link of a port."""
        port: Port = self.ports[port_number - 1]
        counters = port.counters
        offset: cython.uint = 0
        n: cython.uint
        reason: cython.int
        length: cython.uint = arrival.length
        stride: cython.uint = arrival.stride
        native: cython.bint = arrival.framing == _NATIVE
        known: cython.bint = False
        local: cython.bint = True
        self.now = now
        self._at = port
        if length > arrival.capacity:
            length = arrival.capacity
        if stride == 0 or stride > length:
            stride = length
        if not native and not port.native:
            known = port.sources.aim(arrival)
            local = arrival.destination in port.gids
        counters.bursts_received += 1
        while offset < length:
            n = length - offset if length - offset < stride else stride
            if known:
                reason = self._packet(arrival, offset, n, local, now)
            elif native and port.native:
                reason = self._native_packet(arrival, offset, n, now)
            else:
                reason = _SOURCE
            if reason == 0:
                counters.packets_received += 1
                counters.bytes_received += n
            else:
                counters.drop(reason)
                if self.observer is not None:
                    self._dropped(reason, arrival, offset, n)
            offset += n

    def _packet(self, arrival: Arrival, offset: int, n: int, local: bool, now: int) -> int:
        """One RoCE packet: every check that does not need the transport's state, then the transport; 0 or a
        drop reason.

        For whom it is and from where comes first, and takes two look-ups; only what a queue pair here may
        take is worth its ICRC.
        """
        view: PacketView = self._view
        queue_pair: Connection
        number: cython.uint
        o: cython.Py_ssize_t
        reason: cython.int
        if n < _LEAST_BYTES:
            return _TRUNCATED
        if n & 3:
            return _LENGTH
        o = offset + _DEST_QP
        number = arrival.data[o]
        number = number << 16 | arrival.data[o + 1] << 8 | arrival.data[o + 2]
        queue_pair = self._at_port(number)
        if self._keys[arrival.data[offset] >> 5] != _BY_QP and view.decode(arrival.data, offset, n) == 0:
            queue_pair = self._named(view)
        if queue_pair is None:
            if number == _GENERAL_QPN and local:
                return self._manage_roce(arrival, offset, n, now)
            if number != _MULTICAST_QPN or not self.groups.heard(arrival.destination):
                return self._refused(None, arrival, offset, n, local)
        elif (
            not local
            or not receives(queue_pair)
            or not from_peer(queue_pair, arrival, self._link, self._at.number)
        ):
            return self._refused(queue_pair, arrival, offset, n, local)
        reason = self._at.sources.check(
            queue_pair if queue_pair is not None and queue_pair.connected else None,
            arrival.address + offset,
            n,
            now,
        )
        if reason == 0:
            reason = view.decode(arrival.data, offset, n)
        if reason:
            return reason
        if queue_pair is None:
            return self._multicast(arrival, now)
        if queue_pair.service != view.service:
            return _SERVICE
        if not pkeys_match(queue_pair.pkey, view.pkey):
            return _PKEY
        if self.strict_source_port and queue_pair.source_port == 0 and queue_pair.connected:
            return self._begin(queue_pair, arrival, now)
        queue_pair.flow.receive(view, arrival, now)
        return 0

    def _at_port(self, number: int) -> Connection:
        """The queue pair with this number, if it lives on the port whose packets are looked at; else None."""
        queue_pair: QueuePair = self.queue_pairs.get(number)
        if (
            queue_pair is not None
            and queue_pair.flow.port_number != self._at.number
            and not expects(queue_pair, self._at.number)
        ):
            return None
        return queue_pair

    def _named(self, view: PacketView) -> Connection:
        """The queue pair for which a decoded packet is, by the dispatch key of its service; else None."""
        key: cython.int = self._keys[view.service]
        if key == _BY_QP:
            return self._at_port(view.dest_qp)
        return self.keyed.named(view, key, self._at.number)

    def _refused(self, queue_pair: Connection, arrival: Arrival, offset: int, n: int, local: bool) -> int:
        """Why a RoCE packet that nobody here may take is dropped, were it sound: its ICRC is not read."""
        view: PacketView = self._view
        reason: cython.int = view.decode(arrival.data, offset, n)
        if reason:
            return reason
        if view.dest_qp == _MULTICAST_QPN:
            return _UNKNOWN_QP if view.service == _UD else _SERVICE
        if not local:
            return _DESTINATION
        return admitted(queue_pair, arrival, self._view, self._link, self._at.number)

    def _begin(self, queue_pair: Connection, arrival: Arrival, now: int) -> int:
        """A packet for a connection whose peer has not yet shown from which port it sends: 0.  The peer is
        who sends a packet that fits; anybody else would have to know the PSN too."""
        before = queue_pair.heard()
        queue_pair.flow.receive(self._view, arrival, now)
        if queue_pair.heard() != before:
            queue_pair.source_port = arrival.source_port
        return 0

    def _manage_roce(self, arrival: Arrival, offset: int, n: int, now: int) -> int:
        """A RoCE packet for queue pair 1; 0 or a drop reason."""
        reason: cython.int = self._at.sources.check(None, arrival.address + offset, n, now)
        if reason == 0:
            reason = self._view.decode(arrival.data, offset, n)
        return reason if reason else self._manage(arrival, now)

    def _manage(self, arrival: Arrival, now: int) -> int:
        """A sound packet for queue pair 0 or 1 of the port; 0 or a drop reason.  Queue pair 1 takes every
        P_Key of the port's table (C10-123), queue pair 0 has none."""
        view: PacketView = self._view
        flow: Flow = self._at.management[view.dest_qp]
        if flow is None:
            return _UNKNOWN_QP
        if view.service != _UD:
            return _SERVICE
        if view.dest_qp and not any(pkeys_match(pkey, view.pkey) for pkey in self._at.pkeys):
            return _PKEY
        flow.receive(view, arrival, now)
        return 0

    def _native_packet(self, arrival: Arrival, offset: int, n: int, now: int) -> int:
        """One native packet, LRH … VCRC: the same, in the standard's order (IBTA vol. 1, 9.6.1)."""
        link: LinkView = self._link
        reason: cython.int = link.decode(arrival.data, offset, n)
        if reason == 0:
            reason = self._at.admit(link)
        if reason == 0:
            reason = link.check_global(arrival.data)
        if reason == 0:
            reason = self._at.admit_global(link)
        if reason == 0:
            reason = link.check_icrc(arrival.data, arrival.address)
        if reason == 0:
            reason = self._view.decode(arrival.data, link.transport, link.transport_bytes)
        if reason:
            return self._raw_packet(arrival, offset, now) if reason == _RAW else reason
        arrival.source = link.source
        arrival.destination = link.destination
        arrival.grh = link.grh
        arrival.slid = link.slid
        arrival.sl = link.sl
        arrival.path_bits = self._at.path_bits(link.dlid)
        return self._dispatch(arrival, now)

    def _raw_packet(self, arrival: Arrival, offset: int, now: int) -> int:
        """A raw packet (9.8.4), whose LRH and VCRC are sound: to the queue pair of its service; 0 or a drop
        reason."""
        view: RawView = self._raw
        queue_pair: QueuePair
        reason: cython.int = self._at.admit_raw(self._link)
        if reason == 0:
            reason = view.decode(arrival.data, offset, self._link.packet_bytes)
        if reason:
            return reason
        queue_pair = self.raw_services.receiver(view.service)
        if queue_pair is None or queue_pair.flow.port_number != self._at.number:
            return _RAW
        if not receives(queue_pair):
            return _STATE
        arrival.slid = self._link.slid
        arrival.sl = self._link.sl
        arrival.path_bits = self._at.path_bits(self._link.dlid)
        queue_pair.flow.receive_raw(view, arrival, now)
        return 0

    def _dispatch(self, arrival: Arrival, now: int) -> int:
        """A sound native packet of this port: to its queue pairs; 0 or why it is dropped."""
        view: PacketView = self._view
        queue_pair: Connection
        reason: cython.int
        if view.dest_qp == _MULTICAST_QPN:
            return self._multicast(arrival, now)
        if view.dest_qp <= _GENERAL_QPN:
            return self._manage(arrival, now)
        queue_pair = self._named(view)
        reason = admitted(queue_pair, arrival, self._view, self._link, self._at.number)
        if reason == 0:
            queue_pair.flow.receive(view, arrival, now)
        return reason

    def _dropped(self, reason: int, arrival: Arrival, offset: int, n: int) -> None:
        """Tell the observer of a packet dropped here; queue pair and PSN as they stand in it, if they do."""
        packet = bytes(arrival.buffer[offset : offset + n])
        self.observer(PACKET_DROPPED, *addressed(packet, arrival.framing), "", drops.NAMES[reason])

    def _multicast(self, arrival: Arrival, now: int) -> int:
        """Copies of a datagram for the queue pairs of its group, but not for the one that sent it
        (C10-58); 0 when one of them got its copy, or nobody else is in the group.
        """
        view: PacketView = self._view
        queue_pair: QueuePair
        reason: cython.int = _UNKNOWN_QP
        taken: cython.bint = False
        own: cython.bint = arrival.source in self._at.gids
        if view.service != _UD:
            return _SERVICE
        for queue_pair in self.groups.members(arrival.destination):
            if queue_pair.flow.port_number != self._at.number:
                continue
            if own and queue_pair.number == view.source_qp:
                taken = True
                continue
            if not receives(queue_pair):
                reason = _STATE
            elif not pkeys_match(queue_pair.pkey, view.pkey):
                reason = _PKEY
            else:
                self._at.counters.multicast_copies += 1
                queue_pair.flow.receive(view, arrival, now)
                taken = True
        return 0 if taken else reason

    def expire(self, now: int) -> None:
        """Time has passed: call the flows whose deadline has come; serve doorbells and waiting events."""
        flow: Flow
        host: Host
        self.now = now
        if now >= self.timers.next_ns:
            for flow in self.timers.expire(now):
                flow.expire(now)
        if now >= self.memory_waiters.next_ns:
            for flow in self.memory_waiters.due(now):
                flow.resume(now)
        for host in self.hosts.values():
            if not host.failed and not host.doorbells.empty():
                host.ring(now)
            if host.pending_events:
                host.events.flush()

    # outputs

    def transmit(self, port_number: int, burst: Burst, now: int) -> bool:
        """Fill ``burst`` with what the next flow, and those behind it that go the same way, have to send;
        False when nothing is to be sent now."""
        flow: Flow
        packets: cython.int
        port: Port = self.ports[port_number - 1]
        scheduler: Scheduler = port.scheduler
        counters = port.counters
        turns: cython.int = _TURNS
        self.now = now
        while turns > 0:
            turns -= 1
            flow = scheduler.next()
            if flow is None:
                return False
            if flow.closed:
                continue
            if flow.port_number != port.number:
                self.schedule(flow)  # it has moved to another port since
                continue
            burst.reset()
            packets = flow.produce(burst, now)
            if packets <= 0:
                continue
            if flow.has_work():
                scheduler.put(flow)
            if scheduler.length and flow.shares_bursts:
                packets += self._share(scheduler, flow, burst, now)
            scheduler.charge(burst.length)
            if port.state < _ARMED and (flow is not port.management[0] or port.state == _DOWN):
                # a link that is not yet configured carries nothing but its manager's packets (7.2)
                counters.packets_discarded += packets
                continue
            counters.packets_sent += packets
            counters.bytes_sent += burst.length
            counters.bursts_sent += 1
            if port.is_own(burst.route):
                self._loop_back(port, burst, now)
                continue
            if flow.multicasts and self.groups.heard(burst.route.destination):
                self._loop_back(port, burst, now)
            return True
        return False

    def _share(self, scheduler: Scheduler, first: Flow, burst: Burst, now: int) -> int:
        """Let flows that share bursts, whose turn is next and whose route is the burst's, go on with what
        ``first`` has begun; packets written.  Who finds no place in it has its turn with the next burst."""
        flow: Flow
        written: cython.int
        packets: cython.int = 0
        turns: cython.int = _TURNS
        while turns > 0 and not burst.closed and burst.length + burst.stride <= _MOST_BYTES:
            turns -= 1
            flow = scheduler.peek()
            if (flow is None or flow is first or flow.route is not burst.route
                    or not flow.shares_bursts or flow.closed):
                break
            scheduler.next()
            written = flow.produce(burst, now)
            if written > 0:
                packets += written
                if flow.has_work():
                    scheduler.put(flow)
            elif flow.has_work():
                scheduler.back(flow)
                break
        return packets

    def _loop_back(self, port: Port, burst: Burst, now: int) -> None:
        """What is sent to the port itself is received by it, without a link."""
        arrival: Arrival = self._loop
        copy(arrival.address, burst.address, burst.length)
        arrival.length = burst.length
        arrival.stride = burst.stride
        arrival.framing = burst.route.framing
        arrival.source = burst.route.source
        arrival.source_port = burst.route.source_port
        arrival.destination = burst.route.destination
        arrival.traffic_class = burst.route.traffic_class
        port.counters.loopback_packets += burst.packets
        self.receive(port.number, arrival, now)

    def flow_delaying_ack(self) -> Flow:
        """The flow of which ``transmit`` would send nothing but an acknowledgement that may be delayed, so
        that what its host posts next takes it along; None when anything else is to be sent."""
        flow: Flow = None
        port: Port
        for port in self.ports:
            if port.scheduler.length == 0:
                continue
            if flow is not None:
                return None
            flow = port.scheduler.sole()
            if flow is None or not flow.may_delay_ack():
                return None
        return flow

    def take_notifications(self) -> list[int]:
        """Numbers of the hosts with events or replies since the last call."""
        numbers = [number for number, host in self.hosts.items() if host.notified]
        for number in numbers:
            self.hosts[number].notified = False
        return numbers

    def next_deadline(self, port_number: int = 0) -> int:
        """When ``transmit`` of a port, 0: of any, and ``expire`` are due; 0: now, ``NEVER``: never."""
        port: Port
        for port in self.ports:
            if port.scheduler.length and port_number in (0, port.number):
                return 0
        deadline: cython.ulonglong = self.timers.next_deadline()
        return deadline if deadline < self.memory_waiters.next_ns else self.memory_waiters.next_ns

    # what the transport asks

    def schedule(self, flow: Flow) -> None:
        """Give a flow a turn (`Environment.schedule`)."""
        waiting: Flow = flow
        port: Port = self.ports[waiting.port_number - 1]
        port.scheduler.put(waiting)

    def arm(self, flow: Flow, deadline_ns: int) -> None:
        """Call a flow at ``deadline_ns`` or soon after (`Environment.arm`)."""
        self.timers.arm(flow, deadline_ns)

    def wait_for_memory(self, flow: Flow) -> None:
        """Try again when memory may be there (`Environment.wait_for_memory`)."""
        self.memory_waiters.put(flow, self.now)

    def event(self, kind: int, number: int) -> None:
        """Tell the host that owns the element (`Environment.event`)."""
        resource = self.resources.get(Kind.CQ if kind == EVENT_CQ_ERR else Kind.QP, number)
        if resource is not None:
            self.hosts[resource.host].report_event(kind, number)

    def port_usable(self, number: int) -> bool:
        """Whether packets leave by a port (`Environment.port_usable`)."""
        port: Port = self.ports[number - 1]
        return port.state >= _ARMED

    def address_handle(self, number: int) -> AddressHandle:
        """The address handle with this number (`Environment.address_handle`)."""
        return self.handles.get(number)

    def window_for(self, route: Route) -> DestinationWindow:
        """The window towards a route's destination (`Environment.window_for`)."""
        port: Port = self.ports[route.port_number - 1]
        return port.window_for(route.peer)

    # figures

    def port_counters(self, number: int = 1) -> dict[str, int]:
        """All counters of a port, the transport's over all queue pairs of the adapter under ``transport_``…,
        and those that its link wants to be seen."""
        return {**port_figures(self.ports[number - 1], self.counters), **self.ee_errors.figures()}
