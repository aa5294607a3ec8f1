"""A host's channel to an adapter in a process of its own: shared rings, and a socket pair to wake each other.

The application's calls touch shared memory only.  A kick is a system call only when the adapter sleeps.  A
wait polls the wake socket and the control socket; the control socket reports a hang-up when the adapter
process has died.

A polling thread does no work of the adapter's, which may need the processor.  So after an empty poll it
yields the processor, and long after its last post or completion it sleeps briefly between two polls.

An adapter process that is alive but does not answer (it is stopped) does not block a close: requests to it
time out, and then the process is given up (`AdapterProcess.give_up`).
"""

from __future__ import annotations

import errno
import secrets
import select
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from softhca.driver.channels import HostChannel, Ready
from softhca.driver.errors import DriverError
from softhca.driver.poll_back_off import SLEEP, YIELD, PollBackOff
from softhca.machine import deferred_signals
from softhca.machine.condition import Condition
from softhca.machine.primitives import address_of, atomic_cas64
from softhca.machine.processor import yield_processor
from softhca.machine.signals import raised_by_handler
from softhca.memory.host import HostMemory
from softhca.memory.runs import runs_of
from softhca.queues.codec import Values
from softhca.queues.handshake import ATTACH, DESCRIPTOR, DETACH, MEMORY, RESOURCES
from softhca.queues.layout import PROBE_BYTES
from softhca.runtime import adapter_process, fork, messages
from softhca.runtime.clock import NS_PER_S, now_ns
from softhca.runtime.leader_lock import LeaderLock
from softhca.runtime.wake_event import WakeEvent
from softhca.runtime.wake_socket import WakeSocket

if TYPE_CHECKING:
    import socket

    from softhca.runtime.adapter_process import AdapterProcess

CHECK_EVERY_POLLS = 256
NAP_FROM_NS = 400_000
"""So long after the last post or completion an empty poll begins to sleep briefly."""

DETACH_LIMIT_S = 5.0
"""How long a close waits for the adapter process to free what this host owned."""

SPIN_NS = 30_000
_WAITED_FOR = (select.POLLIN, select.POLLIN, select.POLLHUP)


