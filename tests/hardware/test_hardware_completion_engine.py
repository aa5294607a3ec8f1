# amaranth: UnusedElaboratable=no
"""Completions and events, held against the software adapter's completion queue."""

import pytest

pytest.importorskip("amaranth")

from hardware_bench import Bench, strobe
from host_memory import HostMemory as HostBusMemory
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.hardware import completion_engine as ce
from softhca.hardware.completion_engine import CompletionEngine
from softhca.memory.host import HostMemory
from softhca.queues import completion, cqe
from softhca.queues.completion import CompletionQueue, CompletionReader, pages_for
from softhca.queues.ring import RingLayout

QUEUES = 3
BENCH = Bench(CompletionEngine(QUEUES))
SOFTWARE_HOST = HostMemory(64 << 20)
BASE = 0x12_3456_7000
LOG_ENTRIES = (1, 2, 3)
LAYOUTS = [
    RingLayout.over(
        SOFTWARE_HOST.allocate(pages_for(1 << log)), SOFTWARE_HOST.address_map, 1 << log, 64 << log
    )
    for log in LOG_ENTRIES
]


class Oracle:
    """The software adapter's queue and its reader."""

    def __init__(self, layout):
        layout.clear()
        self.events = self.overflows = 0
        self.queue = CompletionQueue(0, layout, self)
        self.reader = CompletionReader(layout)
        self.read = 0

    def completion_event(self, _queue):
        self.events += 1

    def overflow(self, _queue):
        self.overflows += 1

    def post(self, qp, work, status, solicited):
        return self.queue.post(work, status, cqe.WC_SEND, 0, qp, 0, 0, 0, 0, 0, 0, 0, 0, 0, solicited)


class Driver:
    """The engines' and the host's registers, with a host that answers."""

    def __init__(self, ctx, host):
        self.ctx, self.memory = ctx, host

    async def tick(self):
        await self.ctx.tick()
        self.memory.answer(self.ctx, BENCH.block.bus)

    async def set(self, queue, which, data):
        host = BENCH.block.host
        for port, value in ((host.set, 1), (host.queue, queue), (host.which, which), (host.data, data)):
            self.ctx.set(port, value)
        while not self.ctx.get(host.ready):
            await self.tick()
        await self.tick()
        self.ctx.set(host.set, 0)

    async def make(self, queue, base, log):
        await self.set(queue, ce.BASE_LOW, base & 0xFFFFFFFF)
        await self.set(queue, ce.BASE_HIGH, base >> 32)
        await self.set(queue, ce.SIZE, log)

    async def fill(self, engine, values):
        for name, value in zip(("cq_qp", "cq_work", "cq_status"), values, strict=True):
            await strobe(self.ctx, getattr(engine, f"write_{name}"), value)
            assert self.ctx.get(getattr(engine, name)) == value

    async def push(self, number, queue, values, solicited=False):
        """Whether it was posted."""
        engine = BENCH.block.engine[number]
        await self.fill(engine, values)
        await strobe(self.ctx, engine.write_cq_push, queue | solicited << 31)
        self.memory.answer(self.ctx, BENCH.block.bus)
        assert self.ctx.get(engine.cq_push) & 1
        return await self.posted(number)

    async def posted(self, number):
        engine = BENCH.block.engine[number]
        for _ in range(200):
            if not self.ctx.get(engine.cq_push) & 1:
                return not self.ctx.get(engine.cq_push)
            await self.tick()
        raise AssertionError("the completion is not posted")

    async def told(self, queue):
        """(completion events, overflows) of a queue, 0 or 1, and taken away."""
        host = BENCH.block.host
        bits = tuple(self.ctx.get(vector) >> queue & 1 for vector in (host.events, host.overflows))
        self.ctx.set(host.clear_events, 1 << queue)
        self.ctx.set(host.clear_overflows, 1 << queue)
        await self.tick()
        self.ctx.set(host.clear_events, 0)
        self.ctx.set(host.clear_overflows, 0)
        return bits

    def entry(self, base, log, number):
        """The words of entry ``number``."""
        place = base + 16 * (number % (1 << log))
        return [self.memory.words.get(place + 4 * i, 0) for i in range(4)]


