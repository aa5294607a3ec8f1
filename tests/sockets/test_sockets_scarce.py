"""Sockets where descriptors, memory or threads are used up: a clear error or the kernel's own way, no round
for nothing, and nothing left of what has not come about.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import resource
import select
import socket as kernel
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import pytest
from sockets_under_way import settled

from machine_speed import limit_s
from softhca import sockets
from softhca.driver import registry
from softhca.driver.errors import DriverError
from softhca.driver.session import Session
from softhca.machine.kernel_sockets import KernelSocket
from softhca.queues import control_fields
from softhca.runtime import devices
from softhca.sockets import in_progress, listening, port_lookup, requests
from softhca.sockets.connecting import mapped
from softhca.sockets.hub import HUB, Hub
from softhca.sockets.readiness import Readiness
from softhca.sockets.stream import Stream

BY_CM = sockets.Settings(by_cm=True)
LIMIT_S = limit_s(30)
MOST_STEPS = 40
ENOUGH = 16
"""More descriptors than both ends of a connection and the question where a port is served have at a time."""


@contextlib.contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """``count`` descriptors more can be made, and none of a higher number."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = [os.dup(0) for _ in range(count + 1)]
    for each in free:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[-1], limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def made(settings: sockets.Settings | None = None) -> sockets.socket:
    one = sockets.socket()
    one.settings = settings or one.settings
    one.settimeout(LIMIT_S)
    return one


# the hub


@pytest.mark.parametrize("spare", [0, 1])
def test_a_hub_that_finds_no_descriptor_says_so_and_begins_later(spare: int) -> None:
    hub = Hub("softhca-test")
    reader, writer = os.pipe()
    called = threading.Event()
    before = descriptors()
    try:
        with descriptors_left(spare), pytest.raises(OSError, match="Too many open files"):
            hub.watch(reader, called.set)
        assert descriptors() == before
        hub.watch(reader, lambda: (os.read(reader, 1), called.set()))
        os.write(writer, b"!")
        assert called.wait(LIMIT_S)
        soon = threading.Event()
        hub.soon(soon.set)
        assert soon.wait(LIMIT_S)
    finally:
        hub.forget(reader)
        os.close(reader)
        os.close(writer)


def test_a_hub_whose_thread_is_refused_begins_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    hub = Hub("softhca-test")
    reader, writer = os.pipe()
    try:
        os.write(writer, b"!")
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refused)
            with pytest.raises(OSError, match="thread") as caught:
                hub.watch(reader, lambda: None)
        assert caught.value.errno == errno.EAGAIN
        called = threading.Event()
        hub.watch(reader, lambda: (os.read(reader, 1), called.set()))
        assert called.wait(LIMIT_S)
    finally:
        hub.forget(reader)
        os.close(reader)
        os.close(writer)


def test_a_hub_whose_descriptor_was_closed_goes_on_when_there_is_one_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = Hub("softhca-test")
    reader, writer = os.pipe()
    called, refused = threading.Event(), threading.Event()
    plain = select.epoll

    def none_left() -> select.epoll:
        refused.set()
        raise OSError(errno.EMFILE, "Too many open files")

    try:
        hub.watch(reader, lambda: (os.read(reader, 1), called.set()))
        before = hub._epoll
        assert before is not None
        monkeypatch.setattr(select, "epoll", none_left)
        os.close(before.fileno())
        os.eventfd_write(hub._bell, 1)
        assert refused.wait(LIMIT_S)
        monkeypatch.setattr(select, "epoll", plain)
        os.write(writer, b"!")
        assert called.wait(LIMIT_S)
    finally:
        hub.forget(reader)
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize("what", [b"", b"/end"])
def test_one_who_asks_where_no_descriptor_is_left_is_answered_later_and_no_turn_is_wasted(
    monkeypatch: pytest.MonkeyPatch, what: bytes
) -> None:
    tried: list[int] = []
    plain = kernel.socket.accept
    monkeypatch.setattr(port_lookup.KernelSocket, "accept", lambda one: (tried.append(1), plain(one))[1])
    with sockets.create_server(("127.0.0.1", 0)) as server, kernel.socket(kernel.AF_UNIX) as asking:
        name = port_lookup._name(server.getsockname()[1], mapped("127.0.0.1"), what)
        asking.settimeout(LIMIT_S)
        asking.setsockopt(kernel.SOL_SOCKET, kernel.SO_RCVTIMEO, bytes(16))
        with descriptors_left(0):
            asking.connect(name)
            end_s = time.monotonic() + LIMIT_S
            while not tried:
                assert time.monotonic() < end_s
                settled(HUB)
            seen = len(tried)
            for _ in range(200):
                settled(HUB)
            assert len(tried) <= seen + 20
        answer = asking.recv(1000)  # in bounded time
        if not what:
            assert answer == b"".join(requests._listeners[requests.TCP, server.getsockname()[1]].gids)


