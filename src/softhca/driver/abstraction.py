"""The HCA abstraction layer: what all open devices of a process have in common, whatever they are.

It knows every open device, so that a fork can make them inert in the child and the end of the process can
close them, and it routes the error of an adapter to the devices that are open on it.
"""

from __future__ import annotations

import atexit
import os

from softhca.driver.device import DeviceDriver
from softhca.machine.weak_members import WeakMembers

_open: WeakMembers[DeviceDriver] = WeakMembers()


def adopt(device: DeviceDriver) -> DeviceDriver:
    """Take a newly opened device into account."""
    _open.add(device)
    return device


def open_devices() -> list[DeviceDriver]:
    """Devices that are open in this process."""
    return [device for device in _open if device.alive]


def close_all() -> None:
    """Close every device that is still open."""
    for device in _open:
        device.close()


def _after_fork_in_child() -> None:
    for device in _open:
        device.inherited()
    _open.clear()


atexit.register(close_all)
os.register_at_fork(after_in_child=_after_fork_in_child)