VALUES = st.tuples(st.integers(0, 0xFFFFFF), st.integers(0, 0xFFFFFFFF), st.sampled_from([0, 0, 4, 255]))
STEPS = st.one_of(
    st.tuples(st.just("post"), st.integers(0, 1), VALUES, st.booleans()),
    st.tuples(st.just("arm"), st.booleans()),
    st.tuples(st.just("poll"), st.integers(1, 3)),
)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, QUEUES - 1), STEPS), max_size=30),
    st.lists(st.integers(0, 2), min_size=1, max_size=3),
)
def test_queues_do_what_the_adapters_do(steps, latencies):
    host = HostBusMemory(latencies)
    oracles = [Oracle(layout) for layout in LAYOUTS]

    async def script(ctx):
        driver = Driver(ctx, host)
        bases = [BASE + 0x1000 * queue for queue in range(QUEUES)]
        for queue, log in enumerate(LOG_ENTRIES):
            await driver.make(queue, bases[queue], log)
        for queue, (kind, *arguments) in steps:
            oracle, log, base = oracles[queue], LOG_ENTRIES[queue], bases[queue]
            before = oracle.events, oracle.overflows
            if kind == "post":
                engine, values, solicited = arguments
                number = oracle.queue.posted
                posted = oracle.post(*values, solicited)
                assert await driver.push(engine, queue, values, solicited) == posted
                if posted:
                    phase = number >> log & 1 ^ 1
                    expected = [*values, phase << 31 | solicited << 30 | number]
                    assert driver.entry(base, log, number) == expected
            elif kind == "arm":
                oracle.reader.arm(arguments[0])
                which = completion.ARM_SOLICITED if arguments[0] else completion.ARM_NEXT
                await driver.set(queue, ce.ARM, which)
            else:
                for found in oracle.reader.poll(arguments[0]):
                    entry = dict(zip(cqe.FIELDS, found, strict=True))
                    words = driver.entry(base, log, oracle.read)
                    assert words[:3] == [entry["qp_num"], entry["wr_id"], entry["status"]]
                    oracle.read += 1
                await driver.set(queue, ce.CONSUMER, oracle.read)
            after = oracle.events, oracle.overflows
            assert await driver.told(queue) == tuple(b - a for a, b in zip(before, after, strict=True))

    BENCH.run(script)


def test_a_queue_that_is_not_there_takes_nothing():
    host = HostBusMemory()

    async def script(ctx):
        driver = Driver(ctx, host)
        await driver.make(0, BASE, 1)
        await driver.make(1, BASE, 13)  # such a size is none
        for queue in (1, 2, 3, 7, 255):
            assert not await driver.push(0, queue, (1, 2, 3))
        assert await driver.push(0, 0, (1, 2, 3))
        await driver.set(0, ce.SIZE, 0)
        assert not await driver.push(1, 0, (1, 2, 3))
        assert len(host.transactions) == 4
        assert await driver.told(1) == (0, 0)

    BENCH.run(script)


def test_a_host_that_refuses_or_breaks_the_ring_stops_its_queue_until_it_is_made_anew():
    host = HostBusMemory(limit=BASE + 0x18)

    async def script(ctx):
        driver = Driver(ctx, host)
        await driver.make(0, BASE, 3)
        await driver.set(0, ce.ARM, ce.ARM_NEXT)
        assert await driver.push(0, 0, (1, 2, 3))
        assert await driver.told(0) == (1, 0)
        assert not await driver.push(0, 0, (1, 2, 3))  # its third word
        assert await driver.told(0) == (0, 1)
        host.limit = 1 << 44
        assert not await driver.push(0, 0, (1, 2, 3))
        assert await driver.told(0) == (0, 0)
        await driver.set(0, ce.SIZE, 3)
        assert await driver.push(0, 0, (1, 2, 3))
        await driver.set(0, ce.CONSUMER, 2)  # more than there were
        assert not await driver.push(0, 0, (1, 2, 3))
        assert await driver.told(0) == (0, 1)

    BENCH.run(script)


@pytest.mark.parametrize("log", [1, 2])
def test_a_queue_takes_as_many_entries_as_it_has(log):
    host = HostBusMemory()

    async def script(ctx):
        driver = Driver(ctx, host)
        await driver.make(0, BASE, log)
        for _ in range(1 << log):
            assert await driver.push(0, 0, (1, 2, 3))
        await driver.set(0, ce.CONSUMER, 1)
        assert await driver.push(1, 0, (1, 2, 3))
        rounds = [driver.entry(BASE, log, number)[3] for number in (1, 1 << log)]
        assert rounds == [1 << 31 | 1, 1 << log]  # the phase tells the second round from the first
        assert await driver.told(0) == (0, 0)
        assert not await driver.push(0, 0, (1, 2, 3))
        assert await driver.told(0) == (0, 1)

    BENCH.run(script)


