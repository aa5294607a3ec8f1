"""What a connection has beside the kernel's: for how many, who hears of changes, and what its end frees."""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from softhca.machine.kernel_sockets import KernelSocket
from softhca.sockets import upgrade
from softhca.sockets.hub import SIDEBAND_EVENTS
from softhca.sockets.readiness import Readiness
from softhca.sockets.upgrade import ABRUPT_S, Upgrade


class Stream:
    """A stream that notes what is done with it."""

    def __init__(self) -> None:
        self.noted: list[tuple[Any, ...]] = []
        self.settings = SimpleNamespace(linger_s=2.0)
        self.readable, self.writable = False, True
        self.on_change: Callable[[], object] | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *what: self.noted.append((name, *what))

    @property
    def names(self) -> list[str]:
        return [each[0] for each in self.noted]


class World:
    """The hub, and a TCP connection with its other end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.watched: dict[int, tuple[Any, int]] = {}
        self.started = 0
        self.full = False
        monkeypatch.setattr(upgrade, "HUB", self)
        monkeypatch.setattr(upgrade, "Liveness", self._liveness)
        ours, self.peer = socket.socketpair()
        self.tcp = KernelSocket(ours.family, ours.type, fileno=ours.detach())
        self.stream: Any = Stream()
        self.stalled, self.alone = (lambda: None), list[bool]()

    def _liveness(self, stream: object, tcp: object, alone: bool) -> Any:
        self.alone.append(alone)
        return SimpleNamespace(stalled=self.stalled, set_options=lambda: self.alone.append(True))

    def watch(self, fd: int, callback: Any, events: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "max_user_watches")
        self.watched[fd] = callback, events

    def forget(self, fd: int) -> None:
        self.watched.pop(fd, None)

    def start(self) -> None:
        self.started += 1


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(monkeypatch)
    yield made
    made.tcp.close()
    made.peer.close()


def number_of(one: Upgrade) -> int:
    """A number that stands for it."""
    number = os.open(os.devnull, os.O_RDONLY)
    one.readiness.replace(number)
    return number


def test_an_end_of_the_tcp_connection_is_seen_and_told_once(world: World) -> None:
    one = Upgrade(world.stream, world.tcp)
    callback, events = world.watched[world.tcp.fileno()]
    assert (events, world.alone, world.started) == (SIDEBAND_EVENTS, [False], 0)
    assert world.stream.on_stall is world.stalled
    callback()  # of another one, which had that number before
    assert (world.stream.names, len(world.watched)) == ([], 1)
    world.peer.close()
    callback()
    assert (world.stream.names, world.watched) == (["peer_gone"], {})
    one.leave(False)
    callback()  # it is closed
    assert world.stream.names == ["peer_gone", "close", "destroy"]


def test_one_without_a_tcp_connection_has_names_of_its_own(world: World) -> None:
    one = Upgrade(world.stream, world.tcp, (("a", 1), ("b", 2)))
    assert (one.own_name, one.peer_name) == (("a", 1), ("b", 2))
    assert (world.watched, world.started, world.alone, world.stream.names) == ({}, 1, [True], ["watch"])
    one.set_options()
    assert world.alone == [True, True]
    one.leave(False)


def test_the_last_user_ends_it_and_frees_all(world: World) -> None:
    readiness = Readiness()
    one = Upgrade(world.stream, world.tcp, readiness=readiness)
    number = number_of(one)
    assert not one.shared
    assert upgrade.upgrade_of(number) is one
    assert one.shared
    kind = upgrade.kind_of(number)
    assert kind == (world.tcp.family, world.tcp.type, world.tcp.proto)
    one.leave(False)
    assert (world.stream.names, one.shared) == ([], False)
    one.leave(False)
    assert world.stream.noted == [("close", 2.0, False), ("destroy",)]
    assert (world.tcp.fileno(), world.watched) == (-1, {})
    assert (upgrade.upgrade_of(number), upgrade.kind_of(number)) == (None, None)
    assert readiness._program.fileno() == readiness._driver.fileno() == -1
    os.close(number)
    assert upgrade.kind_of(number) is None


@pytest.mark.parametrize(("linger_s", "waits_s"), [(2.0, ABRUPT_S), (0.1, 0.1)])
def test_an_abrupt_end_waits_for_the_peer_to_be_told_alone(
    world: World, linger_s: float, waits_s: float
) -> None:
    world.stream.settings.linger_s = linger_s
    Upgrade(world.stream, world.tcp).leave(True)
    assert world.stream.noted[0] == ("close", waits_s, True)


def test_one_that_cannot_be_watched_leaves_nothing(world: World) -> None:
    readiness = Readiness()
    world.full = True
    with pytest.raises(OSError, match="max_user_watches"):
        Upgrade(world.stream, world.tcp, readiness=readiness)
    assert readiness._program.fileno() == -1
    assert world.tcp.fileno() >= 0  # which is the kernel's from here on


def test_changes_are_told_to_the_descriptor_from_the_first_poll_on(world: World) -> None:
    one = Upgrade(world.stream, world.tcp)
    number = number_of(one)
    poll = select.poll()
    poll.register(number)
    for _ in range(2):
        one.poll()
    assert world.stream.names == ["watch", "refresh", "refresh"]
    assert world.stream.on_change == one._changed
    for readable, writable, news in ((True, False, True), (True, False, False), (False, True, True)):
        world.stream.noted.clear()
        world.stream.readable, world.stream.writable = readable, writable
        world.stream.on_change()
        assert world.stream.names == (["hand_over"] if news else [])
        assert poll.poll(0) == [(number, select.POLLIN if readable else select.POLLOUT)]
    os.close(number)
    one.leave(False)


def test_a_failure_is_told_by_the_stream(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.stream.take_error = lambda: errno.ECONNRESET
    one = Upgrade(world.stream, world.tcp)
    assert one.take_error() == errno.ECONNRESET
    one.leave(False)


def test_one_that_was_dropped_is_closed_by_another_thread_where_there_is_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    def thread(target: Any, args: Any, **_: object) -> Any:
        def start() -> None:
            made.append((target, args))
            if len(made) > 1:
                raise RuntimeError("can't start new thread")

        return SimpleNamespace(start=start)

    monkeypatch.setattr(upgrade.threading, "Thread", thread)
    one = Upgrade(world.stream, world.tcp)
    one.drop()
    assert (made, world.stream.names) == ([(one.leave, (False,))], [])
    one.drop()
    assert world.stream.noted[0] == ("close", ABRUPT_S, True)


@pytest.mark.parametrize("carried", [True, False])
def test_a_child_has_options_alone_of_what_is_carried(world: World, carried: bool) -> None:
    one = Upgrade(world.stream, world.tcp, (("a", 1), ("b", 2)))
    one.carried = carried
    before = os.fstat(world.tcp.fileno()).st_ino
    one.abandon()
    if carried:
        assert os.fstat(world.tcp.fileno()).st_ino != before
        assert not os.get_inheritable(world.tcp.fileno())
    else:
        assert world.tcp.fileno() == -1
    one.leave(False)
