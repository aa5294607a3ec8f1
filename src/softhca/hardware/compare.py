"""Three designs of the key search, measured clock by clock: with the remote-key manager, in microcode alone,
all in fixed hardware.

A figure is what a simulation counted: the manager's and the fixed hardware's gates walk the same rows as the
SQ engine's gates do under ``walk.asm``.  *Stall* is the time from the first instruction of the search until
the SQ's engine can give the next queue pair its turn, counted on its gates in all three designs.  *RQ stall*
counts the clocks in which an RQ that asks for the memory in each of them does not get it; in microcode alone
nothing keeps the two engines apart, so there is no such figure: the RQ's engine must stand still all the
while, or keys are lost (`softhca.hardware.races`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from softhca.hardware import CLOCK_NS
from softhca.hardware.designs import FIXED, MANAGER, MICROCODE
from softhca.hardware.fixed_function import FixedFunctionManager
from softhca.hardware.key_memory import KEYS, VIS
from softhca.hardware.microcode_walk import CASES, MicrocodeWalk, search_stall
from softhca.hardware.races import Search, search
from softhca.hardware.rmb import RemoteKeyManager
from softhca.hardware.trace import Access, drive, simulator

PD, KEY = 7, 0x123
"""What `microcode_walk.CASES` are walked for."""
INTERLEAVINGS = 200
WALKS_SHARE = 50
"""All walks take about as long as so many interleavings."""


class Walk(NamedTuple):
    """One walk of ``vis`` VIs; ``rq_stall_clocks`` None: the RQ's engine must not run beside it."""

    design: str
    case: str
    vis: int
    clocks: int
    stall_clocks: int
    rq_stall_clocks: int | None

    def document(self) -> dict[str, Any]:
        """The walk for JSON: ``clocks_per_vi`` without the last check."""
        waits = self.rq_stall_clocks
        return {
            "design": self.design,
            "case": self.case,
            "vis": self.vis,
            "clocks": self.clocks,
            "clocks_per_vi": round(self.clocks / self.vis, 2),
            "walk_us": self.clocks * CLOCK_NS / 1000,
            "stall_us": self.stall_clocks * CLOCK_NS / 1000,
            "rq_stall_us": None if waits is None else waits * CLOCK_NS / 1000,
        }


class Comparison(NamedTuple):
    """All walks, and the races that were searched for."""

    walks: list[Walk]
    races: Search


def compare(
    vis: int = VIS, interleavings: int = INTERLEAVINGS, advance: Callable[[float], object] = lambda done: None
) -> Comparison:
    """Measure all designs; ValueError when there can be no such memory.  ``advance`` is called with how much
    is done: `WALKS_SHARE` for the walks, and one for each interleaving."""
    walks = []
    microcode = MicrocodeWalk(vis)
    for number, (case, row) in enumerate(CASES.items(), 1):
        memory = row * vis
        walks.append(_measured(MANAGER, case, vis, RemoteKeyManager, memory))
        clocks = microcode.case(case).clocks
        walks.append(Walk(MICROCODE, case, vis, clocks, clocks, None))
        walks.append(_measured(FIXED, case, vis, FixedFunctionManager, memory))
        advance(WALKS_SHARE * number / len(CASES))
    return Comparison(walks, search(interleavings, advance=lambda played: advance(WALKS_SHARE + played)))


def _measured(design: str, case: str, vis: int, kind: Callable[..., Any], memory: tuple[int, ...]) -> Walk:
    def made() -> Any:
        return kind(vis, KEYS, memory)

    return Walk(design, case, vis, walk_clocks(made()), search_stall(made()), rq_delays(made()))


def walk_clocks(manager: Any) -> int:
    """Clocks from the one that takes *start* until *done* is high."""
    counted = 0

    async def bench(ctx: Any) -> None:
        nonlocal counted
        _ask(ctx, manager)
        while counted < 2 or not ctx.get(manager.sq_done):
            await ctx.tick()
            counted += 1
            ctx.set(manager.sq_start, 0)

    simulator(manager, bench).run()
    return counted


def rq_delays(manager: Any, clocks: int = 4 * VIS) -> int:
    """Reads of the RQ that do not bring at once what it wrote in the clock before; it writes and reads in
    turn, so many clocks beside a walk."""
    delays = 0

    async def bench(ctx: Any) -> None:
        nonlocal delays
        _ask(ctx, manager)
        awaited: int | None = None
        depth = manager.geometry.depth
        for clock in range(clocks):
            place = clock // 2 % depth
            drive(ctx, manager, Access(place) if clock % 2 else Access(place, clock))
            delays += awaited is not None and ctx.get(manager.rq_read_data) != awaited
            awaited = clock - 1 if clock % 2 else None
            await ctx.tick()

    simulator(manager, bench).run()
    return delays


def _ask(ctx: Any, manager: Any) -> None:
    ctx.set(manager.sq_pd, PD)
    ctx.set(manager.sq_key, KEY)
    ctx.set(manager.sq_start, 1)
