"""The end-to-end context error cache of an adapter: send work requests that wait on a failing EE context.

A send queue of reliable datagrams carries out its work requests in order, one at a time.  Without the cache a
request whose EE context does not get through would keep all that stand behind it, wherever they go, for as
long as the retries last.  With it, such a request is *set aside*: the cache holds it, and its queue goes on
with the next one.  The request itself stays with its EE context, which goes on trying; what ended meanwhile
is known in its queue, and completes in the order in which it was posted.

The cache holds ``capacity`` requests of all queues together.  One that finds it full is not set aside: its
queue waits, as it would without a cache, until the request ends or a place in the cache is free; queues get
these in the order in which they began to wait.  A capacity of 0 is no cache at all.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any


class EeErrorCache:
    """``set_aside`` counts requests that were set aside, ``refused`` those that found it full; ``most`` were
    in it together."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.entries: set[Any] = set()
        self.queues: OrderedDict[Any, None] = OrderedDict()
        self.set_aside = 0
        self.refused = 0
        self.most = 0

    def put(self, message: Any) -> bool:
        """Set a message (`rd_sending.RdMessage`) aside; False, and its queue waits for a place, where there
        is none."""
        if len(self.entries) >= self.capacity:
            if self.capacity:
                self.refused += 1
                self.queues[message.queue] = None
            return False
        self.entries.add(message)
        message.aside = True
        self.set_aside += 1
        self.most = max(self.most, len(self.entries))
        return True

    def remove(self, message: Any) -> None:
        """A message that was set aside has ended: the queue that waits longest may have its place."""
        self.entries.discard(message)
        message.aside = False
        while self.queues and len(self.entries) < self.capacity:
            queue, _ = self.queues.popitem(last=False)
            queue.place_free()

    def forget(self, queue: Any) -> None:
        """A queue waits no more."""
        self.queues.pop(queue, None)

    def figures(self) -> dict[str, int]:
        """By the names of counters."""
        return {
            "ee_error_cache_entries": len(self.entries),
            "ee_error_cache_most": self.most,
            "ee_error_cache_refused": self.refused,
            "ee_error_cache_set_aside": self.set_aside,
        }
