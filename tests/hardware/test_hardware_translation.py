"""The look-up of a page, held against the software adapter's table and regions."""

import random

import pytest

pytest.importorskip("amaranth")

from hardware_bench import Bench, strobe
from host_memory import HostMemory as HostBusMemory
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.hardware import translation
from softhca.hardware.translation import (
    BY_KEY_BIT,
    DOMAIN,
    HOST,
    INVALID,
    NONE,
    OUTSIDE,
    RANGE,
    RIGHTS,
    Translation,
)
from softhca.memory import regions
from softhca.memory.host import HostMemory
from softhca.memory.regions import RegionTable
from softhca.memory.tpt import MAX_ENTRIES, TranslationTable

DONE = 1 << 31
BENCH = Bench(Translation())
SOFTWARE_HOST = HostMemory(64 << 20)
FRAMES = SOFTWARE_HOST.allocate(12, contiguous=True)
REASONS = {
    0: NONE,
    regions.REFUSED_KEY: INVALID,
    regions.REFUSED_PD: DOMAIN,
    regions.REFUSED_RIGHTS: RIGHTS,
}


def load(host, table, base):
    """The table's entries as the host's memory has them."""
    for i in range(table.capacity):
        entry = table.entry(i)
        host.words[base + 8 * i] = entry & 0xFFFFFFFF
        host.words[base + 8 * i + 4] = entry >> 32


async def look_up(ctx, host, index, pd, access):
    """(reason, frame)."""
    block = BENCH.block

    async def write(register, data):
        await strobe(ctx, register, data)
        host.answer(ctx, block.bus)

    await write(block.write_tpt_index, index)
    await write(block.write_tpt_pd, pd)
    await write(block.write_tpt_access, access)
    for _ in range(60):
        if ctx.get(block.tpt_result) & DONE:
            entry = ctx.get(block.tpt_entry_high) << 32 | ctx.get(block.tpt_entry)
            assert entry == (ctx.get(block.base) + 8 * index) % (1 << 44)
            return ctx.get(block.tpt_result) & ~DONE, ctx.get(block.tpt_frame)
        await ctx.tick()
        host.answer(ctx, block.bus)
    raise AssertionError("the look-up does not end")


def settle(ctx, base, entries):
    ctx.set(BENCH.block.base, base)
    ctx.set(BENCH.block.entries, entries)


PDS = st.integers(1, 3)
ACCESS = st.integers(0, 127).filter(lambda access: not access & 10 or access & 1)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(PDS, ACCESS, st.integers(1, 3), st.booleans()), min_size=1, max_size=4),
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 3), st.integers(0, 127)), max_size=6
    ),
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.integers(0, 1 << 20).map(lambda n: 8 * n),
)
def test_a_page_is_given_as_the_adapters_regions_give_it(made, asked, latencies, base):
    table = TranslationTable(16)
    owner = RegionTable(table, random.Random(1), 8)
    found, frames = [], []
    for pd, access, pages, ends in made:
        run = FRAMES[3 * len(frames) :][:pages]
        region = owner.register(SOFTWARE_HOST.address_map, pd, 0x10000, pages * 4096, access & ~32, run, 0)
        found.append((region, region.key, region.first_entry, pages, ends))
        frames.append(run)
    for region, _, _, _, ends in found:
        if ends:
            owner.deregister(region)
    host = HostBusMemory(latencies)
    load(host, table, base)

    async def script(ctx):
        settle(ctx, base, table.capacity)
        for which, page, pd, access in asked:
            which %= len(found)
            _, key, first, pages, _ = found[which]
            page %= pages
            access &= ~32
            allowed = owner.find(key, pd, 0x10000 + page * 4096, 1, access)
            reason, frame = await look_up(ctx, host, first + page, pd, access)
            assert reason == REASONS[owner.refusal]
            assert frame == (frames[which][page] if allowed else 0)

    BENCH.run(script)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, (1 << 64) - 1),
    st.integers(0, (1 << 24) - 1),
    st.integers(0, 127),
    st.booleans(),
)
def test_any_entry_is_judged_by_valid_domain_rights(entry, pd, access, same):
    host = HostBusMemory()
    host.words[0x100], host.words[0x104] = entry & 0xFFFFFFFF, entry >> 32
    if same:
        pd = entry >> 32 & 0xFFFFFF
    if not entry >> 63:
        expected = INVALID
    elif entry >> 32 & 0xFFFFFF != pd or pd == 0:
        expected = DOMAIN
    else:
        expected = RIGHTS if (entry >> 56 & access) != access else NONE

    async def script(ctx):
        settle(ctx, 0, MAX_ENTRIES)
        assert await look_up(ctx, host, 0x20, pd, access) == (
            expected,
            0 if expected else entry & 0xFFFFFFFF,
        )

    BENCH.run(script)


def test_the_sizes_are_the_adapters():
    assert translation.MAX_ENTRIES == MAX_ENTRIES
    rights = (translation.LOCAL_WRITE, translation.REMOTE_WRITE, translation.REMOTE_READ)
    assert rights == (regions.LOCAL_WRITE, regions.REMOTE_WRITE, regions.REMOTE_READ)


@pytest.mark.parametrize(
    ("base", "entries", "index", "reason"),
    [
        (0, 16, 16, OUTSIDE),
        (0, 16, 0xFFFFFFFF, OUTSIDE),
        (0, 0, 0, OUTSIDE),
        (0, 1 << 27, 1 << 27, OUTSIDE),
        (0, 1 << 27, (1 << 27) - 1, INVALID),
        ((1 << 44) - 8, 2, 0, HOST),
        ((1 << 44) - 8, 2, 1, OUTSIDE),
    ],
)
def test_no_address_beyond_the_table_is_read(base, entries, index, reason):
    host = HostBusMemory(limit=(1 << 44) - 8)

    async def script(ctx):
        settle(ctx, base, entries)
        assert await look_up(ctx, host, index, 1, 0) == (reason, 0)
        for _, address, _, _ in host.transactions:
            assert base <= address < base + 8 * entries
        assert (reason == OUTSIDE) == (not host.transactions)

    BENCH.run(script)


