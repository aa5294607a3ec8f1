"""Host memory: frames on the memfd, attached buffers, and the same memory seen from another mapping or
process."""

import ctypes
import errno
import fcntl
import mmap
import os

import pytest

from softhca.machine import primitives
from softhca.memory.bits import PAGE_BYTES, SLOT_BYTES, SLOT_PAGES
from softhca.memory.host import HostMemory, SharedHostMemory

CAPACITY = 64 << 20


@pytest.fixture
def host():
    memory = HostMemory(CAPACITY)
    yield memory
    memory.close()


def fails(code):
    return pytest.raises(OSError, match=rf"\[Errno {code}\]")


def test_frames_are_distinct_mapped_zero_and_never_frame_0(host):
    frames = host.allocate(5) + host.allocate(3, contiguous=True)
    assert len(set(frames)) == 8
    assert 0 not in frames
    for frame in frames:
        address = host.address_map.address(frame)
        assert address == host.base + frame * PAGE_BYTES
        assert ctypes.string_at(address, PAGE_BYTES) == bytes(PAGE_BYTES)


def test_free_frames_are_used_again_even_where_they_are_not_contiguous(host):
    frames = host.allocate(host.free_pages)
    assert len(frames) == CAPACITY // PAGE_BYTES - 1
    host.free([frames[10], frames[20], frames[21]])
    with fails(errno.ENOMEM):
        host.allocate(3, contiguous=True)
    with fails(errno.ENOMEM):
        host.allocate(4)
    assert sorted(host.allocate(3)) == [frames[10], frames[20], frames[21]]
    assert host.free_pages == 0


def test_contiguous_frames_are_consecutive(host):
    frames = host.allocate(9)
    host.free(frames[1::2])
    run = host.allocate(4, contiguous=True)
    assert run == list(range(run[0], run[0] + 4))
    assert not set(run) & set(frames[::2])


def test_a_freed_page_comes_back_zero(host):
    (frame,) = host.allocate(1)
    host.view(frame, 1)[:] = b"\xff" * PAGE_BYTES
    host.free([frame])
    again = host.allocate(1)
    assert again == [frame]
    assert bytes(host.view(frame, 1)) == bytes(PAGE_BYTES)


