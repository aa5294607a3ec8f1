"""The application's end of an adapter process: start it, find it, reach it, notice its death.

A device has one adapter process for all contexts that open it, of whichever processes of this user.  It
listens at a name in the abstract namespace.  That of a device with known addresses is made of these
(`listening_name`): whoever opens the device finds the process by it, or starts it, and it ends with its last
user.  A device whose address is still to be chosen is this process's own, and its forked children's.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import softhca
from softhca.driver.session import PATIENCE_S
from softhca.machine import deferred_signals
from softhca.machine.signals import raised_by_handler, suppressed
from softhca.queues.codec import Values
from softhca.queues.handshake import READY, decode_answer, encode_request
from softhca.runtime import listening_name, messages
from softhca.runtime.specification import DeviceSpecification, resolve

START_LIMIT_S = 60.0
ANSWER_LIMIT_S = 30.0
"""Time limit of a request; after it the adapter process is given up."""

END_LIMIT_S = 10.0
END_STEP_S = 2.0
"""After so long it is asked whether a process that does not end serves others."""

BETWEEN_LOOKS_S = 0.01


class AdapterProcess:
    """The adapter process of one device; ``connect`` starts it when it does not run, unless ``starts`` is
    false.

    ``path`` is the address of its listening socket, ``place`` the IP addresses of its ports.  ``joined``: the
    one that was connected to last had been started by another process.
    """

    def __init__(self, specification: DeviceSpecification, starts: bool = True) -> None:
        self.specification = specification
        self.path = specification.place if specification.kind == "unix" else ""
        self.place = ""
        self.joined = False
        self._starts = starts
        self._child: subprocess.Popen[bytes] | None = None
        self._users: set[socket.socket] = set()
        self._coming_and_going = threading.RLock()

    @property
    def pid(self) -> int:
        """Process number of an adapter process that this process started; 0 for another one."""
        return self._child.pid if self._child is not None else 0

    def connect(self) -> socket.socket:
        """A control socket to the adapter process; give it back with ``release``.

        OSError with the errno of what failed, there or here.
        """
        close_deferred()
        with self._coming_and_going:
            if not self._is_well():
                self._reap()  # it has died; whoever still has a socket to it learns that from the socket
            if self.specification.kind == "unix":
                control = connect_to(self.path, self.specification.name)
                if self.path.startswith("@"):  # which anybody may have taken
                    _check_owner(control, self.path)
            else:
                control = self._connect_or_start()
            self._users.add(control)
            return control

    def _is_well(self) -> bool:
        """Whether the process that was started here seems to run; True also where none was started."""
        return self._child is None or (self._child.poll() is None and all(map(is_alive, self._users)))

    def _connect_or_start(self) -> socket.socket:
        if self._child is not None:
            try:
                return connect_to(self.path, self.specification.name)
            except ConnectionRefusedError:
                self._reap()  # others that it served have gone just now
        self._users.clear()
        self.joined = False
        name = listening_name.name_of(self.specification)
        if not name:
            return self._start(f"@softhca-{os.getpid()}-{secrets.token_hex(8)}")
        until_s = time.monotonic() + START_LIMIT_S
        while time.monotonic() < until_s:
            bound = listening_name.take(name)
            if bound is not None:
                with bound:
                    if self._starts:
                        return self._start(name, bound)
                reason = f"{self.specification.name}: no adapter process at {name}"
                raise OSError(errno.ECONNREFUSED, reason)
            with contextlib.suppress(ConnectionRefusedError):
                return self._join(name)
            with deferred_signals.waiting():
                time.sleep(BETWEEN_LOOKS_S)  # it begins or ends just now
        reason = f"{self.specification.name}: the adapter process at {name} takes nobody"
        raise OSError(errno.ETIMEDOUT, reason)

    def _join(self, name: str) -> socket.socket:
        """A connection to the adapter process that another process has started."""
        control = connect_to(name, self.specification.name)
        _check_owner(control, name)
        self.joined, self.path = True, name
        self.place = "+".join(map(resolve, self.specification.places))
        return control

    def release(self, control: socket.socket, others: int = 0) -> None:
        """Close a control socket; the last one ends the process, which is waited for.

        ``others``: so many that are not ours are attached besides, so that it goes on.
        """
        with self._coming_and_going:
            with suppressed(OSError):
                control.shutdown(socket.SHUT_RDWR)  # a thread that polls it would keep it open
            control.close()
            if control in self._users:
                self._users.remove(control)
                if not self._users and not others:
                    self._reap()
        close_deferred()

    def give_up(self, control: socket.socket, close: Callable[[], object]) -> None:
        """The process does not answer, so it is unknown when it releases what ``control`` attached.

        A process that was started here and has no other user here is killed: others that it serves learn that
        it has ended, and would have waited for it in vain.  Else ``close`` is called when it has
        ended or has closed its end, which it does first when it continues; until then it may write.
        """
        with suppressed(OSError):
            control.shutdown(socket.SHUT_WR)
        _deferred.append((control, close))
        with self._coming_and_going:
            self._users.discard(control)
            if self._child is not None and not self._users:
                self._child.kill()
                self._child.wait()
                self._child = None
        close_deferred()

    def _start(self, path: str, bound: socket.socket | None = None) -> socket.socket:
        """Start it, to listen at ``path``, which ``bound`` has been bound to; a connection to it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.path = path
        root = str(Path(softhca.__file__).parent.parent)
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))
        try:
            command = [sys.executable, "-P", "-m", "softhca.runtime.process_main", str(self.specification),
                       "--attach", str(theirs.fileno()), "--listen", self.path]
            passed = [theirs.fileno()]
            if bound is not None:
                passed.append(bound.fileno())
                command += ["--bound", str(bound.fileno())]
            # A group of its own: signals for the program's are not for the others that it serves.
            # The session is the program's: the kernel may give each session its share of the processors
            # (autogroup), and an adapter that is alone in one was not run for up to a second.
            self._child = subprocess.Popen(command, env=environment, pass_fds=passed, process_group=0,
                                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            theirs.close()
            if bound is not None:
                bound.close()  # the name is the child's alone
            answer, _ = ask(ours, READY, limit_s=START_LIMIT_S)
        except BaseException:
            theirs.close()
            ours.close()
            self._reap()
            raise
        self.place = answer["place"].decode(errors="replace")
        return ours

    def _reap(self) -> None:
        """Wait for the process, whose sockets are closed here; end it when it does not end by itself,
        although it serves nobody else.
        """
        if self._child is None:
            return
        until_s = time.monotonic() + END_LIMIT_S
        while True:
            try:
                with deferred_signals.waiting():
                    self._child.wait(END_STEP_S)
                break
            except subprocess.TimeoutExpired:
                if listening_name.connections(self.path):
                    return  # somebody has come meanwhile
                if time.monotonic() > until_s:
                    self._child.kill()
        self._child = None

    def forget(self) -> None:
        """The process is others' (the parent's, where this is a forked child): neither wait for it nor end
        it.
        """
        if self._child is not None:
            self._child.returncode = 0  # not ours to wait for
            self._child = None
        self._users.clear()
        self._coming_and_going = threading.RLock()  # another thread of the parent may have had it


def _check_owner(control: socket.socket, name: str) -> None:
    """`listening_name.check_owner`; the connection is closed where it fails."""
    try:
        listening_name.check_owner(control, name)
    except BaseException:
        control.close()
        raise


_deferred: list[tuple[socket.socket, Callable[[], object]]] = []


def close_deferred() -> None:
    """Close what adapter processes that had not answered have released by now."""
    for entry in list(_deferred):
        control, close = entry
        if not is_alive(control):
            with contextlib.suppress(ValueError):  # another thread has closed it
                _deferred.remove(entry)
                control.close()
                close()


def connect_to(path: str, name: str) -> socket.socket:
    """A connection to the adapter process at ``path``; OSError that names the device ``name``."""
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        # A process that does not accept has a queue that is full one day.
        control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(ANSWER_LIMIT_S), 0))
        with deferred_signals.waiting():
            control.connect("\0" + path[1:] if path.startswith("@") else path)
    except BaseException as error:
        control.close()
        if not isinstance(error, OSError) or raised_by_handler(error):
            raise
        raise OSError(error.errno, f"{name}: no adapter process at {path}: {error.strerror}") from None
    return control


