"""Registered memory of one end of a channel, cut into places."""

from __future__ import annotations

import ctypes
from typing import Any

from softhca.driver.device import DeviceDriver
from softhca.driver.errors import DriverError

LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ = 1, 2, 4
"""ibv_access_flags"""

FIRST_VA = 1 << 32
"""Requests name the first byte by this, wherever the memory is: the same calls give the same packets."""

Element = tuple[int, int, int]


class RegisteredMemory:
    """``length`` bytes of the device's memory, zeros at first; ``rkey`` names them where ``access`` has
    remote rights.  DriverError ENOMEM.
    """

    def __init__(self, device: DeviceDriver, pd: int, length: int, access: int) -> None:
        self.length = length
        self._device = device
        self._memory = device.alloc_host_memory(length, access)
        try:
            self._key = device.reg_mr(pd, self._memory.address, length, access, FIRST_VA)
        except DriverError:
            self._memory.free()
            raise
        array: Any = (ctypes.c_ubyte * length).from_address(self._memory.address)
        self.view = memoryview(array).cast("B")

    @property
    def rkey(self) -> int:
        """The remote key."""
        return self._key.rkey

    def element(self, offset: int, length: int) -> Element:
        """A scatter/gather element."""
        return FIRST_VA + offset, length, self._key.lkey

    def va(self, offset: int) -> int:
        """What a peer calls the byte at ``offset``."""
        return FIRST_VA + offset

    def close(self) -> None:
        """Deregister and free it.  No queue pair may use it any more."""
        self.view.release()
        if self._device.alive:
            self._device.dereg_mr(self._key.handle)
        self._memory.free()
