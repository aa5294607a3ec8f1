"""Where a command of a host can be refused, read from the sources: what the table of refusals must reach.

A refusal is an OSError with an errno and a text.  `sites` lists those of the modules that commands go
through, each as a regular expression for the texts that it gives.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import softhca
from softhca.transport.states import RULES

ROOT = Path(softhca.__file__).parent
MODULES = (
    "adapter", "memory/arenas.py", "memory/descriptors.py", "memory/on_demand.py", "memory/paged.py",
    "memory/paged_layout.py", "memory/paged_mapping.py", "memory/protection.py", "memory/regions.py",
    "memory/tpt.py", "memory/windows.py", "queues/completion.py", "queues/qp_attributes.py",
    "queues/ring.py", "management/cm", "management/dispatcher.py", "driver/channels.py",
)  # fmt: skip


class Site(NamedTuple):
    """A place in the sources: a module and function, and what matches its texts whole."""

    module: str
    function: str
    pattern: str


def sites() -> list[Site]:
    """All of them, those of the state machine's table of rules among them."""
    found = [Site("transport/states.py", "RULES", _formatted(text)) for text in RULES.values()]
    for path in _paths():
        name = str(path.relative_to(ROOT))
        tree = ast.parse(path.read_text())
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                found += [Site(name, function.name, pattern) for pattern in _patterns(function)]
    return found


def _paths() -> Iterator[Path]:
    for module in MODULES:
        path = ROOT / module
        yield from sorted(path.glob("*.py")) if path.is_dir() else [path]


def _patterns(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            call = node.exc
            if isinstance(call.func, ast.Name) and call.func.id == "OSError" and len(call.args) == 2:
                yield _pattern(call.args[1])


def _pattern(text: ast.expr) -> str:
    if isinstance(text, ast.Constant):
        return re.escape(str(text.value))
    if isinstance(text, ast.JoinedStr):
        return "".join(
            re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".*" for part in text.values
        )
    return ".*"


def _formatted(text: str) -> str:
    return ".*".join(re.escape(part) for part in re.split(r"{\w+}", text))
