"""What takes several calls and is one thread's from the first to the last: a round of polling, a batch."""

import threading
from collections.abc import Callable


class Turn:
    """Nobody's at first."""

    __slots__ = ("_news", "_thread")

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._thread = 0

    @property
    def mine(self) -> bool:
        """Whether it is this thread's."""
        return self._thread == threading.get_ident()

    def begin(self, is_open: Callable[[], bool]) -> None:
        """Make it this thread's; waits while it is another one's, as libibverbs does, and no longer than
        ``is_open()`` is true.
        """
        with self._news:
            while self._thread and is_open():
                self._news.wait()
            if is_open():
                self._thread = threading.get_ident()

    def end(self) -> None:
        """It is nobody's again, if it was this thread's."""
        with self._news:
            if self.mine:
                self._thread = 0
                self._news.notify()

    def call_off(self) -> None:
        """It is closed: nobody waits any longer."""
        with self._news:
            self._news.notify_all()
