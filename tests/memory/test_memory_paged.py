"""Pageable memory: copies by the shared table, what holds them, and what the arbitrator does to it."""

import errno
import mmap
import os
import random
import resource
import subprocess
import sys

import pytest

from softhca.machine import primitives
from softhca.memory import bits
from softhca.memory import paged_layout as layout
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.paged import PagedRegion, register_paged
from softhca.memory.paged_mapping import PagedMapping
from softhca.memory.paged_memory import CLOSED, MOST_AT_ONCE, OUT, QUIESCED, RUNNING, PagedMemory
from softhca.memory.paged_swap import SwapFile
from softhca.memory.regions import (
    LOCAL_WRITE,
    MW_BIND,
    ON_DEMAND,
    REFUSED_KEY,
    REFUSED_RIGHTS,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    ZERO_BASED,
    RegionTable,
)
from softhca.memory.tpt import TranslationTable

ALL = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC
PD = 5
VA = 0x10_0000
EAGAIN, EACCES, EFAULT = errno.EAGAIN, errno.EACCES, errno.EFAULT


def fails(code):
    return pytest.raises(OSError, match=rf"\[Errno {code}\]")


class World:
    """A memory, its owner, and two adapters' region tables."""

    def __init__(self, pages=8, rights=ALL, extra=0, **more):
        self.length = pages * PAGE_BYTES - extra
        self.memory = PagedMemory(self.length, rights, **more)
        self.table = RegionTable(TranslationTable(1024), random.Random(1), 100)
        self.other = RegionTable(TranslationTable(1024), random.Random(2), 100)
        self.scratch = bytearray(max(self.length, 64))

    def region(self, table=None, access=ALL, va=VA, fd=None):
        mapping = PagedMapping(self.memory.fd if fd is None else fd)
        return register_paged(self.table if table is None else table, mapping, PD, va, access)

    def write(self, region, offset, data):
        self.scratch[: len(data)] = data
        return region.write(region.va + offset, primitives.address_of(self.scratch), len(data))

    def read(self, region, offset, n):
        """The bytes, or −errno."""
        room = bytearray(b"\xee" * n)
        result = region.read(region.va + offset, primitives.address_of(room), n)
        if result:
            assert room == b"\xee" * n, "nothing is copied where the answer is an error"
        return result or bytes(room)

    def view(self, offset, n):
        """The owner's view, by address."""
        room = bytearray(n)
        primitives.copy(primitives.address_of(room), self.memory.address + offset, n)
        return bytes(room)

    def entries(self):
        table = self.memory.mapping.table
        return [primitives.load64(table + 8 * page) for page in range(self.memory.pages)]

    def frames(self):
        """Frame by page, None where there is none."""
        return [entry & 0xFFFFFFFF if entry >> 63 else None for entry in self.entries()]

    def words(self):
        return [primitives.load64(self.memory.mapping.line(i)) for i in range(layout.ATTACHMENTS)]

    def state(self):
        """All that a step that fails must leave alone."""
        memory = self.memory
        swapped = memory.swap.held
        return (memory.state, memory.mapping.rights(), self.entries(), self.words(), memory.resident_bytes,
                memory.frames.free.free_count, swapped)


@pytest.fixture
def world():
    made = World()
    yield made
    made.memory.close()


@pytest.fixture
def lazy():
    made = World(rights=ALL | ON_DEMAND)
    yield made
    made.memory.close()


def pattern(n, seed=7):
    return random.Random(seed).randbytes(n)


def test_a_region_reads_and_writes_what_the_owner_sees_in_its_view(world):
    region = world.region()
    data = pattern(3 * PAGE_BYTES)
    assert world.write(region, 1000, data) == 0
    assert world.view(1000, len(data)) == data
    primitives.fill(world.memory.address + PAGE_BYTES, 0x5A, 3)
    assert world.read(region, PAGE_BYTES - 1, 5) == data[PAGE_BYTES - 1001 : PAGE_BYTES - 1000] + b"ZZZ" + \
        data[PAGE_BYTES - 997 : PAGE_BYTES - 996]
    assert world.words()[0] & layout.COUNT_BITS == 0


