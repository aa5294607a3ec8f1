"""The side that is asked: streams that are ready before the TCP connection that they belong to is accepted.

A request names the TCP addresses of the connection to be made.  It is answered by the hub's thread, without
the application, as a kernel answers; `Served.claim` gives the stream to whoever accepts that TCP connection.
A stream that nobody claims within `UNCLAIMED_S` is given up when the next request comes, or by the hub soon
after, one whose peer was gone before it used it at once; there are `MOST` at most of one listening socket.

Only where this process alone can accept a TCP connection is its port served: not with SO_REUSEPORT, not where
another process has the listening socket, too, and not after a fork.
"""

from __future__ import annotations

import contextlib
import os
import socket as kernel
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from softhca.driver.errors import DriverError
from softhca.driver.rdmacm.addresses import of_gid
from softhca.machine.kernel_sockets import KernelSocket
from softhca.machine.signals import suppressed
from softhca.sockets import devices, port_lookup, requests
from softhca.sockets.connecting import any_like, is_here, mapped
from softhca.sockets.hub import HUB, before_fork
from softhca.sockets.port_lookup import PortAdvertisement
from softhca.sockets.protocol import Offer, ProtocolError, addresses_of
from softhca.sockets.settings import Settings
from softhca.sockets.stream import Stream
from softhca.verbs.cmid import CMID, CMEvent, CMEventChannel, ConnParam
from softhca.verbs.pyverbs_error import PyverbsError

MOST = 256
UNCLAIMED_S = 30.0
BEGIN_S = 1.0
"""So long who asks a socket that is about to listen waits at most for that.  The hub goes on meanwhile."""
OPENED_S = 0.25
"""So long who accepts a TCP connection waits at most for the word that its stream is used: longer than a
packet takes that is lost and sent again.
"""

Key = tuple[bytes, int]

_served: dict[int, Served] = {}
"""By the inode of the listening socket: a duplicate of the descriptor accepts the same connections."""


def serve(listening: KernelSocket, settings: Settings) -> Served | None:
    """Serve what ``listening``, which is bound and is to listen, has the port of by RDMA, too, until the last
    user leaves; None where that cannot be.  Nobody is promised anything before `Served.begin`.
    """
    inode, port, addresses = _place(listening)
    with requests.LOCK:
        found = _served.get(inode)
        if found is not None:
            return found.join()
        with suppressed(*requests.FAILED):
            if not listening.getsockopt(kernel.SOL_SOCKET, kernel.SO_REUSEPORT):
                return Served(inode, port, addresses, settings)
    return None


def serving(listening: KernelSocket) -> Served | None:
    """What serves ``listening``, a duplicate of a listening socket, with one user more; None: nothing."""
    if not _served:
        return None
    with requests.LOCK:
        found = _served.get(os.fstat(KernelSocket.fileno(listening)).st_ino)
        return None if found is None else found.join()


def end_elsewhere(listening: KernelSocket) -> None:
    """This process accepts at ``listening``, and by TCP alone: no other may say that it is served."""
    with contextlib.suppress(OSError, ValueError):
        _, port, addresses = _place(listening)
        for each in addresses:
            port_lookup.end_elsewhere(port, each)


def _place(listening: KernelSocket) -> tuple[int, int, list[bytes]]:
    """Inode, port number, and the addresses by which others find it."""
    host, port = listening.getsockname()[:2]
    addresses = [mapped(host)]
    if host == "::" and not listening.getsockopt(kernel.IPPROTO_IPV6, kernel.IPV6_V6ONLY):
        addresses.append(any_like(mapped("0.0.0.0")))
    return os.fstat(KernelSocket.fileno(listening)).st_ino, port, addresses


