"""The requests of one queue pair, drawn from a scenario and a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from softhca.simulation.access_violations import (
    DATAGRAM,
    QUEUE_PAIR,
    RECEIVE,
    RELIABLE,
    UNRELIABLE,
    Violation,
)
from softhca.simulation.arena import ATOMIC_BYTES
from softhca.simulation.kinds import (
    ATOMICS,
    BOARD_READ,
    BOARD_WRITE,
    MESSAGES,
    NEEDS_READ,
    NEEDS_WRITE,
    OVERWRITE,
    RAW,
    RC,
    READ,
    READ_BACK,
    RELAY,
    SEND,
    SEND_IMM,
    UC,
    UD,
    WRITE,
    WRITE_IMM,
)
from softhca.simulation.scenarios import Scenario, dice_of

MTU_BYTES = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}
IMMEDIATE_BASE = 0x5A000000
INLINE_BYTES = 128
IPV6_BYTES, NO_NEXT_HEADER = 40, 59
BEYOND_MTU_BYTES = 112
"""How much longer than the MTU a raw payload behind LRH and RWH may be."""
ELEMENTS = 4
SIGNALED_EVERY = 4
_NEEDED = {OVERWRITE: WRITE, READ_BACK: WRITE, RELAY: READ}
"""What a kind refers to: an earlier request of this kind."""
_INDEPENDENT = {OVERWRITE: WRITE, READ_BACK: READ, RELAY: SEND}
"""The same request without an earlier one."""
BOARD_WORDS = 96
WORD_BYTES = 8
LONGEST_TRESPASS = 3_000
"""Every region has room for it, so that nothing but what it is about refuses it."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One request.

    ``data``: what it sends or writes, or what a read should find.  ``elements``: scatter/gather elements of
    its local buffer.  ``earlier``: the request that it refers to.  ``gap_ns``: how long it waits after the
    one before.  ``chained``: the doorbell is left to the next request.  ``addend`` of a fetch-and-add.
    """

    index: int
    kind: str
    data: bytes
    immediate: int | None = None
    elements: int = 1
    gap_ns: int = 0
    signaled: bool = True
    inline: bool = False
    solicited: bool = False
    chained: bool = False
    earlier: int = -1
    addend: int = 1
    version: int = 0
    violation: Violation | None = None


def board_of(version: int) -> bytes:
    """A board as version ``version`` has it: every word tells its version and its place."""
    return b"".join((version << 16 | at).to_bytes(WORD_BYTES, "little") for at in range(BOARD_WORDS))


def operations_of(
    scenario: Scenario, seed: int, end: str, mtu: int, writes_board: bool = False, turn: int = -1
) -> list[Operation]:
    """The requests of one queue pair.  Bytes of UC and UD messages tell which message they are.

    ``turn``: the number of the access violation among them, or −1.
    """
    dice = dice_of(scenario, seed, f"operations/{end}")
    found: list[Operation] = []
    version = 0
    kinds = [kind for kind in scenario.kinds if kind != (BOARD_READ if writes_board else BOARD_WRITE)]
    for index in range(scenario.operations):
        kind = _possible(dice.choice(kinds), found)
        version += kind == BOARD_WRITE
        found.append(_operation(scenario, dice, index, kind, mtu, found, version))
    if turn >= 0:
        at = dice.randrange(scenario.operations // 2, scenario.operations)
        found[at] = _access_violation(scenario, dice, at, mtu, turn)
        for later in found[at + 1 :]:
            if later.earlier == at:
                found[later.index] = replace(later, kind=_INDEPENDENT[later.kind], earlier=-1)
        found = _without_right(found, found[at])
    # the last one completes, so that everything does
    found[-1] = replace(found[-1], signaled=True, chained=False, solicited=True)
    return found


def _without_right(found: list[Operation], wrong: Operation) -> list[Operation]:
    """Where the peer's queue pair lacks a right, nothing else may need it."""
    if wrong.violation is None or wrong.violation.side != QUEUE_PAIR:
        return found
    denied = next(kinds for kinds in (NEEDS_WRITE, NEEDS_READ, ATOMICS) if wrong.kind in kinds)
    fit = [one is wrong or one.kind not in denied for one in found]
    return [
        one if stays else replace(one, kind=SEND, earlier=-1, immediate=None)
        for one, stays in zip(found, fit, strict=True)
    ]


def _possible(kind: str, found: list[Operation]) -> str:
    """Kinds that refer to an earlier request become it where there is none."""
    needed = _NEEDED.get(kind)
    if needed is None or any(one.kind == needed and one.data for one in found):
        return kind
    return needed