def test_the_range_ends_with_the_length_and_not_with_the_page():
    world = World(pages=2, extra=100)
    region = world.region()
    assert world.write(region, world.length - 4, b"last") == 0
    assert world.write(region, world.length - 3, b"last") == -EFAULT
    assert world.read(region, world.length, 1) == -EFAULT
    assert region.read(region.va - 1, primitives.address_of(world.scratch), 1) == -EFAULT
    assert region.covers(VA, world.length)
    assert not region.covers(VA, world.length + 1)
    world.memory.close()


def test_two_adapters_see_one_table_and_have_keys_and_domains_of_their_own(world):
    one, two = world.region(), world.region(world.other, va=0x77000)
    assert world.write(one, 5, b"shared") == 0
    assert world.read(two, 5, 6) == b"shared"
    assert world.table.find(one.key, PD, VA, 8, REMOTE_READ) is one
    assert world.other.find(one.key, PD, VA, 8, REMOTE_READ) is None
    assert world.table.tpt.free_entries == 1024, "the adapter has no entry of its own"
    assert [bool(word & layout.ATTACHED) for word in world.words()[:3]] == [True, True, False]


def test_zero_based_and_read_only_registrations(world):
    based = world.region(access=ALL | ZERO_BASED)
    assert based.va == 0
    assert based.zero_based
    reader = world.region(access=REMOTE_READ)
    assert world.write(based, 0, b"zero") == 0
    assert world.read(reader, 0, 4) == b"zero"
    assert world.write(reader, 0, b"one!") == -EACCES
    assert world.table.find(reader.key, PD, VA, 4, REMOTE_WRITE) is None
    assert world.table.refusal == REFUSED_RIGHTS


@pytest.mark.parametrize(("access", "pd", "va", "code"), [
    (REMOTE_WRITE, PD, VA, errno.EINVAL),
    (ALL | MW_BIND, PD, VA, errno.EOPNOTSUPP),
    (ALL, 0, VA, errno.EINVAL),
    (ALL | 0x80, PD, VA, errno.EINVAL),
    (ALL, PD, (1 << 64) - PAGE_BYTES, errno.EINVAL),
    (ALL, PD, -1, errno.EINVAL),
])
def test_a_registration_that_cannot_be_is_refused_and_takes_nothing(world, access, pd, va, code):
    before = world.state()
    with fails(code):
        register_paged(world.table, PagedMapping(world.memory.fd), pd, va, access)
    assert world.state() == before
    assert len(world.table) == 0


def test_deregistering_gives_the_line_back_and_kills_the_key(world):
    region = world.region()
    world.table.deregister(region)
    assert not world.words()[0] & layout.ATTACHED
    assert world.read(region, 0, 4) == -EACCES
    assert region.compare_swap(VA, 0, 1) == 0
    assert region.fault == -EACCES
    assert world.table.find(region.key, PD, VA, 4, 0) is None
    with fails(errno.EINVAL):
        world.table.deregister(region)
    again = world.region()
    assert again.key != region.key
    assert again.memory.number == 0


def test_what_it_grants_is_not_changed_by_registering_again(world):
    region = world.region()
    before = world.state()
    with fails(errno.EINVAL):
        world.table.reregister(region, access=REMOTE_READ)
    with fails(errno.EINVAL):
        world.table.reregister(region, pd=PD + 1)
    assert world.state() == before
    assert world.table.find(region.key, PD, VA, 4, ALL) is region


def test_atomics_are_aligned_instructions_or_read_and_written(world):
    region = world.region()
    for offset in (0, 8, PAGE_BYTES - 8, 12, PAGE_BYTES - 4):
        assert world.write(region, offset, (41).to_bytes(8, "little")) == 0
        assert region.fetch_add(VA + offset, 2**64 - 1) == 41
        assert region.compare_swap(VA + offset, 39, 7) == 40
        assert region.compare_swap(VA + offset, 40, 2**63) == 40
        assert region.fault == 0
        assert world.read(region, offset, 8) == (2**63).to_bytes(8, "little")
    assert region.fetch_add(VA + world.length - 7, 1) == 0
    assert region.fault == -EFAULT
    reader = world.region(access=REMOTE_READ)
    reader.fetch_add(VA, 1)
    assert reader.fault == -EACCES
    assert all(word & layout.COUNT_BITS == 0 for word in world.words())


