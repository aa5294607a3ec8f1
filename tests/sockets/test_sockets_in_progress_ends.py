"""How a connection that nobody waits for ends, whoever looks on, closes it, or tries again meanwhile."""

from __future__ import annotations

import errno
import os
import select
import socket as kernel
import threading
from collections.abc import Callable
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
from softhca.machine.kernel_sockets import KernelSocket
from softhca.sockets import connecting, listening, port_lookup, registrations
from softhca.sockets.connecting import Asking, mapped
from softhca.sockets.hub import CONNECTING, HUB
from softhca.sockets.in_progress import InProgress
from softhca.sockets.memory_processing import PoolError
from softhca.sockets.protocol import ProtocolError
from softhca.sockets.readiness import Readiness
from softhca.sockets.stream_parts import GONE
from softhca.sockets.upgrade import Upgrade


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

        def settle(self) -> None:
            pass

    with sockets.socket() as one:
        one.setblocking(False)
        with monkeypatch.context() as patch:
            looked_at = {"__slots__": (), "_upgrade": Fleeting(There())}
            patch.setattr(one, "__class__", type("Once", (sockets.socket,), looked_at))
            with pytest.raises(OSError, match=r"Broken pipe|unavailable"):
                calls(one)


def test_an_error_that_comes_while_it_is_asked_for_is_told_next(monkeypatch: pytest.MonkeyPatch) -> None:
    class There(InProgress):
        def __init__(self) -> None:
            pass

        def settle(self) -> None:
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
    settled()  # who waits is told before the rest is closed
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


def left_to_the_kernel(mute: kernel.socket) -> sockets.socket:
    client = started(mute.getsockname())
    made = under_way(client)
    nobody_answers(made)
    made.wait()
    assert writable(client)
    return client


def test_what_is_the_kernel_s_is_tried_again_by_the_kernel_alone(mute: kernel.socket) -> None:
    client = left_to_the_kernel(mute)
    assert client.connect_ex(mute.getsockname()) == 0
    assert client.connect_ex(mute.getsockname()) == errno.EISCONN
    assert client._upgrade is None
    speak(client, mute)


def test_what_the_kernel_has_refused_it_tells_next(mute: kernel.socket) -> None:
    mute.shutdown(kernel.SHUT_RDWR)
    with left_to_the_kernel(mute) as client:
        assert client.connect_ex(mute.getsockname()) == errno.ECONNREFUSED
        assert client._upgrade is None


def test_a_failure_that_the_kernel_does_not_know_is_told_next(
    monkeypatch: pytest.MonkeyPatch, server: sockets.socket
) -> None:
    def refuse(*_: object) -> bool:
        raise PoolError("too much")

    monkeypatch.setattr(Asking, "begin", refuse)
    client = started(server.getsockname())
    assert writable(client)
    assert client.connect_ex(server.getsockname()) == errno.ENOBUFS
    assert client.connect_ex(server.getsockname()) == errno.EINPROGRESS
    assert client._upgrade is None
    assert writable(client)
    speak(client, server)


@pytest.mark.parametrize(
    ("asks", "answer"),
    [
        (lambda client, _: client.getsockopt(*SO_ERROR), 0),
        (lambda client, _: client.getpeername()[0], "127.0.0.1"),
        (lambda client, _: client.send(b""), 0),
        (lambda client, _: client.sendall(b""), None),
        (lambda client, _: client.sendmsg([b""]), 0),
        (lambda client, _: client.sendto(b"", client.getpeername()), 0),
        (lambda client, name: client.connect_ex(name), 0),
    ],
)
def test_who_finds_the_number_ready_before_it_is_over_waits_for_the_rest(
    monkeypatch: pytest.MonkeyPatch,
    mute: kernel.socket,
    asks: Callable[..., object],
    answer: object,
) -> None:
    follow, settle, settling = registrations.follow, InProgress.settle, threading.Event()
    answers: list[object] = []

    def is_late(number: int, change: Callable[[], object], asked: Callable[[], bool]) -> bool:
        followed = follow(number, change, asked)
        asking.start()
        assert settling.wait(limit_s(20))
        return followed

    def settles(one: InProgress) -> None:
        settling.set()
        settle(one)

    client = started(mute.getsockname())
    asking = threading.Thread(target=lambda: answers.append(asks(client, mute.getsockname())))
    monkeypatch.setattr(registrations, "follow", is_late)
    monkeypatch.setattr(InProgress, "settle", settles)
    nobody_answers(under_way(client))
    client.setblocking(True)
    asking.join(limit_s(20))
    assert answers == [answer]
    speak(client, mute)