# requests


def test_a_request_for_which_nothing_can_be_made_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two wait; the first finds no memory."""
    gate, taken = threading.Event(), requests.RequestListener._take
    failed: list[int] = []
    plain = requests.CMID

    def refuse_one(*arguments: Any, **words: Any) -> Any:
        if not failed and "listen_id" in words:
            failed.append(1)
            raise DriverError(errno.ENOMEM, "Cannot allocate memory")
        return plain(*arguments, **words)

    def held(self: requests.RequestListener) -> None:
        if gate.is_set():
            taken(self)

    with sockets.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(2) as threads:
        server.settimeout(LIMIT_S)
        monkeypatch.setattr(requests, "CMID", refuse_one)
        listener = requests._listeners[requests.TCP, server.getsockname()[1]]
        HUB._callbacks[listener._fd] = lambda: held(listener), select.EPOLLIN
        settings = sockets.Settings(connect_s=LIMIT_S)
        clients = [made(settings) for _ in range(2)]
        asking = [threads.submit(each.connect, server.getsockname()) for each in clients]
        end_s = time.monotonic() + LIMIT_S
        while len(listener._channel.channel._notices) < 2:
            assert time.monotonic() < end_s
            time.sleep(0.001)
        gate.set()
        ends = [server.accept()[0] for _ in range(2)]
        for each in asking:
            each.result(LIMIT_S)
        assert sorted(each.stream is not None for each in clients) == [False, True]
        assert sorted(each.stream is not None for each in ends) == [False, True]
        for each in clients + ends:
            each.close()


def test_who_gave_up_waiting_for_an_answer_is_connected_by_tcp_on_both_sides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A listener that stood still for longer than ``connect_s`` answers all the same: a stream of nobody."""
    gate, answered = threading.Event(), threading.Event()
    requested = listening.Listener.requested

    def late(self: listening.Listener, *arguments: Any) -> None:
        assert gate.wait(LIMIT_S)
        requested(self, *arguments)
        answered.set()

    monkeypatch.setattr(listening.Listener, "requested", late)
    with (
        sockets.create_server(("127.0.0.1", 0)) as server,
        made(sockets.Settings(connect_s=0.05)) as client,
    ):
        server.settimeout(LIMIT_S)
        client.connect(server.getsockname())
        assert client.stream is None
        gate.set()
        assert answered.wait(LIMIT_S)
        with server.accept()[0] as accepted:
            assert accepted.stream is None
            accepted.settimeout(LIMIT_S)
            client.sendall(b"by TCP")
            assert accepted.recv(100) == b"by TCP"


class Waiting:
    """A stream that waits to be claimed, as far as who claims it looks."""

    error = None
    waited = refused = 0

    def __init__(self, opened: bool, comes: bool = False) -> None:
        self.opened, self.comes = opened, comes

    def wait(self, ready: Callable[[], bool], until_s: float) -> None:
        self.waited += 1
        self.opened = self.comes

    def refuse(self) -> None:
        self.refused += 1


@pytest.mark.parametrize(
    ("stream", "taken", "waited"),
    [(Waiting(True), True, 0), (Waiting(False, comes=True), True, 1), (Waiting(False), False, 1)],
)
def test_a_stream_is_accepted_once_its_asker_has_said_that_it_is_used(
    stream: Waiting, taken: bool, waited: int
) -> None:
    host = mapped("127.0.0.1")
    with sockets.create_server(("127.0.0.1", 0)) as server:
        served: Any = server._listener
        served.add((host, 5), stream, b"")
        assert served.claim(host, 5) is (stream if taken else None)
        assert (stream.waited, stream.refused) == (waited, not taken)
        assert served.claim(host, 5) is None


# accepting and listening by the connection manager alone


def test_without_a_descriptor_who_waits_to_be_accepted_stays() -> None:
    with made(BY_CM) as server, made(BY_CM) as client, ThreadPoolExecutor(1) as threads:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client.connect(server.getsockname())
        with descriptors_left(0), pytest.raises(OSError, match="Too many open files"):
            server.accept()
        asked = threads.submit(client.recv, 5)
        with server.accept()[0] as accepted:
            accepted.sendall(b"later")
            assert asked.result(LIMIT_S) == b"later"


