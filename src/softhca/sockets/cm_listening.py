"""Listening by the connection manager alone: no TCP connection belongs to what is accepted.

A socket that listens so is bound in the kernel, so that nobody else has its port, and does not listen there:
peers that know TCP alone are refused.  Its number stands for a descriptor that is readable while connections
wait.
"""

from __future__ import annotations

import errno
import os
import socket as kernel
import threading
import time
import weakref
from collections import deque
from typing import Any

from softhca.driver.rdmacm.addresses import of_gid
from softhca.machine.condition import Condition
from softhca.machine.kernel_sockets import KernelSocket
from softhca.machine.signals import raised_by_handler
from softhca.sockets import requests
from softhca.sockets.connecting import any_like, mapped
from softhca.sockets.listening import Key, Listener
from softhca.sockets.port_lookup import PortAdvertisement
from softhca.sockets.protocol import ProtocolError
from softhca.sockets.readiness import Readiness
from softhca.sockets.settings import Settings
from softhca.sockets.stream import Stream

MOST_BACKLOG = 1024


class CmServed:
    """What one listening socket is, with its duplicates.  ``tcp`` is a duplicate of its kernel's socket.
    PyverbsError, DriverError, OSError where that cannot be.
    """

    alone = True

    def __init__(self, one: KernelSocket, settings: Settings, backlog: int) -> None:
        self.settings = settings
        self.closed = False
        self._backlog = max(1, min(backlog, MOST_BACKLOG))
        self._users = 1
        self._news_lock = threading.RLock()
        self._news = Condition(self._news_lock)
        self._ready: deque[tuple[Key, Stream, bytes]] = deque()
        self._advertisements: list[PortAdvertisement] = []
        self.tcp = KernelSocket(
            one.family, one.type, one.proto, fileno=os.dup(KernelSocket.fileno(one))
        )  # fmt: skip
        try:
            self._readiness = Readiness()
        except BaseException:
            self.tcp.close()
            raise
        self._listener: Listener | None = None
        try:
            host, port = self.tcp.getsockname()[:2]
            if not port:
                self.tcp.bind(("0.0.0.0" if one.family == kernel.AF_INET else "::", 0))
                host, port = self.tcp.getsockname()[:2]
            self.addresses = [mapped(str(host))]
            with requests.LOCK:
                self._listener = requests.listener_of(Listener, port)
                self._listener.join(self)
                for each in self.addresses:
                    advertisement = PortAdvertisement(port, each, self._listener.gids, self.close)
                    self._advertisements.append(advertisement)
            self._readiness.set(False, False)
            self._readiness.replace(KernelSocket.fileno(one))
            _served[self._readiness.inode] = self
        except BaseException:  # also where another thread has closed the socket meanwhile
            self.close()
            raise

    def listens(self) -> bool:
        """Whether it does."""
        return not self.closed

    def serves(self, address: bytes) -> bool:
        """Whether connections to ``address`` come here."""
        return address in self.addresses or any_like(address) in self.addresses

    def join(self) -> CmServed:
        """One user more."""
        with self._news_lock:
            self._users += 1
        return self

    def leave(self) -> None:
        """One user less; the last one ends it."""
        with self._news_lock:
            self._users -= 1
            last = not self._users
        if last:
            self.close()

    def add(self, key: Key, stream: Stream, towards: bytes) -> None:
        """``stream`` waits to be accepted; `ProtocolError`: too many do."""
        with self._news_lock:
            if self.closed or len(self._ready) >= self._backlog:
                raise ProtocolError("too many connections wait to be accepted")
            self._ready.append((key, stream, towards))
            self._readiness.set(True, False)
            self._news.notify()

    def take_back(self, host: bytes, port: int) -> None:
        """A connection could not be answered: forget it."""
        with self._news_lock:
            self._ready = deque(each for each in self._ready if each[0] != (host, port))
            self._readiness.set(bool(self._ready), False)

    def take(self, limit: tuple[float | None, bool]) -> tuple[Stream, Any, Any]:
        """The next connection, this side's name and the peer's.  BlockingIOError, TimeoutError, OSError
        EINVAL where nobody listens any more.
        """
        with self._news_lock:
            try:
                self._await(*limit)
            except BaseException:
                self._news.notify()  # it may have been this one that was woken
                raise
            key, stream, towards = self._ready.popleft()
            self._readiness.set(bool(self._ready), False)
            port = self.tcp.getsockname()[1]
            return stream, self._name(towards, port), self._name(*key)

    def _await(self, deadline_s: float | None, blocking: bool) -> None:
        """With the lock held: wait for a connection."""
        while not self._ready:
            if self.closed:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            if not blocking:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                raise TimeoutError("timed out")
            self._news.wait(left_s)

    def _name(self, address: bytes, port: int) -> Any:
        host = of_gid(address).host
        return (host, port) if self.tcp.family == kernel.AF_INET else (host, port, 0, 0)

    def close(self) -> None:
        """Listen no more; who waits to be accepted is refused.  May be called again."""
        with requests.LOCK, self._news_lock:
            if self.closed:
                return
            self.closed = True
            waiting = [stream for _, stream, _ in self._ready]
            self._ready.clear()
            self._news.notify_all()
            for sign in self._advertisements:
                sign.close()
            if self._listener is not None:
                self._listener.leave(self)
            _served.pop(self._readiness.inode, None)
        for stream in waiting:
            stream.refuse()
        self._readiness.close()
        self.tcp.close()

    def abandon(self) -> None:
        """In a forked child: it is the parent's."""
        self.closed = True
        self._news_lock = threading.RLock()
        self._news = Condition(self._news_lock)
        self._readiness.abandon()
        self.tcp.close()


_served: weakref.WeakValueDictionary[int, CmServed] = weakref.WeakValueDictionary()
"""By the descriptor's inode: a duplicate of the descriptor accepts the same connections."""


def _found(number: int) -> CmServed | None:
    try:
        return _served.get(os.fstat(number).st_ino)
    except OSError as error:
        if raised_by_handler(error):
            raise
        return None


def serving(number: int) -> CmServed | None:
    """The one that a descriptor stands for, with one user more."""
    found = _found(number)
    return None if found is None else found.join()


def kind_of(number: int) -> tuple[int, int, int] | None:
    """Family, type and protocol of what a descriptor stands for, where it is one of these."""
    found = _found(number)
    return None if found is None else (found.tcp.family, found.tcp.type, found.tcp.proto)


def _after_fork() -> None:
    for each in list(_served.values()):
        each.abandon()
    _served.clear()


os.register_at_fork(after_in_child=_after_fork)
