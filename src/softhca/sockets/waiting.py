"""What streams and ends of datagrams have in common: a lock, who takes what has come, and how a call waits.
It drives the device for a short while, and then sleeps.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial
from time import monotonic_ns

import cython

from softhca.driver.poll_back_off import LONGEST_NS, PEER_NS, PollBudget
from softhca.sockets.device_calls import DeviceCalls

READABLE, WRITABLE = 1, 2
"""What is waited for most often."""
MORE_NS, BUSY_NS = 20_000, 2_000_000
"""A call that has found work polls on for at least so long, and so long in all at most: others may want the
interpreter's lock, and it may have a deadline."""
OTHERS_NS = 15_000
"""In a poll in vain that takes longer another program has run: the peer perhaps, unless it is longer than
`PEER_NS`."""

Ready = Callable[[], bool] | int
"""`READABLE`, `WRITABLE`, or what is to be called."""

_READABLE = cython.declare(cython.int, READABLE)
_MORE_NS, _BUSY_NS = cython.declare(cython.ulonglong, MORE_NS), cython.declare(cython.ulonglong, BUSY_NS)
_OTHERS_NS, _PEER_NS = cython.declare(cython.ulonglong, OTHERS_NS), cython.declare(cython.ulonglong, PEER_NS)


class Guard:
    """The lock of what waits; whoever gives it back answers what came in meanwhile."""

    __slots__ = ("_of",)

    def __init__(self, one: Waiting) -> None:
        self._of = weakref.ref(one)  # which has this one, and is to go without the collector

    def __enter__(self) -> None:
        self._of()._lock.acquire()  # type: ignore[union-attr]

    def __exit__(self, *error: object) -> None:
        self._of().leave_lock()  # type: ignore[union-attr]


class Waiting:
    """What waits for events of a device: a stream, an end of datagrams.

    ``_progress`` drives the device once; ``_polls``: a thread that does so serves its adapter.
    ``_calls``: of each device that it polls, first of the one for whose events it sleeps.
    ``_news``: an event was not answered yet.  ``_pumping``: this thread takes what has come.  ``_missed``:
    somebody has found the lock taken.
    """

    _lock: threading.RLock
    _news: bool
    _pumping: bool
    _missed: bool
    _budget: PollBudget
    _progress: Callable[[], bool]
    _polls: bool
    _calls: list[DeviceCalls]
    # Of who waits:
    _sleep: Callable[[Callable[[], bool], float | None], bool]

    def _begin_waiting(self, longest_ns: int = LONGEST_NS) -> None:
        """Of a new one, which sleeps at once until it knows its device; a poll in vain takes up to
        ``longest_ns``.
        """
        self._lock = threading.RLock()
        self._news = self._pumping = self._missed = False
        self._budget = PollBudget(longest_ns)
        self._polls = False
        self._calls = []

    # what each has of its own

    def _has_news(self) -> bool:
        """Whether there is something to be taken."""
        raise NotImplementedError

    def _pump(self) -> None:
        """With the lock held: take what has come."""
        raise NotImplementedError

    def _is_due(self) -> bool:
        """Whether `_serve` has something to answer."""
        raise NotImplementedError

    def _serve(self) -> None:
        """Answer what an event has left, unless somebody has the lock, who then does."""
        raise NotImplementedError

    def _is_over(self) -> bool:
        """Whether nothing is waited for any more."""
        raise NotImplementedError

    def _wake(self) -> None:
        """Have all that sleep look again."""
        raise NotImplementedError

    def _may_receive(self) -> bool:
        raise NotImplementedError

    def _may_send(self) -> bool:
        raise NotImplementedError

    # what both do

    @property
    def readable(self) -> bool:
        """Whether a receive would not wait."""
        return self._may_receive()

    @property
    def writable(self) -> bool:
        """Whether a send would not wait."""
        return self._may_send()

    def unlock(self) -> None:
        """Give the lock back, and have those look again who wait and have found it taken: what they would
        have found has been taken meanwhile, and no event tells of it.
        """
        self._lock.release()
        if self._missed:
            self._missed = False
            self._wake()

    def leave_lock(self) -> None:
        """`unlock`, and answer what came in meanwhile."""
        self.unlock()
        if self._is_due():
            self._serve()

    def wait(self, ready: Ready, deadline_s: float | None) -> bool:
        """Wait, driving the device, until ``ready`` or an error; False at the deadline (of
        ``time.monotonic``).
        """
        if self._has_ended(ready) or (self._polls and self._poll(ready)):
            return True
        return self._sleep(partial(self._has_ended, ready), deadline_s)

    def _has_ended(self, ready: Ready) -> bool:
        """Whether a wait for ``ready`` is over, after taking what has come."""
        if self._pumping or self._has_news():
            self._missed = True  # first: whoever holds the lock sees it when he gives that back
            if self._lock.acquire(blocking=False):
                self._missed = False
                try:
                    self._pump()
                finally:
                    self.unlock()
        if self._is_due():
            self._serve()
        if self._is_over():
            return True
        if not isinstance(ready, int):
            return ready()
        return self._may_receive() if ready == _READABLE else self._may_send()

    def _poll(self, ready: Ready) -> bool:
        """Drive the device for a short time, and as long as there is work, until ``ready``; whether it is."""
        budget: PollBudget = self._budget
        now: cython.ulonglong = monotonic_ns()
        after: cython.ulonglong
        until: cython.ulonglong = budget.until(now)
        limit: cython.ulonglong = until - now
        last: cython.ulonglong = now + _BUSY_NS
        others: cython.bint = False
        calls: DeviceCalls
        if self._calls:  # not those of other devices, whose events somebody must take while this one sleeps
            calls = self._calls[0]
            calls.begin()
        while True:
            worked: cython.bint = self._progress()
            for calls in self._calls:
                calls.take_events()
            if self._has_ended(ready):
                if limit or others:
                    budget.found()
                return True
            after = monotonic_ns()
            if worked:  # what is waited for takes more than one turn
                until = min(after + max(limit, _MORE_NS), last)
                others = False
            elif not others and _OTHERS_NS <= after - now <= _PEER_NS:
                others = True  # have run in the poll's yield, the peer perhaps: look what it has done
                continue
            else:
                budget.yielded(now, after)
                others = False
            if after >= until or budget.contended(after):
                if limit:
                    budget.gave_up()
                return False
            now = after
