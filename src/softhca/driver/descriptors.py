"""Descriptors that are readable while events are queued, for programs that wait by select, epoll or asyncio.

A descriptor is one end of a socket pair.  A message stands in it for each event that is queued, so that it
is readable while there is one, and each further event is an edge for who polls edge-triggered.  A program
polls it and takes events by the verbs; it reads nothing from it.  A program that makes it non-blocking
(``os.set_blocking``) gets EAGAIN from the verbs where they would wait, as with the kernel's.
"""

from __future__ import annotations

import os
import socket
import threading

from softhca.machine.signals import suppressed

_MESSAGE = b"!"


class EventDescriptor:
    """Any thread may call any method.  OSError where there are no more descriptors."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._program, self._driver = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)

    def fileno(self) -> int:
        """The program's end; −1 once it is closed."""
        return self._program.fileno()

    @property
    def blocking(self) -> bool:
        """Whether the program waits where there is no event."""
        fd = self._program.fileno()
        return fd < 0 or os.get_blocking(fd)

    def queued(self) -> None:
        """An event more is queued.  Where no message more fits it is readable already."""
        with self._lock, suppressed(OSError):
            self._driver.send(_MESSAGE, socket.MSG_DONTWAIT)

    def empty(self) -> None:
        """No event is queued any more."""
        with self._lock, suppressed(OSError):
            while True:
                self._program.recv(1, socket.MSG_DONTWAIT)

    def close(self) -> None:
        """Close it; may be called again."""
        with self._lock:
            self.abandon()

    def abandon(self) -> None:
        """`close`, in a forked child, where another thread may hold the lock for ever."""
        self._program.close()
        self._driver.close()
