"""A peer for tests of what befalls it: ``faulty_peer.py WHAT [PORT]``.  It says in a line what it has come
to, and does nothing more than that without a word on standard input.
"""

from __future__ import annotations

import contextlib
import socket as kernel
import sys

from softhca import sockets


def say(word: object) -> None:
    print(word, flush=True)


def listening(settings: sockets.Settings) -> sockets.socket:
    server = sockets.socket()
    server.settings = settings
    server.bind(("127.0.0.1", 0))
    server.listen()
    say(server.getsockname()[1])
    return server


def fill(client: sockets.socket) -> None:
    """Send until the peer has no room, and nothing is under way."""
    stream = client.stream
    assert stream is not None
    client.setblocking(False)
    while stream.writable or not stream.drained:
        with contextlib.suppress(BlockingIOError):
            client.send(bytes(1 << 16))
        stream.refresh()
    client.setblocking(True)


def main(what: str, place: str = "0", by_cm: str = "") -> None:
    settings = sockets.Settings(by_cm=bool(by_cm), keepalive_s=0.2)
    if what == "datagrams":
        with sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM) as end:
            end.bind(("127.0.0.1", 0))
            say(end.getsockname()[1])
            while True:
                data, name = end.recvfrom(1 << 16)
                end.sendto(data, name)
    if what == "asks":
        client = sockets.socket()
        client.settings = settings
        client.connect(("127.0.0.1", int(place)))
        say("connected")
        sys.stdin.readline()
        return
    if what == "fills":
        client = sockets.socket()
        client.settings = settings
        client.connect(("127.0.0.1", int(place)))
        fill(client)
        say("full")
        sys.stdin.readline()
        try:
            client.sendall(b"x")
        except OSError as error:
            say(type(error).__name__)
        return
    if what == "keeps alive":
        client = sockets.socket()
        client.setsockopt(kernel.SOL_SOCKET, kernel.SO_KEEPALIVE, 1)
        client.setsockopt(kernel.IPPROTO_TCP, kernel.TCP_KEEPIDLE, 1)
        client.connect(("127.0.0.1", int(place)))
        say("connected")
        try:
            client.recv(1)
        except OSError as error:
            say(type(error).__name__)
        return
    with listening(settings) as server:
        if what == "late":
            sys.stdin.readline()
        connection, _ = server.accept()
        say("accepted")
        if what == "late":
            say(connection.recv(100))
        elif what == "sends":
            connection.sendall(bytes(range(256)) * 512)
            say("sent")
        elif what == "digests":
            total = length = 0
            while data := connection.recv(1 << 20):
                total, length = total + sum(data), length + len(data)
            say(f"{total} {length}")
        elif what == "closes":
            connection.sendall(b"last words")
            say("sent")
            sys.stdin.readline()
            connection.close()
            say("closed")
        sys.stdin.readline()


main(*sys.argv[1:])