def test_the_adapter_s_mode_bit_holds_everything(world):
    region = world.region()
    world.table.tpt.stopped = True
    assert world.read(region, 0, 4) == -EAGAIN
    assert world.write(region, 0, b"held") == -EAGAIN
    region.fetch_add(VA, 1)
    assert region.fault == -EAGAIN
    other = world.region(world.other)
    assert world.read(other, 0, 8) == bytes(8), "another adapter goes on"
    world.table.tpt.stopped = False
    assert world.read(region, 0, 8) == bytes(8)


# Quiesce


def test_quiesce_holds_every_attachment_also_a_later_one_until_resume(world):
    one, two = world.region(), world.region(world.other)
    world.memory.quiesce()
    assert world.memory.state == QUIESCED
    late = world.region()
    for region in (one, two, late):
        assert world.read(region, 0, 4) == -EAGAIN
        assert world.write(region, 0, b"held") == -EAGAIN
        region.compare_swap(VA, 0, 1)
        assert region.fault == -EAGAIN
        assert world.table.find(one.key, PD, VA, 4, REMOTE_WRITE) is one, "a held region is found"
    assert world.view(0, 8) == bytes(8)
    world.memory.resume()
    for region in (one, two, late):
        assert world.write(region, 0, b"goes") == 0
    assert all(not word & (layout.QUIESCED | layout.COUNT_BITS) for word in world.words())


def test_what_is_quiesced_is_not_quiesced_swapped_moved_or_changed_again(world):
    world.region()
    world.memory.quiesce()
    before = world.state()
    for step in (world.memory.quiesce, world.memory.swap_out, world.memory.migrate,
                 lambda: world.memory.set_rights(REMOTE_READ), lambda: world.memory.fetch(0, 1)):
        with fails(errno.EBUSY):
            step()
    with fails(errno.EINVAL):
        world.memory.swap_in()
    assert world.state() == before
    world.memory.resume()
    with fails(errno.EINVAL):
        world.memory.resume()
    with fails(errno.EINVAL):
        world.memory.swap_in()


STEPS = {
    "quiesce": lambda memory, pause: memory.quiesce(pause),
    "rights": lambda memory, pause: memory.set_rights(REMOTE_READ, pause),
    "swap out": lambda memory, pause: memory.swap_out(pause),
    "migrate": lambda memory, pause: memory.migrate(pause),
}


@pytest.mark.parametrize("step", STEPS)
def test_an_access_under_way_is_waited_for_and_an_endless_one_given_up(world, step):
    region = world.region()
    world.write(region, 0, b"data")
    region.memory.enter()
    before = world.state()
    patience = [3]

    def pause():
        assert world.words()[0] & layout.QUIESCED
        patience[0] -= 1
        return patience[0] > 0

    with fails(errno.ETIMEDOUT):
        STEPS[step](world.memory, pause)
    assert patience[0] == 0
    assert world.state() == before

    def ends():
        assert world.words()[0] & layout.QUIESCED
        region.memory.leave()
        return True

    STEPS[step](world.memory, ends)
    assert world.words()[0] & layout.COUNT_BITS == 0


# Rights


