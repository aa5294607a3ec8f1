"""Who gives the engine its turns: pollers, waiters, the background thread; and who wakes whom."""

import contextlib
import fcntl
import os
import resource
import sys
import threading

import pytest
from fake_engine import Bench

from machine_speed import limit_s
from softhca.links.link import Link
from softhca.runtime import progress_thread
from softhca.runtime.clock import now_ns
from softhca.runtime.delayed_acknowledgement import QUICK_REPLIES
from softhca.runtime.doorbell_batching import LEFT_NS
from softhca.runtime.loop import KICK_NS, NEVER, EngineLoop
from softhca.runtime.progress_thread import Progress
from softhca.runtime.sleeper import Sleeper
from softhca.runtime.turn_lock import TurnLock
from softhca.transport.flow import Flow

BOUND_S = limit_s(20)


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.close()


def until(condition):
    """Let other threads run until ``condition()``; a test that waits in vain fails, bounded."""
    pause = threading.Event()
    limit_ns = now_ns() + BOUND_S * 10**9
    while not condition():
        assert now_ns() < limit_ns, "nothing happened"
        pause.wait(0.001)


def asleep(bench):
    """Until the background thread has nothing to do and has gone to sleep for good."""
    until(lambda: bench.loop.sleeper.wakeup_ns == NEVER)


def test_a_round_takes_what_arrived_and_sends_what_is_due(bench):
    bench.wire.put(b"one")
    bench.wire.put(b"two")
    bench.engine.outgoing.extend([10, 20])
    assert bench.loop.poll() is True
    assert bench.engine.received == [b"one", b"two"]
    assert bench.wire.sent == [10, 20]
    assert bench.loop.poll() is False


class Order(Link):
    """Notes in which order a link and an engine are asked; every arrival, ``length`` bytes in packets of
    ``stride``, asks for an answer."""

    def __init__(self, bench, length, stride):
        super().__init__()
        self.bench, self.length, self.stride, self.noted = bench, length, stride, []
        self.take, self.give = bench.wire.receive, bench.wire.send
        loop, engine = bench.loop, bench.engine
        bench.loop = bench.progress.loop = EngineLoop(engine, (self,), loop.sleeper.wake)

    def receive(self, arrival):
        arrival.length, arrival.stride = self.length, self.stride
        if not self.take(arrival):
            self.noted.append("nothing")
            return False
        self.noted.append("received")
        self.bench.engine.outgoing.append(20)
        return True

    def send(self, burst):
        self.noted.append("sent")
        return self.give(burst)


def test_a_long_run_is_answered_before_the_next_is_taken(bench):
    order = Order(bench, 61_680, 4_112)
    bench.wire.put(b"one")
    bench.wire.put(b"two")
    bench.loop.poll()
    assert order.noted == ["received", "sent", "received", "sent", "nothing"]


def test_short_runs_are_answered_together(bench):
    order = Order(bench, 640, 40)
    bench.wire.put(b"one")
    bench.wire.put(b"two")
    bench.loop.poll()
    assert order.noted == ["received", "received", "nothing", "sent", "sent"]


def test_a_lone_packet_after_a_pause_is_answered_before_another_is_looked_for(bench):
    order = Order(bench, 40, 40)
    bench.loop.poll()
    order.noted.clear()
    bench.wire.put(b"one")
    bench.wire.put(b"two")
    bench.loop.poll()
    assert order.noted == ["received", "sent"]
    order.noted.clear()
    bench.loop.poll()
    assert order.noted == ["received", "nothing", "sent"], "traffic that does not pause is taken together"


def test_only_a_poller_may_keep_an_acknowledgement_for_its_own_reply(bench):
    Order(bench, 40, 40)
    bench.loop.clock = lambda: 5_000_000
    pair = Flow.__new__(Flow)
    pair.quick_replies = QUICK_REPLIES
    bench.engine.sole = pair
    assert not bench.loop.poll()
    bench.wire.put(b"one")
    bench.loop.progress(5_000_000)  # the background thread's round
    assert (bench.wire.sent, bench.loop.acknowledgement.waits) == ([20], False)
    bench.loop.poll()
    bench.wire.put(b"two")
    bench.loop.poll()
    assert (bench.wire.sent, bench.loop.acknowledgement.waits) == ([20], True)


