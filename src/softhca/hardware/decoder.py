"""The micro-engine's instruction decoder: from 22 bits to what the other parts do."""

from __future__ import annotations

from amaranth.hdl import Cat, Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from softhca.hardware.isa import (
    ADDRESS_BITS,
    CONDITION,
    CONTROL,
    CONTROL_CONDITION,
    DESTINATION,
    FLAGS,
    FORM,
    INSTRUCTION_BITS,
    OPERATION,
    SOURCE,
    TARGET,
    WITHOUT_RESULT,
    Control,
    Field,
    Form,
    Operation,
    Select,
)

SEQUENCE_LAYOUT = data.StructLayout({"select": 2, "condition": 3, "push": 1, "pop": 1, "two": 1})
"""The eight control bits from the decoder to the sequencer.

``select``: where the address comes from (`Select`), if ``condition`` holds and otherwise from the next one;
``push``: a call puts the next address on the stack; ``pop``: a return takes the top away; ``two``: a long
form, the next address is two further.
"""


class Decoder(wiring.Component):
    """Combinational.  ``odd``: the instruction is its word's lower half.  ``stores``, ``sets_flags``: the
    ALU's result, its flags are to be kept, in a clock in which the sequencer says ``acts``."""

    def __init__(self) -> None:
        super().__init__(
            {
                "instruction": In(INSTRUCTION_BITS),
                "odd": In(1),
                "operation": Out(OPERATION.bits),
                "destination": Out(DESTINATION.bits),
                "source": Out(SOURCE.bits),
                "target": Out(ADDRESS_BITS),
                "immediate": Out(1),
                "long": Out(1),
                "stores": Out(1),
                "sets_flags": Out(1),
                "sequence": Out(SEQUENCE_LAYOUT),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Fields by their places; bits that are no instruction give zeros."""
        m = Module()
        form = self._field(FORM)
        operation = self._field(OPERATION)
        operates = operation <= max(Operation)
        without_result = Cat(operation == one for one in sorted(WITHOUT_RESULT)).any()
        m.d.comb += [
            self.operation.eq(operation),
            self.destination.eq(self._field(DESTINATION)),
            self.source.eq(self._field(SOURCE)),
            self.target.eq(self._field(TARGET)),
            self.immediate.eq(form != Form.REGISTER),
        ]
        with m.Switch(form):
            with m.Case(Form.REGISTER, Form.SHORT), m.If(operates):
                m.d.comb += [
                    self.stores.eq(~without_result),
                    self.sets_flags.eq(self._field(FLAGS)),
                    self.sequence.condition.eq(self._field(CONDITION)),
                ]
            with m.Case(Form.LONG), m.If(operates & ~self.odd):
                m.d.comb += [
                    self.long.eq(1),
                    self.stores.eq(~without_result),
                    self.sets_flags.eq(1),
                    self.sequence.two.eq(1),
                ]
            with m.Case(Form.CONTROL):
                self._control(m)
        return m

    def _control(self, m: Module) -> None:
        kind = self._field(CONTROL)
        unused = self.instruction[TARGET.bits : CONTROL_CONDITION.low]
        targets = (kind == Control.JUMP) | (kind == Control.CALL)
        with m.If((unused == 0) & (targets | (self._field(TARGET) == 0))):
            m.d.comb += [
                self.sequence.condition.eq(self._field(CONTROL_CONDITION)),
                self.sequence.push.eq(kind == Control.CALL),
                self.sequence.pop.eq(kind == Control.RETURN),
            ]
            with m.Switch(kind):
                with m.Case(Control.JUMP, Control.CALL):
                    m.d.comb += self.sequence.select.eq(Select.TARGET)
                with m.Case(Control.RETURN):
                    m.d.comb += self.sequence.select.eq(Select.STACK)
                with m.Case(Control.HALT):
                    m.d.comb += self.sequence.select.eq(Select.HERE)

    def _field(self, field: Field):  # type: ignore[no-untyped-def]
        return self.instruction[field.low : field.low + field.bits]
