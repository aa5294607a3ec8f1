"""The remote-key manager as the two micro-engines see it: by their micro-registers alone."""

from __future__ import annotations

from typing import Any

from softhca.hardware.key_memory import VALID
from softhca.hardware.micro_registers import number_of
from softhca.hardware.rmb import RemoteKeyManager
from softhca.hardware.rmb_registers import RmbRegisters
from softhca.hardware.shared_key_memory import SharedKeyMemory, SharedKeyRegisters
from softhca.hardware.trace import simulator

PD, KEY = 7, 0x55


async def write(ctx: Any, bus: Any, name: str, word: int) -> None:
    """One clock in which the engine of ``bus`` writes a register."""
    ctx.set(bus.write_enable, 1)
    ctx.set(bus.write_address, number_of(name))
    ctx.set(bus.write_data, word)
    await ctx.tick()
    ctx.set(bus.write_enable, 0)


def read(ctx: Any, bus: Any, name: str) -> int:
    """A register, which both data MUXes must show alike, in this very clock."""
    ctx.set(bus.read_address_a, number_of(name))
    ctx.set(bus.read_address_b, number_of(name))
    shown = {ctx.get(bus.read_data_a), ctx.get(bus.read_data_b)}
    assert len(shown) == 1
    return int(shown.pop())


def flags(ctx: Any, sq: Any, rq: Any) -> tuple[int, int, int]:
    """*start*, *done*, and what the RQ engine is told."""
    return read(ctx, sq, "RMB_START"), read(ctx, sq, "RMB_DONE"), read(ctx, rq, "RQ_KEY_BUSY")


def test_a_walk_by_registers() -> None:
    registers = RmbRegisters(RemoteKeyManager(2, 2, (PD, VALID | KEY, 0, PD, VALID | 3, VALID | KEY)))

    async def bench(ctx: Any) -> None:
        sq, rq = registers.sq, registers.rq
        await write(ctx, sq, "RMB_PD", PD)
        await write(ctx, sq, "RMB_KEY", KEY)
        assert (read(ctx, sq, "RMB_PD"), read(ctx, sq, "RMB_KEY")) == (PD, KEY)
        assert (read(ctx, sq, "RMB_DONE"), read(ctx, rq, "RQ_KEY_BUSY")) == (1, 0)
        await write(ctx, sq, "RMB_START", 1)
        assert flags(ctx, sq, rq) == (1, 0, 1)
        await ctx.tick()
        assert flags(ctx, sq, rq) == (0, 0, 1)
        for _ in range(2 * 6):
            await ctx.tick()
        assert (read(ctx, sq, "RMB_DONE"), read(ctx, rq, "RQ_KEY_BUSY")) == (1, 0)
        for address, word in ((1, KEY), (2, 0), (4, VALID | 3), (5, KEY)):
            await write(ctx, rq, "RQ_KEY_ADDRESS", address)
            assert read(ctx, rq, "RQ_KEY_DATA") == word

    simulator(registers, bench).run()


def test_the_word_that_the_rq_has_read_stays_while_the_walk_reads_others() -> None:
    registers = RmbRegisters(RemoteKeyManager(3, 2, (PD, 1, 2, PD, 4, 5, PD, 6, 9)))

    async def bench(ctx: Any) -> None:
        sq, rq = registers.sq, registers.rq
        await write(ctx, sq, "RMB_PD", PD)
        await write(ctx, sq, "RMB_START", 1)
        await write(ctx, rq, "RQ_KEY_ADDRESS", 8)
        for _ in range(20):
            assert (read(ctx, rq, "RQ_KEY_DATA"), read(ctx, rq, "RQ_KEY_ADDRESS")) == (9, 8)
            await ctx.tick()

    simulator(registers, bench).run()


def test_start_waits_in_its_register_while_the_rq_reads() -> None:
    registers = RmbRegisters(RemoteKeyManager(1, 1, (PD, VALID | KEY)))

    async def bench(ctx: Any) -> None:
        sq, rq = registers.sq, registers.rq
        await write(ctx, sq, "RMB_START", 1)
        for _ in range(4):
            await write(ctx, rq, "RQ_KEY_ADDRESS", 0)
            assert (read(ctx, sq, "RMB_START"), read(ctx, sq, "RMB_DONE")) == (1, 0)
        await write(ctx, rq, "RQ_KEY_DATA", PD)  # writing does not hold it up
        assert (read(ctx, sq, "RMB_START"), read(ctx, sq, "RMB_DONE")) == (0, 0)

    simulator(registers, bench).run()


def test_a_start_in_the_clock_that_takes_the_one_before_is_another_walk() -> None:
    """Its key is the one that stands there when the first walk is over."""
    registers = RmbRegisters(RemoteKeyManager(1, 2, (PD, VALID | KEY, VALID | 3)))

    async def bench(ctx: Any) -> None:
        sq, rq = registers.sq, registers.rq
        await write(ctx, sq, "RMB_PD", PD)
        await write(ctx, sq, "RMB_KEY", KEY)
        await write(ctx, sq, "RMB_START", 1)
        assert ctx.get(registers.manager.sq_taken)
        await write(ctx, sq, "RMB_START", 1)
        assert flags(ctx, sq, rq) == (1, 0, 1)
        await write(ctx, sq, "RMB_KEY", 3)
        clocks = 0
        while not read(ctx, sq, "RMB_DONE"):
            clocks += 1
            assert clocks < 30
            await ctx.tick()
        for address, word in ((1, KEY), (2, 3)):
            await write(ctx, rq, "RQ_KEY_ADDRESS", address)
            assert read(ctx, rq, "RQ_KEY_DATA") == word

    simulator(registers, bench).run()


