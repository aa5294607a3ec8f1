"""The lock under which one thread at a time drives an engine.

A thread that polls takes it and gives it back for every look, nearly always with nobody else about.
Compiled, that is two comparisons: the interpreter lock is held, and nothing between a comparison and what
follows from it gives that away.  Only who has to wait asks the system for it, at a gate that the owner
opens.  Interpreted, it is `threading.RLock`.

No handler of the program's signals interrupts the main thread while it has the lock (compiled; see
`softhca.machine.deferred_signals`): the state of an engine that is left between two steps cannot be trusted.
What a handler raises comes before the lock is taken, and it is not, or after it was given back.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import cython

from softhca.machine import deferred_signals

if TYPE_CHECKING:
    def thread_ident() -> int:
        """The interpreter's, by the .pxd."""

__all__ = ["TurnLock"]

MISSES = cython.declare(cython.uint, 16)
WAIT_S = 0.001


class TurnLock:
    """Like `threading.RLock`: the thread that has it may take it again, and gives it back as often."""

    gate: Any  # one or the other lock

    def __init__(self) -> None:
        self.owner = 0
        self.depth = 0
        self.waiting = 0
        self.missed = 0
        self.gate = threading.Lock() if cython.compiled else threading.RLock()
        if cython.compiled:
            self.gate.acquire()

    def take(self) -> bool:
        """Take the lock if nobody else has it; whether it is taken."""
        if not cython.compiled:
            return self.gate.acquire(False)
        me: cython.ulong = thread_ident()
        if self.depth and self.owner != me:
            return False
        if not self.depth and me == deferred_signals.main_thread:
            deferred_signals.begin()
            if self.depth:  # a handler ran, and meanwhile another thread has taken it
                deferred_signals.end()
                return False
        self.owner = me
        self.depth += 1
        return True

    def take_soon(self) -> bool:
        """Take the lock if nobody else has it, for one who comes again and again; whether it is taken.

        After some looks in vain it is waited for a moment: the thread that has it may itself be waiting for
        the interpreter lock, which a poller gives away too rarely.
        """
        if self.take():
            self.missed = 0
            return True
        self.missed += 1
        if self.missed <= MISSES or not self.acquire(True, WAIT_S):
            return False
        self.missed = 0
        return True

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As `threading.RLock.acquire`, ``timeout`` in seconds."""
        if not cython.compiled:
            return self.gate.acquire(blocking, timeout)
        passed = False
        while True:
            try:
                if self.take():
                    return True
            except BaseException:  # of a signal handler: who waits as well may pass in this one's stead
                if passed:
                    self.open_gate()
                raise
            if not blocking:
                return False
            self.waiting += 1
            try:
                # Who passes may find that another thread was faster, and waits again.
                passed = self.gate.acquire(True, timeout)
            finally:
                self.waiting -= 1
            if not passed:
                return self.take()

    def open_gate(self) -> None:
        """Let one pass who waits, if anybody does."""
        if self.waiting and self.gate.locked():
            self.gate.release()

    def release(self) -> None:
        """Give it back; RuntimeError when this thread does not have it."""
        if not cython.compiled:
            self.gate.release()
            return
        if self.depth == 0 or self.owner != thread_ident():
            raise RuntimeError("cannot release a lock that is not held")
        self.depth -= 1
        if self.depth == 0:
            self.open_gate()
            if self.owner == deferred_signals.main_thread:
                deferred_signals.end()

    def mine(self) -> bool:
        """Whether this thread has it."""
        if not cython.compiled:
            return self.gate._is_owned()
        return self.depth != 0 and self.owner == thread_ident()

    def __enter__(self) -> TurnLock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
