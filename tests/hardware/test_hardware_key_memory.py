"""The remote-key memory: one read and one write port, forwarding, bounds."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from softhca.hardware.key_memory import Geometry, RemoteKeyMemory
from softhca.hardware.trace import simulator

INIT = (11, 22, 33, 44, 55, 66)
Bench = Callable[[Any], Coroutine[Any, Any, None]]


def run(memory: RemoteKeyMemory, bench: Bench) -> None:
    simulator(memory, bench).run()


async def clock(
    ctx: Any, memory: RemoteKeyMemory, read: int | None, write: tuple[int, int] | None = None
) -> int:
    """One clock with these accesses; the read bus in the clock after it."""
    ctx.set(memory.read_enable, read is not None)
    ctx.set(memory.read_address, read or 0)
    ctx.set(memory.write_enable, write is not None)
    ctx.set(memory.write_address, write[0] if write else 0)
    ctx.set(memory.write_data, write[1] if write else 0)
    await ctx.tick()
    return int(ctx.get(memory.read_data))


def test_data_come_in_the_clock_after_the_read_and_stay() -> None:
    memory = RemoteKeyMemory(Geometry(2, 2), INIT)

    async def bench(ctx: Any) -> None:
        assert await clock(ctx, memory, 4) == 55
        assert await clock(ctx, memory, None) == 55
        assert await clock(ctx, memory, None, (4, 99)) == 55
        assert await clock(ctx, memory, 4) == 99

    run(memory, bench)


def test_a_word_written_while_it_is_read_is_forwarded_and_no_other_is() -> None:
    memory = RemoteKeyMemory(Geometry(2, 2), INIT)

    async def bench(ctx: Any) -> None:
        assert await clock(ctx, memory, 1, (1, 0xABC_DEF0)) == 0xABC_DEF0
        assert await clock(ctx, memory, 2, (3, 0x123_4567)) == 33
        assert await clock(ctx, memory, 3) == 0x123_4567

    run(memory, bench)


def test_beyond_the_last_word_nothing_is_stored_and_nothing_read() -> None:
    memory = RemoteKeyMemory(Geometry(2, 2), INIT)

    async def bench(ctx: Any) -> None:
        assert await clock(ctx, memory, 0) == 11
        assert await clock(ctx, memory, 6, (6, 77)) == 0
        assert await clock(ctx, memory, None) == 0
        assert await clock(ctx, memory, 7) == 0
        for address, word in enumerate(INIT):
            assert await clock(ctx, memory, address, (7, 88)) == word

    run(memory, bench)


@pytest.mark.parametrize(
    ("vis", "keys", "text"),
    [
        (0, 4, "1 to 65536 VIs, not 0"),
        (65_537, 4, "1 to 65536 VIs, not 65537"),
        (-1, 4, "1 to 65536 VIs, not -1"),
        (256, 0, "1 to 16 keys a VI, not 0"),
        (256, 17, "1 to 16 keys a VI, not 17"),
    ],
)
def test_a_number_out_of_bounds_is_refused_with_the_bounds(vis: int, keys: int, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Geometry(vis, keys)


def test_the_geometry_of_256_vis_is_1280_words() -> None:
    geometry = Geometry()
    assert (geometry.row, geometry.depth, geometry.address_bits, geometry.vi_bits) == (5, 1280, 11, 8)
    assert Geometry(65_536, 16).depth == 65_536 * 17


@pytest.mark.parametrize(("vis", "bits"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (257, 9), (65_536, 16)])
def test_a_vis_number_has_the_bits_that_the_last_one_takes(vis: int, bits: int) -> None:
    assert Geometry(vis).vi_bits == bits
