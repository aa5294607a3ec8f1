"""A connection that nobody waits for, step by step: whom it asks, whose answer counts, what is given back."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from softhca.machine.condition import Condition
from softhca.machine.kernel_sockets import KernelSocket
from softhca.sockets import in_progress
from softhca.sockets.connecting import mapped
from softhca.sockets.in_progress import InProgress
from softhca.sockets.memory_processing import PoolError
from softhca.sockets.settings import Settings

GIDS = [mapped(f"192.0.2.{number}") for number in (1, 2)]


class Asked:
    """One question; ``begins`` says whether it can be asked at all."""

    opening = False
    told = False

    def __init__(self, world: World, gid: bytes) -> None:
        self.world, self.gid = world, gid
        self.ended = self.handed = 0
        self.stream: Any = None
        self.answer: Any = None
        self.posted: Callable[[], object] | None = None

    def begin(self, posted: Callable[[], object]) -> bool:
        self.posted = posted
        return self.gid not in self.world.silent

    def next_event(self, _: int) -> Any:
        return self.answer

    def answered(self, event: Any) -> Any:
        self.stream = None if event in (None, "no") else Stream(event == "at once")
        return self.stream

    def take(self) -> Any:
        return self.stream

    def end(self) -> None:
        self.ended += 1

    def hand_over(self) -> None:
        self.handed += 1


class Stream:
    """What an answer makes; ``at_once``: it has changed already."""

    def __init__(self, at_once: bool) -> None:
        self.at_once, self.destroyed = at_once, 0
        self.on_change: Any = None

    def refresh(self) -> None:
        if self.at_once and self.on_change is not None:
            self.on_change()

    def destroy(self) -> None:
        self.destroyed += 1


class World:
    """The hub, a socket of the program's, and a TCP connection that begins with ``code``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.soon_called: list[Callable[[], object]] = []
        self.later: list[tuple[float, Callable[[], object]]] = []
        self.watched: dict[int, tuple[Callable[[], object], int]] = {}
        self.asked: list[Asked] = []
        self.silent: set[bytes] = set()
        self.refusals: list[bytes] = []
        self.code, self.error, self.refused = errno.EINPROGRESS, 0, False
        self.states: list[tuple[bool, bool]] = []
        self.connected: list[tuple[Any, int]] = []
        monkeypatch.setattr(in_progress, "CONNECTING", self)
        monkeypatch.setattr(in_progress, "Asking", self._asking)
        monkeypatch.setattr(in_progress, "Upgrade", self._upgrade)
        where = SimpleNamespace(own_address=lambda *_: ("192.0.2.9", 7), was_refused=lambda _: self.refused,
                                remember_refusal=self.refusals.append, FAILED=(KeyError,))  # fmt: skip
        monkeypatch.setattr(in_progress, "connecting", where)
        monkeypatch.setattr(in_progress, "KernelSocket", SimpleNamespace(fileno=lambda _: 40))
        one = self.one = InProgress.__new__(InProgress)
        one._settings = Settings(connect_s=3.0, **settings)
        one._towards, one._host, one._port, one._address = ("192.0.2.1", 5), "192.0.2.1", 5, GIDS[0]
        one._changed_lock = threading.RLock()
        one._changed = Condition(one._changed_lock)
        one._over = one._is_a_parent_s = one._followed = one._woken = False
        one._made = contextlib.ExitStack()
        one._question = one._asking = one._stream = None
        one._gids = list(GIDS)
        one._readiness = SimpleNamespace(  # type: ignore[assignment]
            set=lambda *state: self.states.append(state), let_go=lambda: None, close=lambda: None
        )
        self.closed = 0
        one.tcp = SimpleNamespace(  # type: ignore[assignment]
            fileno=lambda: -1 if self.closed else 30, close=self._close, connect_ex=lambda _: self.code,
            getsockopt=lambda *_: self.error, getsockname=lambda: ("192.0.2.9", 7),
        )  # fmt: skip
        self.program = SimpleNamespace(
            _upgrade=one, connected=lambda made, code, *_: self.connected.append((made, code))
        )
        one._owner = lambda: self.program  # type: ignore[assignment,method-assign]

    def _close(self) -> None:
        self.closed += 1

    def _asking(self, gid: bytes, *_: Any) -> Asked:
        self.asked.append(Asked(self, gid))
        return self.asked[-1]

    def _upgrade(self, *what: Any) -> Any:
        self.upgrade = SimpleNamespace(left=[], what=what)
        self.upgrade.leave = lambda abruptly: self.upgrade.left.append(abruptly)
        return self.upgrade

    def soon(self, callback: Callable[[], object]) -> None:
        self.soon_called.append(callback)

    def after(self, seconds: float, callback: Callable[[], object]) -> None:
        self.later.append((seconds, callback))

    def watch(self, fd: int, callback: Callable[[], object], events: int) -> None:
        self.watched[fd] = callback, events

    def forget(self, fd: int) -> None:
        self.watched.pop(fd, None)

    def turn(self) -> None:
        """The hub calls what it was told to."""
        called, self.soon_called = self.soon_called, []
        for each in called:
            each()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(in_progress, "_all", set())
    monkeypatch.setattr(in_progress, "_by_name", weakref.WeakValueDictionary())
    return World(monkeypatch)


