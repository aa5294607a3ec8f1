"""Addresses and keys that requests name: right ones, and ones that are wrong in one thing."""

from __future__ import annotations

from typing import NamedTuple

from softhca.simulation.access_violations import (
    BEFORE,
    BEYOND,
    FAR,
    LOCAL,
    MISALIGNED,
    RECEIVE,
    REMOTE,
    Violation,
)
from softhca.simulation.arena import ATOMIC_BYTES, OPEN, Arena, Buffer
from softhca.simulation.kinds import ATOMICS
from softhca.simulation.operations import Operation

KEY_MASKS = (0x00F0_0F01, 0x0000_0001, 0x0000_0080, 0x0100_0000, 0x0000_0100)
"""What a wrong key differs in: both its parts, only the low byte, only the index."""
NO_KEY = 0xDEAD_BEEF
MASK64 = (1 << 64) - 1


class Target(NamedTuple):
    """Address and key of a range."""

    va: int
    rkey: int


def remote_target(operation: Operation, remote: Buffer | None, arena: Arena) -> Target:
    """What a request names of its peer's memory; an empty one names nothing that exists."""
    violation = operation.violation
    if violation is not None and violation.side == REMOTE:
        return _wrong(violation, arena, len(operation.data))
    if remote is None:
        # requests that are refused for another reason name memory that is there
        region = arena.regions[OPEN]
        return Target(region.va, region.rkey)
    if not operation.data:
        return Target(0, NO_KEY)  # the key of an empty request is not looked at (C9-193)
    return Target(arena.va(remote), arena.regions[remote.region].rkey)


def _wrong(violation: Violation, arena: Arena, length: int) -> Target:
    """A range that may not be used as ``violation`` says."""
    region = arena.regions[violation.region]
    va = region.va
    aligned = violation.kind in ATOMICS
    if violation.place == BEYOND:
        va = region.va + region.length - length + 1
        va += -va % ATOMIC_BYTES if aligned else 0
    elif violation.place == BEFORE:
        va = region.va - (ATOMIC_BYTES if aligned else 1)
    elif violation.place == FAR:
        va = region.va + (1 << 63 if length % 2 else 1 << 32)
    elif violation.place == MISALIGNED:
        va = region.va + ATOMIC_BYTES // 2
    return Target(va & MASK64, _key(region.rkey, violation, length))


def _key(key: int, violation: Violation, length: int) -> int:
    return key ^ KEY_MASKS[length % len(KEY_MASKS)] if violation.wrong_key else key


def local_elements(
    arena: Arena, buffer: Buffer, parts: int, violation: Violation | None = None
) -> list[tuple[int, int, int]]:
    """A buffer as so many scatter/gather elements (a scattered one as its pieces), or what is wrong with
    them.
    """
    region = arena.regions[buffer.region]
    va, key, length = arena.va(buffer), region.lkey, buffer.length
    if violation is not None and violation.side in (LOCAL, RECEIVE):
        target = _wrong(violation, arena, max(length, 1))
        key = _key(arena.regions[violation.region].lkey, violation, length)
        return [(target.va, length, key)]
    if buffer.pieces:
        return _pieces(region.va, key, buffer)
    if parts == 1 or length < parts:
        return [(va, length, key)]
    elements, left = [], length
    for part in range(parts - 1, 0, -1):
        taken = left // (part + 1) + (part == 1)
        elements.append((va, taken, key))
        va, left = va + taken, left - taken
    return [*elements, (va, left, key)]


def _pieces(va: int, key: int, buffer: Buffer) -> list[tuple[int, int, int]]:
    """A scattered buffer, as far as its length goes."""
    elements, left = [], buffer.length
    for offset, length in buffer.pieces:
        if left:
            elements.append((va + offset, min(length, left), key))
        left -= min(length, left)
    return elements or [(va, 0, key)]
