"""What a neighbour says over a Unix socket.

Either one message, or EPROTO; descriptors that ride along become the caller's or are closed.
Input: how many descriptors, what encloses the rest, then the rest.
"""

from __future__ import annotations

import array
import errno
import json
import os
import socket
from collections.abc import Iterator

from fuzz_choices import Choices

from softhca.runtime import messages

NULL = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
LEFT, RIGHT = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
RIGHT.setblocking(False)


def one_input(data: bytes) -> None:
    choices = Choices(data)
    count = choices.below(6)
    depth = choices.byte()
    content = choices.rest()[:2048]
    if depth > 250:
        content = b"[" * (200 * (depth - 250)) + content
    elif depth > 240:
        content = json.dumps({"request": content.decode("latin-1"), "flag": depth}).encode()
    if not content and not count:
        return  # an empty packet is the end of the stream
    passed = array.array("i", [NULL] * count)
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)] if count else []
    lowest = lowest_descriptor()
    LEFT.sendmsg([content], ancillary, socket.MSG_NOSIGNAL)
    try:
        received = messages.receive(RIGHT)
    except OSError as error:
        assert error.errno == errno.EPROTO
        received = None
    if received is not None:
        message, descriptors = received
        assert isinstance(message, dict)
        assert message == json.loads(content)
        assert len(descriptors) == count <= messages.DESCRIPTORS
        messages.close_all(descriptors)
    assert lowest_descriptor() == lowest, "a descriptor stayed open"
    back(content)


def lowest_descriptor() -> int:
    """The lowest number that is free."""
    found = os.dup(NULL)
    os.close(found)
    return found


def back(content: bytes) -> None:
    """What is sent is received."""
    message = {"request": content.hex(), "n": len(content)}
    messages.send(LEFT, message)
    assert messages.receive(RIGHT) == (message, [])


def seeds() -> Iterator[bytes]:
    """Requests as applications make them."""
    attach = {
        "request": "attach",
        "control": [1, 2],
        "doorbells": [3],
        "flag": 4,
        "probe": 5,
        "probe_bytes": "ab",
    }
    for count, message in ((3, attach), (0, {"request": "detach"}), (0, {"request": "resources"})):
        yield bytes([count, 0]) + json.dumps(message).encode()
    yield bytes([1, 0]) + b'{"a": NaN, "b": 1e999, "c": "\\ud800"}'
    yield bytes([0, 0]) + b"1" * 100
    yield bytes([4, 255])
    yield bytes([2, 245, 1, 2, 3])
