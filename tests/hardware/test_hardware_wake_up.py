"""Queue pairs that engines put before schedulers: each once, past the doorbells, none that does not exist."""

import pytest

pytest.importorskip("amaranth")

from hardware_bench import Bench, strobe

from softhca.hardware.wake_up import WakeUp

BENCH = Bench(WakeUp(8))


def test_an_engine_goes_before_the_doorbells_and_the_sqs_before_the_rqs():
    async def script(ctx):
        block = BENCH.block
        put, ring = block.put[0], block.ring[0]
        ctx.set(ring.valid, 1)
        ctx.set(ring.qp, 7)
        assert (ctx.get(put.valid), ctx.get(put.qp)) == (1, 7)
        await strobe(ctx, block.engine[1].write_wake, 3)
        await strobe(ctx, block.engine[0].write_wake, 2)
        ctx.set(put.ready, 1)
        order = []
        for _ in range(3):
            order.append((ctx.get(put.qp), ctx.get(ring.ready), ctx.get(block.engine[1].wake)))
            await ctx.tick()
        assert order == [(2, 0, 1), (3, 0, 1), (7, 1, 0)]

    BENCH.run(script)


def test_the_queue_bit_chooses_the_scheduler():
    async def script(ctx):
        block = BENCH.block
        await strobe(ctx, block.engine[0].write_wake, 1 << 31 | 5)
        assert [ctx.get(put.valid) for put in block.put] == [0, 1]
        assert ctx.get(block.put[1].qp) == 5
        await strobe(ctx, block.engine[0].write_wake, 6)  # while it waits: lost
        ctx.set(block.put[1].ready, 1)
        await ctx.tick()
        assert [ctx.get(put.valid) for put in block.put] == [0, 0]

    BENCH.run(script)


@pytest.mark.parametrize("number", [8, 1 << 23])
def test_a_queue_pair_that_does_not_exist_is_nobodys(number):
    async def script(ctx):
        await strobe(ctx, BENCH.block.engine[0].write_wake, number)
        assert ctx.get(BENCH.block.put[0].valid) == 0
        assert ctx.get(BENCH.block.engine[0].wake) == 0

    BENCH.run(script)
