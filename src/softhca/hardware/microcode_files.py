"""The microcode that comes with the package: source files of the folder ``microcode``, by name; ``.inc`` are
parts that programs include."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files

from softhca.hardware.assembler import Program, assemble

_FOLDER = files("softhca.hardware") / "microcode"
_SUFFIX = ".asm"
_PART = ".inc"


def microcode_names() -> list[str]:
    """The names that there are, sorted."""
    found = (entry.name for entry in _FOLDER.iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX))


def microcode_source(name: str) -> str:
    """The source text; ValueError when there is none of that name."""
    if name not in microcode_names():
        raise ValueError(f"no microcode {name!r}: {', '.join(microcode_names())}")
    return (_FOLDER / f"{name}{_SUFFIX}").read_text(encoding="utf-8")


def microcode_program(name: str, constants: Mapping[str, int] | None = None) -> Program:
    """The program, with other ``constants`` where they are given (`assemble`); it is assembled once."""
    return _assembled(microcode_source(name), tuple(sorted((constants or {}).items())))


@lru_cache(maxsize=16)
def _assembled(source: str, constants: tuple[tuple[str, int], ...]) -> Program:
    return assemble(source, dict(constants), microcode_parts())


@lru_cache(maxsize=1)
def microcode_parts() -> Mapping[str, str]:
    """The parts by name."""
    found = (entry for entry in _FOLDER.iterdir() if entry.name.endswith(_PART))
    return {entry.name.removesuffix(_PART): entry.read_text(encoding="utf-8") for entry in found}
