"""Rings against a deque as their model, and against another side that writes what it likes."""

import errno
import random
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from softhca.machine import primitives
from softhca.memory.arenas import AddressMap
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.host import HostMemory
from softhca.queues.layout import (
    REFERENCE_BODY_BYTES_SHIFT,
    RING_HEAD_AT,
    RING_TAIL_AT,
)
from softhca.queues.ring import RingConsumer, RingLayout, RingProducer, plan
from suite_plan import random_inputs

HOST = HostMemory(64 << 20)
M64 = (1 << 64) - 1


def address(buffer):
    return primitives.address_of(buffer, writable=False)


def fails(code):
    return pytest.raises(OSError, match=rf"\[Errno {code}\]")


class Pair:
    """A ring over fresh frames, scattered (True), contiguous (False) or contiguous backwards (None), with
    both sides, and guard pages around."""

    def __init__(self, entries, body_bytes, scattered=True):
        pages = plan(entries, body_bytes)
        if scattered is True:
            self.all_frames = HOST.allocate(2 * pages + 1, contiguous=True)
            self.frames = self.all_frames[1::2][::-1]
        else:
            self.all_frames = HOST.allocate(pages + 2, contiguous=True)
            self.frames = self.all_frames[1:-1] if scattered is False else self.all_frames[-2:0:-1]
        self.layout = RingLayout.over(self.frames, HOST.address_map, entries, body_bytes)
        self.producer = RingProducer(self.layout)
        self.consumer = RingConsumer(self.layout)
        self.out = bytearray(1 << 16)

    def push(self, body):
        return self.producer.push(address(body), len(body))

    def take(self, capacity=1 << 16):
        n = self.consumer.take(address(self.out), capacity)
        return n if n <= 0 else bytes(self.out[:n])

    def guards_are_untouched(self):
        mine = set(self.frames)
        return all(bytes(HOST.view(frame, 1)) == bytes(PAGE_BYTES)
                   for frame in self.all_frames if frame not in mine)

    def close(self):
        HOST.free(self.all_frames)


@pytest.fixture
def pair():
    made = []

    def make(*arguments, **named):
        made.append(Pair(*arguments, **named))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_plan_counts_control_references_and_bodies():
    assert plan(1, 1) == 3
    assert plan(512, 4096) == 3
    assert plan(513, 4097) == 5
    assert plan(1 << 24, 1 << 31) == 1 + (1 << 15) + (1 << 19)
    for entries, body_bytes in ((0, 1), (1, 0), (-1, 1), (1, -1), ((1 << 24) + 1, 1), (1, (1 << 31) + 1)):
        with fails(errno.EINVAL):
            plan(entries, body_bytes)


def test_a_layout_wants_exactly_its_pages_mapped_aligned_and_here():
    frames = HOST.allocate(3)
    good = [HOST.address_map.address(frame) for frame in frames]
    RingLayout(4, 100, good[1:2], good[2:], good[0])
    for references, bodies in (([], good[1:]), (good[1:], []), (good[1:2], good[1:]), (good[1:2], [])):
        with fails(errno.EINVAL):
            RingLayout(4, 100, references, bodies, good[0])
    for control, reference, body in ((0, good[1], good[2]), (good[0] + 8, good[1], good[2]),
                                     (good[0], 0, good[2]), (good[0], good[1] + 64, good[2]),
                                     (good[0], good[1], 0)):
        with fails(errno.EFAULT):
            RingLayout(4, 100, [reference], [body], control)
    with fails(errno.EINVAL):
        RingLayout.over(frames[:2], HOST.address_map, 4, 100)
    with fails(errno.EFAULT):
        RingLayout.over([frames[0], frames[1], 0xFFFFFFFF], HOST.address_map, 4, 100)
    elsewhere = AddressMap()
    elsewhere.attach(0, 100, good[0] & ~0xFFF, pid=1)
    with fails(errno.EFAULT):
        RingLayout.over([1, 2, 3], elsewhere, 4, 100)
    HOST.free(frames)


