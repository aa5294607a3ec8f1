"""How packets of adapters cross a fabric in real time: by the tables of its switches, as a manager has
written them into a `MadPlane`.

A packet goes from the adapter's port, hop by hop, over links that are ACTIVE, by linear tables, on the
virtual lane that each port's SL-to-VL table says, past partition enforcement, to the port of another adapter.
There is no time between two hops, but for what the faults of a link make.  Paths are looked up once and kept
until something changes (`MadPlane.epoch`).

* **Nothing is lost for want of room**: a burst that its destination has no room for stays with its sender's
  port, which sends no more until then (`AdapterPort.is_blocked`): what waits is bounded by one burst a port.
  A destination that has no room for `LIFETIME_NS` is stalled: what comes for it is dropped until it has
  (HOQLife, 18.2.5.4).
* **Management**: datagrams of queue pair 0, and of queue pair 1 those of performance management and subnet
  administration, are the `MadPlane`'s: agents of all nodes, the adapters' own among them, answer there.  All
  others are packets like any other.
* **Multicast** packets follow the switches' multicast tables, a copy for each port; a copy that its
  destination has no room for waits there, or is dropped where too many do.
* **A link's side** (`side`) may have faults, and somebody who captures what is sent there.

Every packet has one fate, which is counted; of multicast packets every copy has.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from softhca.fabric.host_datagrams import as_datagram, as_packet
from softhca.fabric.mad_plane import MOST_HOPS, MULTICAST_FIRST, Datagram, Endpoint, MadPlane
from softhca.fabric.native_bursts import VCRC_BYTES, Unit, pkey_of, set_lane, units
from softhca.fabric.node_state import NO_PORT, NodeState
from softhca.fabric.port_state import ACTIVE, INIT, PortState
from softhca.fabric.topology import End
from softhca.management.constants import FABRIC_CLASSES, LID_PERMISSIVE, SUBNET_QPN
from softhca.wire.capture_file import LINKTYPE_INFINIBAND
from softhca.wire.lrh import LONGEST_HEADERS_BYTES

NEVER_NS = (1 << 64) - 1
LIFETIME_NS = 500_000_000
MOST_HELD = 16_384
"""Packets that the faults of links hold back."""
MOST_BACKLOG = 1024
MOST_PATHS = 65_536
MOST_COPIES = 16_384
"""Links that the copies of one multicast packet cross; tables that lead in a circle would make more."""
DROP_LANE = 15
LANES = {0: 1, 1: 1, 2: 2, 3: 4, 4: 8, 5: 15}
"""By PortInfo's OperationalVLs."""

DELIVERED = "packets_delivered"
FATES = (
    DELIVERED,  # an adapter has got it
    "packets_management",  # it was a datagram of management, whose fate is another one's to count
    "drops_malformed",  # no packet
    "drops_source",  # its source is not its sender's LID
    "drops_link_down",  # its next link is not ACTIVE
    "drops_no_route",  # a switch has no port for its LID, or nobody can have that
    "drops_loop",  # it has gone in a circle
    "drops_wrong_lid",  # it has come to a port that has another LID
    "drops_length",  # it is longer than a link's MTU allows
    "drops_lane",  # its service level has no virtual lane
    "drops_pkey",  # a port lets other partitions pass
    "drops_nobody",  # nobody has the adapter to whose port it has come
    "drops_lifetime",  # its destination is stalled
    "drops_faults",  # a link has lost or damaged it
    "drops_full",  # too many are held back
)


class Copy(Protocol):
    """What of a packet comes out of a faulty link."""

    @property
    def time_ns(self) -> int:
        """When."""

    @property
    def data(self) -> bytes:
        """The packet, perhaps damaged."""


class Faults(Protocol):
    """What one direction of a link does to packets."""

    def send(self, data: bytes, now: int) -> Iterable[Copy]:
        """The copies of a packet that come out."""


