"""How fast the answers to RDMA READs go to one destination adapter, over all flows of this one.

An RDMA READ of 60 bytes asks for up to 2 GiB, and nobody acknowledges READ responses.  So the responder, too,
limits what it sends: a burst may leave at once while less than the destination's window is under way, where
what has left counts as received at a rate.  The rate begins low; each further READ that the requester
sends after earlier ones have been answered whole is evidence that it keeps up, and raises it, up to the
double.  A READ whose answer was sent and is asked for again is a loss: it halves the rate and the window's
limit, once for as much as may be under way.  Answers that have to wait for their departure are not sent
earlier, and not twice, when they are asked for again.

Each burst that has to wait gets a moment of its own, in the order of asking (a virtual clock, as of a leaky
bucket), so a thousand queue pairs that wait cost one timer each and no search.  Requests do not wait for
responses nor responses for requests: two adapters that read from each other would each wait for answers that
the other may not give.
"""

from __future__ import annotations

import cython

START_RATE = 500_000
"""Bytes in a millisecond: 4 Gb/s."""

MOST_RATE = 1 << 25
"""More than any path carries."""

LEAST_RATE = 64_000
"""A burst in a millisecond: well within a requester's shortest usual time-outs."""

_START_RATE = cython.declare(cython.ulonglong, START_RATE)
_MOST_RATE = cython.declare(cython.ulonglong, MOST_RATE)
_LEAST_RATE = cython.declare(cython.ulonglong, LEAST_RATE)
_NS_PER_MS = cython.declare(cython.ulonglong, 1_000_000)


class ResponsePacing:
    """The pace of READ responses towards one destination, whose window lets ``depth_bytes`` be under way
    and in which a full burst counts ``burst_bytes``, no more than that.

    ``rate`` in bytes a millisecond; ``free_ns``: when all that has left, and all that was given a moment to
    leave, will have been received at that rate; ``answered_bytes`` went in whole answers since the last
    evidence; ``excused_bytes``: so much leaves before another loss counts.
    """

    def __init__(self, burst_bytes: int) -> None:
        self.burst_bytes = burst_bytes
        self.rate = _START_RATE
        self.free_ns = 0
        self.answered_bytes = 0
        self.excused_bytes = 0

    def departure(self, depth_bytes: int, now: int) -> int:
        """When a burst that wants to leave at ``now`` may do so.  It counts as sent, a full one, until `sent`
        tells what it was."""
        begin: cython.ulonglong = max(now, self.free_ns)
        ahead: cython.ulonglong = self.time_of(depth_bytes - self.burst_bytes)
        self.free_ns = begin + self.time_of(self.burst_bytes)
        return max(now, begin - min(ahead, begin))

    def sent(self, cost_bytes: int) -> None:
        """The burst that may leave has left, and costs its receiver ``cost_bytes``; more than a full one
        counts as one."""
        self.free_ns -= min(self.free_ns, self.time_of(self.burst_bytes - min(cost_bytes, self.burst_bytes)))
        self.excused_bytes -= min(self.excused_bytes, cost_bytes)

    def answered(self, length_bytes: int) -> None:
        """An answer of ``length_bytes`` has left whole."""
        self.answered_bytes += length_bytes

    def asked_on(self, depth_bytes: int) -> None:
        """A new READ has come: its requester keeps up with what has been answered."""
        if self.answered_bytes:
            self.rate += self.rate * min(self.answered_bytes, depth_bytes) // depth_bytes
            self.rate = min(self.rate, _MOST_RATE)
            self.answered_bytes = 0

    def lost(self, depth_bytes: int) -> bool:
        """What has left is asked for again; whether that says something new."""
        self.answered_bytes = 0
        if self.excused_bytes:
            return False
        self.excused_bytes = depth_bytes
        self.rate = max(self.rate // 2, _LEAST_RATE)
        return True

    def time_of(self, length_bytes: int) -> int:
        """How long ``length_bytes`` take, in ns."""
        return length_bytes * _NS_PER_MS // self.rate
