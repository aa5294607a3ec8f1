"""How RoCEv2 packets of adapters cross Ethernet switches in real time: an `EthernetNetwork` whose time is the
clock's.

An adapter's run of packets (`frames`) becomes frames of its host, which queue at its port, pass switches as
the network says, and reach the adapter of another host, or do not: every frame has one fate, which is
counted.  What is due within `SLACK_NS` happens at once, so that a packet on an idle Ethernet need not wait
for the clock.

* **A port sends no faster than its link.**  Behind `HOST_QUEUE_BYTES` a host's port is blocked
  (`EthernetPort.is_blocked`) until half of them have gone.
* **An adapter that takes nothing** has `RECEIVE_BYTES` of packets waiting for it; what is more is dropped.
* **Groups.**  What is sent to a multicast group goes to the hosts whose adapters are in it (`set_member`), as
  where switches snoop IGMP and MLD: once over each link that leads to some of them.
* **A link's side** (`side`) may have faults, and somebody who captures what is sent there.  What a link has
  damaged is dropped behind it, for its FCS is wrong.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from softhca.fabric.ethernet.frames import (
    ETHERNET_BYTES,
    PRIORITY_SHIFT,
    read_run,
    traffic_class_of,
    with_facts,
)
from softhca.fabric.ethernet.layout import EthernetTopology
from softhca.fabric.ethernet.network import FULL_HOST, EthernetNetwork
from softhca.fabric.ethernet.port import LINK_DOWN, Frame, Port
from softhca.fabric.ethernet.switch import FULL_BUFFER, FULL_QUEUE, LOOP, NO_WAY
from softhca.fabric.packet_plane import LinkSide
from softhca.fabric.port_state import ACTIVE, DOWN
from softhca.fabric.switching.events import PS_PER_NS
from softhca.fabric.topology import End
from softhca.wire.burst import CAPACITY
from softhca.wire.capture_file import LINKTYPE_RAW
from softhca.wire.ip import ECN_MASK

NEVER_NS = (1 << 64) - 1
SLACK_NS = 50_000
HOST_QUEUE_BYTES = 256 << 10
RECEIVE_BYTES = 4 << 20
MTU_4096 = 5

DELIVERED = "packets_delivered"
_FATES = {
    FULL_QUEUE: "drops_queue",  # the queue of a switch's port is full
    FULL_BUFFER: "drops_buffer",  # a switch's buffer is
    NO_WAY: "drops_no_route",  # no link that is up leads to its host
    LOOP: "drops_loop",  # it has gone in a circle
    FULL_HOST: "drops_full",  # its own host has too much to send
    LINK_DOWN: "drops_link_down",  # it was on a link that has failed
}
FATES = (
    DELIVERED,  # an adapter has got it
    *_FATES.values(),
    "drops_malformed",  # no RoCEv2 packet
    "drops_source",  # its source is not its sender's address
    "drops_unknown",  # no host has its destination's address, or is in the group
    "drops_nobody",  # nobody has the adapter of its host
    "drops_receiver",  # the adapter has taken nothing for too long
    "drops_faults",  # a link has lost or damaged it
)
_RATES = (  # megabits a second, and ibv_port_attr's width and speed
    (400_000, 2, 128), (200_000, 2, 64), (100_000, 2, 32), (50_000, 1, 64), (40_000, 2, 4), (25_000, 1, 32),
    (10_000, 1, 4), (0, 1, 1),
)  # fmt: skip


class EthernetSide(LinkSide):
    """One direction of a link, and what befalls frames there.  A `Carrier`."""

    def __init__(self, lost: Callable[[], None]) -> None:
        super().__init__()
        self._lost = lost

    def carry(self, frame: Frame, now_ps: int) -> Sequence[int]:
        """`Carrier.carry`."""
        headers, payload = frame.content
        data = with_facts(headers, len(payload), frame.marked) + payload
        now = now_ps // PS_PER_NS
        for tap in self.taps:
            tap(data, now)
        if self.faults is None:
            return (now_ps,)
        whole = [
            max(copy.time_ns * PS_PER_NS, now_ps)
            for copy in self.faults.send(data, now)
            if copy.data == data
        ]
        if not whole:
            self._lost()
        return whole


class EthernetPort:
    """The port of host ``number``, whose adapter has joined.  As `packet_plane.AdapterPort`."""

    def __init__(
        self,
        plane: EthernetPlane,
        number: int,
        deliver: Callable[[bytes, int], bool],
        wake: Callable[[], None],
        on_change: Callable[[], None],
    ) -> None:
        self.end = plane.ethernet.hosts[number - 1]
        self.number = number
        self.deliver = deliver
        self.wake = wake
        self.on_change = on_change
        self.is_blocked = False
        self.is_full = False
        # runs that wait: headers, payloads, their bytes
        self.arrived: deque[tuple[bytes, list[bytes], int]] = deque()
        self.arrived_bytes = 0
        self.groups: dict[bytes, None] = {}
        self._plane = plane

    def info(self) -> dict[str, int | list[int]]:
        """What an adapter is told whenever it changes, in the form of `fabric_messages`: an Ethernet has a
        state and nothing else."""
        up = self._plane.network.hosts[self.number].port.up
        fixed = dict.fromkeys(("lid", "lmc", "sm_lid", "sm_sl", "subnet_timeout", "gid_prefix"), 0)
        return {**fixed, "state": ACTIVE if up else DOWN, "pkeys": [0xFFFF]}

    def facts(self) -> dict[str, Any]:
        """What an adapter is told when it joins."""
        node = self._plane.topology.nodes[self.end.node]
        mbps = self._plane.network.hosts[self.number].port.mbps
        width, speed = next(rate[1:] for rate in _RATES if mbps >= rate[0])
        return {
            "kind": "ethernet",
            "address": self._plane.addresses[self.number - 1].hex(),
            "mbps": mbps,
            "node": node.name,
            "node_guid": node.guid,
            "port_guid": node.port_guid(self.end.port),
            "mtu": MTU_4096,
            "width": width,
            "speed": speed,
        }


class EthernetPlane:
    """The hosts and switches of an Ethernet; ``given`` are the GIDs of the first hosts.  ``counters`` are
    fates.  TopologyError: addresses that cannot be."""

    link_type = LINKTYPE_RAW

    def __init__(self, ethernet: EthernetTopology, given: Sequence[bytes] = (), seed: int = 0) -> None:
        self.ethernet = ethernet
        self.topology = ethernet.topology
        self.addresses = ethernet.addresses(given)
        self.counters = dict.fromkeys(FATES, 0)
        self.ports: dict[End, EthernetPort] = {}
        self.network = EthernetNetwork(
            ethernet, self._arrived, settings=ethernet.settings, lost=self._lose, seed=seed
        )
        self.network.left = self._left
        self._hosts = {gid: number for number, gid in enumerate(self.addresses, 1)}
        self._numbers = {end: number for number, end in enumerate(ethernet.hosts, 1)}
        self._members: dict[int, EthernetPort] = {}
        self._groups: dict[bytes, frozenset[int]] = {}
        self._touched: dict[EthernetPort, None] = {}
        self._sides: dict[End, EthernetSide] = {}

    # adapters

    def join(
        self,
        end: End,
        deliver: Callable[[bytes, int], bool],
        wake: Callable[[], None],
        on_change: Callable[[], None],
    ) -> EthernetPort:
        """An adapter joins at a host's port.  ValueError: it cannot, or another one has."""
        number = self._numbers.get(end)
        if number is None:
            raise ValueError(f"{self.topology.end_text(end)} is no port of a host with a link")
        if number in self._members:
            raise ValueError(f"{self.topology.end_text(end)} has an adapter already")
        port = EthernetPort(self, number, deliver, wake, on_change)
        self.ports[end] = self._members[number] = port
        return port

    def set_member(self, port: EthernetPort, group: bytes, member: bool) -> None:
        """An adapter is in a group from now on, or no more."""
        others = self._groups.get(group, frozenset()) - {port.number}
        if member:
            port.groups[group] = None
            self._groups[group] = others | {port.number}
            return
        port.groups.pop(group, None)
        if others:
            self._groups[group] = others
        else:
            self._groups.pop(group, None)

    def leave(self, port: EthernetPort, now: int) -> None:
        """An adapter goes; what waits for it is dropped."""
        for group in list(port.groups):
            self.set_member(port, group, False)
        del self.ports[port.end]
        del self._members[port.number]
        self._touched.pop(port, None)
        self._drop("drops_nobody", sum(len(payloads) for _, payloads, _ in port.arrived))
        port.arrived.clear()

    # packets

    def send(self, port: EthernetPort, data: memoryview, stride: int, now: int) -> None:
        """An adapter sends a run."""
        self._keep_up(now)
        run = read_run(data, stride) if stride else None
        if run is None:
            self._drop("drops_malformed")
            return
        count = len(run.payloads)
        if run.source != self.addresses[port.number - 1]:
            self._drop("drops_source", count)
            return
        target, group = self._hosts.get(run.destination), None
        if target is None and run.destination in self._groups:
            group = self._groups[run.destination] - {port.number}
        if target is None and not group:
            self._drop("drops_unknown", count)
            return
        traffic_class = traffic_class_of(run.headers)
        overhead = len(run.headers) + ETHERNET_BYTES
        for payload in run.payloads:
            self.network.send(Frame(
                port.number, target or 0, len(payload) + overhead, traffic_class >> PRIORITY_SHIFT,
                traffic_class & ECN_MASK, run.source_port, (run.headers, payload), group,
            ))  # fmt: skip
        port.is_blocked = self._waiting(port) > HOST_QUEUE_BYTES
        self.expire(now)

    def _waiting(self, port: EthernetPort) -> int:
        return sum(self.network.hosts[port.number].port.queued)

    def _left(self, number: int) -> None:
        """A frame has gone out at a host."""
        port = self._members.get(number)
        if port is not None and port.is_blocked and self._waiting(port) <= HOST_QUEUE_BYTES // 2:
            self._touched[port] = None

    def _lose(self, frame: Frame, why: str) -> None:
        self._drop(_FATES[why])

    def _drop(self, fate: str, count: int = 1) -> None:
        self.counters[fate] += count

    def _arrived(self, number: int, frame: Frame, now_ps: int) -> None:
        """A frame is at its host: it is given to the adapter with others of its run."""
        port = self._members.get(number)
        if port is None:
            self._drop("drops_nobody")
            return
        headers, payload = frame.content
        if port.arrived_bytes + len(payload) > RECEIVE_BYTES:
            self._drop("drops_receiver")
            return
        headers = with_facts(headers, len(payload), frame.marked)
        port.arrived_bytes += len(payload)
        last = port.arrived[-1] if port.arrived else None
        if last is not None and _follows(last, headers, payload):
            last[1].append(payload)
            port.arrived[-1] = last[0], last[1], last[2] + len(payload)
        else:
            port.arrived.append((headers, [payload], len(payload)))
        self._touched[port] = None

    def _serve(self) -> None:
        """Give adapters what has come for them, and let those send on whose queues have room."""
        while self._touched:
            port, _ = self._touched.popitem()
            if port.is_blocked and self._waiting(port) <= HOST_QUEUE_BYTES // 2:
                port.is_blocked = False
                port.wake()
            while port.arrived and not port.is_full:
                headers, payloads, total = port.arrived[0]
                if not port.deliver(headers + b"".join(payloads), len(payloads[0])):
                    port.is_full = True
                    break
                port.arrived.popleft()
                port.arrived_bytes -= total
                self.counters[DELIVERED] += len(payloads)

    def has_room(self, port: EthernetPort, now: int) -> None:
        """An adapter that had no room has some again."""
        port.is_full = False
        self._touched[port] = None
        self._serve()

    # links

    def fail(self, link: int, now: int) -> bool:
        """A cable is taken out; False: it was out already."""
        return self._set_link(link, False, now)

    def restore(self, link: int, now: int) -> bool:
        """A cable is put in again; False: it was in already."""
        return self._set_link(link, True, now)

    def _set_link(self, link: int, up: bool, now: int) -> bool:
        self._keep_up(now)
        changed = self.network.set_link(link, up)
        if changed:
            for end in (self.topology.links[link].end_a, self.topology.links[link].end_b):
                port = self.ports.get(end)
                if port is not None:
                    port.on_change()
        self._serve()
        return changed

    def side(self, end: End) -> LinkSide:
        """The direction of a link that leaves by this end.  Call `changed` after changing it."""
        if end not in self._sides:
            self._sides[end] = EthernetSide(lambda: self._drop("drops_faults"))
        return self._sides[end]

    def changed(self) -> None:
        """A side has got or lost faults or taps."""
        for end, side in self._sides.items():
            self._port_at(end).carrier = None if side.is_plain else side
        self._sides = {end: side for end, side in self._sides.items() if not side.is_plain}

    def _port_at(self, end: End) -> Port:
        link = self.topology.link_at(*end)
        assert link is not None
        near, far = self.network.links[link]
        return near if self.ethernet.near_end(link) == end else far

    def traffic(self, end: End) -> dict[str, int]:
        """What has passed a port, in packets and in bytes of frames."""
        counters = self._port_at(end).counters
        return {
            "xmit_pkts": counters.frames_sent, "xmit_data": counters.bytes_sent,
            "rcv_pkts": counters.frames_received, "rcv_data": counters.bytes_received,
            "marked_pkts": counters.frames_marked, "discarded_pkts": counters.drops,
            "xmit_pauses": counters.pauses_sent, "rcv_pauses": counters.pauses_received,
        }  # fmt: skip

    # time

    @property
    def next_deadline_ns(self) -> int:
        """When `expire` has something to do."""
        next_ps = self.network.events.next_ps()
        return NEVER_NS if next_ps is None else max(-(-next_ps // PS_PER_NS) - SLACK_NS, 0)

    def _keep_up(self, now: int) -> None:
        """Let everything happen that is due, and what is due soon; the network's time goes no farther than
        that."""
        events = self.network.events
        events.run(now * PS_PER_NS)
        soon_ps = (now + SLACK_NS) * PS_PER_NS
        while (next_ps := events.next_ps()) is not None and next_ps <= soon_ps:
            events.run(next_ps)

    def expire(self, now: int) -> None:
        """Let everything happen that is due."""
        self._keep_up(now)
        self._serve()


def _follows(run: tuple[bytes, list[bytes], int], headers: bytes, payload: bytes) -> bool:
    """Whether a packet goes on a run: of the same headers and length, and there is room."""
    first, payloads, total = run
    return (
        len(payload) == len(payloads[0]) and headers == first and total + len(payload) <= CAPACITY - 64
    )