class HeldLock(TurnLock):
    """A lock that another thread has: only one who waits for it gets it."""

    def __init__(self):
        super().__init__()
        self.looks = self.waits = 0

    def take(self):
        self.looks += 1
        return False

    def acquire(self, blocking=True, timeout=-1):
        self.waits += 1
        return blocking

    def release(self):
        pass


def test_a_poller_waits_for_the_lock_only_after_many_looks_in_vain(bench):
    loop = EngineLoop(bench.engine, (bench.wire,), bench.progress.wake)
    lock = loop.lock = HeldLock()
    for _ in range(16):
        assert not loop.poll()
    assert (lock.looks, lock.waits, loop.polls) == (16, 0, 0)
    loop.poll()
    assert (lock.waits, loop.polls) == (1, 1)
    loop.poll()
    assert (lock.waits, loop.polls) == (1, 1), "and looks as often again"


def test_what_a_poller_has_left_to_be_sent_is_sent_by_the_background_thread(bench):
    bench.engine.outgoing.append(20)
    bench.progress._flush_overdue(bench.loop)
    assert bench.wire.sent == [], "nothing is held back"
    moments = [5_000_000 + LEFT_NS]
    bench.loop.clock = lambda: moments[0]
    pair = Flow.__new__(Flow)
    pair.quick_replies = QUICK_REPLIES
    assert bench.loop.acknowledgement.received(pair, 5_000_000)
    bench.progress._flush_overdue(bench.loop)
    assert bench.wire.sent == [], "its consumer may still answer"
    moments[0] += 1
    bench.progress._flush_overdue(bench.loop)
    assert (bench.wire.sent, bench.loop.acknowledgement.waits) == ([20], False)


def test_refused_keys_are_told_at_most_once_a_second_with_their_count(bench, caplog):
    counters, loop = bench.engine.counters, bench.loop

    def told(refusals, now):
        caplog.clear()
        counters.key_refusals += refusals
        loop.progress(now)
        return [record.getMessage() for record in caplog.records]

    second = 10**9
    assert told(0, 5 * second) == []
    assert told(3, 5 * second) == ["an adapter has refused 3 requests of peers for their keys"]
    assert told(0, 9 * second) == []
    assert told(1, 9 * second) == ["an adapter has refused 1 requests of peers for their keys"]
    assert told(40, 10 * second - 1) == []
    assert told(2, 10 * second) == ["an adapter has refused 42 requests of peers for their keys"]
    assert told(0, 12 * second) == []


def test_a_round_is_bounded(bench):
    for _ in range(100):
        bench.wire.put(b"x")
    bench.engine.outgoing.extend([1] * 100)
    bench.loop.poll()
    assert 0 < len(bench.engine.received) < 100
    assert 0 < len(bench.wire.sent) < 100


def test_a_burst_without_room_is_kept_and_sent_first(bench):
    bench.engine.outgoing.extend([10, 20])
    bench.wire.refusals = 2
    bench.loop.poll()
    bench.loop.poll()
    assert bench.loop.ports[0].pending
    assert bench.wire.sent == []
    assert list(bench.engine.outgoing) == [20]
    bench.loop.poll()
    assert bench.wire.sent == [10, 20]
    assert not bench.loop.ports[0].pending


def test_a_poller_does_not_wait_for_a_round_of_another_thread(bench):
    bench.wire.put(b"x")
    results = []
    with bench.loop.lock:
        poller = threading.Thread(target=lambda: results.append(bench.loop.poll()))
        poller.start()
        poller.join(BOUND_S)
        assert results == [False]
    assert bench.engine.received == []


