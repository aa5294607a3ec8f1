"""A switch: where a packet goes, and on which lane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import cython

from softhca.fabric.switching.events import EventQueue
from softhca.fabric.switching.packet import MANAGEMENT_VL, Packet
from softhca.fabric.switching.port import Owner, Port, PortSettings

NO_PORT = 255
"""An entry of a forwarding table that leads nowhere (IBTA vol. 1, 14.2.5.11)."""
FIRST_MULTICAST_LID = 0xC000

# the same for the compiler
_MULTICAST = cython.declare(cython.int, FIRST_MULTICAST_LID)
_NOWHERE = cython.declare(cython.int, NO_PORT)
_VL15 = cython.declare(cython.int, MANAGEMENT_VL)


def lanes_by_service_level(lanes: int) -> tuple[int, ...]:
    """The usual SL→VL table of a port with so many lanes: SL modulo lanes."""
    return tuple([sl % lanes for sl in range(16)])


class Switch(Owner):
    """``forwarding[dlid]`` is the output port (`NO_PORT` and what is beyond the table's end: none),
    ``multicast`` the ports of each group's LID.  ``sl_to_vl[in port, out port]``, or ``None`` as key for all
    pairs that have no table of their own, says the lane of each SL.

    ``pkeys``: ports that let only packets of these P_Keys pass, in both directions (partition enforcement,
    10.9.6); a port that is not in it enforces nothing.
    """

    def __init__(
        self,
        events: EventQueue,
        port_count: int,
        settings: PortSettings,
        forwarding: Sequence[int],
        multicast: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self.events = events
        self.settings = settings
        self.ports = [Port(events, self, number, settings) for number in range(port_count + 1)]
        self.forwarding = forwarding
        self.multicast = dict(multicast or {})
        self.sl_to_vl: dict[tuple[int, int] | None, Sequence[int]] = {
            None: lanes_by_service_level(settings.lanes)
        }
        self.pkeys: dict[int, frozenset[int]] = {}
        self._lanes = settings.lanes
        self._latency_ps = settings.latency_ps

    def arrived(self, port: Port, packet: Packet, now_ps: int, tail_ps: int) -> None:
        """`Owner.arrived`: pass the packet on, as soon as its head is here and looked up."""
        if self.pkeys and not self._may_pass(port.number, packet):
            port.counters.refused_pkeys += 1
            port.discard(packet, "P_Key")
            return
        dlid: cython.int = packet.dlid
        if dlid >= _MULTICAST:
            self._replicate(port, packet, now_ps, tail_ps)
            return
        forwarding = self.forwarding
        number: cython.int = forwarding[dlid] if dlid < len(forwarding) else _NOWHERE
        if number == _NOWHERE or number == port.number:
            port.discard(packet, "no route")
            return
        self._forward(port, self.ports[number], packet, now_ps, tail_ps)

    def _replicate(self, port: Port, packet: Packet, now_ps: int, tail_ps: int) -> None:
        """A copy of a packet of a group for each port but that by which it came."""
        outputs = [number for number in self.multicast.get(packet.dlid, ()) if number != port.number]
        if not outputs:
            port.discard(packet, "no route")
            return
        copies = [packet, *[packet.copy() for _ in outputs[1:]]]
        for number, each in zip(outputs, copies, strict=True):
            self._forward(port, self.ports[number], each, now_ps, tail_ps)

    def sent(self, port: Port, vl: int, now_ps: int) -> None:
        """`Owner.sent`: nobody waits for it here."""

    def _forward(self, port: Port, output: Port, packet: Packet, now_ps: int, tail_ps: int) -> None:
        if packet.vl != _VL15:
            table = self.sl_to_vl[None]
            if len(self.sl_to_vl) > 1:
                table = self.sl_to_vl.get((port.number, output.number)) or table
            vl: cython.int = table[packet.sl]
            if self.pkeys and not self._may_pass(output.number, packet):
                output.discard(packet, "P_Key")
                return
            if vl == _VL15 or vl >= self._lanes:
                output.discard(packet, "no lane")
                return
            packet.vl = vl
        ready_ps: cython.longlong = now_ps + self._latency_ps
        if output.mbps:
            # No gap within a packet: a faster output waits until the rest comes quickly enough.
            late_ps: cython.longlong = tail_ps - output.transmission_ps(packet.length_bytes)
            ready_ps = max(ready_ps, late_ps)
        output.send(packet, ready_ps)

    def _may_pass(self, number: int, packet: Packet) -> bool:
        """Partition enforcement: a full or limited member's key, whichever the port has, by its 15 bits."""
        keys = self.pkeys.get(number)
        return keys is None or packet.vl == MANAGEMENT_VL or packet.pkey & 0x7FFF in keys
