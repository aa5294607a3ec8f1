"""The adapter in a process of its own: serves every application that attaches, ends when the last one leaves.

Theory of operation.  The process has one thread and one loop.  As long as there is traffic it spins
(`served_turns`): doorbells of all hosts, packets, time-outs; the applications touch shared memory only.
When nothing has happened for the length of a spin it raises every host's sleep flag, polls once more (a
doorbell may have been rung before the flag could be seen), and blocks on the link and the applications'
sockets until the engine's next deadline.  An application that rings a doorbell lowers the flag and, if it was
raised, wakes it: one system call for each sleep, not for each doorbell.

What applications ask for over their sockets is `applications`' part.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Sequence

from softhca.adapter.engine import Adapter
from softhca.driver.poll_back_off import PollBackOff
from softhca.links.link import Link
from softhca.runtime import messages
from softhca.runtime.application import Application
from softhca.runtime.applications import (
    ACCEPT_RETRY_NS,
    MAX_APPLICATIONS,
    MAX_PASSED,
    Applications,
)
from softhca.runtime.assembly import descriptors_of
from softhca.runtime.clock import now_ns
from softhca.runtime.loop import NEVER, SPIN_NS, EngineLoop
from softhca.runtime.same_host import SameHost
from softhca.runtime.served_turns import ServedTurns
from softhca.runtime.sleeper import timeout_s

__all__ = ["ACCEPT_RETRY_NS", "CONTROL_EVERY_TURNS", "MAX_APPLICATIONS", "MAX_PASSED", "AdapterServer"]

CONTROL_EVERY_TURNS = 32


class AdapterServer(Applications):
    """Serves ``adapter`` over its ports' ``links`` to the application behind ``first`` and to those that
    connect to ``path``.

    ``stay``: go on when the last application has left, until ``stop`` is called.  ``same_host``: what the
    adapter shares with others on this host; packets to and from these need not go by the links.  ``bound``: a
    socket that has the name ``path`` already.  ``left_alone`` is called, once, when the process behind
    ``first`` has gone and others have not.
    """

    def __init__(self, adapter: Adapter, links: Sequence[Link], first: socket.socket | None = None,
                 path: str = "", stay: bool = False, same_host: SameHost | None = None,
                 bound: socket.socket | None = None, left_alone: Callable[[], object] = lambda: None) -> None:
        super().__init__(adapter, EngineLoop(adapter, links, lambda: None, sees_polls=False), path, bound)
        self.links = tuple(links)
        self.same_host = same_host
        if same_host is not None:
            self.loop.share(same_host)
        self.back_off = self.loop.back_off = PollBackOff(limit_ns=SPIN_NS)
        self.stay = stay
        self._stopping = False
        self._stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        # Between a stop and the end of serving; a signal handler may enter it again.
        self._stop_lock = threading.RLock()
        self._turns = ServedTurns(
            self.loop, self.back_off, self._pidfds.fileno(), self._dismiss_ended, self._notify_hosts,
            CONTROL_EVERY_TURNS, now_ns,
        )
        self._epoll.register(self._stop, select.EPOLLIN)
        for each in self.links:
            for descriptor in descriptors_of(each):
                self._epoll.register(descriptor, select.EPOLLIN)
        if same_host is not None:
            self._epoll.register(same_host.fileno(), select.EPOLLIN)
        self._left_alone = left_alone
        self._starter = 0
        if first is not None:
            self._starter = messages.peer_of(first)[0]
            self._admit(first)

    def serve(self) -> None:
        """Serve until the last application has left (or, with ``stay``, until ``stop``), or until the adapter
        has failed: that is logged, and ``loop.dead`` is true.
        """
        self.back_off.worked(now_ns())
        try:
            while self._goes_on():
                if self._turns.run():
                    self._sleep()
                    self.back_off.worked(now_ns())
                else:
                    self._serve_descriptors(0)
        except Exception as error:
            self.loop.fail(error)
        finally:
            self.close()

    def _goes_on(self) -> bool:
        """Whether there is an application to serve, and the engine works."""
        return bool(self._applications or self.stay) and not self._stopping and not self.loop.dead

    def stop(self) -> None:
        """End ``serve`` soon; from a signal handler or another thread, at any time."""
        self._stopping = True
        with self._stop_lock:
            if self._stop >= 0:
                os.eventfd_write(self._stop, 1)

    def _turn(self, now: int) -> bool:
        """Doorbells and commands, packets, time-outs; True when there was anything."""
        return bool(self._turns.turn(now))

    def _sleep(self) -> None:
        """Block until there is something to do."""
        attached = [each for each in self._applications.values() if each.memory is not None]
        for application in attached:
            application.raise_flag()
        now = now_ns()
        if not self._turn(now) and self._goes_on():  # that turn may have detached the last application
            self._block(now)
        for application in attached:
            if application.memory is not None:
                application.lower_flag()

    def _block(self, now: int) -> None:
        """Sleep until a deadline, a packet, a kick or a request comes; not when a peer on this host was
        first."""
        if self.same_host is not None and not self.same_host.arm_wakeup():
            return
        self.sleeps += 1
        until_ns = self._accept_after_ns or NEVER
        wakeup_ns = self.loop.sleeper.begin_sleep(self.loop.deadline(), until_ns, False)
        try:
            self._serve_descriptors(timeout_s(wakeup_ns, now))
        finally:
            if self.same_host is not None:
                self.same_host.disarm_wakeup()

    def _dismiss(self, application: Application) -> None:
        """An application has left: free what it owned."""
        super()._dismiss(application)
        if self._starter and self._applications and not any(
            other.pid == self._starter for other in self._applications.values()
        ):
            self._starter = 0
            self._left_alone()

    def close(self) -> None:
        """Detach every application and close all descriptors."""
        for application in list(self._applications.values()):
            self._dismiss(application)
        self.loop.send_rest()
        self._close_descriptors()
        with self._stop_lock:
            stop, self._stop = self._stop, -1
        os.close(stop)
        if self.same_host is not None:
            self.same_host.close()
        for link in self.links:
            link.close()
