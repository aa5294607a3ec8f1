"""Prove that the simulated worlds catch bugs: break a copy of the source, run worlds until one says so.

``python tests/mutants/run.py`` runs the catalogue, or the mutants named; those of the same-host path and some
others, which no world can show, are judged by tests.  ``--patch FILE.diff`` and
``--replace FILE OLD NEW`` try one of your own; ``--auto MODULE …`` makes many by rule.  Exit status: 0 all
found, 1 some not, 2 usage or a source that fails by itself.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from mutant_auto import PACKAGES, Auto
from mutant_catalogue import CATALOGUE, EVERYTHING
from mutant_edits import Edit, Mutant, MutantError, Source, file_of, from_diff
from mutant_judged import JUDGED, WITH_TESTS
from mutant_near import NEAR, Bench
from mutant_near import TESTS as NEAR_TESTS
from mutant_report import markdown, modules_table, survivors_text
from mutant_rules import mutants_of, sample
from mutant_trials import BROKEN, EQUIVALENT, FOUND, Laboratory, Result

AUTO_LIMIT_S = 20.0
PACKAGE = Path(__file__).resolve().parents[2] / "src" / "softhca"


def parser_of() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the catalogue (all)")
    parser.add_argument("--list", action="store_true", help="show the catalogue and end")
    parser.add_argument("--patch", nargs="+", default=[], metavar="FILE", help="unified diffs, each a mutant")
    parser.add_argument("--replace", nargs=3, action="append", default=[], metavar=("FILE", "OLD", "NEW"))
    parser.add_argument("--auto", nargs="+", default=[], metavar="MODULE", help="transport/retry, a folder")
    parser.add_argument("--sample", type=int, default=20, metavar="N", help="--auto: a module's (0: all)")
    parser.add_argument("--sample-seed", type=int, default=1, metavar="S", help="--auto: which ones")
    parser.add_argument("--seeds", type=seeds, metavar="A..B", help="1..1000; with --auto 1..3")
    parser.add_argument("--scenario", nargs="+", default=[], metavar="NAME", help="only these (all)")
    parser.add_argument("--tests", nargs="+", default=PACKAGES, metavar="FOLDER", help="--auto: try these")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes")
    parser.add_argument(
        "--limit", type=float, default=0, metavar="SECONDS", help="a mutant (none; --auto: 20)"
    )
    parser.add_argument("--json", metavar="FILE", help="write all results there")
    parser.add_argument("--markdown", metavar="FILE", help="write the table there")
    parser.add_argument("--source", type=Path, default=PACKAGE, metavar="DIR", help="the package to break")
    return parser


def seeds(text: str) -> tuple[int, int]:
    """``A..B`` or one seed."""
    match = re.fullmatch(r"([0-9]+)(?:\.\.([0-9]+))?", text)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r}: expected A..B with A at most B")
    return int(match[1]), int(match[2] or match[1])


def chosen(args: argparse.Namespace, source: Source) -> list[Mutant]:
    """The mutants that the command line asks for; MutantError."""
    found = [from_diff(Path(path).name, Path(path).read_text()) for path in args.patch]
    for number, (file, old, new) in enumerate(args.replace, 1):
        found.append(Mutant(f"replace-{number}", (Edit(file_of(file), old, new),), "from outside"))
    for module in args.auto:
        for file in source.modules(module):
            made = mutants_of(file, source.text(file))
            found += sample(made, args.sample, f"{args.sample_seed}/{file}")
    known = {mutant.name: mutant for mutant in (*EVERYTHING, *NEAR, *WITH_TESTS)}
    for name in args.names:
        if name not in known:
            raise MutantError(f"there is no mutant {name!r}; --list shows them")
        found.append(known[name])
    return found or [*CATALOGUE, *NEAR, *WITH_TESTS]


def show(result: Result) -> None:
    """One line as it is known."""
    place = f"{result.file}:{result.line}"
    amount = f"{result.tests} tests, {result.worlds} worlds, {result.seconds:.1f} s"
    print(f"{result.name:36} {place:34} {result.found_by}  [{amount}]", flush=True)


def campaign(args: argparse.Namespace, folder: Path) -> int:
    """Run what was asked for."""
    source = Source(args.source, folder)
    mutants = chosen(args, source)
    start = time.monotonic()
    if args.auto:
        results = by_rule(args, source, mutants)
    else:
        near = [mutant for mutant in mutants if mutant in NEAR]
        judged = [each for each in JUDGED if each[0] in mutants]
        far = [mutant for mutant in mutants if mutant not in NEAR and mutant not in WITH_TESTS]
        results = by_worlds(args, source, far) if far else []
        results += by_tests(args, source, near, NEAR_TESTS) if near else []
        for test in dict.fromkeys(test for _, test in judged):
            results += by_tests(args, source, [mutant for mutant, by in judged if by == test], [test])
    print(survivors_text(results), end="")
    found = sum(result.verdict == FOUND for result in results)
    broken = sum(result.verdict == BROKEN for result in results)
    tried = sum(result.verdict not in (BROKEN, EQUIVALENT) for result in results)
    seconds = time.monotonic() - start
    print(f"{found} of {tried} mutants found, {broken} broken, {seconds:.0f} s")
    if args.json:
        document = {"mutants": [result.document() for result in results]}
        Path(args.json).write_text(json.dumps(document, indent=1) + "\n")
    if args.markdown:
        Path(args.markdown).write_text(modules_table(results) if args.auto else markdown(results))
    return 0 if found == tried and not broken else 1


def by_rule(args: argparse.Namespace, source: Source, mutants: list[Mutant]) -> list[Result]:
    """Mutants by rule: the packages' own tests, then worlds."""
    first, last = args.seeds or (1, 3)
    auto = Auto(source, first, last, args.limit or AUTO_LIMIT_S, args.jobs, args.scenario, args.tests)
    results = auto.run(mutants, show)
    if auto.tests_left_out:
        print(f"tests left out, for they fail alone or are skipped: {', '.join(auto.tests_left_out)}")
    print(modules_table(results), end="")
    return results


