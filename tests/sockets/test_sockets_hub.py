"""The thread of all sockets: what it calls and when, what rests for a moment, and what a child keeps."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from machine_speed import limit_s
from softhca.sockets import hub
from softhca.sockets.hub import PAUSE_S, Hub

LOST: list[select.epoll] = []
"""Whose descriptors were closed: they would close another one's number when they are collected."""


class Turning(Hub):
    """A hub whose thread this test is: `turn` goes round once.  ``now`` is its clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__("test")
        self.now = 100.0
        self.began = 0
        self.fails = False
        monkeypatch.setattr(hub, "time", SimpleNamespace(monotonic=lambda: self.now))
        threads = SimpleNamespace(
            Thread=self._made, RLock=threading.RLock, current_thread=threading.current_thread
        )
        monkeypatch.setattr(hub, "threading", threads)

    def _made(self, **_: object) -> Any:
        def begin() -> None:
            self.began += 1
            if self.fails:
                raise RuntimeError("can't start new thread")

        return SimpleNamespace(start=begin)

    def turn(self) -> list[int]:
        """What the thread does once something has come or is due; what had come."""
        assert self._epoll is not None
        found, kept = self._epoll.poll(0), self._epoll
        polls = iter((found,))

        class Once:
            def poll(self, _: object) -> list[tuple[int, int]]:
                try:
                    return next(polls)
                except StopIteration:
                    raise End from None

            def __getattr__(self, name: str) -> Any:
                return getattr(kept, name)

        self._epoll = Once()  # type: ignore[assignment]
        try:
            with contextlib.suppress(End):
                self._run()
        finally:
            if isinstance(self._epoll, Once):
                self._epoll = kept
        return [fd for fd, _ in found]


class End(Exception):
    """The test's turn is over."""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Turning]:
    one = Turning(monkeypatch)
    yield one
    if one._epoll is not None:
        one._epoll.close()
    if one._bell >= 0:
        os.close(one._bell)


@pytest.fixture
def ready() -> Iterator[int]:
    fd = os.eventfd(1, os.EFD_NONBLOCK)
    yield fd
    os.close(fd)


def test_a_thread_is_made_once_and_where_there_is_none_that_is_told(made: Turning) -> None:
    made.fails = True
    with pytest.raises(OSError, match="new thread") as told:
        made.start()
    assert told.value.errno == errno.EAGAIN
    made.fails = False
    for _ in range(3):
        made.start()
    assert made.began == 2


def test_what_is_watched_is_called_until_it_is_forgotten(made: Turning, ready: int) -> None:
    called: list[str] = []
    made.watch(ready, lambda: called.append("come"))
    for _ in range(2):
        made.turn()
    assert called == ["come"] * 2
    for _ in range(2):
        made.forget(ready)
    made.turn()
    made.watch_again(ready, select.EPOLLIN)  # nothing of one that is not watched
    assert called == ["come"] * 2


def test_one_that_cannot_be_watched_is_not(made: Turning, tmp_path: Any) -> None:
    with (tmp_path / "file").open("wb") as file:
        with pytest.raises(PermissionError):
            made.watch(file.fileno(), lambda: None)  # an epoll takes no files
        assert made._callbacks == {}


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS])
def test_who_finds_nothing_left_rests_a_moment(made: Turning, ready: int, code: int) -> None:
    called: list[float] = []

    def none_left() -> None:
        called.append(made.now)
        raise OSError(code, os.strerror(code))

    made.watch(ready, none_left)
    made.turn()
    assert ready not in made.turn()  # the bell at most
    made.now += PAUSE_S
    made.turn()
    assert ready in made.turn()
    assert called == [100.0, 100.0 + PAUSE_S]


def test_any_other_failure_makes_nobody_rest(made: Turning, ready: int) -> None:
    def refused() -> None:
        raise ConnectionResetError(errno.ECONNRESET, "reset")

    made.watch(ready, refused)
    made.turn()
    assert ready in made.turn()


