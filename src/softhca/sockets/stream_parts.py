"""What `stream` uses: its lock, and how its calls end; and what a closed socket has in a stream's place."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softhca.sockets.stream import Stream


class Guard:
    """The lock of a stream; whoever gives it back answers what came in meanwhile."""

    __slots__ = ("_stream",)

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        self._stream._lock.acquire()

    def __exit__(self, *error: object) -> None:
        stream = self._stream
        stream.unlock()
        if stream._news or stream._given_back:
            stream._serve()


class Stopped(Exception):
    """A send stops behind ``sent`` bytes of a view, for the reason ``why``."""

    def __init__(self, sent: int, why: OSError) -> None:
        super().__init__(sent)
        self.sent = sent
        self.why = why


def failure(code: int) -> OSError:
    """The exception of an errno: ECONNRESET is a ConnectionResetError."""
    return OSError(code, os.strerror(code))


class _Gone:
    """Whatever is asked of it: EBADF.

    A socket that is being closed has it in place of what it had beside the kernel's descriptor, whose number
    still stands for another one: no call may take that for a socket's.
    """

    def __getattr__(self, name: str) -> Any:
        raise failure(errno.EBADF)


GONE: Any = _Gone()
