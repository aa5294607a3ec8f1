"""Pageable memory on demand: pages that come when somebody asks for them, and go out in parts."""

import errno
import random
import resource

import pytest
from paged_world import EAGAIN, VA, Failing, World, pattern
from region_world import ALL, fails

from softhca.machine import primitives
from softhca.memory import paged_layout as layout
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.paged_memory import MOST_AT_ONCE, RUNNING, PagedMemory
from softhca.memory.regions import ON_DEMAND


def test_on_demand_pages_are_asked_for_once_and_brought_by_the_owner(lazy):
    region, told = lazy.region(), []
    region.memory.on_fault = lambda: told.append(1)
    assert lazy.frames() == [None] * 8
    assert lazy.read(region, PAGE_BYTES - 2, 4) == -EAGAIN
    assert lazy.read(region, 5 * PAGE_BYTES, 4) == -EAGAIN
    assert told == [1], "one request at a time"
    assert lazy.memory.service() == 2
    assert [frame is not None for frame in lazy.frames()] == [True, True] + 6 * [False]
    assert lazy.read(region, PAGE_BYTES - 2, 4) == bytes(4)
    assert lazy.memory.service() == 0
    assert lazy.write(region, 5 * PAGE_BYTES, b"five") == -EAGAIN
    assert told == [1, 1]
    assert lazy.memory.service() == 1
    assert lazy.write(region, 5 * PAGE_BYTES, b"five") == 0
    assert lazy.view(5 * PAGE_BYTES, 4) == b"five"
    region.fetch_add(VA + 3 * PAGE_BYTES, 1)
    assert region.fault == -EAGAIN
    assert lazy.memory.service() == 1
    assert region.fetch_add(VA + 3 * PAGE_BYTES, 1) == 0
    assert region.fault == 0


def test_an_access_with_one_page_missing_copies_nothing(lazy):
    region = lazy.region()
    lazy.memory.fetch(0, 1)
    assert lazy.write(region, PAGE_BYTES - 4, b"both or none") == -EAGAIN
    assert lazy.view(PAGE_BYTES - 4, 4) == bytes(4)


def test_each_attachment_has_a_request_of_its_own(lazy):
    one, two = lazy.region(), lazy.region(lazy.other)
    assert lazy.read(one, 0, 4) == -EAGAIN
    assert lazy.read(two, 7 * PAGE_BYTES, 4) == -EAGAIN
    assert lazy.memory.service() == 2
    assert lazy.read(one, 0, 4) == lazy.read(two, 7 * PAGE_BYTES, 4) == bytes(4)


def mappings(memory):
    """How many mappings the view is."""
    with open("/proc/self/maps") as maps:
        spans = [[int(end, 16) for end in line.split()[0].split("-")] for line in maps]
    end = memory.address + memory.pages * PAGE_BYTES
    return sum(low < end and high > memory.address for low, high in spans)


def test_a_view_of_pages_that_came_in_any_order_is_one_mapping(lazy):
    pages = list(range(8))
    random.Random(3).shuffle(pages)
    for page in pages:
        lazy.memory.fetch(page, 1)
    assert mappings(lazy.memory) == 1
    for page in pages[:4]:
        lazy.memory.swap_out(first=page, count=1)
    for page in pages[:4]:
        lazy.memory.fetch(page, 1)
    assert mappings(lazy.memory) == 1
    lazy.memory.migrate()
    assert mappings(lazy.memory) == 1


def test_pages_whose_homes_are_taken_go_anywhere(lazy):
    region = lazy.region()
    assert lazy.memory.frames.free.take_at(2, 1)
    assert lazy.memory.frames.free.take_at(10, 1)
    lazy.memory.fetch(1, 3)
    lazy.memory.fetch(0, 8)
    assert sorted(lazy.frames()) == [0, 1, 3, 4, 5, 6, 7, 8]
    data = pattern(lazy.length)
    assert lazy.write(region, 0, data) == 0
    lazy.memory.swap_out(first=5, count=3)
    before = lazy.frames()
    assert lazy.memory.migrate() == 5
    assert not set(before[:5]) & set(lazy.frames()[:5])
    assert lazy.view(0, 5 * PAGE_BYTES) == data[: 5 * PAGE_BYTES]
    lazy.memory.fetch(5, 3)
    assert lazy.read(region, 0, lazy.length) == data


