"""Listeners: they take requests for channels, and accept them one by one."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Self

from softhca.channels.channel import Channel
from softhca.channels.connecting import Address, Requests
from softhca.channels.endpoint import Endpoint
from softhca.channels.errors import ChannelClosed, ChannelTimeout
from softhca.channels.options import ChannelOptions
from softhca.driver.errors import DriverError
from softhca.verbs.cmid import CMEvent

if TYPE_CHECKING:
    from softhca.channels.aio import AsyncChannel, AsyncListener


class Listener:
    """Listens at an address until `close`; ``for channel in listener`` takes one channel after the other.

    Any thread may call any method; several may accept.  ``address`` is ``host:port`` with the real port.
    """

    def __init__(self, address: Address, backlog: int, options: ChannelOptions | None) -> None:
        self._requests = Requests(address, options or ChannelOptions(), backlog)
        self.address = self._requests.address
        self.on_close: list[Callable[[], object]] = []
        """Called when it is closed, from any thread."""

    def accept(self, timeout: float | None = None) -> Channel:
        """The next channel.  ChannelTimeout, ChannelClosed."""
        deadline_s = None if timeout is None else time.monotonic() + timeout
        while True:
            left_s = None if deadline_s is None else max(deadline_s - time.monotonic(), 0.0)
            found = self._next(left_s)
            if found is not None:
                return Channel(found)
            if left_s == 0.0:
                raise ChannelTimeout(f"nobody has asked for a channel in {timeout:g} s")

    def _next(self, timeout: float | None) -> Endpoint | None:
        """Take one event; a connection, where it has led to one.  ChannelClosed."""
        try:
            event = self._requests.channel.channel.next_event(timeout)
        except DriverError as error:
            raise ChannelClosed(f"the listener is closed: {error}") from None
        return None if event is None else self._requests.accept(CMEvent.of(event))

    def take_event(self) -> tuple[bool, Endpoint | None]:
        """For event loops: whether there was an event, and the connection that it has led to."""
        try:
            event = self._requests.channel.channel.next_event(0)
        except DriverError as error:
            raise ChannelClosed(f"the listener is closed: {error}") from None
        return event is not None, None if event is None else self._requests.accept(CMEvent.of(event))

    def fileno(self) -> int:
        """A descriptor that is readable while requests wait."""
        if self.closed:
            raise ChannelClosed("the listener is closed")
        return self._requests.channel.fd

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return bool(self._requests.channel.channel.closed)

    def __iter__(self) -> Iterator[Channel]:
        """Channels, until the listener is closed."""
        while True:
            try:
                channel = self.accept()
            except ChannelClosed:
                return
            yield channel

    def close(self) -> None:
        """Take no more requests; channels that were accepted live on.  May be called again."""
        self._requests.close()
        for each in list(self.on_close):
            each()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def aio(self) -> AsyncListener:
        """The same listener, for coroutines."""
        from softhca.channels.aio import AsyncListener

        return AsyncListener(self)

    async def __aenter__(self) -> AsyncListener:
        return self.aio

    async def __aexit__(self, *error: object) -> None:
        self.close()

    def __aiter__(self) -> AsyncIterator[AsyncChannel]:
        return self.aio.__aiter__()
