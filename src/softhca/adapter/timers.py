"""Timer wheel: one deadline for each flow, in O(1), whatever their number.

Nine levels of 64 slots; a slot of level k spans 64^k ticks of 4.096 µs, the unit of InfiniBand's own
time-outs (IBTA vol. 1, 9.7.6.1.3), so that every 63-bit time has its place.  A deadline stands in the level
of the highest group of six bits in which it differs from the wheel's position, so that a slot of a level
always starts later than all that stands in the levels below it; when its start comes, what it holds moves
down or is due.  Every deadline moves at most eight times.

Deadlines are rounded up to a tick: nothing fires early, and nothing later than one tick.  Arming a flow
that already has an earlier deadline changes nothing (the usual case: one that was acknowledged and sends on):
it is called at the earlier one, finds nothing due, and arms again.
"""

from __future__ import annotations

import cython

from softhca.transport.flow import Flow

TICK_SHIFT = cython.declare(cython.int, 12)
TICK_MASK = cython.declare(cython.ulonglong, (1 << 12) - 1)
LEVELS = cython.declare(cython.int, 9)
LEVEL_BITS = cython.declare(cython.int, 6)
SLOT_MASK = cython.declare(cython.ulonglong, 63)
NEVER = (1 << 63) - 1
_NEVER = cython.declare(cython.ulonglong, (1 << 63) - 1)
TICK_NS = 1 << 12


def lowest_bit(word: int) -> int:
    """Index of the lowest bit that is set in ``word`` (64 bits, not 0)."""
    index: cython.int = 0
    if not word & 0xFFFFFFFF:
        word >>= 32
        index = 32
    if not word & 0xFFFF:
        word >>= 16
        index += 16
    if not word & 0xFF:
        word >>= 8
        index += 8
    if not word & 0xF:
        word >>= 4
        index += 4
    if not word & 0x3:
        word >>= 2
        index += 2
    if not word & 0x1:
        index += 1
    return index


class Timers:
    """The deadlines of one adapter's flows, from the moment ``now`` on.

    A flow's ``armed_ns`` is the tick at which it will be called (0: none) and ``armed_place`` its slot;
    only this class writes them.
    """

    slots: list[dict[Flow, Flow]]
    first_place: int

    def __init__(self, now: int = 0) -> None:
        self.position = now >> TICK_SHIFT
        self.slots = [{} for _ in range(64 * LEVELS)]
        self.occupied = [0] * LEVELS
        self.next_ns = _NEVER

    def arm(self, flow: Flow, deadline_ns: int) -> None:
        """Have ``flow`` called at ``deadline_ns`` or, when it is armed for an earlier moment, then."""
        if flow.armed_ns != 0:
            if flow.armed_ns <= deadline_ns:
                return
            self.disarm(flow)
        self._insert(flow, deadline_ns)

    def disarm(self, flow: Flow) -> None:
        """Forget ``flow``; free when it is not armed."""
        if flow.armed_ns == 0:
            return
        flow.armed_ns = 0
        slot: dict[Flow, Flow] = self.slots[flow.armed_place]
        slot.pop(flow, None)
        if not slot:
            self._vacate(flow.armed_place)

    def count(self) -> int:
        """How many flows are armed."""
        return sum(map(len, self.slots))

    def _vacate(self, place: int) -> None:
        word: cython.ulonglong = self.occupied[place >> LEVEL_BITS]
        bit: cython.ulonglong = 1
        self.occupied[place >> LEVEL_BITS] = word & ~(bit << (place & 63))

    def _insert(self, flow: Flow, deadline_ns: int) -> None:
        tick: cython.ulonglong = (deadline_ns >> TICK_SHIFT) + (1 if deadline_ns & TICK_MASK else 0)
        if tick <= self.position:
            tick = self.position + 1
        flow.armed_ns = tick << TICK_SHIFT
        self._place(flow, tick)
        if flow.armed_ns < self.next_ns:
            self.next_ns = flow.armed_ns

    def _place(self, flow: Flow, tick: int) -> None:
        difference: cython.ulonglong = tick ^ self.position
        level: cython.int = 0
        while level < LEVELS - 1 and difference >> (LEVEL_BITS * (level + 1)):
            level += 1
        index: cython.int = (tick >> (LEVEL_BITS * level)) & SLOT_MASK
        place: cython.int = (level << LEVEL_BITS) | index
        slot: dict[Flow, Flow] = self.slots[place]
        slot[flow] = flow
        flow.armed_place = place
        word: cython.ulonglong = self.occupied[level]
        bit: cython.ulonglong = 1
        self.occupied[level] = word | (bit << index)

    def _first(self) -> int:
        """Start of the first slot that is not empty, as a tick; −1 when all are.  Levels below come first."""
        level: cython.int
        word: cython.ulonglong
        base: cython.ulonglong
        for level in range(LEVELS):
            word = self.occupied[level]
            if word:
                base = self.position >> (LEVEL_BITS * (level + 1)) << (LEVEL_BITS * (level + 1))
                index: cython.ulonglong = lowest_bit(word)
                self.first_place = (level << LEVEL_BITS) | index
                return base + (index << (LEVEL_BITS * level))
        return -1

    def next_deadline(self) -> int:
        """A moment not later than the next call that is due (maybe earlier); ``NEVER`` when none is."""
        return self.next_ns

    def expire(self, now: int) -> list[Flow]:
        """Flows whose deadline has come, disarmed, in the order of their deadlines."""
        due: list[Flow] = []
        if now < self.next_ns:
            return due
        target: cython.ulonglong = now >> TICK_SHIFT
        tick: cython.longlong = self._first()
        while tick >= 0 and cython.cast(cython.ulonglong, tick) <= target:
            place: cython.int = self.first_place
            slot: dict[Flow, Flow] = self.slots[place]
            self.slots[place] = {}
            self._vacate(place)
            if cython.cast(cython.ulonglong, tick) > self.position:
                self.position = tick
            self._settle(slot, due)
            tick = self._first()
        if target > self.position:
            self._advance(target)
        tick = self._first()
        self.next_ns = _NEVER if tick < 0 else cython.cast(cython.ulonglong, tick) << TICK_SHIFT
        return due

    def _settle(self, slot: dict[Flow, Flow], due: list[Flow]) -> None:
        """What a slot held, whose start is the wheel's position: due now, or into a lower level."""
        flow: Flow
        tick: cython.ulonglong
        for flow in slot:
            tick = flow.armed_ns >> TICK_SHIFT
            if tick <= self.position:
                flow.armed_ns = 0
                due.append(flow)
            else:
                self._place(flow, tick)

    def _advance(self, target: int) -> None:
        """Move to ``target``, before which nothing is due, but not past the start of a slot that holds
        something.
        """
        tick: cython.longlong = self._first()
        if tick < 0 or cython.cast(cython.ulonglong, tick) > target:
            self.position = target
