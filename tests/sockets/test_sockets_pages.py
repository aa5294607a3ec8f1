"""Pools and page buffers without a device: whose pages are where, and when memory is whose again."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from softhca.driver.errors import DriverError
from softhca.machine import deferred_signals
from softhca.machine.primitives import address_of, bytes_at
from softhca.sockets import memory_processing
from softhca.sockets.memory_processing import PageBuffer, Pool, PoolError, page_list, space_of
from softhca.sockets.protocol import BEHIND_BYTES
from softhca.verbs import enums as e
from softhca.verbs.pyverbs_error import PyverbsError

PAGE, PAGES = 4096, 4
LOCAL, REMOTE = int(e.IBV_ACCESS_LOCAL_WRITE), int(e.IBV_ACCESS_REMOTE_WRITE)


class Device:
    """Host memory on a memfd; ``freed`` counts how often it was given back, ``regions`` what was registered.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fd = os.memfd_create("pool")
        self.asked: list[tuple[int, int]] = []
        self.regions: list[Any] = []
        self.freed = self.closed = 0
        self.fails: Exception | None = None
        self.shares = True
        self.ctx = SimpleNamespace(driver=self)
        self.session = SimpleNamespace(channel=SimpleNamespace(shares_addresses=True))
        monkeypatch.setattr(memory_processing, "MR", self._register)

    def alloc_host_memory(self, length: int, access: int) -> Any:
        self.asked.append((length, access))
        size = length + PAGE  # who takes less than it fills is told so by a test, and not by a signal
        os.ftruncate(self.fd, size)
        self.memory = mmap.mmap(self.fd, size)
        self.memory[:] = b"\xff" * size
        return SimpleNamespace(address=address_of(self.memory), free=self._free)

    def file_of(self, address: int, length: int) -> tuple[int, int] | None:
        return (self.fd, 0) if self.shares else None

    def _free(self) -> None:
        self.freed += 1

    def _close(self) -> None:
        self.closed += 1

    def _register(self, pd: Any, length: int, access: int = 0, **more: Any) -> Any:
        if self.fails is not None:
            raise self.fails
        self.regions.append((length, access, more))
        return SimpleNamespace(rkey=7, lkey=8, close=self._close)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made = Device(monkeypatch)
    yield made
    os.close(made.fd)


@pytest.fixture
def pool(device: Any) -> Pool:
    """Its pages hold their own numbers."""
    made = Pool(device, PAGES * PAGE)
    for page in range(PAGES):
        device.memory[page * PAGE : (page + 1) * PAGE] = bytes([page]) * PAGE
    return made


def test_what_is_behind_a_pool_is_whole_pages_and_empty(device: Any) -> None:
    pool = Pool(device, PAGES * PAGE)
    assert device.asked == [(PAGES * PAGE + PAGE, LOCAL | REMOTE)]
    assert device.memory[PAGES * PAGE : PAGES * PAGE + BEHIND_BYTES] == bytes(BEHIND_BYTES)
    assert device.memory[0] == 0xFF
    assert device.regions == [(PAGES * PAGE + BEHIND_BYTES, LOCAL | REMOTE, {"address": pool.address})]
    offer = pool.offer(5, True)
    assert (offer.address, offer.pool_bytes, offer.rkey, offer.port, offer.alone) == (
        pool.address, PAGES * PAGE, 7, 5, True
    )  # fmt: skip
    assert pool.lkey == 8
    Pool(device, PAGE, PAGE + 1, remote=False)
    assert (device.asked[1], device.regions[1][1]) == ((3 * PAGE, LOCAL), LOCAL)


@pytest.mark.parametrize("error", [DriverError(12, "none"), PyverbsError("none"), OSError(12, "none")])
def test_a_pool_that_cannot_be_registered_leaves_no_memory(device: Any, error: Exception) -> None:
    device.fails = error
    with pytest.raises(PoolError) as told:
        Pool(device, PAGE)
    assert (told.value.errno, device.freed) == (errno.ENOBUFS, 1)


