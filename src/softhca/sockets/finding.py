"""Where a port number of this host is served: a word between processes of one user.

A listening socket has, beside its port, an abstract Unix socket named by user and port number.  Who connects
to it is told the GIDs at which the port is served, and nothing else.  The kernel says of both sides who they
are; another user's word does not count.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct

from softhca.sockets.hub import HUB

_CREDENTIALS = struct.Struct("3i")
_BACKLOG = 64
_MOST_GIDS = 64
_ANSWER_S = 0.5
GID_BYTES = 16


def _name(port: int) -> bytes:
    return b"\0softhca-sockets/%d/%d" % (os.getuid(), port)


def _is_ours(connection: socket.socket) -> bool:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(raw)[1] == os.getuid())


class Sign:
    """Says from here on that ``port`` is served at ``gids``.  OSError EADDRINUSE where another one does."""

    def __init__(self, port: int, gids: list[bytes]) -> None:
        self._text = b"".join(gids[:_MOST_GIDS])
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            self._socket.bind(_name(port))
            self._socket.listen(_BACKLOG)
            HUB.watch(self._socket.fileno(), self._answer)
        except BaseException:
            self._socket.close()
            raise

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._socket.accept()
            with connection:
                connection.setblocking(False)
                if _is_ours(connection):
                    connection.send(self._text)

    def close(self) -> None:
        """Say so no more."""
        if self._socket.fileno() >= 0:
            HUB.forget(self._socket.fileno())
        self._socket.close()


def gids_of(port: int) -> list[bytes]:
    """Where ``port`` of this host is served; nothing where nobody says."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_ANSWER_S)
        try:
            asking.connect(_name(port))
            if not _is_ours(asking):
                return []
            text = b""
            while len(text) < _MOST_GIDS * GID_BYTES and (more := asking.recv(4096)):
                text += more
        except OSError:
            return []
    return [text[at : at + GID_BYTES] for at in range(0, len(text) - GID_BYTES + 1, GID_BYTES)]
