"""Events of identifiers, and the channels on which a program waits for them.

What the connection manager says of an identifier's connection is queued on the identifier's channel as it
came, and becomes an event when the program takes it: only then queue pairs change their states and answers
are sent, in the program's own thread, as with librdmacm.

A channel may have identifiers on several devices.  Who waits drives the device where there is one; where
there are more, or a descriptor is asked for, a thread of each device waits in the program's stead.
"""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from softhca.driver.descriptors import EventDescriptor
from softhca.driver.errors import DriverError, refusal
from softhca.driver.forks import heed_forks
from softhca.machine.condition import Condition

if TYPE_CHECKING:
    from softhca.driver.device import DeviceDriver
    from softhca.driver.rdmacm.identifier import Identifier

ADDR_RESOLVED, ADDR_ERROR, ROUTE_RESOLVED, ROUTE_ERROR, CONNECT_REQUEST, CONNECT_RESPONSE = range(6)
CONNECT_ERROR, UNREACHABLE, REJECTED, ESTABLISHED, DISCONNECTED, DEVICE_REMOVAL = range(6, 12)
MULTICAST_JOIN, MULTICAST_ERROR, ADDR_CHANGE, TIMEWAIT_EXIT, ADDRINFO_RESOLVED, ADDRINFO_ERROR = range(12, 18)


@dataclass(frozen=True)
class ConnectionParameters:
    """What a connection is asked for or accepted with (``rdma_conn_param``); `MOST` leaves a number of READs
    and atomics to the devices.  ``qp_num`` counts where the identifier has no queue pair of its own.
    """

    private_data: bytes = b""
    responder_resources: int = 0xFF
    initiator_depth: int = 0xFF
    flow_control: int = 0
    retry_count: int = 7
    rnr_retry_count: int = 7
    srq: int = 0
    qp_num: int = 0


MOST = 0xFF


@dataclass(frozen=True)
class DatagramParameters:
    """How datagrams reach a peer or a group (``rdma_ud_param``): address vector, queue pair, Q_Key."""

    vector: dict[str, Any]
    qp_num: int
    qkey: int


@dataclass(frozen=True)
class IdentifierEvent:
    """``kind`` (``rdma_cm_event_type``) of ``identifier``, which is new where it asks for a connection of
    ``listener``.

    ``status``: 0, a negative errno, or what the peer gave as its reason.  ``private_data`` are the peer's,
    as many bytes as its message has room for.
    """

    kind: int
    identifier: Identifier
    listener: Identifier | None = None
    status: int = 0
    private_data: bytes = b""
    connection: ConnectionParameters | None = None
    datagram: DatagramParameters | None = None


Notice = Callable[[], IdentifierEvent | None]
"""Makes an event of what has happened, when the program takes it; None: it is none for the program."""


