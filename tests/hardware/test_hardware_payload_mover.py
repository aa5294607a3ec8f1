"""Payload between host memory and FIFOs: any pieces, no byte beside them."""

import pytest

pytest.importorskip("amaranth")

from hardware_bench import Bench
from host_memory import HostMemory
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.hardware.payload_mover import FINISH, INWARD, OUT, PayloadMover

BENCH = Bench(PayloadMover())
LAST = 1 << 44
PIECES = st.lists(
    st.tuples(st.sampled_from([0x1000, 0x1001, 0x1002, 0x1003, LAST - 40]), st.integers(1, 23)), max_size=5
)
LATENCIES = st.lists(st.integers(0, 3), min_size=1, max_size=3)


def byte_at(host, address):
    return host.words.get(address & ~3, 0) >> 8 * (address & 3) & 0xFF


def filled(latencies, limit=LAST):
    host = HostMemory(latencies, limit)
    for at in (*range(0x1000, 0x1020, 4), *range(LAST - 40, LAST, 4)):
        host.words[at] = sum((at + i) * 37 % 251 << 8 * i for i in range(4))
    return host


async def command(ctx, host, kind, address=0, length=0, each=lambda: None):
    """Give a command and let it end; whether it failed."""
    order = BENCH.block.command
    ctx.set(order.start, 1)
    ctx.set(order.kind, kind)
    ctx.set(order.address, address)
    ctx.set(order.length, length)
    for _ in range(300):
        await ctx.tick()
        ctx.set(order.start, 0)
        host.answer(ctx, BENCH.block.bus)
        each()
        if ctx.get(order.done):
            failed = bool(ctx.get(order.failed))
            await ctx.tick()  # it takes the next one when it has told
            each()
            return failed
    raise AssertionError("the mover does not end")


@settings(max_examples=40, deadline=None)
@given(PIECES, LATENCIES)
def test_pieces_stand_behind_one_another_in_a_packet(pieces, latencies):
    host, words, ends = filled(latencies), [], []
    wanted = bytes(byte_at(host, address + i) for address, length in pieces for i in range(length))
    wanted += bytes(-len(wanted) % 4)

    async def script(ctx):
        out = BENCH.block.out

        def look():
            if ctx.get(out.valid):
                words.append(ctx.get(out.word))
            if ctx.get(out.end):
                ends.append(len(words))

        for address, length in pieces:
            assert not await command(ctx, host, OUT, address, length, look)
        assert not await command(ctx, host, FINISH, each=look)

    BENCH.run(script)
    assert b"".join(word.to_bytes(4, "big") for word in words) == wanted
    assert ends == [len(words)]
    assert not [one for one in host.transactions if one[0]]


@settings(max_examples=40, deadline=None)
@given(PIECES, LATENCIES, st.integers(0, 3))
def test_a_packets_bytes_go_into_pieces_and_not_beside_them(pieces, latencies, spare):
    """The packet has ``spare`` bytes more than the pieces take."""
    host, before = filled(latencies), filled(latencies)
    total = sum(length for _, length in pieces)
    data = bytes(i * 7 % 256 for i in range(total + spare))
    padded = data + bytes(-len(data) % 4)
    words = [int.from_bytes(padded[i : i + 4], "big") for i in range(0, len(padded), 4)] + [0xDEAD]
    taken = [0]

    async def script(ctx):
        source = BENCH.block.inward

        def show():
            ctx.set(source.ready, taken[0] < len(words))
            ctx.set(source.last, taken[0] == len(words) - 1)
            ctx.set(source.word, words[min(taken[0], len(words) - 1)])
            if ctx.get(source.take):
                taken[0] += 1

        show()
        for address, length in pieces:
            assert not await command(ctx, host, INWARD, address, length, show)
        ctx.set(source.forget, 1)
        await ctx.tick()
        ctx.set(source.forget, 0)

    BENCH.run(script)
    wanted = {}
    for address, length in pieces:
        for i in range(length):
            wanted[address + i], data = data[0], data[1:]
    for at in (*range(0x1000, 0x1020), *range(LAST - 40, LAST)):
        assert byte_at(host, at) == wanted.get(at, byte_at(before, at))


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5])
def test_of_a_packet_that_is_complete_nothing_stands_in_the_next(length):
    host, words = filled([0]), []

    async def script(ctx):
        def look():
            if ctx.get(BENCH.block.out.valid):
                words.append(ctx.get(BENCH.block.out.word))

        for at, count in ((0x1000, length), (0x1008, 3)):
            assert not await command(ctx, host, OUT, at, count, look)
            assert not await command(ctx, host, FINISH, each=look)

    BENCH.run(script)
    first = bytes(byte_at(host, 0x1000 + i) for i in range(length)) + bytes(-length % 4)
    second = bytes(byte_at(host, 0x1008 + i) for i in range(3)) + bytes(1)
    assert b"".join(word.to_bytes(4, "big") for word in words) == first + second


def test_a_packet_without_enough_bytes_fails_and_its_icrc_is_not_taken():
    host = filled([0])

    async def script(ctx):
        source = BENCH.block.inward
        ctx.set(source.ready, 1)
        ctx.set(source.last, 1)
        assert await command(ctx, host, INWARD, 0x1000, 1)
        assert not ctx.get(source.take)

    BENCH.run(script)
    assert host.words == filled([0]).words


def test_a_host_that_refuses_fails_the_command_and_the_next_one_goes_on():
    host = filled([1], limit=0x1010)

    async def script(ctx):
        assert await command(ctx, host, OUT, 0x100D, 8)
        assert not await command(ctx, host, OUT, 0x1000, 4)
        ctx.set(BENCH.block.inward.ready, 1)
        assert await command(ctx, host, INWARD, 0x1010, 4)

    BENCH.run(script)


def test_of_a_packet_that_is_dropped_nothing_stands_in_the_next():
    """Bytes that do not fill a word wait for the next piece, but not for the next packet."""
    host, words = filled([0]), []

    async def script(ctx):
        out, source = BENCH.block.out, BENCH.block.inward

        def collect():
            if ctx.get(out.valid):
                words.append(ctx.get(out.word))

        assert not await command(ctx, host, OUT, 0x1000, 3, collect)
        ctx.set(out.forget, 1)
        await ctx.tick()
        ctx.set(out.forget, 0)
        assert not await command(ctx, host, OUT, 0x1004, 4, collect)
        assert not await command(ctx, host, FINISH, each=collect)
        for word, address in ((0x01020304, 0x1008), (0x05060708, 0x100C)):
            ctx.set(source.ready, 1)
            ctx.set(source.word, word)
            assert not await command(ctx, host, INWARD, address, 1)
            ctx.set(source.forget, 1)
            await ctx.tick()
            ctx.set(source.forget, 0)

    BENCH.run(script)
    assert words == [int.from_bytes(bytes(byte_at(host, 0x1004 + i) for i in range(4)), "big")]
    assert [byte_at(host, address) for address in (0x1008, 0x100C)] == [1, 5]
