"""The thread that takes a device's completions for sockets on which nobody waits in a call: those that a
program polls by descriptor, and listening ones.

A thread that waits in a call takes all events by itself, without a hand-over, while it polls
(`device_calls`) and while it sleeps.  So while there are such threads, the completion thread stands by: it
checks after 1, 2, 4, 8 ms whether calls still come, and sleeps while a thread sleeps in one and no others
come: where threads call again and again it is not woken each time.  When it has changed a descriptor it
pauses, so that the thread that polls the descriptor gets the interpreter's lock.

When the adapter is gone, which nothing else would tell who waits for a descriptor, it tells those that follow
the device, and ends.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from softhca.driver.device import DeviceDriver
from softhca.driver.errors import DriverError
from softhca.machine.condition import Condition
from softhca.machine.weak_members import WeakMembers
from softhca.sockets.device_calls import DeviceCalls

_FIRST_S, _LAST_S = 0.001, 0.008
_HAND_OVER_S = 0.00005


class Follower(Protocol):
    """What uses a device, for somebody who may wait elsewhere."""

    def device_ended(self) -> None:
        """Called by any thread: the device can do nothing any more."""


class CompletionThread:
    """Of one device.  Any thread may call any method.  ``polling``: what calls that poll say and take."""

    def __init__(self, driver: DeviceDriver) -> None:
        self._driver = driver
        self.polling = DeviceCalls(driver)
        self._changed_lock = threading.RLock()
        self._changed = Condition(self._changed_lock)
        self._counting = threading.Lock()
        self._calls = self._waiting = 0
        self._parked = self._inside = self._handed = False
        self._thread: threading.Thread | None = None
        self._left: WeakMembers[threading.Thread] = WeakMembers()  # that run maybe, and are to end
        self._followers: WeakMembers[Follower] = WeakMembers()

    def follow(self, follower: Follower) -> None:
        """As `start`, and tell ``follower``, which is not kept, when the device has ended."""
        self._followers.add(follower)
        self.start()

    def start(self) -> None:
        """Attend from here on.  OSError EAGAIN where there is no thread."""
        if sys.is_finalizing():  # a socket that is dropped then says its number; no thread starts any more
            return
        with self._changed_lock:
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._run, name="softhca-completions", daemon=True)
                self._thread = thread
                try:
                    thread.start()
                except RuntimeError as error:
                    self._thread = None
                    raise OSError(11, str(error)) from None
                except BaseException:  # of a signal handler: perhaps it runs
                    self._left.add(thread)
                    self._thread = None
                    raise

    def wait(self, ended: Callable[[], bool], deadline_s: float | None) -> bool:
        """Wait in a call, in its thread, for the device's events until ``ended()``; False at the deadline (of
        ``time.monotonic``).  DriverError: the device has failed.
        """
        while not ended():
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return False
            counted = [False]
            try:
                self._enter(counted)
                self._driver.wait_for(ended, left_s)
            finally:
                try:
                    self._leave(counted)
                except BaseException:  # of a signal handler: the completion thread would stand by for ever
                    self._leave(counted)
                    raise
        return True

    def _enter(self, counted: list[bool]) -> None:
        """A thread is going to wait in a call; it is ``counted`` where there is a completion thread."""
        if self._thread is None:
            return
        with self._counting:  # no handler comes between the two: nothing is called
            counted[0], self._waiting = True, self._waiting + 1
            self._calls += 1
        if self._inside:
            self._driver.wake_waiters()

    def _leave(self, counted: list[bool]) -> None:
        """It waits no more, if it was counted.  May be called again."""
        with self._counting:
            if counted[0]:
                counted[0], self._waiting = False, self._waiting - 1
        if self._parked:
            with self._changed_lock:
                self._changed.notify()

    def hand_over(self) -> None:
        """A descriptor has changed, or a request has come, for another thread."""
        self._handed = True

    def _run(self) -> None:
        with contextlib.suppress(DriverError):  # the device has ended, too
            self._attend()
        if self._has_left():
            return
        for each in self._followers:
            each.device_ended()

    def _attend(self) -> None:
        seen, pause_s = -1, _FIRST_S
        while self._driver.alive and not self._has_left():
            calls = self._begun()
            if self._waiting or calls != seen:
                if calls != seen:
                    seen, pause_s = calls, min(pause_s, _LAST_S)
                self._stand_by(pause_s)
                pause_s = min(2 * pause_s, 2 * _LAST_S)
                continue
            pause_s = _FIRST_S
            self._handed, self._inside = False, True
            self._driver.wait_for(partial(self._is_relieved, calls))
            self._inside = False
            time.sleep(_HAND_OVER_S)

    def _has_left(self) -> bool:
        """Whether another thread is to attend in place of this one."""
        return threading.current_thread() in self._left

    def _begun(self) -> int:
        """How many calls have waited, or polled, until now."""
        return self._calls + self.polling.begun

    def _is_relieved(self, calls: int) -> bool:
        """Whether the thread takes no completions for now: there are threads in calls, other than those that
        had begun at ``calls``, or somebody is to have the interpreter's lock.
        """
        return self._handed or self._waiting > 0 or self._begun() != calls

    def _stand_by(self, pause_s: float) -> None:
        with self._changed_lock:
            if pause_s <= _LAST_S:
                self._changed.wait(pause_s)
                return
            self._parked = True
            if self._waiting:
                self._changed.wait()
            self._parked = False


_completion_threads: dict[DeviceDriver, CompletionThread] = {}
_lock = threading.Lock()


def completion_thread_of(driver: DeviceDriver) -> CompletionThread:
    """The one of a device."""
    with _lock:
        found = _completion_threads.get(driver)
        if found is None:
            _drop_closed()
            found = _completion_threads[driver] = CompletionThread(driver)
        return found


def drop_closed() -> None:
    """Keep none of closed devices, nor their memory."""
    with _lock:
        _drop_closed()


def _drop_closed() -> None:
    for closed in [each for each in _completion_threads if not each.alive]:
        del _completion_threads[closed]


def _forget() -> None:
    """In a forked child: they are the parent's."""
    global _completion_threads, _lock
    _completion_threads, _lock = {}, threading.Lock()


os.register_at_fork(after_in_child=_forget)
