"""Which devices this process can open.  The runtime registers them; nobody above knows what they
are made of.
"""

from __future__ import annotations

import errno
import importlib
import os
import threading
from collections.abc import Callable

from softhca.driver import abstraction, command_descriptors
from softhca.driver.device import DeviceDriver
from softhca.driver.errors import DriverError, refusal

Opener = Callable[[], DeviceDriver]

DISCOVERY = "softhca.runtime.devices"
"""The module whose ``load()`` registers the devices of the environment.  It stands above this package, so it
is imported by name, when somebody first asks.
"""

_lock = threading.RLock()
# A child that is forked amid a discovery would find half of a module, and the lock taken for ever.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
_openers: dict[str, Opener] = {}
_discovered = False


def register(name: str, opener: Opener) -> None:
    """Offer a device; registering a name again replaces it."""
    with _lock:
        _openers[name] = opener


def unregister(name: str) -> None:
    """Offer it no more; what is open stays open."""
    with _lock:
        _openers.pop(name, None)


def _discover() -> None:
    """Register the environment's devices, once.  DriverError EINVAL when it names what cannot be."""
    global _discovered
    with _lock:
        if _discovered:
            return
        try:
            importlib.import_module(DISCOVERY).load()
        except ValueError as error:
            raise DriverError(errno.EINVAL, str(error)) from None
        _discovered = True


def names() -> list[str]:
    """Names of the devices, in the order in which they were registered."""
    _discover()
    with _lock:
        return list(_openers)


def open_device(name: str) -> DeviceDriver:
    """Open a device.  DriverError ENODEV for an unknown name, otherwise as the opener."""
    _discover()
    with _lock:
        opener = _openers.get(name)
    if opener is None:
        raise DriverError(
            errno.ENODEV, f"there is no device {name!r}; devices: {', '.join(names()) or 'none'}"
        )
    try:
        return abstraction.adopt(opener())
    except OSError as error:
        raise refusal(error, f"opening {name}") from None
    except ValueError as error:
        raise DriverError(errno.EINVAL, str(error)) from None


def import_device(descriptor: int) -> DeviceDriver:
    """Open, once more, the device that a command descriptor stands for, of whatever process, and import its
    context.  DriverError EBADF, EOPNOTSUPP or EINVAL for other descriptors, else as opening it.
    """
    _discover()
    try:
        place = command_descriptors.read(descriptor)
        device: DeviceDriver = importlib.import_module(DISCOVERY).join(place.name, place.socket)
    except OSError as error:
        raise refusal(error) from None
    try:
        device.import_context(descriptor)
    except BaseException:
        device.close()
        raise
    return device
