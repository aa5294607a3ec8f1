"""The micro-engine's ALU: two inputs of 32 bits, ten functions, no register inside."""

from __future__ import annotations

from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softhca.hardware.isa import ADDERS, OPERATION, Operation
from softhca.hardware.micro_registers import WORD_BITS


class Alu(wiring.Component):
    """``result`` of ``a`` op ``b``; ``z``: it is 0; ``carry``: the adder's carry out, where ``has_carry``."""

    def __init__(self) -> None:
        super().__init__(
            {
                "a": In(WORD_BITS),
                "b": In(WORD_BITS),
                "operation": In(OPERATION.bits),
                "result": Out(WORD_BITS),
                "z": Out(1),
                "carry": Out(1),
                "has_carry": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """One adder (a subtraction adds the complement and 1), a rotator, a shifter, and a multiplexer."""
        m = Module()
        subtracts = self.operation != Operation.ADD
        total = (self.a + (self.b ^ subtracts.replicate(WORD_BITS)) + subtracts)[: WORD_BITS + 1]
        count = self.b[:5]
        m.d.comb += [
            self.has_carry.eq(Cat(self.operation == adder for adder in sorted(ADDERS)).any()),
            self.carry.eq(total[WORD_BITS]),
            self.z.eq(self.result == 0),
        ]
        with m.Switch(self.operation):
            with m.Case(Operation.ADD, Operation.SUB, Operation.CMP):
                m.d.comb += self.result.eq(total)
            with m.Case(Operation.OR):
                m.d.comb += self.result.eq(self.a | self.b)
            with m.Case(Operation.XOR):
                m.d.comb += self.result.eq(self.a ^ self.b)
            with m.Case(Operation.AND):
                m.d.comb += self.result.eq(self.a & self.b)
            with m.Case(Operation.ROR):
                m.d.comb += self.result.eq(Cat(self.a, self.a) >> count)
            with m.Case(Operation.SHL):
                m.d.comb += self.result.eq(self.a << count)
            with m.Case(Operation.BIT):
                m.d.comb += self.result.eq(self.a.bit_select(count, 1))
            with m.Default():
                m.d.comb += self.result.eq(self.b)
        return m
