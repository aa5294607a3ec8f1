"""A port: the end of a link, with transmitter, receive buffers, credits and counters.

A packet is an event at two moments: its head arrives (a switch may then pass it on, cut-through), and its
tail has left (its place in the buffer behind is free).  Flow control packets take the link's delay and
their own length, but no room on the link: eight bytes beside packets of up to 4 KiB.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import cython

from softhca.fabric.switching.arbitration import DEFAULT_LOW, Arbiter
from softhca.fabric.switching.credits import CreditReceiver, CreditSender
from softhca.fabric.switching.events import EventQueue, Handler
from softhca.fabric.switching.packet import DATA_VLS, MANAGEMENT_VL, FlowControl, Held, Packet, blocks_of
from softhca.fabric.switching.transmit_queues import NEVER_PS, ArrivalOrder, SegmentOrder, TransmitQueue

HEADER_BYTES = 8
"""A switch forwards by LRH alone."""
FLOW_CONTROL_BYTES = 8
FLOW_CONTROL_SYMBOLS = 65_536
"""Flow control packets are sent at least that often (IBTA vol. 1, 7.9.3)."""
MANAGEMENT_BLOCKS = 1024
"""Where so many blocks wait on VL 15, which has no credits, what comes is dropped."""
STALL_FACTOR = 8
"""A stalled lane discards for so many times HOQLife (IBTA vol. 1, 18.2.5.4)."""

TRANSMIT, HEAD, TAIL, CREDITS, BLOCKED, RESYNC = range(6)

# the same for the compiler
_TRANSMIT = cython.declare(cython.int, TRANSMIT)
_HEAD = cython.declare(cython.int, HEAD)
_TAIL = cython.declare(cython.int, TAIL)
_CREDITS = cython.declare(cython.int, CREDITS)
_BLOCKED = cython.declare(cython.int, BLOCKED)
_VL15 = cython.declare(cython.int, MANAGEMENT_VL)
_NEVER = cython.declare(cython.longlong, NEVER_PS)
_HEADER = cython.declare(cython.int, HEADER_BYTES)
_FLOW_CONTROL = cython.declare(cython.int, FLOW_CONTROL_BYTES)
NO_MARK = 1 << 30
"""So many blocks never wait."""


@dataclass(frozen=True)
class PortSettings:
    """How a port is made.  Times are picoseconds.

    ``buffer_blocks`` 64-byte blocks of receive buffer for each of ``lanes`` lanes.  ``segment_timeout_ps``
    None: packets leave in the order of arrival (`ArrivalOrder`), else segments are preserved.
    ``mark_blocks``: a packet that leaves more than so many blocks behind it on its lane is marked (FECN);
    None: never.  ``head_of_queue_ps`` (HOQLife): what cannot leave for so long is discarded; None: never.
    ``stall_count`` (VLStallCount) discards in a row make the lane discard all for eight times that long.
    ``latency_ps`` is a switch's from the head of a packet to its sending, ``propagation_ps`` the cable's.
    """

    lanes: int = 1
    buffer_blocks: int = 512
    latency_ps: int = 100_000
    propagation_ps: int = 5_000
    high: tuple[tuple[int, int], ...] = ()
    low: tuple[tuple[int, int], ...] = DEFAULT_LOW
    high_limit: int = 0
    segment_timeout_ps: int | None = None
    mark_blocks: int | None = None
    head_of_queue_ps: int | None = None
    stall_count: int = 7

    def __post_init__(self) -> None:
        if not 1 <= self.lanes <= DATA_VLS:
            raise ValueError(f"a port has 1 … {DATA_VLS} data lanes, not {self.lanes}")
        if not 1 <= self.buffer_blocks <= 2048:
            raise ValueError(f"credits count 1 … 2048 blocks of a lane, not {self.buffer_blocks}")
        Arbiter(self.high, self.low, self.high_limit)


class PortCounters:
    """What PMA counters are made of.  ``data`` counts 4-byte words, without those of VL 15; ``waited_ps`` is
    the time in which there were packets and no credits (PortXmitWait); ``reasons`` says how many packets were
    dropped for what."""

    def __init__(self) -> None:
        self.transmitted_packets = 0
        self.transmitted_data = 0
        self.received_packets = 0
        self.received_data = 0
        self.discarded = 0
        self.marked = 0
        self.errors = 0
        self.overruns = 0
        self.refused_pkeys = 0
        self.waited_ps = 0
        self.reasons: dict[str, int] = {}

    def discard(self, reason: str) -> None:
        """A packet was dropped (PortXmitDiscards)."""
        self.discarded += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1


class Owner(Handler):
    """The node that a port belongs to."""

    def arrived(self, port: Port, packet: Packet, now_ps: int, tail_ps: int) -> None:
        """The head of a packet has come in, and has a place in the port's buffer; its tail comes at
        ``tail_ps``."""
        raise NotImplementedError

    def sent(self, port: Port, vl: int, now_ps: int) -> None:
        """The port has begun to send a packet of a lane, or discarded it."""
        raise NotImplementedError


class Port(Handler):
    """Port ``number`` of ``owner``; `connect` joins two.  ``lost`` is called with each packet that is lost or
    discarded here, and why."""

    def __init__(self, events: EventQueue, owner: Owner, number: int, settings: PortSettings) -> None:
        self.events = events
        self.owner = owner
        self.number = number
        self.settings = settings
        self.counters = PortCounters()
        self.peer: Port | None = None
        self.up = False
        self.mbps = 0
        self.loss = 0.0
        self.random: Random | None = None
        self.credits = CreditSender()
        self.receiver = CreditReceiver(settings.buffer_blocks, settings.lanes)
        self.arbiter = Arbiter(settings.high, settings.low, settings.high_limit)
        self.queues: list[TransmitQueue | None] = [None] * (DATA_VLS + 1)
        self.lost: Callable[[Packet, str], None] | None = None
        self._propagation_ps = settings.propagation_ps
        self._mark_blocks = NO_MARK if settings.mark_blocks is None else settings.mark_blocks
        self._active = 0
        self._epoch = 0
        self._busy_until_ps = 0
        self._planned_ps = _NEVER
        self._waiting_since_ps = _NEVER
        never: list[int] = [NEVER_PS] * DATA_VLS
        zeros: list[int] = [0] * DATA_VLS
        self._blocked_since_ps = never
        self._discards_in_a_row = list(zeros)
        self._stalled_until_ps = zeros
        self._resync_planned = False

    # the link

    def transmission_ps(self, length_bytes: int) -> int:
        """How long so many bytes take on the link."""
        return length_bytes * 8_000_000 // self.mbps

    def link_up(self) -> None:
        """The link is trained: count anew.  `connect` tells each side the other's room."""
        self.up = True
        self._epoch += 1
        self._busy_until_ps = self.events.now_ps
        self.credits = CreditSender()
        self.receiver = CreditReceiver(self.settings.buffer_blocks, self.settings.lanes)

    def link_down(self) -> None:
        """What is on the link is lost, and what waits for it discarded."""
        self.up = False
        self._epoch += 1
        self._end_waiting(self.events.now_ps)
        for vl, queue in enumerate(self.queues):
            if queue is not None:
                for packet in queue.drain():
                    self.discard(packet, "link down")
                self._active &= ~(1 << vl)
                self.owner.sent(self, vl, self.events.now_ps)
        never: list[int] = [NEVER_PS] * DATA_VLS
        self._blocked_since_ps = never

    # sending

    def queued_blocks(self, vl: int) -> int:
        """What waits to be sent on a lane."""
        queue = self.queues[vl]
        return 0 if queue is None else queue.blocks

    def send(self, packet: Packet, ready_ps: int) -> None:
        """Send ``packet`` on its lane, not before ``ready_ps``."""
        vl: cython.int = packet.vl
        now_ps: cython.longlong = self.events.now_ps
        queue: TransmitQueue | None
        if not self.up or (vl != _VL15 and self._stalled_until_ps[vl] > now_ps):
            self.discard(packet, "lane stalled" if self.up else "link down")
            return
        queue = self.queues[vl]
        if queue is None:
            timeout_ps = self.settings.segment_timeout_ps
            queue = ArrivalOrder() if timeout_ps is None or vl == _VL15 else SegmentOrder(timeout_ps)
            self.queues[vl] = queue
        if vl == _VL15 and queue.blocks >= MANAGEMENT_BLOCKS:
            self.discard(packet, "VL 15 full")
            return
        packet.ready_ps = ready_ps
        queue.push(packet, blocks_of(packet.length_bytes))
        self._active |= 1 << vl
        if now_ps >= self._busy_until_ps:
            self._transmit(now_ps)

    def _transmit(self, now_ps: int) -> None:
        """Send the next packet, or find out what to wait for."""
        if not self.up or now_ps < self._busy_until_ps:
            return
        eligible: cython.int = 0
        blocked: cython.int = 0
        wake_ps: cython.longlong = _NEVER
        vl: cython.int = DATA_VLS
        last: cython.int = -1
        packet: Packet | None
        first: Packet | None = None
        queue: TransmitQueue | None
        active: cython.int = self._active
        while active:
            while not active >> vl & 1:
                vl -= 1
            active ^= 1 << vl
            queue = self.queues[vl]
            assert queue is not None
            packet = queue.head(now_ps)
            if packet is None:
                if queue.wake_ps != _NEVER and (wake_ps == _NEVER or queue.wake_ps < wake_ps):
                    wake_ps = queue.wake_ps
            elif vl == _VL15 or self.credits.allows(vl, blocks_of(packet.length_bytes)):
                last = vl
                first = packet
                eligible |= 1 << vl
            else:
                blocked |= 1 << vl
        if blocked:
            self._wait_for_credits(blocked, bool(eligible), now_ps)
        vl = self.arbiter.choose(eligible)
        if vl >= 0:
            if vl != last:
                queue = self.queues[vl]
                assert queue is not None
                first = queue.head(now_ps)
            assert first is not None
            self._send_now(first, vl, now_ps)
        elif wake_ps != _NEVER:
            self._plan(wake_ps)

    def _send_now(self, packet: Packet, vl: int, now_ps: int) -> None:
        length: cython.int = packet.length_bytes
        blocks: cython.int = blocks_of(length)
        queue: TransmitQueue | None = self.queues[vl]
        assert queue is not None
        assert self.peer is not None
        queue.pop(now_ps, blocks)
        if not queue.blocks:
            self._active &= ~(1 << vl)
        self.arbiter.sent(vl, length)
        # Where packets waited for credits, the congestion is farther on (annex A10: root and victim).
        is_root = self._waiting_since_ps == _NEVER and (
            vl == _VL15 or self._blocked_since_ps[vl] == _NEVER
        )
        self._end_waiting(now_ps)
        tail_ps: cython.longlong = now_ps + self.transmission_ps(length)
        self._busy_until_ps = tail_ps
        counters: PortCounters = self.counters
        if vl != _VL15:
            self.credits.send(vl, blocks)
            self._blocked_since_ps[vl] = _NEVER
            self._discards_in_a_row[vl] = 0
            counters.transmitted_packets += 1
            counters.transmitted_data += length >> 2
            if is_root and queue.blocks > self._mark_blocks and not packet.fecn:
                packet.fecn = True
                counters.marked += 1
        if packet.held is not None:
            self.events.plan(tail_ps, self, _TAIL, packet.held)
            packet.held = None
        delay_ps: cython.longlong = self._propagation_ps
        packet.tail_ps = tail_ps + delay_ps
        packet.epoch = self._epoch
        self.events.plan(now_ps + delay_ps + self.transmission_ps(_HEADER), self.peer, _HEAD, packet)
        self._plan(tail_ps)
        self.owner.sent(self, vl, now_ps)

    def _plan(self, time_ps: int) -> None:
        """Look at the queues again then."""
        if self._planned_ps == _NEVER or time_ps < self._planned_ps:
            self._planned_ps = time_ps
            self.events.plan(time_ps, self, _TRANSMIT)

    def discard(self, packet: Packet, reason: str) -> None:
        """Drop a packet, and give its place in a buffer back."""
        self.counters.discard(reason)
        if packet.held is not None:
            held, packet.held = packet.held, None
            release(held)
        self._has_lost(packet, reason)

    def _has_lost(self, packet: Packet, reason: str) -> None:
        if self.lost is not None:
            self.lost(packet, reason)

    # waiting for credits

    def _wait_for_credits(self, blocked: int, others: bool, now_ps: int) -> None:
        if self._waiting_since_ps == _NEVER and not others:
            self._waiting_since_ps = now_ps
        life_ps = self.settings.head_of_queue_ps
        for vl in range(DATA_VLS):
            if blocked >> vl & 1 and self._blocked_since_ps[vl] == _NEVER:
                self._blocked_since_ps[vl] = now_ps
                if life_ps is not None:
                    self.events.plan(now_ps + life_ps, self, _BLOCKED, (vl, now_ps))
        if not self._resync_planned:
            self._resync_planned = True
            self.events.plan(now_ps + self.transmission_ps(FLOW_CONTROL_SYMBOLS), self, RESYNC)

    def _end_waiting(self, now_ps: int) -> None:
        if self._waiting_since_ps != _NEVER:
            self.counters.waited_ps += now_ps - self._waiting_since_ps
            self._waiting_since_ps = _NEVER

    def _head_of_queue_expired(self, vl: int, since_ps: int, now_ps: int) -> None:
        """Whether a lane has been blocked since then: discard its first packet, after some in a row all."""
        queue = self.queues[vl]
        if self._blocked_since_ps[vl] != since_ps or queue is None:
            return
        self._blocked_since_ps[vl] = _NEVER
        packet = queue.head(now_ps)
        if packet is None:
            return
        queue.pop(now_ps, blocks_of(packet.length_bytes))
        self.discard(packet, "head of queue")
        self._discards_in_a_row[vl] += 1
        if self._discards_in_a_row[vl] >= self.settings.stall_count:
            self._discards_in_a_row[vl] = 0
            life_ps = self.settings.head_of_queue_ps
            assert life_ps is not None
            self._stalled_until_ps[vl] = now_ps + STALL_FACTOR * life_ps
            for other in queue.drain():
                self.discard(other, "lane stalled")
        if not queue.blocks:
            self._active &= ~(1 << vl)
        self.owner.sent(self, vl, now_ps)
        self._transmit(now_ps)

    def _say_count(self, now_ps: int) -> None:
        """Still no credits: tell the peer what was sent, so that it finds what was lost on the way."""
        self._resync_planned = False
        blocked = [vl for vl in range(self.settings.lanes) if self._blocked_since_ps[vl] != _NEVER]
        if not self.up or not blocked:
            return
        for vl in blocked:
            self._flow_control(vl, now_ps)
        self._resync_planned = True
        self.events.plan(now_ps + self.transmission_ps(FLOW_CONTROL_SYMBOLS), self, RESYNC)

    # receiving

    def _head_arrives(self, packet: Packet, now_ps: int) -> None:
        peer = self.peer
        if peer is None or not self.up or packet.epoch != peer._epoch:
            self._has_lost(packet, "link down")  # it was on the link when that failed
            return
        if self.loss and self.random is not None and self.random.random() < self.loss:
            self.counters.errors += 1
            self._has_lost(packet, "error")
            return
        vl: cython.int = packet.vl
        blocks: cython.int
        if vl == _VL15:
            packet.held = None
        else:
            blocks = blocks_of(packet.length_bytes)
            if not self.receiver.take(vl, blocks):
                self.counters.overruns += 1
                self._has_lost(packet, "overrun")
                return
            self.counters.received_packets += 1
            self.counters.received_data += packet.length_bytes >> 2
            packet.held = Held(self, vl, blocks)
        packet.hops += 1
        self.owner.arrived(self, packet, now_ps, packet.tail_ps)

    def freed(self, vl: int, blocks: int) -> None:
        """A packet has left the buffer: tell the sender, unless more is soon to be told.

        It is told when there is room for a quarter of the buffer that it does not know of, and when the
        buffer is empty, so that none of it is forgotten.
        """
        receiver = self.receiver
        receiver.free(vl, blocks)
        if not self.up:
            return
        if not receiver.used[vl] or receiver.unadvertised(vl) * 4 >= receiver.capacity_blocks[vl]:
            self._flow_control(vl, self.events.now_ps)

    def _flow_control(self, vl: int, now_ps: int) -> None:
        """Send a flow control packet: FCTBS and FCCL of a lane."""
        peer = self.peer
        assert peer is not None
        limit: cython.int = self.receiver.advertise(vl)
        time_ps: cython.longlong = now_ps + self._propagation_ps + self.transmission_ps(_FLOW_CONTROL)
        if now_ps < self._busy_until_ps:
            # Counts are of what is wholly on the link: nothing that was sent before may come after them.
            time_ps += self._busy_until_ps - now_ps
        told = FlowControl(vl, self.credits.sent[vl], limit, self._epoch)
        self.events.plan(time_ps, peer, _CREDITS, told)

    def _hear(self, told: FlowControl, now_ps: int) -> None:
        peer = self.peer
        if peer is None or not self.up or told.epoch != peer._epoch:
            return
        vl: cython.int = told.vl
        self.credits.hear(vl, told.limit)
        if self.receiver.hear(vl, told.sent):
            self._flow_control(vl, now_ps)
        self._transmit(now_ps)

    def fire(self, what: int, argument: Any, now_ps: int) -> None:
        """`Handler.fire`."""
        if what == _TRANSMIT:
            if self._planned_ps == now_ps:
                self._planned_ps = _NEVER
            self._transmit(now_ps)
        elif what == _HEAD:
            self._head_arrives(argument, now_ps)
        elif what == _TAIL:
            release(argument)
        elif what == _CREDITS:
            self._hear(argument, now_ps)
        elif what == _BLOCKED:
            vl, since_ps = argument
            self._head_of_queue_expired(vl, since_ps, now_ps)
        else:
            self._say_count(now_ps)


def release(held: Held) -> None:
    """One copy has left: with the last its place in the buffer is free."""
    held.copies -= 1
    if not held.copies:
        port: Port = held.port
        port.freed(held.vl, held.blocks)


def connect(a: Port, b: Port, mbps: int) -> None:
    """Join two ports by a link of ``mbps`` megabits of data a second in each direction."""
    a.peer, b.peer = b, a
    a.mbps = b.mbps = mbps
    a.link_up()
    b.link_up()
    for receiver, sender in ((a, b), (b, a)):
        for vl in range(receiver.settings.lanes):
            sender.credits.hear(vl, receiver.receiver.advertise(vl))
