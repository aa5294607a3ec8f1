"""When a thread that drives an embedded adapter polls on, and when it blocks: in time that a test makes."""

import threading
from types import SimpleNamespace

import pytest

from softhca.runtime import progress_thread
from softhca.runtime.loop import NEVER, SPIN_NS
from softhca.runtime.progress_thread import BLOCK_AT_ONCE_NS, LONG_YIELD_NS, Progress

ROUND_NS = 1_000


class Loop:
    """Rounds take `ROUND_NS`, yields what ``yields`` says next (0 at its end); ``work`` are the rounds, by
    number, that find something.
    """

    def __init__(self, work=(), yields=()):
        self.lock = threading.Lock()
        self.dead = False
        self.now = 10**9
        self.rounds = self.yielded = 0
        self.work, self.yields = set(work), list(yields)
        self.sleeper = SimpleNamespace(wakeup_ns=None, waiters=0, deliver=lambda: False)
        self.sleeper.waiter_left = lambda deadline_ns: False
        self.sleeper.nap_ends = lambda: None

    def clock(self):
        return self.now

    def progress(self, now):
        self.rounds += 1
        self.now += ROUND_NS
        return self.rounds in self.work

    def settle(self, now):
        """Nobody sleeps."""

    def soon(self, now):
        return False

    def deadline(self):
        return NEVER

    def yield_processor(self):
        self.yielded += 1
        self.now += self.yields.pop(0) if self.yields else 0


@pytest.fixture
def progress():
    made = Progress([])
    yield made
    made.forget()


@pytest.fixture
def drive(progress, monkeypatch):
    """Drive a loop until the thread would block: whether it was enough."""

    def driven(loop, enough=lambda: False, leading=True):
        monkeypatch.setattr(progress_thread, "yield_processor", loop.yield_processor)
        return progress._drive(loop, enough, leading)

    return driven


def test_who_finds_nothing_at_first_blocks_at_once(drive):
    loop = Loop()
    assert not drive(loop)
    assert (loop.rounds, loop.yielded) == (1, 0)


def test_who_has_found_something_polls_on_for_the_length_of_a_spin(drive):
    loop = Loop(work={1})
    assert not drive(loop)
    assert loop.rounds == 1 + SPIN_NS // ROUND_NS
    assert loop.yielded == loop.rounds - 2


def test_work_found_in_the_last_drive_is_no_reason_to_poll_on(drive):
    loop = Loop(work={1})
    drive(loop)
    before = loop.rounds
    assert not drive(loop)
    assert loop.rounds == before + 1


