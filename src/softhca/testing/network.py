"""Adapters, the links between them, and virtual time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

from softhca.links.decisions import Script, parse_decisions
from softhca.links.faults import Faults
from softhca.links.faulty import SIMULATED_ONLY
from softhca.links.impairment import PASSED, Impairment
from softhca.testing.addressing import MAX_NUMBER, addressing_of
from softhca.testing.datagram import (
    INJECTED,
    LOST,
    NO_RECEIVER,
    NO_ROOM,
    RECEIVED,
    SENT,
    TAMPERED,
    Datagram,
)
from softhca.testing.node import Node
from softhca.testing.timeline import NEVER, Timeline
from softhca.wire.burst import Arrival, Burst
from softhca.wire.vxlan import VXLAN_PORT

START_NS = 1_000_000
MINUTE_NS = 60_000_000_000
BURSTS_A_TURN = 64
MAX_ROUNDS = 200_000
MAX_IDLE_POLLS = 1_000_000
MAX_PACKETS_UNDER_WAY = 65_536

_serials = itertools.count(1)


Carrier = Callable[[Datagram, Node, int, bytes], object]


class NotAtRest(AssertionError):
    """A network that should have come to rest, or a program that should have stopped asking, goes on."""


class _Flight(NamedTuple):
    """Packets that reach ``target`` together: all as long as the first, the last one maybe shorter.
    ``sent`` is the first of them as it was sent.
    """

    sent: Datagram
    target: Node
    port_number: int
    packets: list[bytes]
    what: str


class Network(Timeline):
    """Adapters that nothing but this object connects, drives and gives the time.

    ``faults`` are what links do to packets, as text (``"loss=10%,reorder=5%"``) or `Faults`; every direction
    between two adapters has dice of its own, and ``seed`` and the faults' own seed decide all of them.
    ``decisions`` (``"1>2#3:lost"``, the third packet from adapter 1 to 2) are done instead of throwing dice.
    ``link`` is ``ipv4``, ``ipv6`` or ``native``.  ValueError for what cannot be.

    ``now`` is the time in nanoseconds.  It stands still unless `run`, `elapse` or a blocking call of a
    program lets it go on; with ``polls_pass_time`` also a poll does that finds nothing, for programs that
    poll in a loop.  ``tasks`` are programs that serve by themselves, as a thread of theirs would: each is
    called at every turn, does what it finds to do without waiting, and says whether there was anything.
    ``join_bursts``: packets of a burst that arrive at the same moment, untouched, reach the
    adapter as one, as a socket with GRO has them; otherwise each comes by itself.

    ``tamper`` may replace a packet's bytes, or swallow it (None); it sees all that was sent, before the
    faults.  ``observers`` are called with every `Datagram`.  Same seed and same calls: the same packets.

    ``carrier``: None, or who carries packets instead of the links (`testing.ethernet`): it is called with
    what was sent, the node and port number it is for, and its bytes, and calls `deliver` if it arrives.

    One thread uses it.  Nothing here sleeps or looks at a clock; what is under way is bounded.
    """

    def __init__(
        self,
        faults: Faults | str = "",
        seed: int = 0,
        link: str = "ipv4",
        *,
        decisions: str | None = None,
        polls_pass_time: bool = False,
        join_bursts: bool = False,
    ) -> None:
        super().__init__(START_NS)
        self.seed = seed
        self.addressing = addressing_of(link)
        self.nodes: dict[int, Node] = {}
        self.tamper: Callable[[Datagram], bytes | None] = lambda sent: sent.data
        self.observers: list[Callable[[Datagram], object]] = []
        self.carrier: Carrier | None = None
        self.tasks: list[Callable[[], bool]] = []
        self._polls_pass_time = polls_pass_time
        self._join_bursts = join_bursts
        self._script = None if decisions is None else Script(parse_decisions(decisions))
        self._directions: dict[tuple[int, int], Impairment] = {}
        self._faults = _of_links(faults)
        self._bursts = 0
        self._under_way = 0
        self._idle_polls = 0
        self._is_stepping = False
        self._serial = next(_serials)
        self._burst = Burst()
        self._arrival = Arrival()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every device; may be called again."""
        for node in self.nodes.values():
            node.close()

    def add(
        self, number: int = 0, *, name: str = "", seed: int | None = None, ports: int = 1, **config: Any
    ) -> Node:
        """One more adapter: ``number``, by default the next one, decides its addresses (192.0.2.N,
        2001:db8::N, LID 16 + N), and its ``seed`` unless one is given.  Of several ``ports``, port P > 1 is
        at 192.0.(P + 1).N, 2001:db8::P:N, LID 256 (P − 1) + 16 + N.

        ``config`` are fields of `AdapterConfig`, and ``overhead_for`` (see `Adapter`).
        """
        number = number or max(self.nodes, default=0) + 1
        if number in self.nodes or not 1 <= number <= MAX_NUMBER:
            raise ValueError(f"adapter {number}: expected another number of 1…{MAX_NUMBER}")
        name = name or f"testing{self._serial}-{number}"
        node = Node(self, number, name, number if seed is None else seed, ports, **config)
        self.nodes[number] = node
        return node

    # faults and observation

    def impair(self, faults: Faults | str, source: Node | None = None, target: Node | None = None) -> None:
        """Other faults from now on: on the way from ``source`` to ``target``, or everywhere."""
        links = _of_links(faults)
        if source is not None and target is not None:
            key = source.number, target.number
            self._directions[key] = Impairment(links, str(self.seed), *key, self._script)
        elif source is None and target is None:
            self._faults = links
            self._directions.clear()
        else:
            raise ValueError("a direction has a source and a target")

    def record(self, *events: str) -> list[Datagram]:
        """A list to which every datagram is added from now on, or those of these events (`SENT`, `LOST`,
        `RECEIVED`)."""
        found: list[Datagram] = []

        def take(datagram: Datagram) -> None:
            if not events or datagram.event in events:
                found.append(datagram)

        self.observers.append(take)
        return found

    def _show(self, datagram: Datagram) -> None:
        for observer in self.observers:
            observer(datagram)

    # time

    def step(self) -> bool:
        """Do what is due at this moment, once; whether there was anything."""
        if self._is_stepping:  # what is called from in here polls: nothing more can happen meanwhile
            return False
        self._is_stepping = True
        try:
            return self._step()
        finally:
            self._is_stepping = False

    def _step(self) -> bool:
        worked, now = False, self.now
        for node in tuple(self.nodes.values()):
            node.adapter.expire(now)
            for port in node.adapter.ports:
                for _ in range(BURSTS_A_TURN):
                    if not node.adapter.transmit(port.number, self._burst, now):
                        break
                    self._carry(node)
                    worked = True
        worked |= self.do_due()
        for task in tuple(self.tasks):
            worked |= task()
        return worked

    def advance(self, limit_ns: int = NEVER) -> bool:
        """Go to the next moment at which something is due; False when nothing is within ``limit_ns``."""
        moments = [node.adapter.next_deadline() for node in self.nodes.values()]
        moments.append(self.planned_ns())
        moment = max(min(moments), self.now)
        if moment >= NEVER or moment - self.now > limit_ns:
            return False
        self.now = moment
        return True

    def run(self, until: Callable[[], object] = lambda: False, limit_ns: int = MINUTE_NS) -> bool:
        """Let time go on until ``until()`` is true, or nothing more is due within ``limit_ns`` from now; what
        ``until`` says then.  `NotAtRest` after too many rounds.
        """
        end = self.now + limit_ns
        for _ in range(MAX_ROUNDS):
            if until():
                return True
            if not self.step() and not self.advance(end - self.now):
                return bool(until())
        raise NotAtRest(f"after {MAX_ROUNDS} rounds something is still due, at {self.now} ns")

    def elapse(self, time_ns: int) -> None:
        """Let exactly ``time_ns`` pass, with all that is due in it."""
        end = self.now + time_ns
        self.run(limit_ns=time_ns)
        self.now = end
        self.run(limit_ns=0)

    def poll(self) -> bool:
        """What a program's poll drives; whether anything happened."""
        if self._is_stepping:
            return False
        worked = self.step() or (self._polls_pass_time and self.advance())
        self._idle_polls = 0 if worked else self._idle_polls + 1
        if self._idle_polls > MAX_IDLE_POLLS:
            raise NotAtRest(f"{MAX_IDLE_POLLS} polls in a row, and nothing happened")
        return worked

    def wait(self, ready: Callable[[], bool], timeout_s: float | None) -> bool:
        """What a program waits in, in virtual time; a minute of it where there is no limit."""
        return self.run(ready, MINUTE_NS if timeout_s is None else int(timeout_s * 1e9))

    # packets

    def _carry(self, source: Node) -> None:
        """Send what an adapter has put into the burst on its way, packet by packet."""
        burst = self._burst
        joined: dict[tuple[int, int], tuple[int, _Flight]] = {}
        self._bursts += 1
        route, stride, length = burst.route, burst.stride, burst.length
        for offset in range(0, length, stride):
            data = bytes(burst.buffer[offset : min(offset + stride, length)])
            sent = Datagram(SENT, self.now, source, None, route, data, burst=self._bursts)
            self._show(sent)
            changed = self.tamper(sent)
            if changed is None:
                self._lose(sent, None, data, TAMPERED)
                continue
            targets = [
                (node, port.number)
                for node in self.nodes.values()
                for port in node.adapter.ports
                if self.addressing.reaches(node, port, source, route, changed)
            ]
            if not targets:
                self._lose(sent, None, changed, NO_RECEIVER)
            for target, port_number in targets:
                self._send(sent, target, port_number, changed, joined)

    def _send(
        self,
        sent: Datagram,
        target: Node,
        port_number: int,
        data: bytes,
        joined: dict[tuple[int, int], tuple[int, _Flight]],
    ) -> None:
        """One packet towards one port; ``joined`` is, by port, the flight that others may join."""
        place = target.number, port_number
        assert sent.source is not None
        if self.carrier is not None:
            self.carrier(sent, target, port_number, data)
            return
        link = self._direction(sent.source.number, target.number)
        copies = link.send(data, self.now)
        if not copies:
            self._lose(sent, target, data, link.lost_because)
        for copy in copies:
            if self._under_way >= MAX_PACKETS_UNDER_WAY:
                self._lose(sent, target, data, NO_ROOM)
                continue
            self._under_way += 1
            moment, flight = joined.get(place, (-1, None))
            if (
                flight is not None and copy.what == PASSED and moment == copy.time_ns
                and len(copy.data) <= len(flight.packets[0]) == len(flight.packets[-1])
            ):  # fmt: skip
                flight.packets.append(copy.data)
                continue
            flight = _Flight(sent, target, port_number, [copy.data], copy.what)
            if self._join_bursts and copy.what == PASSED:
                joined[place] = copy.time_ns, flight
            self.at(copy.time_ns, self._arrive, flight)

    def _direction(self, source: int, target: int) -> Impairment:
        found = self._directions.get((source, target))
        if found is None:
            found = Impairment(self._faults, str(self.seed), source, target, self._script)
            self._directions[source, target] = found
        return found

    def deliver(
        self, sent: Datagram, target: Node, port_number: int, data: bytes, traffic_class: int = 0
    ) -> None:
        """A packet arrives that a carrier was given; marks for congestion are in its ``traffic_class``."""
        route = sent.route
        self._show(Datagram(RECEIVED, self.now, sent.source, target, route, data, PASSED, sent.burst))
        self._hand_over(
            target, data, len(data), route.source, route.destination, route.source_port, traffic_class,
            port_number, route.destination_port == VXLAN_PORT,
        )  # fmt: skip

    def lose(self, sent: Datagram, target: Node, data: bytes, why: str) -> None:
        """A packet that a carrier was given does not arrive."""
        self._lose(sent, target, data, why)

    def _lose(self, sent: Datagram, target: Node | None, data: bytes, why: str) -> None:
        self._show(Datagram(LOST, self.now, sent.source, target, sent.route, data, why, sent.burst))

    def _arrive(self, flight: _Flight) -> None:
        sent, target, port_number, packets, what = flight
        route = sent.route
        self._under_way -= len(packets)
        for data in packets:
            self._show(Datagram(RECEIVED, self.now, sent.source, target, route, data, what, sent.burst))
        if not any(packets):
            return  # truncated to nothing
        self._hand_over(
            target, b"".join(packets), len(packets[0]), route.source, route.destination, route.source_port,
            route.traffic_class, port_number, route.destination_port == VXLAN_PORT,
        )  # fmt: skip

    def inject(
        self,
        target: Node,
        data: bytes,
        source: bytes = b"",
        *,
        source_port: int = 0xC000,
        traffic_class: int = 0,
        stride: int = 0,
        destination: bytes = b"",
        port_number: int = 1,
        frames: bool = False,
    ) -> None:
        """Let bytes arrive now that no adapter has sent, past all faults: on RoCE links BTH … ICRC, or with
        ``frames`` VXLAN header and Ethernet frame, from the GID ``source`` to ``destination`` (by default the
        target's), on native ones LRH … VCRC.

        With a ``stride`` they are several packets of that length, and the last one may be shorter.
        """
        self._show(Datagram(RECEIVED, self.now, None, target, None, data, INJECTED))
        self._hand_over(
            target, data, stride or len(data), source, destination or target.gid, source_port, traffic_class,
            port_number, frames,
        )  # fmt: skip

    def _hand_over(
        self, target: Node, data: bytes, stride: int, source: bytes, destination: bytes, source_port: int,
        traffic_class: int, port_number: int, frames: bool = False,
    ) -> None:  # fmt: skip
        """Give a run of packets to an adapter's port, as its link would."""
        arrival, is_native = self._arrival, self.addressing.native
        arrival.buffer[: len(data)] = data
        arrival.length = len(data)
        arrival.stride = stride
        arrival.framing = self.addressing.framing
        arrival.source = None if is_native else source
        arrival.destination = None if is_native else destination
        arrival.source_port = 0 if is_native else source_port
        arrival.traffic_class = 0 if is_native else traffic_class
        arrival.frames = frames
        target.adapter.receive(port_number, arrival, self.now)


def _of_links(faults: Faults | str) -> Faults:
    """The faults; FaultsError (a ValueError) for those that befall adapters and programs, not packets."""
    return Faults.parse(str(faults), without=SIMULATED_ONLY)

