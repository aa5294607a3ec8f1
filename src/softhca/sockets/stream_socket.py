"""`socket`, with the methods of Python's own: streams by RDMA, and datagrams by its base class.

A socket is the kernel's until it is connected.  A connection to a peer that has softhca gets a stream beside
its TCP connection, and from then on data go by RDMA; the TCP connection stays as the sign that the peer
lives, and for names and options.  The number `fileno` then stands for a descriptor that is readable and
writable as the stream is.  Sockets of other kinds, and connections to other peers, are the kernel's for good.
"""

from __future__ import annotations

import _socket
import errno
import os
import socket as kernel
import struct
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from softhca.machine import deferred_signals
from softhca.machine.kernel_sockets import KernelSocket
from softhca.machine.signals import raised_by_handler, suppressed
from softhca.sockets import cm_listening, connecting, defaults, forking, listening, requests
from softhca.sockets.carried import Carried, carried_of, carry
from softhca.sockets.cm_listening import CmServed
from softhca.sockets.connecting import mapped
from softhca.sockets.datagram_socket import DatagramSocket
from softhca.sockets.hub import CONNECTING, HUB
from softhca.sockets.in_progress import InProgress, await_own
from softhca.sockets.listening import Served
from softhca.sockets.memory_processing import PageBuffer, PoolError
from softhca.sockets.stream import Stream
from softhca.sockets.stream_parts import GONE, check_ancillary, checked, failure, reads_descriptors
from softhca.sockets.upgrade import Upgrade, kind_of, upgrade_of

_FAMILIES = (kernel.AF_INET, kernel.AF_INET6)
_PEEK, _WAITALL, _DONTWAIT = int(kernel.MSG_PEEK), int(kernel.MSG_WAITALL), int(kernel.MSG_DONTWAIT)


