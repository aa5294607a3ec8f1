"""Put a mutant into functions that are loaded already: their code objects are exchanged.

What a changed function computed when its module was imported stays as it was; so that needs a new process.
"""

from __future__ import annotations

import ast
import functools
import gc
from pathlib import Path
from types import CodeType, FunctionType


class SwapError(ValueError):
    """The mutant cannot be put in; the message is one line that says why."""


@functools.lru_cache(maxsize=1)  # who asks for one line of a module asks for its others next
def _statements(text: str) -> list[ast.stmt]:
    """The statements of a module."""
    return ast.parse(text).body


def function_at(text: str, line: int) -> str:
    """The qualified name of the outermost function that holds a line; "" for none."""

    def search(body: list[ast.stmt], prefix: str) -> str:
        for node in body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                continue
            first = min([node.lineno, *(found.lineno for found in node.decorator_list)])
            if first <= line <= (node.end_lineno or first):
                name = f"{prefix}{node.name}"
                return search(node.body, f"{name}.") if isinstance(node, ast.ClassDef) else name
        return ""

    return search(_statements(text), "")


def code_lines(code: CodeType) -> set[int]:
    """Lines at which something is executed, in it and in what it defines."""
    lines = {line for _, _, line in code.co_lines() if line}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            lines |= code_lines(constant)
    return lines


def _codes(code: CodeType, found: dict[str, list[CodeType]]) -> dict[str, list[CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found.setdefault(constant.co_qualname, []).append(constant)
            _codes(constant, found)
    return found


class Loaded:
    """The functions of the package that are loaded now; ``home`` is the folder ``softhca``."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.functions: dict[tuple[str, str, int], list[FunctionType]] = {}
        gc.unfreeze()  # what tests have taken out of the collector's sight is not listed
        for found in gc.get_objects():
            if isinstance(found, FunctionType) and found.__code__.co_filename.startswith(f"{home}/"):
                code = found.__code__
                key = (code.co_filename, code.co_qualname, code.co_firstlineno)
                self.functions.setdefault(key, []).append(found)

    def swap(self, file: str, changed: str, line: int) -> None:
        """The function of ``file`` that holds ``line`` becomes as in the text ``changed``; SwapError."""
        path = self.home / file
        original = path.read_text()
        name = function_at(original, line)
        old = _codes(compile(original, str(path), "exec"), {}).get(name, [])
        new = _codes(compile(changed, str(path), "exec"), {}).get(name, [])
        at = next((i for i, code in enumerate(old) if line in _span(code)), -1)
        if at < 0 or len(old) != len(new):
            raise SwapError(f"{file}: no function holds line {line}")
        functions = self.functions.get((str(path), name, old[at].co_firstlineno), [])
        if not functions:
            raise SwapError(f"{file}: {name} is not loaded")
        for function in functions:
            if function.__code__.co_freevars != new[at].co_freevars:
                raise SwapError(f"{file}: {name} has other free variables")
            function.__code__ = new[at]


def _span(code: CodeType) -> range:
    return range(code.co_firstlineno, max(code_lines(code), default=code.co_firstlineno) + 1)
