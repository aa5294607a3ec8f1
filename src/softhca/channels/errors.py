"""What channels raise: one tree, which is a part of Python's own."""

from __future__ import annotations

import errno
import os

from softhca.verbs.pyverbs_error import PyverbsRDMAError


class ChannelError(OSError):
    """A channel cannot do what was asked; ``errno`` says which kind of reason."""

    _ERRNO = errno.EIO

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(self._ERRNO if code is None else code, message)


class ChannelRefused(ChannelError, ConnectionRefusedError):
    """Nobody listens there, or the listener does not want this channel."""

    _ERRNO = errno.ECONNREFUSED


class ChannelTimeout(ChannelError, TimeoutError):
    """What was asked for has not come about in time."""

    _ERRNO = errno.ETIMEDOUT


class ChannelClosed(ChannelError):
    """This end was closed, by this thread or another one."""

    _ERRNO = errno.EBADF


class ChannelEnded(ChannelError, EOFError, BrokenPipeError):
    """The peer has closed the channel in order: all that it sent was received, nothing more goes there."""

    _ERRNO = errno.EPIPE


class ChannelLost(ChannelError, ConnectionResetError):
    """The peer has died, does not answer any more, or has given the connection up."""

    _ERRNO = errno.ECONNRESET


class ChannelViolation(ChannelError, ConnectionAbortedError):
    """The peer has said what cannot be; the connection was ended."""

    _ERRNO = errno.ECONNABORTED


class MessageTooLong(ChannelError, ValueError):
    """A message is longer than the channel, or the buffer for it, allows.  Nothing was sent or taken."""

    _ERRNO = errno.EMSGSIZE


class ChannelAccessError(ChannelError, PermissionError):
    """The peer does not share that buffer, or not so: name, range, right or alignment."""

    _ERRNO = errno.EACCES


class ProtocolError(Exception):
    """What a peer has sent is none of the protocol; inside this package alone."""


def failed(error: Exception, doing: str) -> ChannelError:
    """What an exception of the verbs, or of the driver, means to a program."""
    code = getattr(error, "error_code" if isinstance(error, PyverbsRDMAError) else "errno", None)
    if not isinstance(code, int) or not code:
        return ChannelError(f"{doing}: {error}")
    return _KINDS.get(code, ChannelError)(f"{doing}: {os.strerror(code)} ({error})", code)


_KINDS: dict[int, type[ChannelError]] = {
    errno.ECONNREFUSED: ChannelRefused,
    errno.ETIMEDOUT: ChannelTimeout,
    errno.ECONNRESET: ChannelLost,
}
