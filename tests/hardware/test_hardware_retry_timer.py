"""The SQ's clock: time, and a queue pair that waits put before the scheduler once, behind the doorbells."""

from itertools import pairwise

import pytest

pytest.importorskip("amaranth")

from hardware_bench import Bench, strobe

from softhca.hardware.retry_timer import LATER_BIT, STEP_CLOCKS, TIME_SHIFT, UNIT_CLOCKS, RetryTimer

VIS = 4
BENCH = Bench(RetryTimer(VIS))
LATER = 1 << LATER_BIT


async def turns(ctx, rounds=1):
    """Who is put in so many rounds of the timer, and in which clock from now."""
    put, found = BENCH.block.put, []
    ctx.set(put.ready, 1)
    for clock in range(rounds * VIS * STEP_CLOCKS):
        if ctx.get(put.valid):
            found.append((ctx.get(put.qp), clock))
        await ctx.tick()
    ctx.set(put.ready, 0)
    return found


def test_a_queue_pair_that_waits_has_one_turn_later():
    async def script(ctx):
        for qp in (3, 1, 3):
            await strobe(ctx, BENCH.block.engine.write_wake, LATER | qp)
        assert sorted(qp for qp, _ in await turns(ctx, 2)) == [1, 3]
        assert await turns(ctx) == []

    BENCH.run(script)


def test_turns_are_a_step_apart():
    async def script(ctx):
        for qp in range(VIS):
            await strobe(ctx, BENCH.block.engine.write_wake, LATER | qp)
        clocks = [clock for _, clock in await turns(ctx, 2)]
        assert [after - before for before, after in pairwise(clocks)] == [STEP_CLOCKS] * 3

    BENCH.run(script)


def test_who_is_not_taken_waits_and_a_doorbell_goes_first():
    async def script(ctx):
        block = BENCH.block
        await strobe(ctx, block.engine.write_wake, LATER | 2)
        for _ in range(2 * VIS * STEP_CLOCKS):
            await ctx.tick()
        assert (ctx.get(block.put.valid), ctx.get(block.put.qp)) == (1, 2)
        ctx.set(block.ring.valid, 1)
        ctx.set(block.ring.qp, 1)
        ctx.set(block.put.ready, 1)
        assert (ctx.get(block.put.qp), ctx.get(block.ring.ready)) == (1, 1)
        await ctx.tick()
        ctx.set(block.ring.valid, 0)
        assert (ctx.get(block.put.valid), ctx.get(block.put.qp), ctx.get(block.ring.ready)) == (1, 2, 0)
        await ctx.tick()
        assert ctx.get(block.put.valid) == 0
        ctx.set(block.put.ready, 0)

    BENCH.run(script)


@pytest.mark.parametrize("number", [VIS, 1 << 23])
def test_a_queue_pair_that_does_not_exist_is_nobodys(number):
    async def script(ctx):
        await strobe(ctx, BENCH.block.engine.write_wake, LATER | number)
        assert await turns(ctx, 2) == []

    BENCH.run(script)


def test_only_what_is_for_later_is_kept_from_the_wake_up_block():
    async def script(ctx):
        wake, engine = BENCH.block.wake.write_wake, BENCH.block.engine.write_wake
        ctx.set(engine.strobe, 1)
        for data, passes in ((1 << 31 | 3, 1), (LATER | 3, 0)):
            ctx.set(engine.data, data)
            assert (ctx.get(wake.strobe), ctx.get(wake.data)) == (passes, data)
        ctx.set(engine.strobe, 0)

    BENCH.run(script)


def test_time_goes_in_units_beside_the_busy_bit():
    async def script(ctx):
        block = BENCH.block
        first = ctx.get(block.engine.wake) >> TIME_SHIFT
        for _ in range(3 * UNIT_CLOCKS):
            await ctx.tick()
        assert ctx.get(block.engine.wake) >> TIME_SHIFT == first + 3
        ctx.set(block.wake.wake, 1)
        assert ctx.get(block.engine.wake) & 0xFF == 1

    BENCH.run(script)
