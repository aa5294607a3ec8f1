"""The lock of one queue's end, taken without a Python call."""

import threading

import cython


class Locked:
    """A base that is a lock: one thread at a time has it, and may take it again.

    Nothing that waits is done while it is held.  Yet Python code may come in between, and with it a signal
    handler of the program, which may close the very queue: so a thread never waits for itself.
    """

    __slots__ = ("_depth", "_mutex")

    def _make_lock(self):
        """Call once, before anything else."""
        self._depth = 0
        if not cython.compiled:
            self._mutex = threading.RLock()

    def acquire(self):
        """Take the lock; others run while it is waited for.  False where this thread had it already, further
        up in its calls: what it does there is not over.
        """
        if not cython.compiled:
            self._mutex.acquire()
        elif self._depth == 0 or self._owner != thread_ident():  # noqa: F821 - the pxd's
            self._mutex.acquire()
            self._owner = thread_ident()  # noqa: F821
        self._depth += 1
        return self._depth == 1

    def release(self):
        """Give it back."""
        self._depth -= 1
        if self._depth == 0 or not cython.compiled:
            self._mutex.release()
