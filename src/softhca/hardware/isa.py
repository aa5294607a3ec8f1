"""The micro-engine's instructions: 22 bits, two to a word of the instruction memory, as data.

Theory of operation.  The memory has 2048 words of 44 bits.  An instruction's address counts 22-bit halves:
0 is bits 43..22 of word 0, 1 its bits 21..0, 2 the upper half of word 1.  Bits 21..20 are the form:

* 0 *register*: operation, destination, source, flags, condition;
* 1 *short*: the same with a number from 0 to 63 where the source stands;
* 2 *long*: takes a whole word, so its address is even: operation, destination, then all 32 bits of a number.
  It has no room for a condition and always sets the flags;
* 3 *control*: what becomes of the address.

An operation is ``A op B``: A is the destination register's value, B the source register's or the number; the
result goes to the destination.  Z is set where the result is 0.  C is the adder's carry out: for a
subtraction and a comparison C says A ≥ B (unsigned); operations without the adder leave C as it was.

Every instruction takes one clock; one whose condition does not hold does nothing in it.  What has no meaning
(`decode` gives None) does nothing in its clock too.  All zeros, which moves ``r0`` to ``r0`` and sets no
flags, is the instruction for that.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

INSTRUCTION_BITS = 22
WORD_BITS = 2 * INSTRUCTION_BITS
WORDS = 2048
CAPACITY = 2 * WORDS
"""Instructions that the memory has room for."""
ADDRESS_BITS = 12
CALL_DEPTH = 4
"""Calls that may be under way; the next one overwrites the oldest."""
INSTRUCTION_MASK = (1 << INSTRUCTION_BITS) - 1
SHORT_LIMIT = 1 << 6
DATA_MASK = (1 << 32) - 1
NOP = 0


class Form(enum.IntEnum):
    """Bits 21..20."""

    REGISTER = 0
    SHORT = 1
    LONG = 2
    CONTROL = 3


class Operation(enum.IntEnum):
    """What the ALU does: bits 19..16 of all forms but control."""

    MOVE = 0
    ADD = 1
    SUB = 2
    OR = 3
    XOR = 4
    AND = 5
    CMP = 6
    ROR = 7
    SHL = 8
    BIT = 9


class Control(enum.IntEnum):
    """What a control instruction does: bits 19..18."""

    JUMP = 0
    CALL = 1
    RETURN = 2
    HALT = 3


class Select(enum.IntEnum):
    """Where the sequencer takes the next address from: two of the decoder's eight control bits."""

    NEXT = 0
    TARGET = 1
    STACK = 2
    HERE = 3


class Condition(enum.IntEnum):
    """When an instruction acts, by the flags that earlier instructions left; codes above 4: never."""

    ALWAYS = 0
    Z = 1
    NZ = 2
    C = 3
    NC = 4


WITHOUT_RESULT = frozenset((Operation.CMP, Operation.BIT))
"""They only set flags."""
ADDERS = frozenset((Operation.ADD, Operation.SUB, Operation.CMP))
"""They change C."""

MEANINGS: dict[Operation, str] = {
    Operation.MOVE: "B",
    Operation.ADD: "A + B; C: carry out",
    Operation.SUB: "A − B; C: A ≥ B",
    Operation.OR: "A or B",
    Operation.XOR: "A exclusive or B",
    Operation.AND: "A and B",
    Operation.CMP: "A − B for the flags alone; C: A ≥ B",
    Operation.ROR: "A rotated right by B mod 32",
    Operation.SHL: "A shifted left by B mod 32",
    Operation.BIT: "bit B mod 32 of A for Z alone: set where the bit is 0",
}


class Field(NamedTuple):
    """A field of an instruction: its name, lowest bit and width in bits."""

    name: str
    low: int
    bits: int

    def get(self, word: int) -> int:
        """This field of ``word``."""
        return (word >> self.low) & ((1 << self.bits) - 1)


FORM = Field("form", 20, 2)
OPERATION = Field("operation", 16, 4)
DESTINATION = Field("destination", 10, 6)
SOURCE = Field("source", 4, 6)
FLAGS = Field("flags", 3, 1)
CONDITION = Field("condition", 0, 3)
HIGH = Field("number, bits 31..22", 0, 10)
CONTROL = Field("control", 18, 2)
CONTROL_CONDITION = Field("condition", 15, 3)
TARGET = Field("target", 0, 12)