def test_a_request_for_any_completion_stands_above_one_for_solicited_ones():
    host = HostBusMemory()

    async def script(ctx):
        driver = Driver(ctx, host)
        await driver.make(0, BASE, 3)
        for requests, events in (((1, 2), 1), ((2, 1), 1), ((2, 2), 0), ((1, 0), 1), ((3,), 0)):
            for which in requests:
                await driver.set(0, ce.ARM, which)
            assert await driver.push(0, 0, (1, 2, 0))
            assert await driver.told(0) == (events, 0)
            assert await driver.push(0, 0, (1, 2, 0), solicited=True)
            assert await driver.told(0) == (requests == (2, 2), 0)
            await driver.set(0, ce.SIZE, 3)

    BENCH.run(script)


def test_the_last_word_of_an_entry_is_written_last_and_both_engines_get_their_turn():
    host = HostBusMemory((1,))

    async def script(ctx):
        driver = Driver(ctx, host)
        await driver.make(0, BASE, 3)
        for number in range(2):
            await driver.fill(BENCH.block.engine[number], (number, 7, 0))
        for _ in range(2):
            for number in range(2):
                ctx.set(BENCH.block.engine[number].write_cq_push.strobe, 1)
                ctx.set(BENCH.block.engine[number].write_cq_push.data, 0)
            await driver.tick()
            for number in range(2):
                ctx.set(BENCH.block.engine[number].write_cq_push.strobe, 0)
            # what is written while it waits is not taken
            await strobe(ctx, BENCH.block.engine[0].write_cq_qp, 99)
            host.answer(ctx, BENCH.block.bus)
            for number in range(2):
                assert await driver.posted(number)
        addresses = [address for _, address, _, _ in host.transactions]
        assert addresses == [BASE + 4 * i for i in range(16)]
        owners = [data for _, address, data, _ in host.transactions if address % 16 == 0]
        assert sorted(owners[:2]) == sorted(owners[2:]) == [0, 1]

    BENCH.run(script)


def test_lost_events_are_counted_up_to_what_the_counter_holds(monkeypatch):
    monkeypatch.setattr(ce, "COUNT_BITS", 4)
    bench = Bench(CompletionEngine(1))

    async def script(ctx):
        first, second = (engine.write_event_push for engine in bench.block.engine)
        ctx.set(first.strobe, 1)
        for _ in range(ce.EVENT_PLACES + 14):
            await ctx.tick()
        assert ctx.get(bench.block.host.events_lost) == 14
        ctx.set(second.strobe, 1)  # two at once
        for _ in range(3):
            await ctx.tick()
            assert ctx.get(bench.block.host.events_lost) == 15

    bench.run(script)


def test_an_event_that_comes_in_the_clock_in_which_the_host_clears_stays():
    host = HostBusMemory()

    async def script(ctx):
        driver = Driver(ctx, host)
        await driver.make(0, BASE, 3)
        await driver.set(0, ce.ARM, ce.ARM_NEXT)
        ctx.set(BENCH.block.host.clear_events, 1)
        assert await driver.push(0, 0, (1, 2, 0))
        assert ctx.get(BENCH.block.host.events) == 1
        await driver.tick()
        assert ctx.get(BENCH.block.host.events) == 0

    BENCH.run(script)


def test_global_events_come_in_order_and_what_finds_no_room_is_counted():
    async def script(ctx):
        host = BENCH.block.host
        for i in range(20):
            await strobe(ctx, BENCH.block.engine[i & 1].write_event_push, 0x05000000 | i)
        assert ctx.get(host.events_lost) == 4
        for engine in BENCH.block.engine:
            ctx.set(engine.write_event_push.strobe, 1)
        await ctx.tick()
        for engine in BENCH.block.engine:
            ctx.set(engine.write_event_push.strobe, 0)
        assert ctx.get(host.events_lost) == 6
        for i in range(16):
            assert ctx.get(host.event_ready)
            assert ctx.get(host.event) == 0x05000000 | i
            ctx.set(host.take_event, 1)
            await ctx.tick()
            ctx.set(host.take_event, 0)
        assert not ctx.get(host.event_ready)

    BENCH.run(script)


@pytest.mark.parametrize("queues", [0, 17])
def test_a_size_that_cannot_be_is_refused(queues):
    with pytest.raises(ValueError, match="1…16"):
        CompletionEngine(queues)