def by_worlds(args: argparse.Namespace, source: Source, mutants: list[Mutant]) -> list[Result]:
    """The catalogue's, and those from outside: worlds alone, which the original must pass."""
    first, last = args.seeds or (1, 1000)
    laboratory = Laboratory(source, first, last, args.limit, args.jobs, args.scenario)
    control = laboratory.control()
    print(f"control: the unchanged source passes {control['worlds']} worlds", flush=True)
    results = laboratory.run(mutants, show)
    witnesses = dict.fromkeys((found.scenario, found.seed) for found in results if found.verdict == FOUND)
    if witnesses:
        control = laboratory.control(witnesses)
        print(f"control: the unchanged source passes the {len(witnesses)} worlds that found mutants")
    print(f"seeds {first}..{last}")
    return results


def by_tests(
    args: argparse.Namespace, source: Source, mutants: list[Mutant], tests: Sequence[str]
) -> list[Result]:
    """Those that no world can show: some tests alone, which the original must pass."""
    bench = Bench(source, args.jobs, tests)
    bench.control()
    print(f"control: the unchanged source passes {' '.join(tests)}", flush=True)
    return bench.run(mutants, show)


def main(words: list[str] | None = None) -> int:
    """The program."""
    args = parser_of().parse_args(words)
    if args.list:
        for mutant in (*CATALOGUE, *NEAR, *WITH_TESTS):
            print(f"{mutant.name:36} {mutant.files:34} {mutant.why}")
        return 0
    try:
        with tempfile.TemporaryDirectory(prefix="softhca-mutants-") as folder:
            return campaign(args, Path(folder))
    except (MutantError, OSError) as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
