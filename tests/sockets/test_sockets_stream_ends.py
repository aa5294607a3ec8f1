"""How a stream begins and ends, over a scripted device: what is said to the peer, and once."""

from __future__ import annotations

import errno
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from scripted_stream import Scripted, data, fin

from softhca.driver.errors import DriverError
from softhca.driver.rdmacm import events
from softhca.sockets import stream as stream_module
from softhca.sockets.protocol import CREDIT, RESET, Notification

RESETS = [Notification(RESET).encode()]


class Life(Scripted):
    """A stream with all that it gives back; ``closed`` is what it has."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.closed: list[str] = []
        self.soon: list[Any] = []
        monkeypatch.setattr(stream_module.HUB, "soon", self.soon.append)
        stream: Any = self.stream
        stream._channel, stream._end_said, stream._opening = None, False, 0
        self.cmid: Any = SimpleNamespace(
            close=lambda: self.closed.append("cmid"), disconnect=lambda: self.closed.append("disconnect")
        )
        stream._cmid = self.cmid
        stream._cq = SimpleNamespace(close=lambda: self.closed.append("cq"))
        stream.receiver.pool = SimpleNamespace(close=lambda: self.closed.append("pool"))
        self.sender.retired = 0
        self.waits: list[float] = []


@pytest.fixture
def life(monkeypatch: pytest.MonkeyPatch) -> Life:
    return Life(monkeypatch)


@pytest.mark.parametrize(
    ("come", "abruptly", "said"),
    [([], False, [fin(True)]), ([data()], False, RESETS), ([], True, RESETS),
     ([fin(False)], False, [fin(True)]), ([fin(True)], False, []), ([fin(True)], True, [])],
)  # fmt: skip
def test_an_end_is_said_as_it_is_and_once(
    life: Life, come: list[int], abruptly: bool, said: list[int]
) -> None:
    life.arrives(*come)
    life.stream.on_change = life.stream.on_stall = lambda: None
    for _ in range(2):
        assert life.stream.say_end(abruptly) is bool(said)
    assert life.said == said
    assert (life.stream.on_change, life.stream.on_stall) == (None, None)


def test_a_stream_that_was_closed_or_has_failed_says_no_end(life: Life) -> None:
    life.stream.error = errno.ECONNRESET
    assert life.stream.say_end()
    life.stream.destroy()
    assert not life.stream.say_end()
    assert life.said == []


@pytest.mark.parametrize(
    ("unanswered", "failed", "waits"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_a_close_waits_until_what_was_sent_has_arrived(
    life: Life, unanswered: bool, failed: bool, waits: bool
) -> None:
    life.sender.waits = unanswered
    life.stream.error = errno.ECONNRESET if failed else 0
    drained: list[bool] = []

    def wait(ready: Any, deadline_s: float | None) -> bool:
        drained.append(ready())
        return True

    life.stream.wait = wait  # type: ignore[method-assign]
    life.stream.close(2.0)
    assert drained == [not waits]
    assert life.closed == ["cmid", "cq", "pool"]
    life.stream.close(2.0)
    assert (len(drained), life.closed) == (1, ["cmid", "cq", "pool"])


def test_a_close_ends_though_the_device_fails(life: Life) -> None:
    def gone(*_: object) -> bool:
        raise DriverError(errno.EIO, "the adapter is gone")

    life.stream.wait = gone  # type: ignore[method-assign,assignment]
    life.cmid.close = gone
    life.stream.close(2.0)
    assert life.closed == ["cq", "pool"]


def test_who_is_refused_is_told_and_given_back(life: Life) -> None:
    life.stream.refuse()
    assert (life.said, life.closed) == (RESETS, ["cmid", "cq", "pool"])
    life.stream.refuse()
    assert (life.said, life.closed) == (RESETS, ["cmid", "cq", "pool"])


def test_a_failure_ends_the_connection_at_its_manager_unless_it_is_closed(life: Life) -> None:
    life.stream._fail(errno.ECONNRESET)
    (part,) = life.soon
    part()
    assert life.closed == ["disconnect"]
    life.stream.destroy()
    part()
    assert life.closed == ["disconnect", "cmid", "cq", "pool"]


def test_a_stream_that_is_closed_fails_no_more(life: Life) -> None:
    life.stream.destroy()
    life.stream.on_change = lambda: pytest.fail("a closed stream tells of nothing")
    for tell in (life.stream.peer_gone, life.stream.device_ended, life.stream.refresh, life.stream.probe):
        tell()
    assert (life.stream.error, life.said, life.soon) == (errno.EBADF, [], [])
    assert life.stream.take_error() == 0
    life.stream.error = errno.ECONNRESET
    assert life.stream.take_error() == errno.ECONNRESET


def test_an_adapter_that_is_gone_resets_the_connection(life: Life) -> None:
    told: list[int] = []
    life.stream.on_change = lambda: told.append(life.stream.error)
    life.stream.device_ended()
    assert (life.stream.error, told) == (errno.ECONNRESET, [errno.ECONNRESET])


@pytest.mark.parametrize(
    ("come", "under_way", "code"),
    [([], False, errno.ECONNRESET), ([fin(True)], False, 0), ([fin(True)], True, errno.ECONNRESET)],
)
def test_the_manager_s_word_that_the_peer_has_gone_comes_behind_what_was_sent(
    life: Life, come: list[int], under_way: bool, code: int
) -> None:
    """Who waits for an answer to what is under way is told at once, not when all retries have failed."""
    life.sender.waits = under_way
    said = deque([SimpleNamespace(kind=events.ESTABLISHED), SimpleNamespace(kind=events.DISCONNECTED)])
    inner = SimpleNamespace(next_event=lambda _: said.popleft() if said else None, on_post=None)
    channel: Any = SimpleNamespace(channel=inner, close=lambda: life.closed.append("channel"))
    life.arrives(*come)
    life.stream.follow(channel)
    assert life.soon == [life.stream._hear]
    inner.on_post()
    assert life.soon == [life.stream._hear] * 2
    life.soon.pop()()
    assert (life.stream.error, len(said)) == (code, 0)
    life.stream.destroy()
    assert (inner.on_post, life.closed[-2:]) == (None, ["channel", "pool"])
    life.stream._hear()  # nothing to be heard any more


def test_any_other_word_of_the_manager_means_nothing(life: Life) -> None:
    said = deque([SimpleNamespace(kind=events.ESTABLISHED)])
    inner = SimpleNamespace(next_event=lambda _: said.popleft() if said else None)
    life.stream._channel = SimpleNamespace(channel=inner)  # type: ignore[assignment]
    life.stream._hear()
    assert (life.stream.error, life.stream._goodbye) == (0, False)


def test_who_has_asked_is_told_when_the_peer_s_adapter_has_its_word(life: Life) -> None:
    life.state.opened = False
    assert not life.stream.opened
    life.sender.number = 6
    life.stream.open()
    assert life.stream.opened
    assert "credit" in life.noted, "though there is nothing to tell"
    for retired, error, told in ((6, 0, False), (7, 0, True), (6, errno.ECONNRESET, True)):
        life.sender.retired, life.stream.error = retired, error
        assert life.stream.told is told


def test_a_stream_without_a_peer_is_not_opened_and_ends_in_silence(life: Life) -> None:
    life.stream._state = None  # type: ignore[assignment]
    assert not life.stream.opened
    assert life.stream.held_bytes == 0
    life.stream.refuse()
    assert (life.said, life.closed) == ([], ["cmid", "cq", "pool"])


def test_halves_end_one_by_one_and_all_are_told(life: Life) -> None:
    told: list[bool] = []
    life.stream.on_change = lambda: told.append(life.stream.readable)
    life.stream.shutdown(reading=True, writing=False)
    assert (life.said, told[-1]) == ([], True)
    life.arrives(data())
    assert life.stream.receive(lambda: 1, None, False) == 0, "what comes is not read"
    life.stream.shutdown(reading=False, writing=True)
    assert life.said == [fin(False)]
    with pytest.raises(BrokenPipeError):
        life.stream.send([memoryview(b"x")], None, False)


@pytest.mark.parametrize("blocking", [True, False])
def test_who_receives_nothing_is_told_why(life: Life, blocking: bool) -> None:
    life.stream._progress = lambda: False
    life.stream.wait = lambda ready, deadline_s: False  # type: ignore[method-assign]
    with pytest.raises(TimeoutError if blocking else BlockingIOError):
        life.stream.receive(lambda: 1, 0.0, blocking)

    def brings() -> bool:
        life.arrives(data(3))
        return True

    life.stream._progress = brings
    if not blocking:
        assert life.stream.receive(lambda: 3, None, False) == 3, "what a look at the device brings is taken"


def test_bytes_that_the_device_brings_while_one_looks_are_sent_on(life: Life) -> None:
    """Nobody waits, and one look at the device is enough to go on."""
    room = [False]
    stalls: list[bool] = []
    life.stream.on_stall = lambda: stalls.append(True)
    life.stream._finds_room = lambda: room.append(True) or len(room) == 2  # type: ignore[method-assign]
    posted = iter([(0, False), (3, False), (0, False)])
    life.stream._send_some = lambda *_: next(posted)  # type: ignore[method-assign]
    assert life.stream.send([memoryview(b"12345")], None, False) == 3
    assert stalls == [True, True]


def test_messages_that_are_told_are_the_peer_s_word_that_it_is_there(life: Life) -> None:
    life.state.opened = False
    life.arrives(Notification(CREDIT).encode())
    life.stream._pump()
    assert life.stream.opened


@pytest.mark.parametrize("step", ["cmid", "cq", "pool"])
def test_what_a_signal_handler_interrupts_in_the_end_of_a_stream_the_hub_does(life: Life, step: str) -> None:
    stream: Any = life.stream
    one = {"cmid": life.cmid, "cq": stream._cq, "pool": stream.receiver.pool}[step]
    close = one.close

    def interrupted() -> None:
        one.close = close
        raise KeyboardInterrupt

    one.close = interrupted
    with pytest.raises(KeyboardInterrupt):
        stream.destroy()
    stream.destroy()
    assert stream._closed
    assert step not in life.closed
    (rest,) = life.soon
    rest()
    assert set(life.closed) == {"cmid", "cq", "pool"}
    assert stream._handle.on_event is None
