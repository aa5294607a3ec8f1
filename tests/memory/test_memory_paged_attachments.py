"""Who attaches pageable memory: what others write into it, how many there may be, and processes that die."""

import errno
import mmap
import os
import subprocess
import sys

import pytest
from paged_world import EFAULT, VA
from region_world import fails

from softhca.machine import primitives
from softhca.memory import bits
from softhca.memory import paged_layout as layout
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.paged import PagedRegion
from softhca.memory.paged_mapping import PagedMapping
from softhca.memory.paged_memory import RUNNING

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
