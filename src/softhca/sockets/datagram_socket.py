"""What a `socket` of SOCK_DGRAM does: the methods of Python's own, over datagrams by RDMA.

A bound socket of IPv4 or IPv6 has an end of RDMA beside the kernel's socket; its number then stands for a
descriptor that is readable and writable as both together are.  Everything that has no end is the kernel's.
"""

from __future__ import annotations

import _socket
import ipaddress
import os
import select
import socket as kernel
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from sys import is_finalizing
from typing import Any, TypeVar

from softhca.machine import deferred_signals, primitives
from softhca.machine.kernel_sockets import KernelSocket
from softhca.machine.signals import raised_by_handler, suppressed
from softhca.sockets import connecting, datagrams, defaults, port_lookup, requests
from softhca.sockets.connecting import mapped, name_of
from softhca.sockets.datagram_port import DatagramPort
from softhca.sockets.datagram_state import Datagram
from softhca.sockets.datagrams import DatagramEnd
from softhca.sockets.hub import HUB
from softhca.sockets.memory_processing import PageBuffer, PoolError
from softhca.sockets.settings import Settings
from softhca.sockets.stream_parts import GONE

_FAMILIES = (kernel.AF_INET, kernel.AF_INET6)
_SENDING = _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL
_RECEIVING = _socket.MSG_PEEK | _socket.MSG_DONTWAIT | _socket.MSG_TRUNC | _socket.MSG_WAITALL
_SHARING = {(kernel.SOL_SOCKET, kernel.SO_REUSEADDR), (kernel.SOL_SOCKET, kernel.SO_REUSEPORT)}
# What asks for ancillary data, which datagrams by RDMA have not: <linux/in.h>, <linux/in6.h>, <asm/socket.h>.
_ANCILLARY = (
    {(kernel.IPPROTO_IP, each) for each in (6, 7, 8, 11, 12, 13, 20)}
    | {(kernel.IPPROTO_IPV6, each) for each in (25, 49, 51, 53, 56, 58, 60, 66, 74)}
    | {(kernel.SOL_SOCKET, each) for each in (29, 35, 37, 40)}
)

Result = TypeVar("Result")


