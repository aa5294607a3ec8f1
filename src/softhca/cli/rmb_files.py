"""Files that ``softhca rmb`` reads and writes: what goes wrong with one is a line that names it."""

from __future__ import annotations

from pathlib import Path

from softhca.cli.errors import CommandError

MAX_BYTES = 4 << 20
"""Of microcode, or words of it: 4,096 instructions are all that a memory has."""


def read_text(path: Path) -> str:
    """The text of ``path``; CommandError when there is none, or more than `MAX_BYTES`."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise CommandError(f"{path}: more than {MAX_BYTES >> 20} MiB")
        return data.decode().replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path}: not a text file ({error.reason})") from error


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path``; CommandError when that cannot be."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error


def make_empty(path: Path | None) -> None:
    """Make a file that a simulation will fill, if one is wanted; CommandError before it begins when that
    cannot be."""
    if path is not None:
        write_text(path, "")
