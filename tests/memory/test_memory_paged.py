"""Pageable memory: copies by the shared table, what holds them, and what rights do to them."""

import errno
import os

import pytest
from paged_world import EACCES, EAGAIN, EFAULT, VA, World, pattern
from region_world import ALL, PD, fails

from softhca.machine import primitives
from softhca.memory import paged_layout as layout
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.paged import register_paged
from softhca.memory.paged_mapping import PagedMapping
from softhca.memory.paged_memory import CLOSED, QUIESCED, PagedMemory
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
)


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
