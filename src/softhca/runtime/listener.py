"""The listening socket of an adapter process, to which applications connect.

``accept`` needs a descriptor.  When there is none left, the connection stays in the backlog and the socket
stays readable, so that a loop would accept in vain again and again.  So one descriptor is kept in reserve: it
is used to accept the connection, to refuse it with the reason, and to close it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket

from softhca.queues.handshake import ATTACH, encode_refusal
from softhca.runtime import messages

BACKLOG = 256
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)


class Listener:
    """Listens at ``path`` (``@``: an abstract name) for applications of this user.  OSError.

    ``bound``: a socket that has that name already; it is the listener's.
    """

    def __init__(self, path: str, bound: socket.socket | None = None) -> None:
        self.path = path
        self._spare = -1
        how = socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK
        self._listener = bound or socket.socket(socket.AF_UNIX, how)
        try:
            if bound is None:
                self._bind()
            self._listener.listen(BACKLOG)
            self._keep_spare()
        except BaseException:
            self._listener.close()
            raise

    def _bind(self) -> None:
        mask = os.umask(0o177)
        try:
            self._listener.bind("\0" + self.path[1:] if self.path.startswith("@") else self.path)
        finally:
            os.umask(mask)

    def _keep_spare(self) -> None:
        with contextlib.suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def fileno(self) -> int:
        """The listening socket's descriptor."""
        return self._listener.fileno()

    def accept(self) -> socket.socket | None:
        """The next connection; None when there is none, or it was refused.

        OSError EMFILE or ENFILE: none can be accepted or refused until a descriptor is free.
        """
        try:
            control = self._accept()
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                self._refuse_next(error)
            return None  # refused, or closed by its other end already
        if self._spare < 0:
            self._keep_spare()
        _, uid = messages.peer_of(control)
        if uid not in (os.getuid(), 0):
            refuse(control, errno.EPERM, "the adapter process is another user's")
            return None
        return control

    def _accept(self) -> socket.socket:
        return self._listener.accept()[0]

    def _refuse_next(self, why: OSError) -> None:
        """Accept one connection with the reserved descriptor and refuse it with the reason."""
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        try:
            refuse(self._accept(), why.errno or errno.EMFILE, "the adapter process has no descriptor left")
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                raise
        finally:
            self._keep_spare()

    def hold(self) -> socket.socket:
        """The socket once more: its name is taken until this is closed, too.  OSError EMFILE, ENFILE."""
        return self._listener.dup()

    def close(self) -> None:
        """Stop listening; a path in the file system is removed."""
        self._listener.close()
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        if not self.path.startswith("@"):
            with contextlib.suppress(OSError):
                os.unlink(self.path)


def refuse(control: socket.socket, number: int, why: str) -> None:
    """Send an application the reason why it is not served, and close its connection."""
    with control, contextlib.suppress(OSError):
        messages.send_packet(control, encode_refusal(ATTACH, number, why), wait=False)
