"""What is there at once when a program takes the descriptor of a connection away from its socket."""

from __future__ import annotations

import errno
import os
import socket as kernel
import threading
from collections.abc import Callable, Iterator

import pytest

from softhca import sockets
from softhca.sockets import relay

Connect = Callable[..., tuple[sockets.socket, sockets.socket]]


@pytest.fixture
def arrived(connected: Connect) -> tuple[sockets.socket, sockets.socket]:
    """A connection at whose other end 100,000 bytes have arrived."""
    one, other = connected()
    one.sendall(bytes(100_000))
    assert len(other.recv(100_000, kernel.MSG_PEEK | kernel.MSG_WAITALL)) > 0
    while other.stream.receiver.own.available < 100_000:  # type: ignore[union-attr]
        other.stream.refresh()  # type: ignore[union-attr]
    return one, other


@pytest.fixture
def no_threads_yet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The relay's threads carry nothing until the test has ended."""
    go_on = threading.Event()
    for name in ("_carry_down", "_carry_up"):
        carry = getattr(relay.Relay, name)

        def later(one: relay.Relay, carry: Callable[[relay.Relay], None] = carry) -> None:
            go_on.wait()
            carry(one)

        monkeypatch.setattr(relay.Relay, name, later)
    yield
    go_on.set()


@pytest.mark.usefixtures("no_threads_yet")
def test_what_has_arrived_is_there_when_the_descriptor_is(
    arrived: tuple[sockets.socket, sockets.socket],
) -> None:
    number = arrived[1].detach()
    os.set_blocking(number, False)
    whole = b""
    while len(whole) < 100_000:
        whole += os.read(number, 100_000)  # else EAGAIN
    os.close(number)
    assert whole == bytes(100_000)


def test_what_the_descriptor_has_no_room_for_comes_next(
    monkeypatch: pytest.MonkeyPatch, arrived: tuple[sockets.socket, sockets.socket]
) -> None:
    made = kernel.socketpair

    def narrow(*arguments: int) -> tuple[kernel.socket, kernel.socket]:
        program, own = made(*arguments)
        own.setsockopt(kernel.SOL_SOCKET, kernel.SO_SNDBUF, 1)  # the least that there is
        return program, own

    monkeypatch.setattr(kernel, "socketpair", narrow)
    number = arrived[1].detach()
    os.set_blocking(number, True)
    arrived[0].close()
    with open(number, "rb") as file:
        assert file.read() == bytes(100_000)


def test_a_datagram_socket_that_cannot_be_handed_over_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object, **words: object) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    one = sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM)
    one.bind(("127.0.0.1", 0))
    end, number = one.datagrams, one.fileno()
    assert end is not None
    with monkeypatch.context() as patch:
        patch.setattr(os, "dup2", refused)
        with pytest.raises(OSError, match="Bad file descriptor"):
            one.detach()
    assert end.closed
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
