"""What programs do with their sockets that a socket of their own program never did."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import select
import socket as kernel
import time
from collections.abc import Callable, Iterator

import pytest

from machine_speed import limit_s
from softhca import sockets
from softhca.sockets.work_requests import TAKEN

SYN_SENT = bytes([2])
"""The first byte of TCP_INFO: the state."""

Pair = tuple[sockets.socket, sockets.socket]
Connect = Callable[..., Pair]


@pytest.fixture
def no_collection() -> Iterator[None]:
    """What is kept by a cycle stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("timeout_s", [0, 0.001])
def test_a_send_that_finds_no_room_keeps_no_buffer(connected: Connect, timeout_s: float) -> None:
    """asyncio deletes from the front of its buffer what has gone; with the buffer kept it sent it again."""
    one, _ = connected(pool_bytes=1 << 16)
    one.settimeout(timeout_s)
    data = bytearray(1 << 20)

    def send() -> None:
        while True:
            del data[: one.send(data)]

    with pytest.raises(BlockingIOError if not timeout_s else TimeoutError):
        send()
    del data[:1]


def test_a_buffer_may_be_resized_once_it_was_taken(
    connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its message is under way; no completion tells that it has arrived."""
    one, _ = connected()
    assert one.stream is not None
    sender = one.stream.sender
    retire = sender.retire

    def hold(number: int) -> None:
        if number & TAKEN or not sender.taken:
            retire(number)

    data = bytearray(300_000)
    monkeypatch.setattr(sender, "retire", hold)
    sent = one.send(data)
    assert sender.direct_bytes
    del data[:sent]


def test_a_file_cannot_be_sent_to_the_descriptor(connected: Connect) -> None:
    """FTP servers take EPIPE for the end of their client, and EINVAL for a reason to send by other means."""
    one, _ = connected()
    with open(__file__, "rb") as file:
        for timeout_s in (0, None):
            one.settimeout(timeout_s)
            with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
                os.sendfile(one.fileno(), file.fileno(), 0, 100)


def test_a_number_that_was_asked_for_before_the_connection_is_readable() -> None:
    """asyncore asks for it once, when it makes the socket."""
    with sockets.create_server(("127.0.0.1", 0)) as server, sockets.socket() as client:
        number = client.fileno()
        client.connect(server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            waiting = select.poll()
            waiting.register(number, select.POLLIN)
            assert waiting.poll(0) == []
            accepted.sendall(b"hello")
            assert waiting.poll(limit_s(30) * 1000) == [(number, select.POLLIN)]
            assert client.recv(100) == b"hello"
            assert waiting.poll(0) == []


def test_a_socket_made_of_a_detached_number_knows_its_connection(connected: Connect) -> None:
    """TLS makes its sockets so; FTP over TLS asks for names, and HTTP clients set TCP_NODELAY."""
    one, other = connected()
    own, peer = one.getsockname(), one.getpeername()
    with sockets.socket(fileno=one.detach()) as made:
        assert (made.family, made.type) == (other.family, other.type)
        assert (made.getsockname(), made.getpeername()) == (own, peer)
        made.setsockopt(kernel.IPPROTO_TCP, kernel.TCP_NODELAY, 1)
        assert made.getsockopt(kernel.IPPROTO_TCP, kernel.TCP_NODELAY)
        with made.dup() as again:
            assert again.getpeername() == peer
        made.sendall(b"hello")
        assert other.recv(100) == b"hello"
        other.sendall(b"hello yourself")
        assert made.recv(100) == b"hello yourself"
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        made.getsockname()


def test_a_socket_of_tls_knows_its_connection(connected: Connect) -> None:
    """It is made of the number before the plain socket gives that up."""

    class OfTLS(sockets.socket):
        do_handshake = None

    one, _ = connected()
    own, peer = one.getsockname(), one.getpeername()
    with OfTLS(one.family, one.type, one.proto, fileno=one.fileno()) as made:
        one.detach()
        assert (made.getsockname(), made.getpeername()) == (own, peer)
        made.setsockopt(kernel.IPPROTO_TCP, kernel.TCP_NODELAY, 1)


class Foreign(asyncio.AbstractEventLoop):
    """An event loop that is not asyncio's own."""


@pytest.fixture
def in_a_loop() -> Iterator[Callable[[asyncio.AbstractEventLoop], None]]:
    """A function after which this thread runs a loop."""
    yield asyncio._set_running_loop
    asyncio._set_running_loop(None)


def test_sockets_of_loops_that_read_descriptors_themselves_are_tcp_s(
    in_a_loop: Callable[[asyncio.AbstractEventLoop], None],
) -> None:
    """uvloop accepts by the number; a client to which a stream was promised waited in vain."""
    with sockets.create_server(("127.0.0.1", 0)) as server:
        in_a_loop(Foreign())
        with sockets.create_connection(server.getsockname()) as client:
            assert client.stream is None
            server.accept()[0].close()
        server.fileno()
        asyncio._set_running_loop(None)
        with sockets.create_connection(server.getsockname()) as client:
            assert client.stream is None
            accepted, _ = server.accept()
            with accepted:
                client.sendall(b"by TCP")
                assert os.read(accepted.fileno(), 100) == b"by TCP"


def test_sockets_of_asyncio_s_own_loops_go_by_rdma(
    in_a_loop: Callable[[asyncio.AbstractEventLoop], None],
) -> None:
    loop = asyncio.new_event_loop()
    with contextlib.closing(loop), sockets.create_server(("127.0.0.1", 0)) as server:
        in_a_loop(loop)
        server.fileno()
        with sockets.create_connection(server.getsockname()) as client:
            assert client.stream is not None
            server.accept()[0].close()


def test_a_full_backlog_is_tried_again() -> None:
    """TCP's first packet finds no room, and goes again, while the stream waits."""
    with (
        sockets.create_server(("127.0.0.1", 0), backlog=0) as server,
        kernel.create_connection(server.getsockname()),
        sockets.socket() as client,
    ):
        assert select.select([server], [], [], limit_s(20))[0]  # one waits, and there is room for no more
        client.settings = sockets.Settings(connect_s=limit_s(20))
        client.setblocking(False)
        assert client.connect_ex(server.getsockname()) == errno.EINPROGRESS
        made = client._upgrade
        limit = time.monotonic() + limit_s(20)
        while made.tcp.getsockopt(kernel.IPPROTO_TCP, kernel.TCP_INFO, 1) != SYN_SENT:
            assert time.monotonic() < limit
        server.settimeout(limit_s(20))
        server.accept()[0].close()
        with server.accept()[0] as accepted:
            assert accepted.stream is not None
            accepted.sendall(b"hello")
            client.settimeout(limit_s(20))
            assert client.recv(100) == b"hello"


def test_a_socket_that_is_connected_does_not_connect_again(connected: Connect) -> None:
    """Twisted asks a second time, to learn that it is connected."""
    one, other = connected()
    assert one.connect_ex(other.getsockname()) == errno.EISCONN
    with pytest.raises(OSError, match=os.strerror(errno.EISCONN)):
        one.connect(other.getsockname())
    one.sendall(b"still connected")
    assert other.recv(100) == b"still connected"