def test_a_request_beyond_the_rights_that_exist_and_domain_0_are_refused():
    host = HostBusMemory()
    host.words[4] = 0xFF000000  # valid, all rights, domain 0

    async def script(ctx):
        settle(ctx, 0, 1)
        assert (await look_up(ctx, host, 0, 0, 0))[0] == DOMAIN
        host.words[4] = 0xFF000001
        assert (await look_up(ctx, host, 0, 1, 0x7F))[0] == NONE
        assert (await look_up(ctx, host, 0, 1, 0x80))[0] == RIGHTS
        assert (await look_up(ctx, host, 0, 1 << 24 | 1, 0))[0] == DOMAIN

    BENCH.run(script)


START, LENGTH, KEY, FIRST, FOUND = 0xFFFF_FFFF_0000_0F80, 0x1100, 4, 10, (0x31, 0x75, 0x52)


@pytest.mark.parametrize(
    ("key", "offset", "length", "entries", "reason", "page"),
    [
        (KEY, 0, 1, 13, NONE, 0),
        (KEY, 0x7F, 2, 13, NONE, 0),
        (KEY, 0x80, 1, 13, NONE, 1),
        (KEY, LENGTH - 1, 1, 13, NONE, 2),
        (KEY, 0, LENGTH, 13, NONE, 0),
        (KEY, LENGTH, 0, 13, NONE, 2),
        (KEY, 0, LENGTH + 1, 13, RANGE, 0),
        (KEY, 1, 0xFFFFFFFF, 13, RANGE, 0),
        (KEY, LENGTH + 1, 0, 13, RANGE, 0),
        (KEY, -1, 1, 13, RANGE, 0),
        (KEY, -START, 1, 13, RANGE, 0),
        (KEY, 0x107F, 1, 12, NONE, 1),
        (KEY, LENGTH - 1, 1, 12, OUTSIDE, 0),  # its page's entry is the first behind the table
        (9, 0, 1, 13, INVALID, 0),
        (FIRST, 0, 1, 13, OUTSIDE, 0),  # the key's fourth entry is
    ],
)
def test_a_key_gives_a_range_within_its_region_and_table(key, offset, length, entries, reason, page):
    host, base = HostBusMemory((0, 1)), 0x1000
    words = {KEY: (FIRST, 0x82000001), KEY + 1: (START & 0xFFFFFFFF, START >> 32), KEY + 2: (LENGTH, 0)}
    words |= {FIRST + at: (frame, 0x80000001) for at, frame in enumerate(FOUND)}
    for at, (low, upper) in words.items():
        host.words[base + 8 * at], host.words[base + 8 * at + 4] = low, upper
    va = START + offset

    async def script(ctx):
        block = BENCH.block
        settle(ctx, base, entries)
        for register, data in (
            (block.write_tpt_va, va & 0xFFFFFFFF),
            (block.write_tpt_va_high, va >> 32),
            (block.write_tpt_length, length),
        ):
            await strobe(ctx, register, data)
        frame = 0 if reason else FOUND[page]
        assert await look_up(ctx, host, key, 1, 2 | 1 << BY_KEY_BIT) == (reason, frame)
        place = ctx.get(block.tpt_address_high) << 32 | ctx.get(block.tpt_address)
        assert reason or place == frame << 12 | va & 0xFFF
        assert all(base <= address < base + 8 * entries for _, address, _, _ in host.transactions)

    BENCH.run(script)


def test_an_entry_that_changes_meanwhile_is_not_mixed():
    """At each of the three reads the host gives the entry away: old or refused, never half."""
    old, new = (0x11, 0x82000001), (0x22, 0x82000002)
    for moment in range(4):
        host = HostBusMemory()
        host.words[0], host.words[4] = old

        async def script(ctx, host=host, moment=moment):
            settle(ctx, 0, 1)
            original = host.answer

            def answer(ctx, bus):
                if len(host.transactions) == moment:
                    host.words[0], host.words[4] = new
                original(ctx, bus)

            host.answer = answer
            for pd, whole in ((1, old), (2, new)):
                reason, frame = await look_up(ctx, host, 0, pd, 2)
                assert (reason, frame) in ((NONE, whole[0]), (INVALID, 0), (DOMAIN, 0))

        BENCH.run(script)


def test_registers_stay_while_a_look_up_is_under_way():
    host = HostBusMemory((3,))
    host.words[0], host.words[4] = 0x77, 0x82000001
    host.words[8], host.words[12] = 0x88, 0x82000001

    async def script(ctx):
        block = BENCH.block
        settle(ctx, 0, 2)
        for register, data in (
            (block.write_tpt_index, 0),
            (block.write_tpt_pd, 1),
            (block.write_tpt_access, 2),
        ):
            await strobe(ctx, register, data)
        host.answer(ctx, block.bus)
        assert not ctx.get(block.tpt_result) & DONE
        for register in (block.write_tpt_index, block.write_tpt_access):
            await strobe(ctx, register, 1)
            host.answer(ctx, block.bus)
        while not ctx.get(block.tpt_result) & DONE:
            await ctx.tick()
            host.answer(ctx, block.bus)
        assert ctx.get(block.tpt_frame) == 0x77
        assert ctx.get(block.tpt_index) == 0

    BENCH.run(script)