def test_a_kick_takes_doorbells_and_sends_at_once(bench):
    bench.engine.outgoing.append(7)
    bench.loop.kick()
    assert bench.engine.kicks == 1
    assert bench.wire.sent == [7]


def test_a_kick_long_after_the_last_round_gives_one_as_well_and_counts_as_a_look(bench):
    moments = [1_000_000]
    loop = EngineLoop(bench.engine, (bench.wire,), bench.progress.wake, clock=lambda: moments[0])
    bench.wire.put(b"one")
    loop.kick()
    assert (bench.engine.received, loop.polls, loop.rounds) == ([b"one"], 1, 1)
    bench.wire.put(b"two")
    moments[0] += KICK_NS - 1
    loop.kick()
    assert (bench.engine.received, loop.polls, loop.rounds) == ([b"one"], 1, 1)
    moments[0] += 1
    loop.kick()
    assert (bench.engine.received, loop.polls, loop.rounds) == ([b"one", b"two"], 2, 2)
    bench.wire.put(b"three")
    loop.poll()
    loop.kick()
    assert (bench.engine.received, loop.polls, loop.rounds) == ([b"one", b"two", b"three"], 3, 3)


def test_what_a_kick_has_posted_is_sent_before_it_looks_for_arrivals(bench):
    order = Order(bench, length=100, stride=100)
    bench.wire.put(b"one")
    bench.engine.outgoing.append(7)
    bench.loop.kick()
    assert order.noted[:2] == ["sent", "received"]


def test_a_dead_loop_gives_no_rounds(bench):
    bench.wire.put(b"x")
    bench.loop.dead = True
    assert bench.loop.poll() is False
    bench.loop.kick()
    assert bench.engine.received == []
    assert bench.engine.kicks == 0


def test_the_background_thread_serves_when_nobody_polls(bench):
    bench.start()
    asleep(bench)
    slept = bench.progress.wakeups
    bench.wire.put(b"x")
    until(lambda: bench.engine.received)
    assert bench.engine.threads == ["background"]
    asleep(bench)
    assert bench.progress.wakeups > slept


def test_the_background_thread_keeps_deadlines(bench):
    bench.engine.deadline_ns = now_ns() + 20_000_000
    bench.start()
    until(lambda: bench.engine.expired)
    assert bench.engine.expired[0] >= 0


def test_a_kept_burst_is_tried_again_without_an_arrival(bench):
    bench.engine.outgoing.append(9)
    bench.wire.refusals = 5
    bench.start()
    until(lambda: bench.wire.sent == [9])


def test_a_deadline_that_a_kick_leaves_behind_wakes_a_sleeper(bench):
    bench.start()
    asleep(bench)
    bench.engine.deadline_ns = now_ns() + 30_000_000
    bench.loop.kick()
    until(lambda: bench.engine.expired)


def test_a_deadline_that_the_sleeper_keeps_anyway_wakes_nobody(bench):
    woken = []
    bench.loop.sleeper.wake = lambda: woken.append(True)
    bench.engine.deadline_ns = now_ns() + 10_000_000_000
    bench.loop.sleeper.wakeup_ns = bench.engine.deadline_ns
    bench.loop.kick()
    assert woken == []
    bench.loop.sleeper.wakeup_ns = NEVER
    bench.loop.kick()
    assert woken == [True]


def test_an_idle_adapter_wakes_nobody_up(bench):
    bench.start()
    asleep(bench)
    before = bench.progress.wakeups, bench.loop.rounds
    threading.Event().wait(0.3)
    assert (bench.progress.wakeups, bench.loop.rounds) == before


def test_the_background_thread_keeps_off_while_an_application_polls(bench):
    bench.start()
    asleep(bench)
    rounds_of_others = []
    for _ in range(2000):
        bench.wire.put(b"x")
        bench.loop.poll()
    bench.wire.put(b"y")
    bench.loop.poll()
    rounds_of_others = [name for name in bench.engine.threads if name == "background"]
    assert len(rounds_of_others) < 200


