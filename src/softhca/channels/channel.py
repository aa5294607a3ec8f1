"""`Channel`: a connected channel, for programs that wait in threads."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

from softhca.channels import connecting, steps
from softhca.channels.connecting import PAUSE_S, Address, Plan, text_of
from softhca.channels.endpoint import Endpoint
from softhca.channels.errors import (
    ChannelClosed,
    ChannelEnded,
    ChannelError,
    ChannelTimeout,
)
from softhca.channels.named import Grant, RemoteBuffer, Rights, SharedBuffer
from softhca.channels.options import ChannelOptions
from softhca.channels.registration import bytes_of
from softhca.machine import deferred_signals
from softhca.machine.signals import suppressed
from softhca.verbs.base import sole_owner

if TYPE_CHECKING:
    from softhca.channels.aio import AsyncChannel
    from softhca.channels.listener import Listener
    from softhca.channels.steps import Steps

CONNECT_S = 10.0
"""So long `Channel.connect` waits by default."""


class Channel:
    """One end of a channel.  Any thread may call any method at any time, `close` too.

    `timeout` (attribute, seconds; None: for ever) holds for calls that are given none.  All errors are
    `ChannelError`, which is an OSError, but for TypeError and ValueError of misuse.
    """

    timeout: float | None = None

    def __init__(self, endpoint: Endpoint, plan: Plan | None = None) -> None:
        self._endpoint = endpoint
        self._link = endpoint.link
        self._plan = plan

    # coming about

    @classmethod
    def listen(
        cls, address: Address, *, backlog: int = 0, options: ChannelOptions | None = None
    ) -> Listener:
        """A listener at ``host:port`` (port 0: any; no host: all addresses), which takes many channels; at
        most ``backlog`` requests wait (0: 128).  ChannelError: the address is in use, or no device has it.
        """
        from softhca.channels.listener import Listener

        return Listener(address, backlog, options)

    @classmethod
    def connect(
        cls,
        address: Address,
        *,
        acknowledged: bool = True,
        patient: bool = False,
        timeout: float | None = CONNECT_S,
        options: ChannelOptions | None = None,
    ) -> Channel:
        """A channel to who listens at ``host:port``.

        ``acknowledged``: messages are acknowledged, and sent again until they are (RC); else what is lost on
        the way stays lost (UC).  ``patient``: where nobody listens yet, ask again.  Waits up to ``timeout``
        seconds; where an event loop runs in this thread ``async with`` waits instead.  ChannelRefused,
        ChannelTimeout, ChannelError.
        """
        plan = Plan(address, acknowledged, options or ChannelOptions(), patient, timeout)
        with deferred_signals.section():  # who asks is closed with the channel
            made = cls(plan.ask(), plan)
        if not _loop_runs():
            made._finish()
        return made

    def _finish(self) -> None:
        """Be connected."""
        plan = self._plan
        if plan is None or self._link.established:
            return
        while True:
            try:
                steps.run(self._link, connecting.finish(self._endpoint), plan.turn_s, plan.unanswered)
                return
            except BaseException as error:
                self._ask_again(plan, error)
            time.sleep(PAUSE_S)

    def _ask_again(self, plan: Plan, error: BaseException) -> None:
        """After a failed attempt: begin the next one, where one is wanted, or raise ``error``."""
        self.kill()
        if not plan.goes_on(error):
            # the last attempt had only what was left of the time
            raise steps.late(plan.unanswered, plan.timeout) if isinstance(error, ChannelTimeout) else error
        with deferred_signals.section():
            self._endpoint = plan.ask()
            self._link = self._endpoint.link

    # messages

    def send(self, data: Any, timeout: float | None = None) -> None:
        """Send the bytes of a buffer as one message; waits for room at the peer.

        Up to `longest_copied` bytes are copied, and the buffer is free again at once.  A longer message is
        fetched by the peer's `recv` from the buffer itself, and `send` returns when that is done.
        ChannelTimeout: a short message was not sent; a long one stays on offer, and must not be changed.
        """
        endpoint, view = self._endpoint, bytes_of(data)
        if view.nbytes <= endpoint.quick:
            with self._link.guard:
                if view.nbytes <= endpoint.quick and endpoint.send(view):
                    return
        self._run(steps.send(endpoint, data), timeout, "no room for the message")

    def recv(self, timeout: float | None = None) -> bytes:
        """The next message.  ChannelEnded when the peer has closed the channel and all was received."""
        endpoint = self._endpoint
        if endpoint.inbox:
            with self._link.guard:
                found = endpoint.take_quick()
            if found is not None:
                return found
        message: bytes = self._run(steps.receive(endpoint), timeout, "no message")
        return message

    def recv_into(self, buffer: Any, timeout: float | None = None) -> int:
        """Put the next message into a buffer, a long one without a copy; its length.

        MessageTooLong: it is longer, and stays.  After a time-out the buffer may contain anything, until the
        next message is received.
        """
        length: int = self._run(steps.receive(self._endpoint, buffer), timeout, "no message")
        return length

    def try_recv(self) -> bytes | None:
        """The next message, or None when there is none yet; waits for a long one that is being fetched."""
        self._finish()
        endpoint = self._endpoint
        for _ in range(2):
            self._link.poll()
            if endpoint.readable:
                return self.recv()
            self._link.look(lambda: endpoint.readable)  # armed: `fileno` tells of the next one
        return None

    def __iter__(self) -> Iterator[bytes]:
        """The messages, until the peer closes the channel."""
        while True:
            try:
                message = self.recv()
            except ChannelEnded:
                return
            yield message

    # named buffers

    def share(self, name: str, buffer: Any, rights: Rights | str = "r") -> SharedBuffer:
        """Let the peer use ``buffer`` under a name; ``rights`` are some of the letters r (read), w (write)
        and a (atomics).

        It stays this program's, which sees what the peer writes.  `SharedBuffer.close` ends it.
        """
        self._finish()
        shared = self._link.named.register(self, name, buffer, Rights.of(rights))
        try:
            self._run(steps.share(self._endpoint, shared), None, f"{name!r} was not shared")
        except BaseException:
            self._link.named.end(shared)
            raise
        return shared

    def unshare(self, shared: SharedBuffer, timeout: float | None = None) -> None:
        """As `SharedBuffer.close`."""
        limit_s = self._link.options.linger_s if timeout is None else timeout
        with suppressed(TimeoutError):  # its key is no good from here on
            self._run(steps.unshare(self._endpoint, shared), limit_s, "")

    def remote(self, name: str, timeout: float | None = None) -> RemoteBuffer:
        """What the peer shares under ``name``, which is waited for."""
        return RemoteBuffer(self, self._grant(name, timeout))

    def _grant(self, which: RemoteBuffer | str, timeout: float | None) -> Grant:
        if isinstance(which, str):
            found: Grant = self._run(
                steps.remote(self._endpoint, which), timeout, f"nothing is shared as {which!r}"
            )
            return found
        return steps.grant_of(self._endpoint, which, RemoteBuffer)

    def write(
        self, remote: RemoteBuffer | str, data: Any, offset: int = 0, timeout: float | None = None
    ) -> None:
        """Write to a buffer that the peer shares (RDMA WRITE); when it returns, it is there.
        ChannelAccessError.
        """
        grant = self._grant(remote, timeout)
        self._run(steps.write(self._endpoint, grant, data, offset), timeout, "not written")

    def read(
        self,
        remote: RemoteBuffer | str,
        length: int | None = None,
        offset: int = 0,
        timeout: float | None = None,
    ) -> bytes:
        """``length`` bytes (None: all) of a buffer that the peer shares (RDMA READ).  ChannelAccessError."""
        grant = self._grant(remote, timeout)
        found: bytes = self._run(steps.read(self._endpoint, grant, length, offset), timeout, "not read")
        return found

    def read_into(
        self, remote: RemoteBuffer | str, buffer: Any, offset: int = 0, timeout: float | None = None
    ) -> None:
        """The same, as many as fit ``buffer``, without a copy."""
        grant = self._grant(remote, timeout)
        self._run(steps.read(self._endpoint, grant, None, offset, buffer), timeout, "not read")

    def fetch_add(
        self, remote: RemoteBuffer | str, offset: int, value: int, timeout: float | None = None
    ) -> int:
        """Add to the 64-bit number at ``offset``, a multiple of 8, in one step; what it was."""
        grant = self._grant(remote, timeout)
        found: int = self._run(steps.fetch_add(self._endpoint, grant, offset, value), timeout, "no answer")
        return found

    def compare_swap(
        self, remote: RemoteBuffer | str, offset: int, expected: int, new: int, timeout: float | None = None
    ) -> int:
        """Set the 64-bit number at ``offset`` to ``new`` if it is ``expected``, in one step; what it was."""
        grant = self._grant(remote, timeout)
        todo = steps.compare_swap(self._endpoint, grant, offset, expected, new)
        found: int = self._run(todo, timeout, "no answer")
        return found

    # more channels

    def open(self, name: str, *, acknowledged: bool = True, timeout: float | None = None) -> Channel:
        """One more channel over the same connection, which the peer takes with `accept`.  ChannelRefused."""
        made = self._run(
            steps.open_channel(self._endpoint, name, acknowledged), timeout, f"{name!r} was not accepted"
        )
        return type(self)(made)

    def accept(self, timeout: float | None = None) -> Channel:
        """The next channel that the peer opens over this connection."""
        return type(self)(self._run(steps.accept_channel(self._endpoint), timeout, "no channel was opened"))

    # what it is

    @property
    def name(self) -> str:
        """What `open` has called it; the first channel of a connection has no name."""
        return self._endpoint.name

    @property
    def acknowledged(self) -> bool:
        """Whether what is sent is acknowledged."""
        return self._endpoint.acknowledged

    @property
    def closed(self) -> bool:
        """Whether this end was closed."""
        return self._endpoint.closed

    @property
    def local_address(self) -> str:
        """``host:port`` of this end."""
        return text_of(self._link.source)

    @property
    def peer_address(self) -> str:
        """``host:port`` of the peer."""
        return text_of(self._link.destination)

    @property
    def longest(self) -> int:
        """No message to the peer may have more bytes."""
        return self._endpoint.longest

    @property
    def longest_copied(self) -> int:
        """Longer messages are fetched from the sender's memory."""
        return self._endpoint.longest_copied

    @property
    def lost(self) -> int:
        """Messages that have not arrived here, of an unacknowledged channel."""
        return self._endpoint.incoming.lost

    @property
    def registrations(self) -> int:
        """How many buffers this connection has registered so far."""
        return self._link.memory.registrations

    def fileno(self) -> int:
        """A descriptor for select, poll and epoll: readable when something may have come.  Then `try_recv`
        until it gives None, which also has the descriptor tell again.  It is the connection's: all its
        channels have the same one.
        """
        self._finish()
        if self._endpoint.closed:
            raise ChannelClosed("the channel is closed")
        return self._link.completion_channel.fd

    # the end

    def close(self) -> None:
        """Close this end: what was sent arrives before, or ``linger_s`` is over; may be called again.

        Calls of other threads end with ChannelClosed.
        """
        endpoint = self._endpoint
        with deferred_signals.section():  # what was begun is ended, whatever interrupts the wait
            if not self._begin_closing():
                return
            try:
                with deferred_signals.waiting(), contextlib.suppress(ChannelError):
                    steps.run(self._link, steps.close(endpoint), self._link.options.linger_s, "")
            finally:
                self._end_closing()

    def _begin_closing(self) -> bool:
        endpoint = self._endpoint
        with self._link.guard:
            if endpoint.closed:
                return False
            endpoint.closed = True
            endpoint.quick = 0
            self._link.changed = True
        return True

    def _end_closing(self) -> None:
        last = self._link.remove(self._endpoint)
        self._endpoint.destroy()  # before what is shared: the peer's operations are not refused, they end
        if last:
            self._link.close()

    def kill(self) -> None:
        """Close this end at once: what is under way is dropped, and the peer's calls end with ChannelLost."""
        with deferred_signals.section():
            if self._begin_closing():
                with self._link.guard:
                    self._endpoint.send_broken()
                self._end_closing()

    def __enter__(self) -> Self:
        self._finish()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def aio(self) -> AsyncChannel:
        """The same channel, for coroutines."""
        from softhca.channels.aio import AsyncChannel

        return AsyncChannel(self)

    async def __aenter__(self) -> AsyncChannel:
        return await self.aio.__aenter__()

    async def __aexit__(self, *error: object) -> None:
        await self.aio.close()

    __reduce_ex__ = sole_owner

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        endpoint = getattr(self, "_endpoint", None)
        if is_ending() or endpoint is None or endpoint.closed or self._link.closed:
            return  # modules are cleared when the interpreter ends
        warnings.warn(f"a channel was not closed: {self!r}", ResourceWarning, source=self, stacklevel=2)
        with contextlib.suppress(RuntimeError):  # the interpreter ends
            threading.Thread(target=Channel(endpoint).close, name="softhca-channel-close").start()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open" if self._endpoint.error is None else "failed"
        return f"<{type(self).__name__} {self.name!r} {self.local_address} – {self.peer_address} {state}>"

    def _run(self, todo: Steps[Any], timeout: float | None, what: str) -> Any:
        if not self._link.established:
            self._finish()
        return steps.run(self._link, todo, self.timeout if timeout is None else timeout, what)


def _loop_runs() -> bool:
    """Whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
