"""The doorbell FIFO."""

import errno
from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from softhca.machine import primitives
from softhca.memory.arenas import AddressMap
from softhca.memory.host import HostMemory
from softhca.queues.doorbells import DoorbellFifo, plan
from softhca.queues.layout import DOORBELLS_TAIL_AT
from suite_plan import random_inputs

HOST = HostMemory(64 << 20)


def fails(code):
    return pytest.raises(OSError, match=rf"\[Errno {code}\]")


def sides(slots):
    """The host's and the adapter's object over the same pages, not contiguous."""
    frames = HOST.allocate(2 * plan(slots), contiguous=True)[::-2]
    host, adapter = (DoorbellFifo.over(frames, HOST.address_map, slots) for _ in range(2))
    return host, adapter, frames


def word(frames, page, index=0):
    return HOST.address_map.address(frames[page]) + 8 * index


def test_queues_come_out_in_the_order_in_which_they_rang():
    host, adapter, _ = sides(1000)
    assert adapter.empty()
    assert [host.ring(slot) for slot in (999, 0, 513, 512, 511)] == [True] * 5
    assert not adapter.empty()
    assert [adapter.next() for _ in range(6)] == [999, 0, 513, 512, 511, -1]
    assert adapter.empty()


def test_a_pending_queue_rings_once_and_again_after_it_was_taken():
    host, adapter, _ = sides(4)
    assert host.ring(2)
    assert not host.ring(2)
    assert [adapter.next(), adapter.next()] == [2, -1]
    assert host.ring(2)
    assert adapter.next() == 2


def test_a_queue_that_does_not_exist_cannot_ring():
    host, adapter, _ = sides(4)
    assert not host.ring(4)
    assert not host.ring(1 << 63)
    assert adapter.next() == -1


def test_all_queues_at_once_fit_and_the_fifo_never_overflows():
    host, adapter, _ = sides(600)
    for _ in range(3):
        assert all(host.ring(slot) for slot in range(600))
        assert not any(host.ring(slot) for slot in range(600))
        assert [adapter.next() for _ in range(601)] == [*range(600), -1]
    assert adapter.malformed == 0


def test_who_comes_later_goes_on_where_the_adapter_stands_also_behind_a_jump():
    """It reads the head word, which nobody else does."""
    host, adapter, frames = sides(4)
    for slot in (1, 3, 2):
        host.ring(slot)
    assert adapter.next() == 1
    assert DoorbellFifo.over(frames, HOST.address_map, 4).next() == 3
    adapter.next()
    primitives.store64(word(frames, 0), 1000)
    assert (adapter.next(), adapter.malformed) == (-1, 1)
    later = DoorbellFifo.over(frames, HOST.address_map, 4)
    assert later.empty()
    assert (later.next(), later.malformed) == (-1, 0)


class FifoAgainstADeque(RuleBasedStateMachine):
    slots = 5

    def __init__(self):
        super().__init__()
        self.host, self.adapter, self.frames = sides(self.slots)
        self.model = deque()

    @rule(slot=st.integers(0, 4))
    def ring(self, slot):
        assert self.host.ring(slot) == (slot not in self.model)
        if slot not in self.model:
            self.model.append(slot)

    @rule()
    def next(self):
        assert self.adapter.next() == (self.model.popleft() if self.model else -1)

    @invariant()
    def emptiness_agrees(self):
        assert self.adapter.empty() == (not self.model)
        assert self.adapter.malformed == 0


FifoAgainstADeque.TestCase.settings = settings(max_examples=random_inputs(40), stateful_step_count=50)
TestFifo = FifoAgainstADeque.TestCase


def test_a_place_that_is_reserved_but_not_yet_written_is_waited_for():
    host, adapter, frames = sides(4)
    host.ring(1)
    place = word(frames, 2)
    primitives.store64(place, 0)
    assert adapter.next() == -1
    assert not adapter.empty()
    primitives.store64(place, 2)
    assert adapter.next() == 1


def test_a_place_is_empty_when_its_entry_was_taken():
    host, adapter, frames = sides(4)
    for slot in range(4):
        host.ring(slot)
    assert [adapter.next() for _ in range(4)] == [0, 1, 2, 3]
    primitives.atomic_add64(word(frames, 0) + DOORBELLS_TAIL_AT, 1)  # reserved for the second time round
    assert adapter.next() == -1
    assert not adapter.empty()


def test_a_queue_number_that_cannot_be_is_skipped_and_counted():
    host, adapter, frames = sides(4)
    host.ring(1)
    host.ring(3)
    primitives.store64(word(frames, 2), 5)
    assert adapter.next() == -1
    assert adapter.malformed == 1
    assert adapter.next() == 3
    assert adapter.empty()


@pytest.mark.parametrize("tail", [5, 1 << 40, (1 << 64) - 1])
def test_a_tail_that_jumps_is_counted_and_the_fifo_goes_on(tail):
    host, adapter, frames = sides(4)
    primitives.store64(word(frames, 0), tail)
    assert adapter.next() == -1
    assert adapter.malformed == 1
    assert adapter.empty()
    assert host.ring(2)
    assert adapter.next() == 2


def test_the_head_is_published_for_a_new_object():
    host, adapter, frames = sides(4)
    host.ring(1)
    host.ring(2)
    adapter.next()
    again = DoorbellFifo.over(frames, HOST.address_map, 4)
    assert (again.next(), again.next()) == (2, -1)


@pytest.mark.parametrize("wrong", [0, 1, 8])
@pytest.mark.parametrize("which", [1, 2])
def test_pages_that_are_not_mapped_or_not_aligned_are_refused(which, wrong):
    pages = [HOST.address_map.address(frame) for frame in HOST.allocate(3)]
    pages[which] = pages[which] + wrong if wrong else 0
    with fails(errno.EFAULT):
        DoorbellFifo(4, pages)


def test_pages_of_another_process_are_refused_though_they_are_mapped_here():
    elsewhere = AddressMap()
    elsewhere.attach(0, 3, HOST.address_map.address(HOST.allocate(3, contiguous=True)[0]), pid=1)
    with fails(errno.EFAULT):
        DoorbellFifo.over([0, 1, 2], elsewhere, 4)


def test_layouts_that_cannot_be_are_refused():
    assert (plan(1), plan(512), plan(513)) == (3, 3, 5)
    assert plan(1 << 22) == 1 + 2 * (1 << 13)
    with fails(errno.EINVAL):
        DoorbellFifo(4, [HOST.address_map.address(frame) for frame in HOST.allocate(4)])
    for slots in (0, -1, (1 << 22) + 1):
        with fails(errno.EINVAL):
            plan(slots)
    with fails(errno.EINVAL):
        DoorbellFifo(4, [4096, 8192])
    for pages in ((0, 4096, 8192), (4096, 8200, 8192)):
        with fails(errno.EFAULT):
            DoorbellFifo(4, list(pages))
    elsewhere = AddressMap()
    elsewhere.attach(0, 10, 4096, pid=1)
    with fails(errno.EFAULT):
        DoorbellFifo.over([0, 1, 2], elsewhere, 4)
