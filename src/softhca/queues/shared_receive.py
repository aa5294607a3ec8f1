"""Shared receive queues: receive work for many queue pairs, with a limit event (IBTA vol. 1, 10.2.9)."""

from softhca.queues.ring import RingConsumer


class SharedReceiveQueue:
    """The adapter's half.  Work is taken in the order in which it was posted.

    ``notify_hook`` has ``limit_reached(srq)``, called once when fewer than ``limit`` work requests are
    left, which disarms the limit (sets it to 0), and ``srq_error(srq)``, called once when the host broke
    the ring.
    """

    def __init__(self, number, pd, layout, max_sge, notify_hook):
        self.number = number
        self.pd = pd
        self.max_sge = max_sge
        self.notify_hook = notify_hook
        self.consumer = RingConsumer(layout)
        self.limit = 0
        self.failed = False

    def take(self, work):
        """Load the next work request into ``work`` (``work.status`` tells whether it is well-formed).

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

    def set_limit(self, limit):
        """Arm the limit event (0: none); it fires at once where fewer are queued already."""
        self.limit = limit
        if limit:
            self.check_limit()

    def check_limit(self):
        """Tell once when what is left has fallen below the limit."""
        left = self.consumer.count()
        if left < 0:
            self.fail()
        elif left < self.limit:
            self.limit = 0
            self.notify_hook.limit_reached(self)

    def count(self):
        """Work requests that are queued; 0 for a broken ring."""
        left = self.consumer.count()
        return left if left > 0 else 0

    def fail(self):
        """Tell once that the ring is unusable."""
        if not self.failed:
            self.failed = True
            self.notify_hook.srq_error(self)
