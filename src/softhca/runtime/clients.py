"""Other processes that use an adapter which is embedded in this one: its *clients*.

Two processes that open one device share it, as they share a NIC.  Where the adapter lives in the first one,
that one listens at the name by which an adapter process would be found (`listening_name`), and the others
attach to it as to an adapter process: the same messages, rings and checks (`applications`), and the same
mistrust.  So a process needs no adapter process as long as it is alone, and what it does for itself stays as
fast as without clients; one that nobody joins pays for a listening socket.

Whoever drives the engine serves the clients, too: a program's thread that polls, one that waits, or the
background thread.  Each round serves their rings, and ends with a `turn`.  Before a thread sleeps it raises
the clients' sleep flags (`arm_wakeup`), so that a client's doorbell wakes it by the client's wake socket.
All calls are made under the engine's lock.

The adapter is this process's: when the process ends, its clients are told that their device has failed
(IBV_EVENT_DEVICE_FATAL).  One that ends in order waits for clients that are about to end, too (`wait_left`).
"""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

from softhca.machine.processor import Readable
from softhca.runtime import messages
from softhca.runtime.application import Application
from softhca.runtime.applications import Applications
from softhca.runtime.sleeper import NEVER

if TYPE_CHECKING:
    from softhca.adapter.engine import Adapter
    from softhca.runtime.loop import EngineLoop

LOOK_NS = 1_000_000
"""How often an engine that is driven looks whether somebody comes."""

CONTROL_NS = 200_000
"""The same, for what clients ask for over their sockets, while there are some."""


class Clients(Applications):
    """Serves ``adapter`` of this process to others that connect to ``path``; arguments as `Applications`.

    ``unused``: the last client has left since this was last set to False.
    """

    def __init__(
        self, adapter: Adapter, loop: EngineLoop, path: str, bound: socket.socket | None = None
    ) -> None:
        super().__init__(adapter, loop, path, bound)
        self.unused = False
        self._sleepers = 0
        self._told = 0
        self._look_ns = 0
        self._left = threading.Event()
        self._left.set()
        self._closed = False
        # asked in rounds, so they keep the interpreter lock
        self._anything = Readable(self._epoll.fileno())
        self._anybody_ended = Readable(self._pidfds.fileno())
        loop.clients = self

    def fileno(self) -> int:
        """Readable when there is something to serve."""
        return self._epoll.fileno()

    @property
    def present(self) -> bool:
        """Whether somebody is connected."""
        return bool(self._applications)

    # parts of a round

    def dismiss_ended(self) -> None:
        """Detach every client whose process has ended, before anything else: its number may be another's."""
        if self._anybody_ended():
            self._dismiss_ended()

    def turn(self, now: int) -> bool:
        """At the end of a round, when what clients have posted has gone: tell of events, and serve sockets,
        now and then.  Whether clients were served once more.
        """
        self.notify()
        if now >= self._look_ns:
            if self._accept_after_ns or self._anything():
                self._serve_descriptors(0)
            self._look_ns = now + (CONTROL_NS if self.loop.attached else LOOK_NS)
            # alone, not even the look is worth a call
            self.loop.clients_ns = 0 if self.loop.attached else self._look_ns
        return bool(self._sleepers and self._raise_flags() and self._serve_again(now))

    def _serve_again(self, now: int) -> bool:
        """A flag has been raised again, for a thread that still sleeps: serve whoever rang before that."""
        served = self.loop.serve_hosts(now)
        if served:
            self.loop.transmit(now)
            self.notify()
        return served

    def notify(self) -> None:
        """Wake the clients that have new events."""
        events = self.loop.sleeper.events
        if events != self._told:
            self._told = events
            self._notify_hosts()

    def _notify_hosts(self) -> None:
        for number in self.adapter.take_notifications():
            wake_socket = self._hosts.get(number)
            if wake_socket is not None:  # else a host of this process
                wake_socket.wake()

    # sleeping

    def arm_wakeup(self, now: int, leading: bool) -> bool:
        """A thread is about to sleep: have clients wake it.  False, and it must not, where one has rung, or
        where it is the background thread (not ``leading``) and the last client has left.
        """
        self._sleepers += 1
        self._raise_flags()
        self.dismiss_ended()
        # behind the flags: whoever rang before they could be seen is served now
        rang = self.loop.attached and self.loop.serve_hosts(now)
        self.notify()
        if rang or (self.unused and not leading):
            self.disarm_wakeup()
            return False
        self.sleeps += 1
        return True

    def disarm_wakeup(self) -> None:
        """That thread is awake.  Another one may still sleep: then `turn` sees to it that it is woken."""
        self._sleepers -= 1
        self._look_ns = self.loop.clients_ns = 0
        if not self._sleepers:
            self._lower_flags()

    def _raise_flags(self) -> bool:
        """Raise all flags; whether one was down."""
        attached = [each for each in self._applications.values() if each.memory is not None]
        return any([each.raise_flag() for each in attached])

    def _lower_flags(self) -> None:
        for application in self._applications.values():
            if application.memory is not None:
                application.lower_flag()

    def deadline(self) -> int:
        """Until when a thread may sleep that serves clients."""
        return self._accept_after_ns or NEVER

    # who comes and goes

    def _admit(self, control: socket.socket) -> None:
        super()._admit(control)
        if self._applications:
            self._left.clear()
            self.loop.attached = True

    def _dismiss(self, application: Application) -> None:
        super()._dismiss(application)
        if not self._applications:
            self.loop.attached = False
            self.unused = True
            self._left.set()

    def wait_left(self, limit_s: float) -> bool:
        """Wait until nobody is connected, up to ``limit_s``; without the engine's lock."""
        return self._left.wait(limit_s)

    def close(self) -> None:
        """Let all clients go and close what is open; may be called again."""
        if self._closed:
            return
        self._closed = True
        self.loop.clients = None  # type: ignore[assignment]
        for application in list(self._applications.values()):
            self._dismiss(application)
        self.loop.attached = False
        self._close_descriptors()

    def forget(self) -> None:
        """In a forked child: close what is this process's, touch nothing that is shared."""
        if self._closed:
            return
        self._closed = True
        self.loop.clients = None  # type: ignore[assignment]
        self.loop.attached = False
        for application in self._applications.values():
            for end in (application.control, application.wake_socket, *application.channels.values()):
                if end is not None:
                    end.close()
            passed = application.passed.values()
            messages.close_all([*passed, *([application.pidfd] if application.pidfd >= 0 else [])])
        self._close_descriptors()
