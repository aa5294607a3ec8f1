"""When the acknowledgement of a message waits for the reply that takes it along.

In a ping-pong a consumer polls, finds one message alone and answers it at once.  An ACK that waits for that
answer goes behind it, in the same system call, instead of in front of it in one of its own.  Nobody knows
that an answer will come, so a flow has to earn it: ``QUICK_REPLIES`` messages in a row were answered
within ``QUICK_NS`` and before the next poll.  One message without a quick reply, and it begins anew.

The wait ends with the reply, with the consumer's next poll, with a command, or after ``limit_ns``.  No clock
and no thread here: who drives the engine says what happens, and asks.
"""

import cython

__all__ = ["NEVER", "QUICK_NS", "QUICK_REPLIES", "DelayedAcknowledgement"]

NEVER = (1 << 63) - 1

QUICK_REPLIES = 8
"""So many messages in a row a consumer has answered at once: the acknowledgement of the next waits."""

QUICK_NS = 20_000
"""What is at once."""

_NEVER = cython.declare(cython.ulonglong, NEVER)
_QUICK_REPLIES = cython.declare(cython.uint, QUICK_REPLIES)
_QUICK_NS = cython.declare(cython.ulonglong, QUICK_NS)


class DelayedAcknowledgement:
    """``flow`` is the one whose message came last, as long as its consumer has neither answered nor
    polled; ``waits``: nothing but the message's acknowledgement is to be sent, and it is held back."""

    def __init__(self, limit_ns=NEVER):
        self.limit_ns = limit_ns
        self.flow = None
        self.received_ns = 0
        self.waits = False

    def received(self, flow, now):
        """A message for ``flow`` came alone (None: with something else to be sent): whether its
        acknowledgement waits."""
        self.flow = flow
        self.received_ns = now
        self.waits = flow is not None and flow.quick_replies >= _QUICK_REPLIES
        return self.waits

    def posted(self, replies, now):
        """The consumer has posted something, and that is about to be sent.  ``replies``: on the flow of
        the message."""
        if replies and now - self.received_ns <= _QUICK_NS:
            if self.flow.quick_replies < _QUICK_REPLIES:
                self.flow.quick_replies += 1
        else:
            self.flow.quick_replies = 0
        self.flow = None
        self.waits = False

    def end(self):
        """No reply has come so far: whether an acknowledgement waited, which is to be sent now."""
        waited: cython.bint = self.waits
        if self.flow is not None:
            self.flow.quick_replies = 0
            self.flow = None
        self.waits = False
        return waited

    def overdue(self, now):
        """Whether nothing has been heard of the consumer for as long as an acknowledgement may wait."""
        return self.flow is not None and now - self.received_ns > self.limit_ns

    def deadline(self):
        """When the acknowledgement that waits is to be sent at the latest; ``NEVER`` when none does."""
        if not self.waits:
            return _NEVER
        return self.received_ns + self.limit_ns
