"""Mutants as data, and private copies of the source in which one of them is applied."""

from __future__ import annotations

import ast
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

FOREIGN = re.compile(r"^(?:[ab]/)?(?:.*?src/)?softhca/|^[ab]/(?=[a-z]+/)")
JUDGES = "simulation/"
SUFFIXES = (".py", ".asm", ".inc", ".c", ".h")
"""Modules, microcode, which is assembled where it is loaded, and C that tests compile."""
HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class MutantError(ValueError):
    """A mutant that cannot be made; the message is one line that says why."""


@dataclass(frozen=True)
class Edit:
    """``find`` becomes ``replace`` in ``file`` (below ``softhca/``).

    It must occur exactly once, or begin at ``line`` (from 1 on) where that is given.
    """

    file: str
    find: str
    replace: str
    line: int = 0

    def apply(self, text: str) -> str:
        """The changed text; MutantError when the place is gone, or there are several."""
        at = self._at_line(text) if self.line else -1
        if at < 0:
            count = text.count(self.find) if self.find else 0
            if count != 1:
                shown = self.find.strip().splitlines()[:1] or [f"line {self.line}"]
                raise MutantError(f"{self.file}: {shown[0]!r} occurs {count} times, expected once")
            at = text.index(self.find)
        return text[:at] + self.replace + text[at + len(self.find) :]

    def _at_line(self, text: str) -> int:
        lines = text.splitlines(keepends=True)
        if self.line > len(lines) + 1:
            return -1
        at = sum(map(len, lines[: self.line - 1]))
        return at if text.startswith(self.find, at) else -1

    def place(self, text: str) -> int:
        """The line at which it begins in the original text."""
        at = self._at_line(text) if self.line else -1
        return self.line if at >= 0 else text[: text.index(self.find)].count("\n") + 1


@dataclass(frozen=True)
class Mutant:
    """A bug that somebody could have made: ``why`` says in one line which; ``rule``: what ought to be
    broken by it, "" for any rule.
    """

    name: str
    edits: tuple[Edit, ...]
    why: str
    rule: str = ""

    @property
    def files(self) -> str:
        """Where it is."""
        return ", ".join(dict.fromkeys(edit.file for edit in self.edits))


def mutant(name: str, file: str, find: str, replace: str, why: str, rule: str = "") -> Mutant:
    """A mutant of one edit."""
    return Mutant(name, (Edit(file, find, replace),), why, rule)


def file_of(path: str) -> str:
    """A path as people write it, relative to ``softhca/``."""
    return FOREIGN.sub("", path.strip().removeprefix("./"))


def from_diff(name: str, text: str) -> Mutant:
    """The mutant of a unified diff; MutantError for what is no such diff."""
    edits: list[Edit] = []
    file = ""
    lines = text.splitlines(keepends=True)
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if line.startswith("+++ "):
            file = file_of(line[4:].split("\t")[0])
        hunk = HUNK.match(line)
        if hunk is None:
            continue
        if not file:
            raise MutantError(f"{name}: a hunk without a file")
        old, new, at = _hunk(lines, at, int(hunk[2] or 1), int(hunk[3] or 1))
        first = int(hunk[1]) + (hunk[2] == "0")
        edits.append(Edit(file, old, new, first))
    if not edits:
        raise MutantError(f"{name} is no unified diff")
    # from the end on, so that the lines' numbers stay right
    edits.sort(key=lambda edit: (edit.file, -edit.line))
    return Mutant(name, tuple(edits), "from outside")


def _hunk(lines: list[str], at: int, old_lines: int, new_lines: int) -> tuple[str, str, int]:
    old, new = [], []
    while at < len(lines) and (len(old) < old_lines or len(new) < new_lines):
        kind, rest = lines[at][:1], lines[at][1:]
        at += 1
        if kind == "\\":
            continue
        if kind in ("\n", ""):
            kind, rest = " ", "\n"  # an editor took the trailing blank away
        if kind in " -":
            old.append(rest)
        if kind in " +":
            new.append(rest)
    return "".join(old), "".join(new), at


Part = tuple[int, int, str, str]
"""Lines ``[start, stop)`` of a module, counted from 0, and what makes a module of them, before and behind."""


