"""What the tests of sockets share: connected pairs, bound sockets, and devices that are let
go at the end of a file.
"""

from __future__ import annotations

import gc
import socket as kernel
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sockets_under_way import Held, settled

from machine_speed import limit_s
from softhca import sockets
from softhca.sockets import devices, port_lookup
from softhca.sockets.connecting import mapped

Pair = tuple[sockets.socket, sockets.socket]


@pytest.fixture(scope="module", autouse=True)
def devices_are_let_go() -> Iterator[None]:
    """Sockets keep the device of a file open."""
    yield
    gc.collect()
    devices.let_go()


@pytest.fixture
def connected() -> Iterator[Callable[..., Pair]]:
    """A function that gives two ends of a connection by RDMA; keywords are `Settings`'."""
    made: list[sockets.socket] = []

    def connect(**settings: Any) -> Pair:
        with sockets.create_server(("127.0.0.1", 0)) as server:
            client = sockets.socket()
            made.append(client)
            if settings:
                client.settings = server._listener.settings = sockets.Settings(**settings)  # type: ignore[union-attr]
            client.settimeout(20)
            client.connect(server.getsockname())
            accepted, _ = server.accept()
            made.append(accepted)
            accepted.settimeout(20)
        assert client.stream is not None
        assert accepted.stream is not None
        return client, accepted

    yield connect
    for each in made:
        each.close()


@pytest.fixture
def bound() -> Iterator[Callable[..., sockets.socket]]:
    """A function that gives a bound datagram socket; keywords are `Settings`'."""
    made: list[sockets.socket] = []

    def bind(address: tuple[str, int] = ("127.0.0.1", 0), **settings: object) -> sockets.socket:
        family = kernel.AF_INET6 if ":" in address[0] else kernel.AF_INET
        one = sockets.socket(family, kernel.SOCK_DGRAM)
        made.append(one)
        if settings:
            one.settings = sockets.Settings(**settings)  # type: ignore[arg-type]
        one.settimeout(limit_s(20))
        one.bind(address)
        assert one.datagrams is not None
        return one

    yield bind
    for each in made:
        each.close()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    one = Held(monkeypatch)
    yield one
    one.go_on.set()
    settled()


@pytest.fixture
def server() -> Iterator[sockets.socket]:
    """A server that is served by RDMA."""
    with sockets.create_server(("127.0.0.1", 0)) as one:
        assert one._listener is not None
        one.settimeout(limit_s(20))
        yield one


@pytest.fixture
def mute() -> Iterator[kernel.socket]:
    """A TCP server of which somebody says that it is served by RDMA, and then not where."""
    with kernel.create_server(("127.0.0.1", 0)) as one, kernel.socket(kernel.AF_UNIX) as sign:
        sign.bind(port_lookup._name(one.getsockname()[1], mapped("127.0.0.1")))
        sign.listen()
        yield one
