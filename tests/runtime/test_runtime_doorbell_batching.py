"""Doorbells of several queue pairs that are sent together: when, for how long, and what ends it."""

import pytest
from fake_engine import Bench

from softhca.runtime.doorbell_batching import (
    DISTRUST,
    EXPECTED,
    LEFT_NS,
    NEVER,
    REPEATS,
    SOON_NS,
    DoorbellBatching,
)
from softhca.runtime.loop import UNSEEN_BATCHING_NS, EngineLoop
from softhca.runtime.transmitter import BURSTS, RETRY_NS

STEP_NS = 10_000
LONG_NS = LEFT_NS + 1


class Bells:
    """A loop whose clock a test moves, and an engine that has one burst to send for every doorbell."""

    def __init__(self):
        self.bench = Bench()
        self.now = 1_000_000_000
        self.loop = EngineLoop(self.bench.engine, (self.bench.wire,), lambda: None, clock=lambda: self.now)
        self.loop.sleeper.wakeup_ns = 0  # somebody looks all the time
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

    def ring_until_one_waits(self, queue_pairs=2):
        for number in range(4 * EXPECTED):
            self.ring(number % queue_pairs)
            if self.loop.batching.waits:
                return
        raise AssertionError("nothing waits")

    def waiting(self):
        return list(self.bench.engine.outgoing)


@pytest.fixture
def doorbells():
    made = Bells()
    yield made
    made.bench.close()


def test_the_first_doorbells_are_sent_at_once_then_one_goes_with_the_next_ones(doorbells):
    for number in range(EXPECTED + 1):
        doorbells.ring(number)
        assert doorbells.waiting() == []
    doorbells.ring(77)
    assert doorbells.waiting() == [EXPECTED + 1]
    while doorbells.waiting():
        doorbells.ring(doorbells.next_burst)
    held = doorbells.bench.wire.sent[EXPECTED + 1 :]
    assert len(held) == SOON_NS // STEP_NS
    assert doorbells.bench.wire.sent == list(range(doorbells.next_burst))


def test_one_queue_pair_alone_is_sent_at_once_however_often_it_is_rung(doorbells):
    for _ in range(100):
        doorbells.ring(5)
        assert doorbells.waiting() == []


def test_one_that_is_rung_some_times_in_a_row_is_one_of_several_and_many_times_is_alone(doorbells):
    doorbells.ring_until_one_waits()
    last = doorbells.last
    gathered = 0
    for _ in range(REPEATS):
        doorbells.ring(last, 0)
        gathered += doorbells.loop.batching.waits
    assert gathered == REPEATS - REPEATS // BURSTS, "all but those that are sent for their number"
    doorbells.ring(last, 0)
    assert not doorbells.loop.batching.waits
    doorbells.ring(last + 1, 0)
    assert not doorbells.loop.batching.waits, "it begins anew"


def test_doorbells_far_apart_are_sent_at_once(doorbells):
    for number in range(4 * EXPECTED):
        doorbells.ring(number, SOON_NS)
        assert doorbells.waiting() == []
    doorbells.ring_until_one_waits()
    doorbells.ring(99, SOON_NS)
    assert doorbells.waiting() == []
    doorbells.ring(100)
    assert doorbells.waiting() == [], "the next ones are not expected any more"


def test_a_poll_sends_what_waited_and_what_is_rung_first_behind_it(doorbells):
    doorbells.ring_until_one_waits()
    doorbells.loop.poll()
    assert doorbells.waiting() == []
    doorbells.ring(50)
    assert doorbells.waiting() == []
    doorbells.ring(51)
    assert len(doorbells.waiting()) == 1, "it is trusted as before"


def test_nothing_waits_while_somebody_sleeps_for_an_answer(doorbells):
    doorbells.loop.sleeper.waiters = 1
    for number in range(4 * EXPECTED):
        doorbells.ring(number)
        assert doorbells.waiting() == []


def test_a_command_finds_sent_what_was_posted_before_it(doorbells):
    doorbells.ring_until_one_waits()
    order = []
    doorbells.bench.engine.commands = 1
    doorbells.bench.engine.command = lambda now: order.append(doorbells.waiting())
    doorbells.loop.kick()
    assert order == [[]]


