"""The adapter in a process of its own: serves every application that attaches, ends when the last has gone.

Theory of operation.  The process has one thread and one loop.  As long as there is traffic it spins:
doorbells of all hosts, packets, time-outs; the applications touch shared memory only.  When nothing has
happened for the length of a spin it raises every host's sleep flag, looks once more (a doorbell that was
rung before the flag could be seen), and blocks on the link, the kick descriptors and the control sockets
until the engine's next deadline.  An application that rings a doorbell takes the flag down and, if it was
up, writes its kick descriptor: one system call a sleep, not one a doorbell.

An application is known by its control socket: when that ends, whatever it owned is freed.  Memory of an
application outside the shared one is reached by its process number, which the kernel gives to another
process once this one has ended.  So a process descriptor is held of each and looked at before every turn;
and the number is of use only if the application's probe was found behind it while that process lived.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from softhca.adapter.engine import Adapter
from softhca.adapter.hosts import HostFrames
from softhca.links.roce_udp import RoceUdpLink
from softhca.machine.primitives import address_of, atomic_cas64, read_process
from softhca.memory.arenas import AddressMap
from softhca.memory.host import SharedHostMemory
from softhca.runtime import messages
from softhca.runtime.assembly import counts
from softhca.runtime.clock import NS_PER_S, now_ns
from softhca.runtime.eventfds import check_eventfd
from softhca.runtime.loop import NEVER, SPIN_NS, EngineLoop
from softhca.runtime.messages import Message
from softhca.runtime.processor import give_way

CONTENDED_NS = 50_000
CONTENTION_MEMORY_NS = 20_000_000
CONTROL_EVERY_TURNS = 32
MAX_APPLICATIONS = 64
MAX_PASSED = 16
PROBE_BYTES = 16


@dataclass
class Application:
    """An application: its control socket and, once attached, its half of the boundary.

    ``life`` is a process descriptor (−1: none), ``refusal`` says why it may not attach.
    """

    control: socket.socket
    pid: int
    life: int = -1
    refusal: str = ""
    memory: SharedHostMemory | None = None
    host: int = -1
    flag_address: int = 0
    descriptors: list[int] = field(default_factory=list)
    passed: dict[int, int] = field(default_factory=dict)
    next_passed: int = 1

    def take_descriptor(self, number: int) -> int:
        """See ``adapter.hosts.HostSide``."""
        if number not in self.passed:
            raise OSError(errno.EBADF, f"no descriptor was passed as {number}")
        return self.passed.pop(number)

    @property
    def kick(self) -> int:
        """The eventfd that wakes the adapter."""
        return self.descriptors[1]

    def notify(self) -> None:
        """Tell the application that there are replies or events."""
        # A counter that is full is readable anyway.
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self.descriptors[2], 1)

    def raise_flag(self) -> None:
        """Say that the adapter is about to sleep; a full barrier."""
        atomic_cas64(self.flag_address, 0, 1)

    def lower_flag(self) -> None:
        """Say that the adapter is awake."""
        atomic_cas64(self.flag_address, 1, 0)


@dataclass
class ApplicationSide:
    """What the adapter is given of a host (see ``adapter.hosts.HostSide``)."""

    frames: HostFrames
    address_map: AddressMap
    pid: int
    foreign: bool
    """Whether the application's memory outside ``address_map`` is reached by ``pid``."""
    take_descriptor: Callable[[int], int]