def test_double_free_is_refused_and_changes_nothing(host):
    frames = host.allocate(3)
    before = host.free_pages
    for wrong in ([frames[0], frames[0]], [*frames, 5000], [0], [CAPACITY // PAGE_BYTES]):
        with fails(errno.EINVAL):
            host.free(wrong)
        assert host.free_pages == before
    host.free(frames)
    with fails(errno.EINVAL):
        host.free(frames)
    assert host.free_pages == before + 3


def test_no_pages_cannot_be_allocated(host):
    for count in (0, -1):
        with fails(errno.EINVAL):
            host.allocate(count)


@pytest.mark.parametrize("allocate", ["allocate", "allocate_shared"])
def test_pages_that_are_no_whole_number_spoil_nothing(host, allocate):
    with pytest.raises(TypeError):
        getattr(host, allocate)(4.0)
    frames = host.allocate(3)
    assert all(isinstance(frame, int) for frame in frames)
    host.free(frames)


def test_the_view_is_the_memory_and_only_of_allocated_frames(host):
    frames = host.allocate(2, contiguous=True)
    host.view(frames[0], 2)[4094:4098] = b"abcd"
    assert ctypes.string_at(host.address_map.address(frames[0]) + 4094, 4) == b"abcd"
    with fails(errno.EINVAL):
        host.view(frames[0], 3)


def test_capacity_is_sparse():
    big = HostMemory(64 << 30)
    frames = big.allocate(8 << 18, contiguous=True)
    primitives.store64(big.address_map.address(frames[-1]), 7)
    assert os.fstat(big.fd).st_blocks * 512 < 1 << 20
    big.close()


@pytest.mark.parametrize("capacity", [0, SLOT_BYTES - 1, SLOT_BYTES + 4096, 1 << 44])
def test_a_capacity_that_cannot_be_is_refused(capacity):
    with fails(errno.EINVAL):
        HostMemory(capacity)


def test_an_attached_buffer_gets_frames_of_its_own(host):
    buffer = bytearray(3 * PAGE_BYTES)
    first, offset = host.attach_buffer(buffer)
    assert offset == primitives.address_of(buffer) % PAGE_BYTES
    assert first >= host.capacity_pages
    assert host.address_map.address(first) + offset == primitives.address_of(buffer)
    last = first + (offset + len(buffer) - 1) // PAGE_BYTES
    assert host.address_map.address(last)
    assert host.address_map.address(last + 1) == 0
    base = primitives.address_of(buffer) - offset
    assert host.attached(first) == (first // SLOT_PAGES, last - first + 1, base)


def test_an_attached_buffer_cannot_be_resized_until_it_is_detached(host):
    buffer = bytearray(100)
    first, _ = host.attach_buffer(buffer)
    with pytest.raises(BufferError):
        buffer.extend(b"x")
    host.detach(first)
    buffer.extend(b"x")
    assert host.address_map.address(first) == 0
    with fails(errno.EINVAL):
        host.detach(first)


def test_buffers_longer_than_a_slot_take_consecutive_slots(host):
    area = mmap.mmap(-1, 2 * SLOT_BYTES + 5 * PAGE_BYTES)
    first, offset = host.attach_buffer(area)
    other, _ = host.attach_buffer(bytearray(8))
    assert offset == 0
    base = primitives.address_of(area)
    for page in (0, SLOT_PAGES - 1, SLOT_PAGES, 2 * SLOT_PAGES + 4):
        assert host.address_map.address(first + page) == base + page * PAGE_BYTES
    assert host.address_map.address(first + 2 * SLOT_PAGES + 5) == 0
    assert not first // SLOT_PAGES <= other // SLOT_PAGES <= first // SLOT_PAGES + 2
    host.detach(first)
    again, _ = host.attach_buffer(area)
    assert again == first


def test_an_integer_address_is_attached_by_the_pages_that_it_touches(host):
    area = mmap.mmap(-1, 4 * PAGE_BYTES)
    base = primitives.address_of(area)
    first, offset = host.attach_address(base + 4095, 2)
    assert offset == 4095
    assert host.attached(first) == (first // SLOT_PAGES, 2, base)
    first, offset = host.attach_address(base + 4096, 4096)
    assert (offset, host.attached(first)[1]) == (0, 1)


@pytest.mark.parametrize(
    ("address", "length"), [(4096, 0), (4096, -1), (0, 1), (-1, 1), (1, 1 << 64), ((1 << 64) - 4096, 4097)]
)
def test_a_range_that_cannot_be_is_refused(host, address, length):
    with pytest.raises(OSError, match="bytes at address"):
        host.attach_address(address, length)


@pytest.mark.parametrize("address", [(1 << 63) - PAGE_BYTES, 1 << 63, (1 << 64) - PAGE_BYTES])
def test_a_range_may_lie_anywhere_up_to_the_last_address(host, address):
    first, offset = host.attach_address(address + 1, PAGE_BYTES - 1)
    assert offset == 1
    assert host.attached(first)[1:] == (1, address)
    assert host.address_map.address(first) == address
    host.detach(first)
    first, _ = host.attach_address(address, PAGE_BYTES)
    assert host.attached(first)[1:] == (1, address)


def limited(monkeypatch, slots):
    """The sizes that are asked for where the process may have no more than so many slots."""
    asked = []
    resize = os.ftruncate

    def truncate(fd, size):
        asked.append(size // SLOT_BYTES)
        if size > slots * SLOT_BYTES:
            raise OSError(errno.EFBIG, "too large")
        resize(fd, size)

    monkeypatch.setattr(os, "ftruncate", truncate)
    return asked


def test_a_capacity_that_the_process_may_not_have_is_halved_to_whole_slots(monkeypatch):
    asked = limited(monkeypatch, 4)
    memory = HostMemory(17 * SLOT_BYTES)
    assert asked == [17, 8, 4]
    assert memory.capacity_pages == 4 * SLOT_PAGES
    assert len(memory.allocate(memory.free_pages)) == 4 * SLOT_PAGES - 1
    memory.close()


def test_less_than_the_smallest_capacity_is_not_tried(monkeypatch):
    asked = limited(monkeypatch, 3)
    with fails(errno.EFBIG):
        HostMemory(9 * SLOT_BYTES)
    assert asked == [9, 4]


def test_read_only_and_empty_and_scattered_buffers_are_refused(host):
    with fails(errno.EACCES):
        host.attach_buffer(b"constant")
    assert host.attach_buffer(b"constant", writable=False)
    with fails(errno.EINVAL):
        host.attach_buffer(bytearray())
    with fails(errno.EINVAL):
        host.attach_buffer(memoryview(bytearray(10))[::2])
    for address, length in ((0, 5), (4096, 0), (4096, -1), (-1, 5), ((1 << 64) - 5, 10)):
        with fails(errno.EINVAL):
            host.attach_address(address, length)


def test_another_mapping_of_the_descriptor_is_the_same_memory(host):
    frames = host.allocate(3)
    shared = SharedHostMemory(host.fd)
    for number, frame in enumerate(frames):
        primitives.store64(host.address_map.address(frame), 1000 + number)
    assert [primitives.load64(shared.address_map.address(frame)) for frame in frames] == [1000, 1001, 1002]
    assert shared.address_map.address(frames[0]) != host.address_map.address(frames[0])
    assert shared.address_map.address(host.capacity_pages) == 0
    shared.close()


def test_the_descriptor_cannot_shrink_under_a_reader(host):
    with pytest.raises(PermissionError):
        os.ftruncate(host.fd, PAGE_BYTES)


def test_a_descriptor_that_could_shrink_is_refused():
    fd = os.memfd_create("unsealed", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, SLOT_BYTES)
    with fails(errno.EINVAL):
        SharedHostMemory(fd)
    os.close(fd)


@pytest.mark.parametrize("shared", [False, True])
def test_the_frame_and_the_file_of_an_address_are_found_to_the_last_byte(host, shared):
    arena = host.share()
    base, size = (arena.base, arena.size_bytes) if shared else (host.base, host.capacity_pages * PAGE_BYTES)
    fd, first_frame = (arena.fd, arena.first_frame) if shared else (host.fd, 0)
    for offset, length in ((PAGE_BYTES + 5, 7), (0, size), (size - 1, 1), (size - PAGE_BYTES, PAGE_BYTES)):
        assert host.frame_of(base + offset, length) == first_frame + offset // PAGE_BYTES
        assert host.file_of(base + offset, length) == (fd, offset)
    for offset, length in ((-1, 1), (-1, 2), (size, 1), (size - 1, 2), (0, size + 1)):
        assert host.file_of(base + offset, length) in (None, *elsewhere(host, base + offset, length))
        assert host.frame_of(base + offset, length) == 0 or elsewhere(host, base + offset, length)


def elsewhere(host, address, length):
    """What may be said of bytes beyond one of the two memories: that they are the other's, where they are."""
    return [
        (fd, address - base)
        for fd, base, size in (
            (host.fd, host.base, host.capacity_pages * PAGE_BYTES),
            (host.shared.fd, host.shared.base, host.shared.size_bytes),
        )
        if base <= address and address + length <= base + size
    ]


def test_no_file_has_the_bytes_of_closed_memory(host):
    (frame,) = host.allocate(1)
    host.share()
    (shared,) = host.allocate_shared(1)
    addresses = [host.address_map.address(each) for each in (frame, shared)]
    assert all(host.file_of(address, 1) for address in addresses)
    host.close()
    assert [host.file_of(address, 1) for address in addresses] == [None, None]


def test_frames_of_both_memories_are_not_freed_together(host):
    host.share()
    own, shared = host.allocate(1), host.allocate_shared(1)
    for address in map(host.address_map.address, own + shared):
        primitives.store64(address, 12)
    with fails(errno.EINVAL):
        host.free(own + shared)
    with fails(errno.EINVAL):
        host.free(shared + own)
    assert [primitives.load64(host.address_map.address(frame)) for frame in own + shared] == [12, 12]
    _, second, third = (host.allocate_shared(1) for _ in range(3))
    host.free(second)
    with fails(errno.EINVAL):
        host.free(shared + third)
    host.free(third)
    host.free(own)
    host.free(shared)
    for frames in (own, shared):
        with fails(errno.EINVAL):
            host.free(frames)


def test_the_frames_of_a_closed_memory_are_nobodys_to_free(host):
    frames = host.allocate(2)
    host.close()
    host.free(frames)
    host.free(frames)


def test_frames_stay_shared_after_fork(host):
    (frame,) = host.allocate(1)
    address = host.address_map.address(frame)
    child = os.fork()
    if child == 0:
        primitives.store64(address, 4711)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert primitives.load64(address) == 4711


def test_close_lets_buffers_go_and_may_be_repeated():
    memory = HostMemory(CAPACITY)
    buffer = bytearray(10)
    memory.attach_buffer(buffer)
    memory.close()
    memory.close()
    buffer.extend(b"free again")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(memory.fd)


@pytest.mark.parametrize("contiguous", [False, True])
def test_all_that_was_given_out_stays_mapped_when_the_memory_is_closed(contiguous):
    """The kernel is asked to read there: it says EFAULT where a look of our own would end the process."""
    memory = HostMemory(CAPACITY)
    addresses = [memory.address_map.address(frame) for frame in memory.allocate(9, contiguous=contiguous)]
    for address in addresses:
        primitives.store64(address, 7)
    memory.close()
    reader, writer = os.pipe()
    try:
        for address in addresses:
            assert ctypes.CDLL(None).write(writer, ctypes.c_void_p(address), 8) == 8
            assert os.read(reader, 8) == bytes(8)
    finally:
        os.close(reader)
        os.close(writer)


def test_memory_of_huge_pages_is_not_mapped():
    """They are not there when they are touched, unless somebody has reserved them."""
    fd = os.memfd_create("test", os.MFD_HUGETLB | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, 4 * SLOT_BYTES)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        with pytest.raises(OSError, match="ordinary pages"):
            SharedHostMemory(fd)
    finally:
        os.close(fd)
