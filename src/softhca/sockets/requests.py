"""Requests of the connection manager for a port number of this process, at all of its devices.

The hub's thread takes them, without the application, as a kernel answers.  One listener serves all sockets of
the process that have the port number, at whatever addresses.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from abc import ABC, abstractmethod
from typing import Any, Protocol, TypeVar

from softhca.driver.errors import DriverError
from softhca.driver.rdmacm import events
from softhca.driver.rdmacm.identifier import DEVICES
from softhca.driver.rdmacm.local_devices import LocalPort
from softhca.machine.signals import suppressed
from softhca.sockets.completion_thread import CompletionThread, completion_thread_of
from softhca.sockets.hub import HUB
from softhca.verbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel
from softhca.verbs.librdmacm_enums import RAI_NUMERICHOST, RAI_PASSIVE, rdma_port_space
from softhca.verbs.pyverbs_error import PyverbsError

TCP, UDP = int(rdma_port_space.RDMA_PS_TCP), int(rdma_port_space.RDMA_PS_UDP)
MOST = 256
"""Requests that may wait."""

FAILED = (PyverbsError, DriverError, OSError)
LOCK = threading.RLock()
"""Of `listeners`, and of what each serves."""
_listeners: dict[tuple[int, int], RequestListener] = {}


class Serves(Protocol):
    """What a listener serves."""

    def serves(self, address: bytes) -> bool:
        """Whether what comes to ``address`` comes here."""


Listening = TypeVar("Listening", bound="RequestListener")


class RequestListener(ABC):
    """Takes requests for ``port`` of the port space ``space`` until `close`, for what is in ``served``;
    ``places`` and ``gids`` are where.  PyverbsError, DriverError, OSError where that cannot be.
    """

    space = TCP

    def __init__(self, port: int) -> None:
        self.served: list[Any] = []
        self.places: list[LocalPort] = []
        self._port = port
        self._lock = threading.RLock()
        self._closed = False
        self._channel = CMEventChannel()
        self._listener: CMID | None = None
        self._fd = -1
        self._completion_threads: list[CompletionThread] = []
        try:
            self._listener = CMID(creator=self._channel, port_space=self.space)
            where = AddrInfo(
                src="::", src_service=str(port), port_space=self.space, flags=RAI_PASSIVE | RAI_NUMERICHOST
            )
            self._listener.bind_addr(where)
            self._listener.listen(MOST)
            self.places = places()
            self._completion_threads = [completion_thread_of(each.device) for each in self.places]
            self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            HUB.watch(self._fd, self._take)
            self._channel.channel.on_post = self._posted
            for each in self._completion_threads:
                each.start()
            self._posted()
            _listeners[self.space, port] = self
        except BaseException:
            self.close()
            raise

    @property
    def gids(self) -> list[bytes]:
        """Of the places."""
        return [each.gid for each in self.places]

    def _posted(self) -> None:
        """An event waits: have the hub take it."""
        with self._lock:
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)
        for each in self._completion_threads:
            each.hand_over()

    def _take(self) -> None:
        """The hub: take all events that there are."""
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._fd >= 0:
                os.eventfd_read(self._fd)
        while not self._closed:
            event = self._channel.channel.next_event(0)
            if event is None:
                return
            if event.kind == events.CONNECT_REQUEST:
                try:
                    self._requested(event)
                except BaseException:
                    self._posted()  # others' requests wait behind this one
                    raise

    def _requested(self, event: events.IdentifierEvent) -> None:
        made = CMEvent.of(event)
        try:
            cmid = CMID(creator=made, listen_id=self._listener)
        except FAILED:
            with suppressed(*FAILED):
                event.identifier.close()
            return
        try:
            self.requested(cmid, made)
        except BaseException:
            with suppressed(*FAILED):
                cmid.close()
            raise

    @abstractmethod
    def requested(self, cmid: CMID, event: CMEvent) -> None:
        """Answer a request, for which ``cmid`` was made."""

    def find(self, address: bytes) -> Any:
        """What serves ``address``, or None."""
        with LOCK:
            return next((each for each in self.served if each.serves(address)), None)

    def join(self, one: Serves) -> None:
        """Serve one more; with the lock."""
        self.served.append(one)

    def leave(self, one: Serves) -> None:
        """One less; with the last it closes.  With the lock."""
        self.served.remove(one)
        if not self.served:
            self.close()

    def close(self) -> None:
        """Take none any more.  May be called again."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            fd, self._fd = self._fd, -1
        with LOCK:
            if _listeners.get((self.space, self._port)) is self:
                del _listeners[self.space, self._port]
        if fd >= 0:
            HUB.forget(fd)
            os.close(fd)
        with contextlib.suppress(PyverbsError, DriverError):
            if self._listener is not None:
                self._listener.close()
        self._channel.close()


def as_os_error(error: Exception) -> OSError:
    """What programs that know sockets alone are told of one of `FAILED`."""
    if isinstance(error, OSError):
        return error
    code = getattr(error, "errno" if isinstance(error, DriverError) else "error_code", None)
    return OSError(code if isinstance(code, int) and code > 0 else errno.EIO, str(error))


def listener_of(kind: type[Listening], port: int) -> Listening:
    """The one of a port, made by the first call; with the lock."""
    found = _listeners.get((kind.space, port))
    return found if isinstance(found, kind) else kind(port)


def places() -> list[LocalPort]:
    """Where all devices of this process are, which the listener keeps open; OSError ENODEV."""
    found = DEVICES.all()
    for place in found:
        DEVICES.release(place.device)
    if not found:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
    return found


def _after_fork() -> None:
    """In a forked child: nothing is served."""
    global LOCK
    LOCK = threading.RLock()
    _listeners.clear()


os.register_at_fork(after_in_child=_after_fork)
