"""softhca beside others, measured in one run; tables and plots go into docs/performance.md.

``python benchmarks/performance.py [--interpreted PYTHON] [--quick] [--rounds N] [--seconds T]``.
``--quick`` looks at little, once, and prints it; a whole run writes the document, unless told to ``--print``.
The figures are kept in ``--figures FILE``; ``--from FILE`` writes the document from them again.
"""

import argparse
import json
import sys
from pathlib import Path

from bench import document, machine, plots
from bench.plan import QUICK_QUEUE_PAIRS, QUICK_SIZES, Settings
from bench.report import report
from bench.rounds import from_document, measure

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "performance.md"
FIGURES = ROOT / "build" / "performance.json"
MARKERS = "performance"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--interpreted", metavar="PYTHON", default="", help="its softhca is not compiled")
    parser.add_argument("--quick", action="store_true", help="one short round of little, printed only")
    parser.add_argument("--rounds", type=int, default=5, help="default %(default)s")
    parser.add_argument("--seconds", type=float, default=0.4, help="of a test (default %(default)s)")
    parser.add_argument("--limit", type=float, default=840.0, metavar="S",
                        help="no round begins that would not end by then (default %(default)s)")  # fmt: skip
    parser.add_argument("--print", action="store_true", help="print the tables, write only the figures")
    parser.add_argument("--figures", type=Path, default=FIGURES, metavar="FILE", help="default %(default)s")
    parser.add_argument("--from", type=Path, dest="source", metavar="FILE", help="measure nothing, read this")
    args = parser.parse_args()
    if args.source:
        results = from_document(json.loads(args.source.read_text()))
    else:
        settings = Settings(args.seconds, interpreted=args.interpreted)
        rounds = args.rounds
        if args.quick:
            settings.sizes_bytes, settings.queue_pairs = QUICK_SIZES, QUICK_QUEUE_PAIRS
            settings.seconds, rounds = min(args.seconds, 0.2), 1
        results = measure(settings, rounds, args.limit, machine.describe())
        args.figures.parent.mkdir(parents=True, exist_ok=True)
        args.figures.write_text(json.dumps(results.as_document(), indent=1))
    if args.quick or args.print:
        print(report(results))
        return
    drawn = plots.draw(results, DOCUMENT.parent)
    if not drawn:
        print("no plots: matplotlib is not installed (pip install softhca[plot])", file=sys.stderr)
    document.write(DOCUMENT, MARKERS, report(results, drawn))
    print(f"{DOCUMENT} is written", file=sys.stderr)


if __name__ == "__main__":
    main()
