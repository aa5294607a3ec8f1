"""A descriptor that is readable and writable as a stream is, for select, poll, epoll and event loops.

It is one end of a pair of packet sockets.  A packet of no bytes in it makes it readable: who reads the
descriptor itself is told of an end, and given no byte that nobody has sent.  Some bytes of its own are under
way for ever; whether it is writable is a matter of how large its send buffer is said to be.  Both are levels:
they hold until the stream changes.  Nobody can write to it: EPIPE.  ``os.sendfile`` to it is EINVAL, as to
any descriptor with O_APPEND, and programs that try it send by other means: EPIPE they would take for the
peer's end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading

from softhca.machine.signals import suppressed

_FILLER = bytes(2048)
_SMALL, _LARGE = 1, 1 << 16


class Readiness:
    """Any thread may call any method.  OSError EMFILE.

    Whether the descriptor blocks is the program's affair.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._program, self._driver = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._program.send(_FILLER)
        self._program.shutdown(socket.SHUT_WR)
        flags = fcntl.fcntl(self._program, fcntl.F_GETFL)
        fcntl.fcntl(self._program, fcntl.F_SETFL, flags | os.O_APPEND)
        self._readable, self._writable = False, True
        self._say(_LARGE)

    @property
    def inode(self) -> int:
        """What tells it, and its duplicates, from all other descriptors."""
        return os.fstat(self._program.fileno()).st_ino

    def replace(self, fd: int) -> None:
        """Have the number ``fd`` stand for this descriptor from here on; it blocks as what it stood for."""
        os.set_blocking(self._program.fileno(), os.get_blocking(fd))
        os.dup2(self._program.fileno(), fd, inheritable=os.get_inheritable(fd))

    def set(self, readable: bool, writable: bool) -> bool:
        """Be so; whether something has come about that somebody may wait for."""
        news = False
        with self._lock, suppressed(OSError):
            if readable != self._readable:
                self._readable = news = readable
                if readable:
                    self._driver.send(b"", socket.MSG_DONTWAIT)
                else:
                    self._empty()
            if writable != self._writable:
                self._writable = writable
                news = news or writable
                self._say(_LARGE if writable else _SMALL)
        return news

    def _say(self, length: int) -> None:
        self._program.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, length)

    def _empty(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._program.recv(1, socket.MSG_DONTWAIT)  # the one packet, unless the program has read it

    def abandon(self) -> None:
        """In a forked child, where another thread may have held the lock."""
        self._lock = threading.RLock()

    def let_go(self) -> None:
        """Keep no reference to the descriptor: where no number stands for it any more, no epoll has it."""
        with self._lock:
            self._program.close()

    def close(self) -> None:
        """Close it; numbers that stand for it stay open, and are readable."""
        with self._lock:
            self._program.close()
            self._driver.close()
