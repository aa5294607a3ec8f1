"""What `stream` uses: its lock, and how its calls end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

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
        stream._lock.release()
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