def test_the_memory_of_a_pool_stays_until_the_last_view_is_gone(device: Any, pool: Pool) -> None:
    released: list[str] = []
    first = pool.lend(PAGE, 100, lambda: released.append("first"))
    second = pool.lend(2 * PAGE, 100, lambda: released.append("second"))
    assert (bytes(first), bytes(second)) == (b"\1" * 100, b"\2" * 100)
    kept = first[50:]
    del first
    gc.collect()
    assert released == []
    for _ in range(2):
        pool.close()
    assert (device.closed, device.freed) == (1, 0)
    del kept
    gc.collect()
    assert (released, device.freed) == (["first"], 0)
    second.release()
    del second
    gc.collect()
    assert (released, device.freed) == (["first", "second"], 1)


def test_a_pool_that_nobody_has_views_of_is_freed_by_its_close(device: Any, pool: Pool) -> None:
    view = pool.lend(0, 10, lambda: None)
    del view
    gc.collect()
    assert device.freed == 0
    pool.close()
    assert device.freed == 1


def test_arrays_of_many_lengths_are_not_all_kept() -> None:
    made = {length: memory_processing._array_type(length) for length in range(1, 66)}
    assert len(memory_processing._TYPES) <= 64
    assert memory_processing._array_type(65) is made[65]
    assert all(memory_processing.ctypes.sizeof(kind) == length for length, kind in made.items())


def test_pages_are_mapped_where_they_are_wanted_until_they_are_returned(device: Any, pool: Pool) -> None:
    buffer, released = PageBuffer(2 * PAGE), list[bool]()
    at = address_of(buffer)
    assert pool.map(PAGE, 2 * PAGE, at) == 0
    leave = buffer.mapped(0, 2 * PAGE, lambda: pool.returned(lambda: released.append(True)))
    assert (buffer[0], buffer[PAGE]) == (1, 2)
    device.memory[PAGE] = 99
    assert buffer[0] == 99, "it is the pool's page"
    pool.close()
    assert device.freed == 0
    leave()
    assert (released, device.freed) == ([True], 1)
    device.memory[PAGE] = 55
    assert (buffer[0], buffer[PAGE]) == (99, 2), "they are the buffer's own, and the same"
    leave()
    assert (released, device.freed) == ([True], 1)
    buffer.close()


@pytest.mark.parametrize("how", ["map", "copy_mapped"])
def test_what_is_no_file_or_closed_is_not_mapped(device: Any, pool: Pool, how: str) -> None:
    buffer = PageBuffer(PAGE)
    pool._file, file = None, pool._file
    assert getattr(pool, how)(0, PAGE, address_of(buffer)) == -errno.EOPNOTSUPP
    pool._file = file
    assert pool.map(0, PAGE, 1) == -errno.EINVAL
    pool.close()
    assert device.freed == 1, "a map that has failed counts for nothing"
    assert getattr(pool, how)(0, PAGE, address_of(buffer)) == -errno.EBADF
    buffer.close()


def test_copies_take_the_place_of_the_pool_s_pages(device: Any, pool: Pool) -> None:
    buffer = PageBuffer(2 * PAGE)
    at = address_of(buffer)
    assert pool.map(PAGE, 2 * PAGE, at) == 0
    assert pool.copy_mapped(PAGE, 2 * PAGE, at) == 0
    device.memory[PAGE : 3 * PAGE] = b"z" * (2 * PAGE)
    assert (buffer[0], buffer[PAGE]) == (1, 2)
    buffer.close()


def test_a_child_s_pool_frees_nothing(device: Any, pool: Pool) -> None:
    view = pool.lend(0, 10, lambda: None)
    pool.abandon()
    pool.close()
    del view
    gc.collect()
    assert (device.closed, device.freed) == (0, 0)


class Mapped:
    """Parts of a buffer of four pages at which pages of a pool are; ``gone`` are those given back."""

    def __init__(self, pool: Pool) -> None:
        self.buffer, self.gone = PageBuffer(4 * PAGE), list[int]()
        self.buffer[:] = b"o" * (4 * PAGE)
        self.pool = pool

    def map(self, place: int, pages: int = 1) -> Callable[[], object]:
        """Pages of the pool from 0 on at page ``place``; what the buffer is told to release them by."""
        at = address_of(self.buffer) + place * PAGE
        assert self.pool.map(0, pages * PAGE, at) == 0
        released = partial(self.gone.append, place)
        self.buffer.mapped(place * PAGE, pages * PAGE, released)
        return released


