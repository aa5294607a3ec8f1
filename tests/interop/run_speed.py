"""``python tests/interop/run_speed.py``: SoftRoCE and softhca side by side between the same two guests.

Both are emulated, so only ratios count.  Rounds go through all programs in turn; the first warms up and is
not counted.  Exit status 0 when all was measured, 2 when no guest can be had here.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from types import FrameType

from interop_image import images
from interop_network import unavailable
from interop_packages import KERNELS, Unavailable
from interop_speed_runs import TESTS, Test, Way, ways
from interop_speed_world import SpeedWorld
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

CONSOLE = Console(width=None if sys.stdout.isatty() else 200)
Figures = dict[tuple[str, str], list[float]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", choices=tuple(KERNELS), default="6.1", help="series (default 6.1)")
    parser.add_argument("--ip", type=int, choices=(4, 6), default=4, help="version (default 4)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count (default 5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement (default 1)")
    parser.add_argument("ways", nargs="*", metavar="WORD", help="only rows whose name has one of these words")
    args = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _terminated)  # so that everything is taken down
    start_s = time.monotonic()
    try:
        if unavailable():
            raise Unavailable(unavailable())
        found = images(CONSOLE.print)
        if args.kernel not in found.kernels:
            raise Unavailable(f"Linux {args.kernel}: {found.missing.get(args.kernel, 'not in the archive')}")
        kernel = found.kernels[args.kernel]
        with CONSOLE.status("booting two guests"), SpeedWorld(found, kernel, args.ip) as world:
            rows = [
                way
                for way in ways(world, args.seconds)
                if not args.ways or any(word in way.name for word in args.ways)
            ]
            figures = measured(rows, args.rounds)
    except Unavailable as error:
        CONSOLE.print(f"interop-speed: skipped: {error}", style="yellow")
        return 2
    CONSOLE.print(table(f"Linux {kernel.version}, IPv{args.ip}, {args.rounds} rounds", rows, figures))
    CONSOLE.print(f"{time.monotonic() - start_s:.0f} s")
    return 0


def _terminated(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def measured(rows: Sequence[Way], rounds: int) -> Figures:
    """Figures by way and test, in turn, after a round that warms up."""
    figures: Figures = {}
    for number in range(rounds + 1):
        for test in TESTS:
            for way in rows:
                figure = way.measure(test)
                if number:
                    figures.setdefault((way.name, test.name), []).append(figure)
                CONSOLE.print(f"{number}: {test.name}: {way.name}: {figure:,.1f} {test.unit}", style="dim")
    return figures


def table(title: str, rows: Sequence[Way], figures: Figures) -> Table:
    """Medians, and how many times as good as the row that each is compared with."""
    drawn = Table("program, stack", title=title, box=MARKDOWN)
    for test in TESTS:
        drawn.add_column(test.name, justify="right")
    for way in rows:
        drawn.add_row(way.name, *(_text(test, way, figures) for test in TESTS))
    return drawn


def _text(test: Test, way: Way, figures: Figures) -> str:
    median = statistics.median(figures[way.name, test.name])
    text = f"{median:,.0f} {test.unit}" if median >= 100 else f"{median:.1f} {test.unit}"
    base = figures.get((way.base, test.name))
    if base is None:
        return text
    ratio = median / statistics.median(base)
    return f"{text} ({1 / ratio if test.kind == 'latency' else ratio:.2f} ×)"


if __name__ == "__main__":
    sys.exit(main())