def test_parts_of_memory_on_demand_go_out_and_come_back_with_their_bytes(lazy):
    region = lazy.region()
    data = pattern(lazy.length)
    lazy.memory.fetch(0, 8)
    assert lazy.write(region, 0, data) == 0
    resident = lazy.memory.resident_bytes
    lazy.memory.swap_out(first=2, count=3)
    assert lazy.memory.state == RUNNING, "the bit does not stay"
    assert lazy.memory.resident_bytes == resident - 3 * PAGE_BYTES
    assert lazy.read(region, 0, 2 * PAGE_BYTES) == data[: 2 * PAGE_BYTES]
    assert lazy.read(region, PAGE_BYTES, 4 * PAGE_BYTES) == -EAGAIN
    assert lazy.memory.service() == 3
    assert lazy.read(region, 0, lazy.length) == data
    lazy.memory.swap_out()
    assert lazy.frames() == [None] * 8
    lazy.memory.swap_in()
    assert lazy.read(region, 0, lazy.length) == data
    with fails(errno.EINVAL):
        lazy.memory.swap_in()
    with fails(errno.EINVAL):
        lazy.memory.swap_out(first=7, count=2)


def test_pinned_memory_does_not_go_out_in_parts(world):
    before = world.state()
    for first, count in ((1, 2), (0, 7), (-1, 8), (0, 0)):
        with fails(errno.EINVAL):
            world.memory.swap_out(first=first, count=count)
    assert world.state() == before


def test_what_is_asked_for_while_quiesced_is_brought_afterwards(lazy):
    region = lazy.region()
    assert lazy.read(region, 0, 4) == -EAGAIN
    lazy.memory.quiesce()
    assert lazy.memory.service() == 0
    lazy.memory.resume()
    assert lazy.memory.service() == 1
    assert lazy.read(region, 0, 4) == bytes(4)


def test_a_page_that_cannot_be_brought_stays_asked_for(lazy, monkeypatch):
    region = lazy.region()
    assert lazy.read(region, 0, 4) == -EAGAIN
    before = lazy.state()
    Failing(monkeypatch, lazy.memory.view, "show", 1, errno.ENOMEM)
    with fails(errno.ENOMEM):
        lazy.memory.service()
    assert lazy.state() == before
    assert lazy.memory.service() == 1
    assert lazy.read(region, 0, 4) == bytes(4)


def test_memory_on_demand_moves_what_is_there(lazy):
    region = lazy.region()
    lazy.memory.fetch(2, 1)
    lazy.memory.fetch(5, 2)
    lazy.write(region, 5 * PAGE_BYTES, b"x" * PAGE_BYTES)
    before = lazy.frames()
    assert lazy.memory.migrate() == 3
    assert [a is None for a in lazy.frames()] == [a is None for a in before]
    assert all(new != old for new, old in zip(lazy.frames(), before, strict=True) if old is not None)
    assert lazy.read(region, 5 * PAGE_BYTES, PAGE_BYTES) == b"x" * PAGE_BYTES


@pytest.mark.parametrize("wanted", [0xFFFFFFFF, 9, 1 << 32, (1 << 64) - 1, 8 | 7 << 32])
def test_a_request_for_pages_that_cannot_be_brings_no_others(lazy, wanted):
    region = lazy.region()
    primitives.store64(region.memory.line + layout.WANTED, wanted)
    primitives.atomic_add64(lazy.memory.mapping.base + layout.FAULTS, 1)
    expected = 1 if wanted == 8 | 7 << 32 else 0
    assert lazy.memory.service() == expected
    assert primitives.load64(region.memory.line + layout.WANTED) == 0
    assert [frame is not None for frame in lazy.frames()] == 7 * [False] + [bool(expected)]


def test_eight_gibibytes_cost_what_is_touched():
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        pytest.skip("address space is limited")
    world = World(pages=1)
    world.memory.close()
    memory = PagedMemory(8 << 30, ALL | ON_DEMAND)
    world.memory = memory
    region = world.region()
    assert memory.resident_bytes <= 2 * PAGE_BYTES
    far = (8 << 30) - PAGE_BYTES
    assert world.write(region, far, b"far") == -EAGAIN
    memory.service()
    assert world.write(region, far, b"far") == 0
    assert memory.resident_bytes <= 4 * PAGE_BYTES
    memory.close()


def test_one_request_brings_so_many_pages_and_no_more():
    memory = PagedMemory((MOST_AT_ONCE + 8) * PAGE_BYTES, ALL | ON_DEMAND)
    place = memory.mapping.line(0) + layout.WANTED
    primitives.store64(place, (MOST_AT_ONCE + 8) << layout.WANTED_SHIFT | 1)
    memory.wake()
    assert memory.service() == MOST_AT_ONCE
    assert primitives.load64(place) == 0
    memory.close()
