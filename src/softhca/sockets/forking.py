"""Connections that a server has accepted and leaves to a child which it forks then.

A stream belongs to its process.  So what a thread has accepted last, and nobody has used yet, becomes the
kernel's where that thread forks: a descriptor that a `Relay` of the parent serves, whoever of both reads it.
"""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from softhca.machine.signals import suppressed
from softhca.sockets.hub import before_fork


class Accepted(Protocol):
    """A socket that may be left to a child."""

    def carry(self) -> None:
        """Have its descriptor carried, unless it is in use.  OSError EMFILE, EAGAIN: then it stays."""
        ...


_last = threading.local()


def accepted(socket: Accepted) -> None:
    """This thread has accepted a connection by RDMA."""
    _last.socket = weakref.ref(socket)


def _before_fork() -> None:
    found: weakref.ref[Accepted] | None = getattr(_last, "socket", None)
    _last.socket = None
    socket = None if found is None else found()
    if socket is not None:
        with suppressed(OSError):
            socket.carry()


before_fork.append(_before_fork)
