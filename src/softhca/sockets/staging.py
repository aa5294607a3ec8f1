"""Memory for copies of what is sent."""

from __future__ import annotations

import contextlib

import cython

from softhca.driver.errors import DriverError
from softhca.machine.primitives import copy
from softhca.sockets.memory_processing import PoolError
from softhca.sockets.work_requests import INLINE_BYTES
from softhca.verbs import enums as e
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsError

SHORT_BYTES = INLINE_BYTES
"""What work requests carry themselves is not copied, so a run this short helps nobody."""

_LOCAL = int(e.IBV_ACCESS_LOCAL_WRITE)
_SHORT_BYTES = cython.declare(cython.ulonglong, SHORT_BYTES)


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

    def room(self, wanted: int) -> int:
        """How many of ``wanted`` bytes `put` takes now; 0 where it has no run for them that is not short
        (`SHORT_BYTES`).  The rest of the ring is left out where it is, and where they fit behind it alone.
        """
        free: cython.ulonglong = self.free()
        left: cython.ulonglong = self.length - self.tail % self.length
        if left < wanted and (left <= _SHORT_BYTES or left + wanted <= free):
            free -= min(free, left)
            left = self.length
        found: cython.ulonglong = min(wanted, free, left)
        return found if found == wanted or found > _SHORT_BYTES else 0

    def skip(self, length: int) -> None:
        """Begin the ring anew where ``length`` bytes do not fit into its rest; so many are free twice."""
        left: cython.ulonglong = self.length - self.tail % self.length
        if left < length:
            self.tail += left

    def free(self) -> int:
        """Bytes that are not in use, in one run or two."""
        return self.length - (self.tail - self.head)

    def put(self, source: int, length: int) -> int:
        """Copy ``length`` bytes, for which there is `room`, from an address: where they are now."""
        self.skip(length)
        place: cython.ulonglong = self._address + self.tail % self.length
        copy(place, source, length)
        self.tail += length
        return place

    def close(self) -> None:
        """Give the memory back; nothing is under way any more."""
        with contextlib.suppress(PyverbsError, DriverError):
            self._region.close()