def test_a_change_of_rights_is_kept_by_every_attachment_when_it_is_reported(world):
    one, two = world.region(), world.region(world.other)
    found = world.table.find(one.key, PD, VA, 4, REMOTE_WRITE)
    begun, other = found.generation, two.generation
    world.memory.set_rights(REMOTE_READ)
    assert world.write(found, 0, b"late") == -EACCES
    assert found.generation != begun
    assert world.table.find(one.key, PD, VA, 4, REMOTE_WRITE) is None
    assert world.table.refusal == REFUSED_RIGHTS
    assert world.other.find(two.key, PD, VA, 4, REMOTE_WRITE) is None
    assert two.generation != other, "looking the key up is enough to learn of it"
    assert world.table.find(one.key, PD, VA, 4, REMOTE_READ) is one
    assert world.read(one, 0, 4) == bytes(4), "what begins afterwards goes on"
    world.memory.set_rights(ALL)
    assert world.table.find(one.key, PD, VA, 4, ALL) is one
    reader = world.region(access=REMOTE_READ)
    assert reader.access == REMOTE_READ, "a registration gives no more than it was asked for"


def test_rights_that_cannot_be_are_refused_and_equal_ones_change_nothing(world):
    world.region()
    before = world.state()
    for rights in (REMOTE_WRITE, REMOTE_ATOMIC, MW_BIND, ZERO_BASED, 0x80, ON_DEMAND | ALL, -1):
        with fails(errno.EINVAL):
            world.memory.set_rights(rights)
    world.memory.set_rights(ALL)
    assert world.state() == before


@pytest.mark.parametrize("rights", [REMOTE_WRITE, MW_BIND, ZERO_BASED, 0x100])
def test_memory_with_rights_that_cannot_be_is_not_made(rights):
    with fails(errno.EINVAL):
        PagedMemory(PAGE_BYTES, rights)


@pytest.mark.parametrize("length", [0, -1, (layout.MAX_PAGES + 1) * PAGE_BYTES])
def test_memory_of_a_length_that_cannot_be_is_not_made(length):
    with fails(errno.EINVAL):
        PagedMemory(length, ALL)


def test_a_closed_memory_is_dead_everywhere(world):
    region = world.region()
    fd = os.dup(world.memory.fd)
    world.memory.close()
    assert world.memory.state == CLOSED
    assert world.read(region, 0, 4) == -EACCES
    assert world.table.find(region.key, PD, VA, 4, 0) is None
    assert world.table.refusal == REFUSED_KEY
    with fails(errno.EACCES):
        world.region(fd=fd)
    for step in (world.memory.quiesce, world.memory.resume, world.memory.swap_in, world.memory.migrate):
        with fails(errno.EINVAL):
            step()
    world.table.deregister(region)
    world.memory.close()
    os.close(fd)


# Swap


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


class Failing:
    """Lets the n-th call of a method raise, and the ones after it work."""

    def __init__(self, monkeypatch, owner, name, number, code):
        self.left, self.code, self.method = number, code, getattr(owner, name)
        monkeypatch.setattr(owner, name, self)

    def __call__(self, *arguments):
        self.left -= 1
        if self.left == 0:
            raise OSError(self.code, os.strerror(self.code))
        return self.method(*arguments)


def scattered(world):
    """Bytes in every other page, so that each of them is a piece of its own."""
    region, data = world.region(), bytearray(world.length)
    for page in range(0, 8, 2):
        start = page * PAGE_BYTES
        data[start : start + PAGE_BYTES] = pattern(PAGE_BYTES, page)
        assert world.write(region, start, data[start : start + PAGE_BYTES]) == 0
    return region, bytes(data)  # not read from the memory: that would fill its other pages with zeros


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
import test_memory_paged as tests
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


# On demand


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


# What others write into the memory


def test_a_frame_beyond_the_file_is_a_fault_and_not_a_crash(world):
    region = world.region()
    for frame in (16, 0xFFFFFFFF):
        primitives.store64(world.memory.mapping.table + 8, bits.VALID | frame)
        assert world.read(region, PAGE_BYTES, 4) == -EFAULT
        assert world.write(region, PAGE_BYTES - 2, b"data") == -EFAULT
        assert world.view(PAGE_BYTES - 2, 2) == bytes(2), "nothing is copied"
        region.fetch_add(VA + PAGE_BYTES, 1)
        assert region.fault == -EFAULT
        with fails(errno.EIO):
            world.memory.swap_out()
        with fails(errno.EIO):
            world.memory.migrate()
        assert world.memory.state == RUNNING


