"""Which lines of the package a test or a world executes: the mutants of a line concern only these."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

Lines = dict[str, int]
"""By file below ``softhca/``: the sum of 2 to the power of each line that runs."""


def mask(lines: Iterable[int]) -> int:
    """Lines as in Lines."""
    return sum(1 << line for line in set(lines))


class Tracer:
    """Collects the lines that run of ``files`` below ``home`` (the folder ``softhca``)."""

    def __init__(self, home: Path, files: Iterable[str]) -> None:
        self.files = {f"{home}/{file}": file for file in files}
        self.lines: dict[str, set[int]] = {}
        self.locals: dict[CodeType, Callable[..., Any] | None] = {}

    def start(self) -> None:
        """From now on, in every thread that begins later, too."""
        threading.settrace(self._call)
        sys.settrace(self._call)

    def stop(self) -> Lines:
        """The lines since the last stop."""
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        found = {file: mask(lines) for file, lines in self.lines.items()}
        self.lines.clear()
        self.locals.clear()
        return found

    def _call(self, frame: FrameType, event: str, value: object) -> Callable[..., Any] | None:
        code = frame.f_code
        if code not in self.locals:
            self.locals[code] = self._local(code)
        return self.locals[code]

    def _local(self, code: CodeType) -> Callable[..., Any] | None:
        file = self.files.get(code.co_filename)
        if file is None:
            return None
        lines = self.lines.setdefault(file, set())

        def local(frame: FrameType, event: str, value: object) -> Callable[..., Any]:
            if event == "line":
                lines.add(frame.f_lineno)
            return local

        return local
