"""The loop of a process that serves a fabric: descriptors, what is due, and the fabric's own managers."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from softhca.fabric.ethernet.plane import EthernetPlane
    from softhca.fabric.mad_plane import MadPlane
    from softhca.fabric.manager.managed_fabric import ManagedFabric

STEPS_A_TURN = 4
"""Rounds of datagrams of the fabric's own managers before the programs have their turn."""
LONGEST_S = 3600.0


class Timed(Protocol):
    """What has something to do when time has come."""

    @property
    def next_deadline_ns(self) -> int:
        """When that is."""

    def expire(self, now: int) -> None:
        """Do what is due."""


class FabricLoop:
    """Serves the descriptors that are registered by `watch`, and ``plane``: traps or frames that are due, and
    the managers of ``managed``, which has the same plane.  ``clock`` gives nanoseconds, and begins with the
    time of ``managed``.

    ``timed`` are asked when they have something to do; each of ``flushes`` is called at the end of a turn.
    """

    def __init__(
        self, plane: MadPlane | EthernetPlane, clock: Callable[[], int], managed: ManagedFabric | None = None
    ) -> None:
        self.plane = plane
        self.clock = clock
        self.managed = managed
        self.timed: list[Timed] = []
        self.flushes: list[Callable[[], None]] = []
        self._busy = False
        self._poll = select.epoll()
        self._handlers: dict[int, tuple[Callable[[], None], Callable[[], None]]] = {}

    def watch(
        self, descriptor: int, readable: Callable[[], None], writable: Callable[[], None] = lambda: None
    ) -> None:
        """Call ``readable`` whenever a descriptor has something to read, and ``writable`` as `want` says."""
        self._poll.register(descriptor, select.EPOLLIN)
        self._handlers[descriptor] = readable, writable

    def want(self, descriptor: int, reads: bool, writes: bool) -> None:
        """What is waited for at a descriptor that is watched."""
        if descriptor in self._handlers:
            self._poll.modify(descriptor, reads * select.EPOLLIN | writes * select.EPOLLOUT)

    def forget(self, descriptor: int) -> None:
        """Watch a descriptor no more."""
        if self._handlers.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def turn(self, timeout_s: float | None = None) -> None:
        """Wait until something has come, or is due, and serve it."""
        wait_s = self._wait_s()
        if timeout_s is not None:
            wait_s = min(wait_s, timeout_s)
        for descriptor, events in self._poll.poll(min(max(wait_s, 0), LONGEST_S)):
            for kind, number in ((select.EPOLLOUT, 1), (~select.EPOLLOUT, 0)):
                handlers = self._handlers.get(descriptor)
                if events & kind and handlers is not None:
                    handlers[number]()
        now = self.clock()
        self._manage(now)
        for each in self.timed:
            if each.next_deadline_ns <= now:
                each.expire(now)
        for flush in self.flushes:
            flush()

    def _wait_s(self) -> float:
        if self._busy:
            return 0.0
        deadlines = [self.plane.next_deadline_ns, *(each.next_deadline_ns for each in self.timed)]
        if self.managed is not None:
            deadlines += [each.next_deadline_ns for each in self.managed.managers]
        return (min(deadlines) - self.clock()) / 1e9

    def _manage(self, now: int) -> None:
        """Let the managers work for a while, and send the traps that are due."""
        managed = self.managed
        if managed is None:
            self.plane.expire(now)
            return
        managed.now = max(managed.now, now)
        self._busy = all(managed.step() for _ in range(STEPS_A_TURN))
        if not self._busy:
            managed.run_until(now)

    def close(self) -> None:
        """Close the loop's own descriptor."""
        self._poll.close()
