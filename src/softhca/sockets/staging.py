"""Memory for copies of what is sent."""

from __future__ import annotations

import contextlib

import cython

from softhca.driver.errors import DriverError
from softhca.machine.primitives import copy
from softhca.sockets.memory_processing import PoolError
from softhca.verbs import enums as e
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsError

_LOCAL = int(e.IBV_ACCESS_LOCAL_WRITE)


class Staging:
    """Registered memory of this side that small sends are copied into, so that the application may go on:
    a ring of ``length`` bytes under ``lkey``, freed in the order of the completions.
    """

    def __init__(self, pd: PD, length: int) -> None:
        try:
            self._region = MR(pd, length, _LOCAL)
        except PyverbsError as error:
            raise PoolError(error) from None
        self._address, self.lkey = self._region.buf, self._region.lkey
        self.length = length
        self.head = self.tail = 0

    def room(self) -> int:
        """Bytes that fit into one run now; 0 where there are none."""
        free: cython.ulonglong = self.free()
        left: cython.ulonglong = self.length - self.tail % self.length
        return free if free < left else left

    def skip(self, length: int) -> None:
        """Have `room` for ``length`` bytes in one run, where so many are free twice."""
        left = self.length - self.tail % self.length
        if left < length:
            self.tail += left

    def free(self) -> int:
        """Bytes that are not in use, in one run or two."""
        return self.length - (self.tail - self.head)

    def put(self, source: int, length: int) -> int:
        """Copy ``length`` bytes, for which there is `room`, from an address: where they are now."""
        place: cython.ulonglong = self._address + self.tail % self.length
        copy(place, source, length)
        self.tail += length
        return place

    def close(self) -> None:
        """Give the memory back; nothing is under way any more."""
        with contextlib.suppress(PyverbsError, DriverError):
            self._region.close()