class AdapterServer:
    """Serves ``adapter`` over ``link`` to the application behind ``first`` and to those that connect to
    ``path``.

    ``stay``: go on when the last application has gone, until ``stop`` is called.
    """

    def __init__(self, adapter: Adapter, link: RoceUdpLink, first: socket.socket | None = None,
                 path: str = "", stay: bool = False) -> None:
        self.adapter = adapter
        self.link = link
        self.loop = EngineLoop(adapter, link, lambda: None)
        self.stay = stay
        self.path = path
        self.sleeps = 0
        self._stopping = False
        self._contended_until_ns = 0
        self._applications: dict[int, Application] = {}
        self._kicks: dict[int, Application] = {}
        self._hosts: dict[int, Application] = {}
        self._stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        # Between a stop and the end of serving; a signal handler may enter it again.
        self._stop_lock = threading.RLock()
        self._lives = select.epoll()
        self._epoll = select.epoll()
        self._epoll.register(self._stop, select.EPOLLIN)
        self._epoll.register(link.fileno(), select.EPOLLIN)
        self._listener: socket.socket | None = None
        if path:
            self._listen(path)
        if first is not None:
            self._admit(first)

    def _listen(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        mask = os.umask(0o177)
        try:
            self._listener.bind("\0" + path[1:] if path.startswith("@") else path)
        finally:
            os.umask(mask)
        self._listener.listen(MAX_APPLICATIONS)
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)

    def _admit(self, control: socket.socket) -> None:
        pid, uid = messages.peer_of(control)
        if uid not in (os.getuid(), 0) or len(self._applications) >= MAX_APPLICATIONS:
            control.close()
            return
        control.setblocking(False)
        application = Application(control, pid)
        if pid <= 0:
            # As process 0 the application would be taken for a host inside this very process.
            application.refusal = "the application is in another PID namespace than the adapter process"
        else:
            try:
                application.life = os.pidfd_open(pid)
            except OSError as error:
                application.refusal = f"process {pid} of the application: {error.strerror}"
            else:
                self._lives.register(application.life, select.EPOLLIN)
        self._applications[control.fileno()] = application
        self._epoll.register(control.fileno(), select.EPOLLIN)

    # The loop

    def serve(self) -> None:
        """Until the last application has gone (or, with ``stay``, until ``stop``), or until the adapter has
        failed, which is logged; ``loop.dead`` tells.
        """
        turns = 0
        busy_ns = now_ns()
        try:
            while (self._applications or self.stay) and not self._stopping and not self.loop.dead:
                now = now_ns()
                if self._turn(now):
                    busy_ns = now
                elif now < self._contended_until_ns or (now - busy_ns > SPIN_NS and not self.loop.soon(now)):
                    self._sleep()
                    busy_ns = now_ns()
                else:
                    self._give_way(now)
                turns += 1
                if turns % CONTROL_EVERY_TURNS == 0:
                    self._attend(0)
        except Exception as error:
            self.loop.fail(error)
        finally:
            self.close()

    def stop(self) -> None:
        """End ``serve`` soon; from a signal handler or another thread, at any time."""
        self._stopping = True
        with self._stop_lock:
            if self._stop >= 0:
                os.eventfd_write(self._stop, 1)

    def _turn(self, now: int) -> bool:
        """Doorbells and commands, packets, time-outs; True when there was anything."""
        self._bury()
        worked = bool(self.adapter.kick(now))
        if self.loop.progress(now):
            worked = True
        if self.loop.notices != self.loop.told:
            self.loop.told = self.loop.notices
            for number in self.adapter.take_notifications():
                self._hosts[number].notify()
        return worked

    def _bury(self) -> None:
        """Let every application go whose process has ended, before anything is done in its memory."""
        for life, _ in self._lives.poll(0):
            for application in list(self._applications.values()):
                if application.life == life:
                    self._dismiss(application)

    def _give_way(self, now: int) -> None:
        """Let others run; if there are any, spinning only keeps them from what this one waits for."""
        give_way()
        if now_ns() - now > CONTENDED_NS:
            self._contended_until_ns = now + CONTENTION_MEMORY_NS

    def _sleep(self) -> None:
        """Block until there is something to do."""
        attached = [each for each in self._applications.values() if each.memory is not None]
        for application in attached:
            application.raise_flag()
        now = now_ns()
        if not self._turn(now):
            deadline_ns = self.loop.deadline()
            if self.loop.kept:
                deadline_ns = now
            self.sleeps += 1
            self._attend(None if deadline_ns >= NEVER else max(deadline_ns - now, 0) / NS_PER_S)
        for application in attached:
            if application.memory is not None:
                application.lower_flag()

    def _attend(self, timeout_s: float | None) -> None:
        """Block up to ``timeout_s``; serve kicks and control sockets."""
        for descriptor, _ in self._epoll.poll(timeout_s):
            application = self._applications.get(descriptor)
            if application is not None:
                self._answer(application)
            elif descriptor in self._kicks:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(descriptor)
            elif self._listener is not None and descriptor == self._listener.fileno():
                with contextlib.suppress(OSError):
                    self._admit(self._listener.accept()[0])

    # Control

    def _answer(self, application: Application) -> None:
        """Read one request and reply; whoever sends none is gone."""
        try:
            received = messages.receive(application.control)
        except BlockingIOError:
            return
        except OSError:
            received = None
        if received is None:
            self._dismiss(application)
            return
        message, descriptors = received
        try:
            reply = self._execute(application, message, descriptors)
        except OSError as error:
            messages.close_all(descriptors)
            reply = {"error": error.errno or errno.EINVAL, "message": error.strerror or str(error)}
        try:
            messages.send(application.control, reply)
        except OSError:
            self._dismiss(application)

    def _execute(self, application: Application, message: Message, descriptors: list[int]) -> Message:
        request = message.get("request")
        if application.refusal:
            raise OSError(errno.EPERM, application.refusal)
        if request == "attach":
            return self._attach(application, message, descriptors)
        if request == "descriptor":
            return self._pass(application, descriptors)
        messages.close_all(descriptors)
        if request == "detach":
            self._detach(application)
            return {}
        if request == "resources":
            hosts = sum(other.memory is not None for other in self._applications.values())
            return {"counts": counts(self.adapter), "hosts": hosts, "sleeps": self.sleeps, "pid": os.getpid()}
        raise OSError(errno.EPROTO, f"unknown request {request!r}")

    def _attach(self, application: Application, message: Message, descriptors: list[int]) -> Message:
        """Map the application's memory and give its rings to the adapter."""
        if application.memory is not None:
            raise OSError(errno.EALREADY, "this application is attached already")
        if len(descriptors) != messages.DESCRIPTORS:
            raise OSError(errno.EPROTO, "attaching takes the descriptors of memory, kick and notify")
        for eventfd in descriptors[1:]:
            check_eventfd(eventfd)
        frames = HostFrames(_frames(message, "control"), _frames(message, "doorbells"))
        (flag,) = _frames(message, "flag", 1)
        memory = SharedHostMemory(descriptors[0])
        try:
            flag_address = memory.address_map.address(flag)
            if not flag_address:
                raise OSError(errno.EFAULT, "the sleep flag is outside the host memory")
            foreign = self._probe(application.pid, message)
            side = ApplicationSide(frames, memory.address_map, application.pid, foreign == 0,
                                   application.take_descriptor)
            host = self.adapter.attach_host(side)
        except (OSError, ValueError, OverflowError) as error:
            memory.close()
            raise OSError(getattr(error, "errno", None) or errno.EINVAL, str(error)) from None
        application.memory, application.flag_address = memory, flag_address
        application.descriptors, application.host = descriptors, host
        self._hosts[host] = application
        self._kicks[application.kick] = application
        self._epoll.register(application.kick, select.EPOLLIN)
        return {"host": host, "foreign": foreign, "path": self.path, "pid": os.getpid()}

    def _pass(self, application: Application, descriptors: list[int]) -> Message:
        """Keep a descriptor for the command that will name it."""
        if application.memory is None or len(descriptors) != 1:
            raise OSError(errno.EPROTO, "an attached application passes one descriptor")
        if len(application.passed) >= MAX_PASSED:
            raise OSError(errno.EMFILE, f"{MAX_PASSED} descriptors wait for their commands already")
        number = application.next_passed
        application.next_passed += 1
        application.passed[number] = descriptors[0]
        return {"number": number}

    def _probe(self, pid: int, message: Message) -> int:
        """0 when the application's own memory can be reached from here, else the errno that says why not."""
        address, expected = message.get("probe"), message.get("probe_bytes")
        if not isinstance(address, int) or not 0 < address < 1 << 63 or not isinstance(expected, str):
            return errno.EPROTO
        seen = bytearray(PROBE_BYTES)
        moved = read_process(pid, address_of(seen), address, PROBE_BYTES)
        if moved != PROBE_BYTES:
            return -moved if moved < 0 else errno.EFAULT
        return 0 if seen.hex() == expected else errno.EPERM

    def _dismiss(self, application: Application) -> None:
        """An application has gone: free what it owned."""
        self._epoll.unregister(application.control.fileno())
        del self._applications[application.control.fileno()]
        self._detach(application)
        application.control.close()
        if application.life >= 0:
            self._lives.unregister(application.life)
            os.close(application.life)

    def _detach(self, application: Application) -> None:
        """Free what an application owned; nothing when it is not attached."""
        if application.memory is None:
            return
        self._epoll.unregister(application.kick)
        del self._kicks[application.kick]
        del self._hosts[application.host]
        if not self.loop.dead:  # an engine that has failed is not asked for anything any more
            self.adapter.detach_host(application.host)
        messages.close_all(application.descriptors)
        messages.close_all(application.passed.values())
        application.passed.clear()
        application.memory.close()
        application.memory = None

    def close(self) -> None:
        """Let every application go and close all descriptors."""
        for application in list(self._applications.values()):
            self._dismiss(application)
        self._epoll.close()
        self._lives.close()
        with self._stop_lock:
            stop, self._stop = self._stop, -1
        os.close(stop)
        self.link.close()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            if not self.path.startswith("@"):
                with contextlib.suppress(OSError):
                    os.unlink(self.path)


def _frames(message: Message, name: str, count: int = 0) -> list[int]:
    """A list of page frames from a message; EPROTO for anything else."""
    frames: Any = message.get(name)
    if (not isinstance(frames, list) or (count and len(frames) != count)
            or not all(isinstance(frame, int) and 0 < frame < 1 << 32 for frame in frames)):
        raise OSError(errno.EPROTO, f"{name}: no list of page frames")
    return frames
