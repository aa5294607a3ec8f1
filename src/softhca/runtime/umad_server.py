"""The sockets of `fabric.umad_sessions`: programs of libibumad meet a fabric by abstract Unix sockets, or by
UDP.

Abstract names are a network namespace's own; only programs of this user (or root) may connect there.  By UDP
anybody may who reaches the address: it is for networks whose hosts are trusted.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from softhca.fabric.umad_sessions import Session, UmadSessions

if TYPE_CHECKING:
    from softhca.fabric.manager.managed_fabric import ManagedFabric

DEFAULT_NAME = "sim"
DEFAULT_PORT = 7070
MOST_A_TURN = 64
"""Datagrams of one program that are taken before the others have their turn."""
STEPS_A_TURN = 4
"""Rounds of datagrams of the fabric's own managers before the programs have their turn."""
LARGEST = 2048
_CREDENTIALS = struct.Struct("3i")
_GONE = (errno.ECONNREFUSED, errno.ECONNRESET, errno.ENOTCONN, errno.EPERM, errno.ENOENT)

Address = str | tuple[str, int]


class UmadServer:
    """Listens under the name ``name`` (``IBSIM_SOCKNAME`` of the programs), or at the UDP ``address`` and the
    `MOST_SESSIONS` ports behind it.  OSError EADDRINUSE: somebody else does.

    Descriptors that are registered here by `watch` are served by the same loop, and so are the managers of
    ``managed``, which has the sessions' plane; its time and ``clock``'s begin together.
    """

    def __init__(
        self,
        sessions: UmadSessions,
        clock: Callable[[], int],
        name: str = DEFAULT_NAME,
        address: tuple[str, int] | None = None,
        managed: ManagedFabric | None = None,
    ) -> None:
        self._managed = managed
        self._busy = False
        self.sessions = sessions
        self.refused = 0
        self._clock = clock
        self._name = name
        self._address = address
        self._poll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._sockets: dict[Session, socket.socket] = {}
        self._blocked: set[Session] = set()
        self._control = self._bind("ctl", 0)
        if address is None:
            self._control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.watch(self._control.fileno(), self._take_control)

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

    def watch(self, descriptor: int, handler: Callable[[], None]) -> None:
        """Call a handler whenever a descriptor has something to read."""
        self._poll.register(descriptor, select.EPOLLIN)
        self._handlers[descriptor] = handler

    def forget(self, descriptor: int) -> None:
        """Watch a descriptor no more."""
        if self._handlers.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def turn(self, timeout_s: float | None = None) -> None:
        """Wait for datagrams, or for the next trap to be due, and serve what has come."""
        deadlines = [self.sessions.plane.next_deadline_ns]
        if self._managed is not None:
            deadlines += [each.next_deadline_ns for each in self._managed.managers]
        wait_s = 0.0 if self._busy else (min(deadlines) - self._clock()) / 1e9
        if timeout_s is not None:
            wait_s = min(wait_s, timeout_s)
        for descriptor, events in self._poll.poll(min(max(wait_s, 0), 3600)):
            handler = self._handlers.get(descriptor)
            if events & select.EPOLLOUT:
                self._unblock(descriptor)
            if handler is not None and events & ~select.EPOLLOUT:
                handler()
        self._manage(self._clock())
        self._flush()

    def _manage(self, now: int) -> None:
        """Let the managers work for a while, and send the traps that are due."""
        managed = self._managed
        if managed is None:
            self.sessions.plane.expire(now)
            return
        managed.now = max(managed.now, now)
        self._busy = all(managed.step() for _ in range(STEPS_A_TURN))
        if not self._busy:
            managed.run_until(now)

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
                self.forget(old.fileno())
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
            self.watch(made.fileno(), lambda session=session: self._take(session))  # type: ignore[misc]
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
        """Give programs what waits for them."""
        for session in list(self.sessions.ready):
            if session not in self._blocked:
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
            self._poll.modify(made.fileno(), select.EPOLLIN | select.EPOLLOUT)
            return
        except OSError:
            self._end(session)
            return
        self.sessions.ready.discard(session)

    def _unblock(self, descriptor: int) -> None:
        self._poll.modify(descriptor, select.EPOLLIN)
        self._blocked -= {each for each, made in self._sockets.items() if made.fileno() == descriptor}

    def _end(self, session: Session) -> None:
        """A program has gone without a word."""
        self.sessions.disconnect(session, self._clock())
        self._settle()

    def close(self) -> None:
        """Close all sockets."""
        for made in self._sockets.values():
            made.close()
        self._sockets.clear()
        self._control.close()
        self._poll.close()
