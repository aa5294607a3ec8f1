"""The engines of a queue pair that has carried nothing yet.

A connected queue pair that only waits is most of what a large server has.  What its service needs to send or
to receive (rings of answers, lists of requests, buffers) is made when the first work request or packet comes:
`QueuePair.send_engine` and `receive_engine` put the real engine in place of this one and tell it the
attributes that were set meanwhile; whoever wants more of an engine than the inputs and outputs below asks
for it by them.

With that call the queue pair lets the object here go, so nothing of it is touched behind the call.
"""

from softhca.transport.engines import ReceiveEngine, SendEngine


class DormantSender(SendEngine):
    """Stands for the send engine, and has nothing but its place."""

    def __init__(self, qp):
        self.qp = qp

    def waiting(self):
        """Whether there is a work request, or the ring is broken: then the real engine must see to it."""
        return self.qp.send_ring is not None and self.qp.send_ring.count() != 0

    def receive(self, view, arrival, now):
        self.qp.send_engine().receive(view, arrival, now)

    def produce(self, burst, now):
        if self.waiting():
            return self.qp.send_engine().produce(burst, now)
        return 0

    def doorbell(self, now):
        if self.waiting():
            self.qp.send_engine().doorbell(now)

    def start(self, now):
        self.doorbell(now)

    def flush(self):
        if self.waiting():
            self.qp.send_engine().flush()

    def reset(self):
        if self.waiting():
            self.qp.send_engine().reset()


class DormantReceiver(ReceiveEngine):
    """Stands for the receive engine, likewise."""

    def __init__(self, qp):
        self.qp = qp

    def waiting(self):
        """As for the send engine, of receives."""
        return self.qp.receive_ring is not None and self.qp.receive_ring.count() != 0

    def receive(self, view, arrival, now):
        self.qp.receive_engine().receive(view, arrival, now)

    def receive_raw(self, view, arrival, now):
        self.qp.receive_engine().receive_raw(view, arrival, now)

    def flush(self):
        if self.waiting():
            self.qp.receive_engine().flush()

    def reset(self):
        if self.waiting():
            self.qp.receive_engine().reset()
