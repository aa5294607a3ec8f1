"""What the tests of channels share: one device for a file, connected pairs, calls in other threads."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from channel_waits import LIMIT_S, SMALL

from softhca.channels import Channel, ChannelOptions
from softhca.driver import registry
from softhca.runtime import devices

Pair = tuple[Channel, Channel]


@pytest.fixture(scope="module", autouse=True)
def device() -> Iterator[Any]:
    """One device, open for the whole file, whose adapter is empty at the end."""
    (name,) = registry.names()
    opened = registry.open_device(name)
    yield devices.find(name)
    gc.collect()
    counts = devices.find(name).resources()
    assert not any(counts.values()), counts
    opened.close()


@pytest.fixture(scope="module")
def threads() -> Iterator[ThreadPoolExecutor]:
    """Threads to call in."""
    with ThreadPoolExecutor(32) as pool:
        yield pool


@pytest.fixture
def later(threads: ThreadPoolExecutor) -> Callable[..., Future[Any]]:
    """A function that calls another one in a thread: its future."""
    return threads.submit


@pytest.fixture
def connected(threads: ThreadPoolExecutor) -> Iterator[Callable[..., Pair]]:
    """A function that gives the two ends of a channel: who has asked, and who was asked."""
    made: list[Channel] = []

    def connect(options: ChannelOptions | None = None, acknowledged: bool = True) -> Pair:
        with Channel.listen("127.0.0.1:0", options=options) as listener:
            asking = threads.submit(
                Channel.connect, listener.address, acknowledged=acknowledged, options=options, timeout=LIMIT_S
            )
            made.append(listener.accept(LIMIT_S))
            made.append(asking.result(LIMIT_S))
        for each in made[-2:]:
            each.timeout = LIMIT_S
        return made[-1], made[-2]

    yield connect
    for each in made:
        each.kill()


@pytest.fixture
def pair(connected: Callable[..., Pair]) -> Pair:
    """A channel with few small slots."""
    return connected(SMALL)
