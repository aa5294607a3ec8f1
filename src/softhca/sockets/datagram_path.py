"""What runs for each datagram of a socket: taking what has come, waiting, receiving, sending.

Compiled, this is an extension class, whose state is found without dictionaries; `DatagramEnd` adds how peers
are found and believed, the kernel's socket, and the end.  Each method says whether it is called with the
socket's lock held.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, TypeVar

import cython

from softhca.machine import deferred_signals
from softhca.machine.processor import Readable
from softhca.sockets.datagram_credits import SendCredit
from softhca.sockets.datagram_port_path import FAILED, DatagramPortPath
from softhca.sockets.datagram_protocol import LARGEST_BYTES, cut
from softhca.sockets.waiting import READABLE, Waiting

if TYPE_CHECKING:
    from softhca.sockets.datagram_port import DatagramPort, PeerPath
    from softhca.sockets.datagram_room import PeerRoom
    from softhca.sockets.datagram_state import Datagram
    from softhca.sockets.readiness import Readiness

Result = TypeVar("Result")

POLL_NS = 400_000
"""A call polls in vain for so long at the most: a peer that sleeps answers after 200 to 300 µs, half of that
to wake up, and while both sleep neither learns that polls are worth their time."""

_NO_CREDIT = cython.declare(cython.int, -2)


class DatagramPath(Waiting):
    """The state of an end, all of it `DatagramEnd`'s.

    ``_several``: it has several devices.  ``_kernel_ready``: the kernel has had something; ``_kernel_first``:
    it is its turn then.  ``_kernel_has``: whether it has something now.
    """

    ports: list[DatagramPort]
    closed: bool
    polled: bool
    readiness: Readiness
    _most_bytes: int
    _several: bool
    _kernel_ready: bool
    _kernel_first: bool
    _kernel_has: Readable
    _room: PeerRoom
    # Of `DatagramEnd`:
    _settle: Callable[[DatagramPort], object]
    _lacks_room: Callable[[], bool]
    _look_at_kernel: Callable[[], object]

    def _begin_path(self, version: int, descriptor: int) -> None:
        """Of a new end for datagrams of an IP version, with the kernel's socket, whose ports come later."""
        self._begin_waiting(POLL_NS)
        self._most_bytes = LARGEST_BYTES[version]
        self._kernel_has = Readable(descriptor)
        self.ports = []
        self.closed = self.polled = False
        self._several = self._kernel_ready = self._kernel_first = False

    def _drive(self, ports: Sequence[DatagramPort]) -> None:
        """A wait drives the devices of these ports."""
        drivers = list(dict.fromkeys([port.driver for port in ports]))
        channels = [driver.session.channel for driver in drivers]
        self._several = len(drivers) > 1
        self._calls = list(dict.fromkeys([port.completion_thread.polling for port in ports]))
        self._polls = bool(channels) and all([each.shares_addresses for each in channels])
        if len(channels) == 1:
            self._progress = channels[0].look
        else:
            self._progress = lambda: any([each.look() for each in channels])

    # what has come

    def _pump(self) -> None:
        """With the lock: take what has come."""
        port: DatagramPortPath
        self._pumping = True
        try:
            for port in self.ports:
                port.pump()
                if port.failed or port.state.unsettled():
                    self._settle(port)
        finally:
            self._pumping = False

    def _has_news(self) -> bool:
        """Whether a completion waits."""
        port: DatagramPortPath
        for port in self.ports:  # noqa: SIM110, a generator costs more than this
            if port.waits():
                return True
        return False

    def _on_event(self) -> None:
        self._news = True
        self._serve()

    def _serve(self) -> None:
        """Answer what `_on_event` has left, unless somebody has the lock, who then does."""
        while self._news and self._lock.acquire(blocking=False):
            try:
                if not self._news or self.closed:
                    self._news = False
                    continue
                self._news = False
                for port in self.ports:
                    port.arm()
                self._pump()
                self._changed()
                if self._several:  # who waits may do so at another device
                    self._missed = True
            finally:
                self.unlock()

    def _is_due(self) -> bool:
        return self._news

    def _is_over(self) -> bool:
        return self.closed

    def _changed(self) -> None:
        """With the lock: show the descriptor's readers what the socket is."""
        if self.polled and not self.closed and self.readiness.set(self._may_receive(), self._may_send()):
            for port in self.ports:
                port.completion_thread.hand_over()

    # readiness

    def _may_receive(self) -> bool:
        port: DatagramPortPath
        if self._kernel_ready or self.closed:
            return True
        for port in self.ports:  # noqa: SIM110
            if port.state.queue:
                return True
        return False

    def _may_send(self) -> bool:
        port: DatagramPortPath
        for port in self.ports:
            if not port.has_room():
                return False
        return not self._lacks_room()

    # receiving

    def receive(
        self,
        take: Callable[[DatagramPort, Datagram], Result],
        by_kernel: Callable[[], Result],
        deadline_s: float | None,
        blocking: bool,
        peek: bool = False,
    ) -> Result:
        """What ``take`` makes of the next datagram, or ``by_kernel`` of the kernel's next; they take turns
        where both have some.

        BlockingIOError (not blocking), TimeoutError, what the kernel says.
        """
        looked: cython.bint = False
        first: cython.bint
        found: list[Result]
        while True:
            first = self._kernel_ready and self._kernel_first
            found = self._by_kernel(by_kernel) if first else self._taken(take, peek)
            if found:
                self._kernel_first = not first
                return found[0]
            found = self._taken(take, peek) if first else self._by_kernel(by_kernel)
            if found:
                self._kernel_first = first
                return found[0]
            if self.closed:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            if not blocking:
                if looked:
                    raise BlockingIOError(errno.EAGAIN, "no completion event, data not arrived")
                looked = True
                with contextlib.suppress(*FAILED):  # without an adapter there is the kernel's queue still
                    self._progress()
            elif not self.wait(READABLE, deadline_s):
                raise TimeoutError("timed out")

    def _taken(self, take: Callable[[DatagramPort, Datagram], Result], peek: bool) -> list[Result]:
        port: DatagramPortPath
        self._lock.acquire()
        try:
            if self.closed:
                return []
            if self._has_news():
                self._pump()
            for port in self.ports:
                if port.state.queue:
                    deferred_signals.begin()  # it is taken whole: its room is given back once
                    try:
                        result = take(port, port.state.queue[0])
                        if not peek:
                            port.state.queue.popleft()
                    finally:
                        deferred_signals.end()
                    self._pump()
                    self._changed()
                    return [result]
            return []
        finally:
            self.leave_lock()

    def _by_kernel(self, by_kernel: Callable[[], Result]) -> list[Result]:
        try:
            # the call would let the interpreter's lock go
            return [by_kernel()] if self._kernel_has.now() else []
        except BlockingIOError:
            return []
        finally:
            if self._kernel_ready:
                self._look_at_kernel()

    # sending

    def send(self, way: PeerPath, view: memoryview, deadline_s: float | None, blocking: bool) -> None:
        """Send one datagram that way; whoever may change its memory afterwards is waited for."""
        total: cython.longlong = view.nbytes
        waited: cython.bint = False
        number: cython.longlong
        port: DatagramPortPath = way.port
        if total > self._most_bytes:
            raise OSError(errno.EMSGSIZE, "Message too long")
        messages: cython.longlong = cut(total, way.mtu)[0] + 1
        while True:
            number = self._send(way, view, blocking, 0 if waited else messages)
            if number >= 0:
                break
            if number == _NO_CREDIT:
                if not self._room.at(way, messages, deadline_s, blocking):
                    raise BlockingIOError(errno.EAGAIN, "the peer has no room")
                waited = True
                continue
            if not blocking:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            if not self.wait(partial(self._has_room_at, port), deadline_s):
                raise TimeoutError("timed out")
        if number and port.retired < number:
            self.wait(partial(self._is_retired, port, number), None)

    def _send(self, way: PeerPath, view: memoryview, blocking: bool, messages: int) -> int:
        """`DatagramPort.send` where the peer has room for so many messages; −2: it has not.  0, and nothing
        is sent, where the way has ended just now: a datagram may be lost.
        """
        port: DatagramPortPath = way.port
        credit: SendCredit = way.credit
        number: cython.longlong = 0
        self._lock.acquire()
        try:
            if self._has_news():
                self._pump()
            if self.closed:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            if port.failed or way.closed:
                return 0
            if messages and not credit.may_send(messages, monotonic_ns()):
                return _NO_CREDIT
            try:
                number = port.send(way, view, blocking)
            except FAILED:  # the adapter has gone just now
                return 0
            self._changed()
        finally:
            self.leave_lock()
        return number

    def _has_room_at(self, port: DatagramPortPath) -> bool:
        return port.failed or port.has_room()

    def _is_retired(self, port: DatagramPortPath, number: int) -> bool:
        return port.failed or port.retired >= number
