"""The connections of this process on one port of a device: which identifier an event is of.

All identifiers of a port share one channel of the adapter's connection manager.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

from softhca.driver.connections import CM_REQUEST, CM_SIDR_REQUEST, CmChannel, CmEvent
from softhca.driver.device import DeviceDriver
from softhca.driver.errors import DriverError
from softhca.driver.forks import heed_forks

ENTRIES = 1024
_MOST_UNCLAIMED = 1024

Receiver = Callable[[CmEvent], None]


class Taker(Protocol):
    """Who takes requests for a service ID, which it may share with others that requests tell from it."""

    def is_for(self, event: CmEvent) -> bool:
        """Whether a request is for it."""
        ...

    def is_apart(self, other: Taker) -> bool:
        """Whether no request can be for it and for ``other``, too."""
        ...

    def take(self, event: CmEvent) -> None:
        """A request."""
        ...


class CmPort:
    """``channel`` is the adapter's; ids are its numbers."""

    def __init__(self, device: DeviceDriver, port: int) -> None:
        self._lock = threading.RLock()
        self._receivers: dict[int, Receiver] = {}
        self._unclaimed: dict[int, list[CmEvent]] = {}
        self._listening = threading.Lock()  # who listens or stops
        self._takers: dict[int, tuple[int, tuple[Taker, ...]]] = {}
        self._device = device
        self.channel = CmChannel(device, port, ENTRIES, self._dispatch)
        heed_forks(self)

    def inherited(self) -> None:
        """This is a forked child: what comes is the parent's."""
        self._lock, self._listening = threading.RLock(), threading.Lock()

    def register(self, number: int, receiver: Receiver) -> None:
        """Give ``receiver`` the events of a connection, or the requests of a listener; also those that have
        come since the command that made it.
        """
        with self._lock:
            self._receivers[number] = receiver
            for event in self._unclaimed.pop(number, ()):
                receiver(event)

    def keep(self, number: int, event: CmEvent) -> None:
        """Keep an event for who registers next for a connection or listener; nobody is its receiver now."""
        with self._lock:
            self._receivers.pop(number, None)
            if len(self._unclaimed) < _MOST_UNCLAIMED:
                self._unclaimed.setdefault(number, []).append(event)

    def listen(self, service_id: int, backlog: int, taker: Taker) -> None:
        """Have ``taker`` take requests for a service ID, until `stop`.  Where others do that already, from
        all of whom requests tell it, they share the adapter's listener.  DriverError as `CmChannel.listen`.
        """
        with self._listening:
            number, takers = self._takers.get(service_id, (0, ()))
            if not takers or not all(map(taker.is_apart, takers)):
                number = self.channel.listen(service_id, backlog)
            self._takers[service_id] = number, (*takers, taker)
            if not takers:
                self.register(number, partial(self._offer, service_id))

    def stop(self, service_id: int, taker: Taker) -> None:
        """``taker`` takes none any more; of who does not, nothing happens."""
        with self._listening:
            number, takers = self._takers.get(service_id, (0, ()))
            left = tuple(each for each in takers if each is not taker)
            if left:
                self._takers[service_id] = number, left
            elif takers:
                del self._takers[service_id]
                self.end(number)

    def _offer(self, service_id: int, event: CmEvent) -> None:
        """Give a request to the one it is for; where it is for none, the first one refuses it."""
        takers = self._takers.get(service_id, (0, ()))[1]
        for taker in (*(each for each in takers if each.is_for(event)), *takers[:1]):
            taker.take(event)
            return

    def forget(self, number: int) -> None:
        """It has ended."""
        with self._lock:
            self._receivers.pop(number, None)
            self._unclaimed.pop(number, None)

    def end(self, number: int) -> None:
        """Let go of a connection or listener, which may have ended by itself; requests of a listener that
        nobody has got are, too, so that their peers are told.
        """
        left: list[CmEvent] = []
        with self._lock:
            self._receivers[number] = left.append
            left += self._unclaimed.pop(number, ())
        with contextlib.suppress(DriverError):
            self.channel.destroy(number)
        self._dispatch()  # what was in the ring already; nothing of it comes any more
        self.forget(number)
        for event in left:
            if event.kind in (CM_REQUEST, CM_SIDR_REQUEST):
                self.end(event.id)

    def _dispatch(self) -> None:
        """Events have come: give each to whom it is of, in their order."""
        with self._lock:  # two threads that dispatch must not change the order
            while (event := self._next()) is not None:
                number = event.listener if event.kind in (CM_REQUEST, CM_SIDR_REQUEST) else event.id
                receiver = self._receivers.get(number)
                if receiver is not None:
                    receiver(event)
                else:
                    self.keep(number, event)

    def _next(self) -> CmEvent | None:
        """The next event, if one is there; none of a device that is being closed."""
        if not self._device.alive or self.channel.idle:
            return None
        try:
            return self.channel.receive(timeout_s=0)
        except DriverError:
            return None


_ports: dict[tuple[DeviceDriver, int], CmPort] = {}
_ports_lock = threading.Lock()


def _after_fork_in_child() -> None:
    global _ports_lock
    _ports_lock = threading.Lock()
    _ports.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


def port_of(device: DeviceDriver, port: int) -> CmPort:
    """The one of a device's port, made by the first call.  DriverError as `CmChannel`."""
    with _ports_lock:
        found = _ports.get((device, port))
        if found is None:
            found = _ports[device, port] = CmPort(device, port)
        return found


def forget_ports(device: DeviceDriver) -> None:
    """The device is closed."""
    with _ports_lock:
        for key in [key for key in _ports if key[0] is device]:
            del _ports[key]
