"""A connection that was made while nobody waited and has become TCP's: what is left, and who closes that."""

from __future__ import annotations

import errno
import socket as kernel
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from sockets_under_way import nobody_answers, settled, started, under_way, writable

from machine_speed import limit_s
from softhca import sockets
from softhca.driver.errors import DriverError
from softhca.driver.rdmacm import events
from softhca.machine.kernel_sockets import KernelSocket
from softhca.sockets import connecting, port_lookup, registrations
from softhca.sockets.connecting import Asking
from softhca.sockets.hub import CONNECTING, HUB
from softhca.sockets.in_progress import InProgress
from softhca.sockets.protocol import Offer
from softhca.sockets.stream import Stream


@pytest.fixture
def left(mute: kernel.socket, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[sockets.socket, InProgress]]:
    """A connected socket that is the kernel's, and what is left beside it as long as the hub is not woken."""
    watch = CONNECTING.watch

    def others(fd: int, callback: Any, *more: Any) -> None:
        if callback.__name__ != "_wake":
            watch(fd, callback, *more)

    monkeypatch.setattr(CONNECTING, "watch", others)
    client = started(mute.getsockname())
    made = under_way(client)
    nobody_answers(made)
    settled()  # who asks before that waits at what the number stood for, and nobody wakes it here
    assert writable(client)
    assert made.tcp.fileno() >= 0
    yield client, made
    client.close()


def test_the_peer_hears_of_a_close_whatever_the_hub_is_at(
    left: tuple[sockets.socket, InProgress], mute: kernel.socket
) -> None:
    client, made = left
    go_on = threading.Event()
    CONNECTING.soon(lambda: go_on.wait(limit_s(60)))
    with mute.accept()[0] as accepted:
        accepted.settimeout(limit_s(20))
        client.close()
        assert accepted.recv(1) == b""
    go_on.set()
    settled()
    assert made._woken


def test_a_forked_child_keeps_nothing_and_waits_for_nobody(left: tuple[sockets.socket, InProgress]) -> None:
    """There a thread of the parent's may have had the lock, and there is no hub."""
    client, made = left
    taken, over = threading.Event(), threading.Event()

    def hold() -> None:
        with made._changed_lock:
            taken.set()
            assert over.wait(limit_s(60))

    holder = threading.Thread(target=hold)
    holder.start()
    assert taken.wait(limit_s(20))
    made.abandon()
    over.set()
    holder.join()
    assert made.tcp.fileno() < 0
    assert made._readiness._driver.fileno() < 0
    settled()
    later = len(CONNECTING._later)
    client.close()
    assert len(CONNECTING._later) == later


