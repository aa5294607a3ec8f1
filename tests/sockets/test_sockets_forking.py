"""Servers that fork for what they have accepted."""

from __future__ import annotations

import errno
import socket as kernel
import threading
from collections.abc import Callable

import pytest
from sockets_under_way import in_child

from softhca import sockets
from softhca.sockets import forking
from softhca.sockets.hub import HUB

Pair = tuple[sockets.socket, sockets.socket]
Connect = Callable[..., Pair]


@pytest.fixture
def accepted(connected: Connect) -> Pair:
    """The client and the server's end, which this thread has just accepted."""
    return connected()


def test_the_child_serves_what_was_accepted(accepted: Pair) -> None:
    one, other = accepted
    names = other.getsockname(), other.getpeername()

    def serve() -> None:
        other.setsockopt(kernel.IPPROTO_TCP, kernel.TCP_NODELAY, 1)
        assert (other.getsockname(), other.getpeername()) == names
        with other.makefile("rwb") as lines:
            for line in lines:
                lines.write(line.upper())
                lines.flush()

    said = []

    def ask() -> None:
        with one.makefile("rwb") as lines:
            for line in (b"first\n", b"second\n", bytes(b"x" * 200_000) + b"\n"):
                lines.write(line)
                lines.flush()
                said.append(lines.readline())
            one.shutdown(kernel.SHUT_WR)
            said.append(lines.read())

    client = threading.Thread(target=ask)
    client.start()
    assert in_child(serve) == 0
    other.close()
    client.join()
    assert said == [b"FIRST\n", b"SECOND\n", b"X" * 200_000 + b"\n", b""]


def test_parent_and_child_share_it_as_they_do_a_kernels(accepted: Pair) -> None:
    one, other = accepted
    one.sendall(b"for the child")
    assert in_child(lambda: other.sendall(other.recv(100))) == 0
    assert one.recv(100) == b"for the child"
    other.sendall(b"by the parent")
    assert one.recv(100) == b"by the parent"
    other.close()
    assert one.recv(1) == b""


def test_a_reset_is_one_for_the_child(accepted: Pair) -> None:
    one, other = accepted
    one.sendall(b"x")

    def wait() -> None:
        assert other.recv(1) == b"x"
        other.sendall(b"y")
        other.recv(1)

    reset = threading.Thread(target=lambda: (one.recv(1), one.stream and one.stream.refuse()))
    reset.start()
    assert in_child(wait) == errno.ECONNRESET
    reset.join()


@pytest.mark.parametrize("use", ["receives", "sends", "is waited for", "is shared"])
def test_what_is_used_already_stays_the_parents(accepted: Pair, use: str) -> None:
    one, other = accepted
    again = None
    if use == "receives":
        one.sendall(b"x")
        assert other.recv(1) == b"x"
    elif use == "sends":
        other.sendall(b"x")
        assert one.recv(1) == b"x"
    elif use == "is waited for":
        assert other.fileno() >= 0
    else:
        again = other.dup()
    assert in_child(lambda: other.recv(1)) == errno.ECONNRESET
    assert other.stream is not None
    one.sendall(b"on")
    assert other.recv(2) == b"on"
    if again is not None:
        again.close()


def test_what_another_thread_has_accepted_stays_the_parents() -> None:
    with sockets.create_server(("127.0.0.1", 0)) as server:
        made: list[sockets.socket] = []
        thread = threading.Thread(target=lambda: made.append(server.accept()[0]))
        thread.start()
        client = sockets.create_connection(server.getsockname())
        thread.join()
    assert made[0].stream is not None
    assert in_child(lambda: None) == 0
    assert made[0].stream is not None
    client.sendall(b"on")
    assert made[0].recv(2) == b"on"
    client.close()
    made[0].close()


@pytest.mark.parametrize("lacking", ["descriptors", "threads"])
def test_without_descriptors_or_threads_it_stays_the_parents(
    accepted: Pair, lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = accepted
    start, started = threading.Thread.start, []

    def none_left(*words: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    def one_left(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    with monkeypatch.context() as patch:
        if lacking == "descriptors":
            patch.setattr(kernel, "socketpair", none_left)
        else:
            patch.setattr(threading.Thread, "start", one_left)
        assert in_child(lambda: None) == 0
    assert other.stream is not None
    assert not HUB.relays
    for thread in started:
        thread.join()
    one.sendall(b"on")
    assert other.recv(2) == b"on"
    other.sendall(b"and back")
    assert one.recv(8) == b"and back"


def test_what_was_accepted_last_is_carried_once_by_the_thread_that_accepted_it() -> None:
    carried: list[str] = []

    class Accepted:
        def __init__(self, name: str) -> None:
            self.name = name

        def carry(self) -> None:
            carried.append(self.name)
            raise OSError(errno.EMFILE, "then it stays")

    first, second = Accepted("first"), Accepted("second")
    for each in (first, second):
        forking.accepted(each)
    other = threading.Thread(target=forking._before_fork)
    other.start()
    other.join()
    assert carried == []
    for _ in range(2):
        forking._before_fork()
    assert carried == ["second"]
    forking.accepted(Accepted("dropped"))
    forking._before_fork()
    assert carried == ["second"]
