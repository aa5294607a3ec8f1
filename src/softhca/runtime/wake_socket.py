"""How two processes wake each other: a byte over a socket pair.

Whether a write to an eventfd blocks is a flag of the open file description, and both processes have the same
one: a peer that fills the counter and takes the flag away stops who writes next.  The ends of a socket pair
are two descriptions, and ``MSG_DONTWAIT`` asks for one call.  A pipe would not do: its reader copies under
the lock that a writer needs, into a page of its own that may never come.
"""

from __future__ import annotations

import socket

from softhca.machine.signals import raised_by_handler, suppressed

DRAIN_BYTES = 4096


class WakeSocket:
    """This process's end of a pair.  Nothing here blocks, whatever the other process does with its end."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    @classmethod
    def pair(cls) -> tuple[WakeSocket, WakeSocket]:
        """Two ends that wake each other.  OSError EMFILE."""
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(one), cls(other)

    @classmethod
    def adopt(cls, descriptor: int) -> WakeSocket:
        """The end that another process has passed; it owns the descriptor from now on.  OSError."""
        return cls(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        """The descriptor: readable when the other side has woken this one, or has gone."""
        return self._end.fileno()

    def wake(self) -> None:
        """Wake the other side; nothing happens where it has gone."""
        try:
            self._end.send(b"\0", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError as error:  # a buffer that is full is readable anyway
            if raised_by_handler(error):
                raise

    def drain(self) -> bool:
        """Forget what the other side has sent; False when it has closed its end."""
        try:
            return bool(self._end.recv(DRAIN_BYTES, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except OSError as error:
            if raised_by_handler(error):
                raise
            return False

    def shut(self) -> None:
        """Wake every thread of this process that polls this end, for good."""
        with suppressed(OSError):
            self._end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the descriptor; may be called again."""
        self._end.close()