def _operation(
    scenario: Scenario, dice: random.Random, index: int, kind: str, mtu: int, found: list[Operation],
    version: int,
) -> Operation:  # fmt: skip
    earlier = _earlier(dice, kind, found)
    if kind in (BOARD_READ, BOARD_WRITE):
        data = board_of(version)
    elif kind in ATOMICS:
        data = bytes(ATOMIC_BYTES)
    elif earlier >= 0:
        length = len(found[earlier].data)
        data = dice.randbytes(length) if kind == OVERWRITE else _last(found, kind, earlier)
    else:
        data = dice.randbytes(_length(scenario, dice, mtu))
        if scenario.service == RAW:
            data = _as_ipv6(data)
    chained = dice.random() < 0.2
    inline = kind in (SEND, SEND_IMM, WRITE, WRITE_IMM) and len(data) <= INLINE_BYTES and dice.random() < 0.5
    return Operation(
        index,
        kind,
        data,
        IMMEDIATE_BASE + index if kind in (SEND_IMM, WRITE_IMM) else None,
        1 if kind in ATOMICS or len(data) < ELEMENTS else dice.randint(1, ELEMENTS),
        0 if chained else dice.choice((0, 0, 0, dice.randrange(20_000))),
        index % SIGNALED_EVERY == SIGNALED_EVERY - 1 or dice.random() < 0.7,
        inline,
        dice.random() < 0.3,
        chained,
        earlier,
        dice.choice((1, dice.randrange(1, 1 << 40))),
        version,
    )


def _earlier(dice: random.Random, kind: str, found: list[Operation]) -> int:
    """Which earlier request this one refers to."""
    needed = _NEEDED.get(kind)
    fit = [one.index for one in found if one.kind == needed and one.data]
    return dice.choice(fit) if fit else -1


def _last(found: list[Operation], kind: str, earlier: int) -> bytes:
    """What stands where the earlier request wrote, after all that was asked for since."""
    data = found[earlier].data
    for one in found:
        if kind == READ_BACK and one.kind == OVERWRITE and one.earlier == earlier:
            data = one.data
    return data


def _length(scenario: Scenario, dice: random.Random, mtu: int) -> int:
    """Mostly the lengths at which something changes: nothing, one packet, one byte more or less."""
    mtu_bytes = MTU_BYTES[mtu]
    smallest, largest = 8, scenario.largest_bytes
    if scenario.service == RC:
        smallest = 0
    elif scenario.service == UD:
        largest = mtu_bytes
    elif scenario.service == RAW:
        smallest, largest = IPV6_BYTES + 8, mtu_bytes + BEYOND_MTU_BYTES
    edges = [smallest, smallest + 1, 64, mtu_bytes - 1, mtu_bytes, mtu_bytes + 1, 2 * mtu_bytes, largest]
    drawn = dice.choice((dice.choice(edges), dice.randint(smallest, largest)))
    return min(drawn, largest)


def _as_ipv6(data: bytes) -> bytes:
    """An IPv6 packet with nothing that is known behind its header; its addresses stay as they are."""
    length = len(data) - IPV6_BYTES
    return bytes((0x60, 0, 0, 0)) + length.to_bytes(2, "big") + bytes((NO_NEXT_HEADER, 64)) + data[8:]


def _access_violation(scenario: Scenario, dice: random.Random, index: int, mtu: int, turn: int) -> Operation:
    """What may not be, every kind in its turn."""
    table = {RC: RELIABLE, UC: UNRELIABLE, UD: DATAGRAM}[scenario.service]
    violation = table[turn % len(table)]
    # UC looks at a key for each packet (C9-192.2.1): the first ones of a longer WRITE would be right
    longest = LONGEST_TRESPASS if scenario.service == RC else min(LONGEST_TRESPASS, MTU_BYTES[mtu])
    length = ATOMIC_BYTES if violation.kind in ATOMICS else dice.randint(1, longest)
    if scenario.service == UD and violation.too_long:
        length = MTU_BYTES[mtu] + dice.randint(1, 100)
    immediate = IMMEDIATE_BASE + index if violation.kind == WRITE_IMM else None
    return Operation(index, violation.kind, dice.randbytes(length), immediate, violation=violation)


def uses_receive(operation: Operation) -> bool:
    """Whether the request takes a receive at the peer."""
    violation = operation.violation
    if violation is not None and violation.side != RECEIVE:
        return False
    return operation.kind in MESSAGES
