"""Dispatch of events: completion events to their channels, asynchronous events to `EventRouter.next_event`.

There is one event ring and many threads may wait.  Whichever thread polls the ring empties it and dispatches
every event, so that no thread waits for an event that another one has taken.  Each completion queue is queued
on its channel at most once, and each (kind, element) among the asynchronous events at most once.  So both
queues are bounded by the number of elements, and no event is lost.

A channel, and the asynchronous events, may have a descriptor (`EventRouter.descriptor`).  While there is one,
a thread waits for events and dispatches them, since the program then waits where nobody drives the engine.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, TypeVar

from softhca.driver.channels import HostChannel
from softhca.driver.descriptors import EventDescriptor
from softhca.driver.errors import DriverError, refusal
from softhca.machine import deferred_signals
from softhca.queues.control_fields import (
    EVENT_CM,
    EVENT_COMPLETION,
    EVENT_DEVICE_FATAL,
    EVENT_GID_CHANGE,
    EVENT_MAD,
    QP_ERROR_EVENTS,
)

if TYPE_CHECKING:
    from softhca.driver.connections import CmChannel
    from softhca.driver.cq import CqHandle
    from softhca.driver.session import Session

_Found = TypeVar("_Found")


ASYNCHRONOUS = object()
"""The asynchronous events, where a descriptor is asked for."""


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
        self._connections: dict[int, CmChannel] = {}
        self._fired: dict[Hashable, dict[CqHandle, None]] = {}
        self._events: dict[tuple[int, int], None] = {}
        self._suppressed: set[tuple[int, int]] = set()
        self._descriptors: dict[Hashable, EventDescriptor] = {}
        self._watcher: threading.Thread | None = None
        self._watching: dict[Callable[[], object], None] = {}
        self._over = False
        self._gid_changes = 0
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
                    self._no_more_fired(cq.channel)

    def add_connections(self, channel: CmChannel) -> None:
        """A connection channel whose events are to be told."""
        with self._lock:
            self._connections[channel.number] = channel

    def connections_taken(self, channel: CmChannel) -> None:
        """An event was taken from a connection channel: its descriptor is readable while there are more."""
        with self._lock:
            if self._descriptors and channel.idle:
                self._signal_empty(channel)

    def remove_connections(self, channel: CmChannel) -> None:
        """The connection channel is closed."""
        with self._lock:
            self._connections.pop(channel.number, None)
        self.close_descriptor(channel)

    def clear(self) -> None:
        """The device is closed: drop all events."""
        with self._lock:
            self._queues.clear()
            self._connections.clear()
            self._fired.clear()
            for token in list(self._descriptors):
                self.close_descriptor(token)

    def abandon(self) -> None:
        """This is a forked child: close its copies of the descriptors.  Locks may be held by threads that
        are the parent's."""
        for each in self._descriptors.values():
            each.abandon()

    def descriptor(self, token: Hashable) -> EventDescriptor:
        """The descriptor that is readable while the channel ``token`` has events, or while asynchronous ones
        are queued (`ASYNCHRONOUS`); made by the first call.  DriverError EMFILE, EIO, EAGAIN (no thread),
        EOPNOTSUPP (in virtual time).
        """
        self._session.check()
        if not self._channel.wakes:
            raise DriverError(errno.EOPNOTSUPP, "no descriptor is readable in virtual time")
        with self._lock:
            found = self._descriptors.get(token)
            if found is None:
                try:
                    found = EventDescriptor()
                except OSError as error:
                    raise refusal(error, "making a descriptor") from None
                self._descriptors[token] = found
                for _ in self._queued_of(token):
                    found.queued()
                self._watch()
        return found

    def _queued_of(self, token: Hashable) -> Iterable[object]:
        """With the lock held: what is queued."""
        if token is ASYNCHRONOUS:
            return self._events
        if token in self._connections.values():
            return range(not token.idle)  # type: ignore[attr-defined]
        return self._fired.get(token, {})

    def made_descriptor(self, token: Hashable) -> EventDescriptor | None:
        """The descriptor, if there is one."""
        return self._descriptors.get(token)

    def close_descriptor(self, token: Hashable) -> None:
        """The channel is closed."""
        with self._lock:
            found = self._descriptors.pop(token, None)
        if found is not None:
            found.close()

    @property
    def waits(self) -> bool:
        """Whether threads can wait for events: not in virtual time."""
        return bool(self._channel.wakes)

    @property
    def asynchronous_waiting(self) -> bool:
        """Whether an asynchronous event is queued, or the adapter's death is to be told."""
        return bool(self._events) or not self._channel.alive

    def watch(self, at_end: Callable[[], object] = _never) -> None:
        """Have a thread that waits and dispatches in the program's stead, and calls ``at_end`` when it ends,
        until `unwatch`.  DriverError EAGAIN, EOPNOTSUPP as `descriptor`.
        """
        if not self._channel.wakes:
            raise DriverError(errno.EOPNOTSUPP, "no thread waits in virtual time")
        with self._lock:
            self._watch()
            self._watching[at_end] = None
            over = self._over
        if over:
            at_end()

    def unwatch(self, at_end: Callable[[], object]) -> None:
        """Do not call it any more."""
        with self._lock:
            self._watching.pop(at_end, None)

    def wait_until(self, ended: Callable[[], bool], timeout_s: float | None) -> None:
        """Wait, and dispatch what comes, until ``ended()``, which is asked when `wake_waiters` is called too,
        or ``timeout_s`` is over.  DriverError EIO when the attachment is dead.
        """

        channel, session = self._channel, self._session

        def ready() -> bool:
            if not channel.events.consumer.idle():
                self.dispatch()
            return ended() or bool(session.dead) or not channel.alive

        if not ready():
            channel.wait(ready, timeout_s)
        if not ended():
            self._session.check()

    def _watch(self) -> None:
        """Have a thread that dispatches while a program polls descriptors."""
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._dispatch_on, name="softhca-events", daemon=True)
            try:
                self._watcher.start()
            except RuntimeError as error:  # no thread can be had
                self._watcher = None
                raise DriverError(errno.EAGAIN, f"a thread for events: {error}") from None

    def _dispatch_on(self) -> None:
        """The thread: dispatch until the device is closed or the adapter is gone."""

        def ended() -> bool:
            self.dispatch()
            return bool(self._session.dead) or not self._channel.alive

        while not ended():
            self._channel.wait(ended, None)
        with self._lock:  # the verbs report what has happened to whoever waits on a descriptor
            for each in self._descriptors.values():
                each.queued()
            self._over = True
            watching = list(self._watching)
        for at_end in watching:
            at_end()

    def _signal(self, token: Hashable) -> None:
        """With the lock held: an event more is queued."""
        found = self._descriptors.get(token)
        if found is not None:
            found.queued()

    def _no_more_fired(self, channel: Hashable) -> None:
        """With the lock held: no queue of ``channel`` has an event."""
        del self._fired[channel]
        self._signal_empty(channel)

    def _signal_empty(self, token: Hashable) -> None:
        """With the lock held: no event is queued.  The end of the adapter stays readable."""
        found = self._descriptors.get(token)
        if found is not None and self._channel.alive:
            found.empty()

    def suppress(self, kind: int, element: int) -> None:
        """Do not deliver this event until `forget`: the driver handles its cause by itself."""
        with self._lock:
            self._suppressed.add((kind, element))
            self._drop_event((kind, element))

    def forget(self, kinds: frozenset[int], element: int) -> None:
        """An element is destroyed: drop its events of these ``kinds`` that have not been delivered."""
        with self._lock:
            for kind in kinds:
                self._drop_event((kind, element))
                self._suppressed.discard((kind, element))

    def _drop_event(self, event: tuple[int, int]) -> None:
        """With the lock held: an asynchronous event is taken, or nobody's any more."""
        if self._events.pop(event, event) is None and not self._events:
            self._signal_empty(ASYNCHRONOUS)

    def _queue_event(self, event: tuple[int, int]) -> None:
        """With the lock held: deliver it."""
        if event not in self._events:
            self._events[event] = None
            self._signal(ASYNCHRONOUS)

    def dispatch(self) -> None:
        """Empty the event ring and queue every event where it belongs."""
        if not self._channel.events.consumer.idle():
            with deferred_signals.section():  # what is taken is told
                self._dispatch()

    def _dispatch(self) -> None:
        ring = self._channel.events
        fired: list[CqHandle] = []
        told: list[CmChannel] = []
        with self._lock:
            while (event := ring.take()) is not None:
                if event.kind == EVENT_MAD:
                    continue  # the agent that waits for it polls its own ring
                if event.kind == EVENT_CM:
                    connections = self._connections.get(event.element)
                    if connections is not None:
                        self._signal(connections)
                        told.append(connections)
                    continue
                if event.kind != EVENT_COMPLETION:
                    self._gid_changes += event.kind == EVENT_GID_CHANGE
                    if event.kind in QP_ERROR_EVENTS:
                        self._queue_pair_failed(event.element)
                    if (event.kind, event.element) not in self._suppressed:
                        self._queue_event((event.kind, event.element))
                    continue
                cq = self._queues.get(event.element)
                if cq is None:
                    continue
                fired.append(cq)
                if cq.channel is not None:
                    self._fired.setdefault(cq.channel, {})[cq] = None
                    self._signal(cq.channel)
        for cq in fired:  # without the lock: the callback may close anything
            if cq.on_event is not None:
                cq.on_event()
        for connections in told:
            if connections.on_event is not None:
                connections.on_event()
        if told:  # who waits may have looked since the event was taken, and before it was told
            self._channel.wake_waiters()

    def gid_changes(self) -> int:
        """How often the adapter has said so far that a port has other GIDs, whoever takes the events."""
        self.dispatch()
        return self._gid_changes

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
            self._signal(ASYNCHRONOUS)

    def _put_fired_back(self, channel: Hashable, cq: CqHandle) -> None:
        with self._lock:
            if cq.number in self._queues:
                self._fired[channel] = {cq: None, **self._fired.get(channel, {})}
                self._signal(channel)

    def _take_event(self, found: list[tuple[int, int]]) -> None:
        with self._lock:
            closed = bool(self._session.dead) and not self._session.gone
            if not self._channel.alive and not closed and not self.death_delivered:
                # The adapter is gone and cannot write this event to the ring.
                self.death_delivered = True
                self._queue_event((EVENT_DEVICE_FATAL, 0))
            if self._events:
                found.append(next(iter(self._events)))
                self._drop_event(found[0])

    def _take_fired(self, channel: Hashable, found: list[CqHandle]) -> None:
        with self._lock:
            fired = self._fired.get(channel)
            if not fired:
                return
            found.append(next(iter(fired)))
            del fired[found[0]]
            if not fired:
                self._no_more_fired(channel)
