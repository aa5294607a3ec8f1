"""When a reliable requester sends again, and how often (IBTA vol. 1, 9.7.6.1 and 9.7.5.2.8).

* Transport timer: T = 4.096 µs × 2^timeout, timeout 0 means none.  The standard lets it fire between T and
  4 T; here it is set to 2 T, restarted by every acknowledgement that brings progress.
* ``retry_cnt`` retries for time-outs, sequence errors and implied NAKs together, counted anew after
  progress, and after an RNR NAK of the oldest packet, for then it has arrived; 7 is 7.
* Who waits for room in the window with nothing in flight has a *persist timer*: after an interval, and
  `window.STALL_NS` at least, in which the window has heard nothing, one packet goes beyond it.  So does
  one after a time-out; its retries are counted as always.
* RNR NAKs bring their own delay; ``rnr_retry`` of them in a row are accepted, 7 means any number.
* One attempt to have the oldest packet answered costs one retry, of one kind, however many answers it gets.
  A responder says nothing to what follows a packet that it has refused with an RNR NAK (9.7.5.2.8); those
  that do, with a sequence NAK of the same PSN, say nothing new, whenever that arrives.
* An answer that finds its place in memory held is dropped, and asked for again without a retry being spent.
"""

from __future__ import annotations

from array import array

import cython

from softhca.transport.window import STALL_NS
from softhca.wire.psn import distance

TIMER_UNIT_NS = 4_096
TIMER_FACTOR = 2
RNR_RETRY_INFINITE = 7

# Delay that an RNR NAK's timer field asks for (IBTA table 45)
_RNR_TIMER_US = (
    655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920,
    2_560, 3_840, 5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880,
    163_840, 245_760, 327_680, 491_520,
)  # fmt: skip
RNR_TIMER_NS: tuple[int, ...] = tuple([microseconds * 1_000 for microseconds in _RNR_TIMER_US])
IN_FLIGHT_ENTRIES = 64

_STALL_NS = cython.declare(cython.ulonglong, STALL_NS)
_IN_FLIGHT_ENTRIES = cython.declare(cython.uint, IN_FLIGHT_ENTRIES)
_LAST_ENTRY = cython.declare(cython.uint, IN_FLIGHT_ENTRIES - 1)
_COST_BITS = cython.declare(cython.int, 40)
_COST = cython.declare(cython.ulonglong, (1 << 40) - 1)


def interval_ns(timeout: int) -> int:
    """Retransmission interval in ns of an attribute ``timeout`` 0…31; 0 where there is none."""
    return (TIMER_UNIT_NS << timeout) * TIMER_FACTOR if timeout else 0


class RetryState:
    """The timer and the two retry counters of a requester.  ``deadline_ns`` is 0 while nothing is awaited.

    ``persisting``: the timer is the persist timer, nothing is in flight.
    """

    def __init__(self) -> None:
        self.interval_ns = 0
        self.deadline_ns = 0
        self.retry_count = 0
        self.rnr_retry = 0
        self.retries_left = 0
        self.rnr_retries_left = 0
        self.persisting = False

    def configure(self, timeout: int, retry_count: int, rnr_retry: int) -> None:
        """Take the attributes ``timeout``, ``retry_cnt`` and ``rnr_retry``; counters start anew where one of
        them is another than before: who changes something else hears no sooner or later of a dead peer."""
        interval: cython.ulonglong = interval_ns(timeout)
        if interval == self.interval_ns and retry_count == self.retry_count and rnr_retry == self.rnr_retry:
            return
        self.interval_ns = interval
        self.retry_count = retry_count
        self.rnr_retry = rnr_retry
        self.progress()

    def restart(self, now: int) -> None:
        """Something is awaited from ``now`` on."""
        self.persisting = False
        self.deadline_ns = now + self.interval_ns if self.interval_ns else 0

    def persist(self, now: int) -> None:
        """Room in the window is awaited from ``now`` on, with nothing in flight."""
        self.restart(now)
        if self.deadline_ns:
            self.persisting = True
            self.deadline_ns = now + max(self.interval_ns, _STALL_NS)

    def progress(self) -> None:
        """The responder has acknowledged something new: all retries are available again."""
        self.retries_left = self.retry_count
        self.rnr_retries_left = self.rnr_retry

    def stop(self) -> None:
        """Nothing is awaited any more."""
        self.deadline_ns = 0
        self.persisting = False

    def spend_retry(self) -> bool:
        """True when one more retry was left."""
        if self.retries_left == 0:
            return False
        self.retries_left -= 1
        return True

    def spend_rnr_retry(self) -> bool:
        """True when one more RNR retry was left: those for packets that do not arrive are all there again."""
        self.retries_left = self.retry_count
        if self.rnr_retry == RNR_RETRY_INFINITE:
            return True
        if self.rnr_retries_left == 0:
            return False
        self.rnr_retries_left -= 1
        return True

    def delay(self, timer: int, now: int) -> None:
        """The delay of the RNR NAK's ``timer`` field runs."""
        self.persisting = False
        self.deadline_ns = now + RNR_TIMER_NS[timer & 31]


class InFlightTable:
    """What a requester has charged to its destination's window, by the PSN whose acknowledgement gives it
    back.

    Bounded: when all places are taken the newest entry is widened, so its bytes come back a little later.
    What was charged in another ``epoch`` of the window than the one asked for is not to be given back.
    An entry is one word: ``last_psn`` in the upper 24 bits, the cost below.
    """

    def __init__(self) -> None:
        if not cython.compiled:
            self.entries = array("Q", bytes(8 * IN_FLIGHT_ENTRIES))
        self.head = 0
        self.count = 0
        self.epoch = 0

    def push(self, last_psn: int, cost_bytes: int, epoch: int, joined: bool = False) -> None:
        """``cost_bytes`` are in flight until ``last_psn`` is acknowledged; ``joined``: together with what was
        pushed last, one entry for both."""
        place: cython.uint
        if epoch != self.epoch:
            self.count = 0
            self.epoch = epoch
        if self.count and (joined or self.count == _IN_FLIGHT_ENTRIES):
            place = (self.head + self.count - 1) & _LAST_ENTRY
            cost_bytes += self.entries[place] & _COST
        else:
            place = (self.head + self.count) & _LAST_ENTRY
            self.count += 1
        self.entries[place] = cython.cast(cython.ulonglong, last_psn) << _COST_BITS | cost_bytes

    def pop(self) -> int:
        """The oldest entry is over: its cost."""
        cost: cython.ulonglong = self.entries[self.head] & _COST
        self.head = (self.head + 1) & _LAST_ENTRY
        self.count -= 1
        return cost

    def settle(self, una_psn: int, epoch: int) -> int:
        """Bytes to give back now that everything before ``una_psn`` is acknowledged."""
        settled: cython.ulonglong = 0
        if epoch != self.epoch:
            self.count = 0
        while self.count and distance(self.entries[self.head] >> _COST_BITS, una_psn) > 0:
            settled += self.pop()
        return settled

    def clear(self, epoch: int) -> int:
        """Bytes to give back because all of it is given up."""
        settled: cython.ulonglong = 0
        while self.count:
            settled += self.pop()
        return settled if epoch == self.epoch else 0

    def given_up(self, epoch: int) -> bool:
        """Whether the window has given up what is in flight here, and nothing has come back since."""
        return self.count != 0 and epoch != self.epoch
