"""The structure of the source: lines of each package, and who imports whom, as a matrix.

``python3 benchmarks/structure.py [--source DIR …] [--title WORD …] [--svg FILE]`` prints, for each tree
(``src/softhca`` by default, several side by side), lines of every package, its imports from packages below
and above it, and circles of modules; ``--svg`` draws the matrices.  Packages stand in the order of the import
contract in ``pyproject.toml``, the lowest last, so an import that climbs would stand left of the diagonal.
Imports that only type checkers follow are not counted.
"""

from __future__ import annotations

import argparse
import ast
import collections
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Structure:
    """``lines`` by package, ``imports`` of modules by (package, imported package), and ``circles``: sets of
    modules that import each other."""

    lines: dict[str, int]
    imports: dict[tuple[str, str], int]
    circles: list[list[str]]


def layers() -> list[str]:
    """The packages in the order of the contract, the highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (found,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    return [name.strip().removeprefix("softhca.") for layer in found for name in layer.split("|")]


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements that run, functions' too."""
    for statement in body:
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(statement.test):
            yield from _statements(statement.orelse)
            continue
        yield statement
        for part in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(statement, part, []))
        for handler in getattr(statement, "handlers", []):
            yield from _statements(handler.body)


def imported(source: str, modules: set[str]) -> set[str]:
    """The modules of this project that a module imports."""
    found = set()
    for statement in _statements(ast.parse(source).body):
        names: list[str] = []
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            inside = [f"{statement.module}.{alias.name}" for alias in statement.names]
            names = [name if name in modules else statement.module for name in inside]
        found |= {name for name in names if name in modules}
    return found


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Sets of two modules and more that reach each other."""
    reach: dict[str, set[str]] = {}
    for name in edges:
        seen, waiting = set(), [name]
        while waiting:
            for other in edges[waiting.pop()] - seen:
                seen.add(other)
                waiting.append(other)
        reach[name] = seen
    together = {tuple(sorted(b for b in reach[a] if a in reach[b])) for a in reach if a in reach[a]}
    return sorted([list(names) for names in together if len(names) > 1], key=len, reverse=True)


def read(source: Path) -> Structure:
    """The structure of the tree whose package ``softhca`` is ``source``."""
    files = {}
    for path in source.rglob("*.py"):
        parts = [*path.relative_to(source.parent).with_suffix("").parts]
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text()
    modules = set(files)
    edges = {name: imported(text, modules) - {name} for name, text in files.items()}
    lines: collections.Counter[str] = collections.Counter()
    imports: collections.Counter[tuple[str, str]] = collections.Counter()
    for name, others in edges.items():
        package = name.split(".")[1] if "." in name else ""
        lines[package] += len(files[name].splitlines())
        for other in others:
            there = other.split(".")[1] if "." in other else ""
            if package and there and there != package:
                imports[package, there] += 1
    return Structure(dict(lines), dict(imports), circles(edges))


def table(found: Structure, order: list[str]) -> str:
    """For people: a row a package."""
    rows = ["| package | lines | imports from below | from above |", "| --- | --- | --- | --- |"]
    for place, name in enumerate(order):
        if name not in found.lines:
            continue
        below = sum(found.imports.get((name, other), 0) for other in order[place + 1 :])
        above = sum(found.imports.get((name, other), 0) for other in order[:place])
        rows.append(f"| `{name}` | {found.lines[name]:,} | {below} | {above} |")
    rows += ["", f"Circles of modules: {len(found.circles)}"]
    rows += [f"* {len(names)}: " + ", ".join(f"`{name}`" for name in names) for names in found.circles]
    return "\n".join(rows)


def draw(all_found: list[tuple[str, Structure]], order: list[str], target: Path) -> None:
    """The matrices side by side: row imports column; darker is more."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(all_found), figsize=(6.2 * len(all_found), 6.2), squeeze=False)
    for axis, (title, found) in zip(axes[0], all_found, strict=True):
        here = [name for name in order if name in found.lines]
        counts = [[found.imports.get((row, column), 0) for column in here] for row in here]
        axis.imshow([[count**0.5 for count in row] for row in counts], cmap="Blues", vmin=0, vmax=10)
        for i, row in enumerate(counts):
            for j, count in enumerate(row):
                if count:
                    color = "red" if j < i else "white" if count > 30 else "black"
                    axis.text(j, i, str(count), ha="center", va="center", fontsize=7, color=color)
        axis.set_xticks(range(len(here)), here, rotation=90, fontsize=8)
        axis.set_yticks(range(len(here)), [f"{name} ({found.lines[name]:,})" for name in here], fontsize=8)
        axis.plot([-0.5, len(here) - 0.5], [-0.5, len(here) - 0.5], color="grey", linewidth=0.5)
        axis.set_title(title, fontsize=10)
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", nargs="+", type=Path, default=[ROOT / "src" / "softhca"], metavar="DIR")
    parser.add_argument("--title", nargs="+", default=["now"], help="of each tree (default: now)")
    parser.add_argument("--svg", type=Path, metavar="FILE")
    options = parser.parse_args()
    order = layers()
    found = [(title, read(source)) for title, source in zip(options.title, options.source, strict=True)]
    for title, structure in found:
        print(f"**{title}**\n\n{table(structure, order)}\n")
    if options.svg:
        draw(found, order, options.svg)


if __name__ == "__main__":
    main()
