"""An end of the fabric: sends what programs give it, and hands over what arrives."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import cython

from softhca.fabric.switching.congestion import CongestionControl
from softhca.fabric.switching.events import EventQueue
from softhca.fabric.switching.packet import MANAGEMENT_VL, Packet, PacketLine
from softhca.fabric.switching.port import Owner, Port, PortSettings, release
from softhca.fabric.switching.switch import lanes_by_service_level

NOTIFICATION_BYTES = 42
"""A congestion notification: LRH, BTH, 16 bytes that are reserved, ICRC and VCRC (RoCEv2's CNP, in native
framing)."""

DELIVER, NEXT, TURN = range(3)
_DELIVER = cython.declare(cython.int, DELIVER)
_NEXT = cython.declare(cython.int, NEXT)
_TURN = cython.declare(cython.int, TURN)
_VL15 = cython.declare(cython.int, MANAGEMENT_VL)


class _Flow:
    """What waits for one destination, and when its next packet may go."""

    __slots__ = ("control", "next_ps", "planned", "waiting")

    def __init__(self, control: CongestionControl | None) -> None:
        self.control = control
        self.waiting = PacketLine()
        self.next_ps = 0
        self.planned = False


class EndNode(Owner):
    """One port, and a flow for each destination.

    ``deliver(packet, now_ps)`` is called when a packet is wholly here.  ``congestion()`` makes the congestion
    control of a new flow; without it none slows down.  Marked packets are answered in any case, but no source
    more often than each ``notify_ps``.  A flow hands the port its next packet when the one before has left,
    and behind the flows that wait already, so that flows share the link packet by packet.
    """

    def __init__(
        self,
        events: EventQueue,
        settings: PortSettings,
        deliver: Callable[[Packet, int], None],
        congestion: Callable[[], CongestionControl] | None = None,
        notify_ps: int = 0,
    ) -> None:
        self.events = events
        self.port = Port(events, self, 1, settings)
        self.notifications = 0
        self._lanes = lanes_by_service_level(settings.lanes)
        self._deliver = deliver
        self._congestion = congestion
        self._notify_ps = notify_ps
        self._notified_ps: dict[int, int] = {}
        self._flows: dict[int, _Flow] = {}
        self._behind: list[deque[_Flow]] = [deque() for _ in range(settings.lanes)]
        self._turns = 0  # lanes on which the first that has waited is about to have its turn

    def send(self, packet: Packet) -> None:
        """Send a packet behind what waits for the same destination."""
        packet.born_ps = self.events.now_ps
        if packet.vl == _VL15:
            self.port.send(packet, self.events.now_ps)
            return
        packet.vl = self._lanes[packet.sl]
        flow = self._flows.get(packet.dlid)
        if flow is None:
            flow = _Flow(self._congestion() if self._congestion is not None else None)
            self._flows[packet.dlid] = flow
        flow.waiting.append(packet)
        if not flow.planned:
            flow.planned = True
            self.events.plan(flow.next_ps, self, _NEXT, flow)

    def waiting(self) -> int:
        """Packets that have not been handed to the port."""
        return sum([len(flow.waiting) for flow in self._flows.values()])

    def _next(self, flow: _Flow, is_turn: bool, now_ps: int) -> None:
        """Hand the flow's next packet to the port, once the one before has gone there, and those have who
        wait; ``is_turn``: it is the first of these."""
        packet = flow.waiting.first()
        assert packet is not None
        port = self.port
        vl: cython.int = packet.vl
        length: cython.int = packet.length_bytes
        if is_turn:
            self._turns &= ~(1 << vl)
        if not port.up:
            flow.waiting.take()
            port.discard(packet, "link down")
            self.sent(port, vl, now_ps)
        else:
            transmission_ps: cython.longlong = port.transmission_ps(length)
            if is_turn and port.queued_blocks(vl):
                self._behind[vl].appendleft(flow)
                return
            if not is_turn and (port.queued_blocks(vl) or self._behind[vl] or self._turns >> vl & 1):
                self._behind[vl].append(flow)  # until the port has sent what it has
                return
            flow.waiting.take()
            pause_ps = flow.control.pause_ps(length, transmission_ps, now_ps) if flow.control else 0
            flow.next_ps = now_ps + transmission_ps + pause_ps
            port.send(packet, now_ps)
        flow.planned = flow.waiting.first() is not None
        if flow.planned:
            self.events.plan(flow.next_ps, self, _NEXT, flow)

    def sent(self, port: Port, vl: int, now_ps: int) -> None:
        """`Owner.sent`: the next flow may give the port a packet."""
        if vl != _VL15 and self._behind[vl] and not self._turns >> vl & 1 and not port.queued_blocks(vl):
            self._turns |= 1 << vl
            self.events.plan(now_ps, self, _TURN, self._behind[vl].popleft())

    def arrived(self, port: Port, packet: Packet, now_ps: int, tail_ps: int) -> None:
        """`Owner.arrived`."""
        self.events.plan(tail_ps, self, _DELIVER, packet)

    def fire(self, what: int, argument: Any, now_ps: int) -> None:
        """`Handler.fire`."""
        if what != _DELIVER:
            self._next(argument, what == _TURN, now_ps)
            return
        packet: Packet = argument
        if packet.held is not None:
            held, packet.held = packet.held, None
            release(held)
        if packet.becn:
            flow = self._flows.get(packet.slid)
            if flow is not None and flow.control is not None:
                flow.control.notified(now_ps)
            return
        if packet.fecn:
            self._notify(packet, now_ps)
        self._deliver(packet, now_ps)

    def _notify(self, packet: Packet, now_ps: int) -> None:
        """Tell the source of a marked packet, once in each ``notify_ps``."""
        last = self._notified_ps.get(packet.slid)
        if last is not None and now_ps - last < self._notify_ps:
            return
        self._notified_ps[packet.slid] = now_ps
        self.notifications += 1
        answer = Packet(packet.dlid, packet.slid, NOTIFICATION_BYTES, sl=packet.sl, vl=packet.vl, becn=True,
                        pkey=packet.pkey)  # fmt: skip
        self.port.send(answer, now_ps)