def test_who_cannot_be_asked_or_is_silent_makes_way_for_the_next(world: World) -> None:
    world.silent = {GIDS[0]}
    world.one._next()
    first, second = world.asked
    assert (first.gid, first.ended, second.ended) == (GIDS[0], 1, 0)
    ((seconds, late),) = world.later
    assert seconds == 3.0
    assert world.watched == {}
    late()
    assert second.ended == 1
    assert world.one._asking is None


def test_an_answer_is_heard_once_it_is_posted_and_no_late_word_of_another_counts(world: World) -> None:
    world.one._next()
    world.asked[0].answer = "no"
    world.asked[0].posted()  # type: ignore[misc]
    assert world.asked[0].handed == 1
    world.turn()
    first, second = world.asked
    assert (first.ended, second.ended) == (1, 0)
    first.answer = "yes"
    world.later[0][1]()  # the first one's time is over: it is another one's by now
    assert (second.ended, first.stream, world.one._asking) == (0, None, second)
    second.answer = "yes"
    second.opening = True
    second.posted()  # type: ignore[misc]
    world.turn()
    assert second.stream is None  # its device is being opened


def test_the_word_that_the_answer_has_come_is_waited_for_a_while(world: World) -> None:
    world.one._next()
    (asked,) = world.asked
    asked.answer = "yes"
    asked.posted()  # type: ignore[misc]
    world.turn()
    assert [seconds for seconds, _ in world.later] == [3.0, 3.0]
    asked.stream.on_change()
    world.turn()
    assert world.watched == {}  # it has not
    world.later[1][1]()
    assert (world.watched[30][1], asked.stream.on_change) == (select.EPOLLOUT, None)
    world.watched[30][0]()
    assert world.watched == {}
    assert world.connected == [(world.upgrade, 0)]
    assert world.upgrade.what[0] is asked.stream


def test_what_had_changed_before_anybody_looked_is_seen(world: World) -> None:
    world.one._next()
    (asked,) = world.asked
    asked.answer, asked.told = "at once", True
    asked.posted()  # type: ignore[misc]
    world.turn()
    world.turn()
    assert 30 in world.watched


@pytest.mark.parametrize(
    ("fails", "code"),
    [(PoolError(MemoryError()), errno.ENOBUFS), (ValueError(), errno.EIO),
     (OSError(errno.ENODEV, "gone"), errno.ENODEV)],
)  # fmt: skip
def test_a_step_that_fails_ends_it_and_frees_the_stream(
    world: World, monkeypatch: pytest.MonkeyPatch, fails: Exception, code: int
) -> None:
    left: list[int] = []
    monkeypatch.setattr(world.one, "_leave_to_kernel", left.append)
    stream = world.one._stream = Stream(False)  # type: ignore[assignment]

    def step() -> None:
        raise fails

    world.one._step(step)
    assert (left, stream.destroyed, world.one._stream) == ([code], 1, None)
    world.one._over = True
    world.one._step(step)
    assert left == [code]