def test_the_background_thread_takes_over_when_the_polling_ends(bench):
    bench.start()
    for _ in range(1000):
        bench.loop.poll()
    bench.wire.put(b"late")
    until(lambda: bench.engine.received == [b"late"])
    asleep(bench)


def test_one_that_waits_is_told_what_arrives(bench):
    bench.start()
    feeder = threading.Thread(target=lambda: (asleep_or_led(bench), bench.wire.put(b"x")))
    feeder.start()
    assert bench.progress.wait(lambda: bool(bench.engine.received), BOUND_S)
    feeder.join()
    assert bench.loop.sleeper.waiters == 0


def asleep_or_led(bench):
    until(lambda: bench.loop.sleeper.waiters == 1)


def test_waiting_ends_with_its_time_out(bench):
    bench.start()
    begin = now_ns()
    assert bench.progress.wait(lambda: False, 0.02) is False
    assert now_ns() - begin >= 20_000_000


def test_waiting_for_what_is_true_already_needs_no_round(bench):
    assert bench.progress.wait(lambda: True, 0) is True
    assert bench.loop.rounds == 0


def test_one_that_waits_keeps_the_deadlines(bench):
    bench.engine.deadline_ns = now_ns() + 20_000_000
    assert bench.progress.wait(lambda: bool(bench.engine.expired), BOUND_S)


def test_news_of_another_threads_poll_reach_one_that_waits(bench):
    result = []
    waiter = threading.Thread(
        target=lambda: result.append(bench.progress.wait(lambda: bool(bench.engine.received), BOUND_S)))
    waiter.start()
    until(lambda: bench.loop.sleeper.wakeup_ns >= NEVER - 1 or bench.loop.sleeper.wakeup_ns > now_ns())
    bench.wire.arrivals.append(b"unseen by epoll")
    bench.loop.poll()
    waiter.join(BOUND_S)
    assert result == [True]


def test_all_that_wait_are_served_whoever_leads(bench):
    bench.start()
    results = []

    def wait_for(number):
        results.append(bench.progress.wait(lambda: len(bench.engine.received) >= number, BOUND_S))

    waiters = [threading.Thread(target=wait_for, args=(number,)) for number in (1, 2, 3, 4)]
    for waiter in waiters:
        waiter.start()
    until(lambda: bench.loop.sleeper.waiters == 4)
    for _ in range(4):
        count = len(bench.engine.received)
        bench.wire.put(b"x")
        until(lambda count=count: len(bench.engine.received) > count)
    for waiter in waiters:
        waiter.join(BOUND_S)
    assert results == [True] * 4


def test_a_thread_that_stays_waiting_lets_the_background_thread_sleep_for_good(bench):
    bench.start()
    release = []
    waiter = threading.Thread(target=lambda: bench.progress.wait(lambda: bool(release), BOUND_S))
    waiter.start()
    until(lambda: bench.loop.sleeper.waiters == 1)
    bench.wire.put(b"may wake both")
    until(lambda: bench.engine.received)
    until(lambda: bench.loop.sleeper.parked or bench.loop.sleeper.background_ns == NEVER)
    rounds = []  # each counts the wake-ups of a fifth of a second
    while 0 not in rounds and len(rounds) < 50:
        before = bench.progress.wakeups
        threading.Event().wait(0.2)
        rounds.append(bench.progress.wakeups - before)
    assert rounds[-1] == 0
    release.append(True)
    bench.progress.wake()
    waiter.join(BOUND_S)
    bench.wire.put(b"x")
    until(lambda: len(bench.engine.received) == 2)
    assert bench.engine.threads[-1] == "background"