class LinkSide:
    """One direction of a link: ``faults`` (None: none) and ``taps``, called with each packet and the time."""

    def __init__(self) -> None:
        self.faults: Faults | None = None
        self.taps: list[Callable[[bytes, int], None]] = []

    @property
    def is_plain(self) -> bool:
        """Whether packets just pass."""
        return self.faults is None and not self.taps


class Hop(NamedTuple):
    """A link on a way, ``sender`` to ``receiver`` at ``node``, on a virtual lane; ``keys`` are those of the
    ports that enforce partitions."""

    sender: PortState
    receiver: PortState
    node: NodeState
    vl: int
    side: LinkSide | None
    keys: tuple[frozenset[int], ...]


class ForwardingPath(NamedTuple):
    """Where packets go: ``fate`` and ``blame`` (the port and the counter) where they do not arrive, else the
    adapter's ``port`` (None: nobody's).  ``is_plain``: nothing befalls them, and their lane is ``vl``."""

    hops: tuple[Hop, ...]
    fate: str = ""
    blame: tuple[PortState, str] | None = None
    port: AdapterPort | None = None
    most_bytes: int = 0
    is_plain: bool = False
    vl: int = 0


class AdapterPort:
    """The port ``end`` with the adapter that has joined there.  ``deliver(data, stride) -> bool`` gives that
    packets; False: it has no room, and `PacketPlane.has_room` says when it has.  ``wake`` is called when
    `is_blocked` is no more.

    ``on_change`` is called when what `info` says has changed.
    """

    def __init__(
        self,
        plane: PacketPlane,
        end: End,
        deliver: Callable[[memoryview | bytes, int], bool],
        wake: Callable[[], None],
        on_change: Callable[[], None],
    ) -> None:
        self.end = end
        self.node = plane.mads.nodes[end.node]
        state = self.node.port(end.port)
        assert state is not None
        self.state: PortState = state
        self.deliver = deliver
        self.wake = wake
        self.on_change = on_change
        self.waiting: tuple[bytearray, int] | None = None
        # single packets, and whether they are counted here: answers of management are not
        self.backlog: deque[tuple[bytes, bool]] = deque()
        self.waiters: deque[AdapterPort] = deque()
        self.full_since_ns = NEVER_NS
        self.stalled = False

    @property
    def is_blocked(self) -> bool:
        """Whether a burst of this port waits for room at its destination: send none before it has gone."""
        return self.waiting is not None

    def facts(self) -> dict[str, int | str]:
        """What an adapter is told when it joins."""
        node, info = self.node.node, self.state.info
        return {
            "kind": "infiniband",
            "node": node.name,
            "node_guid": node.guid,
            "port_guid": node.port_guid(self.end.port),
            "mtu": info.neighbor_mtu,
            "width": info.link_width_active,
            # as ibv_port_attr has it: extended speeds begin at 16, the second ones at 256
            "speed": info.link_speed_ext2_active << 8
            or info.link_speed_ext_active << 4
            or info.link_speed_active,
        }

    def info(self) -> dict[str, int | list[int]]:
        """What a manager has set, as the adapter's port takes it."""
        info = self.state.info
        values: dict[str, int | list[int]] = {
            name: getattr(info, name)
            for name in ("lid", "lmc", "sm_lid", "sm_sl", "subnet_timeout", "gid_prefix")
        }
        values["state"] = info.state if info.lid else min(info.state, INIT)
        values["pkeys"] = self.state.key_list()
        return values


