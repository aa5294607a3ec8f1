"""What a queue pair asks of its two engines, whatever its service: the send engine carries requests out, the
receive engine executes and answers those of the peer.

Every method returns at once, raises nothing on hostile input and is called by one thread at a time.
"""


class SendEngine:
    """Sends the requests of a source (`sending.RequestSource`) and takes the answers to them."""

    def receive(self, view, arrival, now):
        """Take the answer that ``view`` has decoded and whose bytes stand in ``arrival``."""

    def produce(self, burst, now):
        """Write packets into the empty ``burst``, or (RC) behind those of other queue pairs along the same
        route; how many (0: nothing may be sent now, or there is no place for it)."""
        return 0

    def expire(self, now):
        """A deadline asked of the environment may have come; an early call does no harm."""

    def resume(self, now):
        """Memory for which this engine has asked `Environment.wait_for_memory` may be there again."""

    def doorbell(self, now):
        """There may be new work requests in the ring."""

    def begin(self, psn):
        """The attribute ``sq_psn`` has been given."""

    def start(self, now):
        """The queue pair has entered a state in which this engine works, or its attributes have changed."""

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

    def drained(self):
        """True when nothing that was begun is unfinished."""
        return True


class ReceiveEngine:
    """Takes requests and messages of the peer; where these go a sink says (`receiving.MessageSink`)."""

    def receive(self, view, arrival, now):
        """Take the packet that ``view`` has decoded and whose bytes stand in ``arrival``."""

    def receive_raw(self, view, arrival, now):
        """Take the raw datagram that ``view`` has decoded and whose bytes stand in ``arrival``."""

    def produce(self, burst, now):
        """Write answers as `SendEngine.produce` writes requests."""
        return 0

    def expire(self, now):
        """A deadline asked of the environment may have come; an early call does no harm."""

    def resume(self, now):
        """Memory for which this engine has asked `Environment.wait_for_memory` may be there again."""

    def begin(self, psn):
        """The attribute ``rq_psn`` has been given."""

    def start(self, now):
        """The queue pair has entered a state in which this engine works, or its attributes have changed."""

    def flush(self):
        """Complete the receives as flushed and forget what is under way; as `SendEngine.flush`."""

    def reset(self):
        """Forget everything, without completions; what the ring holds is dropped."""

    def has_work(self):
        """True when `produce` may have something to send."""
        return False

    def may_delay_ack(self):
        """True when this engine has something to send, and all of it may wait a moment to go behind what the
        send engine sends."""
        return False

    def join(self, burst, now):
        """Write behind the packets of the send engine in ``burst`` what may go there and fits; how many
        packets."""
        return 0
