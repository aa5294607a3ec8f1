"""softhca beside others, measured in one run; tables and plots go into docs/performance.md.

``python benchmarks/performance.py [--interpreted PYTHON] [--quick] [--rounds N] [--seconds T]``.
``--quick`` looks at little, once, and prints it; a whole run writes the document, unless told to ``--print``.
It measures the targets' rows a second time beside a busy loop on each processor (``--no-busy``: it does not).
The figures are kept in ``--figures FILE``; ``--from FILE`` writes the document from them again.
"""

import argparse
import json
import sys
from pathlib import Path

from bench import document, machine, plots, targets
from bench.load import BUSY, CONDITIONS, QUIET
from bench.plan import QUICK_QUEUE_PAIRS, QUICK_SIZES, Settings
from bench.report import report
from bench.rounds import Results, from_document, measure

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "performance.md"
FIGURES = ROOT / "build" / "performance.json"
MARKERS = "performance"


def run(args: argparse.Namespace) -> list[Results]:
    """The rounds of each condition."""
    described = machine.describe()
    found = []
    for condition in CONDITIONS if args.busy and not args.quick else (QUIET,):
        settings = Settings(args.seconds, interpreted=args.interpreted)
        rounds = args.rounds
        if args.quick:
            settings.sizes_bytes, settings.queue_pairs = QUICK_SIZES, QUICK_QUEUE_PAIRS
            settings.seconds, rounds = min(args.seconds, 0.2), 1
        if condition == BUSY:
            settings.only = targets.needed()
        found.append(measure(settings, rounds, args.limit, described, condition))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--interpreted", metavar="PYTHON", default="", help="its softhca is not compiled")
    parser.add_argument("--quick", action="store_true", help="one short round of little, printed only")
    parser.add_argument("--rounds", type=int, default=5, help="default %(default)s")
    parser.add_argument("--seconds", type=float, default=0.4, help="of a test (default %(default)s)")
    parser.add_argument("--no-busy", action="store_false", dest="busy", help="no rounds beside busy loops")
    parser.add_argument("--limit", type=float, default=840.0, metavar="S",
                        help="of quiet rounds, and of busy ones: none begins that would not end by then "
                             "(default %(default)s)")  # fmt: skip
    parser.add_argument("--print", action="store_true", help="print the tables, write only the figures")
    parser.add_argument("--figures", type=Path, default=FIGURES, metavar="FILE", help="default %(default)s")
    parser.add_argument("--from", type=Path, dest="source", metavar="FILE", help="measure nothing, read this")
    args = parser.parse_args()
    if args.source:
        found = [from_document(each) for each in json.loads(args.source.read_text())]
    else:
        found = run(args)
        args.figures.parent.mkdir(parents=True, exist_ok=True)
        args.figures.write_text(json.dumps([each.as_document() for each in found], indent=1))
    results, busy = found[0], found[1] if len(found) > 1 else None
    if args.quick or args.print:
        print(report(results, busy=busy))
        return
    drawn = plots.draw(results, DOCUMENT.parent)
    if not drawn:
        print("no plots: matplotlib is not installed (pip install softhca[plot])", file=sys.stderr)
    document.write(DOCUMENT, MARKERS, report(results, drawn, busy))
    print(f"{DOCUMENT} is written", file=sys.stderr)


if __name__ == "__main__":
    main()
