"""A switch that stores and forwards: one output queue for each port and priority, out of a shared buffer.

A frame that has come in is put behind those of its output port and priority, or dropped where the queue or
the buffer is full; it is marked by chance where the queue is long (`Marking`), if its sender reacts to marks.
With `Pausing` whoever sends more than leaves is paused instead, before anything must be dropped: a pause
needs a round trip of the link to act, and the buffer must have room for what comes meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from softhca.fabric.ethernet.port import QUANTUM_BITS, Frame, Port
from softhca.fabric.ethernet.settings import PRIORITIES, Pausing, SwitchSettings
from softhca.fabric.switching.events import EventQueue
from softhca.wire.ip import MARKED

MOST_HOPS = 64
FULL_QUEUE = "queue full"
FULL_BUFFER = "buffer full"
NO_WAY = "no way"
LOOP = "loop"

Lost = Callable[[Frame, str], None]
"""Called with each frame that does not arrive, and why."""


class _Held:
    """What has come by one port and stands in the switch, in bytes by priority, and who is paused."""

    def __init__(self) -> None:
        self.bytes = [0] * PRIORITIES
        self.paused = [False] * PRIORITIES
        self.renews = [False] * PRIORITIES


class EthernetSwitch:
    """``ways[host]`` are the ports by which a host is reached, all equally far.

    ``used_bytes`` of the buffer, ``most_used_bytes`` the most that ever were; ``most_held_bytes`` the most
    that has come by one port in one priority that is paused.
    """

    def __init__(
        self, events: EventQueue, port_count: int, settings: SwitchSettings, dice: Random, lost: Lost
    ) -> None:
        self.events = events
        self.settings = settings
        self.ports = [Port(events, self, number) for number in range(port_count)]
        self.ways: dict[int, list[int]] = {}
        self.used_bytes = 0
        self.most_used_bytes = 0
        self.most_held_bytes = 0
        self._held = [_Held() for _ in self.ports]
        self._dice = dice
        self._lost = lost

    def arrived(self, port: Port, frame: Frame, now_ps: int) -> None:
        """`Owner.arrived`."""
        if frame.group is None:
            self._forward(port, self.ways.get(frame.destination), frame, now_ps)
            return
        for ways, copy in self._copies(frame, frame.group):
            self._forward(port, ways, copy, now_ps)

    def _copies(self, frame: Frame, group: frozenset[int]) -> Iterator[tuple[Sequence[int], Frame]]:
        """One for each port that leads to some of a group, and one for those whom none leads to."""
        branches: dict[tuple[int, ...], set[int]] = {}
        for host in sorted(group):
            ways = self.ways.get(host)
            branches.setdefault((ways[frame.flow % len(ways)],) if ways else (), set()).add(host)
        for branch, hosts in branches.items():
            copy = frame.copy()
            copy.group = frozenset(hosts)
            yield branch, copy

    def _forward(self, port: Port, ways: Sequence[int] | None, frame: Frame, now_ps: int) -> None:
        """Put a frame that has come by ``port`` into the queue of one of the ports ``ways``."""
        if not ways:
            self._drop(port, frame, NO_WAY)
            return
        if frame.hops > MOST_HOPS:
            self._drop(port, frame, LOOP)
            return
        out = self.ports[ways[frame.flow % len(ways)]]
        length, priority, settings = frame.length_bytes, frame.priority, self.settings
        if self.used_bytes + length > settings.buffer_bytes:
            self._drop(out, frame, FULL_BUFFER)
            return
        if out.queued[priority] + length > settings.queue_bytes:
            self._drop(out, frame, FULL_QUEUE)
            return
        if settings.marking is not None and frame.ecn not in (0, MARKED):
            share = settings.marking.share(out.queued[priority])
            if share >= 1 or (share > 0 and self._dice.random() < share):
                frame.ecn = MARKED
                out.counters.frames_marked += 1
        frame.entered = port
        self.used_bytes += length
        self.most_used_bytes = max(self.most_used_bytes, self.used_bytes)
        if settings.pausing is not None and priority in settings.pausing.priorities:
            self._enter(settings.pausing, port, priority, length, now_ps)
        out.send(frame, now_ps)

    def lost(self, port: Port, frame: Frame, why: str) -> None:
        """`Owner.lost`."""
        self._drop(port, frame, why)

    def _drop(self, out: Port, frame: Frame, why: str) -> None:
        out.counters.drops += 1
        self._lost(frame, why)

    def left(self, port: Port, frame: Frame, now_ps: int) -> None:
        """`Owner.left`."""
        self.used_bytes -= frame.length_bytes
        pausing, entered = self.settings.pausing, frame.entered
        if pausing is None or entered is None or frame.priority not in pausing.priorities:
            return
        held = self._held[entered.number]
        held.bytes[frame.priority] -= frame.length_bytes
        if held.paused[frame.priority] and held.bytes[frame.priority] <= pausing.on_bytes:
            held.paused[frame.priority] = False
            entered.pause(frame.priority, 0, now_ps)

    def _enter(self, pausing: Pausing, port: Port, priority: int, length: int, now_ps: int) -> None:
        """A frame of a priority with pauses has come: pause its sender where too much of it is here."""
        held = self._held[port.number]
        held.bytes[priority] += length
        self.most_held_bytes = max(self.most_held_bytes, held.bytes[priority])
        if held.bytes[priority] > pausing.off_bytes and not held.paused[priority]:
            held.paused[priority] = True
            self._pause(pausing, port, priority, now_ps)

    def _pause(self, pausing: Pausing, port: Port, priority: int, now_ps: int) -> None:
        port.pause(priority, pausing.quanta, now_ps)
        if self._held[port.number].renews[priority]:
            return  # it is planned already
        self._held[port.number].renews[priority] = True
        half_ps = pausing.quanta * QUANTUM_BITS * 1_000_000 // port.mbps // 2
        self.events.plan(now_ps + half_ps, self, priority, port)

    def fire(self, what: int, argument: Any, now_ps: int) -> None:
        """`Handler.fire`: half of a pause is over; it is renewed where there is still too much."""
        pausing, held = self.settings.pausing, self._held[argument.number]
        held.renews[what] = False
        if pausing is not None and held.paused[what]:
            self._pause(pausing, argument, what, now_ps)

    def at_rest(self) -> list[str]:
        """What is not as it must be when nothing is under way any more, in words."""
        found = [f"{self.used_bytes} bytes are left"] if self.used_bytes else []
        for number, held in enumerate(self._held):
            if any(held.bytes) or any(held.paused):
                found.append(f"port {number} has {held.bytes} bytes, paused {held.paused}")
        return found