class ProcessChannel(HostChannel):
    """One attachment to ``process``.  OSError when it cannot be reached or refuses."""

    wakes = True

    def __init__(self, process: AdapterProcess) -> None:
        self._wake_event = WakeEvent()
        try:
            memory = HostMemory()
        except BaseException:
            self._wake_event.close()
            raise
        self._process = process
        self._alive = True
        self.closed = False
        self._polls = 0
        self._back_off = PollBackOff(limit_ns=NAP_FROM_NS)
        self._kicked = True
        self._unresponsive = False
        self._unread = [0]  # see `adapter_process.ask`
        self._given_up = False
        self._leader_lock = LeaderLock()
        self._asking, self._waits_for_answer = threading.RLock(), False
        self._changes_lock = threading.RLock()
        self._changed = Condition(self._changes_lock)
        self._changes = 0
        self._closing = threading.RLock()
        self._leaving = False
        self._wake_socket: WakeSocket | None = None
        self._control: socket.socket | None = None
        try:
            super().__init__(memory)
            self._flag_frame = self.memory.allocate(1)[0]
            self._flag_address = self.address_map.address(self._flag_frame)
            self._control = process.connect()
            self._attach()
        except BaseException:
            control, self._control = self._control, None
            if control is not None:
                process.release(control)
            self._wake_event.close()
            memory.close()
            raise
        fork.watch(self)

    def _attach(self) -> None:
        probe = bytearray(secrets.token_bytes(PROBE_BYTES))
        reply, passed = self._ask(ATTACH, {
            "control": runs_of(self.frames.control), "doorbells": runs_of(self.frames.doorbells),
            "flag": self._flag_frame, "probe": address_of(probe), "probe_bytes": bytes(probe),
        }, (self.memory.fd,))
        if len(passed) != 1:
            messages.close_all(passed)
            raise OSError(errno.EPROTO, "the adapter process passed no wake socket")
        self._wake_socket = WakeSocket.adopt(passed[0])
        self.foreign_errno = int(reply["foreign"])

    def _ask(
        self, message: int, values: Mapping[str, Any] | None = None, descriptors: tuple[int, ...] = ()
    ) -> tuple[Values, list[int]]:
        """`adapter_process.ask`; after a request that timed out every further one fails.  OSError EBUSY for a
        signal handler's, within the wait for an answer: it would come behind that.
        """
        with self._asking, deferred_signals.section():
            if self._waits_for_answer:
                raise OSError(errno.EBUSY, "the adapter process has not answered what was asked before")
            if self._control is None or self._unresponsive:
                raise OSError(errno.EIO, "the adapter process does not answer" if self._unresponsive
                              else "the adapter process has ended")
            self._waits_for_answer = True
            try:
                return adapter_process.ask(
                    self._control, message, values, descriptors, unread=self._unread
                )
            except TimeoutError as error:
                self._unresponsive = not raised_by_handler(error)
                raise
            finally:
                self._waits_for_answer = False

    @property
    def alive(self) -> bool:
        """Whether the adapter process was alive at the last check."""
        return self._alive

    @property
    def meeting_place(self) -> str:
        """`HostChannel.meeting_place`."""
        return self._process.path

    @property
    def kick_receives(self) -> bool:
        """A sleeping adapter must wake to flush what is posted to a queue pair in error."""
        return True

    def kick(self) -> None:
        """Wake the adapter if it sleeps."""
        self._kicked = True
        try:
            # A full barrier: an adapter that raises the flag later sees what was written to the rings.
            if atomic_cas64(self._flag_address, 1, 0):
                self._wake()
        except BaseException:  # of a signal handler: who takes the flag away must wake, for nobody else will
            self._wake()
            raise

    def _wake(self) -> None:
        wake_socket = self._wake_socket
        if wake_socket is not None:
            wake_socket.wake()

    def progress(self) -> bool:
        """The adapter drives itself; check now and then whether it is alive (else DriverError EIO)."""
        self._polls += 1
        now = now_ns()
        if self._kicked or (self.liveness is not None and self.liveness.active):
            self._kicked = False
            if self.liveness is not None:
                self.liveness.active = False
            self._back_off.worked(now)
        what = self._back_off.missed(now)
        if what == YIELD:
            yield_processor()
            self._back_off.yielded(now, now_ns())
        elif what == SLEEP:
            time.sleep(self._back_off.sleep_ns(now) / NS_PER_S)
        if self._polls >= CHECK_EVERY_POLLS:
            self._polls = 0
            self.check_alive()
        if not self._alive:
            raise DriverError(errno.EIO, "the adapter process has ended")
        return False

    def check_alive(self) -> bool:
        """Ask the kernel whether the adapter process is alive."""
        control = self._control
        if self._alive and (control is None or not adapter_process.is_alive(control)):
            self._alive = False
        return self._alive

    def resources(self) -> Values:
        """How many resources all hosts of this adapter own (``counts``, by kind), and figures of its process;
        for tests and tools."""
        found = self._ask(RESOURCES)[0]
        return {**found, "counts": dict(found["counts"])}

    def pass_descriptor(self, descriptor: int) -> int:
        """`HostChannel.pass_descriptor`, over the control socket."""
        return int(self._ask(DESCRIPTOR, descriptors=(descriptor,))[0]["number"])

    def take_memory(self, dm: int) -> tuple[int, int]:
        """`HostChannel.take_memory`, over the control socket."""
        answer, passed = self._ask(MEMORY, {"dm": dm})
        if len(passed) != 1:
            messages.close_all(passed)
            raise OSError(errno.EPROTO, "the adapter process passed no memory")
        return passed[0], int(answer["length"])

    def wait(self, ready: Ready, timeout_s: float | None) -> bool:
        """`HostChannel.wait`: False also when the adapter process has died."""
        if self._spin(ready):
            return True
        until_ns = None if timeout_s is None else now_ns() + int(timeout_s * NS_PER_S)
        nested = self._leader_lock.mine()  # in a signal handler of the thread that leads
        try:
            return self._wait(ready, until_ns)
        except BaseException:
            self._notify_waiters()  # a signal handler has raised: it was about to, perhaps
            raise
        finally:
            if not nested and self._leader_lock.mine():  # interrupted when it began, or ended, to lead
                self._lead_no_more()

    def _wait(self, ready: Ready, until_ns: int | None) -> bool:
        """`wait`, until a time."""
        while True:
            known = self._changes
            # Without any lock, and not as the leader: it may close the device, carry out a command, or wait
            # for a thread that does so, and whose reply somebody must wait for meanwhile.
            if ready():
                return True
            if not self._alive:
                return False
            left_s = None if until_ns is None else max(until_ns - now_ns(), 0) / NS_PER_S
            if self._leader_lock.acquire():
                self._wait_leading(known, left_s)
            else:
                self._wait_following(known, left_s)
            if until_ns is not None and now_ns() >= until_ns:
                return ready()

    def _wait_following(self, known: int, left_s: float | None) -> None:
        """Wait until the number of changes is not ``known`` any more, or until no thread leads."""
        with self._changes_lock:
            self._changed.wait_for(
                lambda: self._changes != known or not self._leader_lock.locked(), left_s
            )

    def _spin(self, ready: Ready) -> bool:
        """Spin for a short time: an adapter that is awake answers within microseconds."""
        end_ns = now_ns() + SPIN_NS
        while not ready():
            if now_ns() >= end_ns:
                return False
        return True

    def _wait_leading(self, known: int, left_s: float | None) -> None:
        """Block once, on behalf of all threads that wait, unless something has changed since the number of
        changes was ``known``; the caller holds the leader's lock.
        """
        try:
            # Only the leader drains the descriptors, and counts that as a change before the next one leads.
            control, wake_socket = self._control, self._wake_socket
            if self._changes != known or control is None or wake_socket is None:
                return
            descriptors = wake_socket.fileno(), self._wake_event.fileno(), control.fileno()
            if min(descriptors) < 0:
                return
            poll = select.poll()
            for descriptor, what in zip(descriptors, _WAITED_FOR, strict=True):
                poll.register(descriptor, what)
            poll.poll(None if left_s is None else left_s * 1000)
            self._wake_event.drain()
            if self.check_alive():
                wake_socket.drain()
        finally:
            self._lead_no_more()

    def _lead_no_more(self) -> None:
        """Let another thread lead; where the adapter was left meanwhile, close the polled descriptors."""
        with self._changes_lock:
            self._changes += 1
            self._leader_lock.release()
            self._changed.notify_all()
        if self._leaving:
            self._close_descriptors()

    def _notify_waiters(self) -> None:
        with self._changes_lock:
            self._changes += 1
            self._changed.notify_all()

    def wake_waiters(self) -> None:
        """`HostChannel.wake_waiters`."""
        self._wake_event.set()
        self._notify_waiters()

    def detach(self) -> None:
        """Leave: the adapter process frees everything that this host owned."""
        control = self._control
        if control is None:
            return
        fork.unwatch(self)
        others = self._request_detach(control)
        self._alive, self._control = False, None
        if others is None:
            self._given_up = True
            self._stop_waiting()
            self._process.give_up(control, self.memory.close)
        else:
            self._process.release(control, others)
            self._stop_waiting()

    def _request_detach(self, control: socket.socket) -> int | None:
        """How many others the adapter process still serves; None when it does not answer."""
        if self._unresponsive or not self._asking.acquire(timeout=DETACH_LIMIT_S):
            return None
        try:
            reply, _ = adapter_process.ask(control, DETACH, limit_s=DETACH_LIMIT_S, unread=self._unread)
        except OSError as error:
            if raised_by_handler(error):
                raise
            if isinstance(error, TimeoutError):
                return None
            return 0  # it has died, and with it everything that it held
        finally:
            self._asking.release()
        return int(reply["others"])

    def _stop_waiting(self) -> None:
        """Wake all that wait.  The last one closes the descriptors; if none waits, they are closed here."""
        if self._wake_socket is not None:
            self._wake_socket.shut()
        self._leaving = True
        self.wake_waiters()
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        """Close the polled descriptors, unless a thread polls them."""
        if self._leader_lock.acquire():
            try:
                if self._wake_socket is not None:
                    self._wake_socket.close()
                self._wake_event.close()
            finally:
                self._leader_lock.release()

    def close(self) -> None:
        """Leave the adapter and free the memory; may be called again.  Threads that wait return False."""
        with self._closing:
            self.closed = True
            self.detach()
            if not self._given_up:
                self.memory.close()
            self.notify_closed()

    def abandon(self) -> None:
        """In a forked child: close the descriptors; what they mapped stays mapped, shared with the parent."""
        if self.closed:
            return
        self.closed = True
        self._alive = False
        control, self._control = self._control, None
        wake_socket, self._wake_socket = self._wake_socket, None
        self._changes_lock, self._leader_lock = threading.RLock(), LeaderLock()  # the parent had them
        self._changed = Condition(self._changes_lock)
        for party in (control, wake_socket):
            if party is not None:
                party.close()
        self._wake_event.abandon()
        messages.close_all((self.memory.fd,))

    # fork.ForkAware

    fork_rank = 1

    def before_fork(self) -> None:
        """The child can find nothing half done here."""

    def after_fork_in_parent(self) -> None:
        """Go on."""

    def after_fork_in_child(self) -> None:
        """The attachment is the parent's."""
        self.abandon()