def test_who_waits_again_and_again_does_not_wake_the_background_thread_each_time(bench, monkeypatch):
    """It sleeps until it is woken only where no other wait has begun since it looked last."""
    loop, pauses = bench.loop, []
    loop.sleeper.waiters = 1

    def pause(loop, pause_ns):
        pauses.append(pause_ns)
        if len(pauses) < 6:
            bench.progress.wait(lambda: True)
        elif pause_ns > progress_thread.LAST_CHECK_NS:
            loop.dead = True

    monkeypatch.setattr(bench.progress, "_stand_by", pause)
    bench.progress._serve(loop)
    first, last = progress_thread.FIRST_CHECK_NS, progress_thread.LAST_CHECK_NS
    assert pauses == [first, 2 * first, 4 * first, last, last, last, 2 * last]


@pytest.mark.parametrize(("waiters", "leading", "dead", "woken"), [
    (0, False, False, "background"), (1, True, False, "leader"), (2, True, True, "leader"),
    (1, False, False, None), (2, False, False, None), (1, False, True, "background"),
])  # fmt: skip
def test_a_thread_that_waits_and_is_awake_has_nobody_woken(bench, waiters, leading, dead, woken):
    """It gives rounds itself, which may bring what it waits for: the background thread would wake up in each
    of its waits, for nothing, and want the interpreter's lock.
    """
    progress, loop = bench.progress, bench.loop
    loop.sleeper.waiters, progress._leading, loop.dead = waiters, leading, dead
    known = progress._changes
    progress.wake()
    assert progress._changes == known + 1  # so who is about to follow, and has looked before, looks again
    found = []
    for name, descriptor in (("background", progress._thread_wake), ("leader", progress._leader_wake)):
        with contextlib.suppress(BlockingIOError):
            found += [name] * os.eventfd_read(descriptor)
    assert found == ([woken] if woken else [])
    loop.sleeper.waiters, progress._leading = 0, False


def test_nobody_can_leave_while_it_is_decided_to_sleep_for_good(bench):
    """Else the last that waits leaves just before, wakes nobody, and the thread serves nobody any more."""

    held = []

    class Loop:
        lock = threading.RLock()
        clock = staticmethod(now_ns)
        real = Sleeper(lambda: None)

        @property
        def sleeper(self):
            self.real.waiters = 1
            held.append(self.lock._is_owned())
            return self.real

    bench.progress.wake()
    bench.progress._stand_by(Loop(), 2 * progress_thread.LAST_CHECK_NS)
    assert held[0]
    assert bench.progress.wakeups == 1


def test_closing_ends_thread_and_waiters(bench):
    bench.start()
    result = []
    waiter = threading.Thread(target=lambda: result.append(bench.progress.wait(lambda: False)))
    waiter.start()
    until(lambda: bench.loop.sleeper.waiters == 1)
    with bench.loop.lock:
        bench.loop.dead = True
    bench.progress.wake()
    waiter.join(BOUND_S)
    assert result == [False]
    bench.progress.close()
    assert not any(thread.name == "background" for thread in threading.enumerate())
    bench.progress = Progress([bench.wire.fd])


def test_a_thread_that_closes_what_it_serves_keeps_the_descriptors_until_it_has_left(bench):
    seen = []

    def close(port_number, arrival, now):
        bench.loop.dead = True
        bench.progress.close()
        seen.append((bench.progress._forgotten, threading.current_thread().daemon))

    bench.engine.receive = close
    bench.start()
    bench.wire.put(b"the end")
    until(lambda: bench.progress._forgotten)
    assert seen == [(False, True)], "and it is a thread that lets the program end"
    bench.progress = Progress([bench.wire.fd])


def test_one_that_does_not_lead_sleeps_until_there_is_news(bench):
    waits = []
    wait_for = bench.progress._changed.wait_for

    def noted(condition, patience_s):
        waits.append(patience_s)
        return wait_for(condition, patience_s)

    bench.progress._changed.wait_for = noted
    waiters = [
        threading.Thread(target=bench.progress.wait, args=(lambda: bool(bench.engine.received), BOUND_S))
        for _ in range(2)
    ]
    for waiter in waiters:
        waiter.start()
    until(lambda: bench.loop.sleeper.waiters == 2 and waits)
    bench.wire.put(b"news")
    for waiter in waiters:
        waiter.join(BOUND_S)
    assert not any(waiter.is_alive() for waiter in waiters)
    assert waits[0] is not None


