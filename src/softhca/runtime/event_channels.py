"""Event channels: sockets on which an adapter process tells a host of events, one for each channel that the
host wants to wait on by itself.

A channel is a socket pair, of which the host has one end: readable exactly while an event waits.  An event is
an EVENT of ``queues.layout``, written in one piece.  What finds the socket full waits here, each (kind,
element) once, until the host has read; so nothing blocks, and what waits is bounded by the host's elements.
Like a wake socket, each end is a file description of its own: what the host does with its end changes nothing
here.
"""

from __future__ import annotations

import errno
import resource
import select
import socket
from collections.abc import Callable

from softhca.queues.control import Event, encode_event
from softhca.runtime.wake_socket import WakeSocket

MAX_CHANNELS = 4096
"""Of one host, where half of the process's descriptors are as many; `rdma_create_qp` opens two each."""
FEW_CHANNELS = 256
"""Of one host, however few descriptors the process may have."""


def most_channels() -> int:
    """How many one host may have: no more than leave descriptors to others, by RLIMIT_NOFILE."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return MAX_CHANNELS
    return min(MAX_CHANNELS, max(FEW_CHANNELS, limit // 2))


class EventChannel:
    """The adapter's end of one channel.  ``watch`` is told which events of ``epoll`` matter to it."""

    def __init__(self, end: socket.socket, watch: Callable[[int, int], object]) -> None:
        self._end = end
        self._watch = watch
        self._pending: dict[tuple[int, int], None] = {}
        self.open = True

    def fileno(self) -> int:
        """The descriptor of this end."""
        return self._end.fileno()

    def post(self, kind: int, element: int) -> None:
        """Tell of an event, now or when there is room; nobody, where the host has closed its end."""
        if not self.open or (kind, element) in self._pending:
            return
        if self._pending or not self._send(kind, element):
            if not self._pending:
                self._watch(self._end.fileno(), select.EPOLLOUT)
            self._pending[kind, element] = None

    def forget(self, kind: int, element: int) -> None:
        """The element is destroyed: drop what still waits here for it."""
        self._pending.pop((kind, element), None)

    def flush(self) -> None:
        """There is room again: send what waits, in the order in which it happened."""
        while self._pending:
            event = next(iter(self._pending))
            if not self._send(*event):
                return
            self._pending.pop(event, None)
        if self.open:
            self._watch(self._end.fileno(), 0)

    def _send(self, kind: int, element: int) -> bool:
        """False where the socket is full.  One that cannot be written to any more is closed."""
        try:
            self._end.send(encode_event(Event(kind, element, 0)), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        except OSError:
            self.open = False
            self._pending.clear()
        return True

    def close(self) -> None:
        """Close this end: the host reads what has been sent, and then the end."""
        self.open = False
        self._pending.clear()
        self._end.close()


class EventChannels:
    """The channels of all hosts of an adapter process, by their descriptors in its ``epoll``."""

    def __init__(self, epoll: select.epoll) -> None:
        self._epoll = epoll
        self._owners: dict[int, tuple[dict[int, EventChannel], int]] = {}

    def open(self, channels: dict[int, EventChannel]) -> tuple[int, WakeSocket]:
        """Add a channel to a host's ``channels``; its number there, and the host's end.

        OSError EMFILE: the host has `most_channels`, or the process no descriptor left.
        """
        most = most_channels()
        if len(channels) >= most:
            raise OSError(errno.EMFILE, f"a host has {most} event channels at most here (ulimit -n)")
        number = next(each for each in range(1, most + 1) if each not in channels)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        channel = EventChannel(ours, self._epoll.modify)
        self._epoll.register(channel.fileno(), 0)  # what comes unasked is the end of the other side
        channels[number] = channel
        self._owners[channel.fileno()] = channels, number
        return number, WakeSocket(theirs)

    def __contains__(self, descriptor: int) -> bool:
        return descriptor in self._owners

    def serve(self, descriptor: int, happened: int) -> None:
        """Something ``happened`` to a channel's descriptor, as epoll tells it: perhaps to an earlier channel
        of that descriptor, which was closed after epoll had looked.
        """
        channels, number = self._owners[descriptor]
        if happened & (select.EPOLLHUP | select.EPOLLERR):
            if _has_hung_up(descriptor):
                self._close(channels, number)
        else:
            channels[number].flush()

    def close(self, channels: dict[int, EventChannel]) -> None:
        """A host has left: close all that it had."""
        for number in list(channels):
            self._close(channels, number)

    def _close(self, channels: dict[int, EventChannel], number: int) -> None:
        channel = channels.pop(number)
        self._epoll.unregister(channel.fileno())
        del self._owners[channel.fileno()]
        channel.close()


def _has_hung_up(descriptor: int) -> bool:
    """Whether the other end of a socket is closed now."""
    look = select.poll()
    look.register(descriptor, 0)
    return bool(look.poll(0))
