"""Packet pacing: what a queue pair sends keeps to the rate that its consumer has set
(``ibv_modify_qp_rate_limit``).

The contract
------------
A limit is a token bucket of bits.  What leaves in any stretch of time is no more than the rate carries in it
and one burst.  So n bytes take n · 8 / rate, but for the first burst, which waits for nothing.

* *Rate*: kilobits a second (10^3 bits), ``LEAST_RATE_KBPS`` … ``MOST_RATE_KBPS``.  No limit is no
  `PacketPacing`.
* *What counts*: packets as they stand in a burst: BTH … ICRC over RoCE, LRH … VCRC on native links, also
  those that are sent again, and answers to RDMA READs.  Acknowledgements wait for nothing.  Ethernet frames
  count as their sender wrote them, once, however many adapters they go to (`FramePacing`).
* *Burst*: ``max_burst_bytes`` as given, but one packet may always go.  0: what the rate carries in
  ``DEPTH_NS`` and one turn's packets.
* *Lateness*: who drives the adapter may be late.  What was not sent meanwhile is made up for as long as it
  fits into a burst.  A burst of less than two packets of the largest kind (`WHOLE_BYTES`) leaves no room for
  that: then the rate is a little less than the limit.

A pacer is asked and told as a congestion control is (`softhca.transport.congestion`), for the same flow, and
whichever allows less decides (`Both`).
"""

from __future__ import annotations

import cython

from softhca.transport.congestion import CongestionControl
from softhca.wire.burst import CAPACITY

LEAST_RATE_KBPS = 8
"""A byte a millisecond."""
MOST_RATE_KBPS = 100_000_000
DEPTH_NS = 1_000_000
"""Lateness that is made up for where no length of bursts is given."""
TURN_NS = 100_000
"""No turn sends more than the rate carries in that time, but one packet, where no length is given."""
WHOLE_BYTES = 20_000
"""A burst of so much holds two packets or frames of any length."""

_MAX_BURST = cython.declare(cython.ulonglong, CAPACITY)
_NS_KBPS = cython.declare(cython.ulonglong, 8_000_000)  # a byte at 1 kbit/s, in ns
_DEPTH_NS = cython.declare(cython.ulonglong, DEPTH_NS)
_TURN_NS = cython.declare(cython.ulonglong, TURN_NS)
_WHOLE = cython.declare(cython.ulonglong, WHOLE_BYTES)


class PacketPacing(CongestionControl):
    """The limit of one flow: ``rate_kbps``, and ``max_burst_bytes`` as it was given.

    ``free_ns`` is when all that was sent has had its time at this rate, and ``turn_limit_bytes`` how much a
    turn may send, ``slack_ns`` before that moment.
    """

    def __init__(self, rate_kbps: int, max_burst_bytes: int = 0) -> None:
        turn: cython.ulonglong
        self.rate_kbps = rate_kbps
        self.max_burst_bytes = max_burst_bytes
        self.free_ns = 0
        self.rest = 0
        if max_burst_bytes == 0:
            turn = rate_kbps * _TURN_NS // _NS_KBPS
            self.slack_ns = _DEPTH_NS
        else:
            turn = max_burst_bytes // 2 if max_burst_bytes >= _WHOLE else max_burst_bytes
            turn = min(turn, _MAX_BURST)
            self.slack_ns = (max_burst_bytes - turn) * _NS_KBPS // self.rate_kbps
        self.turn_limit_bytes = max(1, min(turn, _MAX_BURST))

    def departure(self, now: int) -> int:
        return self.free_ns - self.slack_ns if self.free_ns > self.slack_ns else 0

    def burst_limit(self) -> int:
        return self.turn_limit_bytes

    def sent(self, length_bytes: int, packets: int, now: int) -> None:
        self.spend(length_bytes, now)

    def spend(self, length_bytes: int, now: int) -> None:
        """So many bytes have left: nothing of the division is lost, so the rate is right to the bit."""
        product: cython.ulonglong
        if self.free_ns < now:
            self.free_ns = now
            self.rest = 0
        product = length_bytes * _NS_KBPS + self.rest
        self.free_ns += product // self.rate_kbps
        self.rest = product % self.rate_kbps

    def admits(self, frame_bytes: int) -> bool:
        """Whether another frame may be taken in this turn; of others than frames that is not asked."""
        return True

    def frame(self, frame_bytes: int, now: int) -> None:
        """A frame was taken; the same."""


class FramePacing(PacketPacing):
    """The limit of a queue pair of Ethernet frames, whose sender says what it has taken: a frame may go to
    many adapters, or none."""

    def __init__(self, rate_kbps: int, max_burst_bytes: int = 0) -> None:
        PacketPacing.__init__(self, rate_kbps, max_burst_bytes)
        self.turn_bytes = 0

    def departure(self, now: int) -> int:
        self.turn_bytes = 0
        return PacketPacing.departure(self, now)

    def burst_limit(self) -> int:
        return _MAX_BURST

    def sent(self, length_bytes: int, packets: int, now: int) -> None:
        pass

    def admits(self, frame_bytes: int) -> bool:
        return self.turn_bytes == 0 or self.turn_bytes + frame_bytes <= self.turn_limit_bytes

    def frame(self, frame_bytes: int, now: int) -> None:
        self.turn_bytes += frame_bytes
        self.spend(frame_bytes, now)


class Both(CongestionControl):
    """Congestion control and a limit: whichever allows less decides."""

    def __init__(self, control: CongestionControl, pacing: PacketPacing) -> None:
        self.control = control
        self.pacing = pacing

    def departure(self, now: int) -> int:
        return max(self.control.departure(now), self.pacing.departure(now))

    def burst_limit(self) -> int:
        return min(self.control.burst_limit(), self.pacing.burst_limit())

    def sent(self, length_bytes: int, packets: int, now: int) -> None:
        self.control.sent(length_bytes, packets, now)
        self.pacing.sent(length_bytes, packets, now)
