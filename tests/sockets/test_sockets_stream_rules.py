"""What a stream does with each completion and each end, over a completion queue that is a script."""

from __future__ import annotations

import errno
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from scripted_stream import POOL, Scripted, data, fin

from softhca.driver.poll_back_off import LONGEST_NS, PEER_NS
from softhca.sockets import waiting
from softhca.sockets.memory_management import RecordA
from softhca.sockets.protocol import (
    CREDIT,
    IMMEDIATE,
    NOTIFICATION_RING,
    RESET,
    RING_ENTRIES,
    WAKE,
    WAKES,
    Notification,
)
from softhca.sockets.staging import Staging
from softhca.sockets.stream_path import LOOK_EACH, NEVER
from softhca.sockets.stream_sending import MESSAGES
from softhca.sockets.waiting import BUSY_NS, MORE_NS, OTHERS_NS, READABLE
from softhca.verbs import enums as e

OWED = 16


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    return Scripted(monkeypatch)


def test_the_next_event_is_asked_for_before_the_last_look(made: Scripted) -> None:
    """What comes behind that look tells of itself."""
    made.arrives(data())
    made.stream._on_event()
    assert made.noted[:2] == [("arm", True), "poll"]


def test_receives_are_posted_anew_as_soon_as_so_many_have_completed(made: Scripted) -> None:
    made.arrives(*[data()] * (OWED - 1))
    made.stream._pump()
    assert ("receives", OWED) not in made.noted
    made.arrives(data())
    made.stream._pump()
    assert made.noted.count(("receives", OWED)) == 1
    assert made.stream._owed == 0


def test_a_connection_fails_once_and_all_are_told(made: Scripted) -> None:
    told: list[int] = []
    made.stream.on_change = lambda: told.append(made.stream.error)
    made.stream._fail(errno.ECONNRESET)
    made.stream._fail(errno.EPIPE)
    assert (made.stream.error, told) == (errno.ECONNRESET, [errno.ECONNRESET])
    assert made.noted == ["wake", "hub"]


def test_who_says_what_cannot_be_is_told_that_the_connection_is_over(made: Scripted) -> None:
    made.arrives(0xFFFFFFFF)
    made.stream._pump()
    assert made.said == [Notification(RESET).encode()]
    assert made.stream.error == errno.ECONNRESET


@pytest.mark.parametrize(("under_way", "told"), [(MESSAGES - 2, True), (MESSAGES - 1, False)])
def test_one_place_is_kept_for_the_end(made: Scripted, under_way: int, told: bool) -> None:
    made.sender.inflight.extend((number, 0, None) for number in range(under_way))
    made.stream._credit(empty=True)
    assert ("credit" in made.noted) is told


@pytest.mark.parametrize(
    ("said", "code"), [([], errno.ECONNRESET), ([fin(False)], errno.ECONNRESET), ([fin(True)], 0)]
)
def test_a_peer_that_goes_without_a_close_has_failed(made: Scripted, said: list[int], code: int) -> None:
    made.arrives(*said)  # it stands in the queue when the peer's end is heard of
    made.stream.peer_gone()
    assert made.stream.error == code


def test_what_a_peer_that_has_gone_had_sent_is_read_though_something_is_under_way(
    made: Scripted,
) -> None:
    made.sender.waits = True
    made.arrives(data(5), fin(True))
    made.stream.peer_gone()
    assert made.stream.error == errno.ECONNRESET
    own = made.state.own

    def take() -> int:
        own.take(5)
        return 5

    assert [made.stream.receive(take, None, False) for _ in range(2)] == [5, 0]
    assert made.stream.send([memoryview(b"lost")], None, True) == 4
    with pytest.raises(BrokenPipeError):
        made.stream.send([memoryview(b"more")], None, True)


