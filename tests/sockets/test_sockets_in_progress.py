"""A non-blocking connect never holds up who calls it: what takes its time is done elsewhere, and told by the
descriptor.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import select
import socket as kernel
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from sockets_under_way import (
    SO_ERROR,
    Fleeting,
    Held,
    in_child,
    nobody_answers,
    settled,
    speak,
    started,
    under_way,
    writable,
)

from machine_speed import limit_s
from softhca import sockets
from softhca.sockets import connecting, in_progress, listening, port_lookup, registrations, stream_socket
from softhca.sockets.connecting import Asking, mapped
from softhca.sockets.hub import CONNECTING, HUB
from softhca.sockets.in_progress import InProgress
from softhca.sockets.memory_processing import PoolError
from softhca.sockets.readiness import Readiness


def test_nothing_is_waited_for(held: Held, server: sockets.socket) -> None:
    client = started(server.getsockname())
    assert held.begun.wait(limit_s(20))
    assert select.select([client], [client], [client], 0) == ([], [], [])
    assert client.stream is None
    assert client.getsockopt(*SO_ERROR) == 0
    assert client.getsockname()[0] == "127.0.0.1"
    for code, call in (
        (errno.EALREADY, lambda: client.connect(server.getsockname())),
        (errno.EAGAIN, lambda: client.send(b"early")),
        (errno.EAGAIN, lambda: client.recv(1)),
        (errno.EAGAIN, lambda: client.recv_into(bytearray(1))),
        (errno.ENOTCONN, client.getpeername),
        (errno.ENOTCONN, lambda: client.shutdown(kernel.SHUT_WR)),
    ):
        with pytest.raises(OSError, match=r"\[Errno") as told:
            call()
        assert told.value.errno == code
    client.setsockopt(kernel.IPPROTO_TCP, kernel.TCP_NODELAY, 1)
    assert client.connect_ex(server.getsockname()) == errno.EALREADY
    held.go_on.set()
    assert writable(client)
    assert client.getsockopt(*SO_ERROR) == 0
    assert client.getsockopt(kernel.IPPROTO_TCP, kernel.TCP_NODELAY)
    assert client.connect_ex(server.getsockname()) == errno.EISCONN
    assert client.stream is not None
    assert client.getpeername() == server.getsockname()
    speak(client, server)


def test_an_event_loop_goes_on(held: Held, server: sockets.socket) -> None:
    """The loop itself lets the connection be made: where it is held up, it never is."""

    async def connects() -> None:
        loop = asyncio.get_running_loop()
        with sockets.socket() as client:
            client.settings = sockets.Settings(connect_s=limit_s(20))
            client.setblocking(False)
            connecting = asyncio.ensure_future(loop.sock_connect(client, server.getsockname()))
            while not held.begun.is_set():
                await asyncio.sleep(0)
            assert not connecting.done()
            held.go_on.set()
            await asyncio.wait_for(connecting, limit_s(20))
            assert client.stream is not None
            await loop.sock_sendall(client, b"hello")

    asyncio.run(connects())
    with server.accept()[0] as accepted:
        assert accepted.recv(100) == b"hello"


def test_a_registration_holds(held: Held, server: sockets.socket) -> None:
    client = started(server.getsockname())
    with select.epoll() as epoll:
        epoll.register(client, select.EPOLLOUT)
        held.go_on.set()
        assert epoll.poll(limit_s(20)) == [(client.fileno(), select.EPOLLOUT)]
        epoll.modify(client, select.EPOLLIN)
        with server.accept()[0] as accepted:
            accepted.sendall(b"hello")
            assert epoll.poll(limit_s(20)) == [(client.fileno(), select.EPOLLIN)]
        assert client.recv(100) == b"hello"
    client.close()


def test_who_accepts_from_its_own_process_comes_behind_who_connects(
    monkeypatch: pytest.MonkeyPatch, server: sockets.socket
) -> None:
    """As with TCP, whose handshake ends at the connecting side first."""
    order: list[str] = []
    accepting = threading.Event()
    connected, await_own = InProgress._connected, in_progress.await_own

    def later(one: InProgress, code: int) -> None:
        accepting.wait(limit_s(20))
        connected(one, code)
        order.append("connected")

    def awaits(host: bytes, port: int) -> None:
        accepting.set()
        await_own(host, port)

    monkeypatch.setattr(InProgress, "_connected", later)
    monkeypatch.setattr(stream_socket, "await_own", awaits)
    with started(server.getsockname()) as client, server.accept()[0] as accepted:
        order.append("accepted")
        accepting.set()
        assert writable(client, 0)
        assert client.stream is not None
        assert accepted.stream is not None
    settled()
    assert sorted(order) == ["accepted", "connected"]


def test_where_nobody_says_so_it_is_the_kernel_s_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with kernel.create_server(("127.0.0.1", 0)) as plain, monkeypatch.context() as patch:
        patch.setattr(CONNECTING, "soon", None)  # nobody else does anything
        client = started(plain.getsockname())
        assert client._upgrade is None
        speak(client, plain)


def test_a_registration_follows_to_the_kernel_s_socket(mute: kernel.socket) -> None:
    client = started(mute.getsockname())
    made = under_way(client)
    with select.epoll() as epoll, select.epoll() as other:
        epoll.register(client, select.EPOLLOUT)
        nobody_answers(made)
        other.register(mute, select.EPOLLIN)
        assert epoll.poll(limit_s(20)) == [(client.fileno(), select.EPOLLOUT)]
        assert client.getsockopt(*SO_ERROR) == 0
        assert client.stream is None
        epoll.modify(client, select.EPOLLIN)
        while made.tcp.fileno() >= 0:
            settled()
        assert epoll.poll(0) == []  # nothing is left of what the number stood for
        with mute.accept()[0] as accepted:
            accepted.sendall(b"hello")
            assert epoll.poll(limit_s(20)) == [(client.fileno(), select.EPOLLIN)]
    assert client.recv(100) == b"hello"
    client.close()


def test_who_polls_hears_that_it_is_the_kernel_s_socket(mute: kernel.socket) -> None:
    client = started(mute.getsockname())
    poll = select.poll()
    poll.register(client, select.POLLOUT)
    nobody_answers(under_way(client))
    assert poll.poll(limit_s(20) * 1000) == [(client.fileno(), select.POLLOUT)]
    speak(client, mute)


def test_registrations_that_cannot_be_listed_are_ready_for_a_while(
    monkeypatch: pytest.MonkeyPatch, mute: kernel.socket
) -> None:
    def refuse(_: object) -> Iterator[tuple[int, int, int, int | None]]:
        raise OSError(errno.EACCES, "no /proc")

    monkeypatch.setattr(registrations, "_registrations", refuse)
    monkeypatch.setattr(in_progress, "_LEFT_S", limit_s(2))
    client = started(mute.getsockname())
    with select.epoll() as epoll:
        epoll.register(client, select.EPOLLOUT)
        nobody_answers(under_way(client))
        assert epoll.poll(limit_s(20)) == [(client.fileno(), select.EPOLLOUT)]
        speak(client, mute)
        while epoll.poll(0):
            pass


@pytest.mark.parametrize("served", [False, True])
def test_a_refusal_is_told(mute: kernel.socket, served: bool) -> None:
    """Of the kernel, before or behind the peer's yes."""
    with sockets.socket() as bound:
        if served:
            bound.bind(("127.0.0.1", 0))
            serving = listening.serve(bound, bound.settings)
            assert serving is not None
            serving.begin()  # as if the kernel did
            client = started(bound.getsockname())
        else:
            mute.shutdown(kernel.SHUT_RDWR)
            client = started(mute.getsockname())
            nobody_answers(under_way(client))
        assert writable(client)
        assert client.getsockopt(*SO_ERROR) == errno.ECONNREFUSED
        assert client.getsockopt(*SO_ERROR) == 0
        assert client.stream is None
        if served:
            serving.leave()
    client.close()


