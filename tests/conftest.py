"""What the tests of all rooms share: addresses that nobody else has, and two open devices in both modes."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from softhca.verbs.device import Context

ROCE_PORT = 4791
DEFAULT_BUFFER_BYTES = 212_992
"""What Linux gives a process without privilege: the size that every rule about loss must bear."""


def _loopback_addresses() -> Iterator[str]:
    """Addresses of 127/8 whose RoCE port is free; runs of the tests at the same time begin far apart."""
    start = os.getpid() * 251 % 60_000
    for offset in range(60_000):
        high, low = divmod((start + offset) % 60_000, 250)
        address = f"127.1{high % 10}.{high // 10 + 1}.{low + 2}"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((address, ROCE_PORT))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
        yield address


@pytest.fixture(scope="session")
def loopback_address() -> Callable[[], str]:
    """A function that gives another free loopback address (port 4791) each time."""
    addresses = _loopback_addresses()
    return lambda: next(addresses)


@dataclass
class VerbsPair:
    """Two open contexts on two devices of this process; ``mode`` says where their adapters live."""

    client: Context
    server: Context
    mode: str


@pytest.fixture(params=["embedded", "process"])
def verbs_pair(request: pytest.FixtureRequest, loopback_address: Callable[[], str]) -> Iterator[VerbsPair]:
    """Two devices with default socket buffers; once they are closed, the adapters must be empty."""
    from softhca.driver import registry
    from softhca.runtime import devices
    from softhca.verbs.device import Context

    names = ("pair0", "pair1")
    words = (f"{name}=udp:{loopback_address()}?buffer={DEFAULT_BUFFER_BYTES}" for name in names)
    devices.add(",".join(words), request.param)
    observers = [registry.open_device(name) for name in names]
    try:
        pair = VerbsPair(Context(name=names[0]), Context(name=names[1]), request.param)
        yield pair
        pair.client.close()
        pair.server.close()
        left = [devices.find(name).resources() for name in names]
    finally:
        for observer in observers:
            observer.close()
        for name in names:
            devices.remove(name)
    assert all(left)
    assert not any(count for counts in left for count in counts.values()), left
