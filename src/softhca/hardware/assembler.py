"""The micro-engine's assembler: source text to halves, or where and why not.

A line is ``label: operation operands ; comment``, each part optional.  Operations are the encoding's
(`softhca.hardware.isa`), in small letters, with suffixes: ``.z .nz .c .nc`` the condition, ``.keep`` the
flags stay, ``.long`` the form with 32 bits also for a small number.  Operands: a general register ``r0`` …
``r15``, a block's register by its name in the map, any register by its number (``m45``), a number (decimal,
``0x``, ``0b``, negative: two's complement), a name.  Directives:

* ``.engine SQ`` (or ``RQ``, ``SQ RQ``, ``SQ-ALONE``): whose map of registers holds; without it that of both;
* ``.name window, r3``: a register's other name; ``.set LAST, 1280``: a number's name;
* ``.word 0x3C0000``: one instruction by its bits;
* ``.if NAME`` … ``.else`` … ``.end``: what follows where that number is not 0, or is; not nested;
* ``.include NAME``: the lines of a part, which belong to this line in a listing.

A number above 63 takes the long form.  That begins at an even address, so the assembler puts an instruction
that does nothing before it where it must; a label stands behind that.  A program must fit, and no path
through it may leave it (`softhca.hardware.flow`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from softhca.hardware.flow import FlowError, check_flow
from softhca.hardware.isa import (
    CAPACITY,
    DATA_MASK,
    INSTRUCTION_MASK,
    NOP,
    SHORT_LIMIT,
    WITHOUT_RESULT,
    Condition,
    Control,
    Form,
    Instruction,
    Operation,
    encode,
)
from softhca.hardware.micro_registers import (
    ENGINES,
    GENERAL_COUNT,
    REGISTER_COUNT,
    REGISTERS,
    MicroRegister,
    is_on_bus,
)

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NUMBER = re.compile(r"-?(0[xX][0-9A-Fa-f_]+|0[bB][01_]+|[0-9][0-9_]*)")
OPERATIONS: dict[str, Operation | Control] = {
    **{operation.name.lower(): operation for operation in Operation},
    **{control.name.lower(): control for control in Control},
}
CONDITIONS = {condition.name.lower(): condition for condition in Condition if condition}


class AssemblyError(Exception):
    """The source is refused: ``line`` and ``column`` (from 1) of what is wrong, and the ``reason``."""

    def __init__(self, line: int, column: int, reason: str) -> None:
        super().__init__(f"{line}:{column}: {reason}")
        self.line = line
        self.column = column
        self.reason = reason


class Placed(NamedTuple):
    """Halves at ``address``, made by source line ``line`` (0: put in by the assembler).

    ``text`` is what that line says, or the line of the part that it includes.
    """

    address: int
    halves: tuple[int, ...]
    line: int
    text: str = ""


class Program(NamedTuple):
    """Assembled microcode."""

    halves: tuple[int, ...]
    placed: tuple[Placed, ...]
    labels: dict[str, int]
    source: tuple[str, ...]


class _Operand(NamedTuple):
    text: str
    column: int


def assemble(
    source: str, constants: Mapping[str, int] | None = None, parts: Mapping[str, str] | None = None
) -> Program:
    """The program that ``source`` says; AssemblyError when it says none.

    ``constants`` take the place of what a ``.set`` of the same name says; ValueError when there is none.
    ``parts``: the source of what it may include, by name.
    """
    assembler = _Assembler(source, constants or {}, parts or {})
    for number, text in enumerate(assembler.lines, 1):
        assembler.read(number, text)
    unknown = (constants or {}).keys() - assembler.constants.keys()
    if unknown:
        raise ValueError(f"no constant {min(unknown)!r}")
    return assembler.finish()


class _Assembler:
    def __init__(self, source: str, given: Mapping[str, int], parts: Mapping[str, str]) -> None:
        self.given = given
        self.parts = parts
        self.included = ""
        self.chosen: bool | None = None  # in .if: whether these lines count
        self.lines = source.splitlines()
        self.line, self.text = 0, ""
        self.engines = frozenset(("SQ", "RQ"))
        self.labels: dict[str, int] = {}
        self.pending: list[str] = []
        self.registers: dict[str, int] = {f"r{number}": number for number in range(GENERAL_COUNT)}
        self.registers |= {f"m{number}": number for number in range(REGISTER_COUNT)}
        self.constants: dict[str, int] = {}
        self.placed: list[Placed] = []
        self.address = 0
        self.open: list[tuple[int, int, _Operand, Instruction]] = []  # jumps whose label comes later

    def fail(self, column: int, reason: str) -> AssemblyError:
        return AssemblyError(self.line, column, self.included + reason)

    # reading

    def read(self, number: int, text: str) -> None:
        self.line, self.text = number, text
        text = text.split(";", 1)[0].rstrip()
        if self.chosen is False:
            text = re.sub(r"^(\s*[A-Za-z_]\w*\s*:)*", "", text)  # labels do not count either
            if text.split(maxsplit=1)[:1] not in ([".if"], [".else"], [".end"]):
                return
        column = 0
        while (label := re.match(r"\s*([A-Za-z_]\w*)\s*:", text[column:])) is not None:
            self._define(label[1], column + label.start(1) + 1)
            self.pending.append(label[1])
            column += label.end()
        rest = text[column:]
        word = re.match(r"\s*(\S+)", rest)
        if word is None:
            return
        operands = self._operands(rest, word.end(), column)
        at = column + word.start(1) + 1
        if word[1].startswith("."):
            self._directive(word[1], at, operands)
        else:
            self._operation(word[1], at, operands)

    def _operands(self, rest: str, start: int, column: int) -> list[_Operand]:
        if not rest[start:].strip():
            return []
        found = []
        for piece in rest[start:].split(","):
            lead = len(piece) - len(piece.lstrip())
            found.append(_Operand(piece.strip(), column + start + lead + 1))
            start += len(piece) + 1
        for operand in found:
            if not operand.text:
                raise self.fail(operand.column, "an operand is missing")
        return found

    def _define(self, name: str, column: int) -> None:
        taken = {register.name for register in REGISTERS} | self.labels.keys() | self.constants.keys()
        if name in taken | self.registers.keys() | set(self.pending):
            raise self.fail(column, f"{name} is already a name")
        if name.lower() in OPERATIONS:
            raise self.fail(column, f"{name} is an operation's name")
        if NAME.fullmatch(name) is None:
            raise self.fail(column, f"{name!r} is no name")

    def _directive(self, word: str, column: int, operands: list[_Operand]) -> None:
        if word == ".engine":
            self._count(column, word, operands, 1)
            engines = frozenset(operands[0].text.split())
            if not engines <= set(ENGINES):
                told = "SQ, RQ, SQ RQ or SQ-ALONE"
                raise self.fail(operands[0].column, f"no engine {operands[0].text!r}: {told}")
            self.engines = engines
        elif word == ".name":
            self._count(column, word, operands, 2)
            self._define(operands[0].text, operands[0].column)
            register = self._register(operands[1], "")
            if register is None:
                raise self.fail(operands[1].column, f"{operands[1].text!r} is no register")
            self.registers[operands[0].text] = register
        elif word == ".set":
            self._count(column, word, operands, 2)
            self._define(operands[0].text, operands[0].column)
            number = self._number(operands[1])
            self.constants[operands[0].text] = self.given.get(operands[0].text, number) & DATA_MASK
        elif word == ".word":
            self._count(column, word, operands, 1)
            half = self._number(operands[0])
            if half > INSTRUCTION_MASK:
                raise self.fail(operands[0].column, f"{operands[0].text} has more than 22 bits")
            self._place((half,))
        elif word in (".if", ".else", ".end"):
            self._choose(word, column, operands)
        elif word == ".include":
            self._count(column, word, operands, 1)
            self._include(operands[0])
        else:
            raise self.fail(column, f"no directive {word!r}")

    def _choose(self, word: str, column: int, operands: list[_Operand]) -> None:
        self._count(column, word, operands, 1 if word == ".if" else 0)
        if (self.chosen is None) != (word == ".if"):
            raise self.fail(column, f"{word} {'within another' if word == '.if' else 'without .if'}")
        if word == ".if":
            self.chosen = self._number(operands[0]) != 0
        else:
            self.chosen = not self.chosen if word == ".else" else None

    def _include(self, name: _Operand) -> None:
        if name.text not in self.parts:
            raise self.fail(name.column, f"no part {name.text!r}")
        if self.included:
            raise self.fail(name.column, "a part includes none")
        line = self.line
        for number, text in enumerate(self.parts[name.text].splitlines(), 1):
            self.included = f"{name.text}:{number}: "
            self.read(line, text)
        self.included = ""

    def _count(self, column: int, word: str, operands: list[_Operand], count: int) -> None:
        if len(operands) != count:
            wanted = f"{count or 'no'} operand{'s' * (count != 1)}"
            raise self.fail(column, f"{word} takes {wanted}, not {len(operands)}")

    # instructions

    def _operation(self, word: str, column: int, operands: list[_Operand]) -> None:
        name, *marks = word.split(".")
        operation = OPERATIONS.get(name)
        if operation is None:
            raise self.fail(column, f"no operation {name!r}")
        condition, keep, wide = self._marks(marks, column + len(name))
        if isinstance(operation, Control):
            self._control(operation, condition, keep or wide, column, operands)
            return
        self._count(column, name, operands, 2)
        access = "r" if operation in WITHOUT_RESULT else "w" if operation is Operation.MOVE else "rw"
        destination = self._register(operands[0], access)
        if destination is None:
            raise self.fail(operands[0].column, f"{operands[0].text!r} is no register")
        source = self._register(operands[1], "r")
        if source is not None:
            if wide:
                raise self.fail(column, "the long form takes a number")
            self._emit(Instruction(Form.REGISTER, operation, destination, source, not keep, condition))
            return
        number = self._number(operands[1])
        if number < SHORT_LIMIT and not wide:
            self._emit(Instruction(Form.SHORT, operation, destination, number, not keep, condition))
            return
        if keep or condition:
            reason = "a number above 63 leaves no room for a condition and always sets the flags"
            raise self.fail(operands[1].column, f"{reason}: put it into a register first")
        self._emit(Instruction(Form.LONG, operation, destination, number, True))

    def _marks(self, marks: list[str], column: int) -> tuple[Condition, bool, bool]:
        condition, flags = Condition.ALWAYS, {"keep": False, "long": False}
        for mark in marks:
            if mark in CONDITIONS and not condition:
                condition = CONDITIONS[mark]
            elif mark in flags and not flags[mark]:
                flags[mark] = True
            else:
                raise self.fail(column + 1, f"no suffix {mark!r} here: z, nz, c or nc, and keep or long")
            column += len(mark) + 1
        return condition, flags["keep"], flags["long"]

    def _control(
        self, control: Control, condition: Condition, marked: bool, column: int, operands: list[_Operand]
    ) -> None:
        name = control.name.lower()
        if marked:
            raise self.fail(column, f"{name} takes a condition alone")
        if control in (Control.RETURN, Control.HALT):
            self._count(column, name, operands, 0)
            self._emit(Instruction(Form.CONTROL, control, condition=condition))
            return
        self._count(column, name, operands, 1)
        instruction = Instruction(Form.CONTROL, control, 0, 0, False, condition)
        self.open.append((len(self.placed), self.line, operands[0], instruction))
        self._place((NOP,))

    def _emit(self, instruction: Instruction) -> None:
        if instruction.form is Form.LONG and self.address & 1:
            self._append((NOP,), 0)
        self._place(encode(instruction))

    def _place(self, halves: tuple[int, ...]) -> None:
        for label in self.pending:
            self.labels[label] = self.address
        self.pending.clear()
        self._append(halves, self.line)

    def _append(self, halves: tuple[int, ...], line: int) -> None:
        if self.address + len(halves) > CAPACITY:
            raise self.fail(1, f"the program does not fit: more than {CAPACITY} instructions")
        self.placed.append(Placed(self.address, halves, line, self.text if line else ""))
        self.address += len(halves)

    # operands

    def _register(self, operand: _Operand, access: str) -> int | None:
        """Its number, None when it is no register; AssemblyError when the engine may not use it so."""
        if operand.text in self.registers:
            return self.registers[operand.text]
        for register in REGISTERS:
            if register.name == operand.text:
                self._allowed(operand, register, access)
                return register.number
        return None

    def _allowed(self, operand: _Operand, register: MicroRegister, access: str) -> None:
        if not any(is_on_bus(register, engine) for engine in self.engines):
            raise self.fail(operand.column, f"{register.name} is not on this engine's bus")
        if not set(access) <= set(register.access):
            kind = "written" if register.access == "w" else "read"
            raise self.fail(operand.column, f"{register.name} can only be {kind}")

    def _number(self, operand: _Operand) -> int:
        if operand.text in self.constants:
            return self.constants[operand.text]
        if NUMBER.fullmatch(operand.text) is None:
            raise self.fail(operand.column, f"{operand.text!r} is no register, number or name")
        try:
            number = int(operand.text, 0)
        except ValueError:
            raise self.fail(operand.column, f"{operand.text!r} is no number") from None
        if not -(1 << 31) <= number <= DATA_MASK:
            raise self.fail(operand.column, f"{operand.text} has more than 32 bits")
        return number & DATA_MASK

    # the end

    def finish(self) -> Program:
        """Resolve what was open and check where the program can go."""
        if self.chosen is not None:
            raise AssemblyError(len(self.lines), 1, ".if without .end")
        columns = {}
        for index, line, operand, instruction in self.open:
            self.line = line
            target = self._target(operand)
            columns[self.placed[index].address] = operand.column
            halves = encode(instruction._replace(operand=target))
            self.placed[index] = self.placed[index]._replace(halves=halves)
        halves = tuple(half for placed in self.placed for half in placed.halves)
        if not halves:
            raise AssemblyError(1, 1, "no instruction")
        try:
            check_flow(halves)
        except FlowError as error:
            line = next(placed.line for placed in self.placed if placed.address == error.address)
            raise AssemblyError(line, columns.get(error.address, 1), error.reason) from None
        return Program(halves, tuple(self.placed), self.labels, tuple(self.lines))

    def _target(self, operand: _Operand) -> int:
        if operand.text in self.labels:
            return self.labels[operand.text]
        if operand.text in self.pending:
            raise self.fail(operand.column, f"{operand.text} stands behind the last instruction")
        if NAME.fullmatch(operand.text) and operand.text not in self.constants:
            raise self.fail(operand.column, f"no label {operand.text!r}")
        target = self._number(operand)
        if target >= CAPACITY:
            raise self.fail(operand.column, f"{operand.text} is outside the memory's 0 … {CAPACITY - 1}")
        return target