def test_the_owner_refuses_a_table_that_names_free_frames_or_one_twice(world):
    for frame in (9, 0):
        primitives.store64(world.memory.mapping.table + 8, bits.VALID | frame)
        before = world.state()
        with fails(errno.EIO):
            world.memory.swap_out()
        assert world.state() == before


def test_a_header_that_changes_after_the_attach_is_not_believed(world):
    region = world.region()
    primitives.store64(world.memory.mapping.base + layout.LENGTH, 1 << 40)
    primitives.store64(world.memory.mapping.base + layout.PAGES, 1 << 30)
    assert world.read(region, world.length, 4) == -EFAULT
    assert region.length == world.length
    with fails(errno.EINVAL):
        world.region()


@pytest.mark.parametrize(("place", "value"), [
    (0, layout.MAGIC + 1), (8, 0), (8, 8 * PAGE_BYTES + 1), (8, 7 * PAGE_BYTES), (8, (1 << 64) - 1), (16, 9)])
def test_a_header_that_does_not_fit_its_file_is_refused(world, place, value):
    primitives.store64(world.memory.mapping.base + place, value)
    with fails(errno.EINVAL):
        PagedMapping(world.memory.fd)


def test_descriptors_that_are_no_sealed_memory_are_refused(tmp_path):
    unsealed = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, 1 << 20)
    with fails(errno.EINVAL):
        PagedMapping(unsealed)
    os.close(unsealed)
    with open(tmp_path / "file", "wb") as file, fails(errno.EINVAL):
        PagedMapping(file.fileno())
    with fails(errno.EBADF):
        PagedMapping(unsealed)


def test_the_size_of_the_memory_is_sealed(world):
    for size in (0, 1 << 30):
        with fails(errno.EPERM):
            os.ftruncate(world.memory.fd, size)


@pytest.mark.parametrize("wanted", [0xFFFFFFFF, 9, 1 << 32, (1 << 64) - 1, 8 | 7 << 32])
def test_a_request_for_pages_that_cannot_be_brings_no_others(lazy, wanted):
    region = lazy.region()
    primitives.store64(region.memory.line + layout.WANTED, wanted)
    primitives.atomic_add64(lazy.memory.mapping.base + layout.FAULTS, 1)
    expected = 1 if wanted == 8 | 7 << 32 else 0
    assert lazy.memory.service() == expected
    assert primitives.load64(region.memory.line + layout.WANTED) == 0
    assert [frame is not None for frame in lazy.frames()] == 7 * [False] + [bool(expected)]


# Attachments and processes


def test_thirty_two_attachments_and_no_more(world):
    regions = [world.region() for _ in range(layout.ATTACHMENTS)]
    before = world.state()
    with fails(errno.ENOMEM):
        world.region()
    assert world.state() == before
    assert len(world.table) == layout.ATTACHMENTS
    world.table.deregister(regions[9])
    assert world.region().memory.number == 9


DIES = """
import os, sys
from softhca.memory.paged_mapping import PagedMapping
mapping = PagedMapping(int(sys.argv[1]))
access = mapping.attach()
for _ in range(int(sys.argv[2])):
    access.enter()
print(access.number, flush=True)
sys.stdin.read()
os._exit(0)
"""


def dying(world, count):
    """A process that attaches, begins so many accesses, and lives until its input ends."""
    child = subprocess.Popen([sys.executable, "-c", DIES, str(world.memory.fd), str(count)], text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[world.memory.fd])
    assert child.stdout is not None
    return child, int(child.stdout.readline())


def test_a_dead_process_s_accesses_are_not_waited_for_a_living_one_s_are(world):
    child, number = dying(world, 2)
    assert world.words()[number] & layout.COUNT_BITS == 2
    with fails(errno.ETIMEDOUT):
        world.memory.quiesce()
    os.kill(child.pid, 9)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    world.memory.quiesce()  # its parent has not taken note of it yet
    assert not world.words()[number] & (layout.ATTACHED | layout.COUNT_BITS)
    world.memory.resume()
    child.communicate()
    assert world.region().memory.number == number


