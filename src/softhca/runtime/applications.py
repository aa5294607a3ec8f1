"""What an adapter serves applications by, wherever it runs: their control sockets, wake sockets and event
channels.

An application connects, attaches with its memory, and works by rings in that memory; `Applications` keeps
what belongs to each, answers its requests, and frees everything that it owned when it leaves.  In a process
of its own `server.AdapterServer` gives the turns; where the adapter is embedded, `clients.Clients` does it
beside the program's own hosts.

No application can make the process block.  Both sides wake each other by a `WakeSocket` and use
``MSG_DONTWAIT``; a descriptor that an application passes is a memfd, or is closed.

An application is identified by its control socket: when that ends, everything that it owned is freed.  Its
memory outside the shared memory is accessed by its PID, which the kernel may reuse once the process has
ended.  So a pidfd of each application is held, and polled before every turn.  The PID is used only if the
application's probe was found in that process while it was alive.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
from collections.abc import Sequence
from io import FileIO
from typing import TYPE_CHECKING

from softhca.adapter import device_memory
from softhca.queues.codec import Values
from softhca.queues.handshake import (
    ATTACH,
    CHANNEL,
    DESCRIPTOR,
    DETACH,
    MEMORY,
    HostFrames,
    Request,
    decode_request,
    encode_answer,
    encode_refusal,
    frames_of,
)
from softhca.runtime import messages
from softhca.runtime.application import (
    Application,
    ApplicationSide,
    check_memfd,
    map_memory,
    probe,
)
from softhca.runtime.assembly import counts
from softhca.runtime.clock import now_ns
from softhca.runtime.event_channels import EventChannels
from softhca.runtime.listener import Listener, refuse
from softhca.runtime.wake_socket import WakeSocket

if TYPE_CHECKING:
    from softhca.adapter.engine import Adapter
    from softhca.runtime.loop import EngineLoop

Passed = WakeSocket | FileIO
"""What goes with an answer, and is closed here."""

MAX_APPLICATIONS = 256
MAX_PASSED = 16
ACCEPT_RETRY_NS = 100_000_000
"""How long no connection is accepted when the process has no descriptor left even to refuse one."""


class Applications:
    """Serves ``adapter``, which ``loop`` drives, to the applications that connect to ``path`` (empty: to
    nobody).

    ``bound``: a socket that has the name ``path`` already.  All calls come from the thread that gives the
    loop its turns.  ``sleeps`` counts how often that one has slept.  OSError where it cannot listen.
    """

    def __init__(
        self, adapter: Adapter, loop: EngineLoop, path: str = "", bound: socket.socket | None = None
    ) -> None:
        self.adapter = adapter
        self.loop = loop
        self.path = path
        self.sleeps = 0
        self._applications: dict[int, Application] = {}
        self._wake_sockets: dict[int, Application] = {}
        self._hosts: dict[int, WakeSocket] = {}
        self._accept_after_ns = 0
        self._listener: Listener | None = None
        with contextlib.ExitStack() as undo:
            if path:
                self._listener = Listener(path, bound)
                undo.callback(self._listener.close)
            self._pidfds = undo.enter_context(select.epoll())
            self._epoll = undo.enter_context(select.epoll())
            self._channels = EventChannels(self._epoll)
            if self._listener is not None:
                self._epoll.register(self._listener.fileno(), select.EPOLLIN)
            undo.pop_all()

    def _admit(self, control: socket.socket) -> None:
        if len(self._applications) >= MAX_APPLICATIONS:
            refuse(control, errno.EUSERS, f"the adapter process serves {MAX_APPLICATIONS} applications")
            return
        pid, _ = messages.peer_of(control)
        application = Application(control, pid)
        if pid <= 0:
            # As process 0 the application would be taken for a host inside this very process.
            application.refusal = OSError(
                errno.EPERM, "the application is in another PID namespace than the adapter process"
            )
        else:
            try:
                application.pidfd = os.pidfd_open(pid)
            except OSError as error:
                reason = f"process {pid} of the application: {error.strerror}"
                application.refusal = OSError(error.errno, reason)
        try:
            if application.pidfd >= 0:
                self._pidfds.register(application.pidfd, select.EPOLLIN)
            self._epoll.register(control.fileno(), select.EPOLLIN)
        except OSError as error:  # too many are watched: max_user_watches, memory
            if application.pidfd >= 0:
                os.close(application.pidfd)
            refuse(control, error.errno or errno.ENOMEM, f"watching the application: {error.strerror}")
            return
        self._applications[control.fileno()] = application

    def _accept(self) -> None:
        """Accept a connection; where there is no descriptor even to refuse it, try again later."""
        assert self._listener is not None
        try:
            control = self._listener.accept()
        except OSError:
            self._epoll.unregister(self._listener.fileno())
            self._accept_after_ns = now_ns() + ACCEPT_RETRY_NS
            return
        if control is not None:
            self._admit(control)

    def _accept_again(self, now: int) -> None:
        """Accept connections again, once the pause is over; where no more can be watched, after another."""
        if self._listener is not None and self._accept_after_ns and now >= self._accept_after_ns:
            try:
                self._epoll.register(self._listener.fileno(), select.EPOLLIN)
                self._accept_after_ns = 0
            except OSError:
                self._accept_after_ns = now + ACCEPT_RETRY_NS

    def _notify_hosts(self) -> None:
        """Wake the hosts that have new events."""
        for number in self.adapter.take_notifications():
            self._hosts[number].wake()

    def _dismiss_ended(self) -> None:
        """Detach every application whose process has ended, before the engine accesses its memory."""
        for pidfd, _ in self._pidfds.poll(0):
            for application in list(self._applications.values()):
                if application.pidfd == pidfd:
                    self._dismiss(application)

    def _serve_descriptors(self, limit_s: float | None) -> None:
        """Block up to ``limit_s``; serve wake sockets, control sockets and event channels."""
        for descriptor, happened in self._epoll.poll(limit_s):
            application = self._applications.get(descriptor)
            if application is not None:
                self._answer(application)
            elif descriptor in self._wake_sockets:
                application = self._wake_sockets[descriptor]
                if application.wake_socket is not None and not application.wake_socket.drain():
                    self._dismiss(application)  # its end is closed: it can never be woken again
            elif descriptor in self._channels:
                self._channels.serve(descriptor, happened)
            elif self._listener is not None and descriptor == self._listener.fileno():
                self._accept()
        if self._accept_after_ns:
            self._accept_again(now_ns())

    def _answer(self, application: Application) -> None:
        """Read one request and reply; at the end of the stream the application has left."""
        try:
            received = messages.receive_packet(application.control, wait=False)
        except BlockingIOError:
            return
        except OSError:
            received = None
        if received is None:
            self._dismiss(application)
            return
        data, descriptors = received
        passed: Sequence[Passed] = ()
        try:
            request = decode_request(data)
        except OSError:
            messages.close_all(descriptors)
            self._dismiss(application)
            return
        try:
            answer, passed = self._execute(application, request, descriptors)
            reply = encode_answer(request.message, answer)
        except OSError as error:
            reply = encode_refusal(request.message, error.errno or errno.EINVAL, error.strerror or str(error))
        finally:
            messages.close_all(descriptors)
        try:
            messages.send_packet(application.control, reply, [end.fileno() for end in passed], wait=False)
        except OSError:
            self._dismiss(application)
        for end in passed:
            end.close()

    def _execute(
        self, application: Application, request: Request, descriptors: list[int]
    ) -> tuple[Values, Sequence[Passed]]:
        """The answer, and what to pass with it; kept descriptors are removed from the list."""
        if request.refusal is not None:
            raise request.refusal
        if application.refusal is not None:
            raise application.refusal
        if request.message == ATTACH:
            return self._attach(application, request.fields, descriptors)
        if request.message == DESCRIPTOR:
            return self._pass(application, descriptors), ()
        if request.message == CHANNEL:
            return self._open_channel(application, request.fields)
        if request.message == MEMORY:
            return self._lend_memory(application, request.fields)
        if request.message == DETACH:
            self._detach(application)
            return {"others": len(self._applications) - 1}, ()
        hosts = sum(other.memory is not None for other in self._applications.values())
        return {"counts": list(counts(self.adapter).items()), "hosts": hosts, "sleeps": self.sleeps,
                "pid": os.getpid()}, ()

    def _attach(
        self, application: Application, fields: Values, descriptors: list[int]
    ) -> tuple[Values, Sequence[WakeSocket]]:
        """Map the application's memory and give its rings to the adapter."""
        if application.memory is not None:
            raise OSError(errno.EALREADY, "this application is attached already")
        if len(descriptors) != 1:
            raise OSError(errno.EPROTO, "attaching takes the descriptor of memory")
        with contextlib.ExitStack() as undo:
            memory = map_memory(descriptors[0])
            undo.callback(memory.close)
            frames = HostFrames(frames_of(fields["control"], HostFrames.CONTROL_PAGES, "control"),
                                frames_of(fields["doorbells"], HostFrames.DOORBELL_PAGES, "doorbells"))
            application.flag_address = memory.address_map.address(fields["flag"])
            if not fields["flag"] or not application.flag_address:
                raise OSError(errno.EFAULT, "the sleep flag is outside the host memory")
            ours, theirs = WakeSocket.pair()
            undo.callback(ours.close)
            undo.callback(theirs.close)
            foreign = probe(application.pid, fields["probe"], fields["probe_bytes"])
            side = ApplicationSide(frames, memory.address_map, application.pid, foreign == 0,
                                   application.take_descriptor, application.event_channel)
            try:
                host = self.adapter.attach_host(side)
            except (ValueError, OverflowError) as error:
                raise OSError(errno.EINVAL, str(error)) from None
            undo.callback(self.adapter.detach_host, host)
            self._epoll.register(ours.fileno(), select.EPOLLIN)
            undo.pop_all()
        application.memory, application.wake_socket, application.host = memory, ours, host
        self._hosts[host] = ours
        self._wake_sockets[ours.fileno()] = application
        path = self.path.encode()
        return {"host": host, "foreign": foreign, "path": path, "pid": os.getpid()}, (theirs,)

    def _pass(self, application: Application, descriptors: list[int]) -> Values:
        """Keep a descriptor for the command that will name it."""
        if application.memory is None or len(descriptors) != 1:
            raise OSError(errno.EPROTO, "an attached application passes one descriptor")
        check_memfd(descriptors[0])
        if len(application.passed) >= MAX_PASSED:
            raise OSError(errno.EMFILE, f"{MAX_PASSED} descriptors wait for their commands already")
        number = application.next_passed
        application.next_passed += 1
        application.passed[number] = descriptors.pop()
        return {"number": number}

    def _open_channel(
        self, application: Application, fields: Values
    ) -> tuple[Values, Sequence[WakeSocket]]:
        """Give an attached application an event channel."""
        if application.memory is None:
            raise OSError(errno.EPROTO, "an attached application has event channels")
        number, theirs = self._channels.open(application.channels)
        if fields["asynchronous"]:
            self.adapter.hosts[application.host].asynchronous = application.channels[number]
        return {"channel": number}, (theirs,)

    def _lend_memory(self, application: Application, fields: Values) -> tuple[Values, Sequence[Passed]]:
        """Give an attached application device memory of a context that it imports."""
        if application.memory is None:
            raise OSError(errno.EPROTO, "an attached application asks for device memory")
        found = device_memory.imported(self.adapter, application.host, fields["dm"])
        return {"length": found.length}, (os.fdopen(os.dup(found.descriptor), "rb", buffering=0),)

    def _dismiss(self, application: Application) -> None:
        """An application has left: free what it owned."""
        self._epoll.unregister(application.control.fileno())
        del self._applications[application.control.fileno()]
        self._detach(application)
        application.control.close()
        if application.pidfd >= 0:
            self._pidfds.unregister(application.pidfd)
            os.close(application.pidfd)

    def _detach(self, application: Application) -> None:
        """Free what an application owned; nothing when it is not attached."""
        memory, ours = application.memory, application.wake_socket
        if memory is None or ours is None:
            return
        self._epoll.unregister(ours.fileno())
        del self._wake_sockets[ours.fileno()]
        del self._hosts[application.host]
        if not self.loop.dead:  # an engine that has failed is not called any more
            self.adapter.detach_host(application.host)
        self._channels.close(application.channels)
        ours.close()
        messages.close_all(application.passed.values())
        application.passed.clear()
        memory.close()
        application.memory = application.wake_socket = None

    def hold_name(self) -> socket.socket | None:
        """Something to close that keeps the name, at which nobody is served any more, beyond the end of this;
        None where that has come, or there is no descriptor for it."""
        with contextlib.suppress(OSError):
            return None if self._listener is None else self._listener.hold()
        return None

    def _close_descriptors(self) -> None:
        """Close what is no application's."""
        self._epoll.close()
        self._pidfds.close()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
