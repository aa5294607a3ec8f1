"""``softhca rmb compare`` and ``rmb race``: three designs of the key search, and what the third one loses."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from softhca.cli.errors import FAILED, CommandError, UsageError
from softhca.cli.output import add_json_option, print_json, print_table, told_progress
from softhca.cli.rmb_trace import row_cells

if TYPE_CHECKING:
    from softhca.hardware.races import Interleaving

MAX_INTERLEAVINGS = 1_000_000
ORDERS = ("looks first", "enters first")
"""What the RQ's engine does with an operation's window and key."""
RACE_FIELDS = ("clock", "state", "vi", "sq_start", "sq_done", "rq_write", "rq_addr", "mem_re", "mem_rd_addr",
               "mem_rd_data", "mem_we", "mem_wr_addr", "mem_wr_data")  # fmt: skip


def add_parser(subparsers: Any) -> None:
    """Add ``compare`` and ``race``."""
    parser = subparsers.add_parser("compare", help="three designs of the search for a key, measured")
    parser.add_argument("--vis", type=int, default=256, metavar="N", help="VIs to walk (default 256)")
    _add_interleavings(parser)
    add_json_option(parser)
    parser.set_defaults(run_part=run_compare)
    parser = subparsers.add_parser("race", help="what fixed hardware spoils, clock by clock")
    _add_interleavings(parser)
    add_json_option(parser)
    parser.set_defaults(run_part=run_race)


def _add_interleavings(parser: argparse.ArgumentParser) -> None:
    told = "how many are searched for races (default 200)"
    parser.add_argument("--interleavings", type=int, default=200, metavar="N", help=told)


def _interleavings(args: argparse.Namespace) -> int:
    if not 1 <= args.interleavings <= MAX_INTERLEAVINGS:
        raise UsageError(f"--interleavings is 1 to {MAX_INTERLEAVINGS}, not {args.interleavings}")
    return int(args.interleavings)


def run_compare(args: argparse.Namespace) -> int:
    """Measure the designs; FAILED when the remote-key manager loses a race, delays the RQ, or holds the SQ's
    engine up as long as a walk in microcode does."""
    from softhca.hardware.compare import WALKS_SHARE, compare
    from softhca.hardware.designs import MANAGER, MICROCODE
    from softhca.hardware.key_memory import Geometry

    interleavings = _interleavings(args)
    try:
        Geometry(args.vis)
    except ValueError as error:
        raise UsageError(f"--vis: {error}") from None
    with told_progress("rmb compare", WALKS_SHARE + interleavings) as advance:
        measured = compare(args.vis, interleavings, advance)
    rows = [walk.document() for walk in measured.walks]
    races = [
        {"design": design, "rq_engine": ORDERS[order], **spoiled._asdict()}
        for (design, order), spoiled in measured.races.spoiled.items()
    ]
    if args.json:
        print_json({"walks": rows, "interleavings": {"tried": interleavings, "spoiled": races}})
    else:
        title = f"Search for a key in {args.vis} VIs, 8 ns a clock"
        shown = [["—" if cell is None else cell for cell in row.values()] for row in rows]
        print_table(title, [name.replace("_", " ") for name in rows[0]], shown)
        title = f"Races in {interleavings} interleavings of a bind with RDMA"
        print_table(title, [name.replace("_", " ") for name in races[0]], [row.values() for row in races])
    stall = {walk.design: walk.stall_clocks for walk in measured.walks}
    delayed = any(walk.rq_stall_clocks for walk in measured.walks if walk.design == MANAGER)
    spoils = measured.races.spoiled[MANAGER, True].runs
    return FAILED if spoils or delayed or stall[MANAGER] >= stall[MICROCODE] else 0


def run_race(args: argparse.Namespace) -> int:
    """Search, and show the first interleaving of each kind; CommandError when none is found."""
    from softhca.hardware.designs import FIXED
    from softhca.hardware.races import interleaving, play, search

    count = _interleavings(args)
    with told_progress("rmb race", count) as advance:
        races = search(count, designs=(FIXED,), orders=(False,), advance=advance)
    if not races.found:
        raise CommandError(f"no race in {races.interleavings} interleavings")
    documents = []
    for kind, seed in sorted(races.found.items()):
        shown = interleaving(seed)
        run = play(shown, FIXED, enters_first=False)
        words = [address for found, address in run.races if found == kind]
        rows = [row.document() for row in run.rows]
        operations = [operation.document() for operation in shown.operations]
        documents.append({"kind": kind, "seed": seed, "words": words, "operations": operations, "rows": rows})
        if not args.json:
            _show(kind, shown, words)
            wanted = [{name: cells[name] for name in RACE_FIELDS} for cells in map(row_cells, run.rows)]
            columns = [name.removeprefix("mem_") for name in RACE_FIELDS]
            print_table(f"{kind}: seed {seed} in fixed hardware", columns, [row.values() for row in wanted])
    if args.json:
        print_json(documents)
    return 0


def _show(kind: str, shown: Interleaving, words: list[int]) -> None:
    from softhca.hardware.races import BIND, KEY, MISSED

    what = "the withdrawn key stays valid" if kind == MISSED else "another window's operation loses its key"
    print(f"{kind}: {what} in word {', '.join(map(str, words))}. The bind withdraws {KEY:x} in clock {BIND}.")
    for operation in shown.operations:
        print(f"  {operation.describe()}")
