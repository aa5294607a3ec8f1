"""The side that asks: whether the peer of a TCP connection to be made has softhca, and a stream to it.

The order is: find a GID at which the port is served, ask there by RDMA CM with the TCP address that this side
is going to have, and when that is answered, connect by TCP.  So whoever accepts the TCP connection knows from
its peer's address which stream belongs to it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from softhca.driver.errors import DriverError
from softhca.driver.rdmacm import events
from softhca.driver.rdmacm.addresses import of_gid
from softhca.driver.rdmacm.events import IdentifierEvent
from softhca.machine import deferred_signals
from softhca.machine.kernel_sockets import KernelSocket
from softhca.machine.signals import raised_by_handler, suppressed
from softhca.sockets import devices
from softhca.sockets.port_lookup import gids_of
from softhca.sockets.protocol import Offer, ProtocolError
from softhca.sockets.settings import Settings
from softhca.sockets.stream import Stream
from softhca.verbs.cmid import CMID, AddrInfo, CMEventChannel, ConnParam
from softhca.verbs.librdmacm_enums import RAI_NUMERICHOST
from softhca.verbs.pyverbs_error import PyverbsError

_ACK_OPTION = 3
_TCP_INFO = struct.Struct("B139xI")
"""`tcpi_state` and `tcpi_segs_in` of <linux/tcp.h>."""
_TCP_CLOSE = 7
UNREACHED_S = 60.0
"""A host that has not answered is not asked again for so long."""
REFUSED_S = 1.0
"""Nor for so long one that has refused the TCP connection: who is just starting does not listen yet, and may
have no adapter yet.
"""
_MOST_UNREACHED = 1024

_unreached: dict[bytes, float] = {}
_unreached_lock = threading.Lock()


@lru_cache(maxsize=1024)
def mapped(host: str) -> bytes:
    """The IPv6 or IPv4-mapped address; ValueError."""
    address = ipaddress.ip_address(host.split("%", 1)[0])
    return address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed


def text_of(address: bytes, version: int) -> str | None:
    """An IPv6 or IPv4-mapped address as a socket of the IP version has it; None: it cannot have it."""
    is_ipv4 = address.startswith(bytes(10) + b"\xff\xff")
    if version == 4:
        return socket.inet_ntop(socket.AF_INET, address[12:]) if is_ipv4 else None
    return socket.inet_ntop(socket.AF_INET6, address)


@lru_cache(maxsize=1024)
def name_of(address: tuple[bytes, int], version: int) -> tuple[Any, ...]:
    """An address and port, as `recvfrom` gives them."""
    host = text_of(address[0], version)
    return (host, address[1]) if version == 4 else (host, address[1], 0, 0)


def any_like(address: bytes) -> bytes:
    """The address that stands for all of its family."""
    return bytes(10) + b"\xff\xff" + bytes(4) if address.startswith(bytes(10) + b"\xff\xff") else bytes(16)


def candidates(host: str, port: int, alone: bool = False) -> list[bytes]:
    """GIDs to ask for ``port`` of ``host``, a numeric address.  ``alone``: by the connection manager alone,
    which knows this host's addresses that are an adapter's, too.
    """
    gid = mapped(host)
    if is_here(host):
        found = gids_of(port, gid) or gids_of(port, any_like(gid))
        return found or ([gid] if alone else [])
    with _unreached_lock:
        since = _unreached.get(gid)
    if since is not None and time.monotonic() - since < UNREACHED_S:
        return []
    return [gid]


def is_here(host: str) -> bool:
    """Whether an address is this host's."""
    try:
        with KernelSocket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((host.split("%", 1)[0], 0))
    except OSError as error:
        if raised_by_handler(error):
            raise
        return False
    return True


def source_towards(address: tuple[object, ...], family: int) -> str | None:
    """The address that this host has towards another one."""
    try:
        with KernelSocket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        if raised_by_handler(error):
            raise
        return None


def remember_unreached(gid: bytes) -> None:
    """A host has not answered, or cannot be asked."""
    with _unreached_lock:
        if len(_unreached) >= _MOST_UNREACHED:
            _unreached.clear()
        _unreached[gid] = time.monotonic()


def remember_refusal(gid: bytes) -> None:
    """A host has refused a TCP connection, which it may take soon."""
    with _unreached_lock:
        if gid in _unreached:
            _unreached[gid] = min(_unreached[gid], time.monotonic() - UNREACHED_S + REFUSED_S)


