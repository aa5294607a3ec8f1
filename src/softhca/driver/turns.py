"""What takes several calls and is one thread's from the first to the last: a round of polling, a batch."""

import threading

import cython

from softhca.driver.locked import Locked
from softhca.machine.condition import Condition


def _me():
    """The number of this thread; never 0."""
    return thread_ident() if cython.compiled else threading.get_ident()  # noqa: F821 - turns.pxd's


class Turn(Locked):
    """Nobody's at first.  Nothing is waited for, and nobody is woken, where one thread alone comes."""

    __slots__ = ("_news", "_news_lock", "_thread", "_waiting", "closed")

    def __init__(self):
        self._make_lock()
        self._news_lock = threading.RLock()
        self._news = Condition(self._news_lock)
        self._thread = 0
        self._waiting = 0
        self.closed = False

    def mine(self):
        """Whether it is this thread's."""
        return self._thread == _me()

    def begin(self):
        """Make it this thread's; waits while it is another one's, as libibverbs does.  False once it is
        called off: then it is not.
        """
        if self._taken():
            return True
        with self._news_lock:
            self._waiting += 1  # before the next look: who ends it afterwards wakes this thread
            try:
                while not self.closed and not self._taken():
                    self._news.wait()
            except BaseException:
                self._news.notify()  # it may have been this one that was woken
                raise
            finally:
                self._waiting -= 1
        return self.mine()

    def _taken(self):
        """Whether it was nobody's, and is this thread's now."""
        self.acquire()
        free: cython.bint = self._thread == 0 and not self.closed
        if free:
            self._thread = _me()
        self.release()
        return free

    def end(self):
        """It is nobody's again, if it was this thread's."""
        if not self.mine():
            return
        self.acquire()
        self._thread = 0
        self.release()
        if self._waiting:
            try:
                self._wake_next()
            except BaseException:  # of a signal handler: nobody else would wake who waits
                self._wake_next()
                raise

    def _wake_next(self):
        with self._news_lock:
            self._news.notify()

    def call_off(self):
        """It is closed: nobody waits any longer, or begins."""
        with self._news_lock:
            self.closed = True
            self._news.notify_all()
