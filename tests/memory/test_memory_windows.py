"""Memory windows and fast regions in the table of keys: who may bind what, what a key gives, what counts."""

import errno
import gc
import random

import pytest

from softhca.machine import primitives
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.host import HostMemory
from softhca.memory.regions import (
    LOCAL_WRITE,
    MW_BIND,
    ON_DEMAND,
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
from softhca.memory.windows import WindowTable

PD, QP = 5, 0x77
BINDABLE = LOCAL_WRITE | MW_BIND
WRITE_AND_READ = REMOTE_WRITE | REMOTE_READ


class World:
    """A host with one region of three pages that are apart, and shorthands."""

    def __init__(self):
        self.host = HostMemory(64 << 20)
        self.tpt = TranslationTable(1 << 12)
        self.table = RegionTable(self.tpt, random.Random(3), 64)
        self.windows = WindowTable(self.table)
        self.frames = self.host.allocate(6, contiguous=True)[::-2]
        self.region = self.over(BINDABLE)
        self.numbers = iter(range(2, 400, 2))

    def over(self, access, va=0x10_0000, pd=PD, zero_based=False):
        return self.table.register(
            self.host.address_map, pd, va, 3 * PAGE_BYTES - 100, access, self.frames, 100, zero_based
        )

    def window(self, kind, pd=PD):
        return self.windows.allocate(next(self.numbers), pd, kind)

    def bind(self, window, offset=0, length=64, access=WRITE_AND_READ, **more):
        given = {"queue_pair": QP, "pd": PD, "low_byte": (window.key + 1) & 0xFF, "lkey": self.region.key,
                 "va": self.region.va + offset, "length": length, "access": access, **more}
        return self.windows.bind(
            window.number, given["queue_pair"], given["pd"], given["low_byte"], given["lkey"], given["va"],
            given["length"], given["access"],
        )  # fmt: skip

    def may(self, key, va, n, access, pd=PD, queue_pair=QP):
        """0 or why a peer's request is refused."""
        return self.table.find(key, pd, va, n, access, queue_pair) is None and self.table.refusal


@pytest.fixture
def world():
    made = World()
    yield made
    made.host.close()


@pytest.mark.parametrize("kind", [1, 2])
def test_a_window_gives_its_own_rights_to_its_own_bytes_and_no_more(world, kind):
    window = world.window(kind)
    assert world.may(window.key, world.region.va, 1, REMOTE_READ) == REFUSED_KEY
    assert world.bind(window, 4000, 200) == 0
    va = world.region.va + 4000
    assert world.may(window.key, va, 200, WRITE_AND_READ) == 0
    assert world.may(window.key, va + 199, 1, REMOTE_READ) == 0
    for start, n in ((va - 1, 1), (va, 201), (va + 200, 1), (va + 199, 2)):
        assert world.may(window.key, start, n, REMOTE_READ) == REFUSED_RANGE
    assert world.may(window.key, va, 8, REMOTE_ATOMIC) == REFUSED_RIGHTS
    assert world.may(window.key, va, 8, REMOTE_READ, pd=PD + 1) == REFUSED_PD
    source = bytearray(range(200))
    assert window.write(va, primitives.address_of(source), 200) == 0
    out = bytearray(200)
    assert world.region.read(va, primitives.address_of(out), 200) == 0
    assert out == source
    assert window.read(va + 1, primitives.address_of(out), 199) == 0
    assert out[:199] == source[1:]
    for start, n in ((va - 1, 1), (va, 201)):
        assert window.read(start, primitives.address_of(out), n) == -errno.EFAULT
        assert window.write(start, primitives.address_of(out), n) == -errno.EFAULT


def test_a_window_has_no_local_key(world):
    window = world.window(1)
    assert world.bind(window, 0, 64, WRITE_AND_READ | LOCAL_WRITE) == 0
    for access in (0, LOCAL_WRITE):
        assert world.may(window.key, world.region.va, 1, access) == REFUSED_KEY


def test_atomics_through_a_window_ask_for_its_right_alone(world):
    window = world.window(2)
    assert world.bind(window, 3996, 16, REMOTE_ATOMIC) == 0
    va = world.region.va + 3996
    assert world.may(window.key, va, 8, REMOTE_ATOMIC) == 0
    assert window.fetch_add(va, 7) == 0
    assert window.compare_swap(va, 7, 9) == 7
    assert window.fetch_add(va + 8, 1) == 0
    assert window.fault == 0
    for place in (va + 9, va - 1):
        window.fetch_add(place, 1)
        assert window.fault == -errno.EFAULT
        window.compare_swap(place, 0, 1)
        assert window.fault == -errno.EFAULT
    world.windows.invalidate(window.key, QP, PD, False)
    window.fetch_add(va, 1)
    assert window.fault == -errno.EACCES
    out = bytearray(16)
    world.region.read(va, primitives.address_of(out), 16)
    assert out == bytes([9] + 7 * [0] + [1] + 7 * [0])


def test_a_window_of_type_2_is_for_its_queue_pair_one_of_type_1_for_all_of_the_domain(world):
    first, second = world.window(1), world.window(2)
    for window, expected in ((first, 0), (second, REFUSED_PD)):
        assert world.bind(window) == 0
        assert world.may(window.key, world.region.va, 8, REMOTE_READ, queue_pair=QP + 1) == expected
        assert world.may(window.key, world.region.va, 8, REMOTE_READ) == 0


def test_only_a_window_of_type_2_is_zero_based(world):
    window = world.window(2)
    assert world.bind(window, 4090, 32, REMOTE_WRITE | ZERO_BASED) == 0
    assert world.may(window.key, 0, 32, REMOTE_WRITE) == 0
    assert world.may(window.key, 1, 32, REMOTE_WRITE) == REFUSED_RANGE
    source = bytearray(b"across a page")
    assert window.write(3, primitives.address_of(source), 13) == 0
    out = bytearray(13)
    world.region.read(world.region.va + 4093, primitives.address_of(out), 13)
    assert out == source
    one = world.window(1)
    assert world.bind(one, access=REMOTE_WRITE | ZERO_BASED) == -errno.EINVAL


def test_a_window_over_a_zero_based_region_names_its_addresses(world):
    region = world.over(BINDABLE, zero_based=True)
    window = world.window(1)
    assert world.bind(window, lkey=region.key, va=4096, length=10) == 0
    assert world.may(window.key, 4096, 10, REMOTE_READ) == 0
    assert world.may(window.key, 0, 10, REMOTE_READ) == REFUSED_RANGE


def refused_binds(world):
    """Every bind that is refused: errno, type of the window, what is asked."""
    foreign = world.over(BINDABLE, pd=PD + 1)
    plain = world.over(LOCAL_WRITE)
    fixed = world.over(MW_BIND)
    dead = world.over(BINDABLE)
    world.table.deregister(dead)
    other = world.window(1)
    assert world.bind(other) == 0
    end = 3 * PAGE_BYTES - 100
    for kind in (1, 2):
        yield errno.EACCES, kind, {"pd": PD + 1}  # C10-72
        yield errno.EACCES, kind, {"lkey": foreign.key}
        yield errno.EACCES, kind, {"lkey": plain.key}  # C10-73
        for right in (REMOTE_WRITE, REMOTE_ATOMIC):
            yield errno.EACCES, kind, {"lkey": fixed.key, "access": right}  # C10-74
        yield errno.EFAULT, kind, {"offset": -1}  # C10-75
        yield errno.EFAULT, kind, {"offset": end, "length": 1}
        yield errno.EFAULT, kind, {"offset": 1, "length": end}
        yield errno.EFAULT, kind, {"length": (1 << 64) - 1}
        for key in (dead.key, world.region.key ^ 1, 0, other.key):
            yield errno.EINVAL, kind, {"lkey": key}
        for bits in (MW_BIND, ON_DEMAND, 1 << 7, 1 << 31):
            yield errno.EINVAL, kind, {"access": bits}
    yield errno.EINVAL, 2, {"length": 0}  # o10-37.2.40
    yield errno.EINVAL, 1, {"low_byte": None}  # the key that it has
    yield errno.EINVAL, 1, {"access": ZERO_BASED}  # o10-36.2.2


def test_a_refused_bind_has_its_errno_and_changes_nothing(world):
    for code, kind, asked in refused_binds(world):
        window = world.window(kind)
        if "low_byte" in asked:
            asked = {"low_byte": window.key & 0xFF}
        if kind == 1 and "low_byte" not in asked:
            assert world.bind(window, 128) == 0  # bound, so that there is something to change
        before = (window.key, window.valid, window.va, window.length, window.access, window.generation)
        count = world.region.bound_windows
        assert world.bind(window, **asked) == -code, asked
        after = (window.key, window.valid, window.va, window.length, window.access, window.generation)
        assert after == before
        assert world.region.bound_windows == count
        world.windows.deallocate(window)


def test_a_read_only_region_can_be_read_through_a_window(world):
    fixed = world.over(MW_BIND)
    window = world.window(2)
    assert world.bind(window, lkey=fixed.key, access=REMOTE_READ) == 0
    assert world.may(window.key, fixed.va, 8, REMOTE_READ) == 0


def test_no_such_window(world):
    for number in (0, 1, 999):
        assert world.windows.bind(number, QP, PD, 1, world.region.key, world.region.va, 8, 1) == -errno.EINVAL


def test_a_bound_window_of_type_2_cannot_be_bound_again(world):
    window = world.window(2)
    assert world.bind(window) == 0
    key = window.key
    assert world.bind(window, 64) == -errno.EBUSY
    assert (window.key, window.va, world.region.bound_windows) == (key, world.region.va, 1)


def test_a_move_kills_the_old_key_and_its_operations(world):
    other = world.over(BINDABLE, va=0x90_0000)
    window = world.window(1)
    assert world.bind(window) == 0
    old, generation = window.key, window.generation
    assert world.bind(window, 100, 32, lkey=other.key, va=other.va) == 0
    assert window.generation != generation
    assert window.key != old
    assert world.may(old, world.region.va, 8, REMOTE_READ) == REFUSED_KEY
    assert world.may(window.key, other.va, 32, REMOTE_READ) == 0
    assert (world.region.bound_windows, other.bound_windows) == (0, 1)


def test_windows_may_overlap_and_each_is_counted(world):
    windows = [world.window(kind) for kind in (1, 2, 1, 2)]
    for n, window in enumerate(windows):
        assert world.bind(window, 10 * n, 64) == 0
        assert world.region.bound_windows == n + 1
    for refused in (lambda: world.table.deregister(world.region),
                    lambda: world.table.reregister(world.region, access=LOCAL_WRITE)):
        with pytest.raises(OSError, match="4 memory windows") as told:
            refused()
        assert told.value.errno == errno.EBUSY
    assert world.bind(windows[0], length=0, lkey=0) == 0
    assert world.windows.invalidate(windows[1].key, QP, PD, False) == 0
    world.windows.deallocate(windows[2])
    assert world.region.bound_windows == 1
    world.windows.forget_queue_pair(QP + 1)
    assert world.region.bound_windows == 1
    world.windows.forget_queue_pair(QP)
    assert world.region.bound_windows == 0
    assert not windows[3].valid
    world.windows.forget_queue_pair(QP)
    world.table.deregister(world.region)


def dictionaries_of(table):
    """Those that a table keeps, whether it is compiled or not."""
    found = [each for each in gc.get_referents(table) if isinstance(each, dict)]
    return found + [value for each in found for value in each.values() if isinstance(value, dict)]


def test_nothing_is_kept_of_queue_pairs_without_a_window(world):
    window = world.window(2)
    numbers = range(100, 110)
    for queue_pair in numbers:
        assert world.bind(window, queue_pair=queue_pair) == 0
        if queue_pair % 2:
            world.windows.forget_queue_pair(queue_pair)
        else:
            assert world.windows.invalidate(window.key, queue_pair, PD, False) == 0
    assert not any(number in each for each in dictionaries_of(world.windows) for number in numbers)


def test_the_end_of_a_queue_pair_leaves_windows_of_type_1(world):
    window = world.window(1)
    assert world.bind(window) == 0
    world.windows.forget_queue_pair(QP)
    assert world.may(window.key, world.region.va, 8, REMOTE_READ) == 0


def test_what_can_be_invalidated_and_only_once(world):
    one, two = world.window(1), world.window(2)
    assert world.bind(one) == 0
    assert world.bind(two) == 0
    key = two.key
    for remote in (False, True):
        for wrong, queue_pair, code in (
            (one.key, QP, errno.EINVAL), (world.region.key, QP, errno.EINVAL), (key ^ 1, QP, errno.EINVAL),
            (0xFFFFFF00, QP, errno.EINVAL), (0, QP, errno.EINVAL), (key, QP + 1, errno.EACCES),
        ):  # fmt: skip
            assert world.windows.invalidate(wrong, queue_pair, PD, remote) == -code
        assert one.valid
        assert two.valid
        assert world.region.bound_windows == 2
    assert world.windows.invalidate(key, QP, PD, True) == 0
    assert world.may(key, world.region.va, 8, REMOTE_READ) == REFUSED_KEY
    assert world.windows.invalidate(key, QP, PD, True) == -errno.EINVAL
    assert world.region.bound_windows == 1
    assert world.bind(two, low_byte=key & 0xFF) == 0  # the byte is the consumer's, also the same one
    assert two.key == key


def test_keys_of_all_windows_differ_and_stay_in_their_slot(world):
    windows = [world.window(1 + n % 2) for n in range(40)]
    assert len({window.key >> 8 for window in windows} | {world.region.key >> 8}) == 41
    key = windows[0].key
    world.windows.deallocate(windows[0])
    assert world.windows.members.get(windows[0].number) is None
    assert world.may(key, 0, 0, REMOTE_READ) == REFUSED_KEY
    for _ in range(64 - 40):
        world.window(2)
    with pytest.raises(OSError, match="max_mr, max_mw: 64 regions and windows are there"):
        world.window(2)


def test_there_are_two_types(world):
    for kind in (0, 3):
        with pytest.raises(OSError, match="type") as told:
            world.window(kind)
        assert told.value.errno == errno.EINVAL


# fast registration


def fast(world, pages=3):
    return world.windows.allocate_fast(next(world.numbers) | 1, PD, pages, world.host.address_map)


def register(world, region, low_byte=9, va=0x5000, length=3 * PAGE_BYTES - 100, access=15, runs=None, **more):
    given = {"pd": PD, "page_offset": 100, "number": region.number, **more}
    runs = [(frame, 1) for frame in world.frames] if runs is None else runs
    return world.windows.register(
        given["number"], given["pd"], low_byte, va, length, access, given["page_offset"], runs
    )


def test_a_fast_region_is_a_region_between_registration_and_invalidation(world):
    region = fast(world)
    assert world.may(region.key, 0x5000, 1, 0) == REFUSED_KEY
    assert register(world, region) == 0
    assert region.key & 0xFF == 9
    key = region.key
    assert world.may(key, 0x5000, 3 * PAGE_BYTES - 100, WRITE_AND_READ | LOCAL_WRITE) == 0
    assert world.may(key, 0x5000, 8, 0, queue_pair=0) == 0
    assert world.may(key, 0x5000, 8, 0, pd=PD + 1) == REFUSED_PD
    source = bytearray(b"over the border")
    assert region.write(0x5000 + 3990, primitives.address_of(source), 15) == 0
    out = bytearray(15)
    world.region.read(world.region.va + 3990, primitives.address_of(out), 15)
    assert out == source
    assert register(world, region) == -errno.EBUSY
    assert world.windows.invalidate(key, QP, PD + 1, False) == -errno.EACCES
    assert world.windows.invalidate(key, QP, PD, True) == 0
    assert world.windows.invalidate(key, QP, PD, True) == -errno.EINVAL
    assert region.write(0x5000, primitives.address_of(source), 1) == -errno.EACCES
    assert register(world, region, access=LOCAL_WRITE) == 0
    assert world.windows.invalidate(region.key, QP, PD, True) == -errno.EACCES  # no peer was given that key
    assert world.windows.invalidate(region.key, QP, PD, False) == 0
    free = world.tpt.free_entries
    world.windows.deallocate(region)
    assert world.tpt.free_entries == free + 3


def test_a_registration_that_cannot_be_changes_nothing(world):
    region, window = fast(world, 2), world.window(2)
    two = [(world.frames[0], 1), (world.frames[1], 1)]
    long = 2 * PAGE_BYTES - 100
    for code, asked in (
        (errno.EACCES, {"pd": PD + 1}), (errno.EINVAL, {"access": REMOTE_WRITE}),
        (errno.EINVAL, {"access": 1 << 9}), (errno.EINVAL, {"length": 0}),
        (errno.EINVAL, {"length": long + 1}), (errno.EINVAL, {"page_offset": PAGE_BYTES}),
        (errno.EINVAL, {"va": (1 << 64) - 10}), (errno.EINVAL, {"runs": [(world.frames[0], 0)]}),
        (errno.EINVAL, {"runs": [(1 << 32, 2)]}), (errno.EFAULT, {"runs": [((1 << 32) - 4, 2)]}),
        (errno.ENOMEM, {"runs": [(world.frames[2], 3)], "length": 3 * PAGE_BYTES - 100}),
        (errno.EINVAL, {"number": window.number}), (errno.EINVAL, {"number": 0}),
    ):  # fmt: skip
        before = (region.key, region.generation)
        assert register(world, region, **{"length": long, "runs": two, **asked}) == -code, asked
        assert not region.valid
        assert (region.key, region.generation) == before
    assert register(world, region, length=long, runs=two) == 0


def test_a_window_may_be_bound_to_a_fast_region_which_then_stays(world):
    region, window = fast(world), world.window(2)
    assert register(world, region, access=BINDABLE) == 0
    assert world.bind(window, lkey=region.key, va=0x5010, length=8) == 0
    assert world.windows.invalidate(region.key, QP, PD, False) == -errno.EBUSY
    with pytest.raises(OSError, match="1 memory windows") as told:
        world.windows.deallocate(region)
    assert told.value.errno == errno.EBUSY
    assert world.may(window.key, 0x5010, 8, REMOTE_WRITE) == 0
    assert world.windows.invalidate(window.key, QP, PD, False) == 0
    assert world.windows.invalidate(region.key, QP, PD, False) == 0
    world.windows.deallocate(region)


def test_pages_of_a_fast_region_that_went_away_are_not_touched(world):
    buffer = bytearray(2 * PAGE_BYTES)
    first, offset = world.host.attach_buffer(buffer)
    region = fast(world)
    n = len(buffer)
    runs = [(first, -(-(offset + n) // PAGE_BYTES))]
    assert register(world, region, length=n, runs=runs, page_offset=offset) == 0
    out = bytearray(8)
    assert region.read(0x5000, primitives.address_of(out), 8) == 0
    world.host.detach(first)
    assert region.read(0x5000, primitives.address_of(out), 8) == -errno.EFAULT


def test_a_word_is_put_into_the_windows_part_alone(world):
    window = world.window(2)
    assert world.bind(window, offset=40, length=16) == 0
    source = primitives.address_of(b"eight by", writable=False)
    assert window.put_word(window.va + 8, source) == 0
    room = bytearray(16)
    assert world.region.read(world.region.va + 40, primitives.address_of(room), 16) == 0
    assert room == bytes(8) + b"eight by"
    assert window.put_word(window.va + 9, source) == -errno.EFAULT
    window.withdraw()
    assert window.put_word(window.va, source) == -errno.EACCES


@pytest.mark.parametrize("kind", [1, 2])
def test_a_copy_that_began_inside_of_a_window_ends_there(world, kind):
    """The range was checked when the key was looked up; it is asserted again."""
    window = world.window(kind)
    assert world.bind(window, offset=8, length=16) == 0
    scratch = bytearray(64)
    place = primitives.address_of(scratch)
    for move in (window.read, window.write):
        assert move(window.va, place, 16) == 0
        assert move(window.va + 4, place, 13) == -errno.EFAULT
        assert move(window.va + 16, place, 0) == 0
        assert move(window.va + 17, place, 0) == -errno.EFAULT


def test_a_fast_region_that_ends_gives_its_entries_back(world):
    free = world.tpt.free_entries
    fast = world.windows.allocate_fast(3, PD, 7, world.host.address_map)
    assert world.tpt.free_entries == free - 7
    world.windows.deallocate(fast)
    assert world.tpt.free_entries == free


def test_a_region_that_goes_unbinds_its_windows_and_no_others(world):
    other = world.over(BINDABLE, va=0x50_0000)
    mine, theirs = world.window(1), world.window(2)
    assert world.bind(mine) == 0
    assert world.bind(theirs, lkey=other.key, va=other.va) == 0
    world.windows.forget_region(world.region)
    assert (mine.valid, theirs.valid) == (False, True)
    assert (world.region.bound_windows, other.bound_windows) == (0, 1)
    world.windows.forget_region(other)
    assert not theirs.valid


def test_a_region_counts_each_window_that_is_bound_to_it(world):
    windows = [world.window(1) for _ in range(3)]
    for count, each in enumerate(windows, 1):
        assert world.bind(each) == 0
        assert world.region.bound_windows == count
    for each in windows[:2]:
        world.windows.deallocate(each)
    with pytest.raises(OSError, match="1 memory windows"):
        world.table.deregister(world.region)
    world.windows.deallocate(windows[2])
    world.table.deregister(world.region)


def test_an_atomic_through_a_window_fails_as_that_on_its_region(world):
    window = world.window(1)
    assert world.bind(window, access=REMOTE_ATOMIC, offset=4) == 0
    va = window.va + -window.va % 8
    for call in ((window.fetch_add, va, 1), (window.compare_swap, va, 0, 1)):
        world.tpt.stopped = True
        assert call[0](*call[1:]) == 0
        assert window.fault == -errno.EAGAIN
        world.tpt.stopped = False
        call[0](*call[1:])
        assert window.fault == 0


def test_a_fast_region_without_room_for_its_pages_takes_no_slot(world):
    live = world.table.sequence.live
    with pytest.raises(OSError, match="entries") as caught:
        world.windows.allocate_fast(3, PD, world.tpt.free_entries + 1, world.host.address_map)
    assert caught.value.errno == errno.ENOMEM
    assert world.table.sequence.live == live


def test_a_fast_region_that_ends_under_way_is_counted(world):
    fast = world.windows.allocate_fast(3, PD, 7, world.host.address_map)
    runs = [(world.frames[0], 1)]
    assert world.windows.register(3, PD, 1, 0, PAGE_BYTES, LOCAL_WRITE | REMOTE_WRITE, 0, runs) == 0
    fast.begin_use(world)
    world.windows.deallocate(fast)
    assert world.windows.keys_withdrawn == 1


def test_an_unbound_window_has_the_new_key(world):
    window = world.window(1)
    assert world.bind(window) == 0
    key = window.key
    assert world.bind(window, length=0) == 0
    assert window.key == key & ~0xFF | (key + 1) & 0xFF


def test_a_fast_region_that_is_invalidated_takes_its_key_from_who_uses_it(world):
    region = fast(world)
    assert register(world, region) == 0
    user = object()
    region.begin_use(user)
    assert world.windows.invalidate(region.key, QP, PD, False) == 0
    assert world.windows.keys_withdrawn == 1
    region.end_use(user)
