"""What a stream does with each completion and each end, over a completion queue that is a script."""

from __future__ import annotations

import errno
import threading
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from softhca.sockets import stream as stream_module
from softhca.sockets.protocol import CREDIT, DATA, FIN, RESET, Notification, Offer
from softhca.sockets.stream import Guard, Stream
from softhca.sockets.stream_sending import MESSAGES
from softhca.sockets.stream_state import StreamState
from softhca.verbs import enums as e

POOL = 16 << 10
OWED = 16


class Scripted:
    """A stream whose peer and device are the test: ``come`` are completions, ``noted`` what it does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.noted: list[Any] = []
        self.come: list[Any] = []
        self.said: list[int] = []
        monkeypatch.setattr(stream_module.HUB, "soon", lambda what: self.noted.append("hub"))
        self.stream = stream = object.__new__(Stream)
        stream.error = 0
        stream.on_change = stream.on_stall = None
        stream.receiving_ended = stream.used = False
        stream._lock, stream._guard = threading.RLock(), Guard(stream)
        stream._news = stream._pumping = stream._missed = stream._closed = stream._lost = False
        stream._goodbye = stream._watched = False
        stream._owed = stream._sleeping = 0
        stream._state = self.state = StreamState(POOL, Offer(0x10000, POOL, 7))
        self.state.opened = True
        self.requests = SimpleNamespace(
            receive=lambda count: self.noted.append(("receives", count)),
            notify=lambda number, immediate: self.said.append(immediate),
            probe=lambda number: self.noted.append("probe"),
        )
        self.sender = SimpleNamespace(
            inflight=deque(), requests=self.requests, next=lambda *words: 1, unanswered=False,
            retire=lambda number: self.noted.append(("retired", number)),
            credit=lambda found: self.noted.append("credit"),
        )  # fmt: skip
        stream.sender = self.sender
        stream._requests = self.requests
        stream.receiver = SimpleNamespace(pool=SimpleNamespace(record=lambda: (0, 0)), relieve=lambda: None)
        stream._given_back = deque()
        stream._driver = SimpleNamespace(wake_waiters=lambda: self.noted.append("wake"))
        stream._handle = SimpleNamespace(
            arm=lambda solicited: self.noted.append(("arm", solicited)), poll=self.poll
        )
        stream._waiting = lambda: bool(self.come)

    def poll(self, most: int) -> list[Any]:
        self.noted.append("poll")
        found, self.come = self.come[:most], self.come[most:]
        return found

    def arrives(self, *immediates: int) -> None:
        recv = int(e.IBV_WC_RECV)
        self.come += [SimpleNamespace(status=0, opcode=recv, imm_data=each, wr_id=0) for each in immediates]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    return Scripted(monkeypatch)


def data(length: int = 1) -> int:
    return Notification(DATA, length).encode()


def fin(closed: bool) -> int:
    return Notification(FIN, closed=closed).encode()


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
    made.sender.inflight.extend(range(under_way))
    made.stream._credit(empty=True)
    assert ("credit" in made.noted) is told


@pytest.mark.parametrize(
    ("said", "code"), [([], errno.ECONNRESET), ([fin(False)], errno.ECONNRESET), ([fin(True)], 0)]
)
def test_a_peer_that_goes_without_a_close_has_failed(made: Scripted, said: list[int], code: int) -> None:
    made.arrives(*said)  # it stands in the queue when the peer's end is heard of
    made.stream.peer_gone()
    assert made.stream.error == code


@pytest.mark.parametrize("why", ["", "unanswered", "error", "closed"])
def test_a_peer_is_asked_where_nothing_else_would_tell(made: Scripted, why: str) -> None:
    made.sender.unanswered = why == "unanswered"
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
    stream.receiver.mappings = list
    stream._channel = None
    for name, holder in (("cmid", stream), ("cq", stream), ("pool", stream.receiver)):
        part = SimpleNamespace(close=lambda name=name: closed.append(name))
        setattr(holder, name if name == "pool" else f"_{name}", part)
    made.sender.close = lambda: closed.append("sender")
    stream.error = before
    for _ in range(2):
        stream.destroy()
    assert (stream.error, closed) == (after, ["cmid", "cq", "pool", "sender"])


def test_a_forked_child_wakes_nobody_of_its_parent(made: Scripted) -> None:
    made.stream._missed = True
    made.stream.receiver.pool = SimpleNamespace(abandon=lambda: made.noted.append("abandoned"))
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
