"""Which memory of a connection stays registered, for whom, and when it is let go; without a device."""

from __future__ import annotations

import weakref
from typing import Any

import numpy
import pytest

from softhca.channels import registration, windows
from softhca.channels.registration import LOCAL, SCRATCH, WINDOWS, Memory, bytes_of
from softhca.channels.windows import Windows

SCRATCH_BYTES = 64


class Region:
    """A registered region; ``made`` are all of a test."""

    made: list[Region]

    def __init__(self, pd: Any, *place: Any, access: int = 0, buffer: Any = None) -> None:
        self.access = place[1] if place else access
        self.lkey, self.closed = len(Region.made), 0
        Region.made.append(self)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    Region.made = []
    monkeypatch.setattr(registration, "MR", Region)
    return Memory(None, SCRATCH_BYTES)  # type: ignore[arg-type]


def lease(memory: Memory, data: Any) -> registration.Lease:
    return memory.lease(data, bytes_of(data))


def closed() -> list[int]:
    return [number for number, each in enumerate(Region.made) if each.closed]


def test_only_bytes_that_stand_in_a_row_and_may_be_changed_are_received_into() -> None:
    with pytest.raises(TypeError, match="cannot be written"):
        bytes_of(b"bytes", True)
    assert bytes_of(b"bytes") == b"bytes"
    with pytest.raises(TypeError, match="not contiguous"):
        bytes_of(numpy.zeros(10, numpy.uint16)[::2])
    with pytest.raises(TypeError, match="not contiguous"):
        bytes_of(numpy.zeros(10, ">u2")[::2], True)


def test_an_array_is_registered_once_and_a_view_that_is_read_only_apart(memory: Memory) -> None:
    array = numpy.zeros(100, numpy.uint8)
    for _ in range(3):
        lease(memory, array).release()
    assert memory.registrations == 1
    array.flags.writeable = False
    lease(memory, array).release()
    assert [each.access for each in Region.made] == [WINDOWS | LOCAL, WINDOWS]
    assert closed() == []


def test_what_is_no_array_is_registered_for_one_operation(memory: Memory) -> None:
    data = bytearray(10)
    one = lease(memory, data)
    assert closed() == []
    for _ in range(2):
        one.release()
    assert Region.made[0].closed == 1


@pytest.mark.parametrize("used", [False, True])
def test_a_region_that_another_one_replaces_goes_with_its_last_use(memory: Memory, used: bool) -> None:
    array = numpy.zeros(100, numpy.uint8)
    first = lease(memory, array)
    (entry,) = memory._cache.values()
    entry.owner = lambda: None  # type: ignore[assignment]  # that array is gone, and this one is in its place
    if not used:
        first.release()
    second = lease(memory, array)
    assert (second.lkey, closed()) == (1, [] if used else [0])
    if used:
        first.release()
    assert closed() == [0]
    second.release()
    assert closed() == [0]


def test_a_region_that_was_replaced_lasts_until_nobody_uses_it(memory: Memory) -> None:
    array = numpy.zeros(100, numpy.uint8)
    both = [lease(memory, array) for _ in range(2)]
    (entry,) = memory._cache.values()
    entry.owner = lambda: None  # type: ignore[assignment]
    lease(memory, array)
    both[0].release()
    assert closed() == []
    both[1].release()
    assert closed() == [0]


def test_regions_of_arrays_that_are_gone_and_of_too_many_are_let_go(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "CACHED", 2)
    kept = [numpy.zeros(100 + size, numpy.uint8) for size in range(3)]
    gone = numpy.zeros(99, numpy.uint8)
    lease(memory, gone).release()
    del gone
    held = lease(memory, kept[0])
    assert closed() == [0]
    lease(memory, kept[1]).release()
    lease(memory, kept[2])
    assert closed() == [0, 2], "the first one is in use"
    held.release()
    assert closed() == [0, 2]


