"""The remote-key manager clock by clock: what is done to it, and every signal of each clock as a row."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from amaranth.sim import Simulator

from softhca.hardware import CLOCK_NS
from softhca.hardware.key_memory import NO_DOMAIN
from softhca.hardware.quick_simulator import quick_simulator
from softhca.hardware.rmb import RemoteKeyManager
from softhca.hardware.rmb_sq import State

SLOT_STATES = (State.READ, State.KEY, State.CLEAR)


@dataclasses.dataclass(frozen=True)
class Access:
    """The RQ engine reads ``address``, or writes ``word`` there."""

    address: int
    word: int | None = None


@dataclasses.dataclass(frozen=True)
class Stimulus:
    """What the engines do: the SQ's ``pd`` and ``key``, *start* set in clock ``start``, the RQ's accesses by
    clock.  Clocks before 1 are not recorded."""

    pd: int
    key: int
    start: int
    clocks: int
    rq: Mapping[int, Access] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Row:
    """One clock.  ``mem_*`` are the memory's own signals, whether the walk or the RQ causes them; ``rq_addr``
    is 0 while the RQ does nothing."""

    clock: int
    state: str
    vi: int
    sq_start: bool
    sq_done: bool
    pd_fail: bool
    key_fail: bool
    rq_read: bool
    rq_write: bool
    rq_addr: int
    mem_re: bool
    mem_rd_addr: int
    mem_rd_data: int
    mem_we: bool
    mem_wr_addr: int
    mem_wr_data: int

    def document(self) -> dict[str, Any]:
        """The row for JSON."""
        return dataclasses.asdict(self)


def sample(ctx: Any, manager: RemoteKeyManager, clock: int) -> Row:
    """The signals of ``manager`` now."""

    def flag(signal: Any) -> bool:
        return bool(ctx.get(signal))

    reads, writes = flag(manager.rq_read), flag(manager.rq_write)
    address = manager.rq_read_addr if reads else manager.rq_write_addr
    return Row(
        clock=clock,
        state=state_name(ctx.get(manager.state), ctx.get(manager.slot)),
        vi=ctx.get(manager.vi),
        sq_start=flag(manager.sq_start),
        sq_done=flag(manager.sq_done),
        pd_fail=flag(manager.pd_fail),
        key_fail=flag(manager.key_fail),
        rq_read=reads,
        rq_write=writes,
        rq_addr=ctx.get(address) if reads or writes else 0,
        mem_re=flag(manager.rmb_mem_re),
        mem_rd_addr=ctx.get(manager.rmb_mem_rd_addr),
        mem_rd_data=ctx.get(manager.rmb_mem_rd_data),
        mem_we=flag(manager.rmb_mem_we),
        mem_wr_addr=ctx.get(manager.rmb_mem_wr_addr),
        mem_wr_data=ctx.get(manager.rmb_mem_wr_data),
    )


def state_name(state: State, slot: int) -> str:
    """A state's name, with the number of the key that it is about."""
    return f"{state.name}{slot}" if state in SLOT_STATES else state.name


def drive(ctx: Any, manager: RemoteKeyManager, access: Access | None) -> None:
    """The RQ engine's side in this clock."""
    reads = access is not None and access.word is None
    writes = access is not None and access.word is not None
    ctx.set(manager.rq_read, reads)
    ctx.set(manager.rq_write, writes)
    if access is not None:
        ctx.set(manager.rq_read_addr if reads else manager.rq_write_addr, access.address)
        ctx.set(manager.rq_write_data, access.word or NO_DOMAIN)


def simulator(design: Any, bench: Callable[[Any], Any]) -> Simulator:
    """A simulation of ``design`` with its clock of 8 ns and one test bench."""
    sim = quick_simulator(design)
    sim.add_clock(CLOCK_NS * 1e-9)
    sim.add_testbench(bench)
    return sim


async def clocks(ctx: Any, manager: Any, stimulus: Stimulus) -> AsyncIterator[int]:
    """Play ``stimulus``: each clock's number, from the first one on and without end, its inputs set."""
    ctx.set(manager.sq_pd, stimulus.pd)
    ctx.set(manager.sq_key, stimulus.key)
    held = False
    for clock in itertools.count(min(1, stimulus.start)):
        held = held or clock == stimulus.start
        ctx.set(manager.sq_start, held)
        drive(ctx, manager, stimulus.rq.get(clock))
        yield clock
        held = held and not ctx.get(manager.sq_taken)
        await ctx.tick()


def player(manager: RemoteKeyManager, stimulus: Stimulus, rows: list[Row]) -> Simulator:
    """A simulation of ``manager`` under ``stimulus`` that adds its ``rows``."""

    async def bench(ctx: Any) -> None:
        async for clock in clocks(ctx, manager, stimulus):
            if clock > stimulus.clocks:
                return
            if clock >= 1:
                rows.append(sample(ctx, manager, clock))

    return simulator(manager, bench)


def record(manager: RemoteKeyManager, stimulus: Stimulus, vcd: Path | None = None) -> list[Row]:
    """Run ``manager`` under ``stimulus`` and give its rows; the whole run as a VCD, too, if wanted."""
    rows: list[Row] = []
    sim = player(manager, stimulus, rows)
    if vcd is None:
        sim.run()
    else:
        with open(vcd, "w", encoding="utf-8") as file, sim.write_vcd(file):
            sim.run()
    return rows


def differences(rows: Iterable[Row], expected: Iterable[Row]) -> list[str]:
    """Where ``rows`` are not ``expected``, a line each; a field that is None there may be anything."""
    found = []
    for row, wanted in zip(rows, expected, strict=True):
        for field in dataclasses.fields(Row):
            has, should = getattr(row, field.name), getattr(wanted, field.name)
            if should is not None and has != should:
                found.append(f"clock {row.clock}: {field.name} is {has}, not {should}")
    return found
