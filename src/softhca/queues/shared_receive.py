"""Shared receive queues: receive work for many queue pairs, with a limit event (IBTA vol. 1, 10.2.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from softhca.queues.ring import RingConsumer

if TYPE_CHECKING:
    from softhca.queues.completion import CompletionQueue
    from softhca.queues.ring import RingLayout
    from softhca.queues.wqe import ReceiveWork

    class Notified(Protocol):
        """Who is notified of what has become of a queue."""

        def limit_reached(self, srq: SharedReceiveQueue) -> object: ...
        def srq_error(self, srq: SharedReceiveQueue) -> object: ...


class SharedReceiveQueue:
    """The adapter's half.  Work is taken in the order in which it was posted.

    ``notify_hook`` has ``limit_reached(srq)``, called once when fewer than ``limit`` work requests are
    left, which disarms the limit (sets it to 0), and ``srq_error(srq)``, called once when the host broke
    the ring.  ``cq`` takes the completions of a queue of an XRC domain; the others' go where the queue pairs'
    do (None).
    """

    def __init__(
        self,
        number: int,
        pd: int,
        layout: RingLayout,
        max_sge: int,
        notify_hook: Notified,
        cq: CompletionQueue | None = None,
    ) -> None:
        self.number = number
        self.cq = cq
        self.pd = pd
        self.max_sge = max_sge
        self.notify_hook = notify_hook
        self.consumer = RingConsumer(layout)
        self.limit = 0
        self.failed = False

    def take(self, work: ReceiveWork) -> bool:
        """Load the next work request into ``work`` (``work.status`` says whether it is well-formed).

        False: there is none.  The request's room in the ring is free at once, for ``work`` keeps a copy.
        """
        if work.fetch(self.consumer) <= 0:
            if self.consumer.broken:
                self.fail()
            return False
        self.consumer.release(1)
        if self.limit:
            self.check_limit()
        return True

    def set_limit(self, limit: int) -> None:
        """Arm the limit event (0: none); it fires at once where fewer are queued already."""
        self.limit = limit
        if limit:
            self.check_limit()

    def check_limit(self) -> None:
        """Tell once when what is left has fallen below the limit."""
        left = self.consumer.count()
        if left < 0:
            self.fail()
        elif left < self.limit:
            self.limit = 0
            self.notify_hook.limit_reached(self)

    def count(self) -> int:
        """Work requests that are queued; 0 for a broken ring."""
        left = self.consumer.count()
        return left if left > 0 else 0

    def fail(self) -> None:
        """Tell once that the ring is unusable."""
        if not self.failed:
            self.failed = True
            self.notify_hook.srq_error(self)