def test_lines_of_the_dead_are_given_to_those_who_need_them(world):
    for _ in range(layout.ATTACHMENTS - 1):
        world.region()
    child, number = dying(world, 1)
    with fails(errno.ENOMEM):
        world.region()
    child.communicate()
    region = world.region()
    assert region.memory.number == number
    assert world.words()[number] & layout.COUNT_BITS == 0
    assert world.read(region, 0, 4) == bytes(4)


def test_a_process_number_that_was_given_again_is_not_the_holder(world):
    region = world.region()
    region.memory.enter()
    started = primitives.load64(region.memory.line + layout.STARTED)
    primitives.store64(region.memory.line + layout.STARTED, started - 1)
    world.memory.quiesce()
    assert not world.words()[0] & layout.ATTACHED


def test_who_is_just_attaching_or_in_another_namespace_is_not_called_dead(world):
    region = world.region()
    line = region.memory.line
    region.memory.enter()
    primitives.store64(line + layout.PID, 2**22 + 7)
    namespace = primitives.load64(line + layout.NAMESPACE)
    primitives.store64(line + layout.NAMESPACE, namespace + 1)
    with fails(errno.ETIMEDOUT):
        world.memory.quiesce()
    primitives.store64(line + layout.NAMESPACE, namespace)
    taken = primitives.load64(line + layout.HOLDER_TAKEN)
    primitives.store64(line + layout.HOLDER_TAKEN, taken - 1)
    with fails(errno.ETIMEDOUT):
        world.memory.quiesce()
    primitives.store64(line + layout.HOLDER_TAKEN, taken)
    world.memory.quiesce()


def test_a_forked_child_does_not_act_as_the_owner(world):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            world.memory.quiesce()
        except OSError as error:
            code = 0 if error.errno == errno.EPERM else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert world.memory.state == RUNNING
    assert not world.words()[0] & layout.QUIESCED


# What it costs


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


def test_a_second_attachment_adds_no_table(world):
    world.region()
    before = world.memory.resident_bytes
    for _ in range(10):
        region = world.region(world.other)
        assert world.read(region, 0, world.length) == bytes(world.length)
    assert world.memory.resident_bytes <= before + world.length, "reading may fill frames, not tables"
    assert world.other.tpt.free_entries == 1024
    assert isinstance(region, PagedRegion)
    assert mmap.PAGESIZE == PAGE_BYTES


def test_a_word_is_put_into_pages_that_are_there(world):
    region = world.region()
    word = b"eight by"
    source = primitives.address_of(word, writable=False)
    for offset in (16, 4090):
        assert region.put_word(VA + offset, source) == 0
        assert world.view(offset, 8) == word
    assert region.put_word(VA + world.length - 4, source) == -EFAULT
    world.memory.quiesce()
    assert region.put_word(VA, source) == -EAGAIN
    world.memory.resume()
    reader = world.region(access=REMOTE_READ)
    assert reader.put_word(VA, source) == -EACCES
    assert world.view(0, 8) == bytes(8)


def test_rights_that_change_and_change_back_are_not_those_of_before():
    """Who has looked at them before the change has lost them."""
    memory = World().memory
    before = memory.mapping.rights()
    for rights in (LOCAL_WRITE, ALL):
        memory.set_rights(rights)
    assert memory.rights == ALL
    assert memory.mapping.rights() != before
    memory.close()


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


def test_one_request_brings_so_many_pages_and_no_more():
    memory = PagedMemory((MOST_AT_ONCE + 8) * PAGE_BYTES, ALL | ON_DEMAND)
    place = memory.mapping.line(0) + layout.WANTED
    primitives.store64(place, (MOST_AT_ONCE + 8) << layout.WANTED_SHIFT | 1)
    memory.wake()
    assert memory.service() == MOST_AT_ONCE
    assert primitives.load64(place) == 0
    memory.close()
