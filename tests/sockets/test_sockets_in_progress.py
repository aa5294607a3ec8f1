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

from machine_speed import limit_s
from softhca import sockets
from softhca.machine.kernel_sockets import KernelSocket
from softhca.sockets import connecting, in_progress, listening, port_lookup, registrations
from softhca.sockets.connecting import Asking, mapped
from softhca.sockets.hub import CONNECTING, HUB
from softhca.sockets.in_progress import InProgress
from softhca.sockets.memory_processing import PoolError
from softhca.sockets.readiness import Readiness
from softhca.sockets.stream_parts import GONE
from softhca.sockets.upgrade import Upgrade

SO_ERROR = kernel.SOL_SOCKET, kernel.SO_ERROR


class Held:
    """`Asking.begin` waits at ``go_on``; it has ``begun``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        begin = Asking.begin

        def held(asking: Asking, *arguments: object) -> bool:
            self.begun.set()
            assert self.go_on.wait(limit_s(60))
            return begin(asking, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(Asking, "begin", held)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    one = Held(monkeypatch)
    yield one
    one.go_on.set()
    settled()


@pytest.fixture
def server() -> Iterator[sockets.socket]:
    with sockets.create_server(("127.0.0.1", 0)) as one:
        one.settimeout(limit_s(20))
        yield one


@pytest.fixture
def mute() -> Iterator[kernel.socket]:
    """A TCP server of which somebody says that it is served by RDMA, and then not where."""
    with kernel.create_server(("127.0.0.1", 0)) as one, kernel.socket(kernel.AF_UNIX) as sign:
        sign.bind(port_lookup._name(one.getsockname()[1], mapped("127.0.0.1")))
        sign.listen()
        yield one


def settled() -> None:
    """What was under way at the hub is done."""
    done = threading.Event()
    CONNECTING.start()
    CONNECTING.soon(done.set)
    assert done.wait(limit_s(60))


def started(name: tuple[str, int], connect_s: float = 20.0) -> sockets.socket:
    client = sockets.socket()
    client.settings = sockets.Settings(connect_s=connect_s)
    client.setblocking(False)
    assert client.connect_ex(name) == errno.EINPROGRESS
    return client


def writable(client: sockets.socket, limit: float = 20.0) -> bool:
    return bool(select.select([], [client], [], limit_s(limit) if limit else 0)[1])


def speak(client: sockets.socket, server: sockets.socket | kernel.socket) -> None:
    with client, server.accept()[0] as accepted:
        accepted.settimeout(limit_s(20))
        client.sendall(b"hello")
        assert accepted.recv(100) == b"hello"
        accepted.sendall(b"and back")
        client.settimeout(limit_s(20))
        assert client.recv(100) == b"and back"


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


def test_where_nobody_says_so_it_is_the_kernel_s_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with kernel.create_server(("127.0.0.1", 0)) as plain, monkeypatch.context() as patch:
        patch.setattr(CONNECTING, "soon", None)  # nobody else does anything
        client = started(plain.getsockname())
        assert client._upgrade is None
        speak(client, plain)


def test_a_registration_follows_to_the_kernel_s_socket(mute: kernel.socket) -> None:
    client = started(mute.getsockname(), connect_s=0.2)
    assert client._upgrade is not None
    with select.epoll() as epoll, select.epoll() as other:
        epoll.register(client, select.EPOLLOUT)
        other.register(mute, select.EPOLLIN)
        assert epoll.poll(limit_s(20)) == [(client.fileno(), select.EPOLLOUT)]
        assert client.getsockopt(*SO_ERROR) == 0
        assert client.stream is None
        epoll.modify(client, select.EPOLLIN)
        settled()
        assert epoll.poll(0) == []  # nothing is left of what the number stood for
        with mute.accept()[0] as accepted:
            accepted.sendall(b"hello")
            assert epoll.poll(limit_s(20)) == [(client.fileno(), select.EPOLLIN)]
    assert client.recv(100) == b"hello"
    client.close()


def test_who_polls_hears_that_it_is_the_kernel_s_socket(mute: kernel.socket) -> None:
    client = started(mute.getsockname(), connect_s=0.2)
    poll = select.poll()
    poll.register(client, select.POLLOUT)
    assert poll.poll(limit_s(20) * 1000) == [(client.fileno(), select.POLLOUT)]
    speak(client, mute)


def test_registrations_that_cannot_be_listed_are_ready_for_a_while(
    monkeypatch: pytest.MonkeyPatch, mute: kernel.socket
) -> None:
    def refuse(_: object) -> Iterator[tuple[int, int, int, int | None]]:
        raise OSError(errno.EACCES, "no /proc")

    monkeypatch.setattr(registrations, "_registrations", refuse)
    monkeypatch.setattr(in_progress, "_LEFT_S", 0.2)
    client = started(mute.getsockname(), connect_s=0.2)
    with select.epoll() as epoll:
        epoll.register(client, select.EPOLLOUT)
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
            client = started(mute.getsockname(), connect_s=0.2)
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
    child = os.fork()
    if not child:
        try:
            readable = select.select([client], [], [], 0)[0] == [client]
            code = client.getsockopt(*SO_ERROR)
            try:
                client.send(b"x")
            except ConnectionResetError:
                os._exit(0 if readable and code == errno.ECONNRESET else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
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

    def waited(one: InProgress) -> None:
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
    by_cm = sockets.Settings(by_cm=True, connect_s=20)
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
    with sockets.socket() as client:
        client.setblocking(blocking)
        with pytest.raises(kernel.gaierror):
            client.connect_ex(("name.invalid", 1))


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


class Fleeting:
    """An attribute that another thread takes away right behind the first look."""

    def __init__(self, there: object) -> None:
        self._values = [there]

    def __get__(self, one: object, kind: type) -> object:
        return self._values.pop() if self._values else None

    def __set__(self, one: object, value: object) -> None:
        self._values.clear()


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


def under_way(client: sockets.socket) -> InProgress:
    made = client._upgrade
    assert isinstance(made, InProgress)
    return made


def nobody_answers(made: InProgress) -> None:
    """It is as if the time were over for the word where the port is served: the connection is TCP's."""
    CONNECTING.soon(lambda: made._question is not None and made._question._tell([]))


