"""The send side of unreliable connections, and what datagrams share with it (IBTA vol. 1, 9.8).

A message is sent once and completes when its last byte has gone (C9-180).  What was sent is charged to the
destination's window for ``CHARGE_NS``, for nothing says when it has been taken.
"""

from __future__ import annotations

import errno
from collections import deque
from typing import TYPE_CHECKING

import cython

from softhca.queues.layout import WC_LOC_PROT_ERR, WC_MW_BIND_ERR, WC_WR_FLUSH_ERR
from softhca.queues.operations import LOCAL
from softhca.transport.conditions import IDLE, MEMORY, READY, WINDOW, conditions_that
from softhca.transport.engines import SendEngine
from softhca.transport.key_work import execute_local
from softhca.transport.observation import HELD_SOURCE, MEMORY_HELD, MEMORY_TRIED
from softhca.transport.request import Request
from softhca.transport.segmentation import MAX_BURST_PACKETS, UNLIMITED, PacketWriter
from softhca.transport.states import BEHAVIOUR
from softhca.transport.window import BURST_OVERHEAD_BYTES, DestinationWindow

if TYPE_CHECKING:
    from softhca.transport.context import QueuePair
    from softhca.transport.sending import RequestSource
    from softhca.wire.burst import Burst
    from softhca.wire.route import Route

# How long a burst counts as in flight.  A receiver that runs has it out of its socket by then; and a window
# of three bursts every 100 us is 1.9 GB/s, more than a link carries here, so that it costs no throughput.
CHARGE_NS = 100_000

_CHARGE_NS = cython.declare(cython.ulonglong, CHARGE_NS)
_BURST_OVERHEAD = cython.declare(cython.ulonglong, BURST_OVERHEAD_BYTES)
_START_SEND = cython.declare(tuple, tuple([behaviour.start_send for behaviour in BEHAVIOUR]))
_TRANSMIT = cython.declare(tuple, tuple([behaviour.transmit for behaviour in BEHAVIOUR]))
_IDLE = cython.declare(cython.int, IDLE)
_READY = cython.declare(cython.int, READY)
_WINDOW = cython.declare(cython.int, WINDOW)
_MEMORY = cython.declare(cython.int, MEMORY)
_DOORBELL = cython.declare(cython.uint, conditions_that("doorbell"))
_MEMORY_THERE = cython.declare(cython.uint, conditions_that("memory"))
_PATH = cython.declare(cython.uint, conditions_that("path"))
_LOCAL = cython.declare(cython.int, LOCAL)
_PROTECTION_ERROR = cython.declare(cython.int, WC_LOC_PROT_ERR)
_FLUSHED = cython.declare(cython.int, WC_WR_FLUSH_ERR)
_BIND_ERROR = cython.declare(cython.int, WC_MW_BIND_ERR)
_UNLIMITED = cython.declare(cython.ulonglong, UNLIMITED)
_EAGAIN = cython.declare(cython.int, errno.EAGAIN)
_MOST = cython.declare(cython.uint, MAX_BURST_PACKETS)


