# amaranth: UnusedElaboratable=no
"""The scheduler's linked lists: who waits on one level takes nobody of another one along."""

import pytest

pytest.importorskip("amaranth")

from hardware_bench import Bench, strobe

from softhca.hardware.work_scheduler import PRESENT_BIT, WorkScheduler

VIS, LEVELS = 8, 4
LOW, HIGH = 0, 2
BENCH = Bench(WorkScheduler(VIS, LEVELS))


async def put(ctx, qp, level):
    """A queue pair asks for a turn on a level."""
    block = BENCH.block
    ctx.set(block.level.qp, qp)
    ctx.set(block.level.level, level)
    ctx.set(block.level.strobe, 1)
    await ctx.tick()
    ctx.set(block.level.strobe, 0)
    ctx.set(block.put.qp, qp)
    ctx.set(block.put.valid, 1)
    while not ctx.get(block.put.ready):
        await ctx.tick()
    await ctx.tick()
    ctx.set(block.put.valid, 0)


async def turns(ctx, count):
    """Who is served in so many turns, until nobody is offered for some clocks."""
    found = []
    for _ in range(count):
        for _ in range(4):
            await ctx.tick()
        seen = ctx.get(BENCH.block.engine.scheduler_next)
        if not seen >> PRESENT_BIT:
            break
        found.append(seen & 0xFFFF)
        await strobe(ctx, BENCH.block.engine.write_scheduler_take, 0)
    return found


def test_the_last_of_an_empty_level_waits_on_another_one():
    async def script(ctx):
        await put(ctx, 7, LOW)  # is offered, so that the others wait
        await put(ctx, 1, LOW)
        assert await turns(ctx, 2) == [7, 1]
        await put(ctx, 7, 1)
        await put(ctx, 1, HIGH)  # the last of LOW, which is empty now, was 1
        await put(ctx, 2, HIGH)
        await put(ctx, 3, LOW)
        await put(ctx, 4, LOW)
        assert await turns(ctx, 9) == [7, 1, 2, 3, 4]

    BENCH.run(script)


def test_levels_are_queues_and_who_waits_waits_once():
    async def script(ctx):
        await put(ctx, 0, HIGH)
        for qp, level in ((5, LOW), (3, HIGH), (4, LOW), (3, LOW), (6, HIGH), (5, HIGH), (2, LOW), (1, 1)):
            await put(ctx, qp, level)
        assert await turns(ctx, 12) == [0, 3, 6, 1, 5, 4, 2]

    BENCH.run(script)


@pytest.mark.parametrize("levels", [0, 1, 6, 32])
def test_a_number_of_levels_that_cannot_be_is_refused(levels):
    with pytest.raises(ValueError, match=r"levels.*2…16"):
        WorkScheduler(VIS, levels)
