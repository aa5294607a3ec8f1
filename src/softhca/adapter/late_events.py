"""Events for completions that stood in their queue already when a program armed it.

The standard promises an event for the next completion after a request alone (IBTA vol. 1, 11.4.2.2), so a
program polls once more after it has armed a queue, and loses nothing.  NICs that are told with the request
how far the program has read (mlx5) have an event for older ones too, and programs that were written with
these alone (UCX's wake-up, accelio) arm and go to sleep.  For these the adapter looks, some time after it
has posted, whether a queue is armed while entries stand in it that its program does not take.  Who polls
after arming has taken them by then, and never sees a difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from softhca.queues.layout import ARM_NEXT
from softhca.transport.flow import Flow

if TYPE_CHECKING:
    from softhca.adapter.engine import Adapter
    from softhca.queues.completion import CompletionQueue

LOOK_NS = 1_000_000
"""Between two looks at a queue whose program takes entries, or has armed it."""
MOST_NS = 1 << 30
"""Between two looks at a queue in which nothing happens: each time twice as long, up to this."""


class LateEvents(Flow):
    """Looks after ``cq``, a completion queue of ``adapter`` with an event channel.  As a flow it has a timer,
    and sends nothing.  It rests while the queue is empty; ``close`` ends it, with the queue.
    """

    def __init__(self, adapter: Adapter, cq: CompletionQueue) -> None:
        Flow.__init__(self, adapter, cq.number)
        self._adapter = adapter
        self._cq = cq
        self._due_ns = self._interval_ns = 0
        self._taken = 0
        self._was_armed = False
        cq.watcher = self

    def begin(self) -> None:
        """A completion was posted; from now on this looks at the queue until it finds it empty."""
        self._was_armed = False
        self._interval_ns = LOOK_NS
        self._due_ns = 0  # the next look may be far away, where nothing has happened in the queue for long
        self._look_again(self._adapter.now)

    def close(self) -> None:
        """The queue is destroyed: its ring may be no more."""
        self.closed = True
        self._cq.watcher = None
        self._adapter.timers.disarm(self)

    def expire(self, now: int) -> None:
        """Give the event where the queue was armed in two looks, and nothing was taken between them."""
        cq = self._cq
        if now < self._due_ns:
            self._look_again(now)
            return
        unread = cq.producer.count()
        if not unread or cq.producer.broken:
            cq.watcher = self
            return
        taken = cq.posted - unread
        armed = cq.armed == ARM_NEXT
        if armed and self._was_armed and taken == self._taken:
            cq.fire(ARM_NEXT)
            armed = False
        if armed or taken != self._taken:
            self._interval_ns = LOOK_NS
        else:
            self._interval_ns = min(2 * self._interval_ns, MOST_NS)
            cq.watcher = self
        self._was_armed, self._taken = armed, taken
        self._due_ns = 0
        self._look_again(now)

    def _look_again(self, now: int) -> None:
        if self._due_ns <= now:
            self._due_ns = now + self._interval_ns
        self.environment.arm(self, self._due_ns)
