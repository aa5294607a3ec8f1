"""What a program gets that takes the descriptor of a connection away from its socket (`socket.detach`): a
descriptor that can be read and written, whose bytes two threads carry to and from the stream.

So programs that use ``os.read`` and ``os.write``, or TLS in the descriptor, work, at the price of copies.  An
end is an end, and a reset is one: ECONNRESET where the descriptor still has its number, else an end.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable

from softhca.machine.signals import suppressed
from softhca.sockets.hub import HUB
from softhca.sockets.stream import Stream

_CHUNK_BYTES = 1 << 16


class Relay:
    """Between ``stream`` and the descriptor ``fd``, whose number is kept; ``ended`` is called once both
    directions have ended.  ``known`` lives as long as the relay.  OSError EMFILE, EAGAIN (no thread): then
    both are as they were.
    """

    def __init__(self, stream: Stream, fd: int, ended: Callable[[], object], known: object = None) -> None:
        self._known = known
        self._stream = stream
        self._ended = ended
        self._open = 2
        self._was_reset = False
        self._number = fd
        self._lock = threading.Lock()
        self._begins = threading.Event()
        self._called_off = False
        self._rest = b""
        program, self._own = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.inode = os.fstat(program.fileno()).st_ino
        self._upward = threading.Thread(target=self._carry_up, name="softhca-relay", daemon=True)
        downward = threading.Thread(target=self._carry_down, name="softhca-relay", daemon=True)
        HUB.relays.add(self)
        try:
            self._upward.start()
            downward.start()
            program.setblocking(os.get_blocking(fd))
            os.dup2(program.fileno(), fd, inheritable=os.get_inheritable(fd))
            self._hand_down()
        except (OSError, RuntimeError) as error:
            HUB.relays.discard(self)
            self._called_off = True
            self._own.close()
            raise error if isinstance(error, OSError) else OSError(errno.EAGAIN, str(error)) from None
        finally:
            program.close()  # the program's end is the number's alone: its close is seen here
            self._begins.set()

    def _hand_down(self) -> None:
        """What has arrived is there when the program has the descriptor, as in a kernel's socket: who looks
        whether anything was sent before a handshake, as TLS does, must find it.
        """
        with suppressed(OSError):  # nothing more now; what has failed a thread is told again
            while not self._rest and (data := self._stream.receive_bytes(_CHUNK_BYTES, False)):
                self._rest = data
                self._rest = data[self._own.send(data, socket.MSG_DONTWAIT) :]

    def _carry_up(self) -> None:
        self._begins.wait()
        if self._called_off:
            return
        with suppressed(OSError):
            while (data := self._own.recv(_CHUNK_BYTES)) and not self._was_reset:
                self._stream.send([memoryview(data)], None, True)
        if not self._was_reset:
            with suppressed(OSError):
                self._stream.shutdown(reading=False, writing=True)
            with suppressed(OSError):
                self._own.shutdown(socket.SHUT_RD)  # who writes on gets EPIPE, and does not wait
        self._one_ended()

    def _carry_down(self) -> None:
        self._begins.wait()
        if self._called_off:
            return
        try:
            self._own.sendall(self._rest)
            while data := self._stream.receive_bytes(_CHUNK_BYTES):
                self._own.sendall(data)
        except OSError as error:
            self._was_reset = error.errno == errno.ECONNRESET
        if not (self._was_reset and self._leave_unread()):
            self._was_reset = False
            with suppressed(OSError):
                self._own.shutdown(socket.SHUT_WR)
        self._one_ended()

    def _leave_unread(self) -> bool:
        """Put a byte that nobody will read into the own end: so its close is a reset for the program's end
        (unix(7)).  False where the number is no longer that end's, or takes no more.
        """
        with suppressed(OSError), socket.socket(fileno=os.dup(self._number)) as program:
            if os.fstat(program.fileno()).st_ino == self.inode:
                return program.send(b"\0", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL) == 1
        return False

    def _one_ended(self) -> None:
        with self._lock:
            self._open -= 1
            last = not self._open
        if last:
            if self._was_reset:
                self._leave_unread()  # the first one has ended a wait of the other direction
            self._own.close()
            HUB.relays.discard(self)
            self._ended()

    def abandon(self) -> None:
        """In a forked child, which has the program's end alone: the parent's threads carry on."""
        self._own.close()

    def say_end(self) -> None:
        """The program ends: what it has written is all that goes out."""
        with suppressed(OSError):
            self._own.shutdown(socket.SHUT_RD)

    def wait(self, limit_s: float) -> None:
        """Behind `say_end`: until the stream has taken that."""
        self._upward.join(limit_s)
