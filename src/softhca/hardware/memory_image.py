"""Microcode as a file: one 44-bit word of the instruction memory a line, eleven hexadecimal digits.

Verilog's ``$readmemh`` reads it.  Empty lines and comments (``//`` to the end of the line) are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from softhca.hardware.assembler import AssemblyError
from softhca.hardware.isa import INSTRUCTION_BITS, INSTRUCTION_MASK, WORD_BITS, WORDS, packed

_DIGITS = -(-WORD_BITS // 4)


def image_text(halves: Sequence[int]) -> str:
    """The file of a program; its last word is filled with an instruction that does nothing."""
    return "".join(f"{word:0{_DIGITS}x}\n" for word in packed(tuple(halves)))


def read_image(text: str) -> tuple[int, ...]:
    """The halves of a file; AssemblyError (line, column, reason) where it is none."""
    halves: list[int] = []
    for number, line in enumerate(text.splitlines(), 1):
        for word in re.finditer(r"\S+", line.split("//", 1)[0]):
            column = word.start() + 1
            if re.fullmatch(r"[0-9A-Fa-f]+", word[0]) is None:
                raise AssemblyError(number, column, f"{word[0]!r} is no hexadecimal number")
            if int(word[0], 16) >> WORD_BITS:
                raise AssemblyError(number, column, f"{word[0]} has more than {WORD_BITS} bits")
            if len(halves) == 2 * WORDS:
                raise AssemblyError(number, column, f"the program does not fit: more than {WORDS} words")
            value = int(word[0], 16)
            halves += (value >> INSTRUCTION_BITS, value & INSTRUCTION_MASK)
    if not halves:
        raise AssemblyError(1, 1, "no word")
    return tuple(halves)
