"""The micro-engine's disassembler: halves to source text that assembles to the same halves."""

from __future__ import annotations

from collections.abc import Sequence

from softhca.hardware.flow import sweep, targets
from softhca.hardware.isa import SHORT_LIMIT, WITHOUT_RESULT, Condition, Form, Instruction, Operation
from softhca.hardware.micro_registers import GENERAL_COUNT, REGISTERS

_REGISTERS = {register.number: register for register in REGISTERS}


def disassemble(halves: Sequence[int]) -> str:
    """Source text, one instruction a line, with labels where jumps and calls lead.

    What has no meaning, and a jump to where no instruction of the program begins, is a ``.word``.
    """
    halves = tuple(halves)
    program = dict(sweep(halves))
    wanted = {one.operand for one in program.values() if one is not None and targets(one)}
    labels = {target: f"L{target}" for target in wanted if target in program}
    lines = []
    for address, instruction in program.items():
        if address in labels:
            lines.append(f"{labels[address]}:")
        text = None if instruction is None else instruction_text(instruction, labels)
        lines.append(f"    {text or f'.word 0x{halves[address]:06x}'}")
    return "\n".join(lines) + "\n"


def instruction_text(instruction: Instruction, labels: dict[int, str]) -> str | None:
    """One instruction as source; None for a jump to where no label is."""
    name = instruction.operation.name.lower()
    if instruction.condition is not Condition.ALWAYS:
        name += f".{instruction.condition.name.lower()}"
    if instruction.form is Form.CONTROL:
        if not targets(instruction):
            return name
        label = labels.get(instruction.operand)
        return None if label is None else f"{name} {label}"
    if not instruction.sets_flags:
        name += ".keep"
    if instruction.form is Form.LONG and instruction.operand < SHORT_LIMIT:
        name += ".long"
    access = "r" if instruction.operation in WITHOUT_RESULT else "rw"
    destination = register_text(
        instruction.destination, "w" if instruction.operation is Operation.MOVE else access
    )
    if instruction.form is Form.REGISTER:
        return f"{name} {destination}, {register_text(instruction.operand, 'r')}"
    number = instruction.operand
    return f"{name} {destination}, {number if number < SHORT_LIMIT else f'0x{number:08x}'}"


def register_text(number: int, access: str) -> str:
    """A register by its name, or by its number where the map has none for this use."""
    if number < GENERAL_COUNT:
        return f"r{number}"
    register = _REGISTERS.get(number)
    return register.name if register is not None and set(access) <= set(register.access) else f"m{number}"