def test_what_is_pushed_is_taken_in_order_and_then_the_ring_is_empty(pair):
    ring = pair(4, 1000)
    assert ring.take() == 0
    for body in (b"first", b"second one", b"3"):
        assert ring.push(body)
    assert ring.consumer.count() == 3
    assert [ring.take(), ring.take(), ring.take(), ring.take()] == [b"first", b"second one", b"3", 0]


def test_pages_that_go_upwards_with_gaps_are_no_single_piece():
    frames = HOST.allocate(2 * plan(4, 3 * PAGE_BYTES), contiguous=True)[::2]
    layout = RingLayout.over(frames, HOST.address_map, 4, 3 * PAGE_BYTES)
    body = bytes(range(256)) * 40
    producer, consumer = RingProducer(layout), RingConsumer(layout)
    assert producer.push(address(body), len(body))
    out = bytearray(len(body))
    assert consumer.take(address(out), len(out)) == len(body)
    assert out == body
    assert bytes(HOST.view(frames[-1], 1))[: len(body) - 2 * PAGE_BYTES] == body[2 * PAGE_BYTES :]


def test_a_body_stands_in_one_piece_up_to_the_end_of_the_store(pair):
    made = pair(4, 100, scattered=False)
    assert made.layout.place_of(60, 40) == HOST.address_map.address(made.frames[-1]) + 60
    assert made.layout.place_of(60, 41) == 0
    assert pair(4, 2 * PAGE_BYTES).layout.place_of(0, 1) == 0


def test_a_head_that_is_one_ahead_of_the_tail_breaks_the_producer_for_good(pair):
    made = pair(4, 100)
    assert made.push(b"one")
    head = made.layout.control + RING_HEAD_AT
    primitives.store64(head, 2)
    assert made.producer.count() == 1
    assert made.producer.broken
    primitives.store64(head, 1)  # as it ought to be; nobody looks any more
    assert made.producer.count() == 1
    assert not made.push(b"two")


def test_an_entry_is_not_longer_than_the_store_whatever_the_taker_has_room_for(pair):
    made = pair(4, 100)
    made.push(b"one")
    primitives.store64(made.layout.reference(0), 101 << REFERENCE_BODY_BYTES_SHIFT)
    assert made.take() == -1
    assert made.consumer.broken


def test_a_ring_is_idle_where_nothing_stands_in_it_and_nothing_is_wrong(pair):
    made = pair(4, 100)
    assert made.consumer.idle()
    made.push(b"one")
    made.push(b"two")
    assert not made.consumer.idle()
    assert made.take() == b"one"
    assert not made.consumer.idle()  # by what it has seen
    assert made.take() == b"two"
    assert made.consumer.idle()
    primitives.store64(made.layout.control + RING_TAIL_AT, 100)
    assert made.consumer.count() == -1
    primitives.store64(made.layout.control + RING_TAIL_AT, 2)
    assert not made.consumer.idle()


def test_exactly_full_by_references(pair):
    ring = pair(3, 1000)
    assert [ring.push(b"x") for _ in range(4)] == [True, True, True, False]
    assert (ring.producer.count(), ring.producer.space()) == (3, 0)
    ring.take()
    assert not ring.push(b"y")
    assert ring.consumer.release(1)
    assert ring.producer.space() == 1
    assert ring.push(b"y")
    assert not ring.push(b"z")


def test_exactly_full_by_body_bytes(pair):
    ring = pair(10, 100)
    assert ring.push(b"a" * 60)
    assert not ring.push(b"b" * 41)
    assert ring.push(b"b" * 40)
    assert not ring.push(b"c")
    ring.take()
    ring.consumer.release(1)
    assert not ring.push(b"c" * 61)
    assert ring.push(b"c" * 60)
    assert ring.take() == b"b" * 40
    assert ring.take() == b"c" * 60


def test_nothing_and_more_than_the_store_cannot_be_pushed(pair):
    ring = pair(4, 100)
    assert not ring.push(b"")
    assert not ring.push(b"x" * 101)
    assert ring.push(b"x" * 100)
    assert ring.take() == b"x" * 100


