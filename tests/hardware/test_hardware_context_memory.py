# amaranth: UnusedElaboratable=no
"""Context memory: the newest value for every reader, one writer a word, and nobody's write lost."""

import pytest

pytest.importorskip("amaranth")

from hardware_bench import Bench
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.hardware.context_memory import WORDS, ContextMemory

VIS = 4
BENCH = Bench(ContextMemory(VIS))
VALUES = st.integers(0, 0xFFFFFFFF)
ADDRESSES = st.one_of(
    st.sampled_from([0, 1, 30, 31, 32, 33, 62, 63, 64, 65, 95, 96, 127]),
    st.sampled_from([255, 256, 1 << 31, 0x80000003, 1 << 20]),
)
PLACES = st.sampled_from([0, 1, 30, 31, 32, 33, 62, 63, 64, 65, 95, 96, 127, 255])
CLOCKS = st.fixed_dictionaries(
    {
        "addresses": st.tuples(*[st.one_of(st.none(), ADDRESSES)] * 2),
        "datas": st.tuples(*[st.one_of(st.none(), VALUES)] * 2),
        "count": st.one_of(st.none(), st.tuples(st.integers(0, 1), st.integers(0, 1), VALUES)),
        "host": st.tuples(PLACES, st.one_of(st.none(), VALUES)),
    }
)


class Model:
    """All writers of one clock, in any order: no two of them write the same word."""

    def __init__(self):
        self.words = [0] * (64 * VIS)
        self.addresses = [0, 0]
        self.refused = [False, False]
        self.host_address = 0

    def step(self, addresses, datas, count, host):
        """(count taken, host's write taken)."""
        busy = [False, False]
        for engine, data in enumerate(datas):
            place = self.addresses[engine]
            if data is None:
                continue
            own = place < len(self.words) and place >> 5 & 1 == engine
            self.refused[engine] = not own
            if own:
                self.words[place] = data
                busy[engine] = True
        counted = False
        if count is not None and not busy[count[0]]:
            queue, qp, value = count
            self.words[64 * qp + 32 * queue + 31] = value
            busy[queue] = counted = True
        self.host_address, value = host
        written = value is not None and not busy[self.host_address >> 5 & 1]
        if written:
            self.words[self.host_address] = value
        for engine, address in enumerate(addresses):
            if address is not None:
                self.addresses[engine] = address
        return counted, written

    def read(self, address):
        return self.words[address] if address < len(self.words) else 0


@settings(max_examples=60, deadline=None)
@given(st.lists(CLOCKS, max_size=50))
def test_every_reader_sees_the_newest_value(clocks):
    async def script(ctx):
        block, model = BENCH.block, Model()
        for clock in clocks:
            for engine, address, data in zip(block.engine, clock["addresses"], clock["datas"], strict=True):
                ctx.set(engine.write_context_address.strobe, address is not None)
                ctx.set(engine.write_context_address.data, address or 0)
                ctx.set(engine.write_context_data.strobe, data is not None)
                ctx.set(engine.write_context_data.data, data or 0)
            queue, qp, value = clock["count"] or (0, 0, 0)
            ctx.set(block.count.valid, clock["count"] is not None)
            ctx.set(block.count.queue, queue)
            ctx.set(block.count.qp, qp)
            ctx.set(block.count.count, value)
            place, value = clock["host"]
            ctx.set(block.host.address, place)
            ctx.set(block.host.write, value is not None)
            ctx.set(block.host.write_data, value or 0)
            taken = bool(ctx.get(block.count.ready)), bool(ctx.get(block.host.ready))
            await ctx.tick()
            assert taken == model.step(**clock)
            for i, engine in enumerate(block.engine):
                address = model.addresses[i]
                assert ctx.get(engine.context_address) == address & 0x7FFFFFFF | model.refused[i] << 31
                assert ctx.get(engine.context_data) == model.read(address)
            assert ctx.get(block.host.read_data) == model.read(model.host_address)

    BENCH.run(script)


def test_the_words_of_a_context_are_each_halfs_own():
    assert len(set(WORDS.values())) == len(WORDS)
    assert all((name[:2] == "RQ") == (word >= 32) for name, word in WORDS.items())
    assert (WORDS["SQ_OUTSTANDING"], WORDS["RQ_OUTSTANDING"]) == (31, 63)


@pytest.mark.parametrize("vis", [0, 1, 3, 8192])
def test_a_size_that_cannot_be_is_refused(vis):
    with pytest.raises(ValueError, match=r"2…4096"):
        ContextMemory(vis)
