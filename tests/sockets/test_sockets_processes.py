"""Streams between processes: the end of a peer, large transfers, peers of both kinds."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
import time
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


DATAGRAMS = """
import os, sys
from softhca import sockets
server = sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM)
server.bind(("127.0.0.1", int(sys.argv[1])))
print(server.getsockname()[1], flush=True)
buffer = sockets.PageBuffer(1 << 16)
while True:
    count, name = server.recvfrom_into(buffer)
    server.sendto(memoryview(buffer)[:count], name)
    print(server.datagrams.reaches(name), flush=True)
    if not count:
        os._exit(0)  # without a word
"""


def test_datagrams_go_to_another_process_and_to_the_next_one_at_its_port() -> None:
    """Who was killed said no goodbye; after a while its successor is found."""
    limit = time.monotonic() + limit_s(60)
    with sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM) as client:
        client.bind(("127.0.0.1", 0))
        client.settimeout(0.2)
        port = 0
        for _ in range(2):
            command = [sys.executable, "-c", DATAGRAMS, str(port)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                port = int(process.stdout.readline())
                for data in (b"hello", bytes(range(250)) * 240, b""):
                    while time.monotonic() < limit:
                        client.sendto(data, ("127.0.0.1", port))
                        try:
                            found = client.recvfrom(70_000)
                        except TimeoutError:
                            continue
                        if found[0] == data:
                            break
                    assert found == (data, ("127.0.0.1", port))
                assert process.stdout.read().endswith("True\n")
                assert client.datagrams.reaches(("127.0.0.1", port))  # type: ignore[union-attr]


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
