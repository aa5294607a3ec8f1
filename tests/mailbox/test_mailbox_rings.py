"""The ends of a ring: order, laps, credits, messages of several slots, and writers that lie."""

import itertools
import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from mailbox_rings import Memory, Ring, block_of

from softhca.mailbox.blocks import (
    CREDIT,
    DATA,
    EMPTY,
    FORMAT,
    LENGTH,
    OVERRUN,
    REQUEST,
    SKIP,
    STALE,
    TAKEN,
    TORN,
)
from softhca.mailbox.hashes import Digest
from softhca.mailbox.rings import Inbox
from softhca.mailbox.terms import Terms
from suite_plan import random_inputs

FOUR = Terms(slots=4, slot_bytes=64)
WIDE = Terms(slots=6, slot_bytes=64, largest_bytes=200)


def test_messages_come_in_order_and_once():
    ring = Ring(FOUR)
    assert [ring.outbox.put(DATA, (bytes([n]),)) for n in range(4)] == [1, 2, 3, 4]
    ring.carry()
    assert [ring.take() for _ in range(5)] == [b"\0", b"\1", b"\2", b"\3", EMPTY + 1]


def test_without_credit_nothing_is_written():
    ring = Ring(FOUR)
    for n in range(4):
        ring.outbox.put(DATA, (bytes([n]),))
    ring.carry()
    assert ring.outbox.put(DATA, (b"x",)) == 0
    assert ring.carry() == []
    assert ring.take() == b"\0"
    assert ring.outbox.put(DATA, (b"x",)) == 0
    assert ring.credit()
    assert ring.outbox.put(DATA, (b"x",)) == 5
    assert ring.outbox.put(DATA, (b"y",)) == 0


def test_a_ring_runs_for_many_laps():
    ring = Ring(FOUR)
    for n in range(1, 100):
        assert ring.outbox.put(DATA, (str(n).encode(),)) == n
        assert ring.take() in (EMPTY, STALE)
        ring.carry()
        assert ring.take() == str(n).encode()
        assert ring.inbox.taken_sequence == n
        ring.credit()


def test_the_message_of_the_last_lap_is_not_taken_again():
    ring = Ring(FOUR)
    old = []
    for n in range(4):
        ring.outbox.put(DATA, (bytes([n]),))
        ring.carry()
        old.append(bytes(ring.slot(n)))
        ring.take()
    ring.credit()
    assert ring.take() == STALE
    ring.outbox.put(DATA, (b"new",))
    ring.carry()
    fresh = bytes(ring.slot(0))
    ring.slot(0)[:] = old[0]  # replayed
    assert ring.take() == STALE
    ring.slot(0)[:] = fresh
    assert ring.take() == b"new"
    assert ring.opener.verdicts[STALE] == 2


def test_a_writer_that_overruns_loses_its_own_message_only():
    ring = Ring(FOUR)
    block = block_of(FOUR, 5, DATA, b"too early")
    ring.slot(0)[: len(block)] = block
    assert ring.take() == OVERRUN
    ring.outbox.put(DATA, (b"first",))
    ring.carry()
    assert ring.take() == b"first"


def test_a_block_that_would_end_behind_the_ring_is_refused():
    """The writer has the key, and what lies behind the ring is not the ring's."""
    ring = Ring(WIDE)
    ring.target = Memory(WIDE.ring_bytes + WIDE.slot_bytes * 3)
    ring.inbox = Inbox(WIDE.slots, WIDE.slot_bytes, ring.opener, ring.target.address, ring.sealer)
    for n in range(WIDE.slots - 1):
        ring.outbox.put(DATA, (bytes([n]),))
    ring.carry()
    assert [ring.take() for _ in range(WIDE.slots - 1)] == [bytes([n]) for n in range(WIDE.slots - 1)]
    last = WIDE.slot_bytes * (WIDE.slots - 1)
    block = block_of(WIDE, WIDE.slots, DATA, bytes(100))
    assert WIDE.slot_bytes < len(block)
    ring.target.view[last : last + len(block)] = block
    behind = bytes(ring.target.view[WIDE.ring_bytes :])
    assert ring.take() == LENGTH
    assert bytes(ring.target.view[WIDE.ring_bytes :]) == behind
    block = block_of(WIDE, WIDE.slots, DATA, b"fits")
    ring.target.view[last : last + len(block)] = block
    assert ring.take() == b"fits"


@pytest.mark.parametrize(("at", "value", "verdict"), [(8, 200, LENGTH), (11, 255, LENGTH), (13, 9, FORMAT)])
def test_after_nonsense_the_ring_goes_on(at, value, verdict):
    ring = Ring(FOUR)
    ring.outbox.put(DATA, (b"one",))
    ring.outbox.put(DATA, (b"two",))
    ring.carry()
    whole = bytes(ring.slot(0))
    ring.slot(0)[at] = value
    assert [ring.take() for _ in range(3)] == [verdict] * 3
    ring.slot(0)[:] = whole
    assert [ring.take(), ring.take()] == [b"one", b"two"]


