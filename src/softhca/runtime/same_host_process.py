"""The process at the other end of a Unix socket: whether it has ended, and whether it may be in a call.

A socket is held by every process that has inherited it, so that it does not hang up while a child lives that
was forked without notice.  A pidfd is the process's own; where there is none (another PID namespace, no
descriptor to spare) the socket has to do.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from softhca.machine.processor import Readable
from softhca.runtime import messages

SO_PEERPIDFD = 77
_MAY_RUN = b"RD"  # proc(5): running or able to, waiting inside of a call


def holds(channel: socket.socket) -> bool:
    """Whether somebody still holds the other end of a channel."""
    try:
        return channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


class PeerProcess:
    """Who made the other end of ``channel``.  ``pid`` 0: of another PID namespace.  ``descriptor`` is
    readable when the process has ended; −1 where there is none, or it is this process, or ``spare`` says of
    it that the program had better have it."""

    def __init__(self, channel: socket.socket, spare: object = None) -> None:
        self._channel = channel
        self.pid = messages.peer_of(channel)[0]
        self.descriptor = -1
        if self.pid > 0 and self.pid != os.getpid():
            self.descriptor = _open(channel, self.pid)
            if self.descriptor >= 0 and callable(spare) and not spare(self.descriptor):
                self.close()
        self._ended = Readable(self.descriptor)

    def has_ended(self) -> bool:
        """Whether the process does not run any more."""
        return self._ended() if self.descriptor >= 0 else not holds(self._channel)

    def may_be_in_call(self, thread: int) -> bool:
        """Whether its thread of that number may be within a system call that does not wait for anything.

        One that is stopped, or sleeps, is not: signals and debuggers stop a thread only outside of calls.
        Threads of this process do not stop, so they are said to be.
        """
        if self.pid == os.getpid():
            return True
        try:
            return _may_run(f"/proc/{self.pid}/task/{thread}/stat")
        except OSError:
            return self._may_any_run()

    def _may_any_run(self) -> bool:
        """The number of the thread is not of this PID namespace: whether any thread may be in a call."""
        try:
            threads = os.listdir(f"/proc/{self.pid}/task")
        except OSError:
            return not self.has_ended()
        for thread in threads:
            try:
                if _may_run(f"/proc/{self.pid}/task/{thread}/stat"):
                    return True
            except OSError:
                continue
        return False

    def close(self) -> None:
        """Let the descriptor go; may be called again."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _open(channel: socket.socket, pid: int) -> int:
    """A pidfd of the other side's process, −1 where there is none to be had."""
    try:
        descriptor = channel.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
        os.set_inheritable(descriptor, False)
        return descriptor
    except OSError:
        pass
    try:
        return os.pidfd_open(pid) if sys.platform == "linux" and holds(channel) else -1
    except OSError:
        return -1


def _may_run(path: str) -> bool:
    """Whether a thread's state, in its ``stat`` file, is one of a thread that may be in a call."""
    line = Path(path).read_bytes()
    return line[line.rindex(b")") + 2] in _MAY_RUN