@pytest.fixture
def mapped(pool: Pool) -> Iterator[Mapped]:
    made = Mapped(pool)
    yield made
    made.buffer.close()


@pytest.mark.parametrize(
    ("start", "end", "gone", "kept"),
    [(0, 1, [], ""), (PAGE - 1, PAGE, [], ""), (PAGE - 1, PAGE + 1, [1], "rest"),
     (PAGE, 3 * PAGE, [1], "none"), (PAGE, 3 * PAGE - 1, [1], "rest"), (PAGE + 1, 3 * PAGE, [1], "rest"),
     (3 * PAGE - 1, 4 * PAGE, [1], "rest"), (3 * PAGE, 4 * PAGE, [], ""), (0, 4 * PAGE, [1], "none")],
)  # fmt: skip
def test_who_receives_into_a_buffer_has_given_back_what_is_mapped_there(
    mapped: Mapped, start: int, end: int, gone: list[int], kept: str
) -> None:
    """What is beside the receive is kept; of what it takes the place of nothing need be."""
    mapped.map(1, 2)
    mapped.buffer.give_back(memoryview(mapped.buffer)[start:end])
    assert mapped.gone == gone
    found = (mapped.buffer[PAGE], mapped.buffer[2 * PAGE])
    assert found == ((ord("o"), ord("o")) if kept == "none" else (0, 1))
    assert (mapped.buffer[0], mapped.buffer[3 * PAGE]) == (ord("o"), ord("o"))


def test_a_receive_of_nothing_gives_nothing_back(mapped: Mapped) -> None:
    mapped.map(0)
    mapped.buffer.give_back(memoryview(mapped.buffer)[0:0])
    assert mapped.gone == []


def test_who_maps_over_others_gives_those_back(mapped: Mapped) -> None:
    mapped.map(1)
    mapped.map(1)
    assert mapped.gone == [1]
    mapped.buffer.release()
    assert mapped.gone == [1, 1]
    assert mapped.buffer[PAGE] == 0


