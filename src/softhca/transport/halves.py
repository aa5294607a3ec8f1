"""The shape that both halves of a queue pair have: the send side and the receive side, of every service."""


class Half:
    """One side of a queue pair.  Every method returns at once, raises nothing on hostile input and is
    called by one thread at a time."""

    def receive(self, view, arrival, now):
        """Take the packet that ``view`` has decoded and whose bytes stand in ``arrival``."""

    def produce(self, burst, now):
        """Write packets into the empty ``burst``, or (RC) behind those of other queue pairs along the same
        route; how many (0: nothing may be sent now, or there is no place for it)."""
        return 0

    def expire(self, now):
        """A deadline asked of the environment may have come; an early call does no harm."""

    def resume(self, now):
        """Memory for which this half has asked `Environment.hold` may be there again."""

    def doorbell(self, now):
        """There may be new work requests in the ring."""

    def begin(self, psn):
        """The attribute ``sq_psn`` (send side) or ``rq_psn`` (receive side) has been given."""

    def start(self, now):
        """The queue pair has entered a state in which this half works, or its attributes have changed."""

    def flush(self):
        """Complete what is queued as flushed and forget what is under way; new work requests as well.

        One call completes no more than the queue holds, for the consumer may post as fast; when there may be
        more it asks for a turn, in which it is called again.
        """

    def reset(self):
        """Forget everything, without completions; what the ring holds is dropped."""

    def leave_window(self):
        """Give the destination's window back what is in flight, for the destination changes."""

    def has_work(self):
        """True when `produce` may have something to send."""
        return False

    def may_tarry(self):
        """True when this half has something to send, and all of it may wait a moment to go behind what the
        other half sends."""
        return False

    def join(self, burst, now):
        """Write behind the packets of the other half in ``burst`` what may go there and fits; how many
        packets."""
        return 0

    def receive_raw(self, view, arrival, now):
        """Take the raw datagram that ``view`` has decoded and whose bytes stand in ``arrival``."""

    def drained(self):
        """True when nothing that was begun is unfinished."""
        return True
