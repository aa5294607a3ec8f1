"""Races between a bind and RDMA operations under way, searched for in three designs of the key search.

The SQ side destroys a window and searches for its keys, the RQ side takes up operations and enters their
keys.  Two things can go wrong:

* *lost*: the RQ ends an operation and enters another one in the word that the walk has just compared; the
  clear then takes the new operation's key, which is another window's;
* *missed*: the RQ has found the window alive, the bind destroys it and walks past the VI, and only then the
  key is entered.  It stays valid behind the search.

A walk that hears of the RQ's writes loses nothing: only the remote-key manager's does.  Nothing is missed
where the RQ engine enters a key first and looks at the window then (`header_check`), and takes the key away
if the window is gone: the window is destroyed before the search begins, so a look finds it destroyed, or the
search finds the key.  That order is microcode, which fixed hardware, built to look first, does not have.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from softhca.hardware.designs import DESIGNS, FIXED, MICROCODE
from softhca.hardware.fixed_function import FixedFunctionManager
from softhca.hardware.instruction_model import InstructionModel
from softhca.hardware.key_memory import KEYS, VALID
from softhca.hardware.micro_registers import number_of
from softhca.hardware.microcode_files import microcode_program
from softhca.hardware.microcode_walk import DOMAIN_REGISTER, KEY_REGISTER
from softhca.hardware.rmb import RemoteKeyManager
from softhca.hardware.trace import Access, Row, Stimulus, clocks, sample, simulator

VIS = 4
PD, KEY = 7, 0x5A5
LOOK_UP_CLOCKS = 8
"""Between an operation's look at its window and its key in the memory, whichever is first."""
BIND = 16
"""The clock in which the window is destroyed; the search is started in the next one."""
LATEST = 38
OPERATIONS = 12
LOST, MISSED = "lost", "missed"
_ADDRESS, _DATA = number_of("RQ_KEY_ADDRESS"), number_of("RQ_KEY_DATA")


class Operation(NamedTuple):
    """An RDMA operation that the RQ takes up in clock ``begins``; its key is for slot ``slot`` of ``vi``, in
    place of the one that was there and has ended."""

    begins: int
    vi: int
    slot: int
    key: int

    @property
    def address(self) -> int:
        """The word of its key."""
        return self.vi * (1 + KEYS) + 1 + self.slot

    def looks(self, enters_first: bool) -> int:
        """The clock in which it is known whether its window stands."""
        return self.begins + LOOK_UP_CLOCKS * enters_first

    def enters(self, enters_first: bool) -> int:
        """The clock in which its key is written, if it is."""
        return self.begins + LOOK_UP_CLOCKS * (not enters_first)

    def refused(self, enters_first: bool) -> bool:
        """It finds the window gone."""
        return self.key == KEY and self.looks(enters_first) >= BIND

    def document(self) -> dict[str, Any]:
        """The operation in fixed hardware for JSON; ``entered`` is null where the window was found gone."""
        return {
            "looks": self.looks(False),
            "vi": self.vi,
            "slot": self.slot,
            "key": self.key,
            "word": self.address,
            "entered": None if self.refused(False) else self.enters(False),
        }

    def describe(self) -> str:
        """The operation in fixed hardware, in words."""
        then = f"enters it in word {self.address} in clock {self.enters(False)}"
        if self.refused(False):
            then = "refused"
        return f"an operation with key {self.key:x} looks at its window in clock {self.looks(False)}, {then}"


class Interleaving(NamedTuple):
    """What one seed lets happen around a bind."""

    seed: int
    memory: tuple[int, ...]
    operations: tuple[Operation, ...]


class Run(NamedTuple):
    """``races``: what went wrong, (kind, word's address); ``rows``: how."""

    races: tuple[tuple[str, int], ...]
    rows: tuple[Row, ...]


def interleaving(seed: int) -> Interleaving:
    """Operations of random kind, place and time; one word is entered once at most."""
    dice = random.Random(seed)
    words = []
    for _ in range(VIS):
        words.append(PD)
        words += [VALID | dice.choice((KEY, KEY ^ 1)) for _ in range(KEYS)]
    places = dice.sample([(vi, slot) for vi in range(VIS) for slot in range(KEYS)], OPERATIONS)
    begins = dice.sample(range(1, LATEST), OPERATIONS)
    pairs = zip(begins, places, strict=True)
    operations = sorted(Operation(clock, *place, dice.choice((KEY, KEY ^ 1))) for clock, place in pairs)
    return Interleaving(seed, tuple(words), tuple(operations))


def play(shown: Interleaving, design: str, enters_first: bool) -> Run:
    """Let it happen to one of `DESIGNS`, whose RQ engine enters a key before it looks at the window or
    afterwards."""
    accesses = _accesses(shown, enters_first)
    if design == MICROCODE:
        return Run(tuple(_races(shown, enters_first, _walked(shown, accesses))), ())
    manager: Any
    if design == FIXED:
        manager = FixedFunctionManager(VIS, KEYS, shown.memory)
        store = manager.store
    else:
        manager = RemoteKeyManager(VIS, KEYS, shown.memory)
        store = manager.rq.memory.data
    stimulus = Stimulus(PD, KEY, BIND + 1, LATEST + LOOK_UP_CLOCKS, accesses)
    rows: list[Row] = []
    left: list[int] = []

    async def bench(ctx: Any) -> None:
        async for clock in clocks(ctx, manager, stimulus):
            if clock > stimulus.clocks and ctx.get(manager.sq_done):
                break
            rows.append(sample(ctx, manager, clock))
        left.extend(ctx.get(store[address]) for address in range(len(shown.memory)))

    simulator(manager, bench).run()
    return Run(tuple(_races(shown, enters_first, left)), tuple(rows))