@pytest.mark.parametrize("spare", [*range(7), ENOUGH])
def test_a_connect_that_nobody_waits_for_ends_with_few_descriptors(
    monkeypatch: pytest.MonkeyPatch, spare: int
) -> None:
    """By RDMA, by TCP, or with an error, and leaves nothing; with enough by RDMA, with none by TCP."""
    monkeypatch.setattr(in_progress, "_LEFT_S", 0.05)
    with sockets.create_server(("127.0.0.1", 0)) as server:
        for _ in range(2):  # all threads and devices are there at the end
            with made() as first:
                first.setblocking(False)
                assert first.connect_ex(server.getsockname()) == errno.EINPROGRESS
                assert select.select([], [first], [], LIMIT_S)[1]
                server.accept()[0].close()
    gc.collect()
    before = descriptors()
    with sockets.create_server(("127.0.0.1", 0)) as server, made() as client:
        if spare == ENOUGH:
            client.settings = sockets.Settings(connect_s=LIMIT_S)
        client.setblocking(False)
        with descriptors_left(spare):
            assert client.connect_ex(server.getsockname()) == errno.EINPROGRESS
            poll = select.poll()
            poll.register(KernelSocket.fileno(client), select.POLLOUT)
            assert poll.poll(LIMIT_S * 1000)
        code = client.getsockopt(kernel.SOL_SOCKET, kernel.SO_ERROR)
        assert code in (0, errno.EMFILE)
        if spare in (0, ENOUGH):
            assert code == 0
            assert (client.stream is not None) == bool(spare)
        if not code:
            with server.accept()[0] as accepted:
                client.sendall(b"hello")
                assert accepted.recv(100) == b"hello"
    limit = time.monotonic() + LIMIT_S
    while descriptors() > before:
        assert time.monotonic() < limit
        settled(HUB)
        gc.collect()


def test_listening_that_the_device_refuses_is_an_error_of_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Session.call

    def refuse(self: Session, command: int, **fields: Any) -> Any:
        if command == control_fields.CM_LISTEN:
            raise DriverError(errno.ENOMEM, "Cannot allocate memory")
        return plain(self, command, **fields)

    with made(BY_CM) as server:
        server.bind(("127.0.0.1", 0))
        with monkeypatch.context() as patch:
            patch.setattr(Session, "call", refuse)
            with pytest.raises(OSError, match="memory") as caught:
                server.listen()
        assert caught.value.errno == errno.ENOMEM
        server.listen()


def test_a_socket_that_is_closed_while_it_begins_to_listen_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def closed(self: Readiness, number: int) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    with made(BY_CM) as first:
        first.bind(("127.0.0.1", 0))
        first.listen()
    with made(BY_CM) as server:
        server.bind(("127.0.0.1", 0))
        before = descriptors()
        with monkeypatch.context() as patch:
            patch.setattr(Readiness, "replace", closed)
            with pytest.raises(OSError, match="Bad file descriptor"):
                server.listen()
        assert descriptors() == before
        server.listen()


# every step


def _stream() -> None:
    with made() as server, made() as client, ThreadPoolExecutor(1) as threads:
        server.bind(("127.0.0.1", 0))
        server.listen()
        asking = threads.submit(client.connect, server.getsockname())
        try:
            asking.result(LIMIT_S)
        except OSError:
            server.settimeout(0)  # TCP's half of it may wait there
            raise
        with server.accept()[0] as accepted:
            accepted.settimeout(LIMIT_S)
            client.sendall(b"x")
            assert accepted.recv(1) == b"x"


def _by_cm() -> None:
    with made(BY_CM) as server, made(BY_CM) as client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client.connect(server.getsockname())
        with server.accept()[0] as accepted:
            accepted.settimeout(LIMIT_S)
            client.sendall(b"x")
            assert accepted.recv(1) == b"x"


def _datagrams() -> None:
    with (
        sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM) as one,
        sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM) as other,
    ):
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        other.settimeout(LIMIT_S)
        one.sendto(b"x", other.getsockname())
        assert other.recv(1) == b"x"


_MAKING = frozenset(
    getattr(control_fields, name)
    for name in ("ALLOC_PD", "REG_MR", "CREATE_CQ", "CREATE_QP", "MODIFY_QP", "CREATE_AH", "ATTACH_ARENA")
) | frozenset(
    getattr(control_fields, name)
    for name in ("CM_LISTEN", "CM_CONNECT", "CM_ACCEPT", "CM_ESTABLISH")
    if hasattr(control_fields, name)
)  # fmt: skip
STEPS: dict[str, tuple[Any, str, Exception]] = {
    "descriptor": (kernel, "socketpair", OSError(errno.EMFILE, "Too many open files")),
    "duplicate": (os, "dup", OSError(errno.EMFILE, "Too many open files")),
    "number": (os, "dup2", OSError(errno.EBADF, "Bad file descriptor")),
    "event": (os, "eventfd", OSError(errno.EMFILE, "Too many open files")),
    "command": (Session, "call", DriverError(errno.ENOMEM, "Cannot allocate memory")),
}


