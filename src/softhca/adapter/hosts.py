"""An attached host: its rings and doorbells, its address map, and which queue a doorbell means.

What a host wrote is never believed.  One that breaks its control rings or its doorbells gets an event
(DEVICE_FATAL) and no longer served: neither commands nor doorbells are looked at until it is detached.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

import cython

from softhca.queues.control import ControlRings
from softhca.queues.control_fields import (
    AGENT_EVENTS,
    CM_EVENTS,
    EVENT_COMPLETION,
    EVENT_CQ_ERR,
    EVENT_DEVICE_FATAL,
    EVENT_SRQ_ERR,
    EVENT_SRQ_LIMIT_REACHED,
    MR_EVENTS,
)
from softhca.queues.doorbells import DoorbellFifo
from softhca.queues.handshake import HostFrames
from softhca.queues.layout import DOORBELL_SLOTS
from softhca.transport.context import QueuePair

if TYPE_CHECKING:
    from softhca.adapter.late_events import LateEvents
    from softhca.adapter.resources import Resource
    from softhca.memory.arenas import AddressMap
    from softhca.queues.completion import CompletionQueue
    from softhca.queues.shared_receive import SharedReceiveQueue

COMMANDS_A_TURN = 64
_IN_RING = frozenset({EVENT_COMPLETION}) | AGENT_EVENTS | CM_EVENTS | MR_EVENTS
"""Events that are no asynchronous events of the verbs."""
_SLOTS = cython.declare(cython.int, DOORBELL_SLOTS)


class EventSink(Protocol):
    """An event channel of a host: where events go that are not told in its event ring."""

    def post(self, kind: int, element: int) -> None:
        """Tell of an event; never blocks."""

    def forget(self, kind: int, element: int) -> None:
        """The element is destroyed: an event of it that was not sent yet is dropped."""


class HostSide(Protocol):
    """What the adapter must be given of a host to attach it: ``frames``, this process's ``address_map`` of
    the host's memory, and ``pid``, the process in which addresses that the host names are looked up, 0 where
    the host lives in this process and puts its buffers into the map itself.  ``foreign``: memory of the host
    outside the shared one may be used.
    """

    frames: HostFrames
    address_map: AddressMap
    pid: int

    @property
    def foreign(self) -> bool:
        """Whether who attaches this host knows that ``pid`` is the host, and may be reached."""

    def take_descriptor(self, number: int) -> int:
        """The descriptor that the host has passed as ``number``: from now on the caller's.  OSError EBADF
        where it has passed none.
        """

    def event_channel(self, number: int) -> EventSink:
        """The event channel ``number`` of the host; OSError EBADF where there is none."""


class ChannelHook:
    """What a completion queue calls whose events go to the event channel ``sink`` of ``host``; ``late`` looks
    after the queue, where somebody does.
    """

    def __init__(self, host: Host, sink: EventSink) -> None:
        self._host = host
        self._sink = sink
        self.late: LateEvents | None = None

    def completion_event(self, cq: CompletionQueue) -> None:
        """See `Host.completion_event`."""
        self._sink.post(EVENT_COMPLETION, cq.number)

    def overflow(self, cq: CompletionQueue) -> None:
        """See `Host.overflow`."""
        self._host.overflow(cq)

    def forget(self, number: int) -> None:
        """The completion queue is destroyed."""
        self.close()
        self._sink.forget(EVENT_COMPLETION, number)

    def close(self) -> None:
        """Nobody looks after the queue any more: its ring goes."""
        if self.late is not None:
            self.late.close()


class Host:
    """One attached host, number ``number``.  OSError when its frames do not hold what they should.

    ``asked`` and ``pending_events`` are what each round checks: its end of the command ring, and the events
    that found no room.  ``due``: commands whose turn has come.
    ``asynchronous``: the event channel that takes the asynchronous events of the verbs, where there is one.
    """

    queue_pairs: list[QueuePair]
    arenas: dict[int, Resource]
    _free_slots: list[int]

    def __init__(
        self,
        number: int,
        side: HostSide,
        notify: Callable[[], object],
        observe: Callable[[int, int], object],
    ) -> None:
        self.number = number
        self.address_map = side.address_map
        self.pid = side.pid
        self.foreign = side.foreign
        rings = ControlRings(side.frames.control, side.address_map)
        self.commands = rings.commands
        self.replies = rings.replies
        self.events = rings.events
        self.asked = rings.commands.consumer
        self.due = 0
        self.pending_events = rings.events.pending
        self.doorbells = DoorbellFifo.over(list(side.frames.doorbells), side.address_map, DOORBELL_SLOTS)
        self.queue_pairs = []
        self.take_descriptor = side.take_descriptor
        self.event_channel = side.event_channel
        self.asynchronous: EventSink | None = None
        self.stops_data_access = False
        self.arenas = {}
        self._free_slots = []
        self._notify = notify
        self._observe = observe
        self.notified = False
        self.failed = False

    def watch(self) -> None:
        """Look whether the host has broken what both share: then it is ``failed``, which is reported once."""
        if self.failed:
            return
        if self.commands.broken or self.replies.broken or self.events.broken or self.doorbells.malformed:
            self.failed = True
            self.report_event(EVENT_DEVICE_FATAL, 0)

    def take_slot(self, queue_pair: QueuePair) -> int:
        """A doorbell for ``queue_pair``; ENOMEM when all are given."""
        if self._free_slots:
            slot = self._free_slots.pop()
            self.queue_pairs[slot] = queue_pair
            return slot
        if len(self.queue_pairs) >= DOORBELL_SLOTS:
            raise OSError(errno.ENOMEM, f"doorbell: all {DOORBELL_SLOTS} of this host are in use")
        self.queue_pairs.append(queue_pair)
        return len(self.queue_pairs) - 1

    def give_slot(self, slot: int) -> None:
        """Take a doorbell back."""
        self.queue_pairs[slot] = None
        self._free_slots.append(slot)

    def ring(self, now: int) -> bool:
        """Serve every doorbell that is pending, once; whether there was one."""
        turn: cython.int
        slot: cython.longlong
        queue_pair: QueuePair
        for turn in range(_SLOTS):
            slot = self.doorbells.next()
            if slot < 0:
                if self.doorbells.malformed:
                    self.watch()
                return turn > 0
            if slot >= len(self.queue_pairs):
                continue
            queue_pair = self.queue_pairs[slot]
            if queue_pair is not None:
                queue_pair.doorbell(now)
        return True

    def report_event(self, kind: int, element: int) -> None:
        """Give an event to the host; each (kind, element) that finds the ring full waits once."""
        if kind != EVENT_COMPLETION:
            self._observe(kind, element)
        if self.asynchronous is not None and kind not in _IN_RING:
            self.asynchronous.post(kind, element)
            return
        self.events.post(kind, element)
        self.mark()

    def forget(self, kinds: Iterable[int], element: int) -> None:
        """An element goes: an event of it that still waits must not name a later one of its number."""
        for kind in kinds:
            self.events.forget(kind, element)
            if self.asynchronous is not None:
                self.asynchronous.forget(kind, element)

    def mark(self) -> None:
        """Something new stands in the host's rings."""
        self.notified = True
        self._notify()

    # what completion queues and shared receive queues call

    def completion_event(self, cq: CompletionQueue) -> None:
        """A completion queue that was armed has a completion."""
        self.report_event(EVENT_COMPLETION, cq.number)

    def overflow(self, cq: CompletionQueue) -> None:
        """A completion found no room: the queue is unusable, and its queue pairs go to the error state
        themselves.
        """
        self.report_event(EVENT_CQ_ERR, cq.number)

    def limit_reached(self, srq: SharedReceiveQueue) -> None:
        """A shared receive queue has fewer receives than its limit."""
        self.report_event(EVENT_SRQ_LIMIT_REACHED, srq.number)

    def srq_error(self, srq: SharedReceiveQueue) -> None:
        """The host broke a shared receive queue's ring."""
        self.report_event(EVENT_SRQ_ERR, srq.number)
