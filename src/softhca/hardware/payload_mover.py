"""Payload on its way between host memory and the FIFOs, for an engine that only says how much and where.

Host memory is bytes, its words have the lowest address in their lowest byte; a packet's words have their
first byte on top.  So pieces of any place and length can be put behind one another in a packet, and taken
out of it: bytes that do not fill a word wait for the next piece.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, Signature

from softhca.hardware.crc import swapped
from softhca.hardware.ports import ADDRESS_BITS, BYTES, WORD_BITS, HostBus

MOST_BYTES = 4096
"""A piece: at most a page."""
OUT, INWARD, FINISH = 0, 1, 2
"""To the send FIFO; from the receive FIFO; the packet in the send FIFO is complete."""


class MoveCommand(Signature):
    """Seen from who commands: ``start`` for one clock; ``done`` for one clock, with ``failed``."""

    def __init__(self) -> None:
        super().__init__(
            {
                "start": Out(1),
                "kind": Out(2),
                "address": Out(ADDRESS_BITS),
                "length": Out(range(MOST_BYTES + 1)),
                "done": In(1),
                "failed": In(1),
            }
        )


class MoveOut(Signature):
    """Words for the send FIFO, seen from the mover; ``end``: the packet is complete.  ``forget``: the FIFO
    has thrown the packet away."""

    def __init__(self) -> None:
        super().__init__({"valid": Out(1), "word": Out(WORD_BITS), "end": Out(1), "forget": In(1)})


class MoveIn(Signature):
    """Words of the receive FIFO, seen from the mover; ``last``: the packet's ICRC, which is no payload.
    ``forget``: the packet is over."""

    def __init__(self) -> None:
        super().__init__(
            {"ready": In(1), "last": In(1), "word": In(WORD_BITS), "take": Out(1), "forget": In(1)}
        )


class PayloadMover(wiring.Component):
    """One command at a time.

    `OUT` reads ``length`` bytes (1 … `MOST_BYTES`) from ``address`` and appends them to the packet in the
    send FIFO, `FINISH` fills its last word with zeros and ends it.  `INWARD` writes the next ``length``
    bytes of the packet in the receive FIFO to ``address``, and no byte beside them.  It fails where the host
    refuses, or the packet has no such bytes; then what follows in that packet is unknown.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "command": In(MoveCommand()),
                "bus": Out(HostBus()),
                "out": Out(MoveOut()),
                "inward": Out(MoveIn()),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The circuit."""
        m = Module()
        address, left = Signal(ADDRESS_BITS), Signal(range(MOST_BYTES + 1))
        skip, here = address[:2], Signal(3)  # bytes of the host's word before the piece, and of the piece
        m.d.comb += [
            here.eq(Mux(left < BYTES - skip, left, BYTES - skip)),
            self.bus.address.eq(Cat(Const(0, 2), address[2:])),
        ]
        m.d.sync += [self.out.valid.eq(0), self.out.end.eq(0)]
        with m.FSM(name="moving"):
            with m.State("IDLE"), m.If(self.command.start):
                m.d.sync += [address.eq(self.command.address), left.eq(self.command.length)]
                with m.Switch(self.command.kind):
                    with m.Case(OUT):
                        m.next = "READ"
                    with m.Case(INWARD):
                        m.next = "TAKE"
                    with m.Default():
                        m.next = "FINISH"
            waiting_out = self._outward(m, address, left, skip, here)
            waiting_in = self._inward(m, address, left, skip, here)
            with m.State("DONE"):
                m.d.comb += self.command.done.eq(1)
                m.next = "IDLE"
            with m.State("FAILED"):
                m.d.comb += [self.command.done.eq(1), self.command.failed.eq(1)]
                m.next = "IDLE"
        for forget, waiting in ((self.out.forget, waiting_out), (self.inward.forget, waiting_in)):
            with m.If(forget):
                m.d.sync += [value.eq(0) for value in waiting]
        return m

    def _outward(
        self, m: Module, address: Signal, left: Signal, skip: Value, here: Signal
    ) -> tuple[Signal, Signal]:
        """READ: a word of the host's, and what of it fills a word of the packet; FINISH.  What waits."""
        kept, count = Signal(3 * 8), Signal(2)  # bytes that do not fill a word, the first one lowest
        read, joined, total = Signal(WORD_BITS), Signal(7 * 8), Signal(3)
        m.d.comb += [
            read.eq((self.bus.read_data >> (skip << 3)) & ((Const(1, WORD_BITS + 1) << (here << 3)) - 1)),
            joined.eq(kept | (read << (count << 3))),
            total.eq(count + here),
        ]
        with m.State("READ"):
            m.d.comb += self.bus.valid.eq(1)
            with m.If(self.bus.done & self.bus.error):
                m.next = "FAILED"
            with m.Elif(self.bus.done):
                m.d.sync += [
                    self.out.word.eq(swapped(joined[:WORD_BITS])),
                    self.out.valid.eq(total[2]),
                    kept.eq(Mux(total[2], joined[WORD_BITS:], joined)),
                    count.eq(total),
                    address.eq(address + here),
                    left.eq(left - here),
                ]
                with m.If(left == here):
                    m.next = "DONE"
        with m.State("FINISH"):
            m.d.sync += [
                self.out.word.eq(swapped(Cat(kept, Const(0, 8)))),
                self.out.valid.eq(count != 0),
                count.eq(0),
                kept.eq(0),
            ]
            m.next = "END"
        with m.State("END"):
            m.d.sync += self.out.end.eq(1)
            m.next = "DONE"
        return kept, count

    def _inward(
        self, m: Module, address: Signal, left: Signal, skip: Value, here: Signal
    ) -> tuple[Signal, Signal]:
        """TAKE: a word of the packet, where bytes are wanting; WRITE: a word of the host's.  What waits."""
        held, count = Signal(7 * 8), Signal(3)
        source = self.inward
        m.d.comb += [
            self.bus.write_data.eq(held[:WORD_BITS] << (skip << 3)),
            self.bus.mask.eq(((Const(1, BYTES + 1) << here) - 1) << skip),
        ]
        with m.State("TAKE"):
            m.next = "WRITE"
            with m.If(count < here):
                m.d.comb += source.take.eq(source.ready & ~source.last)
                m.d.sync += [held.eq(held | (swapped(source.word) << (count << 3))), count.eq(count + BYTES)]
                with m.If(~source.take):
                    m.next = "FAILED"
        with m.State("WRITE"):
            m.d.comb += [self.bus.valid.eq(1), self.bus.write.eq(1)]
            with m.If(self.bus.done & self.bus.error):
                m.next = "FAILED"
            with m.Elif(self.bus.done):
                m.d.sync += [
                    held.eq(held >> (here << 3)),
                    count.eq(count - here),
                    address.eq(address + here),
                    left.eq(left - here),
                ]
                m.next = "TAKE"
                with m.If(left == here):
                    m.next = "DONE"
        return held, count
