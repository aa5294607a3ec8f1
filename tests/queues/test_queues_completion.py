"""Completion queues: entries, events, overflow, resize."""

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.machine import primitives
from softhca.memory.host import HostMemory
from softhca.queues import cqe
from softhca.queues.completion import (
    ARM_NEXT,
    ARM_NONE,
    ARM_SOLICITED,
    CompletionQueue,
    CompletionReader,
    pages_for,
)
from softhca.queues.cqe import CQE, CQE_BYTES, FIELDS, CompletionEntry
from softhca.queues.ring import RingLayout, plan
from suite_plan import random_inputs

HOST = HostMemory(64 << 20)


def fails(code):
    return pytest.raises(OSError, match=rf"\[Errno {code}\]")


def layout_of(entries):
    frames = HOST.allocate(2 * pages_for(entries), contiguous=True)[::2]
    return RingLayout.over(frames, HOST.address_map, entries, entries * CQE_BYTES)


class Queue:
    """Both halves, and the hook that notes what it is told."""

    def __init__(self, entries):
        self.layout = layout_of(entries)
        self.told = []
        self.queue = CompletionQueue(9, self.layout, self)
        self.reader = CompletionReader(self.layout)

    def completion_event(self, queue):
        assert queue is self.queue
        assert queue.number == 9
        self.told.append("event")

    def overflow(self, queue):
        assert queue is self.queue
        self.told.append("overflow")

    def post(self, wr_id, status=0, solicited=False):
        return self.queue.post(wr_id, status, cqe.WC_SEND, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 1000, solicited)

    def poll(self, limit=100):
        return [entry[0] for entry in self.reader.poll(limit)]


FULL = {"wr_id": 64, "status": 8, "opcode": 8, "wc_flags": 16, "qp_num": 32, "byte_len": 32, "imm_or_key": 32,
        "src_qp": 32, "vendor_err": 32, "pkey_index": 16, "sl": 8, "slid": 16, "path_bits": 8, "now": 64}


@given(st.tuples(*(st.integers(0, (1 << bits) - 1) for bits in FULL.values())))
@settings(max_examples=random_inputs(100), deadline=None)
def test_every_field_arrives_in_its_own_place(values):
    pair = Queue(2)
    assert pair.queue.post(*values)
    (entry,) = pair.reader.poll(5)
    fields = dict(zip(FIELDS, entry, strict=True))
    expected = dict(zip(FULL, values, strict=True))
    expected["timestamp_ns"] = expected.pop("now")
    assert fields == expected