def _accesses(shown: Interleaving, enters_first: bool) -> dict[int, Access]:
    """What the RQ writes, one word a clock; an operation that has entered its key and is refused takes it
    away again."""
    rq = {}
    for one in shown.operations:
        if enters_first or not one.refused(enters_first):
            rq[one.enters(enters_first)] = Access(one.address, VALID | one.key)
    for one in shown.operations:
        if enters_first and one.refused(enters_first):
            clock = one.looks(enters_first) + 1
            while clock in rq:
                clock += 1
            rq[clock] = Access(one.address, 0)
    return rq


def _walked(shown: Interleaving, accesses: dict[int, Access]) -> list[int]:
    """What the SQ engine's microcode leaves of the memory, which the RQ's engine goes on to write."""
    blocks = _Shared(list(shown.memory))
    engine = InstructionModel(microcode_program("walk", {"WORDS": len(shown.memory)}).halves, blocks)
    engine.registers[DOMAIN_REGISTER], engine.registers[KEY_REGISTER] = PD, KEY
    clock = 0
    while not engine.halted or clock <= LATEST + LOOK_UP_CLOCKS:
        clock += 1
        blocks.rq = accesses.get(clock)
        if clock > BIND and not engine.halted:
            engine.step()
        else:
            blocks.tick()
    return blocks.memory


class _Shared:
    """The key memory on the SQ engine's bus; of two writes of one word in a clock the RQ's stays."""

    def __init__(self, memory: list[int]) -> None:
        self.memory = memory
        self.rq: Access | None = None
        self._address = self._word = 0
        self._reads = False

    def read(self, number: int) -> int:
        """The registers of the key memory; others show nothing."""
        return {_ADDRESS: self._address, _DATA: self._word}.get(number, 0)

    def write(self, number: int, value: int) -> None:
        """An address reads that word at the clock's end, a word is stored."""
        if number == _ADDRESS:
            self._address, self._reads = value, True
        elif number == _DATA:
            self.memory[self._address] = value

    def tick(self) -> None:
        """The RQ's access, and then what the engine has read."""
        if self.rq is not None and self.rq.word is not None:
            self.memory[self.rq.address] = self.rq.word
        if self._reads:
            self._word = self.memory[self._address] if self._address < len(self.memory) else 0
            self._reads = False


def _races(shown: Interleaving, enters_first: bool, left: list[int]) -> Iterable[tuple[str, int]]:
    """Words that still grant the window, and valid keys of operations on other windows that are gone.

    What a clear leaves of a word that nobody uses (an operation was refused, its key taken away) harms
    nobody: such a word must not be valid, whatever else is in it.
    """
    current = dict(enumerate(shown.memory))
    for one in shown.operations:
        if not one.refused(enters_first):
            current[one.address] = VALID | one.key
        elif enters_first:
            current[one.address] = 0
    for address, word in current.items():
        if address % (1 + KEYS) == 0:
            continue
        if left[address] == VALID | KEY:
            yield MISSED, address
        elif word & VALID and word != VALID | KEY and left[address] != word:
            yield LOST, address


class RaceTally(NamedTuple):
    """Of the interleavings that a design was played, how many it spoiled at all, and in how many a key was
    lost, and one missed."""

    runs: int
    lost: int
    missed: int


@dataclasses.dataclass(frozen=True)
class Search:
    """What each design spoils of so many ``interleavings``, by design and by whether its RQ engine enters a
    key first; ``found``: the seed of the first one of each kind in fixed hardware that looks first."""

    interleavings: int
    spoiled: dict[tuple[str, bool], RaceTally]
    found: dict[str, int]


def search(
    interleavings: int,
    first_seed: int = 1,
    designs: tuple[str, ...] = DESIGNS,
    orders: tuple[bool, ...] = (False, True),
    advance: Callable[[int], object] | None = None,
) -> Search:
    """Play the interleavings of so many seeds to ``designs``, in the ``orders`` given; ``advance`` is called
    with how many have been played."""
    counted = {(design, order): [0, 0, 0] for design in designs for order in orders}
    found: dict[str, int] = {}
    for seed in range(first_seed, first_seed + interleavings):
        shown = interleaving(seed)
        for (design, order), counts in counted.items():
            kinds = {kind for kind, _ in play(shown, design, order).races}
            for index, holds in enumerate((bool(kinds), LOST in kinds, MISSED in kinds)):
                counts[index] += holds
            if (design, order) == (FIXED, False):
                for kind in kinds:
                    found.setdefault(kind, seed)
        if advance is not None:
            advance(seed - first_seed + 1)
    return Search(interleavings, {which: RaceTally(*counts) for which, counts in counted.items()}, found)
