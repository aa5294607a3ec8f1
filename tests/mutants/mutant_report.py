"""Tables of results."""

from __future__ import annotations

from collections.abc import Iterable

from mutant_trials import BROKEN, EQUIVALENT, FOUND, Result


def markdown(results: Iterable[Result]) -> str:
    """The table of the documentation."""
    lines = [
        "| mutant | file | what was broken | found by | worlds | packets | s |",
        "| --- | --- | --- | --- | ---: | ---: | ---: |",
    ]
    for result in results:
        by = f"**{result.verdict}**"
        if result.verdict == FOUND:
            by = f"`{result.scenario}` {result.seed}: {result.rule}"
        place = f"`{result.file}:{result.line}`"
        figures = f"{result.worlds:,} | {result.packets:,} | {result.seconds:.1f}"
        lines.append(f"| {result.name} | {place} | {result.why} | {by} | {figures} |")
    return "\n".join(lines) + "\n"


def modules_table(results: Iterable[Result]) -> str:
    """What became of each module's mutants; those that do not compile are not counted."""
    counts: dict[str, list[int]] = {}
    for result in results:
        if result.verdict == BROKEN:
            continue
        row = counts.setdefault(result.file, [0] * 5)
        row[0] += 1
        if result.verdict == FOUND:
            row[1 if result.by == "tests" else 2] += 1
        else:
            row[3 if result.verdict == EQUIVALENT else 4] += 1
    lines = [
        "| module | mutants | found by tests | by worlds | equivalent | not found |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    total = [sum(column) for column in zip(*counts.values(), strict=True)]
    rows = [(f"`{file}`", row) for file, row in sorted(counts.items())]
    for name, row in [*rows, ("all", total)]:
        lines.append(f"| {name} | {' | '.join(map(str, row))} |")
    return "\n".join(lines) + "\n"


def survivors_text(results: Iterable[Result]) -> str:
    """The mutants that nothing found, with their lines."""
    lines = [
        f"  {result.file}:{result.line} {result.name}: {result.why} "
        f"({result.verdict} after {result.tests} tests, {result.worlds} worlds)\n"
        for result in results
        if result.verdict not in (FOUND, BROKEN, EQUIVALENT)
    ]
    return f"not found: {len(lines)}\n{''.join(lines)}" if lines else ""
