"""A stand-in for the serial interface: what lies behind the SERDES, with the VCRC of each packet.

A link of 2.5 Gb/s carries 2 Gb/s of data, 16 bits in each clock of 8 ns.  So the line here is a half word
a clock: ``valid``, ``data`` (the first byte on top), and ``last`` with a packet's last one, its VCRC.
Symbols between packets, credits and training are the SERDES's matter and not here.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, Signature

from softhca.hardware.crc import VCRC_BITS, VCRC_POLYNOMIAL, next_state, swapped

HALF_BITS = 16
_ONES = (1 << VCRC_BITS) - 1


class Line(Signature):
    """Half words, seen from who sends."""

    def __init__(self) -> None:
        super().__init__({"valid": Out(1), "last": Out(1), "data": Out(HALF_BITS)})


class Arrival(Signature):
    """A packet as it comes in, seen from who receives it from the line.

    Words one by one, ``valid`` each; then ``end`` in a clock of its own, with ``vcrc_ok`` and ``whole``:
    the packet was whole words.
    """

    def __init__(self) -> None:
        super().__init__(
            {"valid": Out(1), "word": Out(32), "end": Out(1), "vcrc_ok": Out(1), "whole": Out(1)}
        )


class Departure(Signature):
    """Words of a packet on their way out, seen from who has them: ``ready`` takes one."""

    def __init__(self) -> None:
        super().__init__({"valid": Out(1), "last": Out(1), "word": Out(32), "ready": In(1)})


class SerialReceiver(wiring.Component):
    """Puts words together and checks the VCRC."""

    def __init__(self) -> None:
        super().__init__(
            {
                "line": In(Line()),
                "packet": Out(Arrival()),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The circuit."""
        m = Module()
        vcrc = Signal(VCRC_BITS, init=_ONES)
        high = Signal(HALF_BITS)
        odd = Signal()
        data = Signal()
        m.d.comb += [
            data.eq(self.line.valid & ~self.line.last),
            self.packet.valid.eq(data & odd),
            self.packet.word.eq(Cat(self.line.data, high)),
            self.packet.end.eq(self.line.valid & self.line.last),
            self.packet.vcrc_ok.eq(self.line.data == swapped(~vcrc)),
            self.packet.whole.eq(~odd),
        ]
        with m.If(data):
            m.d.sync += [
                odd.eq(~odd),
                high.eq(self.line.data),
                vcrc.eq(next_state(vcrc, self.line.data, VCRC_POLYNOMIAL)),
            ]
        with m.If(self.packet.end):
            m.d.sync += [odd.eq(0), vcrc.eq(_ONES)]
        return m


class SerialTransmitter(wiring.Component):
    """Sends the packets of two FIFOs, each with its VCRC: ``reply``, those of the RQ's engine, first.

    When ``limit`` of them have gone in a row while one of the SQ's waited, that one goes.
    """

    def __init__(self, limit: int = 4) -> None:
        if not 1 <= limit <= 255:
            raise ValueError(f"1…255 replies in a row, not {limit}")
        self.limit = limit
        self.source, self.row = Signal(), Signal(range(limit + 1))
        self.busy, self.low, self.tail = Signal(), Signal(), Signal()
        super().__init__({"reply": In(Departure()), "request": In(Departure()), "line": Out(Line())})

    def elaborate(self, platform: Any) -> Module:
        """The circuit."""
        m = Module()
        source, row = self.source, self.row
        busy, low, tail = self.busy, self.low, self.tail
        vcrc = Signal(VCRC_BITS, init=_ONES)
        word, last, valid = Signal(32), Signal(), Signal()
        for i, packet in enumerate((self.reply, self.request)):
            with m.If(source == i):
                m.d.comb += [
                    word.eq(packet.word),
                    last.eq(packet.last),
                    valid.eq(packet.valid & busy & ~tail),
                    packet.ready.eq(valid & low),
                ]
        m.d.comb += self.line.valid.eq(valid | tail)
        with m.If(tail):
            m.d.comb += [self.line.data.eq(swapped(~vcrc)), self.line.last.eq(1)]
            m.d.sync += [tail.eq(0), busy.eq(0), vcrc.eq(_ONES)]
        with m.Else():
            m.d.comb += self.line.data.eq(word.word_select(~low, HALF_BITS))
        with m.If(valid):
            m.d.sync += [low.eq(~low), vcrc.eq(next_state(vcrc, self.line.data, VCRC_POLYNOMIAL))]
            with m.If(low & last):
                m.d.sync += tail.eq(1)
        with m.If(~busy & (self.reply.valid | self.request.valid)):
            m.d.sync += busy.eq(1)
            with m.If(self.reply.valid & ~(self.request.valid & (row == self.limit))):
                m.d.sync += [source.eq(0), row.eq(Mux(self.request.valid, row + 1, 0))]
            with m.Else():
                m.d.sync += [source.eq(1), row.eq(0)]
        return m
