"""The micro-engine as a fast Python model: what it does, one instruction a clock, without its gates.

`InstructionModel` is what the Amaranth engine must equal in every clock: address, flags, registers and what
it writes to the bus.  The blocks around it are anything with `Registers`' three methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from softhca.hardware.isa import (
    ADDERS,
    CALL_DEPTH,
    CAPACITY,
    DATA_MASK,
    INSTRUCTION_MASK,
    NOP,
    WITHOUT_RESULT,
    Condition,
    Control,
    Form,
    Instruction,
    Operation,
    decode,
)
from softhca.hardware.micro_registers import GENERAL_COUNT, REGISTER_COUNT


class Registers(Protocol):
    """The blocks' micro-registers, as a model of the engine sees them."""

    def read(self, number: int) -> int:
        """What register ``number`` (16 … 63) shows in this clock; must change nothing."""

    def write(self, number: int, value: int) -> None:
        """Store at the end of this clock."""

    def tick(self) -> None:
        """This clock ends, after its write if it had one."""


class Retired(NamedTuple):
    """What one clock did: the instruction's address, the flags and the write to the bus that it left."""

    address: int
    z: bool
    c: bool
    write: tuple[int, int] | None


class PlainRegisters:
    """Registers that keep what is written to them; ``values``: what they hold at first, by number."""

    def __init__(self, values: Sequence[int] = (0,) * REGISTER_COUNT) -> None:
        self.values = list(values)

    def read(self, number: int) -> int:
        """The last value written."""
        return self.values[number]

    def write(self, number: int, value: int) -> None:
        """Keep ``value``."""
        self.values[number] = value

    def tick(self) -> None:
        """Nothing happens by itself."""


class InstructionModel:
    """An engine with ``halves`` as its microcode, from address 0 on; ValueError when that does not fit."""

    def __init__(self, halves: Sequence[int], bus: Registers | None = None) -> None:
        if len(halves) > CAPACITY:
            raise ValueError(f"{len(halves)} instructions do not fit into {CAPACITY}")
        if any(not 0 <= half <= INSTRUCTION_MASK for half in halves):
            raise ValueError("an instruction has 22 bits")
        used = len(halves)
        padded = (*halves, NOP)
        self.bus: Registers = bus if bus is not None else PlainRegisters()
        self.program: list[Instruction | None] = [decode(padded, address) for address in range(used)]
        self.program += [decode((NOP,), 0)] * (CAPACITY - used)
        self.registers = [0] * GENERAL_COUNT
        self.restart()

    def restart(self) -> None:
        """As after *run* was low: address 0, flags clear, nothing on the stack; the registers stay."""
        self.address = 0
        self.z = self.c = self.halted = False
        self.stack = [0] * CALL_DEPTH
        self.top = 0
        self.clocks = 0

    def run(self, limit: int) -> int:
        """Step until a halt, for ``limit`` clocks at most; the clocks that it took, the halt's included."""
        before = self.clocks
        while not self.halted and self.clocks - before < limit:
            self.step()
        return self.clocks - before

    def step(self) -> Retired:
        """One clock."""
        address, instruction = self.address, self.program[self.address]
        write = None
        following = address + 1
        if instruction is not None:
            following = address + instruction.size
            if self._holds(instruction.condition):
                if instruction.form is Form.CONTROL:
                    following = self._control(instruction, following)
                else:
                    write = self._operate(instruction)
        self.address = following % CAPACITY
        self.clocks += 1
        self.bus.tick()
        return Retired(address, self.z, self.c, write)

    def _holds(self, condition: Condition) -> bool:
        if condition is Condition.ALWAYS:
            return True
        if condition <= Condition.NZ:
            return self.z == (condition is Condition.Z)
        return self.c == (condition is Condition.C)

    def _control(self, instruction: Instruction, following: int) -> int:
        match instruction.operation:
            case Control.JUMP:
                return instruction.operand
            case Control.CALL:
                self.stack[self.top] = following % CAPACITY
                self.top = (self.top + 1) % CALL_DEPTH
                return instruction.operand
            case Control.RETURN:
                self.top = (self.top - 1) % CALL_DEPTH
                return self.stack[self.top]
        self.halted = True
        return self.address

    def _read(self, number: int) -> int:
        return self.registers[number] if number < GENERAL_COUNT else self.bus.read(number)

    def _operate(self, instruction: Instruction) -> tuple[int, int] | None:
        operation = instruction.operation
        a = self._read(instruction.destination)
        b = self._read(instruction.operand) if instruction.form is Form.REGISTER else instruction.operand
        result, carry = alu(operation, a, b)
        if instruction.sets_flags:
            self.z = result == 0
            if operation in ADDERS:
                self.c = carry
        if operation in WITHOUT_RESULT:
            return None
        if instruction.destination < GENERAL_COUNT:
            self.registers[instruction.destination] = result
            return None
        self.bus.write(instruction.destination, result)
        return instruction.destination, result


def alu(operation: int, a: int, b: int) -> tuple[int, bool]:
    """The result (32 bits) of ``a`` op ``b``, and the adder's carry out where it has one."""
    count = b & 31
    match operation:
        case Operation.ADD:
            return (a + b) & DATA_MASK, a + b > DATA_MASK
        case Operation.SUB | Operation.CMP:
            return (a - b) & DATA_MASK, a >= b
        case Operation.OR:
            return a | b, False
        case Operation.XOR:
            return a ^ b, False
        case Operation.AND:
            return a & b, False
        case Operation.ROR:
            return (a >> count | a << (32 - count)) & DATA_MASK, False
        case Operation.SHL:
            return a << count & DATA_MASK, False
        case Operation.BIT:
            return a >> count & 1, False
    return b, False
