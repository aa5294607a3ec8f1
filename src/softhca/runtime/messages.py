"""What an application and an adapter process say to each other: one JSON object a packet of a Unix socket.

Only attaching, passing descriptors, asking after resources and leaving go this way; all else crosses in
shared rings.  Descriptors (host memory, bell; pageable memory) ride along as ancillary data.  Every packet is
bounded, and checked by who reads it.  Requests (field ``request``):

* ``attach``: ``control`` and ``doorbells`` (page frames), ``flag`` (frame of the sleep flag), ``probe`` and
  ``probe_bytes`` (an address in the application's own memory and what stands there, in hexadecimal digits),
  and the descriptor of memory → ``host`` (its number), ``foreign`` (errno of reaching the application's own
  memory, 0: it can be reached), ``path`` (address of the listening socket) and ``pid``, and the descriptor of
  the application's end of a socket pair, by which the two wake each other (`bells`).
* ``descriptor``: one descriptor → ``number``, by which one command can name it.
* ``detach`` → ``others``, how many applications go on; all that this one owned has been freed.  A closed
  socket detaches too.
* ``resources`` → ``hosts`` and ``counts`` (resources by kind), of all hosts together, ``sleeps`` (how often
  the adapter has blocked) and ``pid``.

A reply carries ``error`` (errno) and ``message`` where the request was refused.
"""

from __future__ import annotations

import array
import contextlib
import errno
import json
import os
import socket
import struct
from collections.abc import Iterable
from typing import Any

MESSAGE_BYTES = 64 << 10
DESCRIPTORS = 3

_NO_LINGER = struct.pack("ii", 0, 0)

Message = dict[str, Any]


def send(
    channel: socket.socket, message: Message, descriptors: Iterable[int] = (), wait: bool = True
) -> None:
    """Send one message; OSError EMSGSIZE when it is too long, EPIPE when nobody is there any more.

    ``wait``: for room, as the socket says; else BlockingIOError, whatever another process made of the socket.
    """
    data = json.dumps(message, separators=(",", ":")).encode()
    if len(data) > MESSAGE_BYTES:
        raise OSError(errno.EMSGSIZE, f"a message of {len(data)} bytes")
    passed = array.array("i", descriptors)
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)] if passed else []
    channel.sendmsg([data], ancillary, socket.MSG_NOSIGNAL | (0 if wait else socket.MSG_DONTWAIT))


def receive(channel: socket.socket, wait: bool = True) -> tuple[Message, list[int]] | None:
    """One message and its descriptors, which become the caller's; None at the end of the stream.

    ``wait`` as in `send`.  OSError EPROTO, with every descriptor closed, for anything that is no message.
    """
    room = socket.CMSG_SPACE(DESCRIPTORS * array.array("i").itemsize)
    how = socket.MSG_CMSG_CLOEXEC | (0 if wait else socket.MSG_DONTWAIT)
    data, ancillary, flags, _ = channel.recvmsg(MESSAGE_BYTES, room, how)
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    try:
        if not data and not descriptors:
            return None
        # The kernel rounds room up, so that one more than was asked for may fit.
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) or len(descriptors) > DESCRIPTORS:
            raise OSError(errno.EPROTO, "a message that is too long, or its descriptors found no room")
        message = json.loads(data)
        if not isinstance(message, dict):
            raise OSError(errno.EPROTO, "a message that is no object")
    except (ValueError, RecursionError, OSError) as error:
        close_all(descriptors)
        raise OSError(errno.EPROTO, f"the other side sent no message: {error}") from None
    return message, list(descriptors)


def close_all(descriptors: Iterable[int]) -> None:
    """Close descriptors that nobody wants, sockets without waiting for what is still to be sent on them."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            stray = socket.socket(fileno=descriptor)
            with stray:
                stray.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            continue
        with contextlib.suppress(OSError):
            os.close(descriptor)


def peer_of(channel: socket.socket) -> tuple[int, int]:
    """Process and user number of the other side, as the kernel knows them."""
    size = 3 * array.array("i").itemsize
    pid, uid, _ = array.array("i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, uid