def test_a_command_is_no_doorbell_of_the_queue_pair_that_was_rung_last(doorbells):
    doorbells.ring_until_one_waits()
    doorbells.bench.engine.outgoing.append(1000)  # the command's
    doorbells.bench.engine.commands = 1
    doorbells.loop.kick()
    assert (doorbells.waiting(), doorbells.loop.batching.waits) == ([], False)
    doorbells.bench.engine.outgoing.append(1001)
    doorbells.loop.kick()
    assert (doorbells.waiting(), doorbells.loop.batching.waits) == ([], False)


def test_no_more_waits_than_one_call_sends(doorbells):
    doorbells.ring_until_one_waits()
    longest = 0
    for number in range(4 * BURSTS):
        doorbells.ring(100 + number, 1)
        longest = max(longest, len(doorbells.waiting()))
    assert longest == BURSTS - 1
    sent = []
    doorbells.bench.engine.commands = 1
    doorbells.bench.engine.command = lambda now: sent.append(doorbells.waiting())
    doorbells.loop.kick()
    assert sent == [[]], "what a command destroys has been sent"


def test_a_burst_that_the_link_had_no_room_for_is_due_soon_and_wakes_who_would_look_too_late(doorbells):
    woken = []
    doorbells.loop.sleeper.wake = lambda: woken.append(doorbells.loop.sleeper.wakeup_ns)
    doorbells.bench.wire.refusals = 1
    doorbells.loop.sleeper.wakeup_ns = NEVER
    doorbells.ring(3)
    assert doorbells.loop.ports[0].pending
    assert doorbells.loop.deadline() == doorbells.now + RETRY_NS
    assert woken == [0]
    doorbells.now += RETRY_NS
    doorbells.loop.progress(doorbells.now)
    assert doorbells.bench.wire.sent == [0]
    assert doorbells.loop.deadline() == NEVER


def test_what_waits_has_a_deadline_and_is_found_left_when_nobody_comes(doorbells):
    doorbells.ring_until_one_waits()
    assert doorbells.loop.deadline() == doorbells.now + LEFT_NS
    assert not doorbells.loop.overdue(doorbells.now + LEFT_NS)
    assert doorbells.loop.overdue(doorbells.now + LONG_NS)
    doorbells.loop.flush(doorbells.now)
    assert (doorbells.waiting(), doorbells.loop.batching.waits) == ([], False)
    assert doorbells.loop.deadline() == NEVER
    assert not doorbells.loop.overdue(doorbells.now + LONG_NS)


def relieved(doorbells):
    assert doorbells.loop.overdue(doorbells.now + LONG_NS)
    doorbells.loop.flush(doorbells.now)


def looked_late(doorbells):
    doorbells.now += LONG_NS
    doorbells.loop.poll()


def rang_late(doorbells):
    doorbells.ring(3, LONG_NS)


@pytest.mark.parametrize("stays_away", [relieved, looked_late, rang_late])
def test_a_consumer_that_stayed_away_is_sent_for_at_once_for_long(doorbells, stays_away):
    doorbells.ring_until_one_waits()
    stays_away(doorbells)
    assert doorbells.waiting() == []
    doorbells.ring(0, 2 * SOON_NS)
    for number in range(DISTRUST):
        doorbells.ring(1 + number % 2)
        assert doorbells.waiting() == []
    doorbells.ring_until_one_waits()


def test_the_background_thread_sends_what_was_left(doorbells):
    doorbells.ring_until_one_waits()
    doorbells.bench.progress._flush_overdue(doorbells.loop)
    assert len(doorbells.waiting()) == 1, "it was rung just now"
    doorbells.now += LONG_NS
    doorbells.bench.progress._flush_overdue(doorbells.loop)
    assert doorbells.waiting() == []


# The rule by itself: no engine, no link, no clock


def rung(batching, numbers, now, step_ns=1_000):
    """Doorbells of ``numbers`` in turn, sent at once where they do not wait; the time behind them, and which
    of them waited."""
    waited = []
    for number in numbers:
        now += step_ns
        waited.append(batching.on_doorbell(number, now))
        if not waited[-1]:
            batching.sent(now)
    return now, waited


def learned(**options):
    """A rule that expects the next doorbell."""
    batching = DoorbellBatching(BURSTS, **options)
    now, waited = rung(batching, [index % 2 for index in range(EXPECTED + 1)], 1_000_000)
    assert not any(waited)
    return batching, now


def test_who_rings_in_turn_is_expected_to_ring_again_and_a_call_holds_no_more_than_it_sends():
    batching, now = learned()
    _, waited = rung(batching, [1, 2, 3, 4] * 4, now)
    assert waited == ([True] * (BURSTS - 1) + [False]) * 2


