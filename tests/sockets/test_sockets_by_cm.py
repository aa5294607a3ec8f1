"""Connections by the connection manager alone: no TCP connection is made at all."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket as kernel
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from machine_speed import limit_s
from softhca import sockets
from softhca.machine.kernel_sockets import KernelSocket
from softhca.sockets.datagram_socket import DatagramSocket
from softhca.sockets.stream import Stream

BY_CM = sockets.Settings(by_cm=True, keepalive_s=0.05)
SERVER = """
import os, sys
os.environ["SOFTHCA_SOCKETS_BY_CM"] = "1"
from softhca import sockets
server = sockets.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
connection, _ = server.accept()
while data := connection.recv(1 << 16):
    connection.sendall(data.upper())
"""


@pytest.fixture(autouse=True)
def no_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here connects or listens by TCP."""

    def refuse(*_: object) -> None:
        raise AssertionError("TCP")

    monkeypatch.setattr(DatagramSocket, "connect", refuse)
    monkeypatch.setattr(KernelSocket, "connect_ex", refuse)


def made(settings: sockets.Settings = BY_CM) -> sockets.socket:
    one = sockets.socket()
    one.settings = settings
    one.settimeout(limit_s(20))
    return one


@pytest.fixture
def server() -> Iterator[sockets.socket]:
    with made() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        yield one


@pytest.fixture
def pair(server: sockets.socket) -> Iterator[tuple[sockets.socket, sockets.socket]]:
    with made() as client:
        client.connect(server.getsockname())
        accepted, name = server.accept()
        with accepted:
            accepted.settimeout(limit_s(20))
            assert name == client.getsockname() == accepted.getpeername()
            assert accepted.getsockname() == client.getpeername() == server.getsockname()
            yield client, accepted


def test_bytes_go_both_ways_and_the_halves_end(pair: tuple[sockets.socket, sockets.socket]) -> None:
    client, accepted = pair
    data = bytes(range(256)) * 400
    thread = threading.Thread(target=client.sendall, args=(data,))
    thread.start()
    assert accepted.recv(len(data), kernel.MSG_WAITALL) == data
    thread.join()
    client.shutdown(kernel.SHUT_WR)
    assert accepted.recv(1) == b""
    accepted.sendall(b"answer")
    accepted.close()
    assert client.recv(10) == b"answer"
    assert client.recv(10) == b""
    client.setsockopt(kernel.IPPROTO_TCP, kernel.TCP_NODELAY, 1)
    assert client.getsockopt(kernel.SOL_SOCKET, kernel.SO_ERROR) == 0


def test_the_kernel_has_no_connection(pair: tuple[sockets.socket, sockets.socket]) -> None:
    for one in pair:
        assert one._upgrade is not None
        with pytest.raises(OSError, match="not connected"):
            one._upgrade.tcp.getpeername()


def test_who_knows_tcp_alone_is_refused(server: sockets.socket) -> None:
    with pytest.raises(ConnectionRefusedError):
        kernel.create_connection(server.getsockname())
    with sockets.socket() as one, pytest.raises(ConnectionRefusedError):
        kernel.socket.connect(one, server.getsockname())


def test_who_listens_by_tcp_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    with sockets.create_server(("127.0.0.1", 0)) as other, made() as client:
        with pytest.raises(ConnectionRefusedError):
            client.connect(other.getsockname())
        with made() as again:
            assert again.connect_ex(other.getsockname()) == errno.ECONNREFUSED


def test_a_descriptor_tells_of_connections(server: sockets.socket) -> None:
    server.setblocking(False)
    with pytest.raises(BlockingIOError):
        server.accept()
    poll = select.poll()
    poll.register(server, select.POLLIN)
    assert not poll.poll(0)
    with made() as client, made() as second:
        client.connect(server.getsockname())
        assert poll.poll(limit_s(20) * 1000)
        second.connect(server.getsockname())
        again = sockets.socket(fileno=os.dup(server.fileno()))
        with again, again.accept()[0] as one:
            assert one.getpeername() == client.getsockname()
            assert poll.poll(0)
            server.accept()[0].close()
            assert not poll.poll(0)
    server.settimeout(0.01)
    with pytest.raises(TimeoutError):
        server.accept()


def test_no_more_wait_than_the_backlog_and_those_are_refused_at_the_end() -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(made())
        server.bind(("127.0.0.1", 0))
        server.listen(2)
        clients = [stack.enter_context(made()) for _ in range(3)]
        for each in clients[:2]:
            each.connect(server.getsockname())
        with pytest.raises(ConnectionRefusedError):
            clients[2].connect(server.getsockname())
        server.close()
        for each in clients[:2]:
            with pytest.raises(ConnectionResetError):
                each.recv(1)


def test_a_wait_for_connections_ends_with_the_socket(server: sockets.socket) -> None:
    ended: list[object] = []

    def wait() -> None:
        try:
            server.accept()
        except OSError as error:
            ended.append(error.errno)

    thread = threading.Thread(target=wait)
    thread.start()
    assert server._by_cm is not None
    server._by_cm.close()
    thread.join(limit_s(20))
    assert ended == [errno.EINVAL]


def served() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)


def test_another_process_is_reached_and_its_death_is_seen_without_data() -> None:
    """Nothing is in flight: only the question whether it lives finds out."""
    with served() as process, made() as client:
        try:
            assert process.stdout is not None
            client.connect(("127.0.0.1", int(process.stdout.readline())))
            client.sendall(b"hello")
            assert client.recv(5, kernel.MSG_WAITALL) == b"HELLO"
            process.send_signal(signal.SIGKILL)
            process.wait()
            client.settimeout(limit_s(60))
            with pytest.raises(ConnectionResetError):
                client.recv(1)
        finally:
            process.kill()


def test_who_lives_is_asked_and_nothing_comes_of_it(
    pair: tuple[sockets.socket, sockets.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Semaphore(0)
    probe = Stream.probe

    def counted(self: Stream) -> None:
        probe(self)
        asked.release()

    monkeypatch.setattr(Stream, "probe", counted)
    for _ in range(6):
        assert asked.acquire(timeout=limit_s(20))
    client, accepted = pair
    client.sendall(b"still here")
    assert accepted.recv(20) == b"still here"