class EventChannel:
    """Any thread may call any method."""

    def __init__(self) -> None:
        self._make_locks()
        self._notices: deque[tuple[Identifier, Notice]] = deque()
        self._devices: dict[DeviceDriver, dict[Identifier, None]] = {}
        self._lost: set[DeviceDriver] = set()
        self._descriptor: EventDescriptor | None = None
        self.closed = False
        self.on_post: Callable[[], object] | None = None
        """Called, when set, by the thread that has queued an event, which must not wait in it."""
        heed_forks(self)

    def _make_locks(self) -> None:
        self._lock = threading.RLock()
        self._telling = threading.RLock()
        self._news = Condition(self._lock)

    def inherited(self) -> None:
        """This is a forked child: what has happened, and what stands in the descriptor, is the parent's."""
        self._make_locks()
        self._notices.clear()
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            descriptor.abandon()

    # for identifiers

    def attach(self, device: DeviceDriver, identifier: Identifier) -> None:
        """``identifier``, of this channel, is on ``device``."""
        with self._lock:
            self._devices.setdefault(device, {})[identifier] = None
            self._news.notify_all()
            watched = self._descriptor is not None or len(self._devices) > 1
            lost = device in self._lost
        if lost:
            identifier.lost()
        elif watched:
            self._watch()

    def detach(self, device: DeviceDriver, identifier: Identifier) -> None:
        """No more."""
        with self._lock:
            users = self._devices.get(device, {})
            users.pop(identifier, None)
            if not users:
                self._devices.pop(device, None)
                self._lost.discard(device)
            self._news.notify_all()
        if not users:
            device.events.unwatch(self._tell_lost)

    def post(self, identifier: Identifier, notice: Notice, here: bool = True) -> None:
        """Queue what has happened to ``identifier``.  ``here``: by a call of the program, so that threads
        that wait at devices are to be woken; else who waits there finds it.
        """
        with self._lock:
            self._notices.append((identifier, notice))
            if self._descriptor is not None:
                self._descriptor.queued()
            self._news.notify_all()
            devices = list(self._devices) if here else []
        for device in devices:
            device.wake_waiters()
        if (tell := self.on_post) is not None:  # once: another thread may take it away
            tell()

    def take_back(self, identifier: Identifier, notice: Notice) -> None:
        """Take back one thing that is queued of ``identifier``, if it still is."""
        with self._lock, contextlib.suppress(ValueError):
            self._notices.remove((identifier, notice))
            self._settle()

    def withdraw(self, identifier: Identifier) -> list[Notice]:
        """Take back all that is queued of ``identifier``."""
        with self._lock:
            found = [notice for each, notice in self._notices if each is identifier]
            self._notices = deque(pair for pair in self._notices if pair[0] is not identifier)
            self._settle()
        return found

    # for programs

    def fileno(self) -> int:
        """A descriptor that is readable while events wait; made by the first call.  DriverError EBADF where
        the channel is closed, else as `EventRouter.descriptor`.
        """
        with self._lock:
            self.check()
            if self._descriptor is None:
                try:
                    self._descriptor = EventDescriptor()
                except OSError as error:
                    raise refusal(error, "making a descriptor") from None
                for _ in self._notices:
                    self._descriptor.queued()
            descriptor = self._descriptor
        self._watch()
        return descriptor.fileno()

    def next_event(self, timeout_s: float | None = None) -> IdentifierEvent | None:
        """The next event; None: none has come within ``timeout_s`` (None: no limit), or none is there and the
        descriptor is non-blocking.  DriverError EBADF: the channel was closed; EIO: the adapters of all its
        devices have gone, and each identifier has been told so.
        """
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self._lock:
                self.check()
                blocking = self._descriptor is None or self._descriptor.blocking
            left_s = 0.0 if not blocking else None if end_s is None else max(end_s - time.monotonic(), 0.0)
            notice = self._take(left_s)
            if notice is None:
                if left_s is not None and (not blocking or left_s == 0.0):
                    return None
                continue
            event = notice()
            if event is not None:
                return event

    def close(self) -> None:
        """End all waits; may be called again.  Identifiers that use it are the program's to close before."""
        with self._lock:
            self.closed = True
            descriptor, self._descriptor = self._descriptor, None
            self._notices.clear()
            self._news.notify_all()
            devices = list(self._devices)
        if descriptor is not None:
            descriptor.close()
        for device in devices:
            device.events.unwatch(self._tell_lost)
            device.wake_waiters()

    def check(self) -> None:
        """DriverError EBADF where it is closed."""
        if self.closed:
            raise DriverError(errno.EBADF, "the event channel is closed")

    def _pop(self) -> Notice | None:
        with self._lock:
            if not self._notices:
                return None
            _, notice = self._notices.popleft()
            self._settle()
            return notice

    def _settle(self) -> None:
        if not self._notices and self._descriptor is not None:
            self._descriptor.empty()

    def _take(self, timeout_s: float | None) -> Notice | None:
        """The next notice; None after ``timeout_s``, or to look again."""
        notice = self._pop()
        if notice is not None:
            return notice
        self._tell_lost()
        with self._lock:
            devices = self._living()
            if len(devices) != 1:
                if not self._notices and not self.closed:
                    if self._devices and not devices:
                        raise DriverError(errno.EIO, "the adapter is gone")
                    if not any(device.lost for device in devices):
                        for device in devices:
                            device.session.check()
                        self._news.wait(timeout_s)
                return self._pop()
        (device,) = devices

        def ready() -> bool:
            return bool(self._notices) or self.closed or self._living() != devices

        try:
            device.wait_for(ready, timeout_s)
        except DriverError:
            if not device.lost:
                raise
            self._tell_lost()
        return self._pop()

    def _living(self) -> list[DeviceDriver]:
        """Also without the lock, while identifiers come and go: of a list that nobody changes."""
        return [device for device in list(self._devices) if device not in self._lost]

    def _tell_lost(self) -> None:
        """Tell the identifiers of devices whose adapters have gone, once; threads that wait in the program's
        stead call it, too.  They have been told when it returns.
        """
        with self._telling:
            with self._lock:
                found = [device for device in self._living() if device.lost]
                if not found:
                    return
                self._lost.update(found)
                told = {each: None for device in found for each in self._devices[device]}
                self._news.notify_all()
            for identifier in told:
                identifier.lost()

    def _watch(self) -> None:
        """Have threads that wait at the devices."""
        for device in list(self._devices):
            device.events.watch(self._tell_lost)