def test_a_batch_is_one_range():
    ring = Ring(Terms(slots=16, slot_bytes=128))
    messages = [bytes(64)] * 10
    assert ring.outbox.put_all(DATA, messages, 0) == 10
    assert ring.carry() == [(0, 9 * 128 + 96)]
    assert ring.outbox.put_all(DATA, messages, 0) == 6
    assert ring.carry() == [(1280, 5 * 128 + 96)]


def test_a_batch_over_the_end_of_the_ring_is_two_ranges():
    ring = Ring(Terms(slots=4, slot_bytes=128))
    ring.outbox.put_all(DATA, [b"a", b"b", b"c"], 0)
    ring.carry()
    for _ in range(3):
        ring.take()
    ring.credit()
    assert ring.outbox.put_all(DATA, [b"d", b"e", b"f"], 0) == 3
    assert [offset for offset, _ in ring.carry()] == [384, 0]
    assert [ring.take() for _ in range(3)] == [b"d", b"e", b"f"]


def test_neighbours_with_much_room_between_them_travel_apart():
    ring = Ring(Terms(slots=4, slot_bytes=4096))
    ring.outbox.put_all(DATA, [b"a", b"b"], 0)
    assert ring.carry() == [(0, 33), (4096, 33)]


def test_of_a_batch_with_a_message_too_long_none_is_put():
    ring = Ring(FOUR)
    with pytest.raises(ValueError, match="message 1"):
        ring.outbox.put_all(DATA, [b"a", bytes(200)], 0)
    assert ring.outbox.next_sequence == 1
    assert ring.carry() == []


def test_a_message_too_long_changes_nothing():
    ring = Ring(FOUR)
    with pytest.raises(ValueError, match="longer"):
        ring.outbox.put(DATA, (bytes(33),))
    assert ring.outbox.put(DATA, (bytes(32),)) == 1


def test_a_long_message_lies_in_several_slots():
    ring = Ring(WIDE)
    long = bytes(range(200))
    assert ring.outbox.put(DATA, (long,)) == 1
    assert ring.outbox.put(DATA, (b"short",)) == 5
    ring.carry()
    assert [ring.take(), ring.take()] == [long, b"short"]
    assert ring.inbox.taken_sequence == 5
    assert ring.inbox.owed() == 5


def test_a_long_message_that_does_not_fit_the_end_skips():
    ring = Ring(WIDE)
    for n in range(4):
        ring.outbox.put(DATA, (bytes([n]),))
    ring.carry()
    for _ in range(4):
        ring.take()
    ring.credit()
    long = bytes(range(200))
    assert ring.outbox.put(DATA, (long,)) == 7  # 5 and 6 are skipped
    assert [offset for offset, _ in ring.carry()] == [256, 0]
    assert ring.take() == long
    assert ring.inbox.owed() == 6


def test_a_skip_may_go_before_there_is_credit_for_the_message():
    ring = Ring(WIDE)
    long = bytes(200)
    for n in range(4):
        ring.outbox.put(DATA, (bytes([n]),))
    assert ring.outbox.put(DATA, (long,)) == 0
    ring.carry()
    assert [ring.take() for _ in range(4)] == [b"\0", b"\1", b"\2", b"\3"]
    assert ring.take() == EMPTY + 1
    ring.credit()
    assert ring.outbox.put(DATA, (long,)) == 7
    ring.carry()
    assert ring.take() == long


def test_bytes_inside_a_long_message_are_no_block():
    """A message that carries a block for the slot in which its own bytes lie."""
    ring = Ring(WIDE)
    trap = block_of(WIDE, 8, DATA, b"trap")  # the next lap's number of slot 1
    message = bytes(48) + trap
    ring.outbox.put(DATA, (message,))
    ring.carry()
    assert bytes(ring.slot(1)[: len(trap)]) == trap
    assert ring.take() == message
    for n in range(3, 7):
        ring.outbox.put(DATA, (bytes([n]),))
    ring.carry()
    for _ in range(4):
        ring.take()
    ring.credit()
    ring.outbox.put(DATA, (b"seventh",))
    ring.carry()
    assert ring.take() == b"seventh"
    assert ring.take() == EMPTY


@pytest.mark.parametrize("credit", [2, 5, 2**64 - 1])
def test_a_credit_beyond_what_was_written_is_refused(credit):
    ring = Ring(FOUR)
    ring.outbox.put(DATA, (b"a",))
    ring.cell.view[:] = block_of(Terms(slot_bytes=64), credit, CREDIT, b"")
    assert not ring.outbox.take_credit()
    assert (ring.outbox.refused, ring.outbox.free()) == (1, 3)


