"""docs/hardware.md says of the micro-engine what its data say."""

from pathlib import Path

import pytest

pytest.importorskip("amaranth")

from softhca.hardware.decoder import SEQUENCE_LAYOUT
from softhca.hardware.isa import FIELDS, MEANINGS, Condition, Control, Form, Operation
from softhca.hardware.micro_registers import REGISTERS
from softhca.hardware.microcode_files import microcode_names, microcode_program

DOCUMENT = (Path(__file__).parents[2] / "docs" / "hardware.md").read_text(encoding="utf-8").splitlines()


def form_row(form):
    fields = sorted(FIELDS[form], key=lambda field: -field.low)
    cells = [f"{field.low + field.bits - 1}..{field.low} {field.name}" for field in fields[1:]]
    return f"| {form.value} | {form.name.lower()} | {', '.join(cells)} |"


def register_row(register):
    sides = register.engines.replace(" ", ", ")
    return (
        f"| {register.number} | `{register.name}` | {register.access} | {sides} | {register.block} | "
        f"{register.meaning} |"
    )


ROWS = [
    *map(form_row, Form),
    *(f"| {one.value} | `{one.name.lower()}` | {MEANINGS[one]} |" for one in Operation),
    *map(register_row, sorted(REGISTERS)),
]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_tables(row):
    assert row in DOCUMENT


def test_conditions_and_controls_in_words():
    text = " ".join(DOCUMENT)
    for one in (*Condition, *Control):
        assert f"{one.value} {one.name.lower()}" in text


def test_there_are_eight_control_bits():
    assert sum(field.shape for _, field in SEQUENCE_LAYOUT) == SEQUENCE_LAYOUT.size == 8


@pytest.mark.parametrize("name", microcode_names())
def test_sizes_of_the_microcode(name):
    halves = len(microcode_program(name).halves)
    assert any(line.startswith(f"| `{name}` | {halves} |") for line in DOCUMENT)