def ask(
    control: socket.socket,
    message: int,
    values: Mapping[str, Any] | None = None,
    descriptors: tuple[int, ...] = (),
    limit_s: float = 0.0,
    unread: list[int] | None = None,
) -> tuple[Values, list[int]]:
    """Send a request of ``queues.handshake`` (READY: just wait for it) and give the answer's fields and the
    descriptors passed with it, which become the caller's; OSError where it is a refusal.

    ECONNRESET when the adapter process ends instead of answering.  ETIMEDOUT when it does nothing for
    ``limit_s`` (0: ``ANSWER_LIMIT_S``); the socket cannot be used any more then, because a late answer would
    be taken for that of a later request.  EPROTONOSUPPORT where the two have different versions of the host
    interface.

    ``unread``, of the socket, is how many answers nobody has read, because a signal handler has ended the
    wait for them: they come first, and are dropped.
    """
    unread = [0] if unread is None else unread
    received = None
    try:
        control.settimeout(limit_s or ANSWER_LIMIT_S)
        if message != READY:
            # What it sent before it closed its end can still be read.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                messages.send_packet(control, encode_request(message, values or {}), descriptors)
        unread[0] += 1
        while (received := _receive_answer(control)) is not None:
            unread[0] -= 1
            if not unread[0]:
                break
            messages.close_all(received[1])
    except TimeoutError as error:
        if raised_by_handler(error):
            raise
        raise OSError(errno.ETIMEDOUT, "the adapter process does not answer") from None
    if received is None:
        raise OSError(errno.ECONNRESET, "the adapter process has ended")
    data, passed = received
    try:
        return decode_answer(message, data), passed
    except OSError:
        messages.close_all(passed)
        raise


def _receive_answer(control: socket.socket) -> tuple[bytes, list[int]] | None:
    """The next answer with its descriptors; None when the adapter process has ended.  TimeoutError."""
    _await_answer(control)
    try:
        return messages.receive_packet(control)
    except ConnectionResetError:  # reported once, before the data that can still be read
        with contextlib.suppress(ConnectionResetError):
            return messages.receive_packet(control)
        return None


def _await_answer(control: socket.socket) -> None:
    """Wait for an answer, or the end, as long as the socket does: where signals are deferred they come
    through once it has taken some time.  TimeoutError.
    """
    if deferred_signals.within() and not _is_answered(control, PATIENCE_S):
        with deferred_signals.waiting():
            if not _is_answered(control, control.gettimeout() or ANSWER_LIMIT_S):
                raise TimeoutError


def _is_answered(control: socket.socket, limit_s: float) -> bool:
    """Whether there is something to receive, or the end, within ``limit_s``."""
    poll = select.poll()
    poll.register(control.fileno(), select.POLLIN)
    return bool(poll.poll(limit_s * 1000))


def is_alive(control: socket.socket) -> bool:
    """Whether the adapter process still holds its end of a control socket; does not block."""
    with suppressed(OSError, ValueError):
        poll = select.poll()
        poll.register(control.fileno(), select.POLLHUP)
        return not poll.poll(0)
    return False
