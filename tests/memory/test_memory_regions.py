"""Memory regions: keys, domains, rights, ranges, and the bytes behind them."""

import errno
import mmap
import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.machine import primitives
from softhca.memory.arenas import AddressMap
from softhca.memory.bits import PAGE_BYTES, SLOT_PAGES
from softhca.memory.host import HostMemory
from softhca.memory.regions import (
    ACCESS_MASK,
    LOCAL_WRITE,
    MW_BIND,
    REFUSED_KEY,
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

ALL = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC
TOP = 1 << 64
PD = 5


def fails(code):
    return pytest.raises(OSError, match=rf"\[Errno {code}\]")


def address(buffer):
    return primitives.address_of(buffer, writable=False)


class World:
    """A host, its table of regions, and shorthands."""

    def __init__(self, max_regions=1000, entries=1 << 16, seed=1):
        self.host = HostMemory(64 << 20)
        self.tpt = TranslationTable(entries)
        self.table = RegionTable(self.tpt, random.Random(seed), max_regions)

    def over(self, buffer, access=ALL, va=None, pd=PD, length=None, **more):
        """A region over a buffer of ours."""
        first, offset = self.host.attach_buffer(buffer)
        length = len(buffer) if length is None else length
        frames = [(first, -(-(offset + length) // PAGE_BYTES))]
        va = address(buffer) if va is None else va
        return self.table.register(self.host.address_map, pd, va, length, access, frames, offset, **more)

    def scattered(self, pages, access=ALL, va=0x10_0000, pd=PD, page_offset=0, length=None):
        """A region over frames that are not contiguous, and the frames."""
        frames = self.host.allocate(2 * pages, contiguous=True)[::-2]
        length = pages * PAGE_BYTES - page_offset if length is None else length
        region = self.table.register(self.host.address_map, pd, va, length, access, frames, page_offset)
        return region, frames

    def invalidate(self, entry):
        """Clear the valid bit alone."""
        primitives.store64(self.tpt.address + entry * 8, self.tpt.entry(entry) & ~(1 << 63))

    def bytes_of(self, frames):
        return b"".join(bytes(self.host.view(frame, 1)) for frame in frames)

    def dead(self, key, pd=PD):
        return self.table.find(key, pd, 0, 0, 0) is None and self.table.refusal == REFUSED_KEY


@pytest.fixture
def world():
    made = World()
    yield made
    made.host.close()


@pytest.mark.parametrize("access", [bits for bits in range(16)
                                    if not bits & (REMOTE_WRITE | REMOTE_ATOMIC) or bits & LOCAL_WRITE])
def test_find_gives_the_region_exactly_when_every_required_right_is_there(world, access):
    region = world.over(bytearray(64), access)
    for required in range(16):
        found = world.table.find(region.key, PD, region.va, 64, required)
        if required & ~access:
            assert found is None
            assert world.table.refusal == REFUSED_RIGHTS
        else:
            assert found is region
            assert world.table.refusal == 0


def test_find_refuses_in_the_order_key_domain_rights_range(world):
    region = world.over(bytearray(64), REMOTE_READ)
    table, key, va = world.table, region.key, region.va
    cases = [
        (key ^ 1, PD + 1, va + 64, REMOTE_WRITE, REFUSED_KEY),
        (key, PD + 1, va + 64, REMOTE_WRITE, REFUSED_PD),
        (key, PD, va + 64, REMOTE_WRITE, REFUSED_RIGHTS),
        (key, PD, va + 64, REMOTE_READ, REFUSED_RANGE),
    ]
    for wrong_key, pd, start, access, refusal in cases:
        assert table.find(wrong_key, pd, start, 1, access) is None
        assert table.refusal == refusal
    assert table.find(key, PD, va, 1, REMOTE_READ) is region


def test_every_other_low_byte_and_other_indices_are_refused(world):
    region = world.over(bytearray(8))
    for low in range(256):
        key = region.key & ~0xFF | low
        assert (world.table.find(key, PD, region.va, 8, 0) is region) == (key == region.key)
    assert all(world.dead((region.key + (step << 8)) & 0xFFFFFFFF) for step in range(1, 2000))


@given(st.data())
@settings(max_examples=random_inputs(200), deadline=None)
def test_range_check_equals_arithmetic_without_a_width(data):
    world = RANGE_WORLD
    va = data.draw(st.sampled_from([0, 1, 4096, 1 << 40, TOP - 100, TOP - 64]))
    region = RANGE_REGIONS[va]
    start = data.draw(st.one_of(st.integers(0, TOP - 1), st.integers(va, min(va + 66, TOP - 1)),
                                st.integers(max(0, va - 3), va)))
    length = data.draw(st.one_of(st.integers(0, 70), st.integers(0, TOP - 1),
                                 st.integers(TOP - 200, TOP - 1)))
    inside = va <= start and start + length <= va + 64
    if length == 0 and start == 0 and va + 64 == TOP:
        inside = True  # no byte at the very end of the space, whose address is 0 again
    assert (world.table.find(region.key, PD, start, length, 0) is region) == inside
    assert region.covers(start, length) == inside
    if not inside:
        assert world.table.refusal == REFUSED_RANGE


RANGE_WORLD = World()
RANGE_REGIONS = {va: RANGE_WORLD.over(bytearray(64), va=va)
                 for va in (0, 1, 4096, 1 << 40, TOP - 100, TOP - 64)}


def test_a_range_may_end_at_the_top_of_the_space_but_not_wrap(world):
    region = world.over(bytearray(64), va=TOP - 64)
    assert world.table.find(region.key, PD, TOP - 1, 1, 0) is region
    assert world.table.find(region.key, PD, TOP - 1, 2, 0) is None
    with fails(errno.EINVAL):
        world.over(bytearray(64), va=TOP - 63)


def test_zero_based_counts_from_0(world):
    buffer = bytearray(range(64))
    for region in (world.over(buffer, zero_based=True), world.over(buffer, ALL | ZERO_BASED)):
        assert (region.zero_based, region.va) == (True, 0)
        assert region.access & ZERO_BASED
        assert world.table.find(region.key, PD, 0, 64, ALL) is region
        assert world.table.find(region.key, PD, 1, 64, ALL) is None
        assert world.table.find(region.key, PD, address(buffer), 1, 0) is None
        out = bytearray(3)
        assert region.read(5, address(out), 3) == 0
        assert bytes(out) == b"\5\6\7"


def test_rights_that_the_standard_forbids_are_refused(world):
    for access in (REMOTE_WRITE, REMOTE_ATOMIC, REMOTE_WRITE | REMOTE_READ | MW_BIND, ACCESS_MASK + 1, -1):
        with fails(errno.EINVAL):
            world.over(bytearray(8), access)
    assert len(world.table) == world.table.refusal == 0


def test_impossible_registrations_are_refused_and_take_nothing(world):
    free = world.tpt.free_entries
    where = world.host.address_map
    first, _ = world.host.attach_buffer(mmap.mmap(-1, 3 * PAGE_BYTES))
    cases = [
        (PD, 0, 0, [first], 0, errno.EINVAL),
        (PD, 0, 0, [], 0, errno.EINVAL),
        (PD, 0, 0, [first], 1, errno.EINVAL),
        (PD, 0, -1, [first], 0, errno.EINVAL),
        (0, 0, 8, [first], 0, errno.EINVAL),
        (1 << 24, 0, 8, [first], 0, errno.EINVAL),
        (PD, -1, 8, [first], 0, errno.EINVAL),
        (PD, 0, 8, [first], 4096, errno.EINVAL),
        (PD, 0, 8, [first], -1, errno.EINVAL),
        (PD, 0, 8, [], 0, errno.EINVAL),
        (PD, 0, 8, [first, first + 1], 0, errno.EINVAL),
        (PD, 0, 8, [first], 4089, errno.EINVAL),
        (PD, 0, 4097, [first], 0, errno.EINVAL),
        (PD, 0, 8192, [(first, 1), (first, 0), (first, 1)], 0, errno.EINVAL),
        (PD, 0, 8, [1 << 32], 0, errno.EINVAL),
        (PD, 0, 8192, [(0xFFFFFFFF, 2)], 0, errno.EINVAL),
        (PD, 0, 4 * PAGE_BYTES, [(first, 4)], 0, errno.EFAULT),
        (PD, 0, 8, [0xFFFFFFFF], 0, errno.EFAULT),
        (PD, 0, (1 << 17) * PAGE_BYTES, [(first, 1 << 17)], 0, errno.ENOMEM),
    ]
    for pd, va, length, frames, page_offset, code in cases:
        with fails(code):
            world.table.register(where, pd, va, length, ALL, frames, page_offset)
    assert world.tpt.free_entries == free
    assert len(world.table) == 0


def test_a_slot_that_found_no_entries_is_not_lost():
    world = World(max_regions=2, entries=3)
    first, _ = world.scattered(2)
    with fails(errno.ENOMEM):
        world.scattered(2)
    world.table.deregister(first)
    assert [world.scattered(1)[0].valid for _ in range(2)] == [True, True]
    world.host.close()


def test_read_and_write_reach_every_byte_and_no_other(world):
    buffer = bytearray(b"." * 10_000)
    region = world.over(buffer, length=9000)
    assert region.direct_address == address(buffer)
    source = bytes(range(256)) * 20
    assert region.write(region.va + 3880, address(source), 5120) == 0
    assert buffer == b"." * 3880 + source + b"." * 1000
    out = bytearray(5122)
    assert region.read(region.va + 3879, address(out), 5121) == 0
    assert bytes(out) == b"." + source + b"\0"
    assert region.write(region.va + 9000, address(source), 0) == 0


@pytest.mark.parametrize(("offset", "n"), [(0, 9001), (9000, 1), (8999, 2), (-1, 1), (-1, 0), (5, TOP - 5)])
def test_access_out_of_range_is_refused_untouched(world, offset, n):
    for region in (world.over(bytearray(9000)), world.scattered(3, length=9000)[0]):
        out = bytearray(9002)
        va = (region.va + offset) % TOP
        assert region.read(va, address(out), n) == -errno.EFAULT
        assert region.write(va, address(out), n) == -errno.EFAULT
        assert out == bytes(9002)


def test_a_region_without_local_write_is_never_written(world):
    for region in (world.over(bytearray(64), REMOTE_READ), world.scattered(1, REMOTE_READ)[0]):
        source = bytearray(b"x" * 8)
        assert region.write(region.va, address(source), 8) == -errno.EACCES
        assert region.read(region.va, address(source), 8) == 0
        assert source == bytes(8)
        region.compare_swap(region.va, 0, 1)
        assert region.fault == -errno.EACCES


@given(st.integers(0, 4095), st.data())
@settings(max_examples=random_inputs(60), deadline=None)
def test_scattered_pages_read_and_write_as_one_range(page_offset, data):
    world = World()
    region, frames = world.scattered(4, page_offset=page_offset)
    assert region.direct_address == 0
    model = bytearray(4 * PAGE_BYTES)
    for _ in range(3):
        start = data.draw(st.integers(0, region.length))
        n = data.draw(st.integers(0, region.length - start))
        payload = random.Random(start * 7 + n).randbytes(n) + b"!"
        assert region.write(region.va + start, address(payload), n) == 0
        model[page_offset + start:page_offset + start + n] = payload[:n]
    assert world.bytes_of(frames) == model
    out = bytearray(region.length + 1)
    assert region.read(region.va, address(out), region.length) == 0
    assert out[:-1] == model[page_offset:]
    assert out[-1] == 0
    world.host.close()


def test_consecutive_frames_of_host_memory_are_direct_and_one_gap_is_not(world):
    frames = world.host.allocate(6, contiguous=True)
    where = world.host.address_map
    whole = world.table.register(where, PD, 0, 3 * PAGE_BYTES, ALL, [frames[0], (frames[1], 2)], 0)
    assert whole.direct_address == where.address(frames[0])
    gap = world.table.register(where, PD, 0, 3 * PAGE_BYTES - 7, ALL, [frames[0], frames[1], frames[3]], 7)
    assert gap.direct_address == 0
    one = world.table.register(where, PD, 0, 5, ALL, [frames[5]], 4091)
    assert one.direct_address == where.address(frames[5]) + 4091


def test_every_page_is_checked_on_a_walk(world):
    region, _ = world.scattered(3)
    middle = region.first_entry + 1
    good = world.tpt.entry(middle)
    buffer = bytearray(b"z" * 3 * PAGE_BYTES)
    for frame, rights, pd, read, write in (
            (good & 0xFFFFFFFF, ALL, PD + 1, -errno.EACCES, -errno.EACCES),
            (good & 0xFFFFFFFF, REMOTE_READ, PD, 0, -errno.EACCES),
            (0xFFFFFFFF, ALL, PD, -errno.EFAULT, -errno.EFAULT),
            (good & 0xFFFFFFFF, ALL, PD, 0, 0)):
        world.tpt.set(middle, frame, rights, pd)
        assert region.write(region.va + PAGE_BYTES, address(buffer), 1) == write
        assert region.write(region.va + PAGE_BYTES - 1, address(buffer), 2) == write
        assert region.read(region.va, address(buffer), len(buffer)) == read
        assert region.read(region.va + 2 * PAGE_BYTES, address(buffer), 1) == 0
    world.invalidate(middle)
    assert region.read(region.va, address(buffer), len(buffer)) == -errno.EFAULT


def test_refresh_sees_that_pages_moved(world):
    frames = world.host.allocate(4, contiguous=True)
    where = world.host.address_map
    region = world.table.register(where, PD, 0, 2 * PAGE_BYTES, ALL, frames[:2], 0)
    world.tpt.set(region.first_entry, frames[3], ALL, PD)
    region.refresh()
    assert region.direct_address == 0
    world.host.view(frames[3], 1)[0:4] = b"here"
    out = bytearray(4)
    assert region.read(0, address(out), 4) == 0
    assert out == b"here"
    world.invalidate(region.first_entry)
    region.refresh()
    assert region.read(0, address(out), 4) == -errno.EFAULT


@pytest.mark.parametrize("make", ["direct", "scattered", "unaligned"])
def test_atomics_return_the_old_value_and_wrap(world, make):
    if make == "direct":
        region = world.over(bytearray(64), va=0x1000)
    elif make == "scattered":
        region, _ = world.scattered(2, va=0x1000)
    else:
        area = memoryview(bytearray(80))
        shift = (3 - address(area)) % 8
        region = world.over(area[shift:shift + 64], va=0x1000)
    place = region.va + 16
    assert region.fetch_add(place, TOP - 1) == 0
    assert region.fetch_add(place, 3) == TOP - 1
    assert region.compare_swap(place, 2, 0x1122334455667788) == 2
    assert region.compare_swap(place, 2, 9) == 0x1122334455667788
    assert region.fault == 0
    out = bytearray(24)
    assert region.read(region.va + 8, address(out), 24) == 0
    assert out == bytes(8) + (0x1122334455667788).to_bytes(8, "little") + bytes(8)


def test_the_machine_does_atomics_where_it_can(world):
    """Only there are they atomic with respect to the program that owns the memory."""
    buffer = bytearray(64)
    region = world.over(buffer)
    first = -address(buffer) % 8
    for offset in range(57):
        aligned = offset % 8 == first
        assert region.atomic_place(region.va + offset) == (address(buffer) + offset if aligned else 0)
        assert region.fault == 0
    scattered, _ = world.scattered(2)
    assert scattered.atomic_place(scattered.va) == 0


def test_atomics_check_local_write_and_range_into_fault(world):
    for region in (world.over(bytearray(64)), world.scattered(1, length=64)[0]):
        for place in (region.va + 57, region.va + 64, (region.va - 1) % TOP, (region.va - 8) % TOP):
            assert region.fetch_add(place, 1) == 0
            assert region.fault == -errno.EFAULT
            assert region.compare_swap(place, 0, 1) == 0
            assert region.fault == -errno.EFAULT
        assert region.fetch_add(region.va + 56, 1) == 0
        assert region.fault == 0
    fixed = world.over(bytearray(64), REMOTE_READ)
    fixed.fetch_add(fixed.va, 1)
    assert fixed.fault == -errno.EACCES


def test_an_unaligned_atomic_may_lie_across_scattered_pages(world):
    region, frames = world.scattered(2, va=0, page_offset=4)
    place = PAGE_BYTES - 8
    assert region.fetch_add(place, 0x0102030405060708) == 0
    assert region.fault == 0
    assert world.bytes_of(frames)[4092:4100] == bytes([8, 7, 6, 5, 4, 3, 2, 1])


def test_deregistration_kills_the_key_and_the_region_at_once(world):
    buffer = bytearray(64)
    region = world.over(buffer)
    key, generation, free = region.key, region.generation, world.tpt.free_entries
    world.table.deregister(region)
    assert world.dead(key)
    assert not region.valid
    assert region.generation != generation
    assert world.tpt.free_entries == free + region.entry_count
    source = b"12345678"
    assert region.write(region.va, address(source), 8) == -errno.EACCES
    assert region.read(region.va, address(buffer), 8) == -errno.EACCES
    region.fetch_add(region.va, 1)
    assert region.fault == -errno.EACCES
    assert buffer == bytes(64)
    with fails(errno.EINVAL):
        world.table.deregister(region)
    with fails(errno.EINVAL):
        world.table.reregister(region, access=0)


def test_a_region_of_another_table_is_refused(world):
    other = World()
    region = other.over(bytearray(8))
    mine = world.over(bytearray(8))
    with fails(errno.EINVAL):
        world.table.deregister(region)
    assert mine.valid
    assert region.valid
    other.host.close()


def test_an_invalid_region_is_not_found(world):
    region = world.over(bytearray(8))
    region.valid = False
    assert world.dead(region.key)
    region.valid = True
    assert not world.dead(region.key)


def test_bound_windows_hold_a_region(world):
    region = world.over(bytearray(8))
    region.bound_windows = 1
    with fails(errno.EBUSY):
        world.table.deregister(region)
    with fails(errno.EBUSY):
        world.table.reregister(region, access=0)
    assert world.table.find(region.key, PD, region.va, 8, ALL) is region
    region.bound_windows = 0
    world.table.deregister(region)


def test_no_key_comes_twice_in_5000_registrations_or_new_translations_of_one_region():
    world = World(max_regions=1)
    buffer = bytearray(8)
    frame, offset = world.host.attach_buffer(buffer)
    where = world.host.address_map
    given = set()
    region = world.table.register(where, PD, 0, 8, ALL, [frame], offset)
    for turn in range(5000):
        assert region.key not in given
        assert region.key >> 8 not in {key >> 8 for key in list(given)[-20:]}
        given.add(region.key)
        previous = region.key
        if turn % 2:
            world.table.reregister(region, translation=(where, 0, 8, [frame], offset, False))
        else:
            world.table.deregister(region)
            region = world.table.register(where, PD, 0, 8, ALL, [frame], offset)
        assert world.dead(previous)
        assert world.table.find(region.key, PD, 0, 8, ALL) is region
    assert len({key >> 8 for key in given}) == 5000
    with fails(errno.ENOMEM):
        world.table.register(where, PD, 0, 8, ALL, [frame], offset)
    world.host.close()


def test_rereg_of_domain_and_access_keeps_the_key(world):
    region, frames = world.scattered(3)
    key, generation = region.key, region.generation
    world.table.reregister(region, pd=PD + 1)
    assert region.key == key
    assert region.generation == generation + 1
    assert world.table.find(key, PD, region.va, 8, 0) is None
    assert world.table.refusal == REFUSED_PD
    assert world.table.find(key, PD + 1, region.va, 8, ALL) is region
    source = b"through the walk"
    assert region.write(region.va + 4090, address(source), 16) == 0
    world.table.reregister(region, access=REMOTE_READ)
    assert region.generation == generation + 2
    world.table.reregister(region, pd=PD + 1, access=REMOTE_READ)  # as it is
    assert region.generation == generation + 2
    assert world.table.find(key, PD + 1, region.va, 8, LOCAL_WRITE) is None
    assert world.table.find(key, PD + 1, region.va, 8, REMOTE_READ) is region
    for i, frame in enumerate(frames):
        assert world.tpt.entry(region.first_entry + i) == 1 << 63 | REMOTE_READ << 56 | (PD + 1) << 32 | frame


def test_rereg_of_the_translation_gives_a_new_key_and_the_new_memory(world):
    old, new = bytearray(5000), bytearray(b"n" * 20_000)
    region = world.over(old)
    key, generation, va = region.key, region.generation, region.va
    free = world.tpt.free_entries + region.entry_count
    first, offset = world.host.attach_buffer(new)
    pages = -(-(offset + len(new)) // PAGE_BYTES)
    translation = (world.host.address_map, 0x5000, len(new), [(first, pages)], offset, False)
    world.table.reregister(region, translation=translation)
    assert world.dead(key)
    assert region.key >> 8 != key >> 8
    assert all(world.dead(key & ~0xFF | low) for low in range(256))
    assert region.generation != generation
    assert (region.va, region.length, region.access, region.pd) == (0x5000, 20_000, ALL, PD)
    assert world.table.find(region.key, PD, va, 1, 0) is None
    assert world.table.find(region.key, PD, 0x5000, 20_000, ALL) is region
    assert world.tpt.free_entries == free - pages
    out = bytearray(4)
    assert region.read(0x5000 + 19_996, address(out), 4) == 0
    assert out == b"nnnn"


def test_rereg_all_three_at_once_and_zero_based(world):
    region = world.over(bytearray(8), REMOTE_READ)
    buffer = bytearray(b"abcdefgh")
    first, offset = world.host.attach_buffer(buffer)
    world.table.reregister(region, PD + 2, ALL, (world.host.address_map, 77, 8, [first], offset, True))
    assert world.table.find(region.key, PD + 2, 0, 8, ALL) is region
    assert world.tpt.entry(region.first_entry) >> 32 == 1 << 31 | ALL << 24 | PD + 2


@pytest.mark.parametrize(("change", "code"), [
    ({"pd": 0}, errno.EINVAL), ({"pd": 1 << 24}, errno.EINVAL), ({"access": REMOTE_WRITE}, errno.EINVAL),
    ({"access": 512}, errno.EINVAL), ({"access": ALL | ZERO_BASED}, errno.EINVAL),
    ({"translation": (0, 0, [])}, errno.EINVAL), ({"translation": (0, 8, [])}, errno.EINVAL),
    ({"translation": (0, 8, [0xFFFFFFFF])}, errno.EFAULT),
    ({"access": REMOTE_ATOMIC, "translation": (0, 8, [1])}, errno.EINVAL),
    ({"translation": (0, 4096 * 4096, [(0, 4096)])}, errno.ENOMEM),
])
def test_a_rereg_that_fails_changes_nothing(change, code):
    world = World(entries=100)
    buffer = bytearray(b"intact..")
    region = world.over(buffer)
    if "translation" in change:
        va, length, frames = change["translation"]
        change = {**change, "translation": (world.host.address_map, va, length, frames, 0, False)}
    before = (region.key, region.pd, region.va, region.length, region.access, region.generation, region.valid,
              world.tpt.free_entries, world.tpt.entry(region.first_entry))
    with fails(code):
        world.table.reregister(region, **change)
    assert before == (region.key, region.pd, region.va, region.length, region.access, region.generation,
                      region.valid, world.tpt.free_entries, world.tpt.entry(region.first_entry))
    out = bytearray(8)
    assert world.table.find(region.key, PD, region.va, 8, ALL) is region
    assert region.read(region.va, address(out), 8) == 0
    assert out == b"intact.."
    world.host.close()


def test_ten_thousand_registrations_have_distinct_keys_and_all_are_found():
    world = World(max_regions=10_000, entries=1 << 16)
    buffer = bytearray(16)
    frame, offset = world.host.attach_buffer(buffer)
    where = world.host.address_map
    frames = [(frame, -(-(offset + 16) // PAGE_BYTES))]
    regions = [world.table.register(where, 1 + i % 7, i, 16, ALL, frames, offset) for i in range(10_000)]
    assert len({region.key for region in regions}) == len({region.key >> 8 for region in regions}) == 10_000
    assert all(world.table.find(region.key, 1 + i % 7, i, 16, ALL) is region
               for i, region in enumerate(regions))
    assert len(world.table) == 10_000
    # The lower half dies; the upper half lives on.
    for region in regions[:5000]:
        world.table.deregister(region)
    assert all(world.dead(region.key, region.pd) for region in regions[:5000])
    assert all(world.table.find(region.key, region.pd, region.va, 16, ALL) is region
               for region in regions[5000:])
    assert len(world.table) == 5000
    world.host.close()


def test_a_guess_hits_with_probability_live_keys_by_two_to_the_32():
    world = World(max_regions=4096)
    buffer = bytearray(16)
    frame, offset = world.host.attach_buffer(buffer)
    frames = [(frame, -(-(offset + 16) // 4096))]
    regions = [world.table.register(world.host.address_map, PD, 0, 16, ALL, frames, offset)
               for _ in range(4096)]
    indices = {region.key >> 8 for region in regions}
    generator = random.Random(8)
    guesses = 400_000
    # An index is hit with probability 4,096 / 2^24 (97.7 expected, 5 standard deviations).
    hits = sum(generator.getrandbits(24) in indices for _ in range(guesses))
    assert 48 < hits < 147
    assert not any(world.table.find(generator.getrandbits(32), PD, 0, 16, ALL) for _ in range(20_000))
    lows = [0] * 4
    for region in regions:
        lows[(region.key & 0xFF) >> 6] += 1
    assert all(880 < count < 1170 for count in lows)
    # What is known of one key says nothing of the next slot's.
    assert sum(regions[i].key >> 8 == (regions[i - 1].key >> 8) + 1 for i in range(1, 4096)) <= 2
    world.host.close()


def test_a_sparse_region_of_8_gib_works_at_both_ends():
    world = World(entries=1 << 22)
    area = mmap.mmap(-1, 8 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE
    region = world.over(area)
    assert region.entry_count == 1 << 21
    assert region.direct_address == address(area)
    source = b"the last bytes"
    end = region.va + (8 << 30) - len(source)
    assert world.table.find(region.key, PD, end, len(source), ALL) is region
    assert region.write(end, address(source), len(source)) == 0
    assert area[-len(source):] == source
    assert world.table.find(region.key, PD, end, len(source) + 1, ALL) is None
    world.table.deregister(region)
    world.host.close()


@pytest.mark.parametrize("count", [0, 1 << 23])
def test_a_number_of_regions_that_cannot_be_is_refused(count):
    with fails(errno.EINVAL):
        RegionTable(TranslationTable(4), random.Random(1), count)


class Child:
    """A forked process that holds a buffer at the same address as we do, with its own contents."""

    def __init__(self, buffer, contents):
        ready, self._ready = os.pipe()
        self._end, end = os.pipe()
        self._answer, answer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(end)
            buffer[:] = contents
            os.write(self._ready, b"r")
            os.read(self._end, 1)
            os.write(answer, bytes(buffer))
            os._exit(0)
        self._end_write = end
        os.read(ready, 1)
        for fd in (ready, self._ready, self._end, answer):
            os.close(fd)

    def finish(self, n):
        """Let the child go on; what its buffer held at the end."""
        os.close(self._end_write)
        parts = b""
        while piece := os.read(self._answer, n):
            parts += piece
        os.close(self._answer)
        os.waitpid(self.pid, 0)
        return parts


def reachable(child, buffer):
    """Whether this machine lets us read the child's memory at all."""
    out = bytearray(8)
    return primitives.read_process(child.pid, address(out), address(buffer), 8) == 8


def test_memory_of_another_process_is_read_written_and_counted_in_place():
    world = World()
    buffer = mmap.mmap(-1, 3 * PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    contents = random.Random(3).randbytes(3 * PAGE_BYTES)
    child = Child(buffer, contents)
    if not reachable(child, buffer):
        child.finish(4096)
        pytest.skip("process_vm_readv is not permitted here")
    where = AddressMap()
    where.attach(9, 3, address(buffer), pid=child.pid)
    region = world.table.register(where, PD, 0, 3 * PAGE_BYTES, ALL, [(9 << 12, 3)], 0)
    backwards = [9 << 12 | 2, 9 << 12 | 1, 9 << 12]
    turned = world.table.register(where, PD, 0, 3 * PAGE_BYTES, ALL, backwards, 0)
    assert (region.direct_pid, region.direct_address) == (child.pid, address(buffer))
    out = bytearray(5000)
    assert region.read(3000, address(out), 5000) == 0
    assert out == contents[3000:8000]
    assert turned.read(3000, address(out), 5000) == 0
    assert out == (contents[8192:] + contents[4096:8192] + contents[:4096])[3000:8000]
    assert region.write(100, address(b"written from outside"), 20) == 0
    assert region.fetch_add(8, 1) == int.from_bytes(contents[8:16], "little")
    assert region.compare_swap(16, int.from_bytes(contents[16:24], "little"), 42) != 42
    assert region.compare_swap(16, 7, 8) == 42
    assert region.fault == 0
    expected = bytearray(contents)
    expected[100:120] = b"written from outside"
    expected[8:16] = ((int.from_bytes(contents[8:16], "little") + 1) % TOP).to_bytes(8, "little")
    expected[16:24] = (42).to_bytes(8, "little")
    assert child.finish(4096) == expected
    assert bytes(buffer) == bytes(3 * PAGE_BYTES)
    assert region.read(0, address(out), 8) == -errno.ESRCH
    region.fetch_add(0, 1)
    assert region.fault == -errno.ESRCH
    assert turned.write(0, address(out), 8) == -errno.ESRCH
    world.host.close()


def test_a_hole_in_the_other_process_is_an_error_not_a_crash():
    world = World()
    buffer = mmap.mmap(-1, PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    child = Child(buffer, bytes(PAGE_BYTES))
    if not reachable(child, buffer):
        child.finish(4096)
        pytest.skip("process_vm_readv is not permitted here")
    where = AddressMap()
    where.attach(9, 1, PAGE_BYTES, pid=child.pid)
    region = world.table.register(where, PD, 0, PAGE_BYTES, ALL, [9 << 12], 0)
    out = bytearray(8)
    assert region.read(0, address(out), 8) == -errno.EFAULT
    assert region.write(0, address(out), 8) == -errno.EFAULT
    child.finish(4096)
    world.host.close()


def test_a_word_is_put_where_it_may_and_at_once_where_the_machine_can():
    world = World()
    memory, word = bytearray(64), b"eight by"
    region = world.over(memory)
    start = -address(memory) % 8
    for offset in (start + 8, start + 19):  # aligned, and not
        assert region.put_word(region.va + offset, address(word)) == 0
        assert memory[offset : offset + 8] == word
        assert memory.count(word) == 1
        memory[offset : offset + 8] = bytes(8)
    assert region.put_word(region.va + 57, address(word)) == -errno.EFAULT
    world.tpt.stopped = True
    assert region.put_word(region.va, address(word)) == -errno.EAGAIN
    world.tpt.stopped = False
    scattered, frames = world.scattered(2)
    assert scattered.put_word(scattered.va + PAGE_BYTES - 4, address(word)) == 0
    assert world.bytes_of(frames)[PAGE_BYTES - 4 : PAGE_BYTES + 4] == word
    assert world.over(memory, access=REMOTE_READ).put_word(region.va, address(word)) == -errno.EACCES
    world.table.deregister(region)
    assert region.put_word(region.va, address(word)) == -errno.EACCES
    assert not any(memory)


def test_pages_that_lie_one_behind_the_other_in_two_processes_are_not_one_piece():
    """The addresses alone would say so."""
    place = mmap.mmap(-1, 2 * PAGE_BYTES)
    first = primitives.address_of(place)
    nobody = (1 << 22) + 1  # more than any process has
    two = AddressMap()
    two.attach(0, 1, first)
    two.attach(1, 1, first + PAGE_BYTES, nobody)
    table = RegionTable(TranslationTable(16), random.Random(1), 10)
    region = table.register(two, PD, 0, 2 * PAGE_BYTES, ALL, [0, SLOT_PAGES], 0)
    there = bytearray(PAGE_BYTES)
    assert region.read(0, address(there), PAGE_BYTES) == 0
    assert region.read(PAGE_BYTES, address(there), PAGE_BYTES) == -errno.ESRCH
    table.deregister(region)
