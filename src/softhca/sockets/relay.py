"""What a program gets that takes the descriptor of a connection away from its socket (`socket.detach`): a
descriptor that can be read and written, whose bytes two threads carry to and from the stream.

So programs that use ``os.read`` and ``os.write``, or TLS in the descriptor, work, at the price of copies.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable

from softhca.sockets.hub import HUB
from softhca.sockets.stream import Stream

_CHUNK_BYTES = 1 << 16


class Relay:
    """Between ``stream`` and the descriptor ``fd``, whose number is kept; ``ended`` is called once both
    directions have ended.  ``known`` lives as long as the relay.  OSError EMFILE, EAGAIN (no thread).
    """

    def __init__(self, stream: Stream, fd: int, ended: Callable[[], object], known: object = None) -> None:
        self._known = known
        self._stream = stream
        self._ended = ended
        self._open = 2
        self._lock = threading.Lock()
        self._program, self._own = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._program.setblocking(os.get_blocking(fd))
        os.dup2(self._program.fileno(), fd, inheritable=os.get_inheritable(fd))
        self.inode = os.fstat(fd).st_ino
        # The program's end is the number's alone: its close is seen here.
        self._program.close()
        self._upward = threading.Thread(target=self._carry_up, name="softhca-relay", daemon=True)
        downward = threading.Thread(target=self._carry_down, name="softhca-relay", daemon=True)
        HUB.relays.add(self)
        try:
            self._upward.start()
            downward.start()
        except RuntimeError as error:
            HUB.relays.discard(self)
            with contextlib.suppress(OSError):  # the thread that has started ends with it
                self._own.shutdown(socket.SHUT_RDWR)
            self._own.close()
            raise OSError(11, str(error)) from None

    def _carry_up(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._own.recv(_CHUNK_BYTES):
                self._stream.send([memoryview(data)], None, True)
        with contextlib.suppress(OSError):
            self._stream.shutdown(reading=False, writing=True)
        with contextlib.suppress(OSError):
            self._own.shutdown(socket.SHUT_RD)  # who writes on gets EPIPE, and does not wait
        self._one_ended()

    def _carry_down(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._stream.receive_bytes(_CHUNK_BYTES):
                self._own.sendall(data)
        with contextlib.suppress(OSError):
            self._own.shutdown(socket.SHUT_WR)
        self._one_ended()

    def _one_ended(self) -> None:
        with self._lock:
            self._open -= 1
            last = not self._open
        if last:
            self._own.close()
            HUB.relays.discard(self)
            self._ended()

    def finish(self, limit_s: float) -> None:
        """The program ends: what it has written goes out first."""
        with contextlib.suppress(OSError):
            self._own.shutdown(socket.SHUT_RD)
        self._upward.join(limit_s)
