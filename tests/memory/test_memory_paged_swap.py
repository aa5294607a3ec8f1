"""Pageable memory swapped out and in, and moved to other frames, also where a step fails in the middle."""

import errno
import os
import subprocess
import sys

import pytest
from paged_world import EAGAIN, Failing, World, pattern, scattered
from region_world import fails

from softhca.memory.bits import PAGE_BYTES
from softhca.memory.paged_memory import OUT, RUNNING
from softhca.memory.paged_swap import SwapFile


def test_swap_out_gives_the_memory_back_and_swap_in_brings_other_frames_and_the_same_bytes(world):
    region = world.region()
    data = pattern(world.length)
    assert world.write(region, 0, data) == 0
    before, resident = world.frames(), world.memory.resident_bytes
    world.memory.swap_out()
    assert world.memory.state == OUT
    assert world.memory.resident_bytes <= resident - world.length
    assert world.frames() == [None] * 8
    assert world.read(region, 0, 4) == -EAGAIN
    assert world.memory.swap.held == 8
    for step, code in ((world.memory.swap_out, errno.EBUSY), (world.memory.quiesce, errno.EBUSY),
                       (world.memory.resume, errno.EBUSY), (world.memory.migrate, errno.EBUSY)):
        with fails(code):
            step()
    world.memory.swap_in()
    assert world.memory.state == RUNNING
    after = world.frames()
    assert all(new is not None and new != old for new, old in zip(after, before, strict=True))
    assert world.read(region, 0, world.length) == data
    assert world.view(0, world.length) == data
    assert world.memory.swap.held == 0
    assert world.memory.resident_bytes <= resident


def test_the_view_is_inaccessible_while_pages_are_out(world):
    def protections():
        with open("/proc/self/maps") as maps:
            lines = [line.split() for line in maps]
        found = []
        for span, rights, *_ in lines:
            low, high = (int(end, 16) for end in span.split("-"))
            if low < world.memory.address + 8 * PAGE_BYTES and high > world.memory.address:
                found.append(rights)
        return found

    assert protections() == ["rw-s"]
    world.memory.swap_out()
    assert protections() == ["---p"]
    world.memory.swap_in()
    assert protections() == ["rw-s"]


def test_pages_that_were_never_written_take_no_room_in_the_swap_file(world):
    region = world.region()
    world.write(region, 3 * PAGE_BYTES, b"only here")
    world.memory.swap_out()
    assert world.memory.swap.held == 1
    assert os.fstat(world.memory.swap._fd).st_blocks * 512 <= 2 * PAGE_BYTES
    world.memory.swap_in()
    assert world.read(region, 3 * PAGE_BYTES - 2, 13) == b"\0\0only here\0\0"
    assert os.fstat(world.memory.swap._fd).st_size == 0


def test_a_page_that_was_swapped_twice_has_its_last_bytes(world):
    region = world.region()
    for value in range(1, 5):
        assert world.write(region, PAGE_BYTES, bytes([value]) * PAGE_BYTES) == 0
        world.memory.swap_out()
        world.memory.swap_in()
        assert world.read(region, PAGE_BYTES, PAGE_BYTES) == bytes([value]) * PAGE_BYTES


@pytest.mark.parametrize(("place", "number"), [
    ("swap.write", 1), ("swap.write", 2), ("swap.write", 4), ("frames.data", 1), ("view.hide", 1)])
def test_a_swap_out_that_fails_in_the_middle_leaves_everything_as_it_was(world, monkeypatch, place, number):
    region, data = scattered(world)
    world.memory.migrate()
    owner = getattr(world.memory, place.split(".")[0])
    before = world.state()
    broken = Failing(monkeypatch, owner, place.split(".")[1], number, errno.ENOSPC)
    with fails(errno.ENOSPC):
        world.memory.swap_out()
    assert broken.left == 0
    assert world.state() == before
    assert world.read(region, 0, world.length) == data
    assert world.view(0, world.length) == data
    world.memory.swap_out()
    world.memory.swap_in()
    assert world.read(region, 0, world.length) == data


@pytest.mark.parametrize(("place", "number"), [
    ("swap.read", 1), ("swap.read", 2), ("swap.read", 4), ("frames.reserve", 1), ("frames.reserve", 3),
    ("view.show", 1)])
