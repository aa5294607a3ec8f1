"""What `stream` uses: how its calls end; what a closed socket has in a stream's place; and how arguments of
sockets are checked.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from collections.abc import Iterable
from operator import index
from typing import Any

from softhca.machine.signals import suppressed

_KNOWN_FLAGS = (
    socket.MSG_PEEK | socket.MSG_WAITALL | socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL | socket.MSG_MORE
).value


class Stopped(Exception):
    """A send stops behind ``sent`` bytes of a view, for the reason ``why``."""

    def __init__(self, sent: int, why: OSError) -> None:
        super().__init__(sent)
        self.sent = sent
        self.why = why


def failure(code: int) -> OSError:
    """The exception of an errno: ECONNRESET is a ConnectionResetError."""
    return OSError(code, os.strerror(code))


def reads_descriptors() -> bool:
    """Whether this thread runs an event loop that is not asyncio's own (uvloop): such a loop reads, writes
    and accepts by the descriptor, and calls no method of the socket; its sockets are TCP's.
    """
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    loop = asyncio._get_running_loop()
    return loop is not None and not isinstance(loop, asyncio.BaseEventLoop)


def lingers_not(tcp: Any) -> bool:
    """Whether the program wants an abrupt end (SO_LINGER with 0 seconds)."""
    with suppressed(OSError):
        raw = tcp.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
        return struct.unpack("ii", raw) == (1, 0)
    return False


def check_ancillary(items: Iterable[Any]) -> bool:
    """Whether there are any; TypeError where one is no level, type and bytes."""
    found = False
    for each in items:
        try:
            level, kind, data = each
        except ValueError:
            raise TypeError("an item of ancillary data is a level, a type and bytes") from None
        index(level)
        index(kind)
        memoryview(data)
        found = True
    return found


def checked(flags: int) -> int:
    """The flags as a plain number: operations of `enum.IntFlag` take microseconds."""
    if type(flags) is int and not flags:
        return 0
    plain = int(index(flags))
    if plain & ~_KNOWN_FLAGS:
        raise OSError(errno.EOPNOTSUPP, f"flags {plain & ~_KNOWN_FLAGS:#x} over RDMA")
    return plain


class _Gone:
    """Whatever is asked of it: EBADF.

    A socket that is being closed has it in place of what it had beside the kernel's descriptor, whose number
    still stands for another one: no call may take that for a socket's.
    """

    def __getattr__(self, name: str) -> Any:
        raise failure(errno.EBADF)


GONE: Any = _Gone()