class DatagramSocket(KernelSocket):
    """``settings`` are those of what the socket makes; ``datagrams`` its end by RDMA."""

    __slots__ = ("_end", "_shown", "settings")

    _is_ending = staticmethod(is_finalizing)  # the interpreter; modules are cleared then

    def __init__(self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None) -> None:
        self._end: DatagramEnd | None = None
        self._shown = False
        self.settings: Settings = defaults.settings
        if type == -1 and isinstance(fileno, int):  # the number may stand for another descriptor
            family, type, proto = datagrams.kind_of(fileno) or (family, type, proto)
        super().__init__(family, type, proto, fileno)
        if fileno is not None and not hasattr(self, "do_handshake"):
            self._keep(datagrams.end_of(os.fstat(fileno).st_ino))

    @property
    def datagrams(self) -> DatagramEnd | None:
        """What a bound datagram socket has beside the kernel's; None where it is the kernel's alone."""
        return None if self._end is GONE else self._end

    def fileno(self) -> int:
        """A descriptor that is readable and writable as the socket is."""
        number = super().fileno()
        self._shown = True
        if number >= 0 and not self._is_ending():
            self._show()
        return number

    def _show(self) -> None:
        """Have the descriptor say what the socket is."""
        if self._end is not None:
            self._end.poll()

    # being bound

    def _may_have_end(self) -> bool:
        return (
            self._end is None
            and self.type == kernel.SOCK_DGRAM
            and self.family in _FAMILIES
            and self.proto in (0, kernel.IPPROTO_UDP)
            and defaults.rdma
            and self.settings.datagrams
            and not hasattr(self, "do_handshake")
            and not any([super(DatagramSocket, self).getsockopt(*each) for each in _SHARING])
        )

    def _keep(self, end: DatagramEnd | None) -> None:
        if end is not None:
            self._end = end
            end.users.add(self)

    def _begin(self) -> None:
        """Have an end, where there is a device.  It is made and kept whole, whatever signal comes."""
        with deferred_signals.section():
            self._make_end()

    def _make_end(self) -> None:
        try:
            if ipaddress.ip_address(super().getsockname()[0].split("%", 1)[0]).is_multicast:
                return
            made = DatagramEnd(self, self.settings)
        except PoolError:
            super().close()
            raise
        except requests.FAILED as error:
            if raised_by_handler(error):
                raise
            return
        try:
            made.readiness.replace(KernelSocket.fileno(self))
        except BaseException:  # it was closed meanwhile
            made.leave()
            raise
        self._keep(made)
        if KernelSocket.fileno(self) < 0:
            self._leave_end()

    def bind(self, address: Any, /) -> None:
        """Take an address; ENOBUFS: create buffer pool failed."""
        super().bind(address)
        if self._may_have_end():
            self._begin()

    def _begin_towards(self, address: Any) -> None:
        """Of a socket that has no end: have one if what it is going to send to may."""
        found = _numeric(address)
        if found is None or not self._may_have_end() or not _may_take(*found):
            return
        if not super().getsockname()[1]:
            super().bind(("0.0.0.0" if self.family == kernel.AF_INET else "::", 0))
        self._begin()

    def connect(self, address: Any, /) -> None:
        """Connect; of datagrams: send there, and receive from there alone."""
        if self.type != kernel.SOCK_DGRAM:
            super().connect(address)
            return
        if self._end is None:
            super().connect(address)
            self._begin_towards(address)
        else:
            self._end.udp.connect(address)
        if self._end is not None:
            host, port = self._end.udp.getpeername()[:2]
            self._end.connect((mapped(str(host)), int(port)))

    def connect_ex(self, address: Any, /) -> int:
        """As `connect`; the errno, 0 where it is connected."""
        if self.type != kernel.SOCK_DGRAM:
            return super().connect_ex(address)
        try:
            self.connect(address)
        except OSError as error:
            return error.errno or 22
        return 0

    # receiving

    def _datagram_limit(self, flags: int) -> tuple[float | None, bool]:
        timeout = self.gettimeout()
        deadline = None if timeout is None else time.monotonic() + timeout
        return deadline, timeout != 0 and not flags & _socket.MSG_DONTWAIT

    def _receive(
        self,
        take: Callable[[DatagramPort, Datagram], Result],
        by_kernel: Callable[[KernelSocket, int], Result],
        flags: int,
    ) -> Result:
        end = self._end
        assert end is not None
        now = flags | _socket.MSG_DONTWAIT
        if flags & ~_RECEIVING:
            return by_kernel(end.udp, now)
        deadline, blocking = self._datagram_limit(flags)
        peek = bool(flags & _socket.MSG_PEEK)
        return end.receive(take, lambda: by_kernel(end.udp, now), deadline, blocking, peek)

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """Up to ``bufsize`` bytes of the next datagram."""
        return super().recv(bufsize, flags) if self._end is None else self.recvfrom(bufsize, flags)[0]

    def recvfrom(self, bufsize: int, flags: int = 0, /) -> tuple[bytes, Any]:
        """Up to ``bufsize`` bytes of the next datagram, and where it comes from."""
        if self._end is None:
            return super().recvfrom(bufsize, flags)
        found = self.recvmsg(bufsize, 0, flags)
        return found[0], found[3]

    def recvmsg(
        self, bufsize: int, ancbufsize: int = 0, flags: int = 0, /
    ) -> tuple[bytes, list[Any], int, Any]:
        """As `recvfrom`; ancillary data are the kernel's alone."""
        end = self._end
        if end is None:
            return super().recvmsg(bufsize, ancbufsize, flags)
        if bufsize < 0 or ancbufsize < 0:
            raise ValueError("negative buffer size in recvmsg")

        def take(port: DatagramPort, found: Datagram) -> tuple[bytes, list[Any], int, Any]:
            data = port.bytes_of(found, bufsize)
            if not flags & _socket.MSG_PEEK:
                port.state.give_back(found.slots)
            cut = _socket.MSG_TRUNC if found.total > bufsize else 0
            return data, [], cut, name_of(found.claim.address, end.version)

        return self._receive(take, lambda udp, now: udp.recvmsg(bufsize, ancbufsize, now), flags)

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """As `recv`, into ``buffer``; into a `PageBuffer` by mapping what is long enough."""
        if self._end is None:
            return super().recv_into(buffer, nbytes, flags)
        return self.recvfrom_into(buffer, nbytes, flags)[0]

    def recvfrom_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> tuple[int, Any]:
        """As `recvfrom`, into ``buffer``."""
        end = self._end
        if end is None:
            return super().recvfrom_into(buffer, nbytes, flags)
        view = memoryview(buffer).cast("B")
        if nbytes < 0 or nbytes > view.nbytes:
            raise ValueError(
                "negative buffersize in recvfrom_into" if nbytes < 0 else "nbytes is greater than the length"
            )
        view = view[: nbytes or view.nbytes]
        if view.readonly:
            raise TypeError("recvfrom_into() argument 1 must be read-write bytes-like object")
        if isinstance(view.obj, PageBuffer):
            view.obj.give_back(view)

        def take(port: DatagramPort, found: Datagram) -> tuple[int, Any]:
            length = port.take_into(found, view, bool(flags & _socket.MSG_PEEK))
            whole = found.total if flags & _socket.MSG_TRUNC else length
            return whole, name_of(found.claim.address, end.version)

        return self._receive(take, lambda udp, now: udp.recvfrom_into(view, 0, now), flags)

    def recvmsg_into(
        self, buffers: Iterable[Any], ancbufsize: int = 0, flags: int = 0, /
    ) -> tuple[int, list[Any], int, Any]:
        """As `recvmsg`, into one buffer after the other."""
        if self._end is None:
            return super().recvmsg_into(buffers, ancbufsize, flags)
        views = [memoryview(each).cast("B") for each in buffers]
        if any([each.readonly for each in views]):
            raise TypeError("recvmsg_into() argument 1 must be an iterable of read-write buffers")
        data, ancillary, cut, name = self.recvmsg(sum([each.nbytes for each in views]), ancbufsize, flags)
        left = memoryview(data)
        for view in views:
            taken = min(view.nbytes, left.nbytes)
            if taken:
                primitives.copy(
                    primitives.address_of(view), primitives.address_of(left, False), taken
                )  # fmt: skip
            left = left[taken:]
        return len(data), ancillary, cut, name

    def recv_view(self, bufsize: int) -> memoryview:
        """Up to ``bufsize`` bytes of the next datagram where they have arrived, without a copy where they are
        in one run.  Their room is the adapter's again once the view, and every view made of it, is released.
        """
        if self._end is None:
            return memoryview(super().recv(bufsize))
        if bufsize <= 0:
            raise ValueError("a view of no bytes")
        return self._receive(
            lambda port, found: port.view_of(found, bufsize),
            lambda udp, now: memoryview(udp.recv(bufsize, now)),
            0,
        )

    # sending

    def send(self, data: Any, flags: int = 0, /) -> int:
        """Send to the connected peer."""
        return super().send(data, flags) if self._end is None else self._send_to([data], (), flags, None)

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        """As `send`: a datagram goes whole."""
        if self._end is None:
            super().sendall(data, flags)
        else:
            self._send_to([data], (), flags, None)

    def sendto(self, data: Any, *arguments: Any) -> int:
        """Send to an address."""
        address = arguments[len(arguments) - 1] if arguments else None
        # A number that was asked for may be in an epoll, which would see the kernel's socket alone.
        if self._end is None and arguments and self.type == kernel.SOCK_DGRAM and not self._shown:
            self._begin_towards(address)
        if self._end is None or not 1 <= len(arguments) <= 2:
            return super().sendto(data, *arguments)
        flags = arguments[0] if len(arguments) == 2 else 0
        if address is None:
            raise TypeError("sendto(): an address is a tuple, not NoneType")
        return self._send_to([data], (), flags, address)

    def sendmsg(
        self, buffers: Iterable[Any], ancdata: Iterable[Any] = (), flags: int = 0, address: Any = None, /
    ) -> int:
        """Send ``buffers``, one after the other, as one datagram; with ancillary data by the kernel."""
        if self._end is None:
            return super().sendmsg(buffers, ancdata, flags, address)
        return self._send_to(list(buffers), list(ancdata), flags, address)

    def _send_to(self, buffers: list[Any], ancillary: Any, flags: int, address: Any) -> int:
        end = self._end
        assert end is not None
        deadline, blocking = self._datagram_limit(flags)
        if not ancillary and not flags & ~_SENDING:
            if address is None and end.connected is not None:
                found = _numeric(name_of(end.connected, end.version))
            else:
                found = _numeric(address)
            if found is not None:
                way = end.way_to(end.peer_at(*found), deadline, blocking)
                if way is not None:
                    if len(buffers) == 1:
                        view = memoryview(buffers[0]).cast("B")
                    else:
                        view = memoryview(b"".join(buffers))
                    end.send(way, view, deadline, blocking)
                    return view.nbytes
        return _send_by_kernel(end.udp, (buffers, ancillary, flags, address), deadline, blocking)

    # options and names

    def setsockopt(self, *arguments: Any) -> None:
        """Options are the kernel's; one that asks for ancillary data has datagrams come by the kernel."""
        if self._end is None:
            super().setsockopt(*arguments)
            return
        self._end.udp.setsockopt(*arguments)
        if arguments[:2] in _ANCILLARY | _SHARING and arguments[2:] != (0,):
            self._end.retire()

    def getsockopt(self, *arguments: Any) -> Any:
        """Options are the kernel's."""
        if self._end is None:
            return super().getsockopt(*arguments)
        return self._end.udp.getsockopt(*arguments)

    def getsockname(self) -> Any:
        """This side's address."""
        return super().getsockname() if self._end is None else self._end.udp.getsockname()

    def getpeername(self) -> Any:
        """The connected peer's address."""
        return super().getpeername() if self._end is None else self._end.udp.getpeername()

    # the end

    def shutdown(self, how: int, /) -> None:
        """As the kernel does."""
        if self._end is None:
            super().shutdown(how)
        else:
            self._end.udp.shutdown(how)

    def _leave_end(self) -> DatagramEnd | None:
        """Have nothing beside the kernel's descriptor any more; what there was."""
        end, self._end = self._end, GONE
        if end is None or end is GONE:
            return None
        end.users.discard(self)
        end.leave()
        return end

    def _real_close(self, _ss: Any = kernel.SocketType) -> None:
        with deferred_signals.section():  # both or nothing
            try:
                if not self._is_ending():  # whoever has ended with the interpreter holds locks for ever
                    self._leave_end()
            finally:
                super()._real_close(_ss)  # type: ignore[misc]

    def __del__(self) -> None:
        """A socket that is dropped is closed, by the hub: finalizers run in whatever thread."""
        if not self._is_ending():
            self._drop()
        super().__del__()  # type: ignore[misc]

    def _drop(self) -> None:
        end = getattr(self, "_end", None)
        if end is not None and end is not GONE:
            HUB.soon(end.leave)

    def detach(self) -> int:
        """The descriptor, which is the kernel's again: nothing comes by RDMA any more."""
        end, self._end = self._end, GONE
        number = super().detach()
        if end is not None and end is not GONE:
            try:
                os.dup2(end.udp.fileno(), number, inheritable=os.get_inheritable(number))
                os.set_blocking(number, self.gettimeout() != 0)
            except OSError:
                os.close(number)  # nobody else knows of it
                raise
            finally:
                end.users.discard(self)
                end.leave()
        return number