def test_take_alone_gives_no_room_back_and_release_only_what_was_taken(pair):
    ring = pair(4, 1000)
    ring.push(b"a")
    ring.push(b"b")
    assert not ring.consumer.release(1)
    ring.take()
    assert not ring.consumer.release(2)
    assert primitives.load64(ring.layout.control + 64) == 0
    assert ring.consumer.release(1)
    assert primitives.load64(ring.layout.control + 64) == 1
    assert ring.consumer.release(0)


def test_position_is_page_table_index_and_index_within_the_page(pair):
    ring = pair(1100, 1100)
    seen = {}
    for number in range(1101):
        seen[number] = (ring.producer.position, ring.consumer.position)
        assert ring.push(b"x")
        assert ring.take() == b"x"
        ring.consumer.release(1)
    for number, place in ((0, (0, 0)), (511, (0, 511)), (512, (1, 0)), (1099, (2, 75)), (1100, (0, 0))):
        assert seen[number] == (place, place)


@pytest.mark.parametrize("scattered", [True, False, None])
def test_references_and_bodies_wrap_across_pages(pair, scattered):
    ring = pair(700, 3 * PAGE_BYTES + 123, scattered=scattered)
    generator = random.Random(5)
    model = deque()
    pushed = 0
    while pushed < 3000:
        body = generator.randbytes(generator.choice((1, 7, 64, 700, 5000)))
        if ring.push(body):
            model.append(body)
            pushed += 1
            continue
        for _ in range(generator.randrange(1, 4)):
            if model:
                assert ring.take() == model.popleft()
                ring.consumer.release(1)
    assert ring.guards_are_untouched()


def test_a_body_longer_than_pages_lies_across_all_of_them(pair):
    ring = pair(2, 5 * PAGE_BYTES)
    body = random.Random(1).randbytes(5 * PAGE_BYTES)
    for _ in range(3):
        assert ring.push(body[:1000])
        ring.take()
        ring.consumer.release(1)
        assert ring.push(body)
        assert ring.take() == body
        ring.consumer.release(1)
    assert ring.guards_are_untouched()


def test_counters_wrap_at_64_bits(pair):
    ring = pair(4, 400)
    start = M64 - 2
    for side, names in ((ring.producer, ("tail", "head")), (ring.consumer, ("seen", "taken", "released"))):
        for name in names:
            setattr(side, name, start)
    primitives.store64(ring.layout.control, start)
    primitives.store64(ring.layout.control + 64, start)
    for number in range(10):
        assert ring.push(b"%d" % number)
        assert ring.push(b"+")
        assert ring.consumer.count() == 2
        assert ring.take() == b"%d" % number
        assert ring.take() == b"+"
        assert ring.consumer.release(2)
    assert ring.producer.count() == 0
    assert ring.producer.tail == (start + 20) & M64


def test_unreleased_lists_offsets_and_lengths(pair):
    ring = pair(4, 100)
    for n in (40, 30, 20):
        ring.push(b"x" * n)
    ring.take()
    ring.consumer.release(1)
    ring.push(b"x" * 35)
    assert ring.producer.unreleased() == [(40, 30), (70, 20), (90, 35)]


def test_reset_begins_anew(pair):
    ring = pair(4, 100)
    for _ in range(3):
        ring.push(b"abc")
    ring.take()
    primitives.store64(ring.layout.control + 64, 99)
    ring.producer.refresh()
    assert ring.producer.broken
    ring.layout.clear()
    ring.producer.reset()
    ring.consumer.reset()
    assert (ring.producer.broken, ring.producer.count(), ring.consumer.count()) == (False, 0, 0)
    assert ring.push(b"x" * 100)
    assert ring.take() == b"x" * 100