def test_all_28_bits_of_a_domain_count() -> None:
    """Rows of a domain and of those that differ from it in one of the highest bits alone."""
    domain = 0xA000007
    others = [domain ^ 1 << bit for bit in (0, 23, 24, 25, 26, 27)]
    rows = [word for pd in (domain, *others) for word in (pd, VALID | KEY)]
    registers = RmbRegisters(RemoteKeyManager(len(rows) // 2, 1, tuple(rows)))

    async def bench(ctx: Any) -> None:
        sq, rq = registers.sq, registers.rq
        await write(ctx, sq, "RMB_PD", domain)
        assert read(ctx, sq, "RMB_PD") == domain
        await write(ctx, sq, "RMB_KEY", KEY)
        await write(ctx, sq, "RMB_START", 1)
        while not read(ctx, sq, "RMB_DONE"):
            await ctx.tick()
        for row in range(len(rows) // 2):
            await write(ctx, rq, "RQ_KEY_ADDRESS", 2 * row + 1)
            assert read(ctx, rq, "RQ_KEY_DATA") == (VALID | KEY if row else KEY)

    simulator(registers, bench).run()


def test_a_word_that_the_rq_stores_is_in_the_memory() -> None:
    registers = RmbRegisters(RemoteKeyManager(1, 2))

    async def bench(ctx: Any) -> None:
        rq = registers.rq
        await write(ctx, rq, "RQ_KEY_ADDRESS", 2)
        await write(ctx, rq, "RQ_KEY_DATA", VALID | 9)
        assert read(ctx, rq, "RQ_KEY_DATA") == 0  # what was read before
        await write(ctx, rq, "RQ_KEY_ADDRESS", 2)
        assert read(ctx, rq, "RQ_KEY_DATA") == VALID | 9
        await write(ctx, rq, "RQ_KEY_ADDRESS", 1)
        assert read(ctx, rq, "RQ_KEY_DATA") == 0

    simulator(registers, bench).run()


def test_registers_of_other_blocks_read_as_nothing_and_change_nothing() -> None:
    registers = RmbRegisters(RemoteKeyManager(1, 1, (PD, VALID | KEY)))

    async def bench(ctx: Any) -> None:
        for name in ("TX_WORD", "RQ_KEY_DATA"):
            await write(ctx, registers.sq, name, 0xFFFF_FFFF)
            assert read(ctx, registers.sq, name) == 0
        await write(ctx, registers.rq, "RMB_START", 1)
        assert read(ctx, registers.rq, "RMB_START") == 0
        assert read(ctx, registers.sq, "RMB_DONE") == 1
        await write(ctx, registers.rq, "RQ_KEY_ADDRESS", 1)
        assert read(ctx, registers.rq, "RQ_KEY_DATA") == VALID | KEY

    simulator(registers, bench).run()


def test_in_microcode_alone_both_engines_reach_the_memory_and_each_keeps_what_it_has_read() -> None:
    registers = SharedKeyRegisters(SharedKeyMemory(2, 2, (PD, 1, 2, PD, 4, 5)))

    async def bench(ctx: Any) -> None:
        sq, rq = registers.sq, registers.rq
        await write(ctx, rq, "RQ_KEY_ADDRESS", 4)
        await write(ctx, sq, "RQ_KEY_ADDRESS", 2)
        await write(ctx, sq, "RQ_KEY_DATA", 9)
        for bus, address, word in ((rq, 4, 4), (sq, 2, 2)):
            assert (read(ctx, bus, "RQ_KEY_ADDRESS"), read(ctx, bus, "RQ_KEY_DATA")) == (address, word)
        await write(ctx, rq, "RQ_KEY_DATA", 7)
        await write(ctx, rq, "RQ_KEY_ADDRESS", 2)
        await write(ctx, sq, "RQ_KEY_ADDRESS", 4)
        assert (read(ctx, rq, "RQ_KEY_DATA"), read(ctx, sq, "RQ_KEY_DATA")) == (9, 7)

    simulator(registers, bench).run()


def test_in_microcode_alone_of_two_accesses_in_a_clock_the_rq_s_counts() -> None:
    memory = SharedKeyMemory(2, 2, (PD, 1, 2, PD, 4, 5))

    async def bench(ctx: Any) -> None:
        for side, address in (("rq", 1), ("sq", 2)):
            asked = {"read": 1, "read_addr": address, "write": 1, "write_addr": 3 + address}
            for name, value in (asked | {"write_data": 50 + address}).items():
                ctx.set(getattr(memory, f"{side}_{name}"), value)
        await ctx.tick()
        assert ctx.get(memory.rq_read_data) == 1
        assert [ctx.get(memory.rq.memory.data[place]) for place in (4, 5)] == [51, 5]

    simulator(memory, bench).run()


def test_the_sq_s_engine_says_that_it_walks_and_the_rq_s_cannot() -> None:
    registers = SharedKeyRegisters(SharedKeyMemory(1, 1))

    async def bench(ctx: Any) -> None:
        sq, rq = registers.sq, registers.rq
        for bus, word, walks in ((sq, 1, 1), (rq, 0, 1), (sq, 2, 0), (rq, 1, 0)):
            await write(ctx, bus, "RQ_KEY_BUSY", word)
            assert [read(ctx, each, "RQ_KEY_BUSY") for each in (sq, rq)] == [walks, walks]
            assert ctx.get(registers.manager.sq_done) == 1 - walks

    simulator(registers, bench).run()
