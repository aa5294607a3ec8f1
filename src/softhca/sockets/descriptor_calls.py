"""``os.read``, ``os.write``, ``os.sendfile`` and their like on the descriptor of a connection by RDMA, for
``softhca run --sockets``.

The kernel does not know that such a descriptor stands for a stream: it says EPIPE of a write, EINVAL of
``sendfile``, and the end of a read.  So programs in Python that use these names get functions that ask first
whether a descriptor is a stream's.  What is imported before, and what C does, is the kernel's.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import Any

from softhca.sockets.stream_parts import failure
from softhca.sockets.upgrade import Upgrade, standing_for

CHUNK_BYTES = 1 << 18
"""What `sendfile` reads of a file at once."""

_kernel: dict[str, Callable[..., Any]] = {
    name: getattr(os, name)
    for name in ("read", "readv", "write", "writev", "sendfile", "splice")
    if hasattr(os, name)
}


def install() -> None:
    """`os` has this module's functions from here on; again is once."""
    for name in _kernel:
        # a class that keeps one has no method of it, as with the kernel's
        setattr(os, name, staticmethod(globals()[name]))


def uninstall() -> None:
    """As it was."""
    for name, call in _kernel.items():
        setattr(os, name, call)


def read(fd: int, length: int, /) -> bytes:
    """As `os.read`; of a stream up to ``length`` bytes, none at its end.  OSError of `socket.recv`."""
    upgrade = standing_for(fd)
    if upgrade is None or length < 0:
        return bytes(_kernel["read"](fd, length))
    return upgrade.stream.receive_bytes(length, os.get_blocking(fd)) if length else b""


def readv(fd: int, buffers: Sequence[Any], /) -> int:
    """As `os.readv`."""
    upgrade = standing_for(fd)
    if upgrade is None:
        return int(_kernel["readv"](fd, buffers))
    views = [memoryview(each).cast("B") for each in buffers]
    if any(each.readonly for each in views):
        raise TypeError("readv() wants buffers that can be written to")
    data = read(fd, sum(each.nbytes for each in views))
    place = 0
    for view in views:
        part = data[place : place + view.nbytes]
        view[: len(part)] = part
        place += len(part)
    return place


def write(fd: int, data: Any, /) -> int:
    """As `os.write`; how many bytes have gone.  OSError of `socket.send`."""
    upgrade = standing_for(fd)
    if upgrade is None:
        return int(_kernel["write"](fd, data))
    return int(upgrade.stream.send([memoryview(data).cast("B")], None, os.get_blocking(fd)))


def writev(fd: int, buffers: Sequence[Any], /) -> int:
    """As `os.writev`."""
    upgrade = standing_for(fd)
    if upgrade is None:
        return int(_kernel["writev"](fd, buffers))
    views = [memoryview(each).cast("B") for each in buffers]
    return int(upgrade.stream.send(views, None, os.get_blocking(fd)))


def sendfile(out_fd: int, in_fd: int, offset: int | None, count: int) -> int:
    """As `os.sendfile`; how many bytes of the file have gone, 0 at its end.  OSError: EINVAL of what has no
    offsets (a pipe, a socket), and those of `socket.send` where nothing has gone.
    """
    upgrade = standing_for(out_fd)
    if upgrade is None:
        return int(_kernel["sendfile"](out_fd, in_fd, offset, count))
    if count < 0 or (offset is not None and offset < 0):
        raise failure(errno.EINVAL)
    try:
        begin = os.lseek(in_fd, 0, os.SEEK_CUR)
    except OSError as error:
        raise failure(errno.EINVAL if error.errno == errno.ESPIPE else error.errno or errno.EINVAL) from None
    sent = _send_of(upgrade, in_fd, begin if offset is None else offset, count, os.get_blocking(out_fd))
    if offset is None:
        os.lseek(in_fd, begin + sent, os.SEEK_SET)
    return sent


def _send_of(upgrade: Upgrade, file: int, begin: int, count: int, blocking: bool) -> int:
    """Send up to ``count`` bytes of ``file`` from ``begin`` on; how many have gone."""
    sent = 0
    while sent < count:
        try:
            data = os.pread(file, min(count - sent, CHUNK_BYTES), begin + sent)
            if not data:
                break
            sent += int(upgrade.stream.send([memoryview(data)], None, blocking))
        except OSError:
            if not sent:
                raise
            break
    return sent


def splice(src: int, dst: int, count: int, *arguments: Any, **named: Any) -> int:
    """As `os.splice`; EINVAL where one of both is a stream's: there is no pipe into its memory."""
    if standing_for(src) is not None or standing_for(dst) is not None:
        raise failure(errno.EINVAL)
    return int(_kernel["splice"](src, dst, count, *arguments, **named))