class RingAgainstADeque(RuleBasedStateMachine):
    entries, body_bytes = 5, 2 * PAGE_BYTES + 1
    scattered = True

    def __init__(self):
        super().__init__()
        self.ring = Pair(self.entries, self.body_bytes, self.scattered)
        self.generator = random.Random(2)
        self.queued = deque()
        self.held = deque()

    @rule(n=st.one_of(st.integers(0, 50), st.integers(1, 2 * PAGE_BYTES + 2)))
    def push(self, n):
        body = self.generator.randbytes(n)
        used = sum(map(len, self.queued)) + sum(map(len, self.held))
        room = 0 < n <= self.body_bytes - used and len(self.queued) + len(self.held) < self.entries
        assert self.ring.push(body) == room
        if room:
            self.queued.append(body)

    @rule(n=st.integers(1, 3000), rest=st.integers(0, 3000))
    def push_in_place(self, n, rest):
        place = self.ring.producer.place(n + rest)
        if self.scattered:
            assert place == 0
        if not place:
            return
        body = self.generator.randbytes(n + rest)
        primitives.copy(place, address(body), n + rest)  # more than is pushed: none of it is anybody's
        assert self.ring.producer.push(place, n) == (len(self.queued) + len(self.held) < self.entries)
        if len(self.queued) + len(self.held) < self.entries:
            self.queued.append(body[:n])

    @rule()
    def take(self):
        if self.queued:
            body = self.queued.popleft()
            assert self.ring.take() == body
            self.held.append(body)
        else:
            assert self.ring.take() == 0

    @rule(count=st.integers(0, 6))
    def release(self, count):
        possible = count <= len(self.held)
        assert self.ring.consumer.release(count) == possible
        if possible:
            for _ in range(count):
                self.held.popleft()

    @invariant()
    def both_sides_count_the_same(self):
        assert self.ring.consumer.count() == len(self.queued)
        assert self.ring.producer.count() == len(self.queued) + len(self.held)

    def teardown(self):
        assert self.ring.guards_are_untouched()
        self.ring.close()


RingAgainstADeque.TestCase.settings = settings(max_examples=random_inputs(40), stateful_step_count=40)
TestRing = RingAgainstADeque.TestCase


class ContiguousRingAgainstADeque(RingAgainstADeque):
    scattered = False


ContiguousRingAgainstADeque.TestCase.settings = RingAgainstADeque.TestCase.settings
TestContiguousRing = ContiguousRingAgainstADeque.TestCase


def test_a_place_is_what_is_free_in_one_piece_by_the_producers_own_view(pair):
    ring = pair(4, 100, False)
    begin = ring.producer.place(100)
    assert (begin != 0, ring.producer.place(101)) == (True, 0)
    ring.push(b"a" * 64)
    assert [ring.producer.place(n) for n in (36, 37)] == [begin + 64, 0]
    ring.push(b"b" * 8)
    ring.take()
    ring.consumer.release(1)
    assert [ring.producer.place(n) for n in (28, 29)] == [begin + 72, 0]
    ring.producer.refresh()
    assert [ring.producer.place(n) for n in (28, 29)] == [begin + 72, 0]  # the rest stands at the begin
    assert ring.push(b"c" * 28)
    assert [ring.producer.place(n) for n in (64, 65)] == [begin, 0]


def test_a_place_is_a_multiple_of_8(pair):
    ring = pair(20, 1000, False)
    begin = ring.producer.place(1)
    for end in range(1, 17):
        ring.push(b"x")
        assert ring.producer.place(8) == (0 if end % 8 else begin + end)


def test_what_is_made_in_its_place_is_published_as_it_stands(pair):
    ring = pair(4, 100, False)
    for body in (b"first 8.", b"the second one"):
        primitives.copy(ring.producer.place(50), address(body), len(body))
        assert ring.producer.push(ring.producer.place(50), len(body))
    assert (ring.take(), ring.take(), ring.take()) == (b"first 8.", b"the second one", 0)


def test_a_broken_ring_has_no_place(pair):
    ring = pair(4, 100, False)
    ring.push(b"a")
    primitives.store64(ring.layout.control + RING_HEAD_AT, 3)
    ring.producer.refresh()
    assert (ring.producer.broken, ring.producer.place(1)) == (True, 0)


@pytest.mark.parametrize("tail", [1, 5, 7, 1 << 32, M64, 1 << 63])
def test_a_tail_that_jumps_breaks_the_consumer(pair, tail):
    ring = pair(4, 400)
    ring.push(b"a")
    ring.push(b"b")
    assert ring.take() == b"a"
    ring.consumer.count()
    primitives.store64(ring.layout.control, tail)
    assert ring.consumer.count() == -1
    assert ring.consumer.broken
    assert ring.take() == -1
    primitives.store64(ring.layout.control, 2)
    assert (ring.take(), ring.consumer.count()) == (-1, -1)


