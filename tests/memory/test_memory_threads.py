"""Host memory under threads: one page has one owner, and an address stays readable as long as the object."""

import gc
import sys
import threading
from pathlib import Path

import pytest

from interleaving import WatchedLock, at_every_line
from softhca.machine import primitives
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.host import HostMemory
from softhca.memory.runs import FreeRuns, numbers_of

CAPACITY = 64 << 20
FILES = ("memory/host.py", "memory/runs.py", "memory/arenas.py", "memory/shared_arena.py")


def mapped_bytes(address):
    """How many bytes are mapped in one piece from ``address`` on; 0 for none."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        low, high = (int(end, 16) for end in line.split()[0].split("-"))
        if low <= address < high:
            return high - address
    return 0


class Pair:
    """Fresh host memory with a lock that is watched, fragmented, so that runs are cut and merged."""

    def __init__(self):
        self.memory = HostMemory(CAPACITY)
        self.memory.lock = WatchedLock(threading.RLock())
        frames = self.memory.allocate(12)
        self.memory.free(frames[::2])
        self.kept = frames[1::2]
        self.given = []

    def take(self, pages, contiguous=False):
        frames = self.memory.allocate(pages, contiguous)
        self.given.append(frames)
        return frames

    def check(self):
        frames = [frame for frames in (*self.given, self.kept) for frame in frames]
        assert len(set(frames)) == len(frames), "one page was given twice"
        self.memory.free(frames)
        assert self.memory.free_pages == CAPACITY // PAGE_BYTES - 1, "all pages are free again"
        assert self.memory.allocate(self.memory.free_pages, contiguous=True)
        self.memory.close()


CALLS = {
    "rings": lambda pair: pair.take(5),
    "region": lambda pair: pair.take(3, contiguous=True),
    "end": lambda pair: pair.memory.free([pair.kept.pop(), pair.kept.pop()]),
}


@pytest.mark.parametrize("first", CALLS)
@pytest.mark.parametrize("second", CALLS)
def test_a_page_is_never_given_to_two_threads(first, second):
    pairs = []

    def make():
        pairs.append(Pair())
        pair = pairs[-1]
        return lambda: CALLS[first](pair), lambda: CALLS[second](pair), [pair.memory.lock]

    for one, other in at_every_line(FILES, make):
        assert not isinstance(one, Exception), one
        assert not isinstance(other, Exception), other
        pairs[-1].check()
    assert len(pairs) > 5


def test_buffers_of_two_threads_get_slots_of_their_own():
    memories = []

    def make():
        memory = HostMemory(CAPACITY)
        memory.lock = WatchedLock(threading.RLock())
        memories.append(memory)
        attach = lambda: memory.attach_buffer(bytearray(100))  # noqa: E731
        return attach, attach, [memory.lock]

    for (one, _), (other, _) in at_every_line(FILES, make):
        assert one != other
        memories[-1].detach(one)
        memories[-1].detach(other)
        memories[-1].close()


def test_an_exception_in_the_middle_leaves_the_allocator_whole():
    """Whatever line a key is pressed at: pages are taken or not, and none is lost to the table."""

    class Pressed(BaseException):
        pass

    for line in range(1, 200):
        runs = FreeRuns(0, 10)
        taken = [runs.take(2) for _ in range(5)]
        runs.give(taken[1], 2)
        runs.give(taken[3], 2)
        count = 0

        def trace(frame, event, _, line=line):
            nonlocal count
            if event == "line" and frame.f_code.co_filename.endswith("memory/runs.py"):
                count += 1
                if count == line:
                    raise Pressed
            return trace

        sys.settrace(trace)
        try:
            runs.take_scattered(3)
            runs.give(taken[0], 2)
        except Pressed:
            pass
        finally:
            sys.settrace(None)
        free = [number for number in range(10) if not runs.is_taken(number, 1)]
        assert runs.free_count == len(free)
        assert len(free) in (4, 1, 3), "before, between or after"
        assert numbers_of(runs.take_scattered(len(free)), len(free)) == free
        if count < line:
            break
    assert line > 10


def test_memory_outlives_its_close_for_who_comes_late_and_goes_with_the_object():
    memory = HostMemory(CAPACITY)
    frame = memory.allocate(3)[-1]
    address, base = memory.address_map.address(frame), memory.base
    primitives.store64(address, 4711)
    assert mapped_bytes(base) == CAPACITY
    memory.close()
    assert mapped_bytes(base) == (frame + 1) * PAGE_BYTES, "the rest of the address space is given back"
    assert primitives.load64(address) == 0, "and so is what stood there"
    memory.free([frame])
    with pytest.raises(OSError, match="closed"):
        memory.allocate(1)
    del memory
    gc.collect()
    assert mapped_bytes(base) == 0


def test_a_shared_arena_outlives_its_close_too():
    memory = HostMemory(CAPACITY)
    arena = memory.share()
    (frame,) = memory.allocate_shared(1)
    address = memory.address_map.address(frame)
    primitives.store64(address, 4711)
    memory.close()
    memory.close()
    assert mapped_bytes(arena.base) >= PAGE_BYTES
    assert primitives.load64(address) == 0