def test_a_pool_that_cannot_be_made_is_told(monkeypatch: pytest.MonkeyPatch, server: sockets.socket) -> None:
    def refuse(*_: object) -> bool:
        raise PoolError("too much")

    monkeypatch.setattr(Asking, "begin", refuse)
    with started(server.getsockname()) as client:
        assert writable(client)
        assert client.getsockopt(*SO_ERROR, 4) == errno.ENOBUFS.to_bytes(4, "little")


def test_an_unknown_failure_is_told(
    monkeypatch: pytest.MonkeyPatch, server: sockets.socket, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> bool:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Asking, "begin", refuse)
    with started(server.getsockname()) as client:
        assert writable(client)
        assert client.getsockopt(*SO_ERROR) == errno.EIO
    assert "a connection could not be made" in caplog.text


@pytest.mark.parametrize("how", ["close", "drop"])
def test_what_nobody_wants_is_given_back(held: Held, server: sockets.socket, how: str) -> None:
    first = started(server.getsockname())
    held.go_on.set()
    assert writable(first)
    speak(first, server)  # threads and devices are there from here on
    settled()
    held.go_on.clear()
    held.begun.clear()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    clients = [started(server.getsockname())]
    assert held.begun.wait(limit_s(20))
    made = clients[0]._upgrade
    assert isinstance(made, InProgress)
    if how == "close":
        clients.pop().close()
    else:
        with pytest.warns(ResourceWarning):
            clients.clear()
    held.go_on.set()
    while made.tcp.fileno() >= 0:
        settled()
    settled()
    assert made._stream is None
    assert made._asking is None
    assert len(os.listdir("/proc/self/fd")) <= before
    server.setblocking(False)
    with pytest.raises(BlockingIOError):
        server.accept()


