"""The bytes behind memory regions: reads, writes and atomics, of this process and of others."""

import errno
import mmap
import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from region_world import ALL, PD, TOP, World, address

from softhca.machine import primitives
from softhca.memory.arenas import AddressMap
from softhca.memory.bits import PAGE_BYTES, SLOT_PAGES
from softhca.memory.regions import REMOTE_READ, RegionTable
from softhca.memory.tpt import TranslationTable
from suite_plan import random_inputs


@pytest.fixture
def world():
    made = World()
    yield made
    made.host.close()


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
