"""Where microcode can go: refuses a program that does not fit, jumps outside, or runs off its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from softhca.hardware.isa import CALL_DEPTH, CAPACITY, Control, Form, Instruction, decode


class FlowError(Exception):
    """The instruction at ``address`` leads to where it must not; ``reason`` says where."""

    def __init__(self, address: int, reason: str) -> None:
        super().__init__(f"address {address}: {reason}")
        self.address = address
        self.reason = reason


def sweep(halves: Sequence[int]) -> Iterator[tuple[int, Instruction | None]]:
    """The instructions from address 0 on, one behind the other, as a program is written."""
    halves = tuple(halves)
    address = 0
    while address < len(halves):
        instruction = decode(halves, address)
        yield address, instruction
        address += 1 if instruction is None else instruction.size


def targets(instruction: Instruction | None) -> bool:
    """Whether its operand is an address."""
    return (
        instruction is not None
        and instruction.form is Form.CONTROL
        and instruction.operation in (Control.JUMP, Control.CALL)
    )


def check_flow(halves: Sequence[int]) -> None:
    """FlowError when the program does not fit, a jump or call leads outside or into the middle of a long
    form, an instruction that can be reached has none behind it, or calls and returns do not match."""
    if len(halves) > CAPACITY:
        raise FlowError(CAPACITY, f"{len(halves)} instructions do not fit into {CAPACITY}")
    program = dict(sweep(halves))
    for address, instruction in program.items():
        if instruction is None or not targets(instruction):
            continue
        target, name = instruction.operand, instruction.operation.name.lower()
        if target >= len(halves):
            raise FlowError(address, f"{name} to {target}, outside the program's 0 … {len(halves) - 1}")
        if target not in program:
            raise FlowError(address, f"{name} to {target}, the second half of a number")
    _check_paths(program)


def _check_paths(program: dict[int, Instruction | None]) -> None:
    """Follow every path from address 0; a call is taken to come back."""
    waiting, known = [(0, 0, 0)], set()
    while waiting:
        address, depth, origin = waiting.pop()
        if (address, depth) in known:
            continue
        known.add((address, depth))
        if address not in program:
            raise FlowError(origin, "the program runs off its end")
        instruction = program[address]
        if instruction is None or not instruction.ends:
            following = address + (1 if instruction is None else instruction.size)
            waiting.append((following, depth, address))
        if instruction is None or instruction.form is not Form.CONTROL:
            continue
        if instruction.operation is Control.RETURN and depth == 0:
            raise FlowError(address, "a return without a call")
        if instruction.operation is Control.CALL and depth == CALL_DEPTH:
            raise FlowError(address, f"calls nest deeper than {CALL_DEPTH}")
        if targets(instruction):
            waiting.append((instruction.operand, depth + (instruction.operation is Control.CALL), address))