def test_a_swap_in_that_fails_in_the_middle_leaves_the_memory_out(world, monkeypatch, place, number):
    region, data = scattered(world)
    world.memory.swap_out()
    owner = getattr(world.memory, place.split(".")[0])
    before = world.state()
    broken = Failing(monkeypatch, owner, place.split(".")[1], number, errno.ENOMEM)
    with fails(errno.ENOMEM):
        world.memory.swap_in()
    assert broken.left == 0
    assert world.state() == before
    assert world.read(region, 0, 4) == -EAGAIN
    world.memory.swap_in()
    assert world.read(region, 0, world.length) == data


@pytest.mark.parametrize(("place", "number"), [
    ("frames.reserve", 1), ("frames.reserve", 3), ("view.show", 1)])
def test_a_migration_that_fails_in_the_middle_leaves_everything_as_it_was(world, monkeypatch, place, number):
    region, data = scattered(world)
    owner = getattr(world.memory, place.split(".")[0])
    before = world.state()
    broken = Failing(monkeypatch, owner, place.split(".")[1], number, errno.ENOMEM)
    with fails(errno.ENOMEM):
        world.memory.migrate()
    assert broken.left <= 0
    assert world.state() == before
    assert world.view(0, world.length) == data
    assert world.read(region, 0, world.length) == data


def test_without_free_frames_nothing_comes_in_and_nothing_moves(world):
    region, data = scattered(world)
    held = world.memory.frames.take([(0, world.memory.frames.free.free_count)])
    before = world.state()
    with fails(errno.ENOMEM):
        world.memory.migrate()
    assert world.state() == before
    world.memory.swap_out()
    before = world.state()
    with fails(errno.ENOMEM):
        world.memory.swap_in()
    assert world.state() == before
    world.memory.frames.give(held)
    world.memory.swap_in()
    assert world.read(region, 0, world.length) == data


SMALL_FILES = """
import resource, signal, errno, sys
sys.path[:0] = sys.argv[1:]
import paged_world as tests
world = tests.World()
region, data = tests.scattered(world)
before = world.state()
resource.setrlimit(resource.RLIMIT_FSIZE, (3 * 4096, resource.RLIM_INFINITY))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    world.memory.swap_out()
except OSError as error:
    assert error.errno == errno.EFBIG, error
else:
    raise AssertionError("the swap file has found room")
assert world.state() == before
assert world.read(region, 0, world.length) == data
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
world.memory.swap_out()
world.memory.swap_in()
assert world.read(region, 0, world.length) == data
print("as it was")
"""


def test_a_swap_file_that_the_system_refuses_to_grow_leaves_everything_as_it_was():
    done = subprocess.run([sys.executable, "-c", SMALL_FILES, os.path.dirname(__file__)], text=True,
                          capture_output=True, check=False)
    assert done.stdout == "as it was\n", done.stderr


def test_a_swap_directory_that_is_not_there_is_an_error_of_the_swap():
    world = World(swap_directory="/nonexistent/swap")
    region = world.region()
    world.write(region, 0, b"data")
    before = world.state()
    with fails(errno.ENOENT):
        world.memory.swap_out()
    assert world.state() == before
    world.memory.close()


# Migration


def test_migration_moves_every_page_and_nothing_else(world):
    region, data = scattered(world)
    before, resident = world.frames(), world.memory.resident_bytes
    address = world.memory.address
    assert world.memory.migrate() == 8
    assert all(new != old for new, old in zip(world.frames(), before, strict=True))
    assert world.memory.resident_bytes == resident, "the old frames are given back"
    assert world.memory.address == address
    assert world.view(0, world.length) == data
    assert world.read(region, 0, world.length) == data
    assert world.write(region, 100, b"after") == 0
    assert world.view(100, 5) == b"after"
    assert world.memory.state == RUNNING


def test_a_page_that_is_written_again_is_held_once():
    swap = SwapFile(4)
    for data in (b"a", b"b"):
        swap.write(1, memoryview(data * PAGE_BYTES))
    swap.write(0, memoryview(b"c" * 2 * PAGE_BYTES))
    assert swap.held == 2
    swap.forget(0, 4)
    assert (swap.held, os.fstat(swap._fd).st_size) == (0, 0)
    swap.close()


def test_a_swap_file_that_ends_early_is_an_error(monkeypatch):
    swap = SwapFile(2)
    swap.write(0, memoryview(bytes(2 * PAGE_BYTES)))
    given = iter([PAGE_BYTES, 0])  # and no third time
    monkeypatch.setattr(os, "preadv", lambda *_: next(given))
    with fails(errno.EIO):
        swap.read(0, memoryview(bytearray(2 * PAGE_BYTES)))
    swap.close()
