"""Channels for asyncio.

A task that waits first has the event loop go round a few times, and takes what comes: while there is traffic,
nothing is armed and no thread is involved.  Then it arms the completion queue and sleeps until the completion
channel's descriptor is readable.  What is there already is taken without giving way to other tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar

from softhca.channels import connecting, steps
from softhca.channels.errors import (
    ChannelClosed,
    ChannelEnded,
    ChannelError,
    ChannelTimeout,
    failed,
)
from softhca.channels.named import Grant, Rights, SharedBuffer
from softhca.channels.registration import bytes_of
from softhca.driver.errors import DriverError
from softhca.verbs.pyverbs_error import PyverbsError

if TYPE_CHECKING:
    from softhca.channels.channel import Channel
    from softhca.channels.link import Link
    from softhca.channels.listener import Listener
    from softhca.channels.steps import Steps

T = TypeVar("T")
ROUNDS, POLLS = 20, 4
"""So often the loop goes round before a task that waits sleeps, and so often the task polls in between."""


class Waiters:
    """Tasks of one event loop that wait for one link; used in the loop's thread, but for `_news`."""

    def __init__(self, link: Link, loop: asyncio.AbstractEventLoop) -> None:
        self._link = link
        self._loop = loop
        self._entries: dict[asyncio.Future[bool], Callable[[], bool]] = {}
        self._thread = threading.get_ident()
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._fd = os.dup(link.completion_channel.fd)
        try:
            loop.add_reader(self._fd, self._look)
        except BaseException:
            os.close(self._fd)
            raise
        link.loops.append(self._news)

    async def wait(self, ready: Callable[[], bool], deadline_s: float | None) -> bool:
        """Until ``ready()``; False at the deadline (of ``time.monotonic``)."""
        link = self._link
        for _ in range(ROUNDS):
            for _ in range(POLLS):
                if ready():
                    return True
                link.poll()
            if deadline_s is not None and time.monotonic() >= deadline_s:
                return ready()
            await asyncio.sleep(0)
        future: asyncio.Future[bool] = self._loop.create_future()
        self._entries[future] = ready
        timer = None
        try:
            if link.look(ready):
                return True
            if self._timer is None:
                self._timer = self._loop.call_later(link.options.keepalive_s, self._tick)
            if deadline_s is not None:
                left_s = max(deadline_s - time.monotonic(), 0.0)
                timer = self._loop.call_later(left_s, _end, future, False)
            return await future
        finally:
            self._entries.pop(future, None)
            if timer is not None:
                timer.cancel()

    def _news(self) -> None:
        """Something has changed; any thread."""
        if self._entries and not self._scheduled:
            self._scheduled = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                if threading.get_ident() == self._thread:
                    self._loop.call_soon(self._look)
                else:
                    self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        """Take what has come, and wake the tasks that have waited for it."""
        self._scheduled = False
        self._link.look(_never)
        for future, ready in list(self._entries.items()):
            if ready():
                _end(future, True)

    def _tick(self) -> None:
        self._timer = None
        if self._entries:
            self._link.keep_alive()
            self._look()
            self._timer = self._loop.call_later(self._link.options.keepalive_s, self._tick)

    def end(self) -> None:
        """The link is closed; any thread."""
        try:
            self._loop.call_soon_threadsafe(self.close)
        except RuntimeError:  # the loop is closed
            self.close()

    def close(self) -> None:
        """In the loop's thread, or where the loop has ended: watch no more."""
        for future in list(self._entries):
            _end(future, True)
        with contextlib.suppress(ValueError):
            self._link.loops.remove(self._news)
        if self._timer is not None:
            self._timer.cancel()
        if self._fd >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


def _never() -> bool:
    return False


def _end(future: asyncio.Future[bool], result: bool) -> None:
    if not future.done():
        future.set_result(result)


def waiters_of(link: Link) -> Waiters:
    """Those of the running loop."""
    loop = asyncio.get_running_loop()
    found = link.waiters.get(loop)
    if found is None:
        for each in [old for old in link.waiters if old.is_closed()]:
            link.waiters.pop(each).close()
        found = link.waiters[loop] = Waiters(link, loop)
    return found


async def run(link: Link, todo: Steps[T], timeout: float | None, what: str) -> T:
    """Do all steps, waiting in the running loop.  ChannelTimeout after ``timeout`` seconds."""
    deadline_s = None if timeout is None else time.monotonic() + timeout
    try:
        while True:
            try:
                ready = next(todo)
            except StopIteration as end:
                result: T = end.value
                return result
            if link.closed:
                continue
            if not ready() and not await waiters_of(link).wait(ready, deadline_s):
                raise steps.late(what, timeout)
    except (PyverbsError, DriverError) as error:
        raise failed(error, what) from error
    finally:
        todo.close()