class Failing:
    """Fails at its call number ``number``; of commands those count that make something."""

    def __init__(self, plain: Callable[..., Any], number: int, error: Exception) -> None:
        self.plain, self.left, self.error = plain, number, error
        self.lock = threading.Lock()
        self.failed = False

    def __call__(self, *arguments: Any, **words: Any) -> Any:
        if not (arguments and isinstance(arguments[0], Session)) or arguments[1] in _MAKING:
            with self.lock:
                self.left -= 1
                now = self.left < 0 and not self.failed
                self.failed = self.failed or now
            if now:
                raise type(self.error)(*self.error.args)
        return self.plain(*arguments, **words)


def _resources() -> dict[str, int]:
    (name,) = registry.names()
    return devices.find(name).resources()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("what", [_stream, _by_cm, _datagrams])
def test_nothing_is_left_whatever_step_fails(
    monkeypatch: pytest.MonkeyPatch, what: Callable[[], None], step: str
) -> None:
    owner, name, error = STEPS[step]
    plain = getattr(owner, name)
    what()

    def there() -> dict[str, int]:
        gc.collect()
        return {**_resources(), "descriptors": descriptors()}

    def round_that_fails(number: int) -> bool:
        failing = Failing(plain, number, error)
        with monkeypatch.context() as patch, contextlib.suppress(OSError):
            patch.setattr(owner, name, lambda *words, call=failing, **options: call(*words, **options))
            what()  # or by the kernel's way
        return failing.failed

    def more_than(before: dict[str, int]) -> dict[str, tuple[int, int]]:
        end_s = time.monotonic() + LIMIT_S
        while True:
            more = {
                kind: (before.get(kind, 0), now) for kind, now in there().items() if now > before.get(kind, 0)
            }
            if not more or time.monotonic() > end_s:
                return more
            time.sleep(0.01)

    for _ in range(2):
        settled(HUB)
    before = there()
    for number in range(MOST_STEPS):
        failed = round_that_fails(number)
        if more_than(before):  # what is made once and stays, or what comes again with each such round?
            before = there()
            round_that_fails(number)
            assert not (more := more_than(before)), (number, more)
        before = there()
        if not failed:
            break
    else:
        pytest.fail("it never came to an end")
    assert number
    what()


def test_a_thread_that_is_refused_to_a_relay_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[threading.Thread] = []
    plain = threading.Thread.start

    def second_refused(thread: threading.Thread) -> None:
        if thread.name == "softhca-relay":
            if begun:
                raise RuntimeError("can't start new thread")
            begun.append(thread)
        plain(thread)

    with sockets.create_server(("127.0.0.1", 0)) as server, made() as client:
        client.connect(server.getsockname())
        with server.accept()[0] as accepted:
            accepted.settimeout(LIMIT_S)
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", second_refused)
                with pytest.raises(OSError, match="thread"):
                    client.detach()
            begun[0].join(LIMIT_S)
            assert not begun[0].is_alive()
            assert not HUB.relays


def test_a_peer_that_never_answers_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Datagrams to one whose process stands still go by the kernel, as they would without softhca."""
    from softhca.sockets import resolving

    never = resolving.Resolution(0, Mock(), Mock())
    monkeypatch.setattr(resolving, "resolve", lambda *arguments: never)
    waits: list[object] = []
    with (
        kernel.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as other,
        sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM) as one,
    ):
        other.bind(("127.0.0.1", 0))
        other.settimeout(LIMIT_S)
        one.settings = sockets.Settings(connect_s=0.01)
        one.bind(("127.0.0.1", 0))
        end = one.datagrams
        assert end is not None
        plain = end.wait
        monkeypatch.setattr(end, "wait", lambda *words: (waits.append(words), plain(*words))[1])
        for number in range(5):
            one.sendto(b"%d" % number, other.getsockname())
            assert other.recv(10) == b"%d" % number
        assert len(waits) == 1
        monkeypatch.undo()


def test_opened_streams_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who accepts waits for nothing where the peer has said its word, as it has before TCP's handshake."""
    with sockets.create_server(("127.0.0.1", 0)) as server, made() as client:
        client.connect(server.getsockname())
        (served,) = listening._served.values()
        ((_, stream),) = served._ready.values()
        assert isinstance(stream, Stream)
        end_s = time.monotonic() + LIMIT_S
        while not stream.opened:
            stream.wait(lambda: stream.opened, end_s)
            assert time.monotonic() < end_s
        monkeypatch.setattr(Stream, "wait", None)
        with server.accept()[0] as accepted:
            assert accepted.stream is stream
            monkeypatch.undo()