def _tcp_info(one: KernelSocket) -> tuple[int, int]:
    """State, and how many segments have come.  OSError."""
    raw = KernelSocket.getsockopt(one, socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
    state, segments = _TCP_INFO.unpack(raw.ljust(_TCP_INFO.size, b"\0"))
    return state, segments


def is_used(one: KernelSocket) -> bool:
    """Whether a TCP socket connects, is connected, or listens."""
    with suppressed(OSError):
        return _tcp_info(one)[0] != _TCP_CLOSE
    return False


def was_refused(one: KernelSocket) -> bool:
    """Whether a connection by TCP has failed by an answer of the peer, not by silence or for want of a way;
    SO_ERROR, which tells it once, is left to the program.
    """
    with suppressed(OSError):
        state, segments = _tcp_info(one)
        return state == _TCP_CLOSE and segments > 0
    return False


def own_address(one: KernelSocket, towards: tuple[Any, ...]) -> tuple[str, int] | None:
    """The TCP address that ``one``, which is bound then, is going to have; None: there is none.  OSError."""
    host, port = KernelSocket.getsockname(one)[:2]
    if not port:
        source = source_towards(towards, one.family)
        if source is None:
            return None
        KernelSocket.bind(one, (source, 0, *towards[2:]))
        host, port = KernelSocket.getsockname(one)[:2]
    if host in ("0.0.0.0", "::"):
        source = source_towards(towards, one.family)
        if source is None:
            return None
        host = source
    return host, port


Names = tuple[int, bytes, bytes]
"""The port number and the address that this side is going to have, and the address that it connects to, by
TCP.
"""
FAILED = (PyverbsError, DriverError, ProtocolError)


class Asking:
    """Asks at ``gid`` for a stream to ``port``.  `FAILED`: there is none."""

    def __init__(self, gid: bytes, port: int, names: Names, settings: Settings) -> None:
        self._gid = gid
        self._port = port
        self._names = names
        self._settings = settings
        self._cmid: CMID | None = None
        self._stream: Stream | None = None
        self._channel = CMEventChannel()
        self.opening = False
        """Whether the answer has come, and the peer's adapter is to have taken the word that it has."""

    def begin(self, on_post: Callable[[], object] | None = None) -> bool:
        """Ask; whether that could be.  Opens the device where nobody has, and takes as long.  Then
        ``on_post`` is called by the thread that has queued an event.  `PoolError` where this side cannot.
        """
        with deferred_signals.section():  # what is made is known, and given back by `end`
            return self._begin(on_post)

    def _begin(self, on_post: Callable[[], object] | None) -> bool:
        cmid = self._cmid = CMID(creator=self._channel)
        with contextlib.suppress(PyverbsError):
            cmid.set_option(0, _ACK_OPTION, self._settings.ack_timeout, 1)
        place = of_gid(self._gid)
        cmid.resolve_addr(AddrInfo(dst=place.host, dst_service=str(self._port), flags=RAI_NUMERICHOST))
        local = devices.keep(cmid)
        if not place.is_loopback and local.address.is_loopback:
            remember_unreached(self._gid)
            return False
        cmid.resolve_route()
        while self._channel.channel.next_event(0) is not None:
            pass
        stream = self._stream = Stream(cmid, self._settings)
        hello = stream.offer(self._names[0], self._settings.by_cm).encode(*self._names[1:])
        parameters = ConnParam(resources=1, depth=1, retry=7, rnr_retry=7, data_len=len(hello))
        parameters.set_private_data(hello)
        if on_post is not None:
            stream.watch()
            self._channel.channel.on_post = on_post
        cmid.connect(parameters)
        return True

    def hand_over(self) -> None:
        """An event was queued for another thread."""
        stream = self._stream  # once: another thread may end it
        if stream is not None:
            stream.hand_over()

    def next_event(self, limit_s: float) -> IdentifierEvent | None:
        """The next event, which is waited for; None: none has come."""
        return self._channel.channel.next_event(limit_s)

    def answered(self, event: IdentifierEvent | None) -> Stream | None:
        """The stream where ``event`` (None: nothing has come in time) says that there is one.  The peer is
        told; once the stream is `Stream.told`, its adapter has taken that, and who accepts will find it:
        only then it may be taken, and the TCP connection begun.
        """
        if event is None:
            remember_unreached(self._gid)
        if event is None or event.kind != events.ESTABLISHED or self._stream is None:
            return None
        made = self._stream
        made.begin(Offer.decode(event.private_data))
        made.follow(self._channel)
        made.open()
        self.opening = True
        return made

    @property
    def told(self) -> bool:
        """Whether the peer's adapter has the word that the answer has come, or the stream has failed."""
        stream = self._stream  # once: another thread may end it
        return self.opening and stream is not None and stream.told

    def take(self, taken: list[Stream] | None = None) -> Stream | None:
        """The stream, which is the caller's from here on, who may be interrupted before he has it: ``taken``
        has it before.  None: there is none, or its peer is not told.
        """
        made = self._stream
        if made is None or made.error or not self.told:
            return None
        if taken is not None:
            taken.append(made)
        self._stream = self._cmid = None  # what fails before that is given back by `end`
        return made

    def end(self) -> None:
        """Give back what has become of nothing."""
        with deferred_signals.section():
            stream, self._stream = self._stream, None
            cmid, self._cmid = self._cmid, None
            if stream is not None:
                stream.destroy()
            elif cmid is not None:
                cmid.close()
            if stream is not None or cmid is not None:
                self._channel.close()


def ask(
    gid: bytes, port: int, names: Names, settings: Settings, limit_s: float, taken: list[Stream] | None = None
) -> Stream | None:
    """A stream to ``port`` at ``gid``, which is waited for; None where there is none.  `PoolError` where this
    side cannot.  ``taken`` as `Asking.take`.
    """
    asking = Asking(gid, port, names, settings)
    try:
        made = asking.answered(asking.next_event(limit_s)) if asking.begin() else None
        if made is not None:
            made.wait(lambda: made.told, time.monotonic() + limit_s)
        return asking.take(taken)
    except FAILED:
        return None
    finally:
        asking.end()
