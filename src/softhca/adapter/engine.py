"""The adapter: a sans-IO engine that turns commands, doorbells, packets and time into packets and events."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterable

import cython

from softhca.adapter.attributes import device_attributes
from softhca.adapter.commands import release, serve_commands
from softhca.adapter.config import AdapterConfig
from softhca.adapter.counters import port_figures
from softhca.adapter.frame_path import FramePath
from softhca.adapter.gid_table import GidChanges
from softhca.adapter.hosts import Host, HostSide
from softhca.adapter.keyed import KeyedConnections
from softhca.adapter.management_flow import management_flows
from softhca.adapter.memory_waiters import MemoryWaiters
from softhca.adapter.multicast import MulticastGroups
from softhca.adapter.paged_commands import settle_data_access
from softhca.adapter.path_migration import path_taken, set_link
from softhca.adapter.paths import SourcePortFor
from softhca.adapter.port import PORT_ARMED, PORT_DOWN, Port
from softhca.adapter.port_info import set_gids, set_pkeys, set_port_info
from softhca.adapter.raw_services import RawServices
from softhca.adapter.receive_path import ReceivePath
from softhca.adapter.resources import Kind, ResourceTable, limits_of
from softhca.adapter.scheduler import Scheduler
from softhca.adapter.segment import Segment
from softhca.adapter.timers import NEVER, Timers
from softhca.adapter.xrc_domains import XrcDomains
from softhca.machine.primitives import copy
from softhca.memory.regions import RegionTable
from softhca.memory.tpt import TranslationTable
from softhca.queues.control_fields import EVENT_CQ_ERR, EVENT_PATH_MIG, EVENT_QP_FATAL, EVENT_WQ_FATAL
from softhca.transport.congestion import CongestionControl, Dcqcn
from softhca.transport.connection import Connection
from softhca.transport.counters import TransportCounters
from softhca.transport.ee_error_cache import EeErrorCache
from softhca.transport.environment import AddressHandle, Environment
from softhca.transport.flow import Flow
from softhca.transport.observation import observe_event
from softhca.transport.segmentation import MAX_BURST_BYTES
from softhca.transport.services import BY_QP
from softhca.transport.window import DestinationWindow
from softhca.wire.burst import Arrival, Burst
from softhca.wire.framing import NATIVE
from softhca.wire.route import Route
from softhca.wire.vxlan import VXLAN_PORT

__all__ = ["NEVER", "Adapter"]

_ARMED = cython.declare(cython.int, PORT_ARMED)
_DOWN = cython.declare(cython.int, PORT_DOWN)
_TURNS = cython.declare(cython.int, 64)
_VXLAN_PORT = cython.declare(cython.uint, VXLAN_PORT)
_MOST_BYTES = cython.declare(cython.uint, MAX_BURST_BYTES)


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
                         withheld_operations=config.profile.withheld_operations,
                         uniform_bursts=config.uniform_bursts)
        self.config = config
        self.device_attributes = device_attributes(config)
        self.notify = notify
        self.ports = tuple([
            Port(config, overhead_for, number, own, source_port_for)
            for number, own in enumerate(config.ports, 1)
        ])
        self.port = self.ports[0]
        for port in self.ports:
            port.management = management_flows(self, port, seed)
            if not port.native:
                port.segment = Segment(port, config.vni, config.vteps)
        self.groups = MulticastGroups(config)
        self.raw_services = RawServices()
        self.xrc_domains = XrcDomains()
        self.resources = ResourceTable(limits_of(config), generator.randrange(0x11, 0xFFFFFF))
        self.timers = Timers(now)
        self.memory_waiters = MemoryWaiters()
        self.keyed = KeyedConnections()
        self.ee_errors = EeErrorCache(config.ee_error_cache)
        self.handles: dict[int, AddressHandle] = {}
        self.hosts: dict[int, Host] = {}
        self._kicked: tuple[Host, ...] = ()
        self.commanded = 0
        self.now = now
        self._next_host = 1
        self._receive_path = ReceivePath(
            self, self.keyed, self.groups, self.raw_services, config.strict_source_port
        )
        self._frame_path = FramePath()
        self._loop = Arrival()

    def port_of(self, number: int, name: str = "port_num") -> Port:
        """The port with this number, of the attribute ``name``; OSError EINVAL when there is none."""
        if not 0 < number <= len(self.ports):
            raise OSError(errno.EINVAL, f"{name} = {number}: the adapter has ports 1…{len(self.ports)}")
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

    def set_gids(self, port_number: int, gids: Iterable[bytes]) -> GidChanges:
        """The addresses of a RoCE port are these from now on: others leave its GID table,
        new ones take empty places, and hosts are told (`port_info.set_gids`).  ValueError likewise."""
        return set_gids(self, port_number, gids)

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
        self.now = now
        if arrival.frames:
            self._frame_path.receive(self.ports[port_number - 1], arrival, now)
            return
        self._receive_path.receive(self.ports[port_number - 1], arrival, now)

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
        for host in self._kicked:
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
            if port.is_own(burst.route) and not (flow in port.management and flow.leaves):
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
        arrival.has_icrc = burst.has_icrc
        arrival.frames = burst.route.destination_port == _VXLAN_PORT
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
        if resource is None and kind == EVENT_QP_FATAL:
            kind, resource = EVENT_WQ_FATAL, self.resources.get(Kind.WQ, number)
        if resource is not None:
            if kind == EVENT_PATH_MIG:
                path_taken(self, resource.element)
            self.hosts[resource.host].report_event(kind, number)

    def wake_threads(self) -> None:
        """Wake the threads that sleep (`Environment.wake_threads`), as an event would."""
        self._on_notify()

    def port_usable(self, number: int) -> bool:
        """Whether packets leave by a port (`Environment.port_usable`)."""
        port: Port = self.ports[number - 1]
        return port.state >= _ARMED

    def address_handle(self, number: int) -> AddressHandle:
        """The address handle with this number (`Environment.address_handle`)."""
        return self.handles.get(number)

    def frame_destinations(
        self, port_number: int, destination: bytes, source: bytes
    ) -> tuple[int, tuple[tuple[Route, DestinationWindow], ...]]:
        """Where a frame goes (`Environment.frame_destinations`); the source is a station of the port."""
        port: Port = self.ports[port_number - 1]
        segment = port.segment
        if segment is None:
            return 0, ()
        segment.learn(source, port.own.gids[0], self.now)
        return segment.vni, segment.destinations(destination, self.now)

    def window_for(self, route: Route) -> DestinationWindow:
        """The window towards a route's destination (`Environment.window_for`)."""
        port: Port = self.ports[route.port_number - 1]
        return port.window_for(route.peer)

    def control_for(self, connection: Connection, route: Route) -> CongestionControl | None:
        """Congestion control of a connection (`Environment.control_for`): of RoCE, and of services whose
        packets name the queue pair."""
        settings = self.config.congestion
        row = connection.row
        if settings is None or route.framing == NATIVE or not row.connected or row.key != BY_QP:
            return None
        return Dcqcn(settings)

    # figures

    def port_counters(self, number: int = 1) -> dict[str, int]:
        """All counters of a port, the transport's over all queue pairs of the adapter under ``transport_``…,
        and those that its link wants to be seen."""
        return {**port_figures(self.ports[number - 1], self.counters), **self.ee_errors.figures()}
