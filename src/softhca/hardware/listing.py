"""A listing of microcode: where each instruction stands, its bits, and the clocks that it takes."""

from __future__ import annotations

from typing import NamedTuple

from softhca.hardware.assembler import Program
from softhca.hardware.isa import CLOCKS, INSTRUCTION_BITS, WORD_BITS


class ListedLine(NamedTuple):
    """``clocks``: of this instruction; ``since_label``: from the last label straight on to its end."""

    address: int
    word: int
    half: int
    code: int
    bits: int
    clocks: int
    since_label: int
    labels: tuple[str, ...]
    line: int
    source: str

    @property
    def code_text(self) -> str:
        """The bits in hexadecimal."""
        return f"{self.code:0{-(-self.bits // 4)}x}"


def listing(program: Program) -> list[ListedLine]:
    """The lines of ``program``; one that the assembler put in has line 0 and says so."""
    names: dict[int, list[str]] = {}
    for label, address in program.labels.items():
        names.setdefault(address, []).append(label)
    rows, since = [], 0
    for placed in program.placed:
        labels = tuple(names.get(placed.address, ()))
        since = CLOCKS + (0 if labels else since)
        long = len(placed.halves) == 2
        code = placed.halves[0] << INSTRUCTION_BITS | placed.halves[1] if long else placed.halves[0]
        source = placed.text if placed.line else "(nothing: the next one begins a word)"
        rows.append(
            ListedLine(
                placed.address,
                placed.address >> 1,
                placed.address & 1,
                code,
                WORD_BITS if long else INSTRUCTION_BITS,
                CLOCKS,
                since,
                labels,
                placed.line,
                source.split(";", 1)[0].rpartition(":")[2].strip() if placed.line else source,
            )
        )
    return rows
