"""Asks the adapter of a stream's peer whether it lives, where nothing else would tell.

What is under way is asked for by the queue pair itself, whose retries end the connection.  With nothing under
way nothing ends it: so an RDMA WRITE of no bytes is put under way (`Stream.probe`), of which the peer's
program learns nothing.  It is sent

* every ``keepalive_s`` of the settings while a sender has found no room, which the peer is to give;
* as often, whatever happens, where there is no TCP connection, whose end says that the peer has gone;
* every TCP_KEEPIDLE beside TCP where the program has set SO_KEEPALIVE.
"""

from __future__ import annotations

import socket as kernel
import threading
import weakref
from typing import TYPE_CHECKING

from softhca.machine.signals import suppressed
from softhca.sockets.hub import HUB

if TYPE_CHECKING:
    from softhca.machine.kernel_sockets import KernelSocket
    from softhca.sockets.stream import Stream


class Liveness:
    """Of ``stream``; ``tcp`` has its options, ``alone``: it is no connection.  Any thread may call any
    method.  The hub, which runs, keeps the time, and keeps none of this alive.
    """

    def __init__(self, stream: Stream, tcp: KernelSocket, alone: bool) -> None:
        self._stream = stream
        self._tcp = tcp
        self._alone = alone
        self._keepalive_s: float = stream.settings.keepalive_s
        self._lock = threading.Lock()
        self._round = 0
        self._asked = False
        self.set_options()

    def stalled(self) -> None:
        """A send has found no room."""
        with self._lock:
            if self._asked or not self._keepalive_s:
                return
            self._asked = True
        this = weakref.ref(self)

        def look() -> None:
            found = this()
            if found is not None:
                found._asked = False  # first: who finds no room from here on says so again
                if found._ask(not found._stream.writable):
                    found.stalled()

        HUB.after(self._keepalive_s, look)

    def set_options(self) -> None:
        """Options may have changed."""
        with self._lock:
            self._round += 1
            this, number, every_s = weakref.ref(self), self._round, self._every_s()

        def look() -> None:
            found = this()
            if found is not None and found._round == number and found._ask(True):
                HUB.after(every_s, look)

        if every_s:
            HUB.after(every_s, look)

    def _every_s(self) -> float:
        """How often to ask, whatever happens; 0: not at all."""
        if self._alone and self._keepalive_s:
            return self._keepalive_s
        with suppressed(OSError):
            if self._tcp.getsockopt(kernel.SOL_SOCKET, kernel.SO_KEEPALIVE):
                return float(self._tcp.getsockopt(kernel.IPPROTO_TCP, kernel.TCP_KEEPIDLE))
        return 0.0

    def _ask(self, wanted: bool) -> bool:
        """Ask where it is ``wanted``, while the stream lives; whether it was."""
        if not wanted or self._stream.error:
            return False
        self._stream.probe()
        return True