@pytest.mark.parametrize("how", ["setblocking", "settimeout"])
def test_who_waits_gets_a_socket_of_the_kernel_s_that_blocks(
    monkeypatch: pytest.MonkeyPatch, mute: kernel.socket, how: str
) -> None:
    client = started(mute.getsockname())
    made, wait = under_way(client), InProgress.wait

    def ends(one: InProgress) -> None:
        nobody_answers(made)
        wait(one)

    monkeypatch.setattr(InProgress, "wait", ends)
    if how == "setblocking":
        client.setblocking(True)
    else:
        client.settimeout(None)
    assert client._upgrade is None
    assert os.get_blocking(KernelSocket.fileno(client))
    speak(client, mute)


def test_a_call_that_began_before_the_end_is_told_to_come_again(held: Held, server: sockets.socket) -> None:
    client = started(server.getsockname())
    made = under_way(client)
    held.go_on.set()
    assert writable(client)
    with pytest.raises(BlockingIOError):
        assert made.stream
    assert made.take_error() == 0
    speak(client, server)


@pytest.mark.parametrize(
    "calls", [lambda one: one.send(b"x"), lambda one: one.sendall(b"x"), lambda one: one.sendmsg([b"x"])]
)
def test_who_sends_looks_once_whose_the_connection_is(
    calls: Callable[[sockets.socket], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    class There(InProgress):
        def __init__(self) -> None:
            self._is_a_parent_s = False

    with sockets.socket() as one:
        one.setblocking(False)
        with monkeypatch.context() as patch:
            looked_at = {"__slots__": (), "_upgrade": Fleeting(There())}
            patch.setattr(one, "__class__", type("Once", (sockets.socket,), looked_at))
            with pytest.raises(BlockingIOError):
                calls(one)


def test_an_error_that_comes_while_it_is_asked_for_is_told_next(monkeypatch: pytest.MonkeyPatch) -> None:
    class There(InProgress):
        def __init__(self) -> None:
            pass

        def take_error(self) -> int:
            client._upgrade, client._failed = None, errno.ENOBUFS
            return 0

    with sockets.socket() as client:
        client._upgrade = There()
        assert client.getsockopt(*SO_ERROR) == 0
        assert client.getsockopt(*SO_ERROR) == errno.ENOBUFS


def test_a_connection_that_comes_about_while_it_is_closed_is_left(
    monkeypatch: pytest.MonkeyPatch, held: Held, server: sockets.socket
) -> None:
    """The close has taken its place, and waits for the hub, which puts the connection there."""
    client = started(server.getsockname())
    left, leave, connected = threading.Event(), InProgress.leave, sockets.socket.connected
    closing, upgrades = threading.Thread(target=client.close), []

    def leaves(one: InProgress, abruptly: bool) -> None:
        left.set()
        leave(one, abruptly)

    def comes(one: sockets.socket, upgrade: Upgrade, code: int) -> None:
        closing.start()
        assert left.wait(limit_s(20))
        connected(one, upgrade, code)
        upgrades.append(upgrade)

    monkeypatch.setattr(InProgress, "leave", leaves)
    monkeypatch.setattr(sockets.socket, "connected", comes)
    held.go_on.set()
    while not upgrades:
        settled()
    closing.join(limit_s(20))
    assert upgrades[0].tcp.fileno() < 0


def test_what_is_being_closed_is_told_nothing(held: Held, server: sockets.socket) -> None:
    client = started(server.getsockname())
    made, client._upgrade = under_way(client), GONE  # as a close, which then leaves it
    held.go_on.set()
    while client._upgrade is GONE and made.tcp.fileno() >= 0:
        settled()
    assert client._upgrade is GONE
    made.leave(True)
    client.close()


def test_a_number_that_is_no_descriptor_any_more_ends_it(
    monkeypatch: pytest.MonkeyPatch, mute: kernel.socket
) -> None:
    def refuse(*_: object) -> bool:
        raise OSError(errno.EBADF, "closed by its number")

    monkeypatch.setattr(registrations, "follow", refuse)
    client = started(mute.getsockname())
    made = under_way(client)
    nobody_answers(made)
    waiting = threading.Thread(target=client.setblocking, args=(True,), daemon=True)
    waiting.start()
    waiting.join(limit_s(20))
    assert not waiting.is_alive()
    assert client._upgrade is None
    assert made.tcp.fileno() < 0
    client.close()


def test_what_others_find_is_whole(
    monkeypatch: pytest.MonkeyPatch, held: Held, server: sockets.socket
) -> None:
    """While it is asked whether the port is served, too."""
    ask, names = InProgress._ask, []

    def asks(one: InProgress) -> bool:
        names.append(client.getsockname()[0])
        client.setsockopt(kernel.IPPROTO_TCP, kernel.TCP_NODELAY, 1)
        return ask(one)

    monkeypatch.setattr(InProgress, "_ask", asks)
    with sockets.socket() as client:
        client.setblocking(False)
        assert client.connect_ex(server.getsockname()) == errno.EINPROGRESS
    assert names == ["0.0.0.0"]


def test_of_two_that_connect_one_socket_at_once_one_is_second(
    monkeypatch: pytest.MonkeyPatch, server: sockets.socket
) -> None:
    ask, codes = InProgress._ask, []

    def asks(one: InProgress) -> bool:
        monkeypatch.setattr(InProgress, "_ask", ask)
        codes.append(client.connect_ex(server.getsockname()))
        return ask(one)

    monkeypatch.setattr(InProgress, "_ask", asks)
    client = sockets.socket()
    client.setblocking(False)
    assert client.connect_ex(server.getsockname()) == errno.EALREADY
    assert codes == [errno.EINPROGRESS]
    assert writable(client)
    assert client.stream is not None
    speak(client, server)


def test_what_cannot_be_begun_is_the_kernel_s(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bool:
        raise OSError(errno.EMFILE, "no descriptor")

    monkeypatch.setattr(port_lookup.Question, "begin", refuse)
    with kernel.create_server(("127.0.0.1", 0)) as plain:
        client = started(plain.getsockname())
        assert client._upgrade is None
        speak(client, plain)


@pytest.mark.parametrize("what", ["thread", "descriptor"])
def test_a_question_that_cannot_be_asked_is_none(
    monkeypatch: pytest.MonkeyPatch, mute: kernel.socket, what: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "no thread")

    def none_left(*_: object) -> None:
        raise OSError(errno.EMFILE, "no descriptor")

    told: list[object] = []
    hub: object = SimpleNamespace(watch=refuse, forget=lambda _: None, start=refuse, after=told.append)
    name = mute.getsockname()[1], [mapped("127.0.0.1")]
    if what == "descriptor":
        monkeypatch.setattr(port_lookup, "KernelSocket", none_left)
    assert not port_lookup.Question(hub, *name, told.append).begin()  # type: ignore[arg-type]
    assert told == []
