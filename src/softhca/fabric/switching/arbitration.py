"""Which virtual lane a port sends from next (IBTA vol. 1, 7.6.9).

Two tables of entries (VL, weight in units of 64 bytes), one of high and one of low priority.  In each the
entries take turns; an entry's turn ends when what was sent in it has used up its weight, or its lane has
nothing to send.  The high table goes first until it has sent ``high_limit`` × 4096 bytes in one go; then
the low one sends a packet, if it has any.  0 stands for a single packet, 255 for no limit.  VL 15 goes
before both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import cython

from softhca.fabric.switching.packet import DATA_VLS, MANAGEMENT_VL, blocks_of

LIMIT_BYTES = 4096
UNLIMITED = 255
_VL15 = cython.declare(cython.int, MANAGEMENT_VL)
_UNLIMITED = cython.declare(cython.int, UNLIMITED)
MAX_ENTRIES = 64
MAX_WEIGHT = 255

DEFAULT_LOW = tuple([(vl, 64) for vl in range(DATA_VLS)])


@lru_cache(maxsize=64)
def _used(entries: tuple[tuple[int, int], ...]) -> tuple[bytes, bytes]:
    """The lanes and the weights of a table's entries, but for those of weight 0, which are skipped (7.6.9.1):
    once for the ports that have the same table."""
    if len(entries) > MAX_ENTRIES:
        raise ValueError(f"a table of VL arbitration has {len(entries)} entries, {MAX_ENTRIES} at most")
    for vl, weight in entries:
        if not 0 <= vl < DATA_VLS or not 0 <= weight <= MAX_WEIGHT:
            raise ValueError(f"no entry of VL arbitration: VL {vl} of weight {weight}")
    used = [(vl, weight) for vl, weight in entries if weight]
    return bytes([vl for vl, _ in used]), bytes([weight for _, weight in used])


class _Table:
    """One table's turns."""

    __slots__ = ("lanes", "left", "turn", "weights")

    def __init__(self, entries: Sequence[tuple[int, int]]) -> None:
        self.lanes, self.weights = _used(tuple(entries))
        self.turn = 0
        self.left = self.weights[0] if self.weights else 0

    def choose(self, eligible: int) -> int:
        """The lane whose turn it is among the bits of ``eligible``; −1 for none."""
        lanes: bytes = self.lanes
        count: cython.int = len(lanes)
        step: cython.int
        turn: cython.int
        if not count:
            return -1
        vl: cython.int = lanes[self.turn]
        if self.left > 0 and eligible >> vl & 1:
            return vl
        for step in range(1, count + 1):
            turn = (self.turn + step) % count
            vl = lanes[turn]
            if eligible >> vl & 1:
                self.turn = turn
                self.left = self.weights[turn]
                return vl
        return -1

    def sent(self, length_bytes: int) -> None:
        self.left -= blocks_of(length_bytes)


class Arbiter:
    """VL arbitration of one port.  ValueError for entries that the tables cannot have."""

    __slots__ = ("_chosen", "_high", "_high_left", "_low", "high_limit")

    def __init__(
        self,
        high: Sequence[tuple[int, int]] = (),
        low: Sequence[tuple[int, int]] = DEFAULT_LOW,
        high_limit: int = 0,
    ) -> None:
        if not 0 <= high_limit <= UNLIMITED:
            raise ValueError(f"no limit of high priority: {high_limit}")
        self.high_limit = high_limit
        self._high = _Table(high)
        self._low = _Table(low)
        self._high_left = self._allowance()
        self._chosen = self._low

    def _allowance(self) -> int:
        return self.high_limit * LIMIT_BYTES or 1

    def choose(self, eligible: int) -> int:
        """The lane to send from, of those whose bits are set in ``eligible`` (they have a packet and credits
        for it); −1 for none."""
        if not eligible:
            return -1
        if eligible >> _VL15 & 1:
            return _VL15
        vl: cython.int
        if self._high_left > 0 or self.high_limit == _UNLIMITED:
            vl = self._high.choose(eligible)
            if vl >= 0:
                self._chosen = self._high
                return vl
        vl = self._low.choose(eligible)
        if vl >= 0:
            self._chosen = self._low
            return vl
        self._high_left = self._allowance()  # the low table had its opportunity
        vl = self._high.choose(eligible)
        self._chosen = self._high
        return vl

    def sent(self, vl: int, length_bytes: int) -> None:
        """A packet of the lane that was chosen last has been sent."""
        if vl == _VL15:
            return
        self._chosen.sent(length_bytes)
        if self._chosen is self._high:
            self._high_left -= length_bytes
        else:
            self._high_left = self._allowance()
