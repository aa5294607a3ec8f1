# amaranth: UnusedElaboratable=no
"""The work scheduler clock by clock against the software adapter's, and the doorbells that feed it."""

import pytest

pytest.importorskip("amaranth")

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from hardware_bench import Bench
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.adapter.scheduler import HIGH_LIMIT_BYTES, Scheduler
from softhca.hardware import work_scheduler
from softhca.hardware.context_memory import CountUpdate
from softhca.hardware.doorbell_manager import DoorbellManager, DoorbellRing, EngineDoorbells
from softhca.hardware.work_scheduler import EngineScheduler, LevelWrite, WorkScheduler
from softhca.testing.ends import End
from softhca.testing.network import Network

VIS = 16
PRESENT = 1 << 31
SCHEDULING = Bench(WorkScheduler(VIS))


@pytest.fixture(scope="module")
def pool():
    """Flows of real queue pairs: what the software adapter's scheduler takes."""
    world = Network()
    end = End(world.add(1))
    yield [end.node.adapter.queue_pairs[end.qp().number].flow for _ in range(VIS)]
    world.close()


def test_the_bounds_are_the_adapters():
    assert (work_scheduler.LEVELS, work_scheduler.HIGH_LIMIT_BYTES) == (16, HIGH_LIMIT_BYTES)


class SchedulerModel:
    """The adapter's scheduler, one thing a clock."""

    def __init__(self, pool):
        self.pool = pool
        self.oracle = Scheduler()
        self.offered = self.sent = None
        for flow in pool:
            flow.scheduled = False
            flow.service_level = 0

    def step(self, put, take, level):
        """Whether the put was taken."""
        taken = False
        sent, self_offered = self.sent, self.offered
        if take is not None and self.offered is not None:
            self.sent, self.offered = take, None
        if sent is not None:
            self.oracle.charge(sent)
            self.sent = None
        elif self_offered is None and self.oracle.length:
            self.offered = self.pool.index(self.oracle.next())
        elif put is not None:
            self.oracle.put(self.pool[put])
            taken = True
        if level is not None:
            self.pool[level[0]].service_level = level[1]
        return taken


CLOCKS = st.tuples(
    st.one_of(st.none(), st.integers(0, VIS - 1)),
    st.one_of(st.none(), st.none(), st.sampled_from([0, 1, 1 << 16, (1 << 20) - 1, 1 << 20, 0xFFFFFFFF])),
    st.one_of(st.none(), st.tuples(st.integers(0, VIS - 1), st.integers(0, 15))),
)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, VIS - 1), st.integers(0, 15)), max_size=8),
    st.lists(CLOCKS, max_size=120),
)
def test_the_turns_are_those_of_the_adapters_scheduler(pool, levels, clocks):
    compare(pool, levels, clocks)


FEW_LEVELS = [(qp, (3, 3, 3, 5, 5, 9)[qp % 6]) for qp in range(VIS)]
BUSY_CLOCKS = st.tuples(
    st.one_of(st.none(), st.integers(0, VIS - 1)),
    st.one_of(st.none(), st.sampled_from([0, 1 << 19, 1 << 19, 1 << 20])),
    st.none(),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(BUSY_CLOCKS, min_size=40, max_size=150))
def test_few_levels_with_much_to_send_share_as_the_adapters_do(pool, clocks):
    compare(pool, FEW_LEVELS, clocks)


@pytest.mark.parametrize("sent", [(-1, 1), (0,), (1,), (-2, 1, 1), (-1, -1)])
def test_a_lower_level_has_its_turn_when_the_limit_is_reached_and_not_before(pool, sent):
    clocks = []
    for beside in sent:  # the limit, or the rest up to it
        taken = beside if clocks and beside > 0 else HIGH_LIMIT_BYTES + beside
        clocks += [(put, None, None) for put in (5, 3, 5, 3)]
        clocks += [(None, taken, None), (None, None, None), (None, None, None)]
    compare(pool, FEW_LEVELS, clocks)


def compare(pool, levels, clocks):
    """Block and model side by side."""

    async def script(ctx):
        block, model = SCHEDULING.block, SchedulerModel(pool)
        for clock in [(None, None, level) for level in levels] + clocks:
            put, take, level = clock
            ctx.set(block.put.valid, put is not None)
            ctx.set(block.put.qp, put or 0)
            ctx.set(block.engine.write_scheduler_take.strobe, take is not None)
            ctx.set(block.engine.write_scheduler_take.data, take or 0)
            ctx.set(block.level.strobe, level is not None)
            ctx.set(block.level.qp, level[0] if level else 0)
            ctx.set(block.level.level, level[1] if level else 0)
            ready = ctx.get(block.put.ready)
            await ctx.tick()
            assert ready == model.step(put, take, level)
            expected = 0 if model.offered is None else PRESENT | model.offered
            seen = ctx.get(block.engine.scheduler_next)
            assert seen & PRESENT == expected & PRESENT
            if expected:
                assert seen == expected

    SCHEDULING.run(script)


