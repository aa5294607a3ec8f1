"""The micro-engine: data multiplexers, ALU, decoder, sequencer, memory; one instruction a clock.

While one instruction works, the sequencer gives the memory the next one's address; there is no other
pipelining, and a jump costs nothing.  The flags that a condition looks at are those that earlier
instructions left, so the way from a block's register through the ALU ends at flip-flops and does not run
through the memory.
"""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from softhca.hardware.alu import Alu
from softhca.hardware.data_mux import DataMux
from softhca.hardware.decoder import Decoder
from softhca.hardware.instruction_memory import InstructionMemory, LocalBus
from softhca.hardware.isa import ADDRESS_BITS
from softhca.hardware.micro_registers import GENERAL_COUNT, WORD_BITS, EngineBus
from softhca.hardware.sequencer import Sequencer


class MicroEngine(wiring.Component):
    """An engine behind its two buses.  ``run`` low holds it at address 0 with clear flags and an empty
    stack, for the local bus to load; its general registers stay.  In the second clock of ``run``
    instruction 0 works.

    To look at: ``working`` (an instruction does), its ``address``, the flags ``z`` and ``c`` that it finds,
    and ``halted``: it is a halt whose condition holds.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "run": In(1),
                "bus": Out(EngineBus()),
                "local": In(LocalBus()),
                "working": Out(1),
                "address": Out(ADDRESS_BITS),
                "z": Out(1),
                "c": Out(1),
                "halted": Out(1),
            }
        )
        self.data_mux = DataMux()
        self.memory = InstructionMemory()

    def elaborate(self, platform: object) -> Module:
        """The parts of figures 8 and 9, joined."""
        m = Module()
        m.submodules.decoder = decoder = Decoder()
        m.submodules.sequencer = sequencer = Sequencer()
        m.submodules.memory = memory = self.memory
        m.submodules.data_mux = mux = self.data_mux
        m.submodules.alu = alu = Alu()
        connect(m, flipped(self.local), memory.local)
        stores = sequencer.acts & decoder.stores
        m.d.comb += [
            memory.fetch.eq(self.run),
            memory.following.eq(sequencer.following),
            decoder.instruction.eq(memory.instruction),
            decoder.odd.eq(memory.odd),
            sequencer.run.eq(self.run),
            sequencer.sequence.eq(decoder.sequence),
            sequencer.target.eq(decoder.target),
            sequencer.z.eq(self.z),
            sequencer.c.eq(self.c),
            mux.destination.eq(decoder.destination),
            mux.source.eq(decoder.source),
            mux.immediate.eq(decoder.immediate),
            mux.long.eq(decoder.long),
            mux.number.eq(memory.word[:WORD_BITS]),
            mux.block_a.eq(self.bus.read_data_a),
            mux.block_b.eq(self.bus.read_data_b),
            mux.store.eq(stores),
            mux.data.eq(alu.result),
            alu.operation.eq(decoder.operation),
            alu.a.eq(mux.a),
            alu.b.eq(mux.b),
            self.bus.read_address_a.eq(decoder.destination),
            self.bus.read_address_b.eq(decoder.source),
            self.bus.write_enable.eq(stores & (decoder.destination >= GENERAL_COUNT)),
            self.bus.write_address.eq(decoder.destination),
            self.bus.write_data.eq(alu.result),
            self.working.eq(sequencer.working),
            self.address.eq(sequencer.address),
            self.halted.eq(sequencer.halted),
        ]
        with m.If(~self.run):
            m.d.sync += [self.z.eq(0), self.c.eq(0)]
        with m.Elif(sequencer.acts & decoder.sets_flags):
            m.d.sync += self.z.eq(alu.z)
            with m.If(alu.has_carry):
                m.d.sync += self.c.eq(alu.carry)
        return m
