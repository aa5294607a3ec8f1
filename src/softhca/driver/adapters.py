"""The HCA abstraction layer's (HCAAL) view of a host: all of its adapters, of whatever make, for several
clients.

An adapter is opened for its first client and closed after its last; all clients share the open device, each
with domains, queues and memory of its own.  What the adapters have in common, the ports of all of them and
their states are asked for here, and their asynchronous events are routed up to whoever subscribes.  The
device drivers below (HDSD) differ in what their links are: RoCEv2 or native, in this process, in another
one, or in virtual time; the interface is one (`DeviceDriver`).
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from softhca.driver import registry
from softhca.driver.device import DeviceDriver
from softhca.driver.errors import DriverError
from softhca.driver.forks import heed_forks
from softhca.machine import deferred_signals

LINK_LAYER_ETHERNET = 2
PORT_ACTIVE = 4

COMMON_LIMITS = (
    "max_qp_wr",
    "max_sge",
    "max_cqe",
    "max_mr_size",
    "max_qp_rd_atom",
    "max_qp_init_rd_atom",
    "max_inline_data",
)
"""Attributes of a device that a queue or region must keep to."""


@dataclass(frozen=True)
class HostPort:
    """A port of an adapter as it is now: whether it is ``active``, whether its packets are ``native``, its
    first GID, LID and MTU (``ibv_mtu``)."""

    adapter: str
    number: int
    active: bool
    native: bool
    gid: bytes
    lid: int
    mtu: int


@dataclass(frozen=True)
class AdapterEvent:
    """An asynchronous event of an adapter: its ``ibv_event_type`` and the element that it is about."""

    adapter: str
    kind: int
    element: int


Listener = Callable[[AdapterEvent], object]


@dataclass(eq=False)
class _Open:
    device: DeviceDriver
    users: int = 0


class HostAdapters:
    """The adapters of a host.  ``names`` and ``open_device`` are the registry's.  Any thread may call any
    method.
    """

    def __init__(
        self,
        names: Callable[[], Sequence[str]] = registry.names,
        open_device: Callable[[str], DeviceDriver] = registry.open_device,
    ) -> None:
        self.names = names
        self._open_device = open_device
        self._lock = threading.RLock()
        self._open: dict[str, _Open] = {}
        self._listeners: dict[Listener, None] = {}
        heed_forks(self)

    def inherited(self) -> None:
        """This is a forked child: what is open is the parent's."""
        self._lock = threading.RLock()
        self._open.clear()

    # allocation of adapters

    def acquire(self, name: str) -> DeviceDriver:
        """The open adapter of this name, for one user more; each `release`s it.  One that has died is opened
        anew.  DriverError ENODEV, or as the opening.
        """
        with self._lock, deferred_signals.section():
            found = self._open.get(name)
            if found is not None and not found.device.alive:
                found.device.close()
                found = None
            if found is None:
                found = self._open[name] = _Open(self._open_device(name))
            found.users += 1
            return found.device

    def share(self, device: DeviceDriver) -> bool:
        """One user more of an adapter that is open here; False: it is not."""
        with self._lock:
            for found in self._open.values():
                if found.device is device:
                    found.users += 1
                    return True
        return False

    def release(self, device: DeviceDriver) -> None:
        """One user of an adapter less; it is closed with the last.  One that is not open here, because it has
        died and was opened anew, or is a parent's, is left as it is.
        """
        with self._lock:
            for name, found in list(self._open.items()):
                if found.device is device:
                    found.users -= 1
                    if not found.users:
                        del self._open[name]
                        device.close()
                    return

    def users(self, device: DeviceDriver) -> int:
        """How many users an open adapter has."""
        with self._lock:
            return sum(found.users for found in self._open.values() if found.device is device)

    # queries

    def open_adapters(self) -> dict[str, DeviceDriver]:
        """Those that are open now and alive, by name."""
        with self._lock:
            return {name: found.device for name, found in self._open.items() if found.device.alive}

    def ports(self, name: str) -> list[HostPort]:
        """The ports of an adapter, which is opened for the query if nobody has it.  DriverError."""
        device = self.acquire(name)
        try:
            count = device.query_device()["phys_port_cnt"]
            return [_port(name, device, number) for number in range(1, count + 1)]
        finally:
            self.release(device)

    def is_active(self, name: str, port: int) -> bool:
        """Whether an adapter can be opened and its port is active."""
        try:
            return any(each.number == port and each.active for each in self.ports(name))
        except DriverError:
            return False

    def common_limits(self) -> dict[str, int]:
        """What every open adapter can do: of each of `COMMON_LIMITS` the least.  ENODEV: none is open."""
        found = [device.query_device() for device in self.open_adapters().values()]
        if not found:
            raise DriverError(errno.ENODEV, "no adapter is open")
        return {name: min(each[name] for each in found) for name in COMMON_LIMITS}

    # events

    def subscribe(self, listener: Listener) -> None:
        """Call ``listener`` with each asynchronous event of each open adapter, in `dispatch`."""
        with self._lock:
            self._listeners[listener] = None

    def unsubscribe(self, listener: Listener) -> None:
        """Call it no more."""
        with self._lock:
            self._listeners.pop(listener, None)

    def dispatch(self) -> bool:
        """Give the events that have come to all listeners; whether there were any.  The death of an adapter
        is one, `EVENT_DEVICE_FATAL`.  Never waits.
        """
        told: list[AdapterEvent] = []
        with self._lock:
            for name, found in self._open.items():
                events = found.device.events
                try:
                    events.dispatch()
                    while events.asynchronous_waiting and (event := events.next_event(0)) is not None:
                        told.append(AdapterEvent(name, *event))
                except DriverError:  # it is closed, or its death was told before
                    continue
            listeners = list(self._listeners)
        for each in told:
            for listener in listeners:
                listener(each)
        return bool(told)


def _port(name: str, device: DeviceDriver, number: int) -> HostPort:
    found = device.query_port(number)
    return HostPort(
        name,
        number,
        found["state"] == PORT_ACTIVE,
        found["link_layer"] != LINK_LAYER_ETHERNET,
        device.query_gid(number, 0),
        found["lid"],
        found["active_mtu"],
    )