def test_what_the_kernel_has_connected_is_connected(mute: kernel.socket) -> None:
    """Though somebody says since that the port is served."""
    client = sockets.socket()
    KernelSocket.connect(client, mute.getsockname())
    client.setblocking(False)
    assert client.connect_ex(mute.getsockname()) == errno.EISCONN
    speak(client, mute)


def test_the_time_out_of_new_sockets_does_not_hold_the_others_up(mute: kernel.socket) -> None:
    before = kernel.getdefaulttimeout()
    kernel.setdefaulttimeout(limit_s(20))
    try:
        with started(mute.getsockname()) as client:
            assert under_way(client).tcp.gettimeout() == 0
    finally:
        kernel.setdefaulttimeout(before)


def test_who_registers_while_others_are_listed_is_followed() -> None:
    before, behind = Readiness(), Readiness()
    with kernel.socket() as one, select.epoll() as epoll:
        number = one.fileno()
        before.replace(number)
        before.set(False, False)

        def change() -> None:
            epoll.register(number, select.EPOLLIN)
            behind.replace(number)

        assert registrations.follow(number, change)
        behind.set(True, False)
        assert epoll.poll(limit_s(20)) == [(number, select.EPOLLIN)]
    before.close()
    behind.close()


@pytest.mark.parametrize("asked", [False, True])
def test_registrations_of_a_number_that_nobody_has_asked_for_are_not_looked_for(
    monkeypatch: pytest.MonkeyPatch, mute: kernel.socket, asked: bool
) -> None:
    looked: list[int] = []
    monkeypatch.setattr(registrations, "_registrations", lambda number: looked.append(number) or iter(()))
    client = started(mute.getsockname())
    if asked:
        client.fileno()
    nobody_answers(under_way(client))
    client.setblocking(True)
    assert bool(looked) == asked
    speak(client, mute)


def silent(monkeypatch: pytest.MonkeyPatch, mute: kernel.socket) -> tuple[sockets.socket, InProgress]:
    """A connection that was left to the kernel, and TCP does not answer."""
    client = started(mute.getsockname())
    made = under_way(client)
    settled()  # the question is asked
    monkeypatch.setattr(CONNECTING, "watch", lambda *_: None)
    nobody_answers(made)
    made.wait()
    settled()
    assert made.tcp.fileno() >= 0
    return client, made


@pytest.mark.parametrize("how", ["close", "detach", "drop"])
def test_what_was_left_to_the_kernel_ends_with_the_socket(
    monkeypatch: pytest.MonkeyPatch, mute: kernel.socket, how: str
) -> None:
    clients = [silent(monkeypatch, mute)]
    made = clients[0][1]
    if how == "close":
        clients[0][0].close()
    elif how == "detach":
        os.close(clients[0][0].detach())
    else:
        with pytest.warns(ResourceWarning):
            clients.clear()
    settled()
    assert made.tcp.fileno() < 0


def test_a_child_keeps_nothing_of_what_was_left_to_the_kernel(
    monkeypatch: pytest.MonkeyPatch, mute: kernel.socket
) -> None:
    client, made = silent(monkeypatch, mute)

    def is_closed() -> None:
        assert made.tcp.fileno() < 0 <= client.fileno()

    assert in_child(is_closed) == 0
    client.close()


