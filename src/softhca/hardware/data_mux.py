"""The data multiplexers of the micro-engine: what stands on the ALU's two 32-bit buses."""

from __future__ import annotations

from amaranth.hdl import Module, Mux
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from softhca.hardware.isa import DESTINATION, SHORT_LIMIT, SOURCE
from softhca.hardware.micro_registers import GENERAL_COUNT, WORD_BITS

_NUMBER_BITS = (SHORT_LIMIT - 1).bit_length()
_GENERAL_BITS = (GENERAL_COUNT - 1).bit_length()


class DataMux(wiring.Component):
    """Bus ``a`` by the destination field, bus ``b`` by the source field or the instruction's number.

    The engine's own registers are inside, written with ``data`` at the edge where ``store`` is high; every
    other number comes from the blocks (``block_a``, ``block_b``).
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "destination": In(DESTINATION.bits),
                "source": In(SOURCE.bits),
                "immediate": In(1),
                "long": In(1),
                "number": In(WORD_BITS),
                "block_a": In(WORD_BITS),
                "block_b": In(WORD_BITS),
                "store": In(1),
                "data": In(WORD_BITS),
                "a": Out(WORD_BITS),
                "b": Out(WORD_BITS),
            }
        )
        self.general = memory.Memory(shape=WORD_BITS, depth=GENERAL_COUNT, init=[])

    def elaborate(self, platform: object) -> Module:
        """A 2:1 multiplexer picks the short or the long number, an AND gate lets it on bus B."""
        m = Module()
        m.submodules.general = general = self.general
        write = general.write_port()
        read_a, read_b = general.read_port(domain="comb"), general.read_port(domain="comb")
        number = Mux(self.long, self.number, self.source[:_NUMBER_BITS])
        register = Mux(self.source < GENERAL_COUNT, read_b.data, self.block_b)
        m.d.comb += [
            write.addr.eq(self.destination[:_GENERAL_BITS]),
            write.data.eq(self.data),
            write.en.eq(self.store & (self.destination < GENERAL_COUNT)),
            read_a.addr.eq(self.destination[:_GENERAL_BITS]),
            read_b.addr.eq(self.source[:_GENERAL_BITS]),
            self.a.eq(Mux(self.destination < GENERAL_COUNT, read_a.data, self.block_a)),
            self.b.eq(
                (number & self.immediate.replicate(WORD_BITS))
                | (register & (~self.immediate).replicate(WORD_BITS))
            ),
        ]
        return m