def _numeric(address: Any) -> tuple[str, int] | None:
    """Host, as text of an address, and port; None where the kernel is to say what it thinks of that."""
    if not isinstance(address, tuple) or not 2 <= len(address) <= 4:
        return None
    host, port = address[:2]
    if not isinstance(host, str) or not isinstance(port, int) or not 0 < port < 1 << 16:
        return None
    try:
        found = _of_one(host)
    except ValueError:
        try:
            found = _of_one(kernel.gethostbyname(host))
        except (OSError, ValueError):
            return None
    return None if found is None else (found, port)


@lru_cache(maxsize=1024)
def _of_one(host: str) -> str | None:
    """A numeric address, where it is one host's, in its usual form; ValueError."""
    found = ipaddress.ip_address(host)
    return None if found.is_multicast or found.is_unspecified else str(found)


def _may_take(host: str, port: int) -> bool:
    """Whether datagrams to there may go by RDMA at all."""
    if connecting.is_here(host):
        address = mapped(host)
        return port_lookup.takes_datagrams(port, [address, connecting.any_like(address)])
    if not connecting.candidates(host, port):
        return False
    with suppressed(*requests.FAILED):
        if any([not place.address.is_loopback for place in requests.places()]):
            return True
    connecting.remember_unreached(mapped(host))
    return False


def _send_by_kernel(
    udp: KernelSocket, arguments: tuple[Any, ...], deadline: float | None, blocking: bool
) -> int:
    buffers, ancillary, flags, address = arguments
    while True:
        try:
            return udp.sendmsg(buffers, ancillary, flags | _socket.MSG_DONTWAIT, address)
        except BlockingIOError:
            if not blocking:
                raise
        looking = select.poll()
        looking.register(udp.fileno(), select.POLLOUT)
        left_s = None if deadline is None else deadline - time.monotonic()
        if left_s is not None and left_s <= 0:
            raise TimeoutError("timed out")
        looking.poll(None if left_s is None else left_s * 1000)


def _after_fork() -> None:
    """In a forked child: what was bound is the kernel's alone here."""
    for end in datagrams.living():
        for one in list(end.users):
            number = KernelSocket.fileno(one)
            if number >= 0:
                os.dup2(end.udp.fileno(), number, inheritable=os.get_inheritable(number))
                one._end = None  # type: ignore[attr-defined]
                one.settimeout(one.gettimeout())
        end.abandon()
    datagrams._ends.clear()


os.register_at_fork(after_in_child=_after_fork)
