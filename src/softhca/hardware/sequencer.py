"""The micro-sequencer: from eight control bits and the flags to the next address."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softhca.hardware.decoder import SEQUENCE_LAYOUT
from softhca.hardware.isa import ADDRESS_BITS, CALL_DEPTH, Condition, Select


class Sequencer(wiring.Component):
    """``address`` is that of this clock's instruction, ``following`` that of the next clock's, which the
    memory must be given now.  ``acts``: this clock's instruction does something, for its condition
    holds.  ``working`` is high from the second clock of ``run`` on, when the memory shows the first
    instruction.  ``run`` low: ``following`` is 0, nothing acts and the stack is empty."""

    def __init__(self) -> None:
        super().__init__(
            {
                "run": In(1),
                "sequence": In(SEQUENCE_LAYOUT),
                "target": In(ADDRESS_BITS),
                "z": In(1),
                "c": In(1),
                "working": Out(1),
                "acts": Out(1),
                "halted": Out(1),
                "address": Out(ADDRESS_BITS),
                "following": Out(ADDRESS_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """An address register, an incrementer, a stack of return addresses, and a multiplexer of four."""
        m = Module()
        stack = Array(Signal(ADDRESS_BITS, name=f"stack_{level}") for level in range(CALL_DEPTH))
        top = Signal(range(CALL_DEPTH))
        below = Signal.like(top)
        step = Signal(ADDRESS_BITS)
        holds = Signal()
        m.d.comb += [
            below.eq(top - 1),
            step.eq(self.address + 1 + self.sequence.two),
            self.acts.eq(self.working & self.run & holds),
            self.halted.eq(self.acts & (self.sequence.select == Select.HERE)),
        ]
        with m.Switch(self.sequence.condition):
            with m.Case(Condition.ALWAYS):
                m.d.comb += holds.eq(1)
            with m.Case(Condition.Z):
                m.d.comb += holds.eq(self.z)
            with m.Case(Condition.NZ):
                m.d.comb += holds.eq(~self.z)
            with m.Case(Condition.C):
                m.d.comb += holds.eq(self.c)
            with m.Case(Condition.NC):
                m.d.comb += holds.eq(~self.c)
        with m.If(self.working & self.run):
            m.d.comb += self.following.eq(step)
            with m.If(self.acts), m.Switch(self.sequence.select):
                with m.Case(Select.TARGET):
                    m.d.comb += self.following.eq(self.target)
                with m.Case(Select.STACK):
                    m.d.comb += self.following.eq(stack[below])
                with m.Case(Select.HERE):
                    m.d.comb += self.following.eq(self.address)
        m.d.sync += [self.working.eq(self.run), self.address.eq(self.following)]
        with m.If(~self.run):
            m.d.sync += top.eq(0)
        with m.Elif(self.acts & self.sequence.push):
            m.d.sync += [stack[top].eq(step), top.eq(top + 1)]
        with m.Elif(self.acts & self.sequence.pop):
            m.d.sync += top.eq(below)
        return m
