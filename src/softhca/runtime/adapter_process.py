"""The application's end of an adapter process: start it, reach it, notice its death.

A device has one adapter process for all contexts of this process that open it; it also listens on a socket
in the abstract namespace (``@softhca-…``), so that others can attach to the same adapter with
``SOFTHCA_DEVICES=name=unix:@softhca-…``: a forked child does so by itself.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import select
import socket
import subprocess
import sys
from pathlib import Path

import softhca
from softhca.runtime import messages
from softhca.runtime.specification import DeviceSpecification

START_LIMIT_S = 60.0
END_LIMIT_S = 10.0


class AdapterProcess:
    """The adapter process of one device; ``connect`` starts it when it does not run.

    ``path`` is the address of its listening socket, ``place`` the IP address of its port (if started here).
    """

    def __init__(self, specification: DeviceSpecification) -> None:
        self.specification = specification
        self.path = specification.place if specification.kind == "unix" else ""
        self.place = ""
        self._child: subprocess.Popen[bytes] | None = None
        self._users: set[socket.socket] = set()

    @property
    def pid(self) -> int:
        """Process number of an adapter process that this process started; 0 for another one."""
        return self._child.pid if self._child is not None else 0

    def connect(self) -> socket.socket:
        """A control socket to the adapter process; give it back with ``release``.

        OSError with the errno of what failed, there or here.
        """
        if self._child is not None and not all(map(is_alive, self._users)):
            self._reap()  # it has died; whoever still has a socket to it learns that from the socket
        if self.specification.kind == "unix" or self._child is not None:
            control = connect_to(self.path, self.specification.name)
        else:
            self._users.clear()
            control = self._start()
        self._users.add(control)
        return control

    def release(self, control: socket.socket) -> None:
        """Close a control socket; the last one ends the process, which is waited for."""
        with contextlib.suppress(OSError):
            control.shutdown(socket.SHUT_RDWR)  # a thread that polls it would keep it open
        control.close()
        if control in self._users:
            self._users.remove(control)
            if not self._users:
                self._reap()

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.path = f"@softhca-{os.getpid()}-{secrets.token_hex(8)}"
        command = [sys.executable, "-P", "-m", "softhca.runtime.process_main", str(self.specification),
                   "--attach", str(theirs.fileno()), "--listen", self.path]
        root = str(Path(softhca.__file__).parent.parent)
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))
        try:
            self._child = subprocess.Popen(command, env=environment, pass_fds=(theirs.fileno(),),
                                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            theirs.close()
            ours.settimeout(START_LIMIT_S)
            answer = ask(ours)
            ours.settimeout(None)
        except BaseException:
            theirs.close()
            ours.close()
            self._reap()
            raise
        self.place = answer.get("place", "")
        return ours

    def _reap(self) -> None:
        """Wait for the process, whose sockets are closed here; end it when it does not end by itself."""
        if self._child is None:
            return
        child, self._child = self._child, None
        try:
            child.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def forget(self) -> None:
        """The process is the parent's (this is a forked child): neither wait for it nor end it."""
        if self._child is not None:
            self._child.returncode = 0  # not ours to wait for
            self._child = None
        self._users.clear()


def connect_to(path: str, name: str) -> socket.socket:
    """A connection to the adapter process at ``path``; OSError that names the device ``name``."""
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        control.connect("\0" + path[1:] if path.startswith("@") else path)
    except OSError as error:
        control.close()
        raise OSError(error.errno, f"{name}: no adapter process at {path}: {error.strerror}") from None
    return control


def ask(control: socket.socket, message: messages.Message | None = None,
        descriptors: tuple[int, ...] = ()) -> messages.Message:
    """Send a request (or just wait for the first word) and give the reply; OSError where it is a refusal.

    ECONNRESET when the adapter process ends instead of answering.
    """
    try:
        if message is not None:
            messages.send(control, message, descriptors)
        received = messages.receive(control)
    except (BrokenPipeError, ConnectionResetError):
        received = None
    except TimeoutError:
        raise OSError(errno.ETIMEDOUT, "the adapter process does not answer") from None
    if received is None:
        raise OSError(errno.ECONNRESET, "the adapter process has ended")
    reply, passed = received
    messages.close_all(passed)
    if "error" in reply:
        raise OSError(int(reply["error"]), str(reply.get("message", "")))
    return reply


def is_alive(control: socket.socket) -> bool:
    """Whether the adapter process still holds its end of a control socket; does not block."""
    with contextlib.suppress(OSError, ValueError):
        poll = select.poll()
        poll.register(control.fileno(), select.POLLHUP)
        return not poll.poll(0)
    return False