class AsyncChannel:
    """A `Channel` (``sync``) for coroutines: the same methods, awaited.

    Several tasks may use it, of several loops; threads may use ``sync`` meanwhile.
    """

    def __init__(self, sync: Channel) -> None:
        self.sync = sync
        self._endpoint = sync._endpoint
        self._link = sync._link

    async def _run(self, todo: Steps[Any], timeout: float | None, what: str) -> Any:
        if not self._link.established:
            await self._finish()
        return await run(self._link, todo, self.sync.timeout if timeout is None else timeout, what)

    async def _finish(self) -> None:
        sync, plan = self.sync, self.sync._plan
        if plan is None or self._link.established:
            return
        while True:
            try:
                await run(self._link, connecting.finish(self._endpoint), plan.turn_s, plan.unanswered)
                return
            except BaseException as error:
                sync._ask_again(plan, error)
                self._endpoint, self._link = sync._endpoint, sync._link
            await asyncio.sleep(connecting.PAUSE_S)

    async def send(self, data: Any, timeout: float | None = None) -> None:
        """As `Channel.send`.  Cancelled: a short message was not sent; a long one stays on offer."""
        endpoint, view = self._endpoint, bytes_of(data)
        if view.nbytes <= endpoint.quick:
            with self._link.guard:
                if view.nbytes <= endpoint.quick and endpoint.send(view):
                    return
        await self._run(steps.send(endpoint, data), timeout, "no room for the message")

    async def recv(self, timeout: float | None = None) -> bytes:
        """As `Channel.recv`.  Cancelled: no message is lost."""
        endpoint = self._endpoint
        if endpoint.inbox:
            with self._link.guard:
                found = endpoint.take_quick()
            if found is not None:
                return found
        message: bytes = await self._run(steps.receive(endpoint), timeout, "no message")
        return message

    async def recv_into(self, buffer: Any, timeout: float | None = None) -> int:
        """As `Channel.recv_into`."""
        length: int = await self._run(steps.receive(self._endpoint, buffer), timeout, "no message")
        return length

    def try_recv(self) -> bytes | None:
        """As `Channel.try_recv`."""
        return self.sync.try_recv()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The messages, until the peer closes the channel."""
        while True:
            try:
                message = await self.recv()
            except ChannelEnded:
                return
            yield message

    async def share(self, name: str, buffer: Any, rights: Rights | str = "r") -> SharedBuffer:
        """As `Channel.share`; `unshare` ends it."""
        shared = self._link.named.register(self.sync, name, buffer, Rights.of(rights))
        try:
            await self._run(steps.share(self._endpoint, shared), None, f"{name!r} was not shared")
        except BaseException:
            self._link.named.end(shared)
            raise
        return shared

    async def unshare(self, shared: SharedBuffer, timeout: float | None = None) -> None:
        """As `SharedBuffer.close`."""
        limit_s = self._link.options.linger_s if timeout is None else timeout
        with contextlib.suppress(TimeoutError):
            await self._run(steps.unshare(self._endpoint, shared), limit_s, "")

    async def remote(self, name: str, timeout: float | None = None) -> AsyncRemoteBuffer:
        """As `Channel.remote`."""
        return AsyncRemoteBuffer(self, await self._grant(name, timeout))

    async def _grant(self, which: AsyncRemoteBuffer | str, timeout: float | None) -> Grant:
        if isinstance(which, str):
            found: Grant = await self._run(
                steps.remote(self._endpoint, which), timeout, f"nothing is shared as {which!r}"
            )
            return found
        return steps.grant_of(self._endpoint, which, AsyncRemoteBuffer)

    async def write(
        self, remote: AsyncRemoteBuffer | str, data: Any, offset: int = 0, timeout: float | None = None
    ) -> None:
        """As `Channel.write`."""
        grant = await self._grant(remote, timeout)
        await self._run(steps.write(self._endpoint, grant, data, offset), timeout, "not written")

    async def read(
        self,
        remote: AsyncRemoteBuffer | str,
        length: int | None = None,
        offset: int = 0,
        timeout: float | None = None,
    ) -> bytes:
        """As `Channel.read`."""
        grant = await self._grant(remote, timeout)
        found: bytes = await self._run(
            steps.read(self._endpoint, grant, length, offset), timeout, "not read"
        )
        return found

    async def read_into(
        self, remote: AsyncRemoteBuffer | str, buffer: Any, offset: int = 0, timeout: float | None = None
    ) -> None:
        """As `Channel.read_into`."""
        grant = await self._grant(remote, timeout)
        await self._run(steps.read(self._endpoint, grant, None, offset, buffer), timeout, "not read")

    async def fetch_add(
        self, remote: AsyncRemoteBuffer | str, offset: int, value: int, timeout: float | None = None
    ) -> int:
        """As `Channel.fetch_add`."""
        grant = await self._grant(remote, timeout)
        found: int = await self._run(
            steps.fetch_add(self._endpoint, grant, offset, value), timeout, "no answer"
        )
        return found

    async def compare_swap(
        self,
        remote: AsyncRemoteBuffer | str,
        offset: int,
        expected: int,
        new: int,
        timeout: float | None = None,
    ) -> int:
        """As `Channel.compare_swap`."""
        grant = await self._grant(remote, timeout)
        todo = steps.compare_swap(self._endpoint, grant, offset, expected, new)
        found: int = await self._run(todo, timeout, "no answer")
        return found

    async def open(
        self, name: str, *, acknowledged: bool = True, timeout: float | None = None
    ) -> AsyncChannel:
        """As `Channel.open`."""
        todo = steps.open_channel(self._endpoint, name, acknowledged)
        made = await self._run(todo, timeout, f"{name!r} was not accepted")
        return type(self.sync)(made).aio

    async def accept(self, timeout: float | None = None) -> AsyncChannel:
        """As `Channel.accept`."""
        made = await self._run(steps.accept_channel(self._endpoint), timeout, "no channel was opened")
        return type(self.sync)(made).aio

    async def close(self) -> None:
        """As `Channel.close`."""
        sync = self.sync
        if not sync._begin_closing():
            return
        try:
            with contextlib.suppress(ChannelError):
                await run(self._link, steps.close(self._endpoint), self._link.options.linger_s, "")
        finally:
            sync._end_closing()

    def kill(self) -> None:
        """As `Channel.kill`."""
        self.sync.kill()

    def __getattr__(self, name: str) -> Any:
        """What a channel is (`name`, `lost`, `longest` …) needs no waiting."""
        if name in _PLAIN:
            return getattr(self.sync, name)
        raise AttributeError(f"{type(self).__name__} has no {name}")

    async def __aenter__(self) -> Self:
        await self._finish()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.sync!r}>"


_PLAIN = frozenset(
    (
        "name", "acknowledged", "closed", "local_address", "peer_address", "longest", "longest_copied",
        "lost", "registrations",
    )
)  # fmt: skip


class AsyncRemoteBuffer:
    """A `RemoteBuffer` for coroutines."""

    def __init__(self, channel: AsyncChannel, grant: Grant) -> None:
        self._channel = channel
        self.grant = grant
        self.name = grant.name
        self.length = grant.length
        self.rights = grant.rights

    async def write(self, data: Any, offset: int = 0, timeout: float | None = None) -> None:
        """As `Channel.write`."""
        await self._channel.write(self, data, offset, timeout)

    async def read(self, length: int | None = None, offset: int = 0, timeout: float | None = None) -> bytes:
        """As `Channel.read`."""
        return await self._channel.read(self, length, offset, timeout)

    async def read_into(self, buffer: Any, offset: int = 0, timeout: float | None = None) -> None:
        """As `Channel.read_into`."""
        await self._channel.read_into(self, buffer, offset, timeout)

    async def fetch_add(self, offset: int, value: int, timeout: float | None = None) -> int:
        """As `Channel.fetch_add`."""
        return await self._channel.fetch_add(self, offset, value, timeout)

    async def compare_swap(self, offset: int, expected: int, new: int, timeout: float | None = None) -> int:
        """As `Channel.compare_swap`."""
        return await self._channel.compare_swap(self, offset, expected, new, timeout)


class AsyncListener:
    """A `Listener` (``sync``) for coroutines."""

    def __init__(self, sync: Listener) -> None:
        self.sync = sync
        self.address = sync.address

    async def accept(self, timeout: float | None = None) -> AsyncChannel:
        """As `Listener.accept`.  Cancelled: no request is lost."""
        from softhca.channels.channel import Channel

        loop = asyncio.get_running_loop()
        deadline_s = None if timeout is None else time.monotonic() + timeout
        while True:
            seen, found = self.sync.take_event()
            if found is not None:
                return Channel(found).aio
            if seen:
                continue
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                raise ChannelTimeout(f"nobody has asked for a channel in {timeout:g} s")
            await self._readable(loop, left_s)

    async def _readable(self, loop: asyncio.AbstractEventLoop, timeout_s: float | None) -> None:
        """Until a request waits, for a time."""
        fd = os.dup(self.sync.fileno())
        future: asyncio.Future[bool] = loop.create_future()
        timer = None if timeout_s is None else loop.call_later(timeout_s, _end, future, False)

        def closed() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_end, future, True)

        self.sync.on_close.append(closed)
        try:
            loop.add_reader(fd, _end, future, True)
            if not self.sync.closed:
                await future
        finally:
            self.sync.on_close.remove(closed)
            if timer is not None:
                timer.cancel()
            loop.remove_reader(fd)
            os.close(fd)

    async def __aiter__(self) -> AsyncIterator[AsyncChannel]:
        while True:
            try:
                channel = await self.accept()
            except ChannelClosed:
                return
            yield channel

    def close(self) -> None:
        """As `Listener.close`."""
        self.sync.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()