def test_a_number_that_is_another_one_s_by_now_is_not_watched_for_the_one_before(
    made: Turning, ready: int
) -> None:
    called: list[str] = []

    def none_left() -> None:
        raise OSError(errno.EMFILE, "none left")

    made.watch(ready, none_left)
    made.turn()
    made.forget(ready)
    made.watch(ready, lambda: called.append("other"), select.EPOLLPRI)
    made.now += PAUSE_S
    made.turn()
    assert ready not in made.turn()
    assert called == []


def test_a_number_that_is_another_one_s_by_now_does_not_rest(made: Turning, ready: int) -> None:
    called: list[str] = []

    def none_left() -> None:
        made.forget(ready)
        made.watch(ready, lambda: called.append("other"))
        raise OSError(errno.EMFILE, "none left")

    made.watch(ready, none_left)
    for _ in range(2):
        made.turn()
    assert called == ["other"]


def test_what_is_due_is_called_in_its_order_and_those_of_one_moment_as_they_came(made: Turning) -> None:
    called: list[int] = []
    made.start()
    for number, seconds in enumerate((2.0, 1.0, 1.0, 3.0)):
        made.after(seconds, lambda number=number: called.append(number))  # type: ignore[misc]
    assert made._until_due() == 1.0
    made.turn()
    assert called == []
    made.now += 2
    made.turn()
    assert called == [1, 2, 0]
    assert made._until_due() == 1.0
    made.now += 9
    assert made._until_due() == 0.0
    made.turn()
    assert made._until_due() is None


def test_a_sleeping_thread_hears_of_what_is_due_and_of_what_is_to_be_called(made: Turning) -> None:
    called: list[str] = []
    made.start()
    made.after(5, lambda: called.append("late"))
    assert made.turn() == [made._bell]  # so that it learns for how long it may sleep
    assert made.turn() == []
    made.soon(lambda: called.append("soon"))
    assert made.turn() == [made._bell]
    assert called == ["soon"]


def test_an_epoll_that_somebody_has_closed_is_made_anew_with_all_that_was_watched(
    made: Turning, ready: int
) -> None:
    called: list[str] = []
    writes = os.eventfd(0, os.EFD_NONBLOCK)
    made.watch(writes, lambda: called.append("writable"), select.EPOLLOUT)
    made.soon(lambda: called.append("soon"))
    assert made._epoll is not None
    before = made._bell
    os.eventfd_read(before)
    LOST.append(made._epoll)
    os.close(made._epoll.fileno())
    made.watch(ready, lambda: called.append("readable"))
    assert made._bell != before
    made.turn()
    assert sorted(called) == ["readable", "soon", "writable"]
    assert os.eventfd_read(before) == 1  # the thread leaves the one before
    os.close(writes)
    os.close(before)


ONCE = select.EPOLLIN | select.EPOLLONESHOT


@pytest.mark.parametrize("when", ["before", "since"])
def test_an_epoll_that_is_made_anew_has_what_was_watched_for_last(
    made: Turning, ready: int, when: str
) -> None:
    """Else one that was watched for one event only would be heard of once more, and never again."""
    made.watch(ready, lambda: None, ONCE)
    if when == "before":
        made.watch_again(ready, select.EPOLLIN)
    assert made._epoll is not None
    bell, other = made._bell, os.eventfd(0)
    LOST.append(made._epoll)
    os.close(made._epoll.fileno())
    if when == "since":
        made.watch_again(ready, select.EPOLLIN)
    else:
        made.watch(other, lambda: None)
    for _ in range(3):
        assert ready in made.turn()
    os.close(bell)
    os.close(other)


def test_who_rests_is_watched_for_what_was_wanted_last(made: Turning, ready: int) -> None:
    def none_left() -> None:
        made.watch_again(ready, select.EPOLLIN)
        raise OSError(errno.EMFILE, "none left")

    made.watch(ready, none_left, ONCE)
    made.turn()
    assert ready not in made.turn()
    made.now += PAUSE_S
    made.turn()
    for _ in range(2):
        assert ready in made.turn()
        made.now += PAUSE_S
        made.turn()


