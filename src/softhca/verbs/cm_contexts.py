"""Contexts and protection domains of identifiers: those of one device share one of each."""

import contextlib
import os
import threading
from typing import TYPE_CHECKING

from softhca.verbs.device import Context
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError

if TYPE_CHECKING:
    from softhca.driver.device import DeviceDriver
    from softhca.verbs.base import Resource


class CMContext(Context):
    """The context of a device that is open for identifiers; the device is closed with the last of them."""

    __slots__ = ()
    _closes_device = False

    def __init__(self, driver: "DeviceDriver") -> None:
        self._cmd_fd = None
        self._original = None
        self._driver = driver
        self._name = driver.name
        self._opened()

    def _released(self) -> None:
        """The device is the identifiers'."""

    def _close_child(self, child: "Resource") -> None:
        """What is refused, as what an interrupted create has left uses it, goes with the device."""
        with contextlib.suppress(PyverbsRDMAError):
            child.close()

    def close(self) -> None:
        """Close what was made on it."""
        super(Context, self).close()


class _Shared:
    def __init__(self, driver: "DeviceDriver") -> None:
        self.context = CMContext(driver)
        self.pd: PD | None = None
        self.users = 0


_lock = threading.RLock()
_shared: "dict[DeviceDriver, _Shared]" = {}


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork_in_child)


def join(driver: "DeviceDriver") -> Context:
    """The context of a device, for one more identifier; another one where a program has closed it."""
    with _lock:
        found = _shared.get(driver)
        if found is None:
            found = _shared[driver] = _Shared(driver)
        elif not found.context._open:
            found.context, found.pd = CMContext(driver), None
        found.users += 1
        return found.context


def domain_of(driver: "DeviceDriver") -> PD:
    """The protection domain of a device, for who has joined."""
    with _lock:
        found = _shared[driver]
        if found.pd is None or not found.pd._open:
            found.pd = PD(found.context)
        return found.pd


def leave(driver: "DeviceDriver") -> None:
    """One identifier less; with the last, all that was made on the context is closed."""
    with _lock:
        found = _shared[driver]
        found.users -= 1
        if found.users:
            return
        del _shared[driver]
    found.context.close()
