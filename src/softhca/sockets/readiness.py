"""A descriptor that is readable and writable as a stream is, for select, poll, epoll and event loops.

It is one end of a socket pair.  A byte in it makes it readable; a full send buffer keeps it from being
writable.  Both states are level states: they hold until the stream changes.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading

_FILLER = bytes(2048)


class Readiness:
    """Any thread may call any method.  OSError EMFILE.

    Whether the descriptor blocks is the program's affair.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._program, self._driver = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._program.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        self._readable, self._writable = False, True

    def replace(self, fd: int) -> None:
        """Have the number ``fd`` stand for this descriptor from here on."""
        os.dup2(self._program.fileno(), fd, inheritable=os.get_inheritable(fd))

    def set(self, readable: bool, writable: bool) -> None:
        """Be so."""
        with self._lock, contextlib.suppress(OSError):
            if readable != self._readable:
                self._readable = readable
                if readable:
                    self._driver.send(b"!", socket.MSG_DONTWAIT)
                else:
                    self._empty(self._program)
            if writable != self._writable:
                self._writable = writable
                if writable:
                    self._empty(self._driver)
                else:
                    self._fill()

    def _fill(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                self._program.send(_FILLER, socket.MSG_DONTWAIT)

    @staticmethod
    def _empty(end: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while end.recv(65536, socket.MSG_DONTWAIT):
                pass

    def close(self) -> None:
        """Close it; numbers that stand for it stay open, and are readable."""
        with self._lock:
            self._program.close()
            self._driver.close()
