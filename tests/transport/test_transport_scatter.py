"""The local buffers of a work request: any piece of the message, in any order, while its regions last."""

import errno
import random
import tracemalloc

import pytest

from softhca.machine import primitives
from softhca.memory.host import HostMemory
from softhca.memory.regions import LOCAL_WRITE, RegionTable
from softhca.memory.tpt import TranslationTable
from softhca.queues.wqe import ReceiveWork, encode_receive
from softhca.transport.request import Request
from softhca.transport.scatter import BufferList

PD = 3
PIECES = (7, 0, 5000, 1, 0, 0, 4096, 33)
TOTAL = sum(PIECES)


class World:
    """A buffer with a region of its own for each of ``PIECES``, and a list that has resolved them."""

    def __init__(self, pieces=PIECES, access=LOCAL_WRITE, capacity=None):
        self.host = HostMemory(64 << 20)
        self.table = RegionTable(TranslationTable(4096), random.Random(1))
        self.data = [bytearray(random.Random(n).randbytes(n)) for n in pieces]
        self.regions = [self.region(each, access) if each else None for each in self.data]
        self.sges = [
            (primitives.address_of(each), len(each), region.key if region else 0xBAD)
            for each, region in zip(self.data, self.regions, strict=True)
        ]
        capacity = len(pieces) if capacity is None else capacity
        self.work, self.buffers = ReceiveWork(capacity), BufferList(capacity)
        self.local = bytearray(TOTAL + 1)
        self.address = primitives.address_of(self.local)

    def region(self, data, access):
        first, offset = self.host.attach_buffer(data)
        return self.table.register(
            self.host.address_map, PD, primitives.address_of(data), len(data), access,
            [(first, -(-(offset + len(data)) // 4096))], offset,
        )  # fmt: skip

    def resolve(self, sges=None):
        entry = memoryview(bytearray(16 + 16 * len(self.sges)))
        assert self.work.load(entry, encode_receive(entry, 1, self.sges if sges is None else sges)) == 0
        entry[:] = bytes(len(entry))
        return self.buffers.resolve(self.work, self.table, PD, LOCAL_WRITE)

    @property
    def message(self):
        return b"".join(self.data)


@pytest.fixture
def world():
    made = []

    def make(*arguments, **settings):
        made.append(World(*arguments, **settings))
        return made[-1]

    yield make
    for each in made:
        each.host.close()


def test_any_piece_is_gathered_whatever_came_before_it(world):
    w, draw = world(), random.Random(5)
    assert w.resolve()
    assert w.buffers.total_bytes == TOTAL
    edges = [0, 7, 5007, 5008, 9104, TOTAL]
    ranges = [tuple(sorted(pair)) for pair in zip(edges, reversed(edges), strict=True)]
    for _ in range(300):
        ranges.append(tuple(sorted(draw.choice((*edges, draw.randrange(TOTAL + 1))) for _ in range(2))))
    for begin, end in ranges:
        w.local[:] = bytes(len(w.local))
        assert w.buffers.gather(begin, end - begin, w.address) == 0
        assert w.local == w.message[begin:end].ljust(len(w.local), b"\0")


def test_any_piece_is_scattered_whatever_came_before_it(world):
    w, draw = world(), random.Random(6)
    expected = bytearray(w.message)
    assert w.resolve()
    for number in range(300):
        begin, end = sorted(draw.randrange(TOTAL + 1) for _ in range(2))
        w.local[:] = bytes([number & 0xFF]) * len(w.local)
        expected[begin:end] = w.local[: end - begin]
        assert w.buffers.scatter(begin, end - begin, w.address) == 0
        assert w.message == expected


@pytest.mark.parametrize("pieces", [PIECES, (TOTAL,)])
def test_nothing_is_moved_beyond_the_message(world, pieces):
    w = world(pieces)
    assert w.resolve()
    for offset, n in ((0, TOTAL + 1), (TOTAL, 1), (1, TOTAL), (1 << 63, 1), ((1 << 64) - 1, 2)):
        assert w.buffers.gather(offset, n, w.address) == -errno.EFAULT
        assert w.buffers.scatter(offset, n, w.address) == -errno.EFAULT
    assert not any(w.local)
    assert w.buffers.gather(TOTAL, 0, w.address) == 0


def test_one_element_needs_room_for_no_more(world):
    w = world((100,), capacity=1)
    assert w.resolve()
    for begin, end in ((0, 100), (40, 60), (0, 10), (99, 100)):
        assert w.buffers.gather(begin, end - begin, w.address) == 0
        assert w.local[: end - begin] == w.message[begin:end]
    w.data[0][:] = bytes(100)
    assert w.resolve()
    assert w.buffers.gather(0, 100, w.address) == 0
    assert w.local[:100] == bytes(100)


@pytest.mark.parametrize("gone", [0, 2, 6, 7])
@pytest.mark.parametrize("again", [False, True])
def test_what_was_resolved_ends_with_its_region_and_nothing_else_does(world, gone, again):
    """Also where the same key grants the same again."""
    w = world()
    assert w.resolve()
    assert w.buffers.gather(0, TOTAL, w.address) == 0
    if again:
        w.table.reregister(w.regions[gone], access=0)
        w.table.reregister(w.regions[gone], access=LOCAL_WRITE)
    else:
        w.table.deregister(w.regions[gone])
    start = 0
    for i, n in enumerate(PIECES):
        if n:
            assert w.buffers.gather(start, n, w.address) == (-errno.EACCES if i == gone else 0)
            assert w.buffers.scatter(start + n - 1, 1, w.address) == (-errno.EACCES if i == gone else 0)
        start += n
    assert w.resolve() is again


@pytest.mark.parametrize("again", [False, True])
def test_the_only_element_ends_with_its_region(world, again):
    w = world((100,))
    assert w.resolve()
    if again:
        w.table.reregister(w.regions[0], access=0)
        w.table.reregister(w.regions[0], access=LOCAL_WRITE)
    else:
        w.table.deregister(w.regions[0])
    assert w.buffers.gather(0, 1, w.address) == w.buffers.scatter(0, 1, w.address) == -errno.EACCES
    assert w.resolve() is again


@pytest.mark.parametrize("bad", [0, 2, 7])
def test_of_a_list_with_one_wrong_key_nothing_is_moved(world, bad):
    w = world()
    assert w.resolve()
    va, length, key = w.sges[bad]
    for element in ((va, length, key ^ 1), (va, length + 1, key), (va - 1, length, key)):
        assert not w.resolve([*w.sges[:bad], element, *w.sges[bad + 1 :]])
        assert w.buffers.total_bytes == 0
        assert w.buffers.gather(0, 1, w.address) == -errno.EFAULT
    assert w.resolve()
    assert w.buffers.gather(0, TOTAL, w.address) == 0


def test_a_right_that_a_region_does_not_give_is_not_there(world):
    assert not world((8,), access=0).resolve()


def test_a_shorter_list_leaves_nothing_of_a_longer_one(world):
    w = world()
    assert w.resolve()
    assert w.buffers.gather(TOTAL - 1, 1, w.address) == 0
    assert w.resolve(w.sges[:1])
    assert w.buffers.total_bytes == 7
    assert w.buffers.gather(0, 7, w.address) == 0
    assert w.local[:7] == w.data[0]
    assert w.buffers.gather(0, 8, w.address) == -errno.EFAULT
    assert w.resolve([])
    assert w.buffers.total_bytes == 0
    assert w.buffers.gather(0, 0, w.address) == 0


@pytest.mark.skipif(primitives.BODY != "compiled", reason="interpreted objects are large whatever they hold")
def test_a_request_under_way_takes_few_lines_of_a_cache():
    """Many are, and what each costs is the lines that it takes: so no views and no second copies."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        requests = [Request(1, 0) for _ in range(64)]
        taken = (tracemalloc.get_traced_memory()[0] - before) / len(requests)
        assert taken < 512
    finally:
        tracemalloc.stop()