def test_a_question_at_a_queue_that_stays_full_ends(mute: kernel.socket) -> None:
    """Whoever says so stands still."""
    name = port_lookup._name(1, mapped("127.0.0.1"))
    due: list[Callable[[], object]] = []
    told: list[list[bytes]] = []
    hub: object = SimpleNamespace(
        start=lambda: None, forget=lambda _: None, after=lambda _, then: due.append(then)
    )
    with kernel.socket(kernel.AF_UNIX) as sign:
        sign.bind(name)
        sign.listen(0)
        with kernel.socket(kernel.AF_UNIX) as first:
            first.connect(name)
            question = port_lookup.Question(hub, 1, [mapped("127.0.0.1")], told.append)  # type: ignore[arg-type]
            assert question.begin()
            again, ends = due
            again()
            assert len(due) == 3
            ends()
            assert told == [[]]
            due[2]()
            assert len(due) == 3
    assert told == [[]]


def test_who_does_not_say_where_is_waited_for_no_longer_than_the_settings_say(mute: kernel.socket) -> None:
    client = sockets.socket()
    client.settings = sockets.Settings(connect_s=0)
    client.setblocking(False)
    assert client.connect_ex(mute.getsockname()) == errno.EINPROGRESS
    assert writable(client)
    assert client.stream is None
    speak(client, mute)


def test_a_refusal_is_told_from_silence() -> None:
    with kernel.socket() as one, kernel.socket() as other, kernel.socket() as server:
        server.bind(("127.0.0.1", 0))
        one.setblocking(False)
        one.bind(("127.0.0.1", 0))
        assert not connecting.was_refused(one)
        assert not connecting.is_used(one)
        assert one.connect_ex(server.getsockname()) == errno.EINPROGRESS
        assert select.select([], [one], [], limit_s(20))[1]
        assert connecting.was_refused(one)
        assert one.getsockopt(*SO_ERROR) == errno.ECONNREFUSED
        server.listen()
        other.connect(server.getsockname())
        assert connecting.is_used(other)
        assert not connecting.was_refused(other)


def test_a_refusal_is_one_though_the_name_is_none_s_since(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise kernel.gaierror(kernel.EAI_AGAIN, "no server of names")

    monkeypatch.setattr(sockets.socket, "_numeric", refuse)
    with kernel.socket() as nobody, sockets.socket() as client:
        nobody.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            client.connect(nobody.getsockname())


class Early:
    """A port that is served where the kernel does not listen yet, and a client that has asked there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, begin_s: float) -> None:
        waits, when_it_listens = threading.Event(), listening.Served.when_it_listens

        def waited(one: listening.Served, then: Callable[[], object]) -> None:
            when_it_listens(one, then)
            waits.set()

        monkeypatch.setattr(listening, "BEGIN_S", begin_s)
        monkeypatch.setattr(listening.Served, "when_it_listens", waited)
        self.server = sockets.socket()
        self.server.bind(("127.0.0.1", 0))
        self.server.settimeout(limit_s(20))
        served = listening.serve(self.server, self.server.settings)
        assert served is not None
        self.served = served
        self.client = started(self.server.getsockname())
        assert waits.wait(limit_s(20))

    def end(self) -> None:
        self.served.leave()
        self.client.close()
        self.server.close()


def test_who_comes_before_the_kernel_listens_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    early = Early(monkeypatch, limit_s(60))
    settled(HUB)
    assert early.client.stream is None
    KernelSocket.listen(early.server)
    early.served.begin()
    assert writable(early.client)
    assert early.client.stream is not None
    speak(early.client, early.server)
    early.end()


def test_who_comes_long_before_the_kernel_listens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    early = Early(monkeypatch, 0)
    assert writable(early.client)
    assert early.client.getsockopt(*SO_ERROR) == errno.ECONNREFUSED
    early.end()


def test_few_wait_for_the_kernel_to_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "MOST", 1)
    early = Early(monkeypatch, limit_s(60))
    with pytest.raises(ProtocolError):
        early.served.when_it_listens(lambda: None)
    early.end()


def test_names_are_those_of_what_has_come_about_meanwhile() -> None:
    class There(InProgress):
        def __init__(self) -> None:
            pass

        @property
        def own_name(self) -> None:
            client._upgrade = None
            raise OSError(errno.EBADF, "closed meanwhile")

    with sockets.socket() as client:
        client.bind(("127.0.0.1", 0))
        client._upgrade = There()
        assert client.getsockname() == KernelSocket.getsockname(client)