class PacketPlane:
    """The packets of the fabric of ``mads``.  ``counters`` are fates."""

    link_type = LINKTYPE_INFINIBAND

    def __init__(self, mads: MadPlane) -> None:
        self.mads = mads
        self.topology = mads.topology
        self.counters = dict.fromkeys(FATES, 0)
        self.ports: dict[End, AdapterPort] = {}
        self._endpoints: dict[AdapterPort, Endpoint] = {}
        self._sides: dict[End, LinkSide] = {}
        self._paths: dict[tuple[int, int, int, int, int], ForwardingPath] = {}
        self._epoch = -1
        self._held: list[tuple[int, int, bytes, NodeState, int]] = []
        self._sequence = 0
        self._full: dict[AdapterPort, None] = {}

    # adapters

    def join(
        self,
        end: End,
        deliver: Callable[[memoryview | bytes, int], bool],
        wake: Callable[[], None],
        on_change: Callable[[], None],
    ) -> AdapterPort:
        """An adapter joins at a port of a channel adapter.  ValueError: it cannot, or another one has."""
        if end in self.ports:
            raise ValueError(f"{self.mads.topology.end_text(end)} has an adapter already")
        node = self.mads.nodes[end.node]
        if node.is_switch:
            raise ValueError(f"{node.node.name} is a switch")
        endpoint = self.mads.attach(end, lambda datagram: self._answer(port, datagram))
        endpoint.is_adapter = True
        port = AdapterPort(self, end, deliver, wake, on_change)
        port.state.watch = lambda: port.on_change()
        self._endpoints[port] = endpoint
        self.ports[end] = port
        self._paths.clear()
        return port

    def leave(self, port: AdapterPort, now: int) -> None:
        """An adapter goes; what waits for it is dropped."""
        del self.ports[port.end]
        port.state.watch = None
        self.mads.detach(self._endpoints.pop(port), now)
        self._full.pop(port, None)
        port.waiting = None
        self._paths.clear()
        self._drop("drops_nobody", sum(counted for _, counted in port.backlog))
        port.backlog.clear()
        self._resume(port, now)

    # links

    def side(self, end: End) -> LinkSide:
        """The direction of a link that leaves by this end.  Call `changed` after changing it."""
        return self._sides.setdefault(end, LinkSide())

    def changed(self) -> None:
        """A side has got or lost faults or taps."""
        self._paths.clear()
        self._sides = {end: side for end, side in self._sides.items() if not side.is_plain}

    # packets

    def send(self, port: AdapterPort, data: memoryview, stride: int, now: int) -> None:
        """An adapter sends a burst: LRH … VCRC of each packet, ``stride`` bytes apart.  The buffer, which
        must be writable, is its owner's again when this returns."""
        at = 0
        for unit in units(data, stride):
            if unit is None:
                self._drop("drops_malformed")
                at += min(stride or 1, len(data) - at)
                continue
            if not self._sent(port, unit, now):
                port.waiting = bytearray(data[at:]), stride
                return
            at += len(unit.data)

    def _sent(self, port: AdapterPort, unit: Unit, now: int) -> bool:
        """Send a unit on its way; False: it must wait, and the port is among the destination's waiters."""
        if unit.is_management and self._managed(port, unit, now):
            return True
        if not port.state.has_lid(unit.slid) or not unit.slid:
            self._drop("drops_source", unit.total)
            return True
        if MULTICAST_FIRST <= unit.dlid < LID_PERMISSIVE:
            for packet in unit.packets():
                self._spread(port.node, 0, (port.end.port,), bytes(packet), now)
            return True
        way = self._path(port.node, 0, port.end.port, unit.dlid, unit.sl)
        if way.fate or unit.stride > way.most_bytes:
            self._lost(way, unit.total)
            return True
        if not way.is_plain:
            for packet in unit.packets():
                self._follow(way, bytes(packet), now)
            return True
        if way.port is None:
            self._drop("drops_nobody", unit.total)
            return True
        if unit.data[0] >> 4 != way.vl:
            for packet in unit.packets():
                set_lane(packet, way.vl)
        if not self._accepted(way.port, unit.data, unit.stride, unit.total, now):
            way.port.waiters.append(port)
            return False
        words = (len(unit.data) - VCRC_BYTES * unit.total) >> 2
        for hop in way.hops:
            hop.sender.count_sent(unit.total, words, unit.sl)
            hop.receiver.count_received(unit.total, words, unit.sl)
        return True

    def _lost(self, way: ForwardingPath, count: int) -> None:
        self._drop(way.fate or "drops_length", count)
        if way.blame is not None:
            way.blame[0].count(way.blame[1], count)

    def _drop(self, fate: str, count: int = 1) -> None:
        self.counters[fate] += count

    def _accepted(
        self, port: AdapterPort, data: memoryview | bytes, stride: int, count: int, now: int
    ) -> bool:
        """Give an adapter packets; False: it has no room now."""
        if port.stalled:
            self._drop("drops_lifetime", count)
            return True
        if self._given(port, data, stride, now):
            self.counters[DELIVERED] += count
            return True
        return False

    def _given(self, port: AdapterPort, data: memoryview | bytes, stride: int, now: int) -> bool:
        """Give an adapter packets, if nothing waits for it; False: it is full."""
        if port.full_since_ns != NEVER_NS:
            return False
        if port.deliver(data, stride):
            return True
        port.full_since_ns = now
        self._full[port] = None
        return False

    def has_room(self, port: AdapterPort, now: int) -> None:
        """An adapter that had no room has some again."""
        port.full_since_ns = NEVER_NS
        port.stalled = False
        self._full.pop(port, None)
        while port.backlog:
            packet, counted = port.backlog[0]
            if not self._given(port, packet, len(packet), now):
                return
            port.backlog.popleft()
            self.counters[DELIVERED] += counted
        self._resume(port, now)

    def _resume(self, port: AdapterPort, now: int) -> None:
        """Those who wait for a port may send again, in their order, until it is full again."""
        for _ in range(len(port.waiters)):
            sender = port.waiters.popleft()
            waiting, sender.waiting = sender.waiting, None
            if waiting is None:
                continue  # it has left
            self.send(sender, memoryview(waiting[0]), waiting[1], now)
            if not sender.is_blocked:
                sender.wake()

    # paths

    def _path(self, node: NodeState, entered: int, leaving: int, dlid: int, sl: int) -> ForwardingPath:
        """Where packets go that leave a node by a port, having entered by another (0: they are its own)."""
        if self._epoch != self.mads.epoch or len(self._paths) > MOST_PATHS:
            self._epoch = self.mads.epoch
            self._paths.clear()
        key = node.index, entered, leaving, dlid, sl
        way = self._paths.get(key)
        if way is None:
            way = self._paths[key] = self._found(node, entered, leaving, dlid, sl)
        return way

    def _found(self, node: NodeState, entered: int, leaving: int, dlid: int, sl: int) -> ForwardingPath:
        hops: list[Hop] = []
        if not 0 < dlid < MULTICAST_FIRST:
            return ForwardingPath((), "drops_no_route")
        for _ in range(MOST_HOPS):
            hop = self._hop(node, entered, leaving, sl)
            if isinstance(hop, ForwardingPath):
                return hop
            hops.append(hop)
            node, entered = hop.node, hop.receiver.number
            if not node.is_switch:
                if not hop.receiver.has_lid(dlid):
                    return ForwardingPath((), "drops_wrong_lid")
                return self._whole(hops, self.ports.get(End(node.index, entered)))
            leaving = node.forward(dlid)
            if leaving in (NO_PORT, entered):
                return ForwardingPath((), "drops_no_route", (hop.receiver, "rcv_switch_relay_errors"))
        return ForwardingPath((), "drops_loop")

    def _hop(self, node: NodeState, entered: int, leaving: int, sl: int) -> Hop | ForwardingPath:
        """The link at a port; a way that ends where it leads nowhere."""
        port = node.port(leaving)
        if port is None or not leaving:
            return ForwardingPath((), "drops_no_route")
        peer = self.mads.peer(node, leaving)
        if peer is None or not port.up or port.state != ACTIVE:
            return ForwardingPath((), "drops_link_down", (port, "xmit_discards"))
        vl = lane_of(port, entered, sl)
        if vl >= LANES.get(port.info.operational_vls, 1):
            return ForwardingPath((), "drops_lane", (port, "xmit_discards"))
        side = self._sides.get(End(node.index, leaving))
        outbound = _enforced(port, port.info.partition_enforcement_outbound) if node.is_switch else ()
        node, receiver = peer
        inbound = _enforced(receiver, receiver.info.partition_enforcement_inbound)
        return Hop(port, receiver, node, vl, side, outbound + (inbound if node.is_switch else ()))

    @staticmethod
    def _whole(hops: list[Hop], port: AdapterPort | None) -> ForwardingPath:
        first = hops[0].vl
        plain = all(hop.vl == first and not hop.keys for hop in hops)
        plain = plain and all(hop.side is None or hop.side.is_plain for hop in hops)
        most_bytes = min(map(_most_bytes, hops))
        return ForwardingPath(tuple(hops), port=port, most_bytes=most_bytes, is_plain=plain, vl=first)

    # packets to which something may happen on their way

    def _follow(self, way: ForwardingPath, data: bytes, now: int) -> None:
        """Carry one packet along the rest of its way."""
        for hop in way.hops:
            passed = self._crossed(hop, data, now)
            if passed is None:
                return
            data = passed
        self._arrived(way.port, data, now)

    def _crossed(self, hop: Hop, data: bytes, now: int) -> bytes | None:
        """One packet over one link: as it has come out, None: it has not, or not now."""
        packet = bytearray(data)
        transport = 8 + 40 * (packet[1] & 1) if packet[1] & 2 else 0
        if hop.keys and transport:
            key = pkey_of(packet, transport) & 0x7FFF
            if not all(key in keys for keys in hop.keys):
                hop.sender.count("xmit_constraint_errors")
                self._drop("drops_pkey")
                return None
        set_lane(packet, hop.vl)
        hop.sender.count_sent(1, (len(packet) - VCRC_BYTES) >> 2, packet[1] >> 4)
        passed: bytes | None = bytes(packet)
        if hop.side is not None and not hop.side.is_plain:
            passed = self._over(hop, bytes(packet), now)
        if passed is not None:
            hop.receiver.count_received(1, (len(passed) - VCRC_BYTES) >> 2, packet[1] >> 4)
        return passed

    def _spread(
        self, node: NodeState, entered: int, leaving: Iterable[int], data: bytes, now: int
    ) -> None:
        """A multicast packet leaves a node by these ports: to every port of its tree, but for that by which
        it has come, a copy."""
        waiting = deque((node, entered, number, data) for number in leaving)
        mlid, sl = data[2] << 8 | data[3], data[1] >> 4
        if not waiting:
            self._drop("drops_no_route")
        for _ in range(MOST_COPIES):
            if not waiting:
                return
            node, entered, number, data = waiting.popleft()
            hop = self._hop(node, entered, number, sl)
            if isinstance(hop, ForwardingPath):
                self._lost(hop, 1)
            elif len(data) > _most_bytes(hop):
                self._drop("drops_length")
            elif (passed := self._crossed(hop, data, now)) is not None:
                node, entered = hop.node, hop.receiver.number
                if not node.is_switch:
                    self._arrived(self.ports.get(End(node.index, entered)), passed, now)
                    continue
                if not node.multicast_ports(mlid):
                    hop.receiver.count("rcv_switch_relay_errors")
                    self._drop("drops_no_route")
                waiting += [(node, entered, each, passed) for each in _branches(node, mlid, entered)]
        self._drop("drops_loop", len(waiting))

    def _over(self, hop: Hop, packet: bytes, now: int) -> bytes | None:
        """A packet over a side that is not plain: the packet that has come out now, None: none has."""
        side = hop.side
        assert side is not None
        for tap in side.taps:
            tap(packet, now)
        if side.faults is None:
            return packet
        here: bytes | None = None
        lost = True
        for copy in side.faults.send(packet, now):
            if len(copy.data) != len(packet) or (copy.data != packet and hop.node.is_switch):
                hop.receiver.count("rcv_errors")  # no packet any more, or its VCRC is wrong
                continue
            lost = False
            if copy.time_ns <= now and here is None:
                here = copy.data
            else:
                self._hold(copy.time_ns, copy.data, hop)
        if lost:
            self._drop("drops_faults")
        return here

    def _hold(self, time_ns: int, data: bytes, hop: Hop) -> None:
        if len(self._held) >= MOST_HELD:
            self._drop("drops_full")
            return
        self._sequence += 1
        heapq.heappush(self._held, (time_ns, self._sequence, data, hop.node, hop.receiver.number))

    def _arrived(self, port: AdapterPort | None, packet: bytes, now: int) -> bool:
        """A single packet is at its adapter's port; whether that has got it, or will."""
        if port is None:
            self._drop("drops_nobody")
            return False
        if self._accepted(port, packet, len(packet), 1, now):
            return True
        if len(port.backlog) >= MOST_BACKLOG:
            self._drop("drops_full")
            return False
        port.backlog.append((packet, True))
        return True

    # time

    @property
    def next_deadline_ns(self) -> int:
        """When `expire` has something to do."""
        due = self._held[0][0] if self._held else NEVER_NS
        for port in self._full:
            if not port.stalled:
                return min(due, port.full_since_ns + LIFETIME_NS)
        return due

    def expire(self, now: int) -> None:
        """Let packets go on that links have held back, and give those up that have waited too long."""
        while self._held and self._held[0][0] <= now:
            _, _, data, node, entered = heapq.heappop(self._held)
            if not node.is_switch:
                self._arrived(self.ports.get(End(node.index, entered)), data, now)
                continue
            dlid = data[2] << 8 | data[3]
            if dlid >= MULTICAST_FIRST:
                self._spread(node, entered, _branches(node, dlid, entered), data, now)
                continue
            way = self._path(node, entered, node.forward(dlid), dlid, data[1] >> 4)
            if way.fate or len(data) > way.most_bytes:
                self._lost(way, 1)
            else:
                self._follow(way, data, now)
        for port in [each for each in self._full if not each.stalled]:
            if port.full_since_ns + LIFETIME_NS <= now:
                port.stalled = True
                self._drop("drops_lifetime", sum(counted for _, counted in port.backlog))
                port.backlog.clear()
                self._resume(port, now)

    # management

    def _managed(self, port: AdapterPort, unit: Unit, now: int) -> bool:
        """Whether a packet of management is the `MadPlane`'s; it has been given that then."""
        found = as_datagram(bytes(unit.data))
        if found is None:
            return False
        datagram = found
        if datagram.dqpn != SUBNET_QPN and datagram.data[1] not in FABRIC_CLASSES:
            return False
        self._drop("packets_management")
        self.mads.send(self._endpoints[port], datagram, now)
        return True

    def _answer(self, port: AdapterPort, datagram: Datagram) -> bool:
        """A datagram of management comes to an adapter, outside of what is counted here."""
        packet = as_packet(datagram)
        if self._given(port, packet, len(packet), self.mads.now_ns):
            return True
        if len(port.backlog) >= MOST_BACKLOG or port.stalled:
            return False
        port.backlog.append((packet, False))
        return True


def lane_of(port: PortState, entered: int, sl: int) -> int:
    """On which virtual lane packets of a service level leave a port, having entered by another (14.2.5.8)."""
    table = port.sl_to_vl.get(entered)
    if table is None:
        return 0
    return table[sl >> 1] >> (0 if sl & 1 else 4) & 0xF


def _branches(node: NodeState, mlid: int, entered: int) -> list[int]:
    """By which ports a switch sends on what goes to a group, but for that by which it has come; 0 is its own.
    """
    return [port for port in node.multicast_ports(mlid) if port not in (0, entered)]


def _most_bytes(hop: Hop) -> int:
    return (128 << hop.sender.info.neighbor_mtu) + LONGEST_HEADERS_BYTES + VCRC_BYTES


def _enforced(port: PortState, enforces: int) -> tuple[frozenset[int], ...]:
    if not enforces:
        return ()
    return (frozenset(key & 0x7FFF for key in port.key_list() if key & 0x7FFF),)
