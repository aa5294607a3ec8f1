"""What tests of streams by RDMA send, and how they read it."""

from __future__ import annotations

from collections.abc import Callable

from softhca import sockets

Pair = tuple[sockets.socket, sockets.socket]
Connect = Callable[..., Pair]


def pattern(length: int) -> bytes:
    """Bytes that differ from place to place."""
    return bytes(at * 31 % 253 for at in range(1021)) * (length // 1021 + 1)


def read(end: sockets.socket, length: int) -> bytes:
    """Exactly so many bytes."""
    found = bytearray()
    while len(found) < length:
        more = end.recv(length - len(found))
        assert more, "the stream has ended"
        found += more
    return bytes(found)
