"""The rejected design all in fixed hardware: walk and receive side share the memory and hand nothing over.

Each side has its own ports, so neither waits.  The walk is not told what the RQ reads and writes, and the
RQ's pipeline looks at a window before it enters the key of an operation.  Two races follow:

* *lost*: the RQ ends an operation and enters another one in the word that the walk has just compared; the
  clear then takes the new operation's key;
* *missed*: the RQ's pipeline has found the window alive, the bind destroys it and walks past the VI, and only
  then the key is entered.  It stays valid behind *done*.

`search` looks for them over seeded interleavings, and lets the remote-key manager live through the same ones:
its walk hears of the RQ's writes, and the RQ engine's microcode enters a key first and looks at the window
then (`header_check`).  The window is destroyed before the search begins, so a look finds it destroyed, or the
search finds the key; the SQ engine waits for nothing.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable
from typing import Any, NamedTuple

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.memory import Memory, MemoryData
from amaranth.lib.wiring import In

from softhca.hardware.key_memory import KEYS, VALID, WORD_BITS, Geometry, read_within
from softhca.hardware.rmb import RemoteKeyManager
from softhca.hardware.rmb_rq import rq_ports
from softhca.hardware.rmb_sq import RmbSq, sq_ports
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


class FixedFunctionManager(wiring.Component):
    """The same ports as `RemoteKeyManager`'s; ``rmb_mem_*`` are the walk's own memory ports."""

    def __init__(self, vis: int = VIS, keys: int = KEYS, init: Iterable[int] = ()) -> None:
        self.geometry = geometry = Geometry(vis, keys)
        super().__init__(sq_ports(geometry) | rq_ports(geometry))
        self.sq = RmbSq(geometry)
        self.store = MemoryData(shape=WORD_BITS, depth=geometry.depth, init=init)

    def elaborate(self, platform: object) -> Module:
        """A memory with two ports a side; of two writes of one word the RQ's stays."""
        m = Module()
        m.submodules.sq = self.sq
        m.submodules.ram = ram = Memory(self.store)
        walk_write, rq_write = ram.write_port(), ram.write_port()
        walk_read, rq_read = (ram.read_port(transparent_for=(walk_write, rq_write)) for _ in range(2))
        walk = self.sq.walk
        collides = self.rq_write & (self.rq_write_addr == walk.write_address)
        depth = self.geometry.depth
        m.d.comb += [
            walk.read_data.eq(read_within(m, walk_read, walk.read, walk.read_address, depth)),
            walk_write.en.eq(walk.write & ~collides),
            walk_write.addr.eq(walk.write_address),
            walk_write.data.eq(walk.write_data),
            self.rq_read_data.eq(read_within(m, rq_read, self.rq_read, self.rq_read_addr, depth)),
            rq_write.en.eq(self.rq_write & (self.rq_write_addr < depth)),
            rq_write.addr.eq(self.rq_write_addr),
            rq_write.data.eq(self.rq_write_data),
            self.rq_busy.eq(self.rq_read | self.rq_write),
            self.rmb_mem_re.eq(walk.read),
            self.rmb_mem_rd_addr.eq(walk.read_address),
            self.rmb_mem_rd_data.eq(walk.read_data),
            self.rmb_mem_we.eq(walk_write.en),
            self.rmb_mem_wr_addr.eq(walk.write_address),
            self.rmb_mem_wr_data.eq(walk.write_data),
        ]
        for name, member in sq_ports(self.geometry).items():
            inner, outer = getattr(self.sq, name), getattr(self, name)
            m.d.comb += inner.eq(outer) if member.flow == In else outer.eq(inner)
        return m


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


def play(shown: Interleaving, fixed: bool, enters_first: bool | None = None) -> Run:
    """Let it happen to the fixed hardware, or to the remote-key manager, whose RQ engine enters keys first
    unless told otherwise."""
    if enters_first is None:
        enters_first = not fixed
    manager: Any
    if fixed:
        manager = FixedFunctionManager(VIS, KEYS, shown.memory)
        store = manager.store
    else:
        manager = RemoteKeyManager(VIS, KEYS, shown.memory)
        store = manager.rq.memory.data
    stimulus = Stimulus(PD, KEY, BIND + 1, LATEST + LOOK_UP_CLOCKS, _accesses(shown, enters_first))
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


def _races(shown: Interleaving, enters_first: bool, left: list[int]) -> Iterable[tuple[str, int]]:
    """Words that still grant the window, and operations on other windows whose key is gone."""
    current = dict(enumerate(shown.memory))
    for one in shown.operations:
        if not one.refused(enters_first):
            current[one.address] = VALID | one.key
        elif enters_first:
            current[one.address] = 0
    for address, word in current.items():
        if address % (1 + KEYS) == 0:
            continue
        if word & (VALID - 1) == KEY and left[address] == VALID | KEY:
            yield MISSED, address
        if word & (VALID - 1) != KEY and left[address] != word:
            yield LOST, address


@dataclasses.dataclass(frozen=True)
class Search:
    """How many of so many ``interleavings`` each design spoils; the first ones that the fixed hardware did,
    by kind."""

    interleavings: int
    fixed: int
    manager: int
    found: dict[str, int]


def search(interleavings: int, first_seed: int = 1) -> Search:
    """Play the interleavings of so many seeds."""
    spoiled = {True: 0, False: 0}
    found: dict[str, int] = {}
    for seed in range(first_seed, first_seed + interleavings):
        shown = interleaving(seed)
        for fixed in spoiled:
            races = play(shown, fixed).races
            spoiled[fixed] += bool(races)
            for kind, _ in races if fixed else ():
                found.setdefault(kind, seed)
    return Search(interleavings, spoiled[True], spoiled[False], found)
