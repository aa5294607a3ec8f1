"""``python tests/interop/run_interop.py``: the matrix against Linux's SoftRoCE, in guests, as a table.

Exit status 0 when every cell passed, 1 when one failed, 2 when no guest can be had here.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType

import interop_cells  # noqa: F401    (registers them)
import interop_cells_mix
from interop_image import Bootable, Images, images
from interop_matrix import CELLS, DIRECTIONS, SETTINGS, Cell, Outcome, Setting, run
from interop_network import unavailable
from interop_packages import KERNELS, Unavailable
from interop_user_world import UserWorld
from interop_world import World
from rich.console import Console
from rich.table import Table

CONSOLE = Console(width=None if sys.stdout.isatty() else 160)
PASSED, FAILED, ABSENT, SILENT = "[green]✓[/]", "[bold red]✗[/]", "–", "kernel failed"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", choices=(*KERNELS, "all"), default="all", help="series (default all)")
    parser.add_argument("--core", action="store_true", help="only the cells of `make test`")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="tell each result as soon as it is there"
    )
    parser.add_argument(
        "--unprivileged", action="store_true", help="by Unix sockets, not a tap (what happens without root)"
    )
    parser.add_argument("--seed", type=int, default=interop_cells_mix.SEED, help="of the random mixes")
    parser.add_argument("--refresh", action="store_true", help="ask the archive for newer packages now")
    parser.add_argument(
        "cells", nargs="*", metavar="WORD", help="only cells whose name has one of these words"
    )
    args = parser.parse_args(arguments)
    interop_cells_mix.SEED = args.seed
    signal.signal(signal.SIGTERM, _terminated)  # so that everything is taken down
    start_s = time.monotonic()
    try:
        args.unprivileged = args.unprivileged or bool(unavailable())
        found = images(CONSOLE.print, args.refresh)
        chosen = list(KERNELS) if args.kernel == "all" else [args.kernel]
        cells = [each for each in CELLS.values() if _wanted(each, args)]
        outcomes = [outcome for series in chosen for outcome in _kernel(found, series, cells, args)]
    except Unavailable as error:
        CONSOLE.print(f"interop: skipped: {error}", style="yellow")
        return 2
    failed = [outcome for outcome in outcomes if outcome.failed]
    silent = [outcome for outcome in outcomes if outcome.silent]
    silence = f"{len(silent)} where the kernel fell silent or broke, " if silent else ""
    CONSOLE.print(
        f"{len(outcomes) - len(failed) - len(silent)} passed, {len(failed)} failed, {silence}"
        f"{time.monotonic() - start_s:.0f} s"
    )
    return 1 if failed or not outcomes else 0


def _terminated(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _wanted(each: Cell, args: argparse.Namespace) -> bool:
    if args.unprivileged and each.network:
        return False
    return (each.core or not args.core) and (not args.cells or any(word in each.name for word in args.cells))


def _kernel(found: Images, series: str, cells: Sequence[Cell], args: argparse.Namespace) -> list[Outcome]:
    """The matrix with one kernel, printed."""
    kernel: Bootable | None = found.kernels.get(series)
    if kernel is None:
        CONSOLE.print(
            f"Linux {series}: skipped: {found.missing.get(series, 'not in the archive')}", style="yellow"
        )
        return []
    kind = UserWorld if args.unprivileged else World
    with CONSOLE.status(f"booting Linux {kernel.version}") as status, kind(found, kernel) as world:
        outcomes = []
        for outcome in run(world.sides, cells):
            outcomes.append(outcome)
            for note in outcome.notes:
                CONSOLE.print(note, markup=False)
            if outcome.silent:
                CONSOLE.print(f"{SILENT} {outcome.title}: {outcome.reason}", style="yellow", markup=False)
            elif outcome.reason:
                CONSOLE.print(f"✗ {outcome.title}: {outcome.reason}", style="red", markup=False)
            elif args.verbose:
                CONSOLE.print(f"✓ {outcome.title}: {outcome.elapsed_s:.1f} s", markup=False)
            status.update(f"Linux {kernel.version}: {outcome.title}")
    CONSOLE.print(table(kernel.version, outcomes))
    return outcomes


def table(version: str, outcomes: Sequence[Outcome]) -> Table:
    """Cells in rows; settings and directions in columns."""
    columns = [(setting, direction) for setting in SETTINGS for direction in DIRECTIONS]
    drawn = Table("cell", title=f"softhca and Linux {version} rdma_rxe")
    for setting, direction in columns:
        drawn.add_column(_heading(setting, direction), justify="center")
    drawn.add_column("seconds", justify="right")
    for name in dict.fromkeys(outcome.cell for outcome in outcomes):
        of = {(o.setting, o.direction): o for o in outcomes if o.cell == name}
        marks = []
        for setting, direction in columns:
            outcome = of.get((setting.name, direction))
            marks.append(_mark(outcome))
        drawn.add_row(name, *marks, f"{sum(o.elapsed_s for o in of.values()):.1f}")
    return drawn


def _mark(outcome: Outcome | None) -> str:
    if outcome is None:
        return ABSENT
    if outcome.silent:
        return SILENT
    return FAILED if outcome.reason else PASSED


def _heading(setting: Setting, direction: str) -> str:
    return f"IPv{setting.version}\n{setting.mtu_bytes}\n{direction}"


if __name__ == "__main__":
    sys.exit(main())
