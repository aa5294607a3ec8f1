"""A port of an Ethernet switch or host: output queues by priority, pauses, and the wire behind it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from softhca.fabric.ethernet.settings import PRIORITIES
from softhca.fabric.switching.events import EventQueue
from softhca.wire.ip import MARKED

GAP_BYTES = 20
"""Preamble and inter-frame gap: what each frame takes of a link besides."""
PAUSE_BYTES = 64
QUANTUM_BITS = 512
SENT, ARRIVED, PAUSED, RENEW = range(4)
LINK_DOWN = "link down"


class Frame:
    """A frame of ``length_bytes``, with its FCS, from host ``source`` to host ``destination``.

    ``priority`` 0…7; ``ecn``: the two bits of its IP header; ``flow`` chooses among ways of one length;
    ``content`` is its sender's.  ``group``: instead of one host it goes to all of these.  ``entered``: the
    port of the switch in which it is; ``hops``: links that it has passed.
    """

    __slots__ = ("content", "destination", "ecn", "entered", "flow", "group", "hops", "length_bytes",
                 "priority", "source")  # fmt: skip

    def __init__(
        self, source: int, destination: int, length_bytes: int, priority: int = 0, ecn: int = 0,
        flow: int = 0, content: Any = None, group: frozenset[int] | None = None,
    ) -> None:  # fmt: skip
        self.source = source
        self.destination = destination
        self.length_bytes = length_bytes
        self.priority = priority
        self.ecn = ecn
        self.flow = flow
        self.content = content
        self.group = group
        self.entered: Port | None = None
        self.hops = 0

    @property
    def marked(self) -> bool:
        """Whether it has met congestion."""
        return self.ecn == MARKED

    def copy(self) -> Frame:
        """Another one like it, on the same link."""
        made = Frame(self.source, self.destination, self.length_bytes, self.priority, self.ecn, self.flow,
                     self.content, self.group)  # fmt: skip
        made.hops = self.hops
        return made


class Carrier(Protocol):
    """What one direction of a link does to the frames on it."""

    def carry(self, frame: Frame, now_ps: int) -> Sequence[int]:
        """When the copies of a frame come out that was sent now, but for the link's delay; none: it is lost.
        """


class Owner(Protocol):
    """Whose port it is."""

    def arrived(self, port: Port, frame: Frame, now_ps: int) -> None:
        """A frame has come in, whole."""

    def left(self, port: Port, frame: Frame, now_ps: int) -> None:
        """A frame has gone out, and stands in no queue any more."""

    def lost(self, port: Port, frame: Frame, why: str) -> None:
        """A frame was lost in a queue or on the link of this port; `left` has been called for it."""


class PortCounters:
    """Integers that only grow."""

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "drops",
        "frames_marked",
        "frames_received",
        "frames_sent",
        "paused_ps",
        "pauses_received",
        "pauses_sent",
    )  # fmt: skip

    def __init__(self) -> None:
        self.frames_sent = self.bytes_sent = self.frames_marked = self.drops = 0
        self.frames_received = self.bytes_received = 0
        self.pauses_sent = self.pauses_received = self.paused_ps = 0


class Port:
    """Port ``number`` of ``owner``; `join` links two.  The highest priority that waits and is not paused goes
    first.  ``queued``: bytes that wait, by priority; ``most_queued`` is the most that ever did.  ``carrier``:
    what befalls frames that leave here (None: nothing); ``up``: whether the link carries anything."""

    def __init__(self, events: EventQueue, owner: Owner, number: int) -> None:
        self.events = events
        self.owner = owner
        self.number = number
        self.peer: Port | None = None
        self.mbps = 0
        self.delay_ps = 0
        self.queues: list[deque[Frame]] = [deque() for _ in range(PRIORITIES)]
        self.queued = [0] * PRIORITIES
        self.most_queued = 0
        self.paused_until_ps = [0] * PRIORITIES
        self.counters = PortCounters()
        self.carrier: Carrier | None = None
        self.up = True
        self._pauses: deque[tuple[int, int]] = deque()
        self._busy = False

    def send(self, frame: Frame, now_ps: int) -> None:
        """Put a frame behind those of its priority."""
        self.queues[frame.priority].append(frame)
        self.queued[frame.priority] += frame.length_bytes
        self.most_queued = max(self.most_queued, self.queued[frame.priority])
        self._go(now_ps)

    def pause(self, priority: int, quanta: int, now_ps: int) -> None:
        """Tell the other end to pause a priority for so long; 0: to go on.  It goes before all frames."""
        if not self.up:
            return
        self.counters.pauses_sent += 1
        self._pauses.append((priority, quanta))
        self._go(now_ps)

    def take_down(self, now_ps: int) -> None:
        """The link carries nothing any more: what waits for it, and what is on it, is lost."""
        self.up = False
        self._pauses.clear()
        for queue in self.queues:
            while queue:
                self._break(queue.popleft(), now_ps)

    def bring_up(self) -> None:
        """It does again; nobody is paused."""
        self.up = True
        self.paused_until_ps = [0] * PRIORITIES

    def _break(self, frame: Frame, now_ps: int) -> None:
        self.queued[frame.priority] -= frame.length_bytes
        self.owner.left(self, frame, now_ps)
        self.owner.lost(self, frame, LINK_DOWN)

    def time_ps(self, length_bytes: int) -> int:
        """How long so many bytes take on the wire."""
        return length_bytes * 8_000_000 // self.mbps

    def _go(self, now_ps: int) -> None:
        """Send what is next, unless something is being sent."""
        if self._busy or self.peer is None or not self.up:
            return
        if self._pauses:
            priority, quanta = self._pauses.popleft()
            end_ps = now_ps + self.time_ps(PAUSE_BYTES + GAP_BYTES)
            self.events.plan(end_ps + self.delay_ps, self.peer, PAUSED, (priority, quanta))
            self._busy = True
            self.events.plan(end_ps, self, SENT, None)
            return
        for priority in range(PRIORITIES - 1, -1, -1):
            if self.queues[priority] and self.paused_until_ps[priority] <= now_ps:
                frame = self.queues[priority].popleft()
                self._busy = True
                self.events.plan(now_ps + self.time_ps(frame.length_bytes + GAP_BYTES), self, SENT, frame)
                return

    def fire(self, what: int, argument: Any, now_ps: int) -> None:
        """`Handler.fire`."""
        if what == SENT:
            self._busy = False
            if argument is not None:
                self._sent(argument, now_ps)
            self._go(now_ps)
        elif what == ARRIVED:
            if not self.up:
                self.owner.lost(self, argument, LINK_DOWN)
                return
            argument.hops += 1
            self.counters.frames_received += 1
            self.counters.bytes_received += argument.length_bytes
            self.owner.arrived(self, argument, now_ps)
        elif what == PAUSED:
            priority, quanta = argument
            if self.up:
                self._told_to_pause(priority, quanta, now_ps)
        else:
            self._go(now_ps)

    def _sent(self, frame: Frame, now_ps: int) -> None:
        assert self.peer is not None
        if not self.up:
            self._break(frame, now_ps)
            return
        self.queued[frame.priority] -= frame.length_bytes
        self.counters.frames_sent += 1
        self.counters.bytes_sent += frame.length_bytes
        self.owner.left(self, frame, now_ps)
        if self.carrier is None:
            self.events.plan(now_ps + self.delay_ps, self.peer, ARRIVED, frame)
            return
        for number, time_ps in enumerate(self.carrier.carry(frame, now_ps)):
            self.events.plan(time_ps + self.delay_ps, self.peer, ARRIVED, frame.copy() if number else frame)

    def _told_to_pause(self, priority: int, quanta: int, now_ps: int) -> None:
        """The other end has a pause for a priority: no frame of that begins before it is over."""
        self.counters.pauses_received += 1
        before_ps = max(self.paused_until_ps[priority], now_ps)
        until_ps = now_ps + quanta * QUANTUM_BITS * 1_000_000 // self.mbps
        self.paused_until_ps[priority] = until_ps
        self.counters.paused_ps += until_ps - before_ps
        if quanta:
            self.events.plan(until_ps, self, RENEW)
        else:
            self._go(now_ps)


def join(one: Port, other: Port, mbps: int, delay_ps: int) -> None:
    """Link two ports, in both directions at so many megabits a second."""
    one.peer, other.peer = other, one
    for port in (one, other):
        port.mbps, port.delay_ps = mbps, delay_ps