def test_the_array_that_was_sent_last_stays_registered(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "CACHED", 2)
    arrays = [numpy.zeros(100 + size, numpy.uint8) for size in range(3)]
    for number in (0, 1, 0, 2):
        lease(memory, arrays[number]).release()
    assert closed() == [1]


def test_a_region_of_another_array_that_is_still_there_is_not_used(memory: Memory) -> None:
    """As where one was resized in place, and another one has its memory."""
    array, other = numpy.zeros(100, numpy.uint8), numpy.zeros(100, numpy.uint8)
    lease(memory, array).release()
    (entry,) = memory._cache.values()
    entry.owner = weakref.ref(other)
    assert lease(memory, array).lkey == 1
    assert (memory.registrations, closed()) == (2, [0])


def test_scratch_memory_is_long_enough_and_kept_up_to_a_bound(memory: Memory) -> None:
    one = memory.scratch(10)
    assert one.length == SCRATCH_BYTES
    one.release()
    assert memory.scratch(SCRATCH_BYTES) is one
    one.release()
    long = memory.scratch(SCRATCH_BYTES + 1)
    assert (long is not one, long.length) == (True, SCRATCH_BYTES + 1)
    long.release()
    assert closed() == [1]
    out = [memory.scratch(1) for _ in range(SCRATCH + 1)]
    for each in out:
        each.release()
    assert len(memory._scratch) == SCRATCH
    assert len(closed()) == 2


def test_a_program_s_memory_is_nobody_else_s(memory: Memory) -> None:
    own = bytearray(SCRATCH_BYTES)
    lease(memory, own).release()
    assert closed() == [0]
    assert memory.scratch(1).view.obj is not own


def test_what_is_kept_is_let_go_at_the_end(memory: Memory) -> None:
    array = numpy.zeros(10, numpy.uint8)
    lease(memory, array).release()
    memory.scratch(1).release()
    memory.close()
    assert closed() == [0, 1]
    assert (memory._cache, memory._scratch) == ({}, [])


def test_an_array_over_another_one_s_memory_does_not_stay_registered(memory: Memory) -> None:
    array = numpy.frombuffer(bytearray(10), numpy.uint8)
    lease(memory, array).release()
    assert (closed(), len(memory._cache)) == ([0], 0)
    whole = numpy.zeros(10, numpy.uint8)
    lease(memory, whole[2:5]).release()
    assert len(memory._cache) == 1, "a part of an array lives as long as the array"


class Bound:
    """A memory window of the device."""

    rkey, closed = 0x12344FE, 0

    def __init__(self, pd: object, kind: int) -> None:
        assert kind == windows._TYPE_2

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Windows:
    monkeypatch.setattr(windows, "MW", Bound)
    monkeypatch.setattr(windows, "MWBindInfo", lambda *_: None)
    monkeypatch.setattr(windows.SendWR, "set_bind_wr", lambda *_: None)
    return Windows(None)  # type: ignore[arg-type]


def test_a_window_s_key_stays_its_own_beyond_256_messages(table: Windows, memory: Memory) -> None:
    window = table.take()
    assert window is not None
    keys = []
    for _ in range(257):
        window.bind(memory.scratch(1))
        keys.append(window.rkey)
    assert keys[:3] == [0x12344FF, 0x1234400, 0x1234401]
    assert (len(set(keys)), keys[256]) == (256, keys[0])


def test_no_more_windows_are_made_than_may_be_on_offer(table: Windows) -> None:
    taken = [table.take() for _ in range(windows.MOST_WINDOWS)]
    assert None not in taken
    assert (table.take(), table.free) == (None, False)
    table.give_back(taken[0])  # type: ignore[arg-type]
    assert table.free
    assert table.take() is taken[0]
    table.give_back(taken[0])  # type: ignore[arg-type]
    table.close()
    assert [each._mw.closed for each in taken if each is not None][:2] == [1, 0]  # type: ignore[attr-defined]
