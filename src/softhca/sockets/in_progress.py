"""A connection that is being made while nobody waits: what a non-blocking `connect` leaves behind.

The program's thread looks only whether anybody on this host says that the port is served.  Whatever may take
its time is done by the hub `CONNECTING`: hearing where, opening the device, asking there, and connecting by
TCP.  Meanwhile the socket's number stands for a descriptor that is neither readable nor writable.  It becomes
writable when the connection is there, by RDMA; where it is TCP's the number is the kernel's socket again, and
epolls have that one instead.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import socket as kernel
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from softhca.machine.condition import Condition
from softhca.machine.kernel_sockets import KernelSocket
from softhca.machine.signals import suppressed
from softhca.machine.weak_members import WeakMembers
from softhca.sockets import connecting, port_lookup, registrations
from softhca.sockets.connecting import Asking, mapped
from softhca.sockets.hub import CONNECTING
from softhca.sockets.memory_processing import PoolError
from softhca.sockets.readiness import Readiness
from softhca.sockets.settings import Settings
from softhca.sockets.stream import Stream
from softhca.sockets.stream_parts import failure
from softhca.sockets.upgrade import Upgrade

if TYPE_CHECKING:
    from softhca.sockets.stream_socket import socket

_log = logging.getLogger("softhca.sockets")

_LEFT_S = 1.0
"""So long registrations that could not be followed are kept, for the program to see that they are ready."""


class InProgress:
    """Of the socket ``one``, towards the numeric address ``towards``.  It has the place of an `Upgrade` until
    it is over: then whatever needs a connection is EAGAIN.  Any thread may call any method.
    """

    def __init__(self, one: socket, towards: tuple[Any, ...], settings: Settings) -> None:
        self._settings = settings
        self._towards = towards
        self._host, self._port = str(towards[0]), int(towards[1])
        self._address = mapped(self._host)
        self._owner: weakref.ref[socket] = weakref.ref(one)
        self._changed_lock = threading.RLock()
        self._changed = Condition(self._changed_lock)
        self._over = self._is_a_parent_s = False
        self._followed = self._woken = False
        self._made = contextlib.ExitStack()
        self._question: port_lookup.Question | None = None
        self._asking: Asking | None = None
        self._stream: Stream | None = None
        self._gids: list[bytes] = []

    def begin(self) -> bool:
        """Begin, and take the place of the socket's upgrade; False: it is TCP's, as far as is known at once,
        or there is no descriptor left, or another thread had that place first.
        """
        asked = False
        with self._changed_lock:
            with suppressed(OSError):
                asked = self._ask()
                if asked and self._take_place():
                    return True
            self._over = True
            if asked:
                CONNECTING.soon(self._call_off)
            return False

    def _take_place(self) -> bool:
        """From the moment in which others find it, all is there that they may ask for.  OSError."""
        one = self._owner()
        assert one is not None
        number = KernelSocket.fileno(one)
        self.tcp = KernelSocket(one.family, one.type, one.proto, fileno=os.dup(number))
        self._made.callback(self._close_tcp)
        self.tcp.setblocking(False)  # whatever the program has said of new sockets
        self._readiness = Readiness()
        self._made.callback(self._readiness.close)
        self._readiness.set(False, False)
        _all.add(self)
        if one._upgrade is not None:
            return False
        one._upgrade = self
        try:
            self._readiness.replace(number)
            os.set_blocking(number, False)
        except OSError:
            if one._upgrade is self:
                one._upgrade = None
            raise
        return True

    def _ask(self) -> bool:
        """Whether there is somebody to ask.  OSError."""
        if connecting.is_here(self._host):
            addresses = [self._address, connecting.any_like(self._address)]
            limit_s = self._settings.connect_s
            self._question = port_lookup.Question(CONNECTING, self._port, addresses, self._found, limit_s)
            if self._question.begin():
                return True
            gids = [self._address] if self._settings.by_cm else []
        else:
            gids = connecting.candidates(self._host, self._port, self._settings.by_cm)
        if gids or self._settings.by_cm:
            CONNECTING.start()
            CONNECTING.soon(partial(self._found, gids))
            return True
        return False

    # by the hub

    def _found(self, gids: list[bytes]) -> None:
        with self._changed_lock:  # `begin` has it until all is there
            self._question = None
            self._gids = gids or ([self._address] if self._settings.by_cm else [])
        self._step(self._next)

    def _step(self, step: Callable[[], object]) -> None:
        """Go on, unless nobody wants it any more."""
        if self._over:
            return
        try:
            step()
        except PoolError:
            self._give_up(errno.ENOBUFS)
        except OSError as error:
            self._give_up(error.errno or errno.EINVAL)
        except Exception:
            _log.exception("a connection could not be made")
            self._give_up(errno.EIO)

    def _next(self) -> None:
        """Ask at the next place; by TCP alone behind the last."""
        self._end_asking()
        while self._gids:
            gid, self._gids = self._gids[0], self._gids[1:]
            try:
                own = connecting.own_address(self.tcp, self._towards)
                if own is None:
                    break
                names = own[1], mapped(own[0]), self._address
                _by_name[names[1], names[0]] = self
                asking = self._asking = Asking(gid, self._port, names, self._settings)
                if asking.begin(partial(self._posted, asking)):
                    late = partial(self._step, partial(self._hear, asking, late=True))
                    CONNECTING.after(self._settings.connect_s, late)
                    return
            except PoolError:
                raise
            except (*connecting.FAILED, OSError, ValueError):
                pass
            self._end_asking()
        self._connect()

    def _posted(self, asking: Asking) -> None:
        CONNECTING.soon(partial(self._step, partial(self._hear, asking)))
        asking.hand_over()

    def _hear(self, asking: Asking, late: bool = False) -> None:
        """There may be an answer; ``late``: it is waited for no longer."""
        if asking is not self._asking or asking.opening:
            return
        stream = None
        try:
            event = asking.next_event(0)
            if event is None and not late:
                return
            stream = asking.answered(event)
        except connecting.FAILED:
            pass
        if stream is None:
            self._next()
            return
        opened = partial(self._step, partial(self._opened, asking))

        def look() -> None:
            CONNECTING.soon(opened)
            asking.hand_over()

        late_opened = partial(self._step, partial(self._opened, asking, late=True))
        CONNECTING.after(self._settings.connect_s, late_opened)
        stream.on_change = look
        stream.refresh()

    def _opened(self, asking: Asking, late: bool = False) -> None:
        """The peer's adapter may have taken the word that the answer has come; ``late`` as above."""
        if asking is not self._asking or not (asking.told or late):
            return
        self._stream = asking.take()
        if self._stream is None:
            self._next()
        else:
            self._stream.on_change = None
            self._asking = None
            self._connect()

    def _connect(self) -> None:
        """By TCP, which is the sign that the connection is there; not where it is the manager's alone."""
        if self._settings.by_cm:
            self._connected(0 if self._stream is not None else errno.ECONNREFUSED)
            return
        code = self.tcp.connect_ex(self._towards)
        if self._stream is None:
            self._leave_to_kernel(0 if code == errno.EINPROGRESS else code)
        elif code == errno.EINPROGRESS:
            CONNECTING.watch(self.tcp.fileno(), partial(self._step, self._answered), select.EPOLLOUT)
        else:
            self._connected(code)

    def _answered(self) -> None:
        CONNECTING.forget(self.tcp.fileno())
        self._connected(self.tcp.getsockopt(kernel.SOL_SOCKET, kernel.SO_ERROR))

    def _connected(self, code: int) -> None:
        if code or self._stream is None:
            self._give_up(code)
            return
        names = (self.tcp.getsockname(), self._towards) if self._settings.by_cm else None
        made = Upgrade(self._stream, self.tcp, names, self._readiness)
        self._stream = None
        if self._tell(lambda one: one.connected(made, 0)):
            _all.discard(self)
        else:
            made.leave(abruptly=True)

    def _give_up(self, code: int) -> None:
        """It has failed, by what the kernel does not know of."""
        self._end_asking()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.destroy()
        self._leave_to_kernel(code)

    def _leave_to_kernel(self, code: int) -> None:
        """The number is the kernel's socket again, which may still be connecting."""
        followed = False

        def leave(one: socket) -> None:
            nonlocal followed
            number = KernelSocket.fileno(one)
            try:
                inheritable = os.get_inheritable(number)
                change = partial(os.dup2, self.tcp.fileno(), number, inheritable)
                followed = registrations.follow(number, change, lambda: one._shown)
            finally:
                one.connected(None, code, self)

        if not self._tell(leave):
            self._call_off()
            return
        self._followed = followed
        try:
            with self._changed_lock:  # the program may let go of it
                CONNECTING.watch(self.tcp.fileno(), self._wake, select.EPOLLOUT)
        except (OSError, ValueError):
            self._wake()

    def let_go(self) -> None:
        """Of one that has left the connection to the kernel: the program has the socket no more, and its peer
        is to hear that at once, whatever the hub is at.
        """
        self._close_tcp()
        if not self._woken:
            CONNECTING.soon(self._wake)

    def _wake(self) -> None:
        """Those that wait for the descriptor which the number stood for look again."""
        if self._woken:
            return
        self._woken = True
        if connecting.was_refused(self.tcp):
            connecting.remember_refusal(self._address)
        self._close_tcp()
        self._readiness.set(False, True)
        if self._followed:
            self._readiness.let_go()
        CONNECTING.after(_LEFT_S, self._readiness.close)

    def _tell(self, how: Callable[[socket], object]) -> bool:
        """Tell the socket that it is over; False where it wants nothing any more, or its number is no
        descriptor.
        """
        with self._changed_lock:
            one = self._owner()
            if self._over or one is None or one._upgrade is not self or KernelSocket.fileno(one) < 0:
                return False
            try:
                how(one)
            except OSError:
                return False
            finally:
                self._over = True
                self._changed.notify_all()
            self._made.pop_all()  # what was made here is others' from here on
            return True

    def _end_asking(self) -> None:
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.end()

    def _call_off(self) -> None:
        """Give back everything."""
        if self._question is not None:
            self._question.call_off()
        self._end_asking()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.destroy()
        self._made.close()

    def _close_tcp(self) -> None:
        with self._changed_lock:
            if self.tcp.fileno() >= 0:
                CONNECTING.forget(self.tcp.fileno())
                self.tcp.close()

    # in the place of an upgrade

    def wait(self, limit_s: float | None = None) -> None:
        """Until it is over, which may take as long as TCP does; ``limit_s`` at most."""
        with self._changed_lock:
            self._changed.wait_for(lambda: self._over, limit_s)

    def settle(self) -> None:
        """Where it is just ending, until another is in its place: the number may stand for that one already,
        and be ready.
        """
        with self._changed_lock:
            pass

    @property
    def stream(self) -> Any:
        """There is none yet: EAGAIN, also of one that has just ended, for then another is in its place."""
        raise failure(errno.ECONNRESET if self._is_a_parent_s else errno.EAGAIN)

    @property
    def own_name(self) -> Any:
        """This side's address, as far as it is known."""
        return self.tcp.getsockname()

    @property
    def peer_name(self) -> Any:
        """OSError ENOTCONN."""
        self.settle()
        raise failure(errno.ENOTCONN)

    def take_error(self) -> int:
        """Nothing has failed yet."""
        return errno.ECONNRESET if self._is_a_parent_s else 0

    def set_options(self) -> None:
        """They are TCP's alone."""

    def poll(self) -> None:
        """The descriptor is right as it is."""

    def leave(self, abruptly: bool | None) -> None:
        """Nobody wants it any more; ``abruptly`` makes no difference."""
        with self._changed_lock:
            if self._over:
                return
            self._over = True
            self._changed.notify_all()
        CONNECTING.soon(self._call_off)

    def drop(self) -> None:
        """`CONNECTING`: a socket was dropped that was not closed."""
        self.leave(True)

    def abandon(self) -> None:
        """In a forked child: the connection is the parent's, here it is ECONNRESET.  Of one that is over
        nothing is kept here.
        """
        self._changed_lock = threading.RLock()
        self._changed = Condition(self._changed_lock)
        one = self._owner()
        if self._over:
            self._woken = True
            self.tcp.close()
            if one is None or one._left is self:  # else an upgrade has it
                self._readiness.abandon()
                self._readiness.close()
            return
        self._over = self._is_a_parent_s = True
        self._readiness.abandon()
        if one is not None and one._upgrade is self and KernelSocket.fileno(one) >= 0:
            ended = Readiness()
            ended.replace(KernelSocket.fileno(one))
            ended.close()
        self.tcp.close()


_all: WeakMembers[InProgress] = WeakMembers()
_by_name: weakref.WeakValueDictionary[tuple[bytes, int], InProgress] = weakref.WeakValueDictionary()
"""By address and port of the connecting side."""


def await_own(host: bytes, port: int) -> None:
    """Of a connection from there that was accepted: where the connecting side is this process's it knows of
    it first, as with TCP, whose handshake ends there before it does here.
    """
    found = _by_name.pop((host, port), None)
    if found is not None:
        found.wait(_LEFT_S)


def _after_fork() -> None:
    for each in _all:
        each.abandon()
    _all.clear()
    _by_name.clear()


os.register_at_fork(after_in_child=_after_fork)
