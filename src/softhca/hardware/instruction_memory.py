"""The micro-engine's memory: 2048 words of 44 bits, two instructions each, loaded over the local bus."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from softhca.hardware.isa import ADDRESS_BITS, INSTRUCTION_BITS, WORD_BITS, WORDS


class LocalBus(wiring.Signature):
    """The local bus as the host drives it: one instruction (22 bits) a clock, by its address.

    A write is stored at the clock's edge; load while the engine stands, for it may otherwise fetch the old
    word. While it stands ``read_data`` shows, in the clock after its ``address``, what is stored there.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "address": Out(ADDRESS_BITS),
                "write": Out(1),
                "write_data": Out(INSTRUCTION_BITS),
                "read_data": In(INSTRUCTION_BITS),
            }
        )


class InstructionMemory(wiring.Component):
    """``word`` and ``instruction`` are, in the next clock, what stands at ``following``; ``odd``: that is its
    word's lower half.  ``fetch`` low gives the read port to the local bus."""

    def __init__(self) -> None:
        super().__init__(
            {
                "fetch": In(1),
                "following": In(ADDRESS_BITS),
                "word": Out(WORD_BITS),
                "instruction": Out(INSTRUCTION_BITS),
                "odd": Out(1),
                "local": In(LocalBus()),
            }
        )
        self.data = memory.MemoryData(shape=WORD_BITS, depth=WORDS, init=[])

    def elaborate(self, platform: object) -> Module:
        """One read port, one write port with an enable for each half, and the multiplexer of the halves."""
        m = Module()
        m.submodules.memory = store = memory.Memory(self.data)
        write = store.write_port(granularity=INSTRUCTION_BITS)
        read = store.read_port()
        address = Signal(ADDRESS_BITS)
        m.d.comb += [
            write.addr.eq(self.local.address[1:]),
            write.data.eq(self.local.write_data.replicate(2)),
            # bit 0 of the enable is the lower half, which odd addresses name
            write.en.eq(Mux(self.local.address[0], 0b01, 0b10) & self.local.write.replicate(2)),
            address.eq(Mux(self.fetch, self.following, self.local.address)),
            read.en.eq(1),
            read.addr.eq(address[1:]),
            self.word.eq(read.data),
            self.instruction.eq(Mux(self.odd, read.data[:INSTRUCTION_BITS], read.data[INSTRUCTION_BITS:])),
            self.local.read_data.eq(self.instruction),
        ]
        m.d.sync += self.odd.eq(address[0])
        return m