@pytest.mark.parametrize(("closed", "told"), [(False, True), (True, False)])
def test_a_peer_that_has_closed_is_told_and_asked_nothing_more(
    made: Scripted, closed: bool, told: bool
) -> None:
    """Its adapter may know the connection no more, and who asks it waits for all retries."""
    made.stream._sleeping = 1
    made.state.peer_in_memory = True
    made.arrives(*[data(POOL // 2)] * 2, fin(closed))
    made.stream._pump()
    assert [each[0] == "event" for each in made.noted].count(True) == told
    made.state.own.take(POOL)
    made.stream._after_receive()
    assert ("credit" in made.noted) is told
    made.stream._credit(empty=True)
    assert "credit" in made.noted, "an opening is answered for, whatever has come since"


@pytest.mark.parametrize("why", ["", "unanswered", "error", "closed"])
def test_a_peer_is_asked_where_nothing_else_would_tell(made: Scripted, why: str) -> None:
    made.sender.waits = why == "unanswered"
    made.stream.error = errno.EPIPE if why == "error" else 0
    made.stream._closed = why == "closed"
    made.stream.probe()
    assert ("probe" in made.noted) is (why == "")


def test_what_is_sent_first_to_a_peer_that_has_closed_is_lost_and_then_nothing_goes(made: Scripted) -> None:
    made.arrives(fin(True))
    made.stream._pump()
    assert made.stream.writable
    assert made.stream._send_some(memoryview(b"12345"), True, True) == (5, False)
    with pytest.raises(BrokenPipeError):
        made.stream._send_some(memoryview(b"12345"), True, True)


def test_no_more_is_lost_at_a_peer_that_has_closed_than_it_has_room_for(made: Scripted) -> None:
    """So who sends more is told, as one of TCP whose buffer is full."""
    made.arrives(fin(True))
    made.stream._pump()
    room = made.state.peers.room()
    much = memoryview(bytes(room + 1))
    assert made.stream.send([much, much], None, True) == room
    with pytest.raises(BrokenPipeError):
        made.stream.send([much], None, True)


def test_an_end_that_was_said_stays_an_end_whatever_fails_then(made: Scripted) -> None:
    made.arrives(fin(False))
    made.stream._pump()
    made.stream._fail(errno.ECONNRESET)
    assert made.stream.receive(lambda: 0, None, True) == 0
    made.state.was_reset = True
    with pytest.raises(ConnectionResetError):
        made.stream.receive(lambda: 0, None, True)


def test_an_end_is_said_once(made: Scripted) -> None:
    for _ in range(2):
        made.stream.shutdown(reading=False, writing=True)
    assert made.said == [fin(False)]


def test_who_falls_asleep_asks_for_every_event(made: Scripted) -> None:
    made.stream._count_sleeper(1)
    made.stream._count_sleeper(-1)
    assert made.noted == [("arm", False)]


def test_an_event_that_comes_while_another_is_answered_is_answered_too(made: Scripted) -> None:
    stream = made.stream

    def meanwhile() -> None:
        stream.on_change = None
        made.arrives(data(2))
        stream._news = True  # a thread that found the lock taken

    stream.on_change = meanwhile
    made.arrives(data())
    stream._on_event()
    assert made.state.own.available == 3


def test_kinds_of_notifications_are_told_apart(made: Scripted) -> None:
    made.arrives(data(5), Notification(CREDIT).encode(), fin(False))
    made.stream._pump()
    assert (made.state.own.available, made.state.finished, made.stream.error) == (5, True, 0)


@pytest.mark.parametrize(("before", "after"), [(0, errno.EBADF), (errno.ECONNRESET, errno.ECONNRESET)])
def test_a_stream_that_is_closed_says_why_it_had_ended(made: Scripted, before: int, after: int) -> None:
    stream, closed = made.stream, []
    stream._channel = None
    for name, holder in (("cmid", stream), ("cq", stream), ("pool", stream.receiver)):
        part = SimpleNamespace(close=lambda name=name: closed.append(name))
        setattr(holder, name if name == "pool" else f"_{name}", part)
    stream.error = before
    for _ in range(2):
        stream.destroy()
    assert (stream.error, closed) == (after, ["cmid", "cq", "pool"])
    assert made.noted.count("sender closed") == 1


def test_a_forked_child_wakes_nobody_of_its_parent(made: Scripted) -> None:
    made.stream._missed = True
    pool: Any = SimpleNamespace(abandon=lambda: made.noted.append("abandoned"))
    made.stream.receiver.pool = pool
    made.stream.abandon()
    made.stream.unlock() if made.stream._lock.acquire(blocking=False) else pytest.fail("it is locked")
    assert made.noted == ["abandoned"]


@pytest.mark.parametrize(("taken", "fails"), [(4, True), (5, False)])
def test_bytes_of_memory_that_was_not_taken_were_not_sent(made: Scripted, taken: int, fails: bool) -> None:
    def send_view(view: memoryview, deadline_s: float | None, blocking: bool, last: list[int]) -> int:
        last[0] = 5
        return view.nbytes

    made.stream._send_view = send_view  # type: ignore[method-assign]
    made.stream._wait_taken = lambda number: made.stream._fail(errno.ECONNRESET)  # type: ignore[method-assign]
    made.sender.taken = taken
    if not fails:
        assert made.stream.send([memoryview(bytearray(7))], None, True) == 7
        return
    with pytest.raises(ConnectionResetError):
        made.stream.send([memoryview(bytearray(7))], None, True)


class Clock:
    """Time that polls take: ``step_ns`` each, of which the first ``busy`` do work."""

    def __init__(self, made: Scripted, monkeypatch: pytest.MonkeyPatch, busy: int, step_ns: int) -> None:
        self.now_ns, self.polls = 1_000_000_000, 0
        self.busy, self.step_ns = busy, step_ns
        monkeypatch.setattr(waiting, "monotonic_ns", lambda: self.now_ns)
        made.stream._progress = self.poll

    def poll(self) -> bool:
        self.polls += 1
        self.now_ns += self.step_ns
        return self.polls <= self.busy


@pytest.mark.parametrize(("busy", "polls"), [(0, 1), (1, 3), (30, 32)])
def test_who_finds_work_polls_on_though_polling_was_in_vain_before(
    made: Scripted, monkeypatch: pytest.MonkeyPatch, busy: int, polls: int
) -> None:
    """What a long message is waited for takes many turns: who slept in between would be woken for each."""
    clock = Clock(made, monkeypatch, busy, MORE_NS // 2)
    made.stream._budget.limit_ns = 0
    assert not made.stream._poll(lambda: False)
    assert clock.polls == polls
    assert made.stream._budget.limit_ns == 0


def test_a_poll_ends_though_there_is_always_work(made: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others want the interpreter's lock, and a call may have a deadline."""
    clock = Clock(made, monkeypatch, 1_000_000, 100_000)
    assert not made.stream._poll(lambda: False)
    assert clock.polls == BUSY_NS // clock.step_ns


def test_what_comes_with_the_last_turn_is_found(made: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(made, monkeypatch, 3, MORE_NS // 2)
    made.stream._budget.limit_ns = 0
    assert made.stream._poll(lambda: clock.polls == 4)


@pytest.mark.parametrize(
    ("step_ns", "polls", "contended"),
    [(OTHERS_NS - 1, 1, False), (OTHERS_NS, 2, False), (PEER_NS, 2, True), (PEER_NS + 1, 1, True)],
)
def test_who_has_let_others_run_looks_once_more(
    made: Scripted, monkeypatch: pytest.MonkeyPatch, step_ns: int, polls: int, contended: bool
) -> None:
    """A peer on the same processor has answered then; one that computes has kept it for longer."""
    clock = Clock(made, monkeypatch, 0, step_ns)
    made.stream._budget.limit_ns = 0
    assert not made.stream._poll(lambda: False)
    assert clock.polls == polls
    assert made.stream._budget.limit_ns == 0
    assert made.stream._budget.contended(clock.now_ns) == contended


def test_what_others_have_done_meanwhile_makes_polls_worth_their_time_again(
    made: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(made, monkeypatch, 0, OTHERS_NS)
    made.stream._budget.limit_ns = 0
    assert made.stream._poll(lambda: clock.polls == 2)
    assert made.stream._budget.limit_ns == LONGEST_NS
    assert not made.stream._budget.contended(clock.now_ns)


def test_each_time_that_others_have_run_is_followed_by_one_look(
    made: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(made, monkeypatch, 1, OTHERS_NS)
    made.stream._budget.limit_ns = 0
    assert not made.stream._poll(lambda: False)
    assert clock.polls == 3, "one that works, one beside which others run, and the look behind it"


def in_ring(made: Scripted, number: int, immediate: int) -> None:
    receiver: Any = made.stream.receiver
    receiver.memory[(NOTIFICATION_RING >> 3) + number % RING_ENTRIES] = number << 32 | immediate


def has_said_in_memory(made: Scripted) -> None:
    """The peer has: its first notification."""
    made.arrives(Notification(CREDIT, in_memory=True).encode())
    made.stream._pump()
    assert made.state.peer_in_memory


def test_memory_is_not_looked_at_before_the_peer_says_so(made: Scripted) -> None:
    in_ring(made, 1, data(5))
    assert not made.stream._has_news()
    made.stream._pump()
    assert made.state.own.available == 0


def test_what_stands_in_memory_is_taken_in_its_order(made: Scripted) -> None:
    has_said_in_memory(made)
    assert not made.stream._has_news()
    for number in (4, 2, 3):
        in_ring(made, number, data(number))
    assert made.stream._has_news()
    made.stream._pump()
    assert (made.state.received, made.state.own.available) == (4, 9)
    assert not made.stream._has_news()
    in_ring(made, 6, data(1))
    assert not made.stream._has_news()


def test_an_immediate_comes_behind_what_was_told_in_memory_before(made: Scripted) -> None:
    """Number 3 is the immediate: number 2 before it, 4 behind it."""
    has_said_in_memory(made)
    in_ring(made, 2, data(20))
    in_ring(made, 4, data(40))
    order: list[int] = []

    class Own(RecordA):
        def arrived(self, length: int, aligned: bool = False) -> None:
            order.append(length)
            super().arrived(length, aligned)

    made.state.own = Own(POOL)
    made.arrives(data(30))
    made.stream._pump()
    assert order == [20, 30, 40]
    assert made.state.received == 4


def test_credit_in_memory_is_seen_without_a_notification(made: Scripted) -> None:
    has_said_in_memory(made)
    made.state.next_data(100, POOL)
    receiver: Any = made.stream.receiver
    receiver.memory[0], receiver.memory[1] = 60, 1
    assert made.stream._has_news()
    made.stream._pump()
    assert (made.state.peers.head, made.state.peers.done) == (60, 1)
    assert not made.stream._has_news()


def test_forged_words_in_memory_end_the_connection(made: Scripted) -> None:
    has_said_in_memory(made)
    in_ring(made, 2, fin(True))
    made.stream._pump()
    assert made.said == [Notification(RESET).encode()]
    assert made.stream.error == errno.ECONNRESET


def test_forged_credit_in_memory_ends_the_connection(made: Scripted) -> None:
    has_said_in_memory(made)
    receiver: Any = made.stream.receiver
    receiver.memory[0] = 1
    made.stream._pump()
    assert made.stream.error == errno.ECONNRESET


@pytest.mark.parametrize("waits", ["sleeps", "watched", "neither"])
def test_who_sleeps_when_the_peer_begins_to_tell_in_memory_asks_for_an_event(
    made: Scripted, waits: str
) -> None:
    made.stream._sleeping = int(waits == "sleeps")
    made.stream._watched = waits == "watched"
    has_said_in_memory(made)
    assert (("event", 1) in made.noted) == (waits != "neither")


def test_who_is_going_to_sleep_asks_for_an_event_and_looks_once_more(made: Scripted) -> None:
    has_said_in_memory(made)
    made.sender.meanwhile = lambda: in_ring(made, 2, data(5)) if made.state.received == 1 else None
    made.stream._count_sleeper(1)
    assert ("arm", False) in made.noted
    assert ("event", 1) in made.noted
    assert made.state.own.available == 5
    del made.noted[:]
    made.stream._count_sleeper(-1)
    assert made.noted == []


@pytest.mark.parametrize(("watched", "polls", "wanted"), [
    (False, True, WAKE), (True, True, IMMEDIATE), (False, False, IMMEDIATE),
])  # fmt: skip
def test_who_sleeps_in_a_call_and_drives_its_adapter_is_only_woken(
    made: Scripted, watched: bool, polls: bool, wanted: int
) -> None:
    has_said_in_memory(made)
    made.stream._watched, made.stream._polls = watched, polls
    made.stream._count_sleeper(1)
    sender: Any = made.sender
    assert sender.wanted == wanted


def test_a_request_that_was_answered_with_nothing_new_is_made_anew(made: Scripted) -> None:
    """It was made behind what the answer tells of."""
    has_said_in_memory(made)
    made.stream._count_sleeper(1)
    receiver: Any = made.stream.receiver
    for answered in (1, 2):
        receiver.memory[WAKES >> 3] = answered
        assert made.stream._has_news()
        made.stream._pump()
        assert not made.stream._has_news()
        assert made.noted.count(("event", 1 + answered)) == 1


def test_a_peer_that_answers_on_and_on_does_not_keep_a_look_from_its_end(made: Scripted) -> None:
    has_said_in_memory(made)
    receiver: Any = made.stream.receiver

    def answers() -> None:
        receiver.memory[WAKES >> 3] += 1

    made.sender.meanwhile = answers
    made.stream._count_sleeper(1)
    assert len([each for each in made.noted if each[0] == "event"]) == RING_ENTRIES


def test_what_was_told_in_memory_is_confirmed_by_the_same_look(made: Scripted) -> None:
    """Behind its completion."""
    made.sender.unconfirmed = 9
    made.come.append((0, 0, 0, 9))
    made.stream._pump()
    assert made.noted[-2:] == [("retired", 9), "confirmed"]


@pytest.mark.parametrize("waits", ["sleeps", "watched"])
def test_an_event_that_was_spent_is_asked_for_anew(made: Scripted, waits: str) -> None:
    """Though the queue was armed before it was taken."""
    made.stream._sleeping = int(waits == "sleeps")
    made.stream._watched = waits == "watched"
    has_said_in_memory(made)
    made.arrives(made.state.event())
    made.stream._on_event()
    assert [each for each in made.noted if isinstance(each, tuple) and each[0] == "event"] == [
        ("event", 1), ("event", 2)
    ]  # fmt: skip


def test_what_was_written_before_the_event_was_asked_for_is_seen(made: Scripted) -> None:
    made.stream._watched = True
    has_said_in_memory(made)
    made.sender.meanwhile = lambda: in_ring(made, 3, data(7)) if made.state.received == 2 else None
    in_ring(made, 2, data(5))
    made.stream._pump()
    assert made.state.own.available == 12
    assert made.noted.count(("event", 3)) == 1


def test_an_event_that_comes_while_credit_is_told_is_asked_for_anew(made: Scripted) -> None:
    """It is taken by the look behind that."""
    made.stream._watched = True
    has_said_in_memory(made)

    def credit_is_told() -> None:
        made.sender.unconfirmed = 9
        made.arrives(made.state.event())

    made.requests.meanwhile = credit_is_told
    made.arrives(*[made.state.event()] * OWED)
    made.stream._pump()
    assert made.state.received == OWED + 2
    assert made.noted[-1] == ("event", OWED + 2)


def test_a_completion_in_error_ends_the_connection_and_answers_for_nothing(made: Scripted) -> None:
    made.come += [(5, 0, 0, 9), (5, int(e.IBV_WC_RECV), data(), 0)]
    made.stream._owed = OWED
    made.stream._pump()
    assert made.stream.error == errno.ECONNRESET
    assert (("retired", 9) in made.noted, made.state.own.available) == (False, 0)
    assert ("receives", OWED) not in made.noted


@pytest.mark.parametrize(
    ("change", "may"),
    [("", True), ("unopened", False), ("no room", False), ("full", False), ("no copies", False),
     ("no copies, deaf", True), ("no room, said", True), ("unopened, error", True)],
)  # fmt: skip
def test_who_may_send_finds_room_everywhere_or_is_told_of_the_end(
    made: Scripted, change: str, may: bool
) -> None:
    staging = made.sender.staging = Staging.__new__(Staging)
    staging.length, staging.head, staging.tail = 4096, 1000, 4583
    if "unopened" in change:
        made.state.opened = False
    if "no room" in change:
        made.state.next_data(POOL, POOL)
    if "full" in change:
        made.sender.inflight.extend((number, 0, None) for number in range(MESSAGES))
    if "no copies" in change:
        staging.tail += 1
    made.state.deaf, made.state.said_fin = "deaf" in change, "said" in change
    made.stream.error = errno.ECONNRESET if "error" in change else 0
    assert made.stream.writable is may


@pytest.mark.parametrize("change", ["data", "end", "error", "ended here", ""])
def test_who_may_receive_finds_bytes_or_an_end(made: Scripted, change: str) -> None:
    if change == "data":
        made.arrives(data())
    elif change == "end":
        made.arrives(fin(False))
    made.stream._pump()
    made.stream.error = errno.ECONNRESET if change == "error" else 0
    made.stream.receiving_ended = change == "ended here"
    assert made.stream.readable is (change != "")
    made.stream._state = None  # type: ignore[assignment]
    assert not made.stream.readable


def test_nothing_is_told_to_whom_is_gone(made: Scripted) -> None:
    made.stream.error = errno.ECONNRESET
    made.stream._credit(True, True)
    made.stream._send_fin(True)
    made.stream._send_reset()
    assert (made.noted, made.said) == ([], [])


@pytest.mark.parametrize("in_memory", [False, True])
def test_whether_the_adapter_writes_in_place_is_asked_less_and_less_often_and_told_once(
    made: Scripted, in_memory: bool
) -> None:
    asked: list[int] = []
    told: list[int] = []
    places = iter([False] * 14 + [True])
    made.stream._writes_in_place = lambda: asked.append(made.sender.number) or next(places)  # type: ignore[method-assign]
    made.sender.tell_in_memory = lambda: told.append(made.sender.number)  # type: ignore[method-assign]
    made.stream._next_look, made.stream._may_tell_in_memory = 1, in_memory
    for number in range(1, 3 * LOOK_EACH + 1):
        made.sender.number = number
        if number >= made.stream._next_look:
            made.stream._look_for_place()
    assert asked == [1 << power for power in range(13)] + [2 * LOOK_EACH, 3 * LOOK_EACH]
    assert told == ([3 * LOOK_EACH] if in_memory else [])
    assert made.stream._requests.in_place
    assert made.stream._next_look == (4 * LOOK_EACH if in_memory else NEVER)
    made.sender.in_memory = True
    made.stream._look_for_place()
    assert (len(asked), len(told)) == (15, int(in_memory))


def test_who_waits_while_another_takes_is_woken_when_the_lock_is_given_back(made: Scripted) -> None:
    # The other has taken the last completion and has not looked at it yet: nothing tells that there was one.
    stream = made.stream
    taken, looked = threading.Event(), threading.Event()

    def other() -> None:
        stream._lock.acquire()
        stream._pumping = True
        taken.set()
        looked.wait()
        stream._pumping = False
        stream.unlock()

    thread = threading.Thread(target=other)
    thread.start()
    taken.wait()
    assert not stream._has_ended(READABLE)
    assert "wake" not in made.noted
    looked.set()
    thread.join()
    assert made.noted.count("wake") == 1
