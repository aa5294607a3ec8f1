"""Prove that the checks of statements can fail: break a copy of the source for each statement, and see that
its own checks tell.

``python tests/conformance/run_statement_mutants.py`` runs all, or the statements named.  Exit status: 0 all
seen, 1 some not, 2 a source that fails by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "mutants"))
from mutant_edits import Mutant, MutantError, Source
from statement_mutants import MUTANTS

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "softhca"
LIMIT_S = 120
SEEN, MISSED, BROKEN = "seen", "missed", "broken"


@dataclass(frozen=True)
class Trial:
    """What became of a mutant: SEEN by the ``checks`` of its statement; MISSED; or BROKEN: ``text``."""

    mutant: Mutant
    verdict: str
    checks: tuple[str, ...] = ()
    text: str = ""


def verdict_of(folder: Path, ids: list[str]) -> list[dict[str, object]]:
    """The table of a copy, interpreted; MutantError when it cannot be had."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-P", "-m", "softhca", "conformance", "--json", *ids]
    try:
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        raise MutantError(f"more than {LIMIT_S} s") from None
    if ended.returncode not in (0, 1) or not ended.stdout:
        raise MutantError((ended.stderr.strip().splitlines() or [f"status {ended.returncode}"])[-1])
    found: list[dict[str, object]] = json.loads(ended.stdout)
    return found


def trial(source: Source, mutant: Mutant) -> Trial:
    """Run the checks of one mutant's statement on its copy."""
    try:
        copy = source.copy(mutant, f"mutant-{mutant.name}")
    except MutantError as error:
        return Trial(mutant, BROKEN, text=str(error))
    try:
        (row,) = verdict_of(copy, [mutant.name])
    except MutantError as error:
        return Trial(mutant, BROKEN, text=str(error))
    finally:
        shutil.rmtree(copy)
    failures = [str(text).partition(":")[0] for text in row.get("failures", [])]  # type: ignore[attr-defined]
    return Trial(mutant, SEEN if row["result"] == "fail" else MISSED, tuple(dict.fromkeys(failures)))


def table(trials: list[Trial]) -> str:
    """The trials in markdown."""
    rows = ["| statement | checks that saw it | the bug | in |", "| --- | --- | --- | --- |"]
    for found in trials:
        names = ", ".join(f"`{name}`" for name in found.checks[:3])
        more = f" and {len(found.checks) - 3} more" if len(found.checks) > 3 else ""
        bug = found.mutant
        rows.append(f"| {bug.name} | {names or found.verdict}{more} | {bug.why} | `{bug.files}` |")
    return "\n".join(rows) + "\n"


def main(words: list[str] | None = None) -> int:
    """The program."""
    parser = argparse.ArgumentParser(prog="statement-mutants", description=__doc__)
    parser.add_argument("ids", nargs="*", metavar="ID", help="statements (all)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there")
    parser.add_argument("--source", type=Path, default=PACKAGE, metavar="DIR", help="the package to break")
    args = parser.parse_args(words)
    chosen = [mutant for mutant in MUTANTS if not args.ids or mutant.name in args.ids]
    with tempfile.TemporaryDirectory(prefix="softhca-statements-") as folder:
        source = Source(args.source, Path(folder))
        try:
            control = verdict_of(source.original, [mutant.name for mutant in chosen])
        except MutantError as error:
            print(f"statement-mutants: the unchanged source: {error}", file=sys.stderr)
            return 2
        failing = [row["id"] for row in control if row["result"] != "pass"]
        if failing:
            print(f"statement-mutants: the unchanged source fails {failing}", file=sys.stderr)
            return 2
        trials = []
        with ThreadPoolExecutor(args.jobs) as pool:
            for found in pool.map(lambda mutant: trial(source, mutant), chosen):
                trials.append(found)
                seen = ", ".join(found.checks[:3]) or found.text
                print(f"{found.mutant.name:12} {found.verdict:7} {found.mutant.why}  [{seen}]", flush=True)
    if args.markdown:
        args.markdown.write_text(table(trials))
    good = sum(found.verdict == SEEN for found in trials)
    print(f"{good} of {len(trials)} mutants seen by the checks of their statement")
    return 0 if good == len(trials) else 1


if __name__ == "__main__":
    sys.exit(main())
