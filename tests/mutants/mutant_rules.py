"""Mutants made by rule from a module's syntax tree: many small ones that nobody chose.

The rules: a comparison turned or moved by one, a condition negated, ``and`` for ``or``, ``+`` for ``−``,
``&`` for ``|``, an integer one greater, True for False, a call or an assignment left out, a returned value
that is 0, a ``return`` left out.  Each mutant is one edit of one line (or of one statement).
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator

from mutant_edits import Edit, Mutant

COMPARISONS: dict[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<=", ">="),
    ast.LtE: ("<", ">"),
    ast.Gt: (">=", "<="),
    ast.GtE: (">", "<"),
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
}
OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.BitAnd: "|", ast.BitOr: "&", ast.LShift: ">>", ast.RShift: "<<",
    ast.Mult: "+", ast.FloorDiv: "*", ast.Mod: "//",
}  # fmt: skip
IGNORED_CALLS = ("declare", "super", "__init__")
SHOWN = 120
"""Characters of the old and the new line that are shown, and tell equivalent mutants."""


class _Finder:
    """Collects the mutants of one module."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self.starts = [0]
        for line in text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line.encode()))
        self.data = text.encode()
        self.found: list[Mutant] = []

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where a node's text begins and ends, in bytes."""
        begin = self.starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = self.starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return begin, end

    def source(self, node: ast.AST) -> str:
        """A node's text."""
        begin, end = self.span(node)
        return self.data[begin:end].decode()

    def add(self, node: ast.AST, begin: int, end: int, new: str, what: str) -> None:
        """Text begin … end becomes ``new``; the edit takes whole lines."""
        first = max(i for i, start in enumerate(self.starts) if start <= begin)
        last = max(i for i, start in enumerate(self.starts) if start < max(end, begin + 1))
        stop = self.starts[last + 1] if last + 1 < len(self.starts) else len(self.data)
        old = self.data[self.starts[first] : stop]
        changed = self.data[self.starts[first] : begin] + new.encode() + self.data[end:stop]
        name = f"{self.file.removesuffix('.py')}:{first + 1}:{begin - self.starts[first]} {what}"
        edit = Edit(self.file, old.decode(), changed.decode(), first + 1)
        shown = " → ".join(" ".join(text.decode().split())[:SHOWN] for text in (old, changed))
        self.found.append(Mutant(name, (edit,), shown))

    def swap(self, node: ast.AST, new: str, what: str) -> None:
        """A whole node becomes ``new``."""
        self.add(node, *self.span(node), new, what)

    # the rules

    def compare(self, node: ast.Compare) -> None:
        left: ast.expr = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            begin, end = self.span(left)[1], self.span(right)[0]
            for new in COMPARISONS[type(operator)]:
                self.add(node, begin, end, _between(self.data[begin:end].decode(), new), f"compares {new}")
            left = right

    def boolean(self, node: ast.BoolOp) -> None:
        begin, end = self.span(node.values[0])[1], self.span(node.values[1])[0]
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        text = self.data[begin:end].decode()
        self.add(node, begin, end, text.replace(old, new, 1), f"{new} for {old}")

    def arithmetic(self, node: ast.BinOp) -> None:
        new = OPERATORS.get(type(node.op))
        if new is None:
            return
        begin, end = self.span(node.left)[1], self.span(node.right)[0]
        self.add(node, begin, end, _between(self.data[begin:end].decode(), new), f"{new} instead")

    def constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.swap(node, str(not node.value), "the other truth")
        elif isinstance(node.value, int):
            self.swap(node, str(node.value + 1), "one more")

    def statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            name = self.source(node.value.func).rsplit(".", 1)[-1]
            if name not in IGNORED_CALLS:
                self.swap(node, "pass", "call left out")
        elif isinstance(node, ast.AugAssign) or (
            isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript)
        ):
            self.swap(node, "pass", "assignment left out")
        elif isinstance(node, ast.If | ast.While):
            self.swap(node.test, f"not ({self.source(node.test)})", "condition negated")
        elif isinstance(node, ast.Return):
            if node.value is None:
                self.swap(node, "pass", "return left out")
            elif not (isinstance(node.value, ast.Constant) and not node.value.value):
                self.swap(node, "return 0", "returns 0")


def _between(text: str, operator: str) -> str:
    """The text between two operands with another operator in it; line breaks and comments stay."""
    bare = text.strip(" ()\n\\\t")
    word = bare.split("#")[0].strip() or bare
    return text.replace(word, operator, 1)


def _nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes that may be mutated: function bodies, without docstrings, assertions, annotations, raises."""
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name not in ("__init__", "__repr__", "__str__")
    ]
    pending: list[ast.AST] = []
    for function in functions:
        pending += function.body
    seen: set[int] = set()
    while pending:
        node = pending.pop(0)
        if id(node) in seen or isinstance(node, ast.Assert | ast.Raise | ast.FunctionDef | ast.JoinedStr):
            continue
        seen.add(id(node))
        yield node
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Call):  # zip(…, strict=True) is an assertion
            children = [child for child in children if getattr(child, "arg", "") != "strict"]
        if isinstance(node, ast.AnnAssign):
            children = [node.value] if node.value is not None else []
        pending += children


def mutants_of(file: str, text: str) -> list[Mutant]:
    """All mutants that the rules give of a module, in the order of its lines."""
    finder = _Finder(file, text)
    for node in _nodes(ast.parse(text)):
        if isinstance(node, ast.Compare):
            finder.compare(node)
        elif isinstance(node, ast.BoolOp):
            finder.boolean(node)
        elif isinstance(node, ast.BinOp):
            finder.arithmetic(node)
        elif isinstance(node, ast.Constant):
            finder.constant(node)
        elif isinstance(node, ast.stmt):
            finder.statement(node)
    unique = {mutant.name: mutant for mutant in finder.found}
    return sorted(unique.values(), key=lambda mutant: (mutant.edits[0].line, mutant.name))


def sample(mutants: list[Mutant], count: int, seed: str) -> list[Mutant]:
    """``count`` of them (0: all), the same ones for a seed, in their order."""
    if not count or len(mutants) <= count:
        return mutants
    chosen = sorted(random.Random(seed).sample(range(len(mutants)), count))
    return [mutants[i] for i in chosen]
