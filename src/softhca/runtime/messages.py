"""Packets over a Unix socket, with descriptors: how processes of one host speak to each other.

A packet is bounded, and checked by who reads it.  An application and its adapter process send the messages of
`queues.handshake` (attaching, passing descriptors, asking after resources, leaving; all else crosses in
shared rings); adapters that share memory on one host send one JSON object a packet (`send`, `receive`).
"""

from __future__ import annotations

import array
import errno
import json
import os
import socket
import struct
from collections.abc import Iterable
from typing import Any

from softhca.machine.signals import suppressed
from softhca.queues.layout import MAX_DESCRIPTORS, MESSAGE_BYTES

DESCRIPTORS = MAX_DESCRIPTORS

_NO_LINGER = struct.pack("ii", 0, 0)

Message = dict[str, Any]


def send_packet(
    channel: socket.socket, data: bytes, descriptors: Iterable[int] = (), wait: bool = True
) -> None:
    """Send one packet; OSError EPIPE when nobody is there any more.

    ``wait``: for room, as the socket says; else BlockingIOError, whatever another process made of the socket.
    """
    passed = array.array("i", descriptors)
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)] if passed else []
    channel.sendmsg([data], ancillary, socket.MSG_NOSIGNAL | (0 if wait else socket.MSG_DONTWAIT))


def receive_packet(channel: socket.socket, wait: bool = True) -> tuple[bytes, list[int]] | None:
    """One packet and its descriptors, which become the caller's; None at the end of the stream.

    ``wait`` as in `send_packet`.  OSError with every descriptor closed: EPROTO for a packet that is too long
    or brings too many descriptors, EMFILE where this process has no number left for one.
    """
    room = socket.CMSG_SPACE(DESCRIPTORS * array.array("i").itemsize)
    how = socket.MSG_CMSG_CLOEXEC | (0 if wait else socket.MSG_DONTWAIT)
    data, ancillary, flags, _ = channel.recvmsg(MESSAGE_BYTES, room, how)
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    if not data and not descriptors:
        return None
    if not flags & socket.MSG_TRUNC and flags & socket.MSG_CTRUNC and len(descriptors) < DESCRIPTORS:
        close_all(descriptors)
        raise OSError(errno.EMFILE, "no descriptor is left for what was passed")
    # The kernel rounds room up, so that one more than was asked for may fit.
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) or len(descriptors) > DESCRIPTORS:
        close_all(descriptors)
        raise OSError(errno.EPROTO, "a packet that is too long, or its descriptors found no room")
    return data, list(descriptors)


def send(
    channel: socket.socket, message: Message, descriptors: Iterable[int] = (), wait: bool = True
) -> None:
    """Send one JSON object as `send_packet` does; OSError EMSGSIZE when it is too long."""
    data = json.dumps(message, separators=(",", ":")).encode()
    if len(data) > MESSAGE_BYTES:
        raise OSError(errno.EMSGSIZE, f"a message of {len(data)} bytes")
    send_packet(channel, data, descriptors, wait)


def receive(channel: socket.socket, wait: bool = True) -> tuple[Message, list[int]] | None:
    """One JSON object and its descriptors, as `receive_packet`.

    OSError EPROTO, with every descriptor closed, for anything that is no message.
    """
    received = receive_packet(channel, wait)
    if received is None:
        return None
    data, descriptors = received
    try:
        message = json.loads(data)
        if not isinstance(message, dict):
            raise OSError(errno.EPROTO, "a message that is no object")
    except (ValueError, RecursionError, OSError) as error:
        close_all(descriptors)
        raise OSError(errno.EPROTO, f"the other side sent no message: {error}") from None
    return message, descriptors


def close_all(descriptors: Iterable[int]) -> None:
    """Close descriptors that nobody wants, sockets without waiting for what is still to be sent on them."""
    for descriptor in descriptors:
        with suppressed(OSError):
            stray = socket.socket(fileno=descriptor)
            with stray:
                stray.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            continue
        with suppressed(OSError):
            os.close(descriptor)


def peer_of(channel: socket.socket) -> tuple[int, int]:
    """Process and user number of the other side, as the kernel knows them."""
    size = 3 * array.array("i").itemsize
    pid, uid, _ = array.array("i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, uid
