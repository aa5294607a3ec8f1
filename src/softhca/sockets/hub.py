"""One thread for all sockets of a process (`HUB`): it takes requests for connections, answers who asks where
a port is served, and sees the end of peers.  It sleeps in one epoll; a stream's data do not pass here.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from softhca.driver import forks
from softhca.driver.errors import DriverError
from softhca.machine.signals import suppressed
from softhca.machine.weak_members import WeakMembers
from softhca.verbs.pyverbs_error import PyverbsError

if TYPE_CHECKING:
    from softhca.sockets.relay import Relay
    from softhca.sockets.stream import Stream

_log = logging.getLogger("softhca.sockets")

PAUSE_S = 0.05
"""For so long a descriptor is not watched whose callback has found no descriptor, or no memory, left."""
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)

Callback = Callable[[], object]


class Hub:
    """Any thread may call any method; ``name`` is the thread's.  OSError."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.RLock()
        self._epoll: select.epoll | None = None
        self._callbacks: dict[int, tuple[Callback, int]] = {}
        self._lost: list[select.epoll] = []
        self.streams: WeakMembers[Stream] = WeakMembers()
        self.relays: set[Relay] = set()
        self._thread: threading.Thread | None = None
        self._left: WeakMembers[threading.Thread] = WeakMembers()  # that run maybe, and are to end
        self._later: deque[Callback] = deque()
        self._bell = -1
        self._due: list[tuple[float, int, Callback]] = []
        self._count = 0

    def watch(self, fd: int, callback: Callback, events: int = select.EPOLLIN) -> None:
        """Call ``callback`` in the hub's thread whenever ``fd`` has ``events``.  OSError, and nothing is
        watched: EMFILE, ENOMEM, EAGAIN (no thread).

        Where the callback itself finds no descriptor or no memory left (OSError), what it was called for is
        still there: the descriptor rests for a moment, so that the thread does not go round for nothing.
        """
        with self._lock:
            self.start()
            assert self._epoll is not None
            self._callbacks[fd] = callback, events
            try:
                try:
                    self._epoll.register(fd, events)
                except OSError:
                    if not self._is_lost():
                        raise
                    self._open()
            except OSError:
                del self._callbacks[fd]
                raise

    def start(self) -> None:
        """Have the thread, so that `after` and `soon` hold also where nothing is watched.  OSError EMFILE,
        ENOMEM, EAGAIN (no thread).
        """
        with self._lock:
            if self._epoll is None:
                self._open()
            if self._thread is not None:
                return
            made = self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            try:
                made.start()
            except RuntimeError as error:
                self._thread = None
                raise OSError(errno.EAGAIN, str(error)) from None
            except BaseException:  # of a signal handler: perhaps it runs
                self._left.add(made)
                self._thread = None
                raise

    def _open(self) -> None:
        """With the lock: a new epoll, which watches everything.  The thread leaves the one before, if any."""
        before = self._bell
        with contextlib.ExitStack() as undone:
            epoll = undone.enter_context(select.epoll())
            bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            undone.callback(os.close, bell)
            epoll.register(bell, select.EPOLLIN)
            undone.pop_all()
        self._epoll, self._bell = epoll, bell
        for fd, (_, events) in self._callbacks.items():
            with suppressed(OSError):
                self._epoll.register(fd, events)
        if self._later or self._due:
            os.eventfd_write(self._bell, 1)
        with suppressed(OSError):
            if before >= 0 and os.readlink(f"/proc/self/fd/{before}") == "anon_inode:[eventfd]":
                os.eventfd_write(before, 1)

    def _is_lost(self) -> bool:
        """With the lock: whether somebody else has closed the epoll's descriptor.  Then it is kept as it is,
        for the number may be another one's by now.
        """
        epoll = self._epoll
        assert epoll is not None
        try:
            epoll.poll(0, 1)
            return False
        except (OSError, ValueError):
            if epoll not in self._lost:
                _log.warning("the descriptor of softhca's sockets was closed by somebody")
                self._lost.append(epoll)
            return True

    def watch_again(self, fd: int, events: int) -> None:
        """From now on for these ``events``: of one that was watched for one event only, for the next one.
        Nothing of one that is not watched.  OSError.
        """
        with self._lock:
            watched = self._callbacks.get(fd)
            if self._epoll is None or watched is None:
                return
            self._callbacks[fd] = watched[0], events  # an epoll that is opened anew has these
            try:
                self._epoll.modify(fd, events)
            except OSError:
                if not self._is_lost():
                    raise
                self._open()

    def forget(self, fd: int) -> None:
        """Not any more; before ``fd`` is closed."""
        with self._lock:
            self._callbacks.pop(fd, None)
            if self._epoll is not None:
                with suppressed(OSError, ValueError):
                    self._epoll.unregister(fd)

    def _run(self) -> None:
        while True:
            epoll = self._epoll
            if epoll is None:
                return
            try:
                found = epoll.poll(self._until_due())
            except (OSError, ValueError):
                with self._lock, suppressed(OSError):
                    if self._epoll is epoll and self._is_lost():
                        self._open()
                if self._epoll is epoll:
                    time.sleep(PAUSE_S)  # there is no descriptor left for another one
                continue
            if threading.current_thread() in self._left:
                return
            self._call_due()
            for fd, _ in found:
                if fd == self._bell:
                    with contextlib.suppress(BlockingIOError):
                        os.eventfd_read(fd)
                    while self._later:
                        _call(self._later.popleft())
                    continue
                with self._lock:
                    watched = self._callbacks.get(fd)
                if watched is not None and _call(watched[0]) in _SCARCE:
                    self._rest(fd, watched)
                watched = None  # what is asleep keeps nobody's memory

    def _rest(self, fd: int, watched: tuple[Callback, int]) -> None:
        """Watch ``fd`` again in a moment."""

        def change(rests: bool) -> None:
            with self._lock:
                now = self._callbacks.get(fd)
                if self._epoll is not None and now is not None and now[0] is watched[0]:
                    self._epoll.modify(fd, 0 if rests else now[1])

        with contextlib.suppress(OSError, ValueError):
            change(True)
            self.after(PAUSE_S, lambda: change(False))

    def _until_due(self) -> float | None:
        with self._lock:
            return max(self._due[0][0] - time.monotonic(), 0.0) if self._due else None

    def _call_due(self) -> None:
        while True:
            with self._lock:
                if not self._due or self._due[0][0] > time.monotonic():
                    return
                _, _, callback = heapq.heappop(self._due)
            _call(callback)

    def after(self, seconds: float, callback: Callback) -> None:
        """Call it in the hub's thread, which runs, in so many seconds."""
        with self._lock:
            self._count += 1
            heapq.heappush(self._due, (time.monotonic() + seconds, self._count, callback))
        self.soon(lambda: None)

    def soon(self, callback: Callback) -> None:
        """Call it in the hub's thread, which runs.  Takes no lock: finalizers may call it."""
        self._later.append(callback)
        if self._bell >= 0:
            os.eventfd_write(self._bell, 1)

    def end(self) -> None:
        """The program ends: what was sent and not closed arrives first, as by a kernel.  What streams have is
        left to the end of their devices, which takes all at once.
        """
        relays, end_s = list(self.relays), time.monotonic() + RELAY_S
        for relay in relays:  # first, as below
            relay.say_end()
        for relay in relays:
            relay.wait(max(end_s - time.monotonic(), 0.0))
        streams = list(self.streams)
        for stream in streams:  # first, so that all of them wait in the same time
            stream.say_end()
        now_s = time.monotonic()
        for stream in streams:
            stream.wait_end(max(now_s + stream.settings.linger_s - time.monotonic(), 0.0))

    def after_fork(self) -> None:
        """In a forked child: nothing of the parent's is used; what is opened is new."""
        for stream in self.streams:
            stream.abandon()
        epoll, self._epoll = self._epoll, None
        if epoll is not None:
            with suppressed(OSError):
                epoll.close()
        if self._bell >= 0:
            os.close(self._bell)
        self._bell = -1
        self._later = deque()
        self._lock = threading.RLock()
        self._callbacks = {}
        self._due = []
        self._thread = None
        self.streams = WeakMembers()
        for relay in self.relays:
            relay.abandon()
        self.relays = set()


def _call(callback: Callback) -> int:
    """The errno of what it has raised, else 0."""
    try:
        callback()
    except OSError as error:
        return error.errno or 0
    except (PyverbsError, DriverError):
        pass
    except Exception:
        _log.exception("a socket's callback has failed")  # the other sockets go on
    return 0


RELAY_S = 2.0
"""How long the end of a program waits for what was written into descriptors of relays, for all together."""

HUB = Hub("softhca-sockets")

CONNECTING = Hub("softhca-connecting")
"""Another one, for connections that nobody waits for: opening a device holds up no other socket."""

SIDEBAND_EVENTS = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR

before_fork: list[Callback] = []
"""What is called before this process forks."""


def _before() -> None:
    for each in list(before_fork):
        each()


forks.before_forks(_before)
os.register_at_fork(after_in_child=HUB.after_fork)
os.register_at_fork(after_in_child=CONNECTING.after_fork)
