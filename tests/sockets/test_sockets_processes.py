"""Streams between processes: the end of a peer, large transfers, peers of both kinds."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from machine_speed import limit_s
from softhca import sockets

SERVER = """
import hashlib, sys
from softhca import sockets
server = sockets.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
connection, _ = server.accept()
assert connection.stream is not None
if sys.argv[1] == "digest":
    digest = hashlib.sha256()
    buffer = sockets.PageBuffer(1 << 19)
    while count := connection.recv_into(buffer):
        digest.update(memoryview(buffer)[:count])
    connection.sendall(digest.digest())
elif sys.argv[1] == "silent":
    sys.stdin.read()
elif sys.argv[1] == "ends":
    connection.sendall(b"x" * 100_000)
"""


@contextmanager
def served(what: str) -> Iterator[tuple[subprocess.Popen[str], sockets.socket]]:
    """A process that serves one connection, and the connection."""
    command = [sys.executable, "-c", SERVER, what]
    with (
        sockets.create_server(("127.0.0.1", 0)),  # this process has its device, at an address of its own
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            with sockets.create_connection(("127.0.0.1", port), timeout=limit_s(30)) as client:
                assert client.stream is not None
                yield process, client
        finally:
            process.kill()


def test_another_process_gets_every_byte() -> None:
    data = bytes(range(251)) * 12_345
    with served("digest") as (_, client):
        client.sendall(data[:5])
        client.sendall(bytearray(data[5:100_000]))
        client.sendall(data[100_000:])
        client.shutdown(sockets.SHUT_WR)
        assert client.recv(32, sockets.MSG_WAITALL) == hashlib.sha256(data).digest()
        assert client.recv(1) == b""


@pytest.mark.parametrize("in_flight", [False, True])
def test_a_peer_that_is_killed_resets_the_connection(in_flight: bool) -> None:
    with served("silent") as (process, client):
        client.sendall(b"never read")
        ended: list[object] = []

        def use() -> None:
            try:
                if in_flight:
                    client.sendall(bytes(8 << 20))
                else:
                    client.recv(1)
            except OSError as error:
                ended.append(type(error))

        thread = threading.Thread(target=use)
        thread.start()
        process.kill()
        thread.join(limit_s(30))
        assert ended == [ConnectionResetError]


def test_a_program_that_ends_has_sent_what_it_has_sent() -> None:
    with served("ends") as (process, client):
        assert client.recv(100_000, sockets.MSG_WAITALL) == b"x" * 100_000
        assert client.recv(1) == b""
        assert process.wait(limit_s(30)) == 0