@pytest.mark.parametrize(("extra_ns", "rounds"), [(0, 1 + SPIN_NS // ROUND_NS), (1, 3)])
def test_a_yield_that_took_long_ends_the_spin(drive, extra_ns, rounds):
    """The yield's time begins with the round's."""
    long_ns = LONG_YIELD_NS - ROUND_NS + extra_ns
    loop = Loop(work={1}, yields=[long_ns])
    assert not drive(loop)
    assert loop.rounds == (rounds if extra_ns else rounds - long_ns // ROUND_NS)


def test_for_a_while_after_a_long_yield_nobody_spins_and_then_they_do_again(drive):
    loop = Loop(work={1, 4, 6}, yields=[LONG_YIELD_NS])
    drive(loop)
    assert (loop.rounds, loop.yielded) == (3, 1)
    drive(loop)
    assert (loop.rounds, loop.yielded) == (5, 1), "found something in round 4, and did not yield after it"
    loop.now += BLOCK_AT_ONCE_NS
    drive(loop)
    assert loop.yielded > 100


def test_leader_and_background_thread_each_know_of_their_own_yields(drive):
    loop = Loop(work={1, 4}, yields=[LONG_YIELD_NS])
    drive(loop, leading=True)
    drive(loop, leading=False)
    assert loop.yielded > 100


def test_driving_ends_when_it_is_enough_and_says_so(drive):
    loop = Loop(work={1})
    answers = iter([False, False, True])
    assert drive(loop, lambda: next(answers))
    assert loop.rounds == 2


def test_driving_a_dead_adapter_is_not_enough(drive):
    loop = Loop()
    loop.dead = True
    assert not drive(loop)
    assert loop.rounds == 0


def test_who_waits_asks_once_more_only_while_it_is_not_ready(progress, monkeypatch):
    """A condition that takes what it finds is true once: it is not asked again."""
    loop = Loop(work={1})
    monkeypatch.setattr(progress_thread, "yield_processor", loop.yield_processor)
    progress.loop = loop
    answers = iter([False, False, True])
    assert progress.wait(lambda: next(answers))
    assert next(answers, None) is None
    assert loop.sleeper.waiters == 0
    assert progress._leader_lock.acquire()


@pytest.mark.parametrize("call", ["_wait_leading", "_stop_leading"])
def test_who_is_interrupted_between_two_steps_of_leading_leads_no_more(progress, monkeypatch, call):
    """By a signal handler that raises: else nobody would wait for the adapter any more."""
    loop = Loop(work={1})
    monkeypatch.setattr(progress_thread, "yield_processor", loop.yield_processor)
    progress.loop = loop

    def interrupted(*_):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(progress, call, interrupted)
    with pytest.raises(KeyboardInterrupt):
        progress.wait(iter([False, True]).__next__)
    assert not progress._leader_lock.locked()
    assert progress._leader_lock.acquire()


@pytest.mark.parametrize("call", ["_leave", "_lead_no_more", "_notify_followers"])
def test_who_is_interrupted_at_the_end_of_a_wait_waits_no_more(progress, monkeypatch, call):
    """Else the background thread would leave the adapter to a thread that does not exist."""
    loop = Loop(work={1})
    monkeypatch.setattr(progress_thread, "yield_processor", loop.yield_processor)
    progress.loop = loop

    def interrupted(*_):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(progress, call, interrupted)
    changes = progress._changes
    with pytest.raises(KeyboardInterrupt):
        progress.wait(iter([False, True]).__next__)
    assert progress._changes > changes, "somebody who follows this one is to lead"
    assert loop.sleeper.waiters == 0
    assert not progress._leader_lock.locked()


def test_who_is_interrupted_behind_its_count_as_a_waiter_waits_no_more(progress):
    loop = progress.loop = Loop()

    class Interrupting:
        def __enter__(self):
            pass

        def __exit__(self, *error):
            if loop.sleeper.waiters:
                raise KeyboardInterrupt

    loop.lock = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        progress.wait(lambda: True)
    assert loop.sleeper.waiters == 0


def test_who_is_interrupted_in_a_nap_leads_no_more(progress, monkeypatch):
    progress.loop = Loop()
    progress.loop.polls = 0
    monkeypatch.setattr(progress, "_block", lambda *_, **__: None)

    def interrupted():
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(progress, "_stop_leading", interrupted)
    with pytest.raises(KeyboardInterrupt):
        progress.nap(NEVER)
    assert not progress._leader_lock.locked()
    assert progress._leader_lock.acquire()


def test_who_is_interrupted_at_the_end_of_a_nap_tells_those_who_wait(progress, monkeypatch):
    """It leads no more, and was about to: nobody else would, and they would follow nobody for ever."""
    progress.loop = Loop()
    progress.loop.polls = 0
    monkeypatch.setattr(progress, "_block", lambda *_, **__: None)
    told = []
    monkeypatch.setattr(progress, "_notify_followers", lambda: told.append(progress._leading))

    def interrupted():
        progress._leading = False
        progress._leader_lock.release()
        raise KeyboardInterrupt

    monkeypatch.setattr(progress, "_stop_leading", interrupted)
    with pytest.raises(KeyboardInterrupt):
        progress.nap(NEVER)
    assert told == [False]


def test_a_follower_that_looked_before_a_change_does_not_sleep(progress):
    """What changes between its look and its sleep is told: without a second thread, at the exact moment."""
    loop = Loop()
    progress._leading = True

    def ready():
        progress._notify_followers()
        return False

    progress._wait_following(loop, ready, NEVER)
    assert progress._followers == 0


def test_a_follower_that_sleeps_is_woken(progress):
    loop = Loop()
    progress._leading = True
    waiting = (loop, lambda: False, NEVER)
    follower = threading.Thread(target=progress._wait_following, args=waiting, daemon=True)
    follower.start()
    while not progress._followers:
        pass
    progress._notify_followers()
    follower.join(60)
    assert not follower.is_alive()
    assert progress._followers == 0
