"""The halves of a queue pair that has carried nothing yet.

A connected queue pair that only waits is most of what a large server has.  What its service needs to send or
to receive (rings of answers, lists of requests, buffers) is made when the first work request or packet comes:
`QueuePair.wake` puts the real half in place of this one and tells it the attributes that were set meanwhile.
Whoever wants more of a half than the inputs and outputs below asks for the real one (`send_engine`,
`receive_engine`).
"""

from softhca.transport.halves import Half


class DormantHalf(Half):
    """Stands for either half, and has nothing but its place."""

    def __init__(self, qp, sends):
        self.qp = qp
        self.sends = sends

    def waiting(self):
        """Whether there is a work request here, or the ring is broken: then the real half must see to it."""
        ring = self.qp.send_ring if self.sends else self.qp.receive_ring
        return ring is not None and ring.count() != 0

    def real(self):
        """The half that takes this one's place, from now on the queue pair's."""
        # Nothing of this object may be touched behind the call: the queue pair has let it go.
        qp = self.qp
        sends = self.sends
        return qp.send_engine() if sends else qp.receive_engine()

    def receive(self, view, arrival, now):
        self.real().receive(view, arrival, now)

    def receive_raw(self, view, arrival, now):
        self.real().receive_raw(view, arrival, now)

    def produce(self, burst, now):
        if self.sends and self.waiting():
            return self.real().produce(burst, now)
        return 0

    def doorbell(self, now):
        if self.waiting():
            self.real().doorbell(now)

    def start(self, now):
        if self.sends:
            self.doorbell(now)

    def flush(self):
        if self.waiting():
            self.real().flush()

    def reset(self):
        if self.waiting():
            self.real().reset()
