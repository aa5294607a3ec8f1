"""The threads that drive an embedded adapter: the background thread, and application threads that block.

This is the leader/followers pattern.  At any time at most one thread drives a sleeping adapter: it blocks on
the link's descriptors until the engine's next deadline.  An application thread that waits for a completion
or an event becomes the leader and drives by itself, so that a wake-up needs no hand-over between threads;
other waiting threads follow.  Where no application thread waits, the background thread drives.

While applications poll or wait, the background thread stands by: it checks after 1, 2, 4, 8 ms whether the
engine is still driven, without touching link or lock, and drives it when it was not.  While a thread stays
in one wait, the background thread sleeps until that thread leaves; where threads wait again and again it is
not woken each time.  So it costs a polling program hardly
anything, it does not wake for an idle one, and it serves one that stops polling within 8 ms, far below the
shortest time-out that peers use (timeout 14: 67 ms, seven times).

After work a thread spins for a short time before it blocks, because the answer to what it sent often comes
within microseconds.  This matters most in a program that computes in Python.  A thread that blocks gets the
interpreter lock back only after a switch interval of 5 ms; one that spins keeps it while there is traffic,
until the other thread asks for it (5 ms again).  So such a target serves at about half speed, and both
threads make progress.

Where other programs want the processors, a spin only delays whom it waits for, and who spins has used up its
share when the answer comes, while who slept is run at once.  So after a yield that took long a thread blocks
without a spin for a while.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import threading
from collections.abc import Callable, Iterable

from softhca.driver.poll_back_off import SLEEP, PollBackOff
from softhca.machine.condition import Condition
from softhca.machine.processor import wait_readable, yield_processor
from softhca.runtime.clock import NS_PER_MS, NS_PER_S
from softhca.runtime.leader_lock import LeaderLock
from softhca.runtime.loop import NEVER, SPIN_NS, EngineLoop
from softhca.runtime.sleeper import LATE_NS, timeout_s

FIRST_CHECK_NS = 1_000_000
LAST_CHECK_NS = LATE_NS
LONG_YIELD_NS = 50_000
"""A yield of the processor that takes longer means that others want it."""
BLOCK_AT_ONCE_NS = 5_000_000
"""For so long after such a yield nobody spins."""
POLLS_OF_A_POLLER = 8
"""At least this many polls between two checks mean that the program polls the adapter continuously."""


class Progress:
    """Drives one :class:`EngineLoop` whenever no application thread does.

    ``descriptors`` are the link's, readable when something has arrived.  ``wakeups`` counts how often a
    thread woke up from blocking, for the tests of idleness.  ``between`` is called by the background thread
    between two of its turns, ``ended`` at its end, both without locks.  OSError EMFILE.
    """

    def __init__(self, descriptors: Iterable[int]) -> None:
        self.loop: EngineLoop | None = None
        self.wakeups = 0
        self._descriptors = tuple(descriptors)
        with contextlib.ExitStack() as undo:
            self._thread_wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            undo.callback(os.close, self._thread_wake)
            self._leader_wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            undo.callback(os.close, self._leader_wake)
            self._thread_poll = undo.enter_context(self._poller(self._thread_wake))
            self._leader_poll = undo.enter_context(self._poller(self._leader_wake))
            undo.pop_all()
        self._thread_wake_poll = select.poll()  # not select(): that knows no descriptor beyond 1023
        self._thread_wake_poll.register(self._thread_wake, select.POLLIN)
        self._leader_lock = LeaderLock()
        self._changes_lock = threading.RLock()
        self._changed = Condition(self._changes_lock)
        self._leading = False
        self._stopping = False
        self._changes = 0
        self._waits = 0  # that have begun
        self._followers = 0
        self._leader_back_off, self._thread_back_off = (
            PollBackOff(0, SPIN_NS, LONG_YIELD_NS, BLOCK_AT_ONCE_NS) for _ in range(2)
        )
        self._thread: threading.Thread | None = None
        self._thread_ended = threading.Lock()  # held until the thread touches nothing any more
        self._ending = threading.RLock()
        self._forgotten = False
        self.between: Callable[[], object] = _nothing
        self.ended: Callable[[], object] = _nothing

    def _poller(self, wake: int) -> select.epoll:
        epoll = select.epoll()
        for descriptor in (*self._descriptors, wake):
            epoll.register(descriptor, select.EPOLLIN)
        return epoll

    def watch(self, descriptor: int) -> None:
        """Wake up for another descriptor, too."""
        self._thread_poll.register(descriptor, select.EPOLLIN)
        self._leader_poll.register(descriptor, select.EPOLLIN)

    def start(self, loop: EngineLoop, name: str) -> None:
        """Begin to serve ``loop`` from a daemon thread called ``name``.  OSError EAGAIN when the system gives
        none.
        """
        self.loop = loop
        loop.nap = self.nap
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread_ended.acquire()
        try:
            thread.start()
        except RuntimeError as error:
            self._thread_ended.release()
            raise OSError(errno.EAGAIN, str(error)) from None
        self._thread = thread

    @property
    def stopping(self) -> bool:
        """Whether `close` has been called."""
        return self._stopping

    def wake(self) -> None:
        """Wake the driving thread, unless it is awake: a thread that waits and does not lead at the moment
        looks at what it waits for, and at the deadlines, before it sleeps; when it leaves, the background
        thread is woken where it must be.  Who is about to follow a leader looks again.
        """
        if self._forgotten:
            return
        if self._leading:
            os.eventfd_write(self._leader_wake, 1)
        elif self.loop is None or self.loop.dead or not self.loop.sleeper.waiters:
            os.eventfd_write(self._thread_wake, 1)
        self._changes += 1  # who is about to follow, and has looked before, looks again

    # The background thread

    def _run(self) -> None:
        loop = self.loop
        assert loop is not None
        try:
            self._serve(loop)
        except Exception as error:
            with loop.lock:
                loop.fail(error)
        self._notify_followers()
        self.ended()
        self._thread_ended.release()
        if self._stopping:
            self._end()

    def _serve(self, loop: EngineLoop) -> None:
        """Drive until the end of the adapter."""
        polls, pause_ns, waits = loop.polls, FIRST_CHECK_NS, -1
        while not (self._stopping or loop.dead):
            self.between()
            driven = loop.polls - polls >= POLLS_OF_A_POLLER
            polls = loop.polls
            if loop.sleeper.waiters or driven:
                self._flush_overdue(loop)
                if waits != self._waits:
                    waits, pause_ns = self._waits, min(pause_ns, LAST_CHECK_NS)
                self._stand_by(loop, pause_ns)
                pause_ns = min(2 * pause_ns, 2 * LAST_CHECK_NS)
                if loop.attached and not loop.sleeper.waiters:
                    pause_ns = FIRST_CHECK_NS  # clients do not wake a thread that polls, or has just stopped
                continue
            pause_ns = FIRST_CHECK_NS
            self._drive(loop, lambda: bool(loop.sleeper.waiters) or self._stopping, leading=False)
            if not loop.sleeper.waiters and not self._stopping:
                self._block(loop, NEVER, leading=False)

    def _flush_overdue(self, loop: EngineLoop) -> None:
        """Transmit what is held back for a consumer that has stopped polling."""
        if loop.acknowledgement.waits or loop.batching.waits:
            with loop.lock:
                now = loop.clock()
                if not loop.dead and loop.overdue(now):
                    loop.flush(now)

    def _stand_by(self, loop: EngineLoop, pause_ns: int) -> None:
        """Sleep while others drive; until woken when a thread stays waiting."""
        with loop.lock:  # else the last waiting thread could leave in between, and not wake this one
            if loop.sleeper.waiters and pause_ns > LAST_CHECK_NS:
                timeout_ms = None
                loop.sleeper.background_sleeps(NEVER)
            else:
                timeout_ms = min(pause_ns, LAST_CHECK_NS) / NS_PER_MS
                loop.sleeper.background_sleeps(loop.clock() + min(pause_ns, LAST_CHECK_NS))
        self._thread_wake_poll.poll(timeout_ms)
        self.wakeups += 1
        loop.sleeper.parked = False
        _drain(self._thread_wake)

    # For the background thread and for the leader

    def _drive(self, loop: EngineLoop, enough: Callable[[], bool], leading: bool) -> bool:
        """Give rounds until ``enough()``, or until nothing has come for the length of a spin; whether it was
        enough.
        """
        back_off = self._leader_back_off if leading else self._thread_back_off
        back_off.begins()
        loop.sleeper.wakeup_ns = 0
        while not enough():
            with loop.lock:
                if loop.dead:
                    return False
                now = loop.clock()
                worked = loop.progress(now)
            if loop.sleeper.deliver():
                if self._leading and not leading:
                    os.eventfd_write(self._leader_wake, 1)
                self._notify_followers()
            if worked:
                back_off.worked(now)
            elif back_off.missed(now) == SLEEP and not _is_soon(loop, now):
                return False
            else:
                # Where processors are scarce, the peer may need this one.
                yield_processor()
                back_off.yielded(now, loop.clock())
        return True

    def _block(self, loop: EngineLoop, until_ns: int, leading: bool, exactly: bool = False) -> None:
        """Sleep until something arrives, until a deadline or ``until_ns``, or until woken.  ``exactly``: not
        for whole milliseconds."""
        with loop.lock:
            if loop.dead:
                return
            now = loop.clock()
            if loop.clients is not None and not loop.clients.arm_wakeup(now, leading):
                return
            if loop.same_host is not None and not loop.same_host.arm_wakeup():
                if loop.clients is not None:
                    loop.clients.disarm_wakeup()
                return
            if loop.clients is not None:
                until_ns = min(until_ns, loop.clients.deadline())
            deadline_ns = loop.deadline()
            wakeup_ns = loop.sleeper.begin_sleep(deadline_ns, until_ns, leading)
        epoll = self._leader_poll if leading else self._thread_poll
        try:
            if exactly:
                wait_readable(epoll.fileno(), max(0, wakeup_ns - now))
            else:
                epoll.poll(timeout_s(wakeup_ns, now), 8)
        finally:  # a signal handler may raise, and peers would go on waking a thread that does not sleep
            self.wakeups += 1
            if loop.same_host is not None or loop.clients is not None:
                with loop.lock:
                    if loop.same_host is not None:
                        loop.same_host.disarm_wakeup()
                    if loop.clients is not None:
                        loop.clients.disarm_wakeup()
        _drain(self._leader_wake if leading else self._thread_wake)

    # Application threads

    def wait(self, ready: Callable[[], bool], limit_s: float | None = None) -> bool:
        """Block, driving the engine, until ``ready()`` is true; False when ``limit_s`` has passed first.

        ``ready`` is evaluated after every event for a host.  A closed adapter gives False.
        """
        loop = self.loop
        assert loop is not None
        until_ns = NEVER if limit_s is None else loop.clock() + int(limit_s * NS_PER_S)
        nested = self._leader_lock.mine()  # in a signal handler of the thread that leads
        counted = [False]
        try:
            with loop.lock:  # no handler comes between the two: nothing is called
                counted[0], loop.sleeper.waiters = True, loop.sleeper.waiters + 1
                self._waits += 1
            while not ready():
                if loop.dead:
                    return False
                if self._leader_lock.acquire():
                    if self._wait_leading(loop, ready, until_ns):
                        return True
                else:
                    self._wait_following(loop, ready, until_ns)
                if loop.clock() >= until_ns:
                    return ready()
            return True
        except BaseException:
            self._notify_followers()  # perhaps it was about to
            raise
        finally:
            try:
                self._leave(loop, nested, counted)
            except BaseException:  # of another handler
                self._leave(loop, nested, counted)
                self._notify_followers()
                raise

    def _leave(self, loop: EngineLoop, nested: bool, counted: list[bool]) -> None:
        """A thread waits no more, if it was ``counted``; after the last one the background thread drives.
        May be called again.
        """
        if not nested:
            self._lead_no_more()
        with loop.lock:
            if counted[0]:
                counted[0], loop.sleeper.waiters = False, loop.sleeper.waiters - 1
            if loop.sleeper.waiter_left(NEVER if loop.dead else loop.deadline()) and not loop.dead:
                os.eventfd_write(self._thread_wake, 1)

    def _lead_no_more(self) -> None:
        """Of a thread that was interrupted when it began, or ended, to lead, if this one was; what has been
        closed stays locked.
        """
        if self._leader_lock.mine() and not self._forgotten:
            self._stop_leading()

    def _wait_leading(self, loop: EngineLoop, ready: Callable[[], bool], until_ns: int) -> bool:
        """Drive once as the leader, who sleeps then unless ``ready()``: whether it was.  The caller holds the
        leader's lock.
        """
        self._leading = True
        try:
            if self._drive(loop, ready, leading=True) or ready():
                return True
            self._block(loop, until_ns, leading=True)
            return False
        finally:
            self._stop_leading()

    def _stop_leading(self) -> None:
        """Let another thread lead; where the engine was stopped meanwhile, close the descriptors."""
        self._leading = False
        self._leader_lock.release()
        self._notify_followers()
        if self._stopping:
            self._end()

    def nap(self, until_ns: int) -> None:
        """For a thread that polls, and competes for its processor: sleep until something arrives, a deadline,
        or ``until_ns``.  Where another thread does so already, or waits, follow that one."""
        loop = self.loop
        assert loop is not None
        nested = self._leader_lock.mine()
        try:
            if not self._leader_lock.acquire():
                self._wait_following(loop, lambda: loop.dead, until_ns)
                return
            self._leading = True
            loop.polls += POLLS_OF_A_POLLER  # who naps polls on: the background thread need not drive
            try:
                self._block(loop, until_ns, leading=True, exactly=True)
            finally:
                self._stop_leading()
        except BaseException:
            self._notify_followers()  # as in `wait`
            raise
        finally:
            if not nested:
                self._lead_no_more()
            with loop.lock:
                loop.sleeper.nap_ends()
                if not loop.dead:
                    loop.settle(loop.clock())  # what came up meanwhile may be the background thread's to do

    def _wait_following(self, loop: EngineLoop, ready: Callable[[], bool], until_ns: int) -> None:
        """Wait until the leader reports a change, or stops leading."""
        limit_s = timeout_s(until_ns, loop.clock())
        known = self._changes
        if ready():  # without the condition's lock: ``ready`` may close the adapter
            return
        with self._changes_lock:
            self._followers += 1  # first, and looks then: `_notify_followers` changes first, and looks then
            try:
                self._changed.wait_for(
                    lambda: self._changes != known or not self._leading or loop.dead, limit_s
                )
            finally:
                self._followers -= 1

    def _notify_followers(self) -> None:
        """Something may have changed for them.  Called in most rounds, so it costs nothing without them."""
        self._changes += 1
        if self._followers:
            with self._changes_lock:
                self._changed.notify_all()

    def wake_waiters(self) -> None:
        """Wake every thread in `wait`; each evaluates ``ready`` again."""
        with self._ending:
            # A thread that is about to lead, but not marked as leader yet, evaluates it before it sleeps.
            if self._leading and not self._forgotten:
                os.eventfd_write(self._leader_wake, 1)
        self._notify_followers()

    # The end

    def close(self) -> None:
        """Stop the thread and wake all that wait.  The loop is marked dead before.

        The descriptors are closed here, or by the last thread that may still use them: one that waits or,
        when this is called in the middle of a round or a wait, the caller further up.
        """
        self._stopping = True
        with self._ending:
            if not self._forgotten:
                for wake in (self._thread_wake, self._leader_wake):
                    os.eventfd_write(wake, 1)
        self._notify_followers()
        inside = self.loop is not None and self.loop.lock.mine()
        if self._thread is not None and self._thread is not threading.current_thread() and not inside:
            self._thread.join()
        self._end()

    def _end(self) -> None:
        """Close the descriptors unless a thread uses them; each thread that stops using them calls this."""
        with self._ending:
            if self._forgotten or not self._thread_ended.acquire(blocking=False):
                return
            if self._leader_lock.acquire():  # both stay locked: no thread begins again
                self.forget()
            else:
                self._thread_ended.release()

    def forget(self) -> None:
        """Close the descriptors and wake nobody: the thread is gone (after a fork) or has ended."""
        if self._forgotten:
            return
        self._forgotten = True
        self._thread_poll.close()
        self._leader_poll.close()
        os.close(self._thread_wake)
        os.close(self._leader_wake)


def _is_soon(loop: EngineLoop, now: int) -> bool:
    """Whether something that is held back is due too soon for a sleep."""
    with loop.lock:
        return bool(loop.soon(now))


def _nothing() -> None:
    """Do nothing."""


def _drain(eventfd: int) -> None:
    try:  # noqa: SIM105, a context manager takes longer than the call
        os.eventfd_read(eventfd)
    except BlockingIOError:
        pass