def test_waiting_for_no_time_still_gives_a_round(bench):
    bench.wire.put(b"x")
    assert bench.progress.wait(lambda: bool(bench.engine.received), 0)


def test_the_longest_look_away_is_far_below_a_peers_time_out():
    timeout_14_ns = 4096 << 14
    assert timeout_14_ns > progress_thread.LAST_CHECK_NS * 2


def test_descriptors_beyond_1023_are_served(monkeypatch):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    plain = os.eventfd

    def high(value, flags=0):
        low = plain(value, flags)
        try:
            return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 1500)
        finally:
            os.close(low)

    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "eventfd", high)
            made = Bench()
        made.progress.wake()
        made.progress._stand_by(made.loop, progress_thread.FIRST_CHECK_NS)
        assert made.progress.wakeups == 1
        made.wire.put(b"x")
        assert made.progress.wait(lambda: bool(made.engine.received), BOUND_S)
        made.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def broken(*arguments):
    raise RuntimeError("an engine never raises")


@pytest.mark.parametrize("who", ["background", "poll", "kick", "wait"])
def test_an_engine_that_raises_is_given_up_and_everybody_is_sent_home(bench, caplog, who):
    bench.start()
    asleep(bench)
    results = []
    waiter = threading.Thread(target=lambda: results.append(bench.progress.wait(lambda: False)))
    if who != "background":
        waiter.start()
        until(lambda: bench.loop.sleeper.waiters == 1 and bench.loop.sleeper.wakeup_ns == NEVER)
    bench.engine.receive = bench.engine.ring = broken
    with bench.loop.lock:
        bench.wire.put(b"x")
        if who == "poll":
            assert bench.loop.poll() is False
        elif who == "kick":
            bench.loop.kick()
    until(lambda: bench.loop.dead)
    if who != "background":
        waiter.join(BOUND_S)
        assert results == [False]
    assert "an engine never raises" in caplog.text
    assert bench.progress.wait(lambda: False) is False
    bench.progress._thread.join(BOUND_S)
    assert not bench.progress._thread.is_alive()


def interrupted(*arguments):
    raise KeyboardInterrupt("in the middle of a turn")


@pytest.mark.parametrize("who", ["poll", "kick", "kick for a command"])
def test_a_turn_that_a_signal_handler_ends_leaves_no_half_changed_engine(bench, caplog, who):
    """What the handler raises goes on its way, and nobody meets an engine that stopped between two steps."""
    if who == "kick for a command":
        bench.engine.command = interrupted
        bench.engine.commands = 1
    else:
        bench.engine.receive = bench.engine.expire = interrupted
    bench.wire.put(b"x")
    with pytest.raises(KeyboardInterrupt, match="in the middle of a turn"):
        bench.loop.poll() if who == "poll" else bench.loop.kick()
    assert bench.loop.dead
    assert "given up" in caplog.text
    assert bench.loop.lock.acquire(False), "the lock is free for whoever closes the device"
    bench.loop.lock.release()
    assert bench.loop.poll() is False


def by_a_handler(*arguments):
    """As by a signal handler, which is called with the frame that it has interrupted."""
    late(0, sys._getframe())


def late(number, frame):
    raise TimeoutError("in the middle of a turn")


@pytest.mark.parametrize("who", ["poll", "kick"])
def test_what_a_handler_raises_in_a_turn_goes_on_its_way_whatever_its_class(bench, caplog, who):
    bench.engine.receive = bench.engine.expire = by_a_handler
    bench.wire.put(b"x")
    with pytest.raises(TimeoutError, match="in the middle of a turn"):
        bench.loop.poll() if who == "poll" else bench.loop.kick()
    assert bench.loop.dead
    assert "given up" in caplog.text
