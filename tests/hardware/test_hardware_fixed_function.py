"""The search in fixed hardware, whose two sides have a memory's ports of their own: where they meet."""

import pytest

pytest.importorskip("amaranth")

from softhca.hardware.fixed_function import FixedFunctionManager
from softhca.hardware.key_memory import KEYS, VALID
from softhca.hardware.trace import Access, Stimulus, record, simulator

PD, KEY, OTHER = 7, 0x123, VALID | 0x456
VIS, START, CLOCKS = 2, 3, 30
ROW = (PD, VALID | KEY, *(VALID | 1,) * (KEYS - 1))
FIRST = 1
"""The word that the walk clears."""


def play(rq):
    """The rows of a walk beside these accesses, and what is in the memory at its end."""
    manager = FixedFunctionManager(VIS, KEYS, ROW * VIS)
    rows = record(manager, Stimulus(PD, KEY, START, CLOCKS, rq))
    left = []

    async def bench(ctx):
        for clock in range(1, CLOCKS + 1):
            ctx.set(again.sq_pd, PD)
            ctx.set(again.sq_key, KEY)
            ctx.set(again.sq_start, clock == START)
            access = rq.get(clock)
            ctx.set(again.rq_write, access is not None)
            if access is not None:
                ctx.set(again.rq_write_addr, access.address)
                ctx.set(again.rq_write_data, access.word)
            await ctx.tick()
        left.extend(ctx.get(again.store[address]) for address in range(len(ROW) * VIS))

    again = FixedFunctionManager(VIS, KEYS, ROW * VIS)
    simulator(again, bench).run()
    return rows, left


@pytest.fixture(scope="module")
def clears():
    """In which clock the walk clears the first key while the RQ does nothing."""
    rows, left = play({})
    assert left[FIRST] == left[FIRST + 1 + KEYS] == KEY
    return next(row.clock for row in rows if row.mem_we)


def test_of_two_writes_of_a_word_the_receive_sides_stays_and_the_walks_is_none(clears):
    rows, left = play({clears: Access(FIRST, OTHER)})
    assert left[FIRST] == OTHER
    assert [row.clock for row in rows if row.mem_we] == [clears + 6 + 1]
    # another word at the same moment hinders nothing
    rows, left = play({clears: Access(FIRST + 1, OTHER)})
    assert left[FIRST : FIRST + 2] == [KEY, OTHER]


def test_a_write_just_before_the_clear_is_lost(clears):
    """What the remote-key manager mends: the walk has compared the word that was there before."""
    assert play({clears - 1: Access(FIRST, OTHER)})[1][FIRST] == KEY


def test_the_receive_side_is_busy_when_it_reads_and_when_it_writes():
    manager = FixedFunctionManager(VIS, KEYS)
    seen = []

    async def bench(ctx):
        for reads, writes in ((0, 0), (1, 0), (0, 1), (1, 1)):
            ctx.set(manager.rq_read, reads)
            ctx.set(manager.rq_write, writes)
            seen.append(ctx.get(manager.rq_busy))
            await ctx.tick()

    simulator(manager, bench).run()
    assert seen == [0, 1, 1, 1]
