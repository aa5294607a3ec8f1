"""Bytes in flight towards one destination adapter, over all flows of this one.

The destination's socket buffer is the scarce thing: a default buffer (212,992 B asked for, 425,984 B by
the kernel's own accounting) takes six bursts of 61,680 B, and whatever overflows it is lost.  So the queue
pairs that talk to one adapter share a window, counted in the bytes that the receiving kernel will account
for.

Theory of operation
-------------------
* *Cost.*  A burst that stays uncut costs its bytes and ``BURST_OVERHEAD_BYTES``; a path on which every
  packet is a datagram of its own costs ``packet_overhead_bytes`` a packet more (the kernel charges
  768–1280 B of bookkeeping).
* *Limit.*  Three full bursts at first, so that both directions of two busy peers fit together.  It grows
  by one burst after ``growth_windows`` full windows were confirmed without a retransmission, never above
  ``maximum_bytes``, and halves when something is lost, never below one burst.
* *Long paths.*  Where round trips take milliseconds most of what is in flight is on its way and not in the
  destination's buffer, and three bursts a round trip are little.  So the limit may grow to
  ``far_maximum_bytes``, if there is one, where the shortest of the last round trips is ``FAR_NS`` at least.
  Only round trips with ``LEAST_SAMPLE_BYTES`` in flight are measured (`RoundTrips`), for a short message says
  nothing about long ones.  As in RFC 5681 there is a slow start, in which the limit grows with every byte
  confirmed while somebody waits for room, and above ``slow_start_threshold_bytes`` (half of what the limit
  was when something was lost) congestion avoidance, in which it grows by single bursts.  A stall is no
  evidence about the path: it is common where virtual machines share processors.
  Traffic whose loss is not reported (datagrams, unreliable connections) and bytes that come back into the
  own buffer (RDMA READ) keep to ``maximum_bytes`` (`near_available`).
* *Waiters.*  A flow that finds no room waits in a FIFO.  An acknowledgement gives the turn to the first
  waiter; when that one has had its turn it passes it on (`pass_on`), so an acknowledgement costs O(1) however
  many wait.  Nobody goes before who has the turn, also when a time-out has given back all that was in flight:
  else one that loses much would send again at once, and have the window for itself until it is done.
* *No deadlock.*  When nothing is in flight and nobody has the turn anything is admitted.  Who has the turn
  and sends nothing for ``stall_ns`` (packet pacing may let it send seldom) loses it.
* *Stalls.*  What a queue pair has sent to a peer that is gone is never answered, and stays charged until the
  queue pair's own time-out, which may be hours away.  So while some wait for room one flow, the ``watcher``,
  checks every ``stall_ns`` whether anything has come back.  If not, what is in flight no longer counts
  (`on_stall`) and one packet goes as a probe: one only, for what is in flight may still stand in the buffer
  of a receiver that waits for a processor, and that buffer has little room beside the six bursts of both
  directions.  One timer serves all waiters; ten thousand timers would each go off several times in one wait.
  If the probe is answered, the limit grows with every byte confirmed to what it was before
  (``recovery_target_bytes``).  If not, the wait doubles.  Charges belong to an ``epoch``; those of an earlier
  one are not given back.  A reliable queue pair whose charges were given up is *stalled*: it sends nothing
  until it is answered, its timer runs out, or ``MOST_STALL_NS`` are over, so that the others need not wait
  for its bursts.
* *Probes.*  A waiter with a timer of its own need not wait for the watcher: where nothing was confirmed for
  the interval of its timer, and for ``STALL_NS`` at least (`quiet`), it sends one packet beyond the limit, as
  TCP's persist timer does.  So each queue pair finds a dead peer after its own retries, however many share
  the window, and a live peer answers.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import cython

from softhca.transport.response_pacing import ResponsePacing

if TYPE_CHECKING:
    from softhca.transport.flow import Flow

FULL_BURST_BYTES = 61_680
BURST_OVERHEAD_BYTES = 1_280
DEFAULT_LIMIT_BYTES = 3 * (FULL_BURST_BYTES + BURST_OVERHEAD_BYTES)
DEFAULT_MAXIMUM_BYTES = 4 * (FULL_BURST_BYTES + BURST_OVERHEAD_BYTES)
FAR_NS = 250_000
FAR_MAXIMUM_BYTES = 32 * (FULL_BURST_BYTES + BURST_OVERHEAD_BYTES)
PERIOD_NS = 10_000_000_000
PROBE_BYTES = 4_096 + 256 + BURST_OVERHEAD_BYTES  # a packet of any path MTU with any headers
LEAST_SAMPLE_BYTES = 2 * (FULL_BURST_BYTES + BURST_OVERHEAD_BYTES)
TRIPS = 2  # so many round trips are known before the shortest means anything
FAR_GROWTH_WINDOWS = 4
STALL_NS = 20_000_000
MOST_STALL_NS = 32 * STALL_NS

_BURST_OVERHEAD = cython.declare(cython.ulonglong, BURST_OVERHEAD_BYTES)
_FAR_GROWTH_WINDOWS = cython.declare(cython.uint, FAR_GROWTH_WINDOWS)
_FAR_NS = cython.declare(cython.ulonglong, FAR_NS)
_PERIOD_NS = cython.declare(cython.ulonglong, PERIOD_NS)
_PROBE = cython.declare(cython.ulonglong, PROBE_BYTES)
_LEAST_SAMPLE = cython.declare(cython.ulonglong, LEAST_SAMPLE_BYTES)
_TRIPS = cython.declare(cython.uint, TRIPS)
_STALL_NS = cython.declare(cython.ulonglong, STALL_NS)
_MOST_STALL_NS = cython.declare(cython.ulonglong, MOST_STALL_NS)


class DestinationWindow:
    """The window towards one destination adapter.

    ``limit_bytes`` is the present limit, ``maximum_bytes`` what it may grow to, ``in_flight_bytes`` what
    has been charged in this ``epoch`` and not given back, ``answers`` counts the moments at which something
    was, ``heard_ns`` is when something was last confirmed; ``sender`` is the flow that has sent last.
    ``far_maximum_bytes`` is what it may grow to on a long path; 0: this cannot be one.  ``responses`` is the
    pace of answers to RDMA READs, which the limit bounds as well but which do not count as in flight.
    ValueError when the limits contradict each other.
    """

    sender: Flow
    turn: Flow
    watcher: Flow
    waiters: deque[Flow]

    def __init__(
        self,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        maximum_bytes: int = DEFAULT_MAXIMUM_BYTES,
        packet_overhead_bytes: int = 0,
        growth_windows: int = 64,
        far_maximum_bytes: int = 0,
    ) -> None:
        minimum = FULL_BURST_BYTES + BURST_OVERHEAD_BYTES
        if limit_bytes < minimum or maximum_bytes < limit_bytes:
            raise ValueError(f"a window holds at least one burst ({minimum} bytes) and at most its maximum")
        self.limit_bytes = limit_bytes
        self.maximum_bytes = maximum_bytes
        self.minimum_bytes = minimum
        self.in_flight_bytes = 0
        self.epoch = 0
        self.answers = 0
        self.heard_ns = 0
        self.sender = None
        self.stall_ns = _STALL_NS
        self.confirmed_bytes = 0
        self.packet_overhead_bytes = packet_overhead_bytes
        self.growth_windows = growth_windows
        self.far_maximum_bytes = far_maximum_bytes
        self.slow_start_threshold_bytes = far_maximum_bytes
        self.recovery_target_bytes = 0
        self.trips = RoundTrips()
        self.responses = ResponsePacing(minimum)
        self.wanted = False
        self.losses = 0
        self.waiters = deque()
        self.turn = None
        self.watcher = None
        self.watch_ns = 0
        self.watch_answers = 0

    def cost(self, length_bytes: int, packets: int) -> int:
        """What a burst of ``packets``, ``length_bytes`` long in all, costs the receiver, in bytes."""
        return length_bytes + packets * self.packet_overhead_bytes + _BURST_OVERHEAD

    def near_available(self, flow: Flow) -> int:
        """As `room`, for bytes whose loss is not noticed, or which come back: a long path has no part in
        it."""
        room: cython.ulonglong = self.room(flow)
        if self.limit_bytes <= self.maximum_bytes:
            return room
        if self.in_flight_bytes >= self.maximum_bytes:
            return 0
        return min(room, self.maximum_bytes - self.in_flight_bytes)

    def near_limit(self) -> int:
        """The limit of bytes under way whose loss is not noticed at once; a burst at least."""
        return max(self.minimum_bytes, min(self.limit_bytes, self.maximum_bytes))

    def room(self, flow: Flow) -> int:
        """Bytes that ``flow`` may charge now: the whole limit when nothing is in flight, 0 where another one
        has the turn."""
        if self.in_flight_bytes == 0:
            return self.limit_bytes if self.turn is None or self.turn is flow else 0
        if self.in_flight_bytes >= self.limit_bytes:
            return 0
        if self.waiters and self.turn is not flow:
            return 0
        return self.limit_bytes - self.in_flight_bytes

    def admits(self, flow: Flow, cost_bytes: int) -> bool:
        """True when ``flow`` may charge ``cost_bytes`` that come back now; anything goes when nothing
        is in flight, but for what goes before who has the turn."""
        if self.in_flight_bytes == 0:
            return self.room(flow) != 0
        return cost_bytes <= self.near_available(flow)

    def charge(self, cost_bytes: int) -> None:
        """Count ``cost_bytes`` as in flight."""
        self.in_flight_bytes += cost_bytes

    def depart(self, cost_bytes: int, now: int) -> None:
        """Count ``cost_bytes`` that will be answered for as in flight from ``now`` on."""
        self.charge(cost_bytes)
        if self.in_flight_bytes >= _LEAST_SAMPLE:
            self.trips.depart(self.in_flight_bytes, now)

    def on_ack(self, cost_bytes: int, now: int) -> None:
        """``cost_bytes`` have been answered for: make room and wake the first waiter."""
        assert cost_bytes <= self.in_flight_bytes, "more was answered for than was in flight"
        self.in_flight_bytes -= cost_bytes
        self.answers += 1
        self.heard_ns = now
        self.stall_ns = _STALL_NS
        self.trips.answer(cost_bytes, now)
        self.grow(cost_bytes)
        if self.waiters:
            self.pass_on()

    def quiet(self, interval_ns: int, now: int) -> bool:
        """Whether nothing was confirmed for ``interval_ns``, and for ``STALL_NS`` at least."""
        return now - self.heard_ns >= max(interval_ns, _STALL_NS)

    def grow(self, cost_bytes: int) -> None:
        """``cost_bytes`` were confirmed: raise the limit where that is evidence enough."""
        most: cython.ulonglong = self.maximum_bytes
        far: cython.bint = self.far_maximum_bytes != 0 and self.trips.shortest() >= _FAR_NS
        windows: cython.uint = self.growth_windows
        self.confirmed_bytes += cost_bytes
        if far:
            most = self.far_maximum_bytes
            windows = min(windows, _FAR_GROWTH_WINDOWS)
        if self.limit_bytes < self.recovery_target_bytes:
            self.limit_bytes = min(self.limit_bytes + cost_bytes, self.recovery_target_bytes)
        elif far and self.wanted and self.limit_bytes < self.slow_start_threshold_bytes:
            self.limit_bytes += cost_bytes
        self.wanted = False
        if self.confirmed_bytes >= self.limit_bytes * windows:
            self.confirmed_bytes = 0
            self.limit_bytes += self.minimum_bytes
        if self.limit_bytes > most:
            self.limit_bytes = most

    def give_up(self, cost_bytes: int) -> None:
        """``cost_bytes`` of this epoch are not awaited any more: make room, but this is no evidence that the
        path bears more."""
        assert cost_bytes <= self.in_flight_bytes, "gave up more than was in flight"
        self.in_flight_bytes -= cost_bytes
        self.answers += 1
        self.trips.forget()
        if self.waiters:
            self.pass_on()

    def on_stall(self) -> None:
        """Nothing has come back for ``stall_ns``: nothing counts as in flight any more, one packet may be
        tried, and the next wait is twice as long."""
        self.epoch += 1
        self.in_flight_bytes = 0
        self.answers += 1
        self.stall_ns = min(2 * self.stall_ns, _MOST_STALL_NS)
        self.losses += 1
        self.confirmed_bytes = 0
        self.trips.forget()
        self.recovery_target_bytes = max(self.recovery_target_bytes, self.limit_bytes)
        self.limit_bytes = _PROBE + self.packet_overhead_bytes
        self.pass_on()

    def lost(self) -> None:
        """Something had to be sent again: halve the limit, not below one burst, and ask for new evidence."""
        self.losses += 1
        self.confirmed_bytes = 0
        self.trips.forget()
        self.limit_bytes = max(self.minimum_bytes, self.limit_bytes // 2)
        self.slow_start_threshold_bytes = max(self.limit_bytes, self.maximum_bytes)
        self.recovery_target_bytes = 0

    def wait(self, flow: Flow, now: int) -> None:
        """Schedule ``flow`` when there is room; a holder of the turn that found too little keeps its
        place.  It calls `check_stall` whenever it expires, for it may be the watcher."""
        self.wanted = True
        if self.turn is flow:
            self.turn = None
            self.waiters.appendleft(flow)
            flow.waiting = True
        elif not flow.waiting:
            self.waiters.append(flow)
            flow.waiting = True
        if self.watcher is None:
            self.watch(flow, now)

    def watch(self, flow: Flow, now: int) -> None:
        """``flow`` checks when ``stall_ns`` are over."""
        self.watcher = flow
        self.watch_ns = now + self.stall_ns
        self.watch_answers = self.answers
        flow.environment.arm(flow, self.watch_ns)

    def check_stall(self, flow: Flow, now: int) -> None:
        """Time has passed for ``flow``: if it watches and it is time, give up what is in flight if
        nothing has come back, and watch on while anybody waits."""
        if self.watcher is not flow:
            return
        if now < self.watch_ns:
            flow.environment.arm(flow, self.watch_ns)
        elif not self.waiters:
            self.watcher = None
        else:
            if self.answers == self.watch_answers:
                if self.in_flight_bytes:
                    self.on_stall()
                else:  # whoever has the turn makes no use of it: its rate is limited, perhaps
                    self.turn = None
                    self.pass_on()
            self.watch(flow, now)

    def pass_on(self) -> None:
        """Give the turn to the first waiter if nobody holds it and there is at least half a burst of room."""
        if self.turn is not None or not self.waiters:
            return
        if self.in_flight_bytes and self.in_flight_bytes + self.minimum_bytes // 2 > self.limit_bytes:
            return
        flow = self.waiters.popleft()
        flow.waiting = False
        self.turn = flow
        flow.environment.schedule(flow)

    def leave(self, flow: Flow) -> None:
        """``flow`` has used its turn, or wants nothing any more: forget it and let the next one go."""
        if flow.waiting:
            flow.waiting = False
            self.waiters.remove(flow)
        if self.turn is flow:
            self.turn = None
        if self.waiters:
            self.pass_on()

    def quit(self, flow: Flow) -> None:
        """``flow`` has no business with this window any more: leave it, and let another one watch."""
        self.leave(flow)
        if self.sender is flow:
            self.sender = None
        if self.watcher is flow:
            self.watcher = None
            if self.waiters:
                self.watcher = self.waiters[0]
                self.watcher.environment.arm(self.watcher, self.watch_ns)


class RoundTrips:
    """How long it takes at least until what has been sent is answered for, now and lately.

    One measurement at a time: it begins with a departure and ends when as much has been answered for as was
    in flight then.  The shortest of this period and of the one before counts, so that a path that gets
    shorter is noticed at once and one that gets longer after two periods.
    """

    def __init__(self) -> None:
        self.awaited_bytes = 0
        self.begin_ns = 0
        self.least_ns = self.former_ns = 0
        self.period_end_ns = 0
        self.count = 0

    def forget(self) -> None:
        """Something in flight is not awaited any more: what is being measured would be wrong."""
        self.awaited_bytes = 0

    def depart(self, in_flight_bytes: int, now: int) -> None:
        """Bytes have left at ``now``, and so much is in flight with them."""
        if self.awaited_bytes == 0:
            self.awaited_bytes = in_flight_bytes
            self.begin_ns = now

    def answer(self, cost_bytes: int, now: int) -> None:
        """``cost_bytes`` are answered for at ``now``."""
        if self.awaited_bytes == 0:
            return
        if self.awaited_bytes > cost_bytes:
            self.awaited_bytes -= cost_bytes
            return
        self.awaited_bytes = 0
        if now >= self.period_end_ns:
            self.former_ns = self.least_ns
            self.least_ns = 0
            self.period_end_ns = now + _PERIOD_NS
        if self.least_ns == 0 or now - self.begin_ns < self.least_ns:
            self.least_ns = now - self.begin_ns
        self.count += 1

    def shortest(self) -> int:
        """The shortest round trip lately in ns; 0 while too few are known."""
        if self.count < _TRIPS:
            return 0
        if self.former_ns and self.former_ns < self.least_ns:
            return self.former_ns
        return self.least_ns