def test_torn_and_old_credits_change_nothing():
    ring = Ring(FOUR)
    for n in range(4):
        ring.outbox.put(DATA, (bytes([n]),))
    ring.carry()
    ring.take()
    ring.credit()
    first = bytes(ring.cell.view)
    ring.take()
    ring.inbox.seal_credit()
    ring.take()
    ring.credit()
    third = bytes(ring.cell.view)
    assert ring.outbox.credit == 3
    ring.cell.view[:] = first
    assert not ring.outbox.take_credit()
    ring.take()
    ring.credit()
    assert ring.outbox.credit == 4
    fresh = Ring(FOUR)
    for n in range(4):
        fresh.outbox.put(DATA, (bytes([n]),))
    for cut in range(1, len(third)):
        fresh.cell.view[:] = third[:cut] + first[cut:]
        torn = third[:cut] + first[cut:] != third and third[:cut] + first[cut:] != first
        assert not (torn and fresh.outbox.take_credit())
    assert fresh.outbox.credits.verdicts[TORN]


def test_a_hostile_skip_with_a_message_is_refused():
    ring = Ring(FOUR)
    block = block_of(FOUR, 1, SKIP, b"x")
    ring.slot(0)[: len(block)] = block
    assert ring.take() == FORMAT
    assert ring.inbox.next_sequence == 1


def test_skips_of_whole_laps_do_not_hold_the_reader():
    """Each look at slot 0 finds the next skip there: the hash writes it."""
    terms = FOUR
    ring = Ring(terms)
    digest = terms.digest(bytes(range(1, 9)))
    looked = []

    def write_next(data, _):
        proof = digest(data)
        looked.append(1)
        block = block_of(terms, 1 + 4 * len(looked), SKIP, b"")
        ring.slot(0)[: len(block)] = block
        return proof

    block = block_of(terms, 1, SKIP, b"")
    ring.slot(0)[: len(block)] = block

    inbox = Inbox(4, 64, terms.opener(Digest(write_next, None)), ring.target.address, ring.sealer)
    assert inbox.poll() == EMPTY
    assert len(looked) == 2


def test_take_all_stops_at_the_limit_and_at_the_end():
    ring = Ring(FOUR)
    ring.outbox.put_all(DATA, [b"a", b"b", b"c"], 0)
    ring.carry()
    messages = []
    assert ring.inbox.take_all(messages, 2, 4) == TAKEN
    assert ring.inbox.take_all(messages, 9, 4) == EMPTY
    assert messages == [b"a", b"b", b"c"]


def test_take_all_stops_where_credit_is_owed_and_behind_what_is_no_message():
    ring = Ring(Terms(slots=8))
    ring.outbox.put_all(DATA, [b"a", b"b", b"c"], 0)
    ring.outbox.put(REQUEST, (b"r",))
    ring.outbox.put(DATA, (b"d",))
    ring.carry()
    messages = []
    assert (ring.inbox.take_all(messages, 9, 2), messages) == (TAKEN, [b"a", b"b"])
    ring.credit()
    assert (ring.inbox.take_all(messages, 9, 8), messages) == (TAKEN, [b"a", b"b", b"c"])
    assert (ring.opener.kind, ring.opener.message) == (REQUEST, b"r")
    assert (ring.inbox.take_all(messages, 9, 8), messages) == (EMPTY, [b"a", b"b", b"c", b"d"])


class RingAgainstAQueue(RuleBasedStateMachine):
    """Any order of puts, carries in pieces, polls and credits: what goes in comes out."""

    def __init__(self):
        super().__init__()
        self.ring = Ring(WIDE)
        self.queue = []
        self.landing = []
        self.dice = random.Random(1)

    @rule(length=st.integers(0, 200))
    def put(self, length):
        message = self.dice.randbytes(length)
        if self.ring.outbox.put(DATA, (message,)):
            self.queue.append(message)
        ring = self.ring
        for offset, n in ring.outbox.ranges():
            self.landing += [(offset, bytes(ring.source.view[offset : offset + n]))]

    @precondition(lambda self: self.landing)
    @rule(pieces=st.integers(1, 5))
    def land(self, pieces):
        """One range lands, in pieces of any order, with a look after each."""
        offset, content = self.landing.pop(0)
        cuts = sorted({0, len(content), *(self.dice.randrange(len(content)) for _ in range(pieces - 1))})
        spans = list(itertools.pairwise(cuts))
        self.dice.shuffle(spans)
        for start, end in spans:
            self.ring.target.view[offset + start : offset + end] = content[start:end]
            self.poll()

    @rule()
    def poll(self):
        found = self.ring.take()
        if isinstance(found, bytes):
            assert found == self.queue.pop(0)

    @rule()
    def credit(self):
        self.ring.credit()

    @invariant()
    def bounded(self):
        assert 0 <= self.ring.outbox.free() <= WIDE.slots


RingAgainstAQueue.TestCase.settings = settings(max_examples=random_inputs(60), stateful_step_count=50)
TestRingAgainstAQueue = RingAgainstAQueue.TestCase
