"""What tests of datagrams by RDMA send, whence, and how long they wait."""

from __future__ import annotations

from collections.abc import Callable

from machine_speed import limit_s
from softhca import sockets

Bound = Callable[..., sockets.socket]
HERE = ("127.0.0.1", 0)
LONG_S = limit_s(60)


def pattern(length: int, start: int = 0) -> bytes:
    """Bytes that differ from place to place."""
    return (bytes(at * 31 % 253 for at in range(start, start + 1021)) * (length // 1021 + 1))[:length]


def port_of(one: sockets.socket) -> object:
    assert one.datagrams is not None
    return one.datagrams.ports[0]
