"""Dispatch of events: completion events to their channels, asynchronous events to `EventRouter.next_event`.

There is one event ring and many threads may wait.  Whichever thread polls the ring empties it and dispatches
every event, so that no thread waits for an event that another one has taken.  Each completion queue is queued
on its channel at most once, and each (kind, element) among the asynchronous events at most once.  So both
queues are bounded by the number of elements, and no event is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, TypeVar

from softhca.driver.channels import HostChannel
from softhca.queues.control_fields import EVENT_COMPLETION, EVENT_DEVICE_FATAL, EVENT_MAD, QP_ERROR_EVENTS

if TYPE_CHECKING:
    from softhca.driver.cq import CqHandle
    from softhca.driver.session import Session

_Found = TypeVar("_Found")


def _never() -> bool:
    """Nobody ends the wait."""
    return False


class EventRouter:
    """Dispatches the events of one attachment.

    ``death_delivered``: the adapter has died, and the event that reports this has been queued.
    """

    def __init__(
        self, channel: HostChannel, session: Session, queue_pair_failed: Callable[[int], None]
    ) -> None:
        self._channel = channel
        self._session = session
        self._queue_pair_failed = queue_pair_failed
        self._lock = threading.RLock()  # a signal handler may close the device while this is held
        self._queues: dict[int, CqHandle] = {}
        self._fired: dict[Hashable, dict[CqHandle, None]] = {}
        self._events: dict[tuple[int, int], None] = {}
        self._suppressed: set[tuple[int, int]] = set()
        self.death_delivered = False

    def add(self, cq: CqHandle) -> None:
        """A completion queue whose events are to be routed."""
        with self._lock:
            self._queues[cq.number] = cq

    def remove(self, cq: CqHandle) -> None:
        """The completion queue is destroyed: drop its events."""
        with self._lock:
            self._queues.pop(cq.number, None)
            fired = self._fired.get(cq.channel)
            if fired is not None:
                fired.pop(cq, None)
                if not fired:
                    del self._fired[cq.channel]

    def clear(self) -> None:
        """The device is closed: drop all events."""
        with self._lock:
            self._queues.clear()
            self._fired.clear()

    def suppress(self, kind: int, element: int) -> None:
        """Do not deliver this event until `forget`: the driver handles its cause by itself."""
        with self._lock:
            self._suppressed.add((kind, element))
            self._events.pop((kind, element), None)

    def forget(self, kinds: frozenset[int], element: int) -> None:
        """An element is destroyed: drop its events of these ``kinds`` that have not been delivered."""
        with self._lock:
            for kind in kinds:
                self._events.pop((kind, element), None)
                self._suppressed.discard((kind, element))

    def dispatch(self) -> None:
        """Empty the event ring and queue every event where it belongs."""
        ring = self._channel.events
        if ring.consumer.idle():
            return
        fired: list[CqHandle] = []
        with self._lock:
            while (event := ring.take()) is not None:
                if event.kind == EVENT_MAD:
                    continue  # the agent that waits for it polls its own ring
                if event.kind != EVENT_COMPLETION:
                    if event.kind in QP_ERROR_EVENTS:
                        self._queue_pair_failed(event.element)
                    if (event.kind, event.element) not in self._suppressed:
                        self._events[event.kind, event.element] = None
                    continue
                cq = self._queues.get(event.element)
                if cq is None:
                    continue
                fired.append(cq)
                if cq.channel is not None:
                    self._fired.setdefault(cq.channel, {})[cq] = None
        for cq in fired:  # without the lock: the callback may close anything
            if cq.on_event is not None:
                cq.on_event()

    def next_event(self, timeout_s: float | None) -> tuple[int, int] | None:
        """The oldest asynchronous event; None when there is none within ``timeout_s``.

        The death of the adapter is one (``IBV_EVENT_DEVICE_FATAL``), delivered once; afterwards DriverError
        EIO.
        """
        return self._wait(self._take_event, self._put_event_back, timeout_s, _never)

    def next_completion(
        self, channel: Hashable, timeout_s: float | None, ended: Callable[[], bool] = _never
    ) -> CqHandle | None:
        """The completion queue of ``channel`` that fired first; None when none does within ``timeout_s``, or
        once ``ended()`` is true.
        """
        return self._wait(
            lambda found: self._take_fired(channel, found),
            lambda cq: self._put_fired_back(channel, cq),
            timeout_s,
            ended,
        )

    def _wait(
        self,
        take: Callable[[list[_Found]], None],
        put_back: Callable[[_Found], None],
        timeout_s: float | None,
        ended: Callable[[], bool],
    ) -> _Found | None:
        """Wait until ``take`` has added something to a list, and return that.

        None when the wait ends without; DriverError EIO when the attachment is dead.  Whichever thread drives
        the engine calls ``ready``, so what it finds is kept for this thread.  A thread that is interrupted
        after something was found puts it back.
        """
        found: list[_Found] = []

        def ready() -> bool:
            if not found:
                self.dispatch()
                take(found)
            return bool(found) or bool(self._session.dead) or not self._channel.alive or ended()

        try:
            if not ready():
                self._channel.wait(ready, timeout_s)
            if not found and not self._channel.alive:
                ready()  # events from before the end
        except BaseException:
            for each in found:
                put_back(each)
            raise
        if found:
            return found[0]
        self._session.check()
        return None

    def _put_event_back(self, event: tuple[int, int]) -> None:
        with self._lock:
            self._events = {event: None, **self._events}

    def _put_fired_back(self, channel: Hashable, cq: CqHandle) -> None:
        with self._lock:
            if cq.number in self._queues:
                self._fired[channel] = {cq: None, **self._fired.get(channel, {})}

    def _take_event(self, found: list[tuple[int, int]]) -> None:
        with self._lock:
            closed = bool(self._session.dead) and not self._session.gone
            if not self._channel.alive and not closed and not self.death_delivered:
                # The adapter is gone and cannot write this event to the ring.
                self.death_delivered = True
                self._events[EVENT_DEVICE_FATAL, 0] = None
            if self._events:
                found.append(next(iter(self._events)))
                del self._events[found[0]]

    def _take_fired(self, channel: Hashable, found: list[CqHandle]) -> None:
        with self._lock:
            fired = self._fired.get(channel)
            if not fired:
                return
            found.append(next(iter(fired)))
            del fired[found[0]]
            if not fired:
                del self._fired[channel]
