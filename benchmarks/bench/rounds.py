"""Rounds: every cell once, again and again; medians, and ratios within rounds."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from bench import load, mpi
from bench.measure import Absent, Figure
from bench.plan import Key, Settings, cells

Reader = Callable[[Figure], float]


@dataclass
class Results:
    """What was measured: for each cell a figure a round, None where there was none; ``absent`` says why.
    ``condition``: what ran beside it on purpose; ``loads``: the machine's load average before each round.
    """

    rounds: int = 0
    seconds: float = 0.0
    elapsed_s: float = 0.0
    figures: dict[Key, list[Figure | None]] = field(default_factory=dict)
    absent: dict[Key, str] = field(default_factory=dict)
    machine: dict[str, str] = field(default_factory=dict)
    condition: str = load.QUIET
    loads: list[float] = field(default_factory=list)

    def values(self, key: Key, read: Reader) -> list[float]:
        """The figure's values, of the rounds in which there was one."""
        return [read(figure) for figure in self.figures.get(key, []) if figure is not None]

    def median(self, key: Key, read: Reader) -> float | None:
        """None when there was no figure at all."""
        values = self.values(key, read)
        return statistics.median(values) if values else None

    def ratios(self, one: Key, other: Key, read: Reader) -> list[float]:
        """One to the other, of the rounds that have both."""
        pairs = zip(self.figures.get(one, []), self.figures.get(other, []), strict=False)
        return [
            read(left) / read(right)
            for left, right in pairs
            if left is not None and right is not None and read(right)
        ]

    def ratio(self, one: Key, other: Key, read: Reader) -> float | None:
        """The median of the ratios within the rounds; None when no round has both."""
        ratios = self.ratios(one, other, read)
        return statistics.median(ratios) if ratios else None

    def as_document(self) -> dict[str, Any]:
        """For JSON."""
        cells = [
            {
                "key": list(key),
                "absent": self.absent.get(key, ""),
                "figures": [asdict(figure) if figure else None for figure in figures],
            }
            for key, figures in self.figures.items()
        ]
        return {
            "rounds": self.rounds, "seconds": self.seconds, "elapsed_s": self.elapsed_s,
            "machine": self.machine, "condition": self.condition, "loads": self.loads, "cells": cells,
        }  # fmt: skip


def from_document(document: dict[str, Any]) -> Results:
    """The reverse of `Results.as_document`."""
    names = ("rounds", "seconds", "elapsed_s", "machine", "condition", "loads")
    found = Results(**{name: document[name] for name in names})
    for cell in document["cells"]:
        kind, series, size = cell["key"]
        key = kind, series, size
        found.figures[key] = [Figure(**figure) if figure else None for figure in cell["figures"]]
        if cell["absent"]:
            found.absent[key] = cell["absent"]
    return found


def measure(
    settings: Settings, rounds: int, limit_s: float, machine: dict[str, str], condition: str = load.QUIET
) -> Results:
    """So many rounds, fewer when the next one would pass ``limit_s``; what was measured."""
    results = Results(seconds=settings.seconds, machine=machine, condition=condition)
    start_s = time.monotonic()
    while results.rounds < rounds:
        begin_s = time.monotonic()
        if results.rounds and begin_s - start_s + results.elapsed_s / results.rounds > limit_s:
            print(f"no time for more than {results.rounds} rounds within {limit_s:g} s", file=sys.stderr)
            break
        results.loads.append(load.average())
        with load.beside(condition):
            _round(settings, results)
        results.rounds += 1
        results.elapsed_s = time.monotonic() - start_s
        took_s = time.monotonic() - begin_s
        print(f"{condition}, round {results.rounds} of {rounds}: {took_s:.0f} s", file=sys.stderr)
    return results


def _round(settings: Settings, results: Results) -> None:
    try:
        settings.mpi_figures = mpi.measured(settings.sizes_bytes, settings.seconds / 2)
        why = ""
    except (Absent, ValueError, KeyError) as error:
        settings.mpi_figures, why = {}, str(error)
    for cell in cells(settings):
        figure = None
        try:
            figure = cell.measure()
        except Absent as error:
            results.absent[cell.key] = why if why and not settings.mpi_figures and _is_mpi(cell.key) else str(
                error)  # fmt: skip
        except (ValueError, KeyError, IndexError) as error:
            results.absent[cell.key] = f"its output was not understood: {error}"
        if figure is None and not results.rounds:
            print(f"{cell.key}: {results.absent[cell.key]}", file=sys.stderr)
        results.figures.setdefault(cell.key, []).append(figure)


def _is_mpi(key: Key) -> bool:
    return key[1].startswith("mpi4py")