class UnreliableTransmitter(SendEngine):
    """A send side that keeps nothing: one request of ``source`` at a time, ``index`` its next packet,
    ``next_psn`` that one's PSN.

    ``window`` is that of the present burst's destination; what the next packet waits for is the ``condition``
    (`conditions`).  ``charges`` are the bursts charged, oldest first: (until
    when, to which window, how much, in which epoch of it).
    """

    request: Request
    window: DestinationWindow

    def __init__(self, qp: QueuePair, source: RequestSource) -> None:
        self.qp = qp
        self.flow = qp.flow
        self.source = source
        self.writer = PacketWriter(qp)
        self.now = 0
        self.condition = _IDLE
        self.next_psn = 0
        self.index = 0
        self.request = None
        self.window = None
        self.charges: deque[tuple[int, DestinationWindow, int, int]] = deque()
        self.armed_ns = 0

    def begin(self, psn: int) -> None:
        self.next_psn = psn

    def start(self, now: int) -> None:
        self.doorbell(now)

    def doorbell(self, now: int) -> None:
        self.now = now
        if _START_SEND[self.qp.state] and (_DOORBELL >> self.condition) & 1:
            self.condition = _READY
            self.flow.environment.schedule(self.flow)

    def give_way(self) -> None:
        # a datagram waits for the window of its own destination
        if self.window is not None and self.window.turn is self.flow:
            self.window.leave(self.flow)

    def has_work(self) -> bool:
        return self.condition == _READY

    def current(self) -> Request:
        """The request under way, or the next one; None for none."""
        if self.request is None and _START_SEND[self.qp.state]:
            self.request = self.source.next(True, self.now)
            if self.request is not None:
                self.request.segment(self.qp.path_mtu_bytes, self.next_psn)
                self.index = 0
        return self.request

    def produce(self, burst: Burst, now: int) -> int:
        request: Request
        self.now = now
        self.release(now)
        self.condition = _READY
        if not _TRANSMIT[self.qp.state]:
            self.condition = _IDLE
            self.leave()
            return 0
        self.writer.begin(burst, self.flow.route, _UNLIMITED)
        while True:
            request = self.current()
            if request is None:
                self.condition = _IDLE
                break
            if request.status:
                self.fail_head(request.status)
                break
            if request.kind == _LOCAL:
                # everything before it has gone, which is all that this service waits for
                if execute_local(request.work, self.qp):
                    self.fail_head(_BIND_ERROR)
                    break
                self.retire(0)
                continue
            if not self.write(request, burst):
                break
            self.retire(0)
        if burst.packets:
            self.charge(burst)
            self.qp.count_sent(burst.packets, burst.length)
        elif self.condition == _WINDOW:
            self.window.wait(self.flow, now)
        else:
            self.leave()
        if self.qp.draining and self.request is None:
            self.qp.drained()
        return burst.packets

    def aim(self, burst: Burst, route: Route, window: DestinationWindow) -> None:
        """The burst that begins goes along ``route`` and weighs what ``window`` has room for."""
        room: cython.ulonglong
        if self.window is not window:
            self.quit()
            self.window = window
        room = self.window.near_available(self.flow)
        self.writer.aim(route)
        self.writer.budget_bytes = room - _BURST_OVERHEAD if room > _BURST_OVERHEAD else 0
        self.writer.packet_overhead_bytes = self.window.packet_overhead_bytes

    def charge(self, burst: Burst) -> None:
        """The burst has gone: charge it to its window for a while."""
        window: DestinationWindow = self.window
        cost: cython.ulonglong = window.cost(burst.length, burst.packets)
        window.charge(cost)
        self.leave()
        self.charges.append((self.now + _CHARGE_NS, window, cost, window.epoch))
        self.rearm()

    def rearm(self) -> None:
        """Have the environment call when the oldest burst's time is over, unless it will before anyway."""
        deadline: cython.ulonglong = self.charges[0][0] if self.charges else 0
        if deadline and (self.armed_ns == 0 or deadline < self.armed_ns):
            self.armed_ns = deadline
            self.flow.environment.arm(self.flow, deadline)

    def release(self, now: int) -> None:
        """Give back what has been held long enough."""
        while self.charges and self.charges[0][0] <= now:
            self.give_back()

    def give_back(self) -> None:
        """What the oldest burst was charged is its window's again, unless that has given it up."""
        _, window, cost, epoch = self.charges.popleft()
        if window.epoch == epoch:
            window.give_up(cost)

    def expire(self, now: int) -> None:
        self.now = now
        self.armed_ns = 0
        self.release(now)
        if self.window is not None:
            self.window.check_stall(self.flow, now)
        self.rearm()

    def leave(self) -> None:
        """No room is waited for any more."""
        if self.window is not None:
            self.window.leave(self.flow)

    def quit(self) -> None:
        """What goes next may go elsewhere."""
        if self.window is not None:
            self.window.quit(self.flow)

    def leave_window(self) -> None:
        # what is held knows its own window
        self.quit()
        if (_PATH >> self.condition) & 1:
            self.condition = _READY
            self.flow.environment.schedule(self.flow)

    def forget(self) -> None:
        """Nothing is under way any more; the windows get back what is held."""
        self.request = None
        self.condition = _IDLE
        self.quit()
        while self.charges:
            self.give_back()

    def write(self, request: Request, burst: Burst) -> bool:
        """Write what fits of ``request`` into the burst; True when it has gone whole."""
        written: cython.int
        if burst.packets == 0:
            self.aim(burst, self.flow.route, self.flow.window)
        written = self.writer.message(request, self.index, _MOST, False)
        if written < 0:
            self.unreadable(written)
            return False
        if written == 0 and burst.packets == 0:
            self.condition = _WINDOW
        self.index += written
        self.next_psn = (self.next_psn + written) & 0xFFFFFF
        if self.writer.held:
            self.wait_memory()
        return self.index == request.packets

    def wait_memory(self) -> None:
        """The memory that the next packet comes from is held: it is tried again later."""
        self.condition = _MEMORY
        self.qp.observe(MEMORY_HELD, self.next_psn, HELD_SOURCE)
        self.flow.environment.wait_for_memory(self.flow)

    def resume(self, now: int) -> None:
        if (_MEMORY_THERE >> self.condition) & 1:
            self.condition = _READY
            self.qp.observe(MEMORY_TRIED, self.next_psn, HELD_SOURCE)
            self.flow.environment.schedule(self.flow)

    def unreadable(self, result: int) -> None:
        """The packet's bytes could not be read, for −errno ``result``: the request fails, or waits where they
        are held."""
        if result == -_EAGAIN:
            self.wait_memory()
        else:
            self.fail_head(_PROTECTION_ERROR)

    def retire(self, status: int) -> None:
        """The request under way has ended with ``status``."""
        request: Request = self.request
        self.request = None
        self.source.retire(request, status, self.now)

    def fail_head(self, status: int) -> None:
        """The request under way ends with ``status``; the send queue stops (SQE)."""
        self.retire(status)
        self.qp.fail_sending()

    def drained(self) -> bool:
        return self.request is None

    def flush(self) -> None:
        request: Request = self.request
        self.forget()
        if request is not None:
            self.source.retire(request, _FLUSHED, self.now)
        self.source.flush(self.now)

    def reset(self) -> None:
        request: Request = self.request
        self.forget()
        self.window = None
        self.armed_ns = 0
        if request is not None:
            self.source.drop(request)
        self.source.reset()


class UnreliableSender(UnreliableTransmitter):
    """The send side of an unreliable connection."""