def test_who_served_one_alone_is_learned_anew_from_the_beginning():
    batching, now = learned()
    now, _ = rung(batching, [9] * (REPEATS + 2), now)
    _, waited = rung(batching, [1, 2] * EXPECTED, now)
    assert waited.index(True) == EXPECTED


def test_behind_a_poll_the_first_doorbell_is_sent_at_once():
    batching, now = learned()
    batching.polled(now)
    _, waited = rung(batching, [5, 6], now)
    assert waited == [False, True]


def test_who_sleeps_for_an_answer_is_not_kept_waiting():
    batching, now = learned()
    assert not batching.on_doorbell(9, now + 1, expecting=False)


def test_the_deadline_counts_from_the_last_doorbell():
    batching, now = learned(limit_ns=3_000)
    assert batching.deadline() == NEVER
    now, waited = rung(batching, [7, 8], now)
    assert waited == [True, True]
    assert batching.deadline() == now + 3_000
    batching.sent(now)
    assert batching.deadline() == NEVER


@pytest.mark.parametrize("sees_polls", [True, False])
def test_who_stays_away_is_distrusted_where_a_poll_would_have_been_seen(sees_polls):
    batching, now = learned(limit_ns=3_000, sees_polls=sees_polls)
    assert batching.on_doorbell(7, now + 1)
    assert not batching.overdue(now + 3_001)
    assert batching.overdue(now + 3_002)
    batching.sent(now + 3_002)
    now, waited = rung(batching, [8, 7, 8, 7], now + 3_002)
    assert any(waited) is not sees_polls


# Where polls are not seen


@pytest.fixture
def unseen(doorbells):
    doorbells.loop = EngineLoop(
        doorbells.bench.engine, (doorbells.bench.wire,), lambda: None, clock=lambda: doorbells.now,
        sees_polls=False,
    )
    return doorbells


def rings(unseen, queue_pair, later_ns):
    """A turn that finds a doorbell."""
    unseen.now += later_ns
    unseen.bench.engine.ringing = queue_pair + 2
    unseen.bench.engine.outgoing.append(unseen.next_burst)
    unseen.next_burst += 1
    return unseen.loop.turn(unseen.now)


def rings_until_one_waits(unseen):
    for number in range(4 * EXPECTED):
        rings(unseen, number % 2, 1_000)
        if unseen.loop.batching.waits:
            return
    raise AssertionError("nothing waits")


def test_a_turn_in_which_nothing_happens_ends_no_wait_before_its_time(unseen):
    rings_until_one_waits(unseen)
    held = unseen.waiting()
    assert len(held) == 1
    assert unseen.loop.deadline() == unseen.now + UNSEEN_BATCHING_NS
    assert unseen.loop.soon(unseen.now), "a sleep would be too coarse"
    for _ in range(UNSEEN_BATCHING_NS // 1_000):
        unseen.now += 1_000
        assert not unseen.loop.turn(unseen.now)
        assert unseen.waiting() == held
    unseen.now += 1
    assert unseen.loop.turn(unseen.now)
    assert (unseen.waiting(), unseen.loop.deadline()) == ([], NEVER)


def test_a_turn_that_finds_a_packet_sends_what_waits(unseen):
    rings_until_one_waits(unseen)
    unseen.bench.wire.put(b"x")
    assert unseen.loop.turn(unseen.now)
    assert unseen.waiting() == []


def test_a_command_of_a_host_finds_sent_what_was_rung_before_it(unseen):
    rings_until_one_waits(unseen)
    order = []
    unseen.bench.engine.commands = 1
    unseen.bench.engine.command = lambda now: order.append(unseen.waiting())
    unseen.loop.turn(unseen.now)
    assert order == [[]]


def test_a_command_finds_sent_what_is_rung_together_with_it(unseen):
    order = []
    unseen.bench.engine.commands = 1
    unseen.bench.engine.command = lambda now: order.append(unseen.waiting())
    rings(unseen, 1, 1_000)
    assert order == [[]]


def test_a_command_finds_acknowledged_what_has_come_before_it(unseen):
    """Its host has seen the completions, and may end the queue pair by this command."""
    order = []
    unseen.bench.engine.outgoing.append(0)  # an acknowledgement that the last turn had no room for
    unseen.bench.engine.commands = 1
    unseen.bench.engine.command = lambda now: order.append(unseen.waiting())
    unseen.loop.turn(unseen.now)
    assert order == [[]]
