"""Where a TCP port of this host is served: a word between processes of one user.

A listening socket has two abstract Unix sockets for each address that it serves, named by user, address and
port number.  Who connects to the first is told the GIDs at which the port is served, and nothing else.  Who
connects to the second ends that: it accepts TCP connections of the same port, so that nobody can know who
gets one.  The kernel says of both sides who they are; another user's word does not count.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from functools import partial

from softhca.machine.kernel_sockets import KernelSocket
from softhca.machine.signals import raised_by_handler, suppressed
from softhca.sockets.hub import HUB, Hub

_CREDENTIALS = struct.Struct("3i")
_BACKLOG = 64
_MOST_GIDS = 64
_ANSWER_S = 0.5
_AGAIN_S = 0.005
PATIENCE_S = 10.0
"""So long the answer to a `Question` is waited for where nothing else is said."""
_END = b"/end"
_DATAGRAMS = b"/udp"
GID_BYTES = 16

Found = Callable[[list[bytes]], object]


def _name(port: int, address: bytes, what: bytes = b"") -> bytes:
    return b"\0softhca-sockets/%d/%s/%d%s" % (os.getuid(), address.hex().encode(), port, what)


def _is_ours(connection: KernelSocket) -> bool:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(raw)[1] == os.getuid())


class PortAdvertisement:
    """Says from here on that ``port`` of ``address`` is served at ``gids``; ``end`` is called, by the hub,
    when another process accepts there, too (None: ``port`` is of datagrams, which no other can take).
    OSError EADDRINUSE where another one says so already.
    """

    def __init__(
        self, port: int, address: bytes, gids: list[bytes], end: Callable[[], object] | None
    ) -> None:
        self._text = b"".join(gids[:_MOST_GIDS])
        self._end = end
        self._sockets: list[KernelSocket] = []
        try:
            if end is None:
                self._serve(_name(port, address, _DATAGRAMS), self._answer)
                return
            self._serve(_name(port, address), self._answer)
            self._serve(_name(port, address, _END), self._ended)
        except BaseException:
            self.close()
            raise

    def _serve(self, name: bytes, callback: Callable[[], object]) -> None:
        made = KernelSocket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sockets.append(made)
        made.setblocking(False)
        made.bind(name)
        made.listen(_BACKLOG)
        HUB.watch(made.fileno(), callback)

    def _answer(self) -> None:
        connection, _ = self._sockets[0].accept()  # the hub knows what to do where there is no descriptor
        with connection, suppressed(OSError):
            connection.setblocking(False)
            if _is_ours(connection):
                connection.send(self._text)

    def _ended(self) -> None:
        connection, _ = self._sockets[1].accept()
        with connection, suppressed(OSError):
            if _is_ours(connection) and self._end is not None:
                self._end()

    def close(self) -> None:
        """Say so no more."""
        for each in self._sockets:
            if each.fileno() >= 0:
                HUB.forget(each.fileno())
            each.close()


def end_elsewhere(port: int, address: bytes) -> None:
    """Have no other process say that ``port`` of ``address`` is served: wait until it has stopped."""
    with KernelSocket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_ANSWER_S)
        with suppressed(OSError):
            asking.connect(_name(port, address, _END))
            asking.recv(1)  # nothing: it closes the connection then


def gids_of(port: int, address: bytes) -> list[bytes]:
    """Where ``port`` of ``address``, which is this host's, is served; nothing where nobody says."""
    with KernelSocket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_ANSWER_S)
        try:
            asking.connect(_name(port, address))
            if not _is_ours(asking):
                return []
            text = b""
            while len(text) < _MOST_GIDS * GID_BYTES and (more := asking.recv(4096)):
                text += more
        except OSError as error:
            if raised_by_handler(error):
                raise
            return []
    return _gids(text)


def _gids(text: bytes) -> list[bytes]:
    return [text[at : at + GID_BYTES] for at in range(0, len(text) - GID_BYTES + 1, GID_BYTES)]


class Question:
    """Where ``port`` of one of ``addresses``, which are this host's, is served, the first that is: asked
    without waiting, and ``found`` is called once by ``hub`` with the answer, with nothing where none comes
    within ``limit_s``.  ``datagrams``: of those.
    """

    def __init__(
        self,
        hub: Hub,
        port: int,
        addresses: list[bytes],
        found: Found,
        limit_s: float = PATIENCE_S,
        datagrams: bool = False,
    ) -> None:
        self._hub = hub
        what = _DATAGRAMS if datagrams else b""
        self._names = [_name(port, each, what) for each in addresses]
        self._found: Found | None = found
        self._limit_s = limit_s
        self._asking: KernelSocket | None = None

    def begin(self) -> bool:
        """Ask; False where nobody says anything, or nobody can be asked: ``found`` is not called then."""
        if not self._ask():
            return False
        self._hub.after(self._limit_s, partial(self._tell, []))
        return True

    def _ask(self) -> bool:
        while self._names:
            try:
                asking = self._asking = KernelSocket(socket.AF_UNIX, socket.SOCK_STREAM)
                asking.setblocking(False)
                try:
                    asking.connect(self._names[0])
                except BlockingIOError:  # many ask at once
                    self._close()
                    self._hub.start()
                    self._hub.after(_AGAIN_S, self._again)
                    return True
                if not _is_ours(asking):
                    raise PermissionError("another user's")
                self._hub.watch(asking.fileno(), self._answered)
                return True
            except OSError:
                self._close()
                del self._names[0]
        return False

    def _again(self) -> None:
        if self._found is not None and not self._ask():
            self._tell([])

    def _answered(self) -> None:
        if self._asking is not None:
            try:
                text = self._asking.recv(_MOST_GIDS * GID_BYTES)
            except BlockingIOError:
                return  # it was told of another descriptor, which had this number
            except OSError:
                text = b""
            self._tell(_gids(text))

    def _tell(self, gids: list[bytes]) -> None:
        found = self._found
        self.call_off()
        if found is not None:
            found(gids)

    def call_off(self) -> None:
        """By the hub: nobody wants to know any more."""
        self._found = None
        self._close()

    def _close(self) -> None:
        asking, self._asking = self._asking, None
        if asking is not None:
            self._hub.forget(asking.fileno())
            asking.close()


def takes_datagrams(port: int, addresses: list[bytes]) -> bool:
    """Whether anybody says so, of one of ``addresses``."""
    for each in addresses:
        with KernelSocket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.setblocking(False)
            with suppressed(OSError):
                asking.connect(_name(port, each, _DATAGRAMS))
                return _is_ours(asking)
    return False
