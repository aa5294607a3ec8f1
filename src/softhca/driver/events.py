"""What the adapter tells by itself: completion events to channels, asynchronous events to who asks for them.

There is one event ring and there are many who wait.  Whoever looks takes everything out and sorts it, so that
nobody waits for what another one has taken.  Each completion queue is in its channel's queue at most once,
and each (kind, element) among the asynchronous events at most once; so both are bounded by what exists and
nothing is lost.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, TypeVar

from softhca.driver.channels import HostChannel
from softhca.driver.errors import DriverError
from softhca.queues.control_fields import EVENT_COMPLETION, EVENT_DEVICE_FATAL, QP_ERROR_EVENTS

if TYPE_CHECKING:
    from softhca.driver.cq import CqHandle

_Found = TypeVar("_Found")


class EventRouter:
    """Sorts the events of one attachment.  ``told_death``: that the adapter has died is among the events."""

    def __init__(self, channel: HostChannel, queue_pair_failed: Callable[[int], None]) -> None:
        self._channel = channel
        self._queue_pair_failed = queue_pair_failed
        self._lock = threading.Lock()
        self._queues: dict[int, CqHandle] = {}
        self._fired: dict[Hashable, dict[CqHandle, None]] = {}
        self._events: dict[tuple[int, int], None] = {}
        self._silent: set[tuple[int, int]] = set()
        self.told_death = False

    def add(self, cq: CqHandle) -> None:
        """A completion queue whose events are to be routed."""
        with self._lock:
            self._queues[cq.number] = cq

    def remove(self, cq: CqHandle) -> None:
        """It is destroyed: no event of it comes any more."""
        with self._lock:
            self._queues.pop(cq.number, None)
            fired = self._fired.get(cq.channel)
            if fired is not None:
                fired.pop(cq, None)
                if not fired:
                    del self._fired[cq.channel]

    def silence(self, kind: int, element: int) -> None:
        """Let nobody be told of this event until it is forgotten: it is seen to without being told."""
        with self._lock:
            self._silent.add((kind, element))
            self._events.pop((kind, element), None)

    def forget(self, kinds: frozenset[int], element: int) -> None:
        """An element is destroyed: drop its events (``kinds``) that nobody has asked for."""
        with self._lock:
            for kind in kinds:
                self._events.pop((kind, element), None)
                self._silent.discard((kind, element))

    def sort(self) -> None:
        """Take everything out of the ring."""
        ring = self._channel.events
        if not ring.count():
            return
        with self._lock:
            while (event := ring.take()) is not None:
                if event.kind != EVENT_COMPLETION:
                    if event.kind in QP_ERROR_EVENTS:
                        self._queue_pair_failed(event.element)
                    if (event.kind, event.element) not in self._silent:
                        self._events[event.kind, event.element] = None
                    continue
                cq = self._queues.get(event.element)
                if cq is None:
                    continue
                if cq.channel is not None:
                    self._fired.setdefault(cq.channel, {})[cq] = None
                if cq.on_event is not None:
                    cq.on_event()

    def next_event(self, timeout_s: float | None) -> tuple[int, int] | None:
        """The oldest asynchronous event; None when there is none within ``timeout_s``.

        The death of the adapter is one (``IBV_EVENT_DEVICE_FATAL``), told once; afterwards DriverError EIO.
        """
        return self._wait(self._take_event, timeout_s)

    def next_completion(self, channel: Hashable, timeout_s: float | None) -> CqHandle | None:
        """The completion queue of ``channel`` that fired first; None when none does within ``timeout_s``."""
        return self._wait(lambda: self._take_fired(channel), timeout_s)

    def _wait(self, take: Callable[[], _Found | None], timeout_s: float | None) -> _Found | None:
        """What ``take`` gives, once it gives something.

        The channel asks from whichever thread drives, so what is found is kept for this one.
        """
        found: list[_Found] = []

        def ready() -> bool:
            if not found:
                self.sort()
                taken = take()
                if taken is not None:
                    found.append(taken)
            return bool(found)

        if ready() or self._channel.wait(ready, timeout_s):
            return found[0]
        if not self._channel.alive and not ready():
            raise DriverError(errno.EIO, "the adapter is gone")
        return found[0] if found else None

    def _take_event(self) -> tuple[int, int] | None:
        with self._lock:
            if not self._channel.alive and not self.told_death:
                # Nobody is left to write it to the ring.
                self.told_death = True
                self._events[EVENT_DEVICE_FATAL, 0] = None
            if not self._events:
                return None
            event = next(iter(self._events))
            del self._events[event]
            return event

    def _take_fired(self, channel: Hashable) -> CqHandle | None:
        with self._lock:
            fired = self._fired.get(channel)
            if not fired:
                return None
            cq = next(iter(fired))
            del fired[cq]
            if not fired:
                del self._fired[channel]
            return cq