def test_no_level_starves():
    """All sixteen levels always wait; each gets its turns."""

    async def script(ctx):
        block = SCHEDULING.block
        for qp in range(VIS):
            ctx.set(block.level.strobe, 1)
            ctx.set(block.level.qp, qp)
            ctx.set(block.level.level, qp)
            await ctx.tick()
        ctx.set(block.level.strobe, 0)

        async def put(qp):
            ctx.set(block.put.valid, 1)
            ctx.set(block.put.qp, qp)
            while not ctx.get(block.put.ready):
                await ctx.tick()
            await ctx.tick()
            ctx.set(block.put.valid, 0)

        for qp in range(VIS):
            await put(qp)
        turns = [0] * VIS
        for _ in range(17 * 15):
            while not ctx.get(block.engine.scheduler_next) & PRESENT:
                await ctx.tick()
            served = ctx.get(block.engine.scheduler_next) & 0xFFFF
            turns[served] += 1
            await put(served)  # it has more to send
            ctx.set(block.engine.write_scheduler_take.data, 1 << 16)
            ctx.set(block.engine.write_scheduler_take.strobe, 1)
            await ctx.tick()
            ctx.set(block.engine.write_scheduler_take.strobe, 0)
        assert min(turns) >= 1
        assert turns[15] >= 230

    SCHEDULING.run(script)


class Ringing(wiring.Component):
    """Doorbells and a scheduler for each queue, as they stand in the subsystem."""

    def __init__(self, vis=VIS):
        self.vis = vis
        super().__init__(
            {
                "ring": In(DoorbellRing(vis)),
                "doorbells": In(EngineDoorbells()).array(2),
                "schedulers": In(EngineScheduler()).array(2),
                "levels": In(LevelWrite(vis)).array(2),
                "context": Out(CountUpdate(vis)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.manager = manager = DoorbellManager(self.vis)
        wiring.connect(m, wiring.flipped(self.ring), manager.ring)
        wiring.connect(m, manager.context, wiring.flipped(self.context))
        for i in range(2):
            m.submodules[f"scheduler_{i}"] = scheduler = WorkScheduler(self.vis)
            wiring.connect(m, wiring.flipped(self.doorbells[i]), manager.engine[i])
            wiring.connect(m, wiring.flipped(self.schedulers[i]), scheduler.engine)
            wiring.connect(m, wiring.flipped(self.levels[i]), scheduler.level)
            wiring.connect(m, manager.put[i], scheduler.put)
        return m


RINGING = Bench(Ringing())


class Server:
    """An engine that serves one work request a turn: looks, works for a while, pops, ends the turn."""

    def __init__(self, ctx, queue, works):
        self.ctx, self.queue, self.works = ctx, queue, works
        self.doorbells = RINGING.block.doorbells[queue]
        self.scheduler = RINGING.block.schedulers[queue]
        self.served = []
        self.plan = self._turns()

    def step(self):
        """Set the registers for the next clock."""
        for register in (
            self.doorbells.write_doorbell_qp,
            self.doorbells.write_doorbell_pop,
            self.scheduler.write_scheduler_take,
        ):
            self.ctx.set(register.strobe, 0)
        next(self.plan)

    def _write(self, register, data):
        self.ctx.set(register.strobe, 1)
        self.ctx.set(register.data, data)

    def _turns(self):
        turn = 0
        while True:
            seen = self.ctx.get(self.scheduler.scheduler_next)
            if not seen & PRESENT:
                yield
                continue
            qp = seen & 0xFFFFFF
            self._write(self.doorbells.write_doorbell_qp, qp)
            yield
            found = self.ctx.get(self.doorbells.doorbell_qp)
            if found == qp and self.queue == 0:  # a doorbell came in the turn that has served it
                self._write(self.scheduler.write_scheduler_take, 0)
                yield
                continue
            assert found == PRESENT | qp
            for _ in range(self.works[turn % len(self.works)]):
                yield
            turn += 1
            self._write(self.doorbells.write_doorbell_pop, 0)
            yield
            while self.ctx.get(self.doorbells.doorbell_pop) & 1:
                yield
            assert not self.ctx.get(self.doorbells.doorbell_pop)
            self.served.append(qp)
            self._write(self.scheduler.write_scheduler_take, 0)
            yield


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, VIS - 1), st.integers(0, 3)), max_size=12),
    st.lists(st.integers(0, 5), min_size=1, max_size=3),
    st.lists(st.booleans(), min_size=1, max_size=5),
)
def test_every_work_request_is_served_once_and_the_context_knows_the_count(rings, works, free):
    posted = [[0] * VIS, [0] * VIS]
    known = {}

    async def script(ctx):
        block = RINGING.block
        servers = [Server(ctx, queue, works) for queue in range(2)]
        waiting = list(rings)
        ctx.set(block.ring.valid, 0)
        quiet = 0  # the last clock in which something happened
        for clock in range(3000):
            before = sum(len(server.served) for server in servers)
            for server in servers:
                server.step()
            if waiting or before != sum(len(server.served) for server in servers):
                quiet = clock
            if waiting:
                queue, qp, count = waiting[0]
                ctx.set(block.ring.valid, 1)
                ctx.set(block.ring.queue, queue)
                ctx.set(block.ring.qp, qp)
                ctx.set(block.ring.count, count)
            else:
                ctx.set(block.ring.valid, 0)
            ctx.set(block.context.ready, [*free, True][clock % (len(free) + 1)])
            rung = bool(waiting) and ctx.get(block.ring.ready)
            if rung:
                assert not ctx.get(block.ring.refused)
            if ctx.get(block.context.valid) & ctx.get(block.context.ready):
                known[ctx.get(block.context.queue), ctx.get(block.context.qp)] = ctx.get(block.context.count)
            await ctx.tick()
            if rung:
                queue, qp, count = waiting.pop(0)
                posted[queue][qp] += count
            if not waiting and clock > quiet + 40:
                break
        for queue, server in enumerate(servers):
            assert [server.served.count(qp) for qp in range(VIS)] == posted[queue]
        assert not any(known.values())
        assert set(known) == {(queue, qp) for queue, qp, _ in rings}

    RINGING.run(script)


