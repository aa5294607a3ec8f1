"""Results on stdout (one JSON document, or tables), progress on the terminal's stderr."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO


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


def print_table(
    title: str, columns: Iterable[str], rows: Iterable[Iterable[Any]], stream: TextIO | None = None
) -> None:
    """A table of results on stdout (or ``stream``), plain text where that is not a terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    stream = stream or sys.stdout
    Console(file=stream, width=None if stream.isatty() else 160).print(table)


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