class socket(DatagramSocket):
    """As Python's ``socket.socket``.  ``settings`` are its connection's, and of those that it accepts."""

    __slots__ = ("_alone", "_by_cm", "_carried", "_failed", "_left", "_listener", "_upgrade")

    def __init__(self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None) -> None:
        self._upgrade: Upgrade | InProgress | None = None
        self._failed = 0
        self._left: InProgress | None = None
        self._listener: Served | None = None
        self._by_cm: CmServed | None = None
        self._alone = False
        self._carried: Carried | None = carried_of(fileno) if isinstance(fileno, int) else None
        if type == -1 and self._carried is not None:
            family, type, proto = self._carried.kind
        elif type == -1 and isinstance(fileno, int):
            family, type, proto = kind_of(fileno) or cm_listening.kind_of(fileno) or (family, type, proto)
        super().__init__(family, type, proto, fileno)
        if fileno is not None and not hasattr(self, "do_handshake"):
            self._upgrade = upgrade_of(fileno)
            if self._upgrade is None:
                self._by_cm = cm_listening.serving(fileno)
            if self._upgrade is None and self._by_cm is None:
                self._listener = listening.serving(self)

    # what it is

    @property
    def stream(self) -> Stream | None:
        """The stream of a connection that goes by RDMA; None where it is the kernel's."""
        upgrade = self._upgrade
        return upgrade.stream if isinstance(upgrade, Upgrade) else None

    def _show(self) -> None:
        super()._show()
        if self._upgrade is not None:
            self._upgrade.poll()
        elif self._listener is not None and reads_descriptors():
            self._alone = True
            self._serve_by(None)

    def _may_upgrade(self) -> bool:
        return (
            self._upgrade is None
            and self._carried is None
            and (self._left is None or self.settings.by_cm)
            and not reads_descriptors()
            and defaults.rdma
            and self.family in _FAMILIES
            and self.type == kernel.SOCK_STREAM
            and self._by_cm is None
            and not hasattr(self, "do_handshake")  # TLS in the kernel's descriptor
        )

    def _may_connect(self, address: Any) -> bool:
        return (
            self._may_upgrade()
            and isinstance(address, tuple)
            and len(address) >= 2
            and (self.settings.by_cm or not connecting.is_used(self))
        )

    # connections

    def connect(self, address: Any, /) -> None:
        """Connect, by RDMA where the peer has it.  Errors are TCP's; ENOBUFS: create buffer pool failed.
        A non-blocking one waits for nothing: EINPROGRESS, and SO_ERROR tells once the socket is writable.
        """
        self._check_unconnected()
        if self.gettimeout() == 0 and self._may_upgrade():
            if code := self.connect_ex(address):
                raise failure(code)
            return
        taken: list[Stream] = []
        try:
            made = self._ask(address, taken)
            if made is None:
                if self._is_by_cm():
                    raise failure(errno.ECONNREFUSED)
                self._connect_by_tcp(address)
                return
            names = None
            if self._is_by_cm():
                names = super().getsockname(), self._numeric(address)
            else:
                super().connect(address)
            self._adopt(made, names)
        except BaseException:
            for each in taken:
                each.destroy()
            raise

    def _connect_by_tcp(self, address: Any) -> None:
        try:
            super().connect(address)
        except ConnectionRefusedError:
            with suppressed(OSError, ValueError):  # of the second look-up
                if self._may_upgrade():
                    connecting.remember_refusal(mapped(self._numeric(address)[0]))
            raise

    def connect_ex(self, address: Any, /) -> int:
        """As `connect`; the errno, 0 where it is connected."""
        waits = self.gettimeout() != 0
        try:
            self._check_unconnected()
            if waits and self._may_upgrade():
                self.connect(address)
                return 0
        except kernel.gaierror:
            raise
        except OSError as error:
            if isinstance(error, TimeoutError) and not error.errno:  # Python's own says EAGAIN, too
                return errno.EAGAIN
            return error.errno or errno.EINVAL
        made = None if waits else self._begin_to_connect(address)
        return super().connect_ex(address) if made is None else made

    def _check_unconnected(self) -> None:
        if isinstance(self._settled(), InProgress):
            raise failure(errno.EALREADY)
        if self.stream is not None:
            raise failure(errno.EISCONN)
        failed, self._failed = self._failed, 0
        if failed:
            raise failure(failed)

    def _begin_to_connect(self, address: Any) -> int | None:
        """Have it done while nobody waits, and say EINPROGRESS; None: it is the kernel's, as known so far."""
        if not self._may_connect(address):
            return None
        by_cm = self._is_by_cm()
        try:
            made = InProgress(self, self._numeric(address), self.settings)
        except (OSError, ValueError, TypeError):
            return None
        if made.begin():
            return errno.EINPROGRESS
        if isinstance(self._upgrade, (InProgress, Upgrade)):  # another thread's
            return errno.EALREADY
        return errno.ECONNREFUSED if by_cm else None

    def connected(self, upgrade: Upgrade | None, code: int, left: InProgress | None = None) -> None:
        """As `in_progress` says: it is over; by RDMA with ``upgrade``, else ``left`` has left the connection
        to the kernel, and whatever is tried again is the kernel's.  ``code`` is the errno of a failure of
        which the kernel does not know, or 0.
        """
        self._failed = code
        self._left = left
        self._upgrade = upgrade
        if upgrade is not None:
            upgrade.poll()
        if KernelSocket.fileno(self) < 0:  # it was closed meanwhile
            self._leave(abruptly=True)

    def _is_by_cm(self) -> bool:
        """Whether it is to connect, or listens, by the connection manager alone."""
        return self.settings.by_cm and self._may_upgrade()

    def _numeric(self, address: Any) -> tuple[Any, ...]:
        return kernel.getaddrinfo(address[0], address[1], self.family, self.type)[0][4]

    def _ask(self, address: Any, taken: list[Stream]) -> Stream | None:
        if not self._may_connect(address):
            return None
        limit_s = self.settings.connect_s
        limit_s = min(limit_s, self.gettimeout() or limit_s)
        try:
            found = self._numeric(address)
            port = int(found[1])
            for gid in connecting.candidates(str(found[0]), port, self.settings.by_cm):
                own = connecting.own_address(self, found)
                if own is None:
                    break
                names = own[1], mapped(own[0]), mapped(str(found[0]))
                made = connecting.ask(gid, port, names, self.settings, limit_s, taken)
                if made is not None:
                    return made
        except PoolError:
            super().close()
            raise
        except (OSError, ValueError, TypeError) as error:
            if raised_by_handler(error):
                raise
        return None

    def _adopt(self, stream: Stream, names: tuple[Any, Any] | None = None) -> None:
        """The connection is ``stream``'s from here on; ``names`` where there is no other."""
        shown = self._shown
        tcp = KernelSocket(self.family, self.type, self.proto, fileno=os.dup(KernelSocket.fileno(self)))
        try:
            made = Upgrade(stream, tcp, names)
        except BaseException:
            tcp.close()
            raise
        try:
            made.readiness.replace(KernelSocket.fileno(self))
        except BaseException:  # it was closed meanwhile
            made.leave(abruptly=True)
            raise
        self._upgrade = made
        if shown:  # the program has the number, and need not ask for it again
            made.poll()
        if KernelSocket.fileno(self) < 0:
            self._leave(abruptly=True)

    def listen(self, backlog: int = 128, /) -> None:
        """Listen, by TCP and, where there is a device, by RDMA; by TCP alone where several processes may
        accept, by the connection manager alone where settings say so: ENODEV, EADDRINUSE, ENOMEM, EMFILE."""
        if self._by_cm is None and self._is_by_cm() and self._listener is None:
            try:
                self._by_cm = CmServed(self, self.settings, backlog)
            except requests.FAILED as error:
                raise requests.as_os_error(error) from None
            self._leave_where_closed()
        if self._by_cm is not None:
            return
        if self._listener is not None or not self._may_upgrade():
            super().listen(backlog)
            return
        if not KernelSocket.getsockname(self)[1]:  # as the kernel's does
            super().bind(("0.0.0.0" if self.family == kernel.AF_INET else "::", 0))
        served = listening.serve(self, self.settings)
        try:
            super().listen(backlog)
        except BaseException:
            if served is not None:
                served.leave()
            raise
        self._serve_by(served)
        if served is None:
            listening.end_elsewhere(self)
        else:
            served.begin()
        self._leave_where_closed()

    def _serve_by(self, served: listening.Served | None) -> None:
        """Of ``served`` this one is a user, of what another thread has found meanwhile no more."""
        former, self._listener = self._listener, served
        if former is not None:
            former.leave()

    def _leave_where_closed(self) -> None:
        if KernelSocket.fileno(self) < 0:  # by another thread, which found nothing to leave
            self._leave_listeners()

    def _leave_listeners(self) -> None:
        self._serve_by(None)
        served, self._by_cm = self._by_cm, None
        if served is not None:
            served.leave()

    def accept(self) -> tuple[socket, Any]:
        """The next connection, by RDMA where its peer has asked so."""
        served = self._by_cm  # once, as below: another thread may close this one
        if served is not None:
            return self._accept_by_cm(served)
        if self._listener is None and not self._alone and self._may_upgrade():
            found, self._alone = listening.serving(self), True
            self._serve_by(found)
            if found is None:
                listening.end_elsewhere(self)
            self._leave_where_closed()
        fd, address = self._accept()  # type: ignore[attr-defined]
        made = socket(self.family, self.type, self.proto, fileno=fd)  # not of a subclass: as Python's own
        made.settings = self.settings
        if kernel.getdefaulttimeout() is None and self.gettimeout():
            made.setblocking(True)
        listener = self._listener
        if listener is not None:
            stream = listener.claim(mapped(address[0]), address[1])
            if stream is not None:
                try:
                    made._adopt(stream)
                except BaseException:
                    stream.refuse()
                    made.close()
                    raise
                forking.accepted(made)
                await_own(mapped(address[0]), address[1])
        return made, address

    def _accept_by_cm(self, served: CmServed) -> tuple[socket, Any]:
        made = socket(self.family, self.type, self.proto)  # first, as the kernel does
        stream: Stream | None = None
        try:
            made.settings = self.settings
            stream, own, peer = served.take(self._deadline())
            made._adopt(stream, (own, peer))
        except BaseException:
            if stream is not None:
                stream.refuse()
            made.close()
            raise
        forking.accepted(made)
        return made, peer

    # receiving

    def _deadline(self) -> tuple[float | None, bool]:
        timeout = self.gettimeout()
        return (None if timeout is None else time.monotonic() + timeout), timeout != 0

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """Up to ``bufsize`` bytes; none at the end."""
        upgrade = self._settled()
        if upgrade is None:
            return super().recv(bufsize, flags)
        if bufsize < 0:
            raise ValueError("negative buffersize in recv")
        flags = checked(flags)
        if flags & _WAITALL:
            whole = bytearray(bufsize)
            count = self.recv_into(whole, bufsize, flags)
            return bytes(whole[:count])
        stream, parts = upgrade.stream, []

        def take() -> int:
            parts.append(stream.receiver.take_bytes(bufsize, bool(flags & _PEEK)))
            return len(parts[0])

        if not bufsize:
            return b""
        deadline, blocking = self._deadline()
        stream.receive(take, deadline, blocking and not flags & _DONTWAIT)
        return parts[0] if parts else b""

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Receive into ``buffer``; into a `PageBuffer` by mapping where there is more than the threshold."""
        upgrade = self._settled()
        if upgrade is None:
            return super().recv_into(buffer, nbytes, flags)
        if nbytes < 0:
            raise ValueError("negative buffersize in recv_into")
        flags = checked(flags)
        view = memoryview(buffer).cast("B")
        if nbytes > view.nbytes:
            raise ValueError("buffer too small for requested bytes")
        view = view[:nbytes] if nbytes else view
        if view.readonly:
            raise TypeError("recv_into() argument 1 must be read-write bytes-like object")
        if isinstance(view.obj, PageBuffer) and not upgrade.stream.shows_more():
            view.obj.give_back(view)  # a sender that has no other room would be waited for
        stream, peek, count = upgrade.stream, bool(flags & _PEEK), 0
        deadline, blocking = self._deadline()
        blocking = blocking and not flags & _DONTWAIT
        while view.nbytes:
            take = partial(stream.receiver.take_into, view, peek)
            try:
                taken = stream.receive(take, deadline, blocking)
            except OSError:
                if count:
                    break
                raise
            count += taken
            if not taken or peek or not flags & _WAITALL:
                break
            view = view[taken:]
        return count

    def recv_view(self, bufsize: int) -> memoryview:
        """Up to ``bufsize`` bytes where they have arrived, without a copy; empty at the end of the stream.
        Their room is the sender's again once the view, and every view made of it, is released.
        """
        upgrade = self._settled()
        if upgrade is None:
            return super().recv_view(bufsize)
        if bufsize <= 0:
            raise ValueError("a view of no bytes")
        stream, views = upgrade.stream, []

        def take() -> int:
            views.append(stream.receiver.take_view(bufsize))
            return views[0].nbytes

        stream.receive(take, *self._deadline())
        return views[0] if views else memoryview(b"")

    def recvfrom(self, bufsize: int, flags: int = 0, /) -> tuple[bytes, Any]:
        """As `recv`; a stream's data have no address."""
        if self._settled() is None:
            return super().recvfrom(bufsize, flags)
        return self.recv(bufsize, flags), None

    def recvfrom_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> tuple[int, Any]:
        """As `recv_into`; a stream's data have no address."""
        if self._settled() is None:
            return super().recvfrom_into(buffer, nbytes, flags)
        return self.recv_into(buffer, nbytes, flags), None

    def recvmsg(
        self, bufsize: int, ancbufsize: int = 0, flags: int = 0, /
    ) -> tuple[bytes, list[Any], int, Any]:
        """As `recv`; there are no ancillary data."""
        if self._settled() is None:
            return super().recvmsg(bufsize, ancbufsize, flags)
        if bufsize < 0 or ancbufsize < 0:
            raise ValueError("negative buffer size in recvmsg")
        return self.recv(bufsize, flags), [], 0, None

    def recvmsg_into(
        self, buffers: Iterable[Any], ancbufsize: int = 0, flags: int = 0, /
    ) -> tuple[int, list[Any], int, Any]:
        """As `recv_into`, into one buffer after the other."""
        if self._settled() is None:
            return super().recvmsg_into(buffers, ancbufsize, flags)
        if ancbufsize < 0:
            raise ValueError("negative buffer size in recvmsg_into")
        count = 0
        for view in [memoryview(each).cast("B") for each in buffers]:
            if not view.nbytes:
                continue
            try:
                taken = self.recv_into(view, 0, flags | (_DONTWAIT if count else 0))
            except BlockingIOError:
                if count:
                    break
                raise
            count += taken
            if taken < view.nbytes:
                break
        return count, [], 0, None

    # sending

    def _send(self, upgrade: Any, views: list[memoryview], flags: int, deadline: float | None) -> int:
        flags = checked(flags)
        blocking = self.gettimeout() != 0 and not flags & _DONTWAIT
        return int(upgrade.stream.send(views, deadline, blocking))

    def send(self, data: Any, flags: int = 0, /) -> int:
        """Send; how many bytes."""
        upgrade = self._settled()  # once, as in all of these: what is being made may be the kernel's since
        if upgrade is None:
            return super().send(data, flags)
        return self._send(upgrade, [memoryview(data).cast("B")], flags, self._deadline()[0])

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        """Send all."""
        upgrade = self._settled()
        if upgrade is None:
            super().sendall(data, flags)
            return
        view = memoryview(data).cast("B")
        deadline = self._deadline()[0]
        while (sent := self._send(upgrade, [view], flags, deadline)) < view.nbytes:
            view = view[sent:]
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError("timed out")

    def sendmsg(
        self, buffers: Iterable[Any], ancdata: Iterable[Any] = (), flags: int = 0, address: Any = None, /
    ) -> int:
        """Send ``buffers``, one after the other; EOPNOTSUPP for ancillary data."""
        upgrade = self._settled()
        if upgrade is None:
            return super().sendmsg(buffers, ancdata, flags, address)
        if check_ancillary(ancdata):
            raise OSError(errno.EOPNOTSUPP, "ancillary data over RDMA")
        if address is not None and not isinstance(address, tuple):
            raise TypeError(f"an address is a tuple, not {type(address).__name__}")
        if address is not None:
            raise OSError(errno.EISCONN, os.strerror(errno.EISCONN))
        views = [memoryview(each).cast("B") for each in buffers]
        if len(views) > 1 and sum([view.nbytes for view in views]) <= self.settings.threshold_bytes:
            views = [memoryview(b"".join(views))]
        return self._send(upgrade, views, flags, self._deadline()[0])

    def sendto(self, data: Any, *arguments: Any) -> int:
        """Send; a connection has its address."""
        if self._settled() is None:
            return super().sendto(data, *arguments)
        return self.send(data, arguments[0] if len(arguments) > 1 else 0)

    def _sendfile_use_sendfile(self, file: Any, offset: int = 0, count: int | None = None) -> int:
        if self._upgrade is None:
            return int(super()._sendfile_use_sendfile(file, offset, count))  # type: ignore[misc]
        try:
            os.fstat(file.fileno())
        except (AttributeError, OSError) as error:
            raise kernel._GiveupOnSendfile(error) from None  # type: ignore[attr-defined]
        return int(self._sendfile_use_send(file, offset, count))  # type: ignore[attr-defined]

    # options and names

    def _beside(self) -> Upgrade | InProgress | Carried | None:
        """What has names and options where the descriptor has them not.  A socket of TLS is made of a number
        before the plain one gives it up.
        """
        one = self._upgrade or self._carried
        if one is None:
            one = self._carried = carried_of(KernelSocket.fileno(self))
        return one

    def _ask_beside(self, ask: Callable[[Any], Any], otherwise: Callable[[], Any]) -> Any:
        """Of what is beside, or of the kernel's number; again where a connection has ended meanwhile."""
        while True:
            one = self._beside()
            if one is None:
                return otherwise()
            try:
                return ask(one)
            except OSError:
                if one is self._upgrade or not isinstance(one, InProgress):
                    raise

    def _of_tcp(self, call: Callable[[KernelSocket], Any], otherwise: Callable[[], Any]) -> Any:
        served = self._by_cm
        if served is not None:
            return call(served.tcp)
        return self._ask_beside(lambda one: call(one.tcp), otherwise)

    def setsockopt(self, *arguments: Any) -> None:
        """Options are TCP's; SO_RCVBUF before the connection is made says how large the pool is."""
        if self._of_tcp(lambda tcp: tcp.setsockopt(*arguments), lambda: True) is None:
            upgrade = self._upgrade
            if upgrade is not None:
                upgrade.set_options()
            return
        super().setsockopt(*arguments)
        if arguments[:2] == (kernel.SOL_SOCKET, kernel.SO_RCVBUF) and isinstance(arguments[2], int):
            self.settings = self.settings.with_pool(arguments[2])

    def getsockopt(self, *arguments: Any) -> Any:
        """Options are TCP's, but SO_ERROR."""
        upgrade = self._settled()
        if arguments[:2] == (kernel.SOL_SOCKET, kernel.SO_ERROR) and (self._failed or upgrade is not None):
            found, self._failed = self._failed, 0
            if not found and upgrade is not None:
                found = upgrade.take_error()
            return found if len(arguments) < 3 else struct.pack("i", found)
        return self._of_tcp(lambda tcp: tcp.getsockopt(*arguments), partial(super().getsockopt, *arguments))

    def getpeername(self) -> Any:
        """The peer's TCP address."""
        return self._ask_beside(lambda one: one.peer_name, super().getpeername)

    def getsockname(self) -> Any:
        """This side's TCP address."""
        served = self._by_cm
        if served is not None:
            return served.tcp.getsockname()
        return self._ask_beside(lambda one: one.own_name, super().getsockname)

    def settimeout(self, value: float | None, /) -> None:
        """Of a connection that is being made: one that is to block waits here until it is there."""
        if value != 0:
            self._await_connection()  # first: what the number stands for then is told
        super().settimeout(value)

    def setblocking(self, flag: bool, /) -> None:
        """As `settimeout`."""
        if flag:
            self._await_connection()
        super().setblocking(flag)

    def _settled(self) -> Upgrade | InProgress | None:
        """`_upgrade`; of a connection that is just ending what comes behind: the descriptor may say so."""
        upgrade = self._upgrade
        if isinstance(upgrade, InProgress):
            upgrade.settle()
        return self._upgrade

    def _await_connection(self) -> None:
        upgrade = self._upgrade  # once: it is another one when the connection is there
        if isinstance(upgrade, InProgress):
            upgrade.wait()

    # the end

    def shutdown(self, how: int, /) -> None:
        """End a half, or both."""
        upgrade = self._settled()
        if upgrade is None:
            super().shutdown(how)
            return
        if not -(1 << 31) <= how < 1 << 31:
            raise OverflowError("Python int too large to convert to C int")
        if how not in (kernel.SHUT_RD, kernel.SHUT_WR, kernel.SHUT_RDWR):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if isinstance(upgrade, InProgress) or upgrade.stream.error:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        upgrade.stream.shutdown(how != kernel.SHUT_WR, how != kernel.SHUT_RD)

    def _leave(self, abruptly: bool | None) -> None:
        """Have nothing beside the kernel's descriptor any more."""
        with deferred_signals.section():  # else nobody would know of what was left
            self._let_go()
            upgrade, self._upgrade = self._upgrade, GONE
            if upgrade is not None and upgrade is not GONE:
                upgrade.leave(abruptly)

    def _real_close(self, _ss: Any = _socket.socket) -> None:
        if self._is_ending():  # as in the base class
            return super()._real_close(_ss)
        with deferred_signals.section():  # a handler that raises finds it open, or closed
            self._leave_listeners()
            self._carried = None
            try:
                self._leave(None)
            finally:
                super()._real_close(_ss)
                self._leave(abruptly=True)  # what has come about in between
                self._leave_listeners()

    def _let_go(self) -> None:
        """The kernel's socket is this process's no more."""
        left, self._left = getattr(self, "_left", None), None
        if left is not None:
            left.let_go()

    def _drop(self) -> None:
        super()._drop()
        upgrade, listener = getattr(self, "_upgrade", None), getattr(self, "_listener", None)
        if upgrade is not None and upgrade is not GONE:
            (CONNECTING if isinstance(upgrade, InProgress) else HUB).soon(upgrade.drop)
        self._let_go()
        for each in filter(None, (listener, getattr(self, "_by_cm", None))):
            HUB.soon(each.leave)

    def detach(self) -> int:
        """The descriptor, which can be read and written: that of a connection by RDMA by a `Relay`.  A
        listening socket's is served by TCP alone."""
        self._await_connection()
        upgrade, self._upgrade = self._upgrade, GONE
        self._serve_by(None)
        self._carried = None
        number = super().detach()
        self._let_go()
        if isinstance(upgrade, Upgrade):
            upgrade.stream.on_change = None
            try:
                carry(upgrade, number)
            except BaseException:
                upgrade.leave(abruptly=True)
                os.close(number)
                raise
        return number

    def carry(self) -> None:
        """As `forking.Accepted`'s."""
        upgrade = self._upgrade
        if not isinstance(upgrade, Upgrade) or upgrade.shared or upgrade.polled or upgrade.stream.used:
            return
        self._carried = carry(upgrade, KernelSocket.fileno(self))
        self._upgrade = upgrade.stream.on_change = None

    def dup(self) -> socket:
        """A duplicate: the same connection."""
        self._await_connection()
        number = _socket.dup(KernelSocket.fileno(self))
        made = type(self)(self.family, self.type, self.proto, fileno=number)
        made.settings = self.settings
        made.settimeout(self.gettimeout())
        return made