FIELDS: dict[Form, tuple[Field, ...]] = {
    Form.REGISTER: (FORM, OPERATION, DESTINATION, SOURCE, FLAGS, CONDITION),
    Form.SHORT: (FORM, OPERATION, DESTINATION, SOURCE._replace(name="number"), FLAGS, CONDITION),
    Form.LONG: (FORM, OPERATION, DESTINATION, HIGH),
    Form.CONTROL: (FORM, CONTROL, CONTROL_CONDITION, TARGET),
}
"""The encoding; bits 14..12 of a control instruction are 0, and so is the target of a return and a halt."""


class Instruction(NamedTuple):
    """An instruction with a meaning.  ``operand``: source register or number; of control: the target."""

    form: Form
    operation: Operation | Control
    destination: int = 0
    operand: int = 0
    sets_flags: bool = False
    condition: Condition = Condition.ALWAYS

    @property
    def size(self) -> int:
        """Halves of a word that it takes."""
        return 2 if self.form is Form.LONG else 1

    @property
    def ends(self) -> bool:
        """Whether the address behind it is never the next one."""
        return (
            self.form is Form.CONTROL
            and self.operation is not Control.CALL
            and self.condition is Condition.ALWAYS
        )


CLOCKS = 1
"""Clocks that any instruction takes."""


def encode(instruction: Instruction) -> tuple[int, ...]:
    """Its one or two halves; ValueError when a part of it has no room in its field."""
    form, operation, destination, operand, sets_flags, condition = instruction
    if form is Form.CONTROL:
        _check(operand, TARGET.bits, "target")
        if operation in (Control.RETURN, Control.HALT) and operand:
            raise ValueError(f"{operation.name.lower()} has no target")
        return (form << 20 | operation << 18 | condition << 15 | operand,)
    _check(destination, DESTINATION.bits, "destination")
    head = form << 20 | operation << 16 | destination << 10
    if form is Form.LONG:
        _check(operand, 32, "number")
        if condition is not Condition.ALWAYS or not sets_flags:
            raise ValueError("a number of 32 bits leaves no room for a condition, and always sets the flags")
        return head | operand >> INSTRUCTION_BITS, operand & INSTRUCTION_MASK
    _check(operand, SOURCE.bits, "source" if form is Form.REGISTER else "number")
    return (head | operand << 4 | sets_flags << 3 | condition,)


def _check(value: int, bits: int, name: str) -> None:
    if not 0 <= value < 1 << bits:
        raise ValueError(f"{name} {value} is not within 0 … {(1 << bits) - 1}")


def decode(halves: list[int] | tuple[int, ...], address: int) -> Instruction | None:
    """The instruction at ``address`` of a program, given as halves; None where these bits have no meaning."""
    half = halves[address]
    form = Form(FORM.get(half))
    if form is Form.CONTROL:
        return _decode_control(half)
    if OPERATION.get(half) not in _OPERATIONS:
        return None
    operation, destination = Operation(OPERATION.get(half)), DESTINATION.get(half)
    if form is Form.LONG:
        if address & 1 or address + 1 >= len(halves):
            return None
        number = HIGH.get(half) << INSTRUCTION_BITS | halves[address + 1]
        return Instruction(form, operation, destination, number, True)
    if CONDITION.get(half) not in _CONDITIONS:
        return None
    condition = Condition(CONDITION.get(half))
    return Instruction(form, operation, destination, SOURCE.get(half), bool(FLAGS.get(half)), condition)


def _decode_control(half: int) -> Instruction | None:
    kind, condition, target = Control(CONTROL.get(half)), CONTROL_CONDITION.get(half), half & 0x7FFF
    if condition not in _CONDITIONS or target >= CAPACITY:
        return None
    if kind in (Control.RETURN, Control.HALT) and target:
        return None
    return Instruction(Form.CONTROL, kind, 0, target, False, Condition(condition))


_OPERATIONS = frozenset(Operation)
_CONDITIONS = frozenset(Condition)


def packed(halves: list[int] | tuple[int, ...]) -> list[int]:
    """Halves as 44-bit words; a last odd half is followed by one that does nothing."""
    padded = [*halves, NOP] if len(halves) & 1 else halves
    return [upper << INSTRUCTION_BITS | lower for upper, lower in zip(padded[::2], padded[1::2], strict=True)]


def unpacked(words: list[int]) -> list[int]:
    """44-bit words as halves."""
    return [half for word in words for half in (word >> INSTRUCTION_BITS, word & INSTRUCTION_MASK)]
