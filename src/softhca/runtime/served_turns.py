"""The turns of an adapter in a process of its own, one behind the other: what it does while there is traffic.

Beside its applications and a peer's adapter the process has a part of a processor only, so what an empty turn
costs is added to every message that waits for it.  All that a turn needs is compiled therefore; what is rare
(the control sockets, falling asleep, an application that has ended) is the caller's.

No descriptor is opened or closed here, and no time is read but by the clock that is given.
"""

import cython

from softhca.runtime.clock import now_ns
from softhca.runtime.loop import EngineLoop
from softhca.runtime.poll_back_off import SLEEP, PollBackOff
from softhca.runtime.processor import Readable, give_way

__all__ = ["ServedTurns"]

_SLEEP = cython.declare(cython.int, SLEEP)


class ServedTurns:
    """``loop``'s turns, by one thread, without its lock.

    ``ended`` is a descriptor that is readable when the process of an application has ended: ``bury`` is
    called then, before the engine does anything in its memory.  ``tell`` is called behind a turn in which
    the engine has told a host something.  ``most`` is how many turns there are until `run` lets its caller
    look at the rest; ``clock`` gives nanoseconds.  What the calls raise, `turn` and `run` raise.
    """

    def __init__(self, loop: EngineLoop, back_off: PollBackOff, ended, bury, tell, most, clock=now_ns):
        self.loop = loop
        self.back_off = back_off
        self.ended = Readable(ended)
        self.bury = bury
        self.tell = tell
        self.most = most
        self.left = most
        self.clock = clock
        self.give_way = give_way

    def turn(self, now):
        """Doorbells and commands, packets, time-outs; True when there was anything."""
        if self.ended.now():
            self.bury()
        worked: cython.bint = self.loop.turn(now)
        if self.loop.sleeper.deliver():
            self.tell()
        return worked

    def run(self):
        """Turns, others let run behind each that was in vain.  True: it is time to sleep; False: ``most``
        turns have been given since it was False the last time, or the loop is dead."""
        now: cython.ulonglong
        while self.left and not self.loop.dead:
            self.left -= 1
            now = self.now()
            if self.turn(now):
                self.back_off.worked(now)
            elif self.back_off.missed(now) == _SLEEP and self.may_sleep(now):
                return True
            else:
                self.give_way()
                self.back_off.gave_way(now, self.now())
        self.left = self.most
        return False

    def may_sleep(self, now):
        """Whether a sleep is not too coarse for what is held back; where others want to run it may be."""
        return now < self.back_off.contended_until_ns or not self.loop.soon(now)

    def now(self):
        """The time by ``clock``."""
        if cython.compiled and self.clock is now_ns:
            return monotonic_ns()  # noqa: F821 - the pxd's: the same clock
        return self.clock()