def test_who_shuts_down_before_it_is_over_waits_for_the_rest(
    mute: kernel.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow, settle, settling = registrations.follow, InProgress.settle, threading.Event()
    shuts = threading.Thread(target=lambda: client.shutdown(kernel.SHUT_WR))

    def is_late(*arguments: Any) -> bool:
        followed = follow(*arguments)
        shuts.start()
        assert settling.wait(limit_s(20))
        return followed

    def settles(one: InProgress) -> None:
        settling.set()
        settle(one)

    client = started(mute.getsockname())
    monkeypatch.setattr(registrations, "follow", is_late)
    monkeypatch.setattr(InProgress, "settle", settles)
    nobody_answers(under_way(client))
    client.setblocking(True)
    shuts.join(limit_s(20))
    with mute.accept()[0] as accepted:
        accepted.settimeout(limit_s(20))
        assert accepted.recv(1) == b""
    client.close()


def test_an_answer_that_is_not_there_yet_is_waited_for() -> None:
    """The hub was told of a descriptor that has had the same number."""
    heard: list[list[bytes]] = []
    question = port_lookup.Question(HUB, 1, [bytes(16)], heard.append)
    ours, theirs = kernel.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        question._asking = ours  # type: ignore[assignment]
        question._answered()
        assert heard == []
        theirs.send(bytes(range(16)))
        question._answered()
    assert heard == [[bytes(range(16))]]


def test_a_stream_whose_peer_goes_while_it_is_opened_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def fails() -> None:
        raise DriverError(5, "the peer has gone")

    asking = Asking(bytes(16), 1, (0, bytes(16), bytes(16)), sockets.Settings())
    asking._stream = SimpleNamespace(  # type: ignore[assignment]
        begin=lambda offer: None,
        follow=lambda channel: None,
        open=fails,
        destroy=lambda: done.append("destroyed"),
    )
    monkeypatch.setattr(Offer, "decode", lambda data: None)
    established: Any = SimpleNamespace(kind=events.ESTABLISHED, private_data=b"")
    with pytest.raises(DriverError):
        asking.answered(established)
    asking.end()
    assert done == ["destroyed"]


@pytest.mark.parametrize("blocking", [True, False])
def test_who_connects_has_no_stream_before_the_peers_adapter_has_its_word(
    monkeypatch: pytest.MonkeyPatch, blocking: bool
) -> None:
    """Else who accepts may find nothing of it, and take the connection for TCP's."""
    monkeypatch.setattr(Stream, "told", False)  # the acknowledgement never comes
    with sockets.create_server(("127.0.0.1", 0)) as server, sockets.socket() as client:
        client.settings = sockets.Settings(connect_s=0.05)
        client.setblocking(blocking)
        code = client.connect_ex(server.getsockname())
        assert code == (0 if blocking else errno.EINPROGRESS)
        client.setblocking(True)
        server.accept()[0].close()
        assert client.stream is None


def test_a_stream_that_has_failed_before_it_is_used_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = Asking(bytes(16), 1, (0, bytes(16), bytes(16)), sockets.Settings())
    made: Any = SimpleNamespace(error=errno.ECONNRESET, told=True, destroy=lambda: None)
    asking._stream, asking.opening = made, True
    assert asking.take() is None
    assert asking._stream is made  # whom `end` gives back
    made.error, asking.opening = 0, False
    assert asking.take() is None
    asking.opening = True
    assert asking.take() is made
    assert asking._stream is None
    asking.end()


def test_who_is_interrupted_before_it_has_its_stream_keeps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a signal handler that raises between the taking of the stream and its use."""
    taken: list[Stream] = []
    take = Asking.take

    def noted(asking: Asking, *arguments: Any) -> Stream | None:
        found = take(asking, *arguments)
        if found is not None:
            taken.append(found)
        return found

    def interrupted(asking: Asking) -> None:
        monkeypatch.undo()
        asking.end()
        raise KeyboardInterrupt

    monkeypatch.setattr(Asking, "take", noted)
    monkeypatch.setattr(Asking, "end", interrupted)
    with (
        sockets.create_server(("127.0.0.1", 0)) as server, sockets.socket() as client,
        pytest.raises(KeyboardInterrupt),
    ):  # fmt: skip
        client.connect(server.getsockname())
    assert [each._closed for each in taken] == [True]


@pytest.mark.parametrize("step", ["is_here", "own_address"])
def test_what_a_signal_handler_raises_in_a_connect_leaves_nothing_to_tcp(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """TimeoutError, as of an alarm, is an OSError, as what says that there is no RDMA."""

    def late(number: int, frame: Any) -> None:
        raise TimeoutError("the alarm")

    def alarmed(*_: object) -> None:
        late(0, sys._getframe())

    class Alarmed(KernelSocket):
        __new__ = alarmed

    if step == "own_address":
        monkeypatch.setattr(connecting, step, alarmed)
    else:
        monkeypatch.setattr(connecting, "KernelSocket", Alarmed)
    with (
        sockets.create_server(("127.0.0.1", 0)) as server, sockets.socket() as client,
        pytest.raises(TimeoutError, match="the alarm"),
    ):  # fmt: skip
        client.connect(server.getsockname())