def test_by_the_manager_alone_nobody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, by_cm=True)
    left: list[int] = []
    monkeypatch.setattr(world.one, "_leave_to_kernel", left.append)
    world.one._gids = []
    world.one._next()
    assert left == [errno.ECONNREFUSED]
    world.one._found([])
    assert [each.gid for each in world.asked] == [GIDS[0]]


def test_a_connection_that_nobody_wants_any_more_is_left(world: World) -> None:
    stream = world.one._stream = Stream(False)  # type: ignore[assignment]
    world.one._over = True
    world.one._connected(0)
    assert (world.upgrade.left, world.connected) == ([True], [])
    assert world.upgrade.what[0] is stream


def test_whoever_waits_is_woken_by_a_leave_which_gives_all_back(world: World) -> None:
    called_off: list[str] = []
    woken: list[int] = []
    world.one._changed.notify_all = lambda: woken.append(1)  # type: ignore[method-assign]
    question = SimpleNamespace(call_off=lambda: called_off.append("question"))
    world.one._question = question  # type: ignore[assignment]
    stream = world.one._stream = Stream(False)  # type: ignore[assignment]
    world.one._made.callback(called_off.append, "made")
    for _ in range(2):
        world.one.leave(True)
    assert woken == [1]
    world.turn()
    assert (called_off, stream.destroyed) == (["question", "made"], 1)


def test_who_polls_is_woken_once_and_a_refusal_remembered(world: World) -> None:
    world.refused = True
    for _ in range(2):
        world.one._wake()
    assert (world.states, world.refusals, world.closed) == ([(False, True)], [GIDS[0]], 1)
    assert len(world.later) == 1


def test_whose_place_another_thread_has_taken_is_over(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for asked, place in ((False, True), (True, False)):
        world.one._over = False
        monkeypatch.setattr(world.one, "_ask", lambda asked=asked: asked)
        monkeypatch.setattr(world.one, "_take_place", lambda place=place: place)
        assert not world.one.begin()
        assert world.one._over
        assert world.soon_called == ([world.one._call_off] if asked else [])


class Program(KernelSocket):
    """A socket of the program's."""

    _upgrade: Any = None


def test_meanwhile_a_number_is_neither_readable_nor_writable_and_does_not_block() -> None:
    with Program() as one:
        made = InProgress(one, ("192.0.2.1", 5), Settings())  # type: ignore[arg-type]
        os.set_blocking(one.fileno(), True)
        assert made._take_place()
        assert one._upgrade is made
        assert os.fstat(one.fileno()).st_ino == made._readiness.inode
        assert not os.get_blocking(one.fileno())
        assert made.tcp.getblocking() is False
        poll = select.poll()
        poll.register(one.fileno(), select.POLLIN | select.POLLOUT)
        assert poll.poll(0) == []
        made._made.close()
        assert made.tcp.fileno() == -1


def test_a_place_that_cannot_be_taken_is_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> None:
        raise OSError(errno.EMFILE, "none left")

    monkeypatch.setattr(in_progress.Readiness, "replace", none_left)
    with Program() as one:
        made = InProgress(one, ("192.0.2.1", 5), Settings())  # type: ignore[arg-type]
        with pytest.raises(OSError, match="none left"):
            made._take_place()
        assert one._upgrade is None
        made._made.close()
        one._upgrade = other = object()
        made = InProgress(one, ("192.0.2.1", 5), Settings())  # type: ignore[arg-type]
        assert not made._take_place()
        assert one._upgrade is other
        made._made.close()
