"""Queue pairs that wait for registered memory: each is tried again when its time has come, or all at once.

A queue pair stands here at most once, so the list is as long as there are queue pairs at most, and every
operation costs O(1).
"""

from collections import OrderedDict

import cython

from softhca.adapter.timers import NEVER
from softhca.transport.environment import HELD_RETRY_NS

_NEVER = cython.declare(cython.ulonglong, NEVER)
_RETRY_NS = cython.declare(cython.ulonglong, HELD_RETRY_NS)


class HeldQueuePairs:
    """``next_ns``: when the first one is due, ``NEVER`` for none."""

    def __init__(self):
        self.waiting = OrderedDict()
        self.next_ns = _NEVER

    def __len__(self):
        return len(self.waiting)

    def put(self, queue_pair, now):
        """Have ``queue_pair`` tried again ``HELD_RETRY_NS`` from ``now``; free when it waits already."""
        if queue_pair.number in self.waiting:
            return
        self.waiting[queue_pair.number] = (now + _RETRY_NS, queue_pair)
        self._first()

    def remove(self, queue_pair):
        """Forget ``queue_pair``; free when it does not wait."""
        if self.waiting.pop(queue_pair.number, None) is not None:
            self._first()

    def due(self, now):
        """Those whose time has come, in the order in which they were put; they wait no more."""
        found: list = []
        while self.next_ns <= now:
            _, (_, queue_pair) = self.waiting.popitem(last=False)
            found.append(queue_pair)
            self._first()
        return found

    def all(self):
        """All of them, in that order; they wait no more."""
        found = [queue_pair for _, queue_pair in self.waiting.values()]
        self.waiting.clear()
        self.next_ns = _NEVER
        return found

    def _first(self):
        self.next_ns = _NEVER
        for due_ns, _ in self.waiting.values():
            self.next_ns = due_ns
            return