DOORBELLS = Bench(DoorbellManager(4))


def test_a_count_that_does_not_fit_and_a_pop_of_nothing_change_nothing():
    async def script(ctx):
        block = DOORBELLS.block
        engine = block.engine[1]
        ctx.set(block.context.ready, 1)
        ctx.set(block.put[1].ready, 1)

        async def ring(count):
            ctx.set(block.ring.valid, 1)
            ctx.set(block.ring.queue, 1)
            ctx.set(block.ring.qp, 2)
            ctx.set(block.ring.count, count)
            while not ctx.get(block.ring.ready):
                await ctx.tick()
            refused = ctx.get(block.ring.refused)
            await ctx.tick()
            ctx.set(block.ring.valid, 0)
            await ctx.tick().repeat(2)
            return refused

        async def write(register, data):
            ctx.set(register.strobe, 1)
            ctx.set(register.data, data)
            await ctx.tick()
            ctx.set(register.strobe, 0)
            await ctx.tick().repeat(4)

        await write(engine.write_doorbell_qp, 2)
        assert not await ring(0xFFFE)
        assert not await ring(1)
        assert await ring(1)
        assert ctx.get(engine.doorbell_count) == 0xFFFF
        await write(engine.write_doorbell_pop, 0)
        assert ctx.get(engine.doorbell_count) == 0xFFFE
        assert ctx.get(engine.doorbell_pop) == 0
        for empty in (1, 6, 1 << 24 | 2):  # without work, and such a queue pair is not there
            await write(engine.write_doorbell_qp, empty)
            assert ctx.get(engine.doorbell_count) == 0
            await write(engine.write_doorbell_pop, 0)
            assert ctx.get(engine.doorbell_pop) == 2
        await write(engine.write_doorbell_qp, 2)
        assert ctx.get(engine.doorbell_count) == 0xFFFE

    DOORBELLS.run(script)


@pytest.mark.parametrize(("queue", "turns"), [(0, [1, 1, 3, 1]), (1, [1, 3])], ids=["send", "receive"])
def test_a_doorbell_puts_a_receive_queue_that_had_no_work_and_every_send_queue(queue, turns):
    """A send queue may wait for its peer and have room for more under way; a receive queue that has work
    waits for its turn or for packets: a doorbell more gives no turn more."""

    async def script(ctx):
        block, puts = DOORBELLS.block, []
        ctx.set(block.context.ready, 1)
        ctx.set(block.put[queue].ready, 1)
        for qp in (1, 1, 3, 1):
            ctx.set(block.ring.valid, 1)
            ctx.set(block.ring.queue, queue)
            ctx.set(block.ring.qp, qp)
            ctx.set(block.ring.count, 2)
            for _ in range(5):
                taken = ctx.get(block.ring.ready)
                await ctx.tick()
                if taken:
                    ctx.set(block.ring.valid, 0)
                if ctx.get(block.put[queue].valid):
                    puts.append(ctx.get(block.put[queue].qp))
        assert puts == turns

    DOORBELLS.run(script)


@pytest.mark.parametrize("block", [DoorbellManager, WorkScheduler])
@pytest.mark.parametrize("vis", [0, 1, 6, 8192])
def test_a_size_that_cannot_be_is_refused(block, vis):
    with pytest.raises(ValueError, match=r"2…4096"):
        block(vis)