class Served:
    """What one listening TCP socket is, with its duplicates: ``addresses`` it serves at ``port``, and streams
    that wait to be claimed.  PyverbsError, DriverError, OSError where that cannot be.
    """

    alone = False

    def __init__(self, inode: int, port: int, addresses: list[bytes], settings: Settings) -> None:
        self.settings = settings
        self.addresses = addresses
        self._inode = inode
        self._users = 1
        self._lock = threading.RLock()
        self._ready: dict[Key, tuple[float, Stream]] = {}
        self._begun = self._looks = False
        self._early: list[Callable[[], object]] = []
        self._advertisements: list[PortAdvertisement] = []
        self.closed = False
        with requests.LOCK:
            self._listener = requests.listener_of(Listener, port)
            self._listener.join(self)
            try:
                for each in addresses:
                    advertisement = PortAdvertisement(port, each, self._listener.gids, self.close)
                    self._advertisements.append(advertisement)
            except BaseException:
                self.close()
                raise
            _served[inode] = self
            before_fork.append(self.close)

    def join(self) -> Served:
        """One user more."""
        with requests.LOCK:
            self._users += 1
        return self

    def leave(self) -> None:
        """One user less; the last one ends it."""
        with requests.LOCK:
            self._users -= 1
            if not self._users:
                self.close()

    def begin(self) -> None:
        """The kernel listens."""
        with self._lock:
            self._begun = True
        self._go_on()

    def listens(self) -> bool:
        """Whether the kernel listens.  Peers find the port before it does, so that none comes too early."""
        return self._begun and not self.closed

    def when_it_listens(self, then: Callable[[], object]) -> None:
        """Have the hub call ``then`` once the kernel listens, or that is waited for no longer.
        `ProtocolError`: too many wait.
        """
        with self._lock:
            if len(self._early) >= MOST:
                raise ProtocolError("too many ask before the kernel listens")
            self._early.append(then)
            if not self._begun and not self.closed:
                HUB.after(BEGIN_S, self._go_on)
                return
        self._go_on()

    def _go_on(self) -> None:
        with self._lock:
            early, self._early = self._early, []
        for then in early:
            HUB.soon(then)

    def serves(self, address: bytes) -> bool:
        """Whether TCP connections to ``address`` come here."""
        return address in self.addresses or any_like(address) in self.addresses

    def add(self, key: Key, stream: Stream, _: bytes) -> None:
        """``stream`` waits for the TCP connection from ``key``.  `ProtocolError`: that is not possible."""
        with self._lock:
            given_up = self._take_old()
            if key in self._ready and self._ready[key][1].error:
                given_up.append(self._ready.pop(key)[1])
            full = self.closed or len(self._ready) >= MOST or key in self._ready
            if not full:
                self._ready[key] = time.monotonic(), stream
                self._look_later()
        for each in given_up:
            each.refuse()
        if full:
            raise ProtocolError("too many streams wait to be accepted, or one from there")

    def _take_old(self) -> list[Stream]:
        """With the lock: those that nobody has claimed, or whose peer was gone before it used them."""
        limit = time.monotonic() - UNCLAIMED_S
        old = [
            each
            for each, (since, stream) in self._ready.items()
            if since < limit or (stream.error and not stream.opened)
        ]
        return [self._ready.pop(each)[1] for each in old]

    def _look_later(self) -> None:
        """With the lock: have the hub give up what is old by then, while there is anything."""
        if self._ready and not self._looks:
            self._looks = True
            HUB.after(UNCLAIMED_S, partial(_look, weakref.ref(self)))

    def give_up_old(self) -> None:
        """The hub: no request may follow, which would."""
        with self._lock:
            self._looks = False
            given_up = self._take_old()
            self._look_later()
        for each in given_up:
            each.refuse()

    def claim(self, host: bytes, port: int) -> Stream | None:
        """The stream that belongs to the TCP connection from there; None: it has none.

        Who asks connects by TCP once its `CREDIT` has been acknowledged.  One who has not said it by now had
        given up waiting for the answer, and its connection is TCP's.
        """
        if self.closed:
            return None
        with self._lock:
            found = self._ready.pop((host, port), None)
        if found is None:
            return None
        stream = found[1]
        if not stream.opened:
            stream.wait(lambda: stream.opened, time.monotonic() + OPENED_S)
        if stream.opened:
            return stream
        stream.refuse()
        return None

    def take_back(self, host: bytes, port: int) -> None:
        """That could not be answered: forget it."""
        with self._lock:
            self._ready.pop((host, port), None)

    def close(self) -> None:
        """Serve no more; what nobody has claimed is given up.  May be called again."""
        if self.closed:  # in a forked child nobody frees the locks that other threads had
            return
        with requests.LOCK:
            with self._lock:
                if self.closed:
                    return
                self.closed = True
                waiting = [stream for _, stream in self._ready.values()]
                self._ready.clear()
            _served.pop(self._inode, None)
            with contextlib.suppress(ValueError):
                before_fork.remove(self.close)
            for sign in self._advertisements:
                sign.close()
            self._listener.leave(self)
        self._go_on()
        for stream in waiting:
            stream.refuse()


def _look(served: weakref.ref[Served]) -> None:
    found = served()
    if found is not None:
        found.give_up_old()


class Listener(requests.RequestListener):
    """Takes requests for streams to a port, for the sockets in ``served``."""

    def requested(self, cmid: CMID, event: CMEvent) -> None:
        """Make a stream, for whoever accepts its TCP connection."""
        self._answer(cmid, event, True)

    def _again(self, cmid: CMID, event: CMEvent) -> None:
        try:
            self._answer(cmid, event, False)
        except BaseException:
            with suppressed(*requests.FAILED):
                cmid.close()
            raise

    def _answer(self, cmid: CMID, event: CMEvent, may_wait: bool) -> None:
        stream: Stream | None = None
        served: Any = None
        key = b"", 0
        try:
            peer = Offer.decode(event.private_data)
            host, towards = addresses_of(event.private_data)
            _check_host(cmid, host)
            served = self.find(towards)
            if served is None or served.alone != peer.alone:
                raise ProtocolError("nobody listens at that address in that way")
            if not served.listens():
                if served.closed or not may_wait:
                    raise ProtocolError("nobody listens at that address yet")
                served.when_it_listens(partial(self._again, cmid, event))
                return
            devices.keep(cmid)
            stream = Stream(cmid, served.settings)
            answer = stream.offer().encode()
            parameters = ConnParam(resources=1, depth=1, retry=7, rnr_retry=7, data_len=len(answer))
            parameters.set_private_data(answer)
            stream.begin(peer)
            channel = CMEventChannel()
            cmid.migrate(channel)
            stream.follow(channel)
            served.add((host, peer.port), stream, towards)
            key = host, peer.port
            cmid.accept(parameters)
        except (PyverbsError, DriverError, ProtocolError, OSError):
            if served is not None and key[1]:
                served.take_back(*key)
            with contextlib.suppress(PyverbsError, DriverError):
                cmid.reject()
            if stream is not None:
                stream.destroy()
            else:
                cmid.close()


def _check_host(cmid: CMID, host: bytes) -> None:
    """`ProtocolError` where who asks is not at the TCP address that it names: nobody gets another one's
    connection.
    """
    path = cmid._identifier.connection.path
    assert path is not None
    if path.gid != host and not (is_here(of_gid(path.gid).host) and is_here(of_gid(host).host)):
        raise ProtocolError("another host's TCP address")


def _after_fork() -> None:
    """In a forked child: nothing is served."""
    _served.clear()


os.register_at_fork(after_in_child=_after_fork)
