"""Memory regions: keys, domains, rights and ranges, and how they are registered, changed and given back."""

import errno
import mmap
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from region_world import ALL, PD, TOP, World, address, fails

from softhca.memory.bits import PAGE_BYTES
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


@pytest.mark.parametrize("count", [0, 1 << 23])
def test_a_number_of_regions_that_cannot_be_is_refused(count):
    with fails(errno.EINVAL):
        RegionTable(TranslationTable(4), random.Random(1), count)