def test_a_tail_may_be_a_whole_ring_ahead_but_no_more(pair):
    ring = pair(4, 400)
    primitives.store64(ring.layout.control, 4)
    assert ring.consumer.count() == 4
    primitives.store64(ring.layout.control, 5)
    assert ring.consumer.count() == -1


def test_taken_entries_count_against_the_ring_until_they_are_released(pair):
    ring = pair(4, 400)
    for _ in range(4):
        ring.push(b"x")
    ring.take()
    primitives.store64(ring.layout.control, 5)
    assert ring.consumer.count() == -1


@pytest.mark.parametrize(("offset", "length"), [
    (0, 0), (0, 401), (400, 1), (0xFFFFFFFF, 1), (0, 0xFFFFFFFF), (0, 65), (399, 0),
])
def test_a_reference_that_cannot_be_breaks_the_consumer_untouched(pair, offset, length):
    ring = pair(4, 400)
    ring.push(b"fine")
    ring.push(b"next")
    assert ring.take() == b"fine"
    ring.out[:] = b"\xee" * len(ring.out)
    primitives.store64(ring.layout.reference(1), offset | length << 32)
    assert ring.take(capacity=64) == -1
    assert ring.out == b"\xee" * len(ring.out)
    assert ring.consumer.broken
    assert ring.consumer.release(1)


def test_a_body_that_fits_exactly_is_taken(pair):
    ring = pair(4, 400)
    ring.push(b"q" * 64)
    assert ring.take(capacity=64) == b"q" * 64
    ring.push(b"r" * 64)
    assert ring.take(capacity=63) == -1


def three_released_one_open(pair):
    """A ring of 2 after three entries that were released and one that was not."""
    ring = pair(2, 400)
    for _ in range(3):
        ring.push(b"x")
        ring.take()
        ring.consumer.release(1)
    ring.producer.refresh()
    ring.push(b"y")
    return ring


@pytest.mark.parametrize("head", [0, 2, 5, 1 << 40, M64])
def test_a_head_that_jumps_breaks_the_producer(pair, head):
    ring = three_released_one_open(pair)
    primitives.store64(ring.layout.control + 64, head)
    ring.producer.refresh()
    assert ring.producer.broken
    assert not ring.push(b"z")
    assert ring.producer.count() == 1


@pytest.mark.parametrize(("head", "left"), [(3, 1), (4, 0)])
def test_a_head_up_to_the_tail_is_believed(pair, head, left):
    ring = three_released_one_open(pair)
    primitives.store64(ring.layout.control + 64, head)
    assert ring.producer.count() == left
    assert not ring.producer.broken


def test_the_producer_frees_by_its_own_record_not_by_the_ring(pair):
    ring = pair(4, 100)
    ring.push(b"a" * 90)
    primitives.store64(ring.layout.reference(0), 0 | 1 << 32)
    ring.take()
    ring.consumer.release(1)
    assert ring.push(b"b" * 100)


@given(st.binary(min_size=256, max_size=256), st.integers(0, M64), st.integers(0, 200), st.integers(0, M64))
@settings(max_examples=random_inputs(150), deadline=None)
def test_garbage_everywhere_stays_inside_the_ring(references, tail, near, head):
    ring = Pair(32, 5000)
    HOST.view(ring.frames[1], 1)[:len(references)] = references
    primitives.store64(ring.layout.control, tail if near > 40 else near)
    results = [ring.take(2048) for _ in range(40)]
    assert all(result in (0, -1) or 0 < len(result) <= 2048 for result in results)
    primitives.store64(ring.layout.control + 64, head)
    pushed = sum(ring.push(b"g" * 700) for _ in range(40))
    # Seven fit, and a head that can be believed gives at most those back.
    assert pushed <= 14
    assert ring.guards_are_untouched()
    ring.close()
