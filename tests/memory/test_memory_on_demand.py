"""Regions of a program's own address space: whatever is mapped or not, an access answers, and ends nobody."""

import errno
import mmap
import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.machine import primitives
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.on_demand import (
    IMPLICIT_BYTES,
    OnDemandRegion,
    can_copy,
    check_range,
    register_on_demand,
    reregister_on_demand,
)
from softhca.memory.regions import (
    LOCAL_WRITE,
    ON_DEMAND,
    REFUSED_PD,
    REFUSED_RANGE,
    REFUSED_RIGHTS,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    ZERO_BASED,
    RegionTable,
)
from softhca.memory.tpt import TranslationTable
from suite_plan import random_inputs

ALL = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | ON_DEMAND
PD = 5
PAGES = 4
EACCES, EFAULT, EAGAIN = errno.EACCES, errno.EFAULT, errno.EAGAIN


def fails(code):
    return pytest.raises(OSError, match=rf"\[Errno {code}\]")


def at(buffer):
    return primitives.address_of(buffer, writable=False)


class World:
    """Four pages of this process, whose mapping comes and goes, and a table of regions."""

    def __init__(self):
        self.table = RegionTable(TranslationTable(1024), random.Random(1), 100)
        self.file = os.memfd_create("on demand")
        os.ftruncate(self.file, PAGES * PAGE_BYTES)
        # a reserved range, so that nobody else's mapping comes to stand where this one goes
        self.reserved = mmap.mmap(-1, PAGES * PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = primitives.address_of(self.reserved)
        self.map(0, PAGES)

    def map(self, page, count):
        place = self.address + page * PAGE_BYTES
        assert primitives.map_pages(place, count * PAGE_BYTES, self.file, page * PAGE_BYTES) == 0

    def unmap(self, page, count):
        assert primitives.hide_pages(self.address + page * PAGE_BYTES, count * PAGE_BYTES) == 0

    def region(self, access=ALL, va=None, length=PAGES * PAGE_BYTES):
        va = self.address if va is None else va
        return register_on_demand(self.table, 0, PD, va, self.address, length, access)

    def implicit(self, access=ALL):
        return register_on_demand(self.table, 0, PD, 0, 0, IMPLICIT_BYTES, access)


@pytest.fixture
def world():
    made = World()
    yield made
    made.map(0, PAGES)
    os.close(made.file)


def read(region, va, n):
    room = bytearray(n)
    return region.read(va, at(room), n) or bytes(room)


def write(region, va, data):
    return region.write(va, at(data), len(data))


def test_this_process_may_copy_its_own_memory():
    can_copy.cache_clear()
    assert can_copy()


def test_bytes_come_and_go_where_requests_name_them(world):
    region = world.region(va=0x5000)
    assert write(region, 0x5000 + 4090, b"over the edge") == 0
    assert os.pread(world.file, 13, 4090) == b"over the edge"
    assert read(region, 0x5000 + 4090, 13) == b"over the edge"
    assert read(region, 0x5000, 0) == b""
    zero_based = world.region(ALL | ZERO_BASED, va=0x5000)
    assert (zero_based.va, zero_based.zero_based) == (0, True)
    assert read(zero_based, 4090, 4) == b"over"
    assert world.table.tpt.free_entries == 1024, "no page has an entry"


def test_what_is_not_mapped_is_refused_and_comes_back_with_its_mapping(world):
    region = world.region()
    assert write(region, world.address, b"x" * PAGES * PAGE_BYTES) == 0
    world.unmap(1, 2)
    assert read(region, world.address + PAGE_BYTES, 8) == -EACCES
    assert write(region, world.address + PAGE_BYTES, b"y" * 8) == -EACCES
    assert read(region, world.address + PAGE_BYTES - 4, 8) == -EACCES, "its second half is nobody's"
    assert read(region, world.address + PAGE_BYTES - 4, 4) == b"xxxx"
    assert region.fetch_add(world.address + PAGE_BYTES, 1) == 0
    assert region.fault == -EACCES
    world.map(1, 2)
    assert read(region, world.address + PAGE_BYTES - 4, 8) == b"x" * 8


def test_memory_that_may_not_be_written_is_read_alone(world):
    sealed = mmap.mmap(world.file, PAGE_BYTES, prot=mmap.PROT_READ)
    region = register_on_demand(world.table, 0, PD, at(sealed), at(sealed), PAGE_BYTES, ALL)
    assert read(region, at(sealed), 4) == bytes(4)
    assert write(region, at(sealed), b"four") == -EACCES
    assert region.compare_swap(at(sealed), 0, 1) == 0
    assert region.fault == -EACCES
    assert sealed[:4] == bytes(4)


def test_discarded_pages_are_zeros(world):
    private = mmap.mmap(-1, PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    region = world.implicit()
    assert write(region, at(private), b"gone soon") == 0
    private.madvise(mmap.MADV_DONTNEED)
    assert read(region, at(private), 9) == bytes(9)


def test_an_implicit_region_is_every_address_and_no_other(world):
    region = world.implicit()
    data = bytearray(b"anything")
    assert read(region, at(data), 8) == b"anything"
    assert write(region, at(data), b"ANYTHING") == 0
    assert data == b"ANYTHING"
    for nobody in (0, 8, 1 << 47, (1 << 63) + 5, (1 << 64) - 9):
        assert read(region, nobody, 8) == -EACCES
        assert write(region, nobody, b"eight by") == -EACCES
    assert read(region, (1 << 64) - 8, 8) == -EFAULT, "the last byte of all is not in it"
    assert world.table.find(region.key, PD, at(data), 8, REMOTE_WRITE) is region


@given(st.lists(st.tuples(st.integers(0, PAGES - 1), st.booleans()), max_size=6),
       st.integers(0, PAGES * PAGE_BYTES), st.integers(0, 2 * PAGE_BYTES))  # fmt: skip
@settings(max_examples=random_inputs(60))
def test_an_access_succeeds_where_all_its_pages_are_mapped(changes, offset, n):
    world = World()
    there = [True] * PAGES
    for page, mapped in changes:
        (world.map if mapped else world.unmap)(page, 1)
        there[page] = mapped
    region = world.region()
    result = read(region, world.address + offset, n)
    touched = range(offset // PAGE_BYTES, (offset + n - 1) // PAGE_BYTES + 1) if n else ()
    if offset + n > PAGES * PAGE_BYTES:
        assert result == -EFAULT
    elif all(there[page] for page in touched):
        assert result == bytes(n)
    else:
        assert result == -EACCES
    world.map(0, PAGES)
    os.close(world.file)


def test_keys_give_what_they_say(world):
    region = world.region(REMOTE_READ | ON_DEMAND)
    find = world.table.find
    assert find(region.key, PD, world.address, 8, REMOTE_READ) is region
    assert find(region.key, PD + 1, world.address, 8, REMOTE_READ) is None
    assert world.table.refusal == REFUSED_PD
    assert find(region.key, PD, world.address, 8, REMOTE_WRITE) is None
    assert world.table.refusal == REFUSED_RIGHTS
    assert find(region.key, PD, world.address - 1, 8, REMOTE_READ) is None
    assert world.table.refusal == REFUSED_RANGE
    assert write(region, world.address, b"x") == -EACCES, "it has no LOCAL_WRITE"


def test_atomics_are_done_at_any_address(world):
    region = world.region()
    for place in (world.address + 64, world.address + PAGE_BYTES - 3):
        assert region.fetch_add(place, 5) == 0
        assert region.fetch_add(place, (1 << 64) - 1) == 5
        assert region.compare_swap(place, 4, 77) == 4
        assert region.compare_swap(place, 4, 99) == 77
        assert (region.fault, read(region, place, 8)) == (0, (77).to_bytes(8, "little"))


def test_while_data_access_is_stopped_everything_is_held(world):
    region = world.region()
    world.table.tpt.stopped = True
    assert read(region, world.address, 1) == -EAGAIN
    assert write(region, world.address, b"x") == -EAGAIN
    region.fetch_add(world.address, 1)
    assert region.fault == -EAGAIN
    world.table.tpt.stopped = False
    assert read(region, world.address, 1) == b"\0"


def test_a_region_that_has_ended_gives_nothing(world):
    region = world.region()
    world.table.deregister(region)
    assert world.table.live_key(region.key) is None
    assert read(region, world.address, 1) == -EACCES
    assert world.table.live == 0


@pytest.mark.parametrize(("va", "address", "length", "access", "pd"), [
    (0, 0, 0, ALL, PD), (0, 2, IMPLICIT_BYTES, ALL, PD), (2, 0, IMPLICIT_BYTES, ALL, PD),
    (0, 1 << 63, 1 << 63 | 1, ALL, PD), (0, 0, 8, REMOTE_WRITE, PD), (0, 0, 8, 128, PD), (0, 0, 8, ALL, 0),
    (0, 0, 8, ALL, 1 << 24),
])  # fmt: skip
def test_what_cannot_be_registered_changes_nothing(world, va, address, length, access, pd):
    with fails(errno.EINVAL):
        register_on_demand(world.table, 0, pd, va, address, length, access)
    assert world.table.sequence.live == 0


def test_a_process_that_is_not_there_gives_nothing(world):
    process = os.fork()
    if process == 0:
        os._exit(0)
    os.waitpid(process, 0)
    region = register_on_demand(world.table, process, PD, 0, world.address, 64, ALL)
    assert isinstance(region, OnDemandRegion)
    assert read(region, 0, 8) == -EACCES


def test_another_place_has_another_key_and_other_rights_void_what_was_resolved(world):
    region = world.region()
    key, generation = region.key, region.generation
    reregister_on_demand(world.table, region, PD + 1, ON_DEMAND, None)
    assert (region.key, region.pd, region.access) == (key, PD + 1, ON_DEMAND)
    assert region.generation != generation
    generation = region.generation
    reregister_on_demand(world.table, region, PD, ALL, (0x9000, world.address + PAGE_BYTES, 16))
    assert region.key != key
    assert world.table.live_key(key) is None
    assert world.table.live_key(region.key) is region
    assert region.generation != generation
    os.pwrite(world.file, b"second page", PAGE_BYTES)
    assert read(region, 0x9000, 11) == b"second page"
    for wrong in ((PD, ALL, (0, 0, 0)), (PD, ALL | ZERO_BASED, None), (0, ALL, None), (PD, 2, None)):
        with fails(errno.EINVAL):
            reregister_on_demand(world.table, region, *wrong)
    region.bound_windows = 1
    for place in (None, (0, 0, 8)):
        with fails(errno.EBUSY):
            reregister_on_demand(world.table, region, PD, ALL, place)
    assert read(region, 0x9000, 11) == b"second page"


@pytest.mark.parametrize("name", ["va", "address"])
def test_a_region_may_end_with_the_last_byte_of_all_and_not_behind_it(name):
    place = {"va": 0, "address": 0, name: (1 << 64) - PAGE_BYTES}
    check_range(**place, length=PAGE_BYTES)
    for wrong in ({"length": PAGE_BYTES + 1}, {"length": 0}, {name: -1}):
        with pytest.raises(OSError, match="no region of so many bytes"):
            check_range(**{**place, "length": PAGE_BYTES, **wrong})


def held(table, access=ON_DEMAND, pid=0):
    return register_on_demand(table, pid, PD, 0, 0, IMPLICIT_BYTES, access, True)


def test_what_is_held_is_copied_as_it_stands_without_a_system_call(monkeypatch):
    monkeypatch.setattr("softhca.memory.on_demand.read_process", lambda *_: -1)
    table = RegionTable(TranslationTable(8), random.Random(1), 10)
    region = held(table)
    source, target = bytearray(b"0123456789"), bytearray(10)
    assert region.read(at(source) + 2, at(target) + 1, 5) == 0
    assert target == b"\0" + b"23456" + bytes(4)
    assert region.write(at(source), at(target), 5) == -EACCES
    table.tpt.stopped = True
    assert region.read(at(source), at(target), 10) == -EAGAIN
    table.tpt.stopped = False
    region.valid = False
    assert region.read(at(source), at(target), 10) == -EACCES
    assert target == b"\0" + b"23456" + bytes(4)


@pytest.mark.parametrize("access", [ON_DEMAND | LOCAL_WRITE, ON_DEMAND | REMOTE_READ, ON_DEMAND | ZERO_BASED])
def test_what_is_held_is_read_alone(access):
    table = RegionTable(TranslationTable(8), random.Random(1), 10)
    with fails(errno.EINVAL):
        held(table, access)
    region = held(table)
    with fails(errno.EINVAL):
        reregister_on_demand(table, region, PD, access, None)
    assert region.access == ON_DEMAND


def test_another_process_holds_nothing_for_this_one():
    with fails(errno.EINVAL):
        held(RegionTable(TranslationTable(8), random.Random(1), 10), pid=os.getpid())