def test_a_buffer_that_cannot_have_its_pages_again_keeps_the_pool_s(
    mapped: Mapped, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped.map(1)
    refused = SimpleNamespace(**{**vars(memory_processing.primitives), "map_pages": lambda *_: -errno.ENOMEM})
    monkeypatch.setattr(memory_processing, "primitives", refused)
    with pytest.raises(OSError, match="own pages again") as told:
        mapped.buffer.release()
    assert (told.value.errno, mapped.gone) == (errno.ENOMEM, [])
    mapped.buffer._mappings.leave(PAGE)
    assert mapped.gone == []
    monkeypatch.undo()
    mapped.buffer.release()
    assert mapped.gone == [1]


@pytest.mark.parametrize(("result", "done"), [(0, True), (-errno.ENOMEM, False)])
def test_copies_that_cannot_be_leave_the_pages_mapped(mapped: Mapped, result: int, done: bool) -> None:
    released = mapped.map(1)
    assert not mapped.buffer.copy_mapped(0, released, lambda: 0), "nothing is there"
    assert mapped.buffer.copy_mapped(PAGE, released, lambda: result) is done
    assert mapped.gone == ([1] if done else [])
    assert (PAGE in mapped.buffer._mappings.parts) is not done


def test_pages_in_whose_place_others_are_mapped_are_not_copied(mapped: Mapped) -> None:
    """A copy of what was there before would be put over what the program has received since."""
    former = mapped.map(1)
    mapped.map(1)
    assert not mapped.buffer.copy_mapped(PAGE, former, lambda: pytest.fail("copied"))
    assert (mapped.gone, PAGE in mapped.buffer._mappings.parts) == ([1], True)


@pytest.mark.parametrize(
    ("place", "length", "found"),
    [(0, 1, 0), (PAGE, 2 * PAGE, 2 * PAGE), (PAGE, 3 * PAGE, 2 * PAGE), (PAGE, 2 * PAGE - 1, -1),
     (0, PAGE, 0), (0, PAGE + 1, -1), (2 * PAGE, PAGE, -1), (3 * PAGE - 1, PAGE, -1), (3 * PAGE, PAGE, 0)],
)  # fmt: skip
def test_other_pages_may_take_the_place_of_what_lies_there_alone(
    mapped: Mapped, place: int, length: int, found: int
) -> None:
    assert mapped.buffer.replaceable(place, length) == 0
    mapped.map(1, 2)
    assert mapped.buffer.replaceable(place, length) == found


@pytest.mark.parametrize(("length", "found"), [(2 * PAGE, PAGE), (2 * PAGE + 1, -1), (4 * PAGE, -1)])
def test_no_pages_take_the_place_of_two_parts(mapped: Mapped, length: int, found: int) -> None:
    mapped.map(0)
    mapped.map(2)
    assert mapped.buffer.replaceable(0, length) == found


def test_a_buffer_that_is_gone_gives_all_back_and_closes_its_file(pool: Pool) -> None:
    made = Mapped(pool)
    for place in (0, 2):
        made.map(place)
    gone, fd = made.gone, made.buffer._mappings.fd
    del made
    gc.collect()
    assert gone == [0, 2]
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


def test_a_buffer_has_whole_pages_and_is_not_inherited() -> None:
    with PageBuffer(PAGE + 1) as buffer:
        assert len(buffer) == 2 * PAGE
        assert not os.get_inheritable(buffer._mappings.fd)
        assert buffer.offset_of(address_of(buffer) + 5) == 5


def test_memory_that_follows_on_is_one_run(device: Any) -> None:
    memory = bytearray(100)
    views = [memoryview(memory)[at:to] for at, to in ((0, 10), (10, 10), (10, 30), (31, 40), (0, 5))]
    found = page_list(views, 9)
    at = address_of(memory)
    assert found.runs == ((at, 30, 9), (at + 31, 9, 9), (at, 5, 9))
    assert (len(found.holders), found.contiguous) == (4, False)
    assert page_list(views[:3], 9).contiguous
    assert not page_list([], 9).contiguous


def test_the_memory_of_a_program_has_one_key_and_none_where_the_adapter_cannot(device: Any) -> None:
    one = space_of(device)
    assert (space_of(device) is one, one.lkey) == (True, 8)
    assert device.regions == [(PAGE, int(e.IBV_ACCESS_ON_DEMAND), {"implicit": True, "held": True})]
    del device.companion
    device.fails = PyverbsError("no memory on demand")
    assert space_of(device).lkey == 0


def test_what_is_lent_is_what_stands_there(pool: Pool) -> None:
    view = pool.lend(PAGE - 1, 2, lambda: None)
    assert bytes(view) == b"\0\1" == bytes_at(pool.address + PAGE - 1, 2)


class Interrupted(Exception):
    """What the handler raises."""


@pytest.fixture
def interrupted() -> Iterator[None]:
    """A handler of SIGUSR1 that raises."""

    def raises(number: int, frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, raises)
    deferred_signals.look_for_handlers()
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.skipif((deferred_signals.__file__ or "").endswith(".py"), reason="sections are compiled")
@pytest.mark.parametrize("when", ["made", "dropped"])
def test_a_buffer_leaves_no_descriptor_where_a_handler_raises(
    monkeypatch: pytest.MonkeyPatch, interrupted: None, when: str
) -> None:
    create, close = os.memfd_create, os.close
    made: list[int] = []
    closed: list[int] = []

    def creating(name: str, flags: int) -> int:
        made.append(create(name, flags))
        if when == "made":
            signal.raise_signal(signal.SIGUSR1)
        return made[0]

    def closing(number: int) -> None:
        if when == "dropped":
            signal.raise_signal(signal.SIGUSR1)
        close(number)
        closed.append(number)

    monkeypatch.setattr(os, "memfd_create", creating)
    monkeypatch.setattr(os, "close", closing)

    def make_and_drop() -> None:
        buffer = PageBuffer(PAGE)
        del buffer
        for _ in range(100):  # Python code, in which what has come is handled
            pass

    with pytest.raises(Interrupted):
        make_and_drop()
    monkeypatch.undo()
    assert closed == made
    assert len(made) == 1