def test_a_forked_child_has_no_connection(held: Held, server: sockets.socket) -> None:
    client = started(server.getsockname())
    assert held.begun.wait(limit_s(20))

    def is_reset() -> None:
        assert select.select([client], [], [], 0)[0] == [client]
        assert client.getsockopt(*SO_ERROR) == errno.ECONNRESET
        with pytest.raises(ConnectionResetError):
            client.send(b"x")

    assert in_child(is_reset) == 0
    held.go_on.set()
    assert writable(client)
    assert client.getsockopt(*SO_ERROR) == 0
    client.close()


@pytest.mark.parametrize("how", ["setblocking", "settimeout", "dup", "detach"])
def test_who_wants_more_waits(
    monkeypatch: pytest.MonkeyPatch, held: Held, server: sockets.socket, how: str
) -> None:
    client = started(server.getsockname())
    made: list[sockets.socket] = []
    waits, wait = threading.Event(), InProgress.wait

    def waited(one: InProgress, limit_s: float | None = None) -> None:
        waits.set()
        wait(one)

    monkeypatch.setattr(InProgress, "wait", waited)

    def want() -> None:
        if how == "dup":
            made.append(client.dup())
        elif how == "detach":
            made.append(sockets.socket(fileno=client.detach()))
        elif how == "setblocking":
            client.setblocking(True)
            made.append(client)
        else:
            client.settimeout(limit_s(20))
            made.append(client)

    waiting = threading.Thread(target=want)
    waiting.start()
    assert waits.wait(limit_s(20))
    held.go_on.set()
    waiting.join(limit_s(20))
    (wanted,) = made
    wanted.settimeout(limit_s(20))
    speak(wanted, server)
    client.close()


def test_more_ask_at_once_than_wait_to_be_told(monkeypatch: pytest.MonkeyPatch, held: Held) -> None:
    """The hub, which tells, is held up: the queue of those who ask is full."""
    monkeypatch.setattr(port_lookup, "_BACKLOG", 1)
    with sockets.create_server(("127.0.0.1", 0)) as server:
        go_on = threading.Event()
        HUB.soon(lambda: go_on.wait(limit_s(60)))
        held.go_on.set()
        clients = [started(server.getsockname()) for _ in range(8)]
        go_on.set()
        for client in clients:
            assert writable(client)
            assert client.stream is not None
        for client in clients:
            with server.accept()[0] as accepted:
                assert accepted.stream is not None
            client.close()


@pytest.mark.parametrize("listens", [True, False])
def test_by_the_connection_manager_alone(listens: bool) -> None:
    by_cm = sockets.Settings(by_cm=True, connect_s=limit_s(20))
    with sockets.socket() as server, sockets.socket() as client:
        client.settings = by_cm
        client.setblocking(False)
        server.settings = by_cm if listens else server.settings
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert client.connect_ex(server.getsockname()) == errno.EINPROGRESS
        assert writable(client)
        assert client.getsockopt(*SO_ERROR) == (0 if listens else errno.ECONNREFUSED)
        if listens:
            server.settimeout(limit_s(20))
            speak(client, server)


@pytest.mark.parametrize("blocking", [True, False])
def test_a_name_that_is_none_s_is_an_error_of_names(blocking: bool) -> None:
    """One of the other family, for which nobody on the net is asked."""
    with sockets.socket() as client:
        client.setblocking(blocking)
        with pytest.raises(kernel.gaierror):
            client.connect_ex(("::1", 1))


def test_a_host_that_was_not_reached_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another host's address is this host's here, so that it can be connected to."""
    monkeypatch.setattr(connecting, "is_here", lambda _: False)
    with kernel.create_server(("127.0.0.1", 0)) as plain:
        connecting.remember_unreached(mapped("127.0.0.1"))
        try:
            client = started(plain.getsockname())
            assert client._upgrade is None
        finally:
            connecting._unreached.clear()
        speak(client, plain)


def test_registrations_follow_a_number() -> None:
    before, behind = Readiness(), Readiness()
    with kernel.socket() as one, select.epoll() as epoll:
        number = one.fileno()
        before.replace(number)
        before.set(False, False)
        epoll.register(number, select.EPOLLIN)
        assert registrations.follow(number, lambda: behind.replace(number))
        behind.set(True, False)
        assert epoll.poll(limit_s(20)) == [(number, select.EPOLLIN)]
        before.close()
        epoll.unregister(number)
        assert epoll.poll(0) == []
    behind.close()


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("_upgrade", lambda one: one.setblocking(True)),
        ("_upgrade", lambda one: one.settimeout(1)),
        ("_by_cm", lambda one: one.getsockname()),
    ],
)
def test_what_is_there_no_more_is_looked_for_once(
    name: str, calls: Callable[[sockets.socket], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[object] = []

    class There(InProgress):
        tcp = SimpleNamespace(getsockname=lambda: heard.append("asked"))

        def __init__(self) -> None:
            pass

        def wait(self) -> None:
            heard.append("asked")

    with sockets.socket() as one:
        one.setblocking(False)
        with monkeypatch.context() as patch:
            looked_at = {"__slots__": (), name: Fleeting(There())}
            patch.setattr(one, "__class__", type("Once", (sockets.socket,), looked_at))
            calls(one)
        assert heard == ["asked"]