def test_an_error_of_one_callback_is_not_the_others(made: Turning) -> None:
    called: list[str] = []
    made.start()
    made.soon(lambda: 1 // 0)  # type: ignore[arg-type,return-value]
    made.soon(lambda: called.append("next"))
    made.turn()
    assert called == ["next"]


def test_the_end_of_a_program_waits_for_what_was_sent(made: Turning) -> None:
    """All relays, and then all streams, say so before any is waited for, and are waited for in the same time.
    """
    noted: list[Any] = []

    def relay(name: str) -> Any:
        def wait(limit: float) -> None:
            noted.append((name, limit))
            made.now += 1.5

        return SimpleNamespace(wait=wait, say_end=lambda: noted.append(name))

    def stream(name: str, linger_s: float) -> Any:
        def wait_end(limit: float) -> None:
            noted.append((name, limit))
            made.now += 2

        settings = SimpleNamespace(linger_s=linger_s)
        return SimpleNamespace(settings=settings, wait_end=wait_end, say_end=lambda: noted.append(name))

    made.relays = [relay("up"), relay("down"), relay("on")]  # type: ignore[assignment]
    made.streams = [stream("one", 3), stream("two", 3), stream("three", 3)]  # type: ignore[assignment]
    made.end()
    assert hub.RELAY_S == 2
    assert noted[:6] == ["up", "down", "on", ("up", 2), ("down", 0.5), ("on", 0)]
    assert noted[6:] == ["one", "two", "three", ("one", 3), ("two", 1), ("three", 0)]


def test_a_forked_child_has_nothing_of_its_parent_s(made: Turning, ready: int) -> None:
    noted: list[str] = []
    made.watch(ready, lambda: noted.append("come"))
    made.after(1, lambda: noted.append("due"))
    made.relays = [SimpleNamespace(abandon=lambda: noted.append("relay"))]  # type: ignore[assignment]
    made.streams = [SimpleNamespace(abandon=lambda: noted.append("stream"))]  # type: ignore[assignment]
    made.soon(lambda: noted.append("the parent's"))
    bell = made._bell
    made.after_fork()
    assert noted == ["stream", "relay"]
    assert (made._epoll, made._bell, made._thread, made.relays) == (None, -1, None, set())
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(bell)
    made.soon(lambda: noted.append("soon"))
    made.start()
    made.now += 5
    made.turn()
    assert noted == ["stream", "relay", "soon"]
    assert made.began == 2


class Interrupted(threading.Thread):
    """A thread that runs, and whose start a signal handler's exception has ended; the next one's not."""

    made: ClassVar[list[threading.Thread]] = []

    def start(self) -> None:
        super().start()
        self.made.append(self)
        if len(self.made) == 1:
            raise KeyboardInterrupt


def test_the_thread_of_a_start_that_was_interrupted_is_not_a_second_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, called = Hub("test"), threading.Event()
    monkeypatch.setattr(Interrupted, "made", [])
    monkeypatch.setattr(threading, "Thread", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        one.start()
    assert one._thread is None
    one.start()
    one.start()
    orphan, thread = Interrupted.made
    one.soon(called.set)
    assert called.wait(limit_s(20))
    end_s = time.monotonic() + limit_s(20)
    while orphan.is_alive() and time.monotonic() < end_s:  # either thread may be the one that is woken
        one.soon(lambda: None)
        orphan.join(0.001)
    assert not orphan.is_alive()
    assert thread.is_alive()
    epoll, bell = one._epoll, one._bell
    one._epoll = None
    os.eventfd_write(bell, 1)
    thread.join(limit_s(20))
    assert epoll is not None
    epoll.close()
    os.close(bell)


def test_a_hub_of_its_own_calls_from_another_thread() -> None:
    one, called = Hub("test"), threading.Event()
    one.start()
    one.soon(called.set)
    assert called.wait(limit_s(20))
    epoll, bell = one._epoll, one._bell
    ended = threading.Event()

    def end() -> None:
        one._epoll = None  # its thread leaves
        ended.set()

    one.soon(end)
    assert ended.wait(limit_s(20))
    thread = one._thread
    assert thread is not None
    thread.join(limit_s(20))
    assert not thread.is_alive()
    assert epoll is not None
    epoll.close()
    os.close(bell)
