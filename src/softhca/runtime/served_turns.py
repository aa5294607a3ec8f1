"""The inner loop of an adapter in a process of its own: its turns while there is traffic.

The process shares its processor with applications and other adapters.  So the cost of an empty turn is added
to the latency of every message that waits for it, and everything that a turn needs is compiled.  The caller
does what is rare: control sockets, sleeping, the end of an application.

No descriptor is opened or closed here, and time is read only by the given clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import cython

from softhca.driver.poll_back_off import SLEEP, PollBackOff
from softhca.machine.processor import Readable, yield_processor
from softhca.runtime.clock import now_ns
from softhca.runtime.loop import EngineLoop

if TYPE_CHECKING:
    def monotonic_ns() -> int:
        """The .pxd's."""

__all__ = ["ServedTurns"]

_SLEEP = cython.declare(cython.int, SLEEP)


class ServedTurns:
    """Gives turns to ``loop``, from one thread, without its lock.

    ``ended`` is a descriptor that is readable when the process of an application has ended: then
    ``dismiss_ended`` is called before the engine does anything in its memory.  ``notify`` is called after a
    turn that brought events for a host.  After ``most`` turns `run` returns to its caller, which serves the
    rest.  ``clock`` gives nanoseconds.  Exceptions of the callbacks pass through `turn` and `run`.
    """

    def __init__(
        self, loop: EngineLoop, back_off: PollBackOff, ended: int, dismiss_ended: Callable[[], object],
        notify: Callable[[], object], most: int, clock: Callable[[], int] = now_ns,
    ) -> None:
        self.loop = loop
        self.back_off = back_off
        self.ended = Readable(ended)
        self.dismiss_ended = dismiss_ended
        self.notify = notify
        self.most = most
        self.left = most
        self.clock = clock
        self.yield_processor = yield_processor

    def turn(self, now: int) -> bool:
        """Doorbells and commands, packets, time-outs; True when there was anything."""
        if self.ended.now():
            self.dismiss_ended()
        worked: cython.bint = self.loop.turn(now)
        if self.loop.sleeper.deliver():
            self.notify()
        return worked

    def run(self) -> bool:
        """Give turns, and yield the processor after each empty one.  True: it is time to sleep; False:
        ``most`` turns have been given since the last False, or the loop is dead."""
        now: cython.ulonglong
        while self.left and not self.loop.dead:
            self.left -= 1
            now = self.now()
            if self.turn(now):
                self.back_off.worked(now)
            elif self.back_off.missed(now) == _SLEEP and self.may_sleep(now):
                return True
            else:
                self.yield_processor()
                self.back_off.yielded(now, self.now())
        self.left = self.most
        return False

    def may_sleep(self, now: int) -> bool:
        """Whether the thread may sleep: nothing held back is due soon, or others need the processor."""
        return now < self.back_off.contended_until_ns or not self.loop.soon(now)

    def now(self) -> int:
        """The time by ``clock``."""
        if cython.compiled and self.clock is now_ns:
            return monotonic_ns()  # the same clock
        return self.clock()
