"""Delayed acknowledgement: the ACK of a message may wait for the reply, so that both share a system call.

In a ping-pong a consumer polls, finds a single message and answers it at once.  A delayed ACK is sent after
that reply in the same system call, and not before it in a call of its own.  The engine cannot know that a
reply will come.  So it delays ACKs only for a flow that answered the last ``QUICK_REPLIES`` messages within
``QUICK_NS`` and before the next poll.  After one message without a quick reply the count begins anew.

The wait ends at the reply, at the consumer's next poll, at a command, or after ``limit_ns``.  There is no
clock and no thread here: the caller that drives the engine reports what happens, and asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from softhca.transport.flow import Flow

__all__ = ["NEVER", "QUICK_NS", "QUICK_REPLIES", "DelayedAcknowledgement"]

NEVER = (1 << 63) - 1

QUICK_REPLIES = 8
"""After so many quick replies in a row the acknowledgement of the next message waits."""

QUICK_NS = 20_000
"""A reply within this time is quick."""

_NEVER = cython.declare(cython.ulonglong, NEVER)
_QUICK_REPLIES = cython.declare(cython.uint, QUICK_REPLIES)
_QUICK_NS = cython.declare(cython.ulonglong, QUICK_NS)


class DelayedAcknowledgement:
    """``flow``: the one whose message came last, until its consumer has answered or polled; ``waits``: the
    acknowledgement of that message is held back, and nothing else is to be sent."""

    flow: Flow

    def __init__(self, limit_ns: int = NEVER) -> None:
        self.limit_ns = limit_ns
        self.flow = None
        self.received_ns = 0
        self.waits = False

    def received(self, flow: Flow, now: int) -> bool:
        """A single message came for ``flow`` (None: something else is to be sent too): whether its
        acknowledgement waits."""
        self.flow = flow
        self.received_ns = now
        self.waits = flow is not None and flow.quick_replies >= _QUICK_REPLIES
        return self.waits

    def posted(self, replies: bool, now: int) -> None:
        """The consumer has posted requests, which are about to be sent.  ``replies``: on the message's
        flow."""
        if replies and now - self.received_ns <= _QUICK_NS:
            if self.flow.quick_replies < _QUICK_REPLIES:
                self.flow.quick_replies += 1
        else:
            self.flow.quick_replies = 0
        self.flow = None
        self.waits = False

    def end(self) -> bool:
        """Stop waiting for a reply: whether an acknowledgement waited and is to be sent now."""
        waited: cython.bint = self.waits
        if self.flow is not None:
            self.flow.quick_replies = 0
            self.flow = None
        self.waits = False
        return waited

    def overdue(self, now: int) -> bool:
        """Whether an acknowledgement has waited for its time limit without a sign of the consumer."""
        return self.flow is not None and now - self.received_ns > self.limit_ns

    def deadline(self) -> int:
        """When the waiting acknowledgement must be sent at the latest; ``NEVER`` when none waits."""
        if not self.waits:
            return _NEVER
        return self.received_ns + self.limit_ns