def parts_of(text: str) -> list[Part]:
    """The statements of a module, and those in its classes, each with the lines up to the next one; the
    smaller before that in which they are."""
    lines, found = text.count("\n") + 1, []
    body = ast.parse(text).body
    for statement, start, stop in ranges(body, lines):
        if isinstance(statement, ast.ClassDef):
            margin = " " * statement.body[0].col_offset
            # What follows in the class must not find that the change has ended it.
            found += [
                (*place, "class _:\n", f"{margin}_ = 0\n") for _, *place in ranges(statement.body, stop)
            ]
        found.append((start, stop, "", ""))
    return found


def ranges(body: list[ast.stmt], end: int) -> list[tuple[ast.stmt, int, int]]:
    """Statements with the lines at which they, and what is behind them, begin; decorators belong to them."""
    starts = [
        min(each.lineno for each in (statement, *getattr(statement, "decorator_list", ()))) - 1
        for statement in body
    ]
    return list(zip(body, starts, [*starts[1:], end], strict=True))


def alike(some: list[str], others: list[str]) -> int:
    """How many of the first lines are the same."""
    pairs = zip(some, others, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(some), len(others)))


class Source:
    """The package ``softhca`` as it is, copied once without extension modules; with what there is of byte
    code, which the files' times keep valid."""

    def __init__(self, package: Path, folder: Path) -> None:
        self.folder = folder
        self.original = folder / "original"
        self._parts: dict[str, tuple[list[str], list[Part]]] = {}
        if not (package / "__init__.py").is_file():
            raise MutantError(f"{package} is not the package softhca")
        ignored = shutil.ignore_patterns("*.so", "*.pyd", "*.pxd", "*.pyi")
        shutil.copytree(package, self.original / "softhca", ignore=ignored)

    def text(self, file: str) -> str:
        """The original text of a file; MutantError when there is none."""
        path = self.original / "softhca" / file
        if not path.is_file() or path.suffix not in SUFFIXES:
            raise MutantError(f"there is no module softhca/{file}")
        return path.read_text()

    def modules(self, name: str) -> list[str]:
        """The modules that a name stands for: one, or all of a folder; MutantError when there are none."""
        home = self.original / "softhca"
        path = home / file_of(name).rstrip("/")
        paths = sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
        files = [str(found.relative_to(home)) for found in paths if found.name != "__init__.py"]
        if not files or not all(found.is_file() for found in paths):
            raise MutantError(f"there is no module or folder softhca/{name}")
        return files

    def changed(self, found: Mutant) -> dict[str, str]:
        """The texts of the files that a mutant changes; MutantError when it does not apply."""
        texts: dict[str, str] = {}
        for edit in found.edits:
            if edit.file.startswith(JUDGES):
                raise MutantError(f"{edit.file}: what judges the mutants stays as it is")
            texts[edit.file] = edit.apply(texts.get(edit.file) or self.text(edit.file))
        for file, text in texts.items():
            if text == self.text(file):
                raise MutantError(f"{file}: nothing changes")
            if not file.endswith(".py"):
                continue
            if self._compiles_in_part(file, text):
                continue
            try:
                compile(text, file, "exec")
            except SyntaxError as error:
                raise MutantError(f"{file}: {error.msg} in line {error.lineno}") from None
        return texts

    def _compiles_in_part(self, file: str, text: str) -> bool:
        """Whether the statement that was changed, of a module or of one of its classes, compiles by itself,
        as it then does among the others: in a fraction of the time.  False says nothing of the whole."""
        if file not in self._parts:
            original = self.text(file)
            self._parts[file] = original.splitlines(keepends=True), parts_of(original)
        before, parts = self._parts[file]
        after = text.splitlines(keepends=True)
        first = alike(before, after)
        end = len(before) - alike(before[first:][::-1], after[first:][::-1])  # of what is another
        for start, stop, head, tail in parts:
            if start <= first and end <= stop:
                part = "".join(after[start : len(after) - len(before) + stop])
                try:
                    compile(head + part + tail, file, "exec")
                except SyntaxError:
                    return False
                return True
        return False

    def copy(self, found: Mutant, name: str) -> Path:
        """A new folder with a mutant in it; the caller removes it.  MutantError.

        What is as it was are the same files: 1,800 links are made in a sixth of the time.  Python writes new
        byte code to a file of its own.
        """
        texts = self.changed(found)
        copy = self.folder / name
        shutil.copytree(self.original, copy, copy_function=os.link)
        for file, text in texts.items():
            path = copy / "softhca" / file
            for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
                stale.unlink()
            path.unlink()
            path.write_text(text)
        return copy
