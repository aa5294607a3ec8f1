"""Doorbells of several queue pairs that are sent together: when, for how long, and what ends it."""

import pytest
from wooden_engine import Bench

from softhca.runtime.loop import ALIKE, DISTRUST, GATHER_NS, NEVER, RETRY_NS, STEADY, EngineLoop

STEP_NS = 10_000
LONG_NS = 1_000_001
TRANSMIT_BURSTS = 8


class Bells:
    """A loop whose clock a test moves, and an engine that has one burst to send for every doorbell."""

    def __init__(self):
        self.bench = Bench()
        self.now = 1_000_000_000
        self.loop = EngineLoop(self.bench.engine, self.bench.wire, lambda: None, clock=lambda: self.now)
        self.loop.look_ns = 0  # somebody looks all the time
        self.next_burst = 0

    def ring(self, queue_pair, later_ns=STEP_NS):
        """A doorbell of so many ns after the call before."""
        self.now += later_ns
        self.loop.round_ns = self.now  # the last round was just now
        self.last = queue_pair
        self.bench.engine.ringing = queue_pair + 2  # lower numbers are none of queue pairs
        self.bench.engine.outgoing.append(self.next_burst)
        self.next_burst += 1
        self.loop.kick()

    def ring_until_gathered(self, queue_pairs=2):
        for number in range(4 * STEADY):
            self.ring(number % queue_pairs)
            if self.loop.gathers:
                return
        raise AssertionError("nothing was gathered")

    def waiting(self):
        return list(self.bench.engine.outgoing)


@pytest.fixture
def bells():
    made = Bells()
    yield made
    made.bench.close()


def test_the_first_doorbells_are_sent_at_once_then_one_goes_with_the_next_ones(bells):
    for number in range(STEADY + 1):
        bells.ring(number)
        assert bells.waiting() == []
    bells.ring(77)
    assert bells.waiting() == [STEADY + 1]
    while bells.waiting():
        bells.ring(bells.next_burst)
    held = bells.bench.wire.sent[STEADY + 1 :]
    assert len(held) == GATHER_NS // STEP_NS
    assert bells.bench.wire.sent == list(range(bells.next_burst))


def test_one_queue_pair_alone_is_sent_at_once_however_often_it_is_rung(bells):
    for _ in range(100):
        bells.ring(5)
        assert bells.waiting() == []


def test_one_that_is_rung_some_times_in_a_row_is_one_of_several_and_many_times_is_alone(bells):
    bells.ring_until_gathered()
    last = bells.last
    gathered = 0
    for _ in range(ALIKE):
        bells.ring(last, 0)
        gathered += bells.loop.gathers
    assert gathered == ALIKE - ALIKE // TRANSMIT_BURSTS, "all but those that are sent for their number"
    bells.ring(last, 0)
    assert not bells.loop.gathers
    bells.ring(last + 1, 0)
    assert not bells.loop.gathers, "it begins anew"


def test_doorbells_far_apart_are_sent_at_once(bells):
    for number in range(4 * STEADY):
        bells.ring(number, GATHER_NS)
        assert bells.waiting() == []
    bells.ring_until_gathered()
    bells.ring(99, GATHER_NS)
    assert bells.waiting() == []
    bells.ring(100)
    assert bells.waiting() == [], "the next ones are not expected any more"


def test_a_look_sends_what_was_gathered_and_what_is_rung_first_behind_it(bells):
    bells.ring_until_gathered()
    bells.loop.poll()
    assert bells.waiting() == []
    bells.ring(50)
    assert bells.waiting() == []
    bells.ring(51)
    assert len(bells.waiting()) == 1, "it is trusted as before"


def test_nothing_is_gathered_while_somebody_sleeps_for_an_answer(bells):
    bells.loop.waiters = 1
    for number in range(4 * STEADY):
        bells.ring(number)
        assert bells.waiting() == []


def test_a_command_finds_sent_what_was_posted_before_it(bells):
    bells.ring_until_gathered()
    order = []
    bells.bench.engine.commanded = lambda: True
    bells.bench.engine.kick = lambda now: order.append(bells.waiting())
    bells.loop.kick()
    assert order == [[]]


def test_a_command_is_no_doorbell_of_the_queue_pair_that_was_rung_last(bells):
    bells.ring_until_gathered()
    bells.bench.engine.outgoing.append(1000)  # the command's
    bells.bench.engine.commanded = lambda: True
    bells.loop.kick()
    assert (bells.waiting(), bells.loop.gathers) == ([], False)
    bells.bench.engine.outgoing.append(1001)
    bells.loop.kick()
    assert (bells.waiting(), bells.loop.gathers) == ([], False)


def test_no_more_is_gathered_than_one_call_sends(bells):
    bells.ring_until_gathered()
    longest = 0
    for number in range(4 * TRANSMIT_BURSTS):
        bells.ring(100 + number, 1)
        longest = max(longest, len(bells.waiting()))
    assert longest == TRANSMIT_BURSTS - 1
    sent = []
    bells.bench.engine.commanded = lambda: True
    bells.bench.engine.kick = lambda now: sent.append(bells.waiting())
    bells.loop.kick()
    assert sent == [[]], "what a command destroys has been sent"


def test_a_burst_that_the_link_had_no_room_for_is_due_soon_and_wakes_who_would_look_too_late(bells):
    woken = []
    bells.loop.wake = lambda: woken.append(bells.loop.look_ns)
    bells.bench.wire.refusals = 1
    bells.loop.look_ns = NEVER
    bells.ring(3)
    assert bells.loop.kept
    assert bells.loop.deadline() == bells.now + RETRY_NS
    assert woken == [0]
    bells.now += RETRY_NS
    bells.loop.progress(bells.now)
    assert bells.bench.wire.sent == [0]
    assert bells.loop.deadline() == NEVER


def test_what_is_gathered_is_due_and_found_left_when_nobody_comes(bells):
    bells.ring_until_gathered()
    assert bells.loop.deadline() == bells.now
    assert not bells.loop.left(bells.now + LONG_NS - 1)
    assert bells.loop.left(bells.now + LONG_NS)
    bells.loop.answer(bells.now)
    assert (bells.waiting(), bells.loop.gathers, bells.loop.deadline()) == ([], False, NEVER)
    assert not bells.loop.left(bells.now + LONG_NS)


def relieved(bells):
    assert bells.loop.left(bells.now + LONG_NS)
    bells.loop.answer(bells.now)


def looked_late(bells):
    bells.now += LONG_NS
    bells.loop.poll()


def rang_late(bells):
    bells.ring(3, LONG_NS)


@pytest.mark.parametrize("stays_away", [relieved, looked_late, rang_late])
def test_a_consumer_that_stayed_away_is_sent_for_at_once_for_long(bells, stays_away):
    bells.ring_until_gathered()
    stays_away(bells)
    assert bells.waiting() == []
    bells.ring(0, 2 * GATHER_NS)
    for number in range(DISTRUST):
        bells.ring(1 + number % 2)
        assert bells.waiting() == []
    bells.ring_until_gathered()


def test_the_background_thread_sends_what_was_left(bells):
    bells.ring_until_gathered()
    bells.bench.progress._relieve(bells.loop)
    assert len(bells.waiting()) == 1, "it was rung just now"
    bells.now += LONG_NS
    bells.bench.progress._relieve(bells.loop)
    assert bells.waiting() == []