def test_an_entry_has_the_bytes_of_the_contract():
    entry = CompletionEntry()
    entry.fill(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
    place = bytearray(CQE_BYTES)
    primitives.copy(primitives.address_of(place), entry.address, CQE_BYTES)
    assert place == (b"\1" + bytes(7) + b"\2\3\4\0" + b"\5\0\0\0\6\0\0\0\7\0\0\0\x08\0\0\0\x09\0\0\0"
                     + b"\x0e" + bytes(7) + b"\x0a\0" + b"\x0b" + b"\x0d" + b"\x0c\0\0\0")
    assert CQE.size == CQE_BYTES == 48


def test_values_wider_than_their_fields_do_not_spill_over():
    entry = CompletionEntry()
    wide = (1 << 32) - 1
    entry.fill(0, wide, 0, wide, 0, 0, 0, 0, 0, wide, 0, wide, 0, 0)
    place = bytearray(CQE_BYTES)
    primitives.copy(primitives.address_of(place), entry.address, CQE_BYTES)
    fields = dict(zip(FIELDS, CQE.unpack(place), strict=True))
    expected = dict.fromkeys(FIELDS, 0)
    expected.update(status=255, wc_flags=65535, pkey_index=65535, slid=65535)
    assert fields == expected
    assert place[46:] == b"\0\0"


def test_completions_come_in_order_and_poll_makes_room():
    pair = Queue(3)
    for start in range(0, 30, 3):
        assert all(pair.post(start + i) for i in range(3))
        assert pair.reader.pending() == 3
        assert pair.poll(2) == [start, start + 1]
        assert pair.poll(2) == [start + 2]
        assert pair.poll() == []
    assert pair.queue.posted == 30


def test_poll_of_nothing_gives_nothing():
    pair = Queue(3)
    pair.post(1)
    assert pair.poll(0) == []
    assert pair.poll() == [1]


def test_a_full_queue_overflows_once_and_never_recovers_silently():
    pair = Queue(2)
    assert pair.post(1)
    assert pair.post(2)
    assert not pair.queue.overflowed
    assert not pair.post(3)
    assert pair.queue.overflowed
    assert pair.told == ["overflow"]
    assert pair.poll() == [1, 2]
    assert not pair.post(4)
    assert pair.told == ["overflow"]
    assert pair.poll() == []
    assert pair.queue.posted == 2


def test_a_broken_ring_is_an_overflow_too():
    pair = Queue(2)
    pair.post(1)
    pair.post(2)
    primitives.store64(pair.layout.control + 64, 77)
    assert not pair.post(3)
    assert pair.told == ["overflow"]


def test_one_request_gives_one_event():
    pair = Queue(10)
    pair.post(1)
    assert pair.told == []
    pair.reader.arm()
    assert pair.queue.armed == ARM_NEXT
    assert pair.told == []
    pair.post(2)
    pair.post(3)
    assert pair.told == ["event"]
    assert pair.queue.armed == ARM_NONE
    pair.reader.arm()
    pair.reader.arm()
    pair.post(4)
    pair.post(5)
    assert pair.told == ["event", "event"]


@pytest.mark.parametrize(("status", "solicited", "fires"), [
    (cqe.WC_SUCCESS, False, False), (cqe.WC_SUCCESS, True, True), (cqe.WC_WR_FLUSH_ERR, False, True),
    (cqe.WC_LOC_LEN_ERR, True, True),
])
def test_a_solicited_request_waits_for_a_solicited_or_a_failed_completion(status, solicited, fires):
    pair = Queue(10)
    pair.reader.arm(solicited=True)
    assert pair.queue.armed == ARM_SOLICITED
    pair.post(1, status, solicited)
    assert pair.told == (["event"] if fires else [])
    assert pair.queue.armed == (ARM_NONE if fires else ARM_SOLICITED)


def test_a_request_for_any_completion_stands_above_a_solicited_one():
    pair = Queue(10)
    pair.reader.arm()
    pair.reader.arm(solicited=True)
    assert pair.queue.armed == ARM_NEXT
    pair.post(1)
    assert pair.told == ["event"]
    pair.reader.arm(solicited=True)
    pair.reader.arm()
    assert pair.queue.armed == ARM_NEXT
    pair.post(2)
    assert pair.told == ["event", "event"]


def test_an_arm_word_that_means_nothing_fires_nothing():
    pair = Queue(10)
    primitives.store64(pair.layout.control + 128, 3)
    assert pair.queue.armed == ARM_NONE
    assert pair.post(1, cqe.WC_GENERAL_ERR, True)
    assert pair.told == []
    pair.reader.arm()
    pair.post(2)
    assert pair.told == ["event"]


def test_a_request_that_changes_while_it_fires_fires_once():
    pair = Queue(10)
    primitives.store64(pair.layout.control + 128, ARM_NEXT)
    pair.queue.fire(ARM_SOLICITED)
    assert pair.told == ["event"]
    assert pair.queue.armed == ARM_NONE
    pair.queue.fire(ARM_NEXT)
    assert pair.told == ["event"]


class Watched(RingLayout):
    """Calls ``meanwhile`` at each step in which an entry is being written."""

    meanwhile = staticmethod(lambda: None)

    def transfer(self, offset, address, n, inward):
        super().transfer(offset, address, n, inward)
        if inward:
            self.meanwhile()

    def reference(self, index):
        self.meanwhile()
        return super().reference(index)


@pytest.mark.parametrize("solicited", [False, True])
def test_a_request_made_while_an_entry_is_written_is_told_of_it(monkeypatch, solicited):
    """The host finds nothing, asks to be told and sleeps: whoever published the entry has to see that."""
    monkeypatch.setitem(globals(), "RingLayout", Watched)
    pair = Queue(4)
    found = []

    def sleeps():
        found.append(pair.reader.pending())
        pair.reader.arm(solicited)

    pair.layout.meanwhile = sleeps
    assert pair.post(1, solicited=True)
    pair.layout.meanwhile = lambda: None
    assert found == [0] * len(found) != []
    assert pair.told == ["event"]
    assert pair.poll() == [1]
    assert pair.post(2, solicited=True)
    assert pair.told == ["event"]


def test_an_overflow_gives_no_completion_event():
    pair = Queue(1)
    pair.post(1)
    pair.reader.arm()
    pair.post(2)
    assert pair.told == ["overflow"]


def test_a_malformed_entry_is_an_error_for_the_reader_after_the_good_ones():
    pair = Queue(4)
    pair.post(1)
    pair.post(2)
    primitives.store64(pair.layout.reference(1), CQE_BYTES | 47 << 32)
    assert pair.poll() == [1]
    primitives.store64(pair.layout.control, 50)
    with fails(errno.EIO):
        pair.poll()
    assert pair.reader.pending() == -1


@pytest.mark.parametrize("entries", [3, 4, 100])
def test_resize_takes_unread_completions_and_the_request_along(entries):
    pair = Queue(5)
    for wr_id in range(4):
        pair.post(wr_id)
    assert pair.poll(2) == [0, 1]
    pair.post(4)
    pair.reader.arm(solicited=True)
    layout = layout_of(entries)
    for offset in (0, 64, 128):
        primitives.store64(layout.control + offset, 1)  # the new ring's memory was used before
    pair.queue.move_to(layout)
    pair.reader.move_to(layout)
    assert (pair.queue.entries, pair.queue.armed) == (entries, ARM_SOLICITED)
    if entries > 3:
        assert pair.post(5, solicited=True)
        assert pair.told == ["event"]
        assert pair.poll() == [2, 3, 4, 5]
    else:
        assert pair.poll() == [2, 3, 4]
    assert pair.post(6)
    assert pair.poll() == [6]


def test_resize_after_the_bodies_wrapped():
    pair = Queue(5)
    for wr_id in range(12):
        pair.post(wr_id)
        if wr_id >= 3:
            assert pair.poll(1) == [wr_id - 3]
    layout = layout_of(8)
    pair.queue.move_to(layout)
    pair.reader.move_to(layout)
    assert pair.poll() == [9, 10, 11]


def test_a_resize_that_would_lose_completions_changes_nothing():
    pair = Queue(5)
    for wr_id in range(3):
        pair.post(wr_id)
    with fails(errno.EINVAL):
        pair.queue.move_to(layout_of(2))
    assert pair.queue.entries == 5
    assert pair.poll() == [0, 1, 2]


def test_a_broken_queue_cannot_be_resized():
    pair = Queue(5)
    primitives.store64(pair.layout.control + 64, 9)
    with fails(errno.EIO):
        pair.queue.move_to(layout_of(5))


def test_a_ring_with_too_few_body_bytes_is_refused():
    layout = RingLayout.over(HOST.allocate(plan(4, 191)), HOST.address_map, 4, 191)
    with fails(errno.EINVAL):
        CompletionQueue(1, layout, None)
    pair = Queue(4)
    with fails(errno.EINVAL):
        pair.queue.move_to(layout)
