"""What a connected socket has beside the kernel's, for all of its duplicates."""

from __future__ import annotations

import os
import select
import stat
import threading
import weakref
from typing import Any

from softhca.machine import deferred_signals
from softhca.machine.kernel_sockets import KernelSocket
from softhca.machine.signals import suppressed
from softhca.sockets.hub import HUB, SIDEBAND_EVENTS
from softhca.sockets.liveness import Liveness
from softhca.sockets.readiness import Readiness
from softhca.sockets.stream import Stream
from softhca.sockets.stream_parts import lingers_not

ABRUPT_S = 0.2
"""How long an abrupt close waits until the peer has been told; what was sent before is not waited for."""


class Upgrade:
    """What a connection has beside the kernel's: its stream, the TCP connection, and the descriptor.  Shared
    by all duplicates of a socket; closed with the last.  Where there is no TCP connection, ``tcp`` is a
    socket that has the options alone, and ``names`` are this side's address and the peer's.  ``readiness``
    is what the number stands for already, if for anything.
    """

    def __init__(
        self,
        stream: Stream,
        tcp: KernelSocket,
        names: tuple[Any, Any] | None = None,
        readiness: Readiness | None = None,
    ) -> None:
        self.stream = stream
        self.tcp = tcp
        self.names = names
        self.readiness = readiness or Readiness()
        _upgrades[self.readiness.inode] = self
        self.polled = self.carried = False
        self._users = 1
        self._lock = threading.RLock()
        try:
            if names is None:
                HUB.watch(tcp.fileno(), self._tcp_ended, SIDEBAND_EVENTS)
            else:
                HUB.start()
                stream.watch()
            self.liveness = Liveness(stream, tcp, names is not None)
        except BaseException:
            if names is None:
                HUB.forget(tcp.fileno())
            self.readiness.close()
            raise
        stream.on_stall = self.liveness.stalled
        _held.add(self)

    @property
    def shared(self) -> bool:
        """Whether several sockets have it."""
        return self._users > 1

    @property
    def own_name(self) -> Any:
        """This side's address."""
        return self.tcp.getsockname() if self.names is None else self.names[0]

    @property
    def peer_name(self) -> Any:
        """The peer's address."""
        return self.tcp.getpeername() if self.names is None else self.names[1]

    def set_options(self) -> None:
        """Options may have changed."""
        self.liveness.set_options()

    def take_error(self) -> int:
        """The errno of a failure that was not told yet, else 0."""
        return self.stream.take_error()

    def _changed(self) -> None:
        if self.readiness.set(self.stream.readable, self.stream.writable):
            self.stream.hand_over()

    def poll(self) -> None:
        """The program may wait for the descriptor from here on."""
        if not self.polled:
            self.polled = True
            self.stream.on_change = self._changed  # before that nobody asks
            with suppressed(OSError):
                self.stream.watch()
        self.stream.refresh()

    def _tcp_ended(self) -> None:
        with self._lock:
            number = self.tcp.fileno()
            if number < 0:
                return
            looking = select.poll()
            looking.register(number, SIDEBAND_EVENTS)
            if not looking.poll(0):
                return  # it was another one's, which had that number before
            HUB.forget(number)
        self.stream.peer_gone()

    def join(self) -> Upgrade:
        """One more user."""
        with self._lock:
            self._users += 1
        return self

    def leave(self, abruptly: bool | None) -> None:
        """One user less; None: ``abruptly`` where the program wants that (SO_LINGER)."""
        with deferred_signals.section():  # what was begun is ended, whatever interrupts the wait
            self._leave(lingers_not(self.tcp) if abruptly is None else abruptly)

    def _leave(self, abruptly: bool) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                return
        _upgrades.pop(self.readiness.inode, None)
        try:
            linger_s = self.stream.settings.linger_s
            with deferred_signals.waiting():
                self.stream.close(min(linger_s, ABRUPT_S) if abruptly else linger_s, abruptly)
        finally:
            self.stream.destroy()
            with self._lock:
                if self.tcp.fileno() >= 0:
                    HUB.forget(self.tcp.fileno())
                self.tcp.close()
            self.readiness.close()
            _held.discard(self)

    def drop(self) -> None:
        """The hub: a socket was dropped that was not closed, which closes it."""
        closing = threading.Thread(target=self.leave, args=(False,), name="softhca-close", daemon=True)
        try:
            closing.start()
        except RuntimeError:
            self.leave(True)

    def abandon(self) -> None:
        """In a forked child: the connection is the parent's, and ends when that one ends it; what is carried
        has a socket here that has the options alone.
        """
        self._lock = threading.RLock()
        self.readiness.abandon()
        if self.carried:
            with suppressed(OSError), KernelSocket(self.tcp.family, self.tcp.type) as options:
                os.dup2(options.fileno(), self.tcp.fileno(), inheritable=False)
                return
        self.tcp.close()


_held: set[Upgrade] = set()
"""All that have a user.  Else the cyclic garbage collector, which finalizes what it finds in any order, might
close the descriptors of one whose socket is to be closed by `Upgrade.drop`."""

_upgrades: weakref.WeakValueDictionary[int, Upgrade] = weakref.WeakValueDictionary()
"""By the descriptor's inode: a duplicate of the descriptor is a duplicate of the connection."""


def upgrade_of(number: int) -> Upgrade | None:
    """The one that a descriptor stands for, with one user more."""
    found = _upgrades.get(os.fstat(number).st_ino)
    return None if found is None else found.join()


def standing_for(number: int) -> Upgrade | None:
    """The one that a descriptor stands for; None of any other, also of one that is not open."""
    if not _upgrades:
        return None
    try:
        status = os.fstat(number)
    except OSError:
        return None
    # what is no socket has inodes of these numbers, too
    return _upgrades.get(status.st_ino) if stat.S_ISSOCK(status.st_mode) else None


def kind_of(number: int) -> tuple[int, int, int] | None:
    """Family, type and protocol of the connection that a descriptor stands for."""
    found = standing_for(number)
    return None if found is None else (found.tcp.family, found.tcp.type, found.tcp.proto)


def _after_fork() -> None:
    for each in list(_upgrades.values()):
        each.abandon()
    _upgrades.clear()


os.register_at_fork(after_in_child=_after_fork)
