"""The sockets of `fabric.umad_sessions`: programs of libibumad meet a fabric by abstract Unix sockets, or by
UDP.

Abstract names are a network namespace's own; only programs of this user (or root) may connect there.  By UDP
anybody may who reaches the address: it is for networks whose hosts are trusted.
"""

from __future__ import annotations

import errno
import os
import socket
import struct

from softhca.fabric.umad_names import DEFAULT_NAME
from softhca.fabric.umad_sessions import Session, UmadSessions
from softhca.runtime.fabric_loop import FabricLoop

MOST_A_TURN = 64
"""Datagrams of one program that are taken before the others have their turn."""
LARGEST = 2048
_CREDENTIALS = struct.Struct("3i")
_GONE = (errno.ECONNREFUSED, errno.ECONNRESET, errno.ENOTCONN, errno.EPERM, errno.ENOENT)

Address = str | tuple[str, int]


class UmadServer:
    """Listens on ``loop`` under the name ``name`` (``IBSIM_SOCKNAME`` of the programs), or at the UDP
    ``address`` and the `MOST_SESSIONS` ports behind it.  OSError EADDRINUSE: somebody else does.
    """

    def __init__(
        self,
        loop: FabricLoop,
        sessions: UmadSessions,
        name: str = DEFAULT_NAME,
        address: tuple[str, int] | None = None,
    ) -> None:
        self.sessions = sessions
        self.refused = 0
        self._loop = loop
        self._clock = loop.clock
        self._name = name
        self._address = address
        self._sockets: dict[Session, socket.socket] = {}
        self._blocked: set[Session] = set()
        self._control = self._bind("ctl", 0)
        if address is None:
            self._control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        loop.watch(self._control.fileno(), self._take_control)
        loop.timed.append(sessions)
        loop.flushes.append(self._flush)

    def _bind(self, role: str, offset: int) -> socket.socket:
        family = socket.AF_UNIX if self._address is None else socket.AF_INET
        made = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            made.bind(
                f"\0{self._name}:{role}\0"
                if self._address is None
                else (self._address[0], self._address[1] + offset)
            )
        except BaseException:
            made.close()
            raise
        return made

    # control

    def _take_control(self) -> None:
        for _ in range(MOST_A_TURN):
            try:
                data, origin, trusted = self._receive_control()
            except BlockingIOError:
                return
            if not trusted or not origin:
                self.refused += 1
                continue
            reply = self.sessions.control(data, origin, self._clock())
            self._settle()
            if reply is not None:
                try:
                    self._control.sendto(reply, origin)
                except OSError:
                    self.refused += 1

    def _receive_control(self) -> tuple[bytes, Address, bool]:
        """A datagram, whence it comes, and whether its sender may use the fabric."""
        if self._address is not None:
            data, origin = self._control.recvfrom(LARGEST)
            return data, origin, True
        data, ancillary, _, origin = self._control.recvmsg(LARGEST, socket.CMSG_SPACE(_CREDENTIALS.size))
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                _, uid, _ = _CREDENTIALS.unpack(content)
                text = origin.decode("ascii", "replace") if isinstance(origin, bytes) else origin
                return data, text, uid in (0, os.geteuid())
        return data, "", False

    def _settle(self) -> None:
        """Make the sockets of programs that have come, close those of programs that have gone."""
        for session in self.sessions.closed:
            old = self._sockets.pop(session, None)
            self._blocked.discard(session)
            if old is not None:
                self._loop.forget(old.fileno())
                old.close()
        self.sessions.closed.clear()
        for session in self.sessions.opened:
            try:
                made = self._bind(f"out{session.number}", session.number + 1)
            except OSError:
                self.sessions.disconnect(session, self._clock())
                continue
            if not self._connect(session, made):  # anybody could send to it
                made.close()
                self.sessions.disconnect(session, self._clock())
                continue
            self._sockets[session] = made
            self._loop.watch(
                made.fileno(),
                lambda session=session: self._take(session),  # type: ignore[misc]
                lambda session=session: self._unblock(session),  # type: ignore[misc]
            )
        self.sessions.opened.clear()
        self.sessions.closed.clear()

    def _connect(self, session: Session, made: socket.socket) -> bool:
        """Let a program's socket hear and reach that program alone."""
        try:
            if self._address is None:
                made.connect(f"\0{self._name}:in{session.peer_id}\0")
            elif isinstance(session.origin, tuple):
                made.connect((session.origin[0], session.peer_id & 0xFFFF))
        except (OSError, OverflowError):
            return False
        return True

    # datagrams

    def _take(self, session: Session) -> None:
        made = self._sockets.get(session)
        for _ in range(MOST_A_TURN):
            if made is None or made.fileno() < 0:
                return
            try:
                data = made.recv(LARGEST)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _GONE:
                    self._end(session)
                return
            self.sessions.receive(session, data, self._clock())

    def _flush(self) -> None:
        """Give programs what waits for them; one that has gone leaves requests, which others get back."""
        while able := self.sessions.ready - self._blocked:
            for session in able:
                if session in self.sessions.ready:
                    self._give(session)

    def _give(self, session: Session) -> None:
        made = self._sockets[session]
        waiting = session.outgoing
        try:
            while waiting:
                made.send(waiting[0])
                waiting.popleft()
        except (BlockingIOError, InterruptedError):
            self._blocked.add(session)
            self._loop.want(made.fileno(), True, True)
            return
        except OSError:
            self._end(session)
            return
        self.sessions.ready.discard(session)

    def _unblock(self, session: Session) -> None:
        self._loop.want(self._sockets[session].fileno(), True, False)
        self._blocked.discard(session)

    def _end(self, session: Session) -> None:
        """A program has gone without a word."""
        self.sessions.disconnect(session, self._clock())
        self._settle()

    def close(self) -> None:
        """Close all sockets."""
        for made in self._sockets.values():
            self._loop.forget(made.fileno())
            made.close()
        self._sockets.clear()
        self._loop.forget(self._control.fileno())
        self._control.close()
