"""Tables of results."""

from __future__ import annotations

from collections.abc import Iterable

from mutant_trials import BROKEN, FOUND, Result


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
    """Killed per module.  A module's mutants that do not load are not counted."""
    counts: dict[str, list[int]] = {}
    for result in results:
        killed, judged, broken = counts.setdefault(result.file, [0, 0, 0])
        killed += result.verdict == FOUND
        judged += result.verdict != BROKEN
        counts[result.file] = [killed, judged, broken + (result.verdict == BROKEN)]
    lines = [f"{'module':34} {'killed':>6} {'of':>5} {'share':>6} {'not loadable':>13}"]
    total = [sum(column) for column in zip(*counts.values(), strict=True)]
    for file, (killed, judged, broken) in [*sorted(counts.items()), ("all", total)]:
        share = f"{killed / judged:.0%}" if judged else "-"
        lines.append(f"{file:34} {killed:6} {judged:5} {share:>6} {broken:13}")
    return "\n".join(lines)


def survivors_text(results: Iterable[Result]) -> str:
    """The mutants that nothing found, with their lines."""
    lines = [
        f"  {result.file}:{result.line} {result.name}: {result.why} "
        f"({result.verdict} after {result.worlds} worlds)\n"
        for result in results
        if result.verdict not in (FOUND, BROKEN)
    ]
    return f"not found: {len(lines)}\n{''.join(lines)}" if lines else ""
