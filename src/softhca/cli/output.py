"""Results on stdout (one JSON document, or tables), progress on the terminal's stderr."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TextIO

_NO_CONTROLS = dict.fromkeys((7, 8, 11, 12, 13, 10))
"""Characters that would break a line of a table."""


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """``--json``, which every command that prints results has."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document on stdout and nothing else"
    )


def print_json(document: Any) -> None:
    """``document`` as the one thing on stdout."""
    json.dump(document, sys.stdout, indent=2)
    sys.stdout.write("\n")
    sys.stdout.flush()


class Styled(NamedTuple):
    """A cell that a terminal shows in a style (``green``)."""

    text: str
    style: str

    def __str__(self) -> str:
        return self.text


LONG_TABLE_ROWS = 500


def print_table(
    title: str, columns: Iterable[str], rows: Iterable[Iterable[Any]], stream: TextIO | None = None
) -> None:
    """A table of results on stdout (or ``stream``), plain text where that is not a terminal.

    What does not fit its width is folded; not so in tables of more than `LONG_TABLE_ROWS`, whose lines are as
    long as they are.
    """
    stream = stream or sys.stdout
    columns = list(columns)
    cells = [list(row) for row in rows]
    if len(cells) > LONG_TABLE_ROWS:
        _print_long(title, columns, cells, stream)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in cells:
        table.add_row(*(Text(*cell) if isinstance(cell, Styled) else str(cell) for cell in row))
    width = None if stream.isatty() else 160
    # what is told is text: `[x]` in a name is no style, `:ab:` in an address no picture
    Console(file=stream, width=width, markup=False, emoji=False).print(table)


def _print_long(title: str, columns: list[str], rows: list[list[Any]], stream: TextIO) -> None:
    """The same without rich, which takes milliseconds for a row."""
    from rich.cells import cell_len

    texts = [[str(cell).translate(_NO_CONTROLS) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *texts, strict=True)]
    lines = ["━" * (width + 2) for width in widths]
    stream.write(f"{title}\n┏{'┳'.join(lines)}┓\n")
    for count, row in enumerate([columns, *texts]):
        edge = "│" if count else "┃"
        padded = (text + " " * (width - cell_len(text)) for text, width in zip(row, widths, strict=True))
        stream.write(f"{edge} {f' {edge} '.join(padded)} {edge}\n")
        if not count:
            stream.write(f"┡{'╇'.join(lines)}┩\n")
    stream.write(f"└{'┴'.join(lines).replace('━', '─')}┘\n")


@contextlib.contextmanager
def progress(label: str, total: float | None, wanted: bool = True) -> Iterator[Callable[[float], None]]:
    """A progress bar on stderr while the block runs, if that is a terminal.

    Yields a function that takes how much of ``total`` (None: unknown) is done.
    """
    if not wanted or not sys.stderr.isatty():
        yield _ignore
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)


@contextlib.contextmanager
def told_progress(label: str, total: int) -> Iterator[Callable[[float], None]]:
    """As `progress`, and where stderr is no terminal a line on it for each tenth that is done: for what
    takes most of a minute."""
    if sys.stderr.isatty():
        with progress(label, total) as advance:
            yield advance
        return
    told = 0

    def tell(done: float) -> None:
        nonlocal told
        tenths = int(10 * done / total)
        if tenths > told:
            told = tenths
            print(f"{label}: {10 * tenths} %", file=sys.stderr, flush=True)

    yield tell


def _ignore(done: float) -> None:
    """Progress that nobody watches."""


def bytes_text(number: float) -> str:
    """``number`` of bytes with a decimal unit: ``1.5 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(number) < 1000:
            return f"{number:.4g} {unit}"
        number /= 1000
    return f"{number:.4g} TB"
