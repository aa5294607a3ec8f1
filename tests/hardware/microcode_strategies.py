"""Random microcode: mostly instructions with a meaning, some that are any 22 bits."""

from hypothesis import strategies as st

from softhca.hardware.isa import (
    INSTRUCTION_MASK,
    NOP,
    Condition,
    Control,
    Form,
    Instruction,
    Operation,
    encode,
)

LENGTH = 48
REGISTER_VALUES = st.binary(min_size=256, max_size=256).map(lambda data: memoryview(data).cast("I").tolist())
NUMBERS = st.one_of(
    st.integers(0, 0xFFFFFFFF),
    st.sampled_from([0, 1, 31, 32, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]),
)
# few registers, so that instructions meet each other's results
REGISTERS = st.one_of(st.sampled_from([0, 1, 2, 15, 16, 17, 63]), st.integers(0, 63))
CONDITIONS = st.sampled_from(Condition)


ALWAYS, NO = st.just(Condition.ALWAYS), st.just(False)
NOTHING = st.just(0)


def operations() -> st.SearchStrategy[Instruction]:
    """An operation in any of its three forms."""
    work, numbers = st.sampled_from(Operation), st.integers(0, 63)
    return st.one_of(
        _instructions(Form.REGISTER, work, REGISTERS, REGISTERS, st.booleans(), CONDITIONS),
        _instructions(Form.SHORT, work, REGISTERS, numbers, st.booleans(), CONDITIONS),
        _instructions(Form.LONG, work, REGISTERS, NUMBERS, st.just(True), ALWAYS),
    )


def controls(targets: st.SearchStrategy[int]) -> st.SearchStrategy[Instruction]:
    """A jump, call or return; rarely a halt."""
    kinds = st.sampled_from([Control.JUMP, Control.CALL])
    ends = st.sampled_from([Control.RETURN, Control.RETURN, Control.RETURN, Control.HALT])
    return st.one_of(
        _instructions(Form.CONTROL, kinds, NOTHING, targets, NO, CONDITIONS),
        _instructions(Form.CONTROL, ends, NOTHING, NOTHING, NO, CONDITIONS),
    )


def _instructions(form: Form, *fields: st.SearchStrategy) -> st.SearchStrategy[Instruction]:
    return st.tuples(st.just(form), *fields).map(Instruction._make)


def halves_of(parts: list[Instruction | int]) -> list[int]:
    """The parts one behind the other, long forms at even addresses."""
    halves: list[int] = []
    for part in parts:
        if isinstance(part, int):
            halves.append(part)
            continue
        if part.form is Form.LONG and len(halves) & 1:
            halves.append(NOP)
        halves += encode(part)
    return halves


WORK = operations()
PROGRAMS = st.lists(
    st.one_of(WORK, WORK, WORK, controls(st.integers(0, LENGTH)), st.integers(0, INSTRUCTION_MASK)),
    min_size=LENGTH // 2,
    max_size=LENGTH,
).map(halves_of)
"""Anything: also what an assembler refuses."""


@st.composite
def proper_programs(draw: st.DrawFn) -> list[int]:
    """What an assembler takes: every jump meets an instruction, a body ends with a halt, a subroutine with a
    return."""
    body = draw(st.lists(st.one_of(WORK, WORK, st.sampled_from(Control)), min_size=1, max_size=24))
    inner = draw(st.lists(WORK, max_size=8))
    end, back = (Instruction(Form.CONTROL, kind) for kind in (Control.HALT, Control.RETURN))
    parts = [*(end if one is Control.HALT else one for one in body), end, *inner, back]
    starts, address = [], 0
    for part in parts:
        wide = isinstance(part, Instruction) and part.form is Form.LONG
        address += address & 1 if wide else 0
        starts.append(address)
        address += 2 if wide else 1
    for index, part in enumerate(parts):
        if not isinstance(part, Instruction):
            called = part is Control.CALL
            target = starts[len(body) + 1] if called else draw(st.sampled_from(starts[: len(body) + 1]))
            kind = Control.CALL if called else Control.JUMP
            parts[index] = Instruction(Form.CONTROL, kind, 0, target, False, draw(CONDITIONS))
    return halves_of(parts)
