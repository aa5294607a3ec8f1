"""``softhca rmb trace``: the remote-key manager clock by clock, in the situations of its timing diagrams."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softhca.cli.errors import CommandError
from softhca.cli.output import add_json_option, print_json, print_table
from softhca.cli.rmb_files import make_empty, write_text

if TYPE_CHECKING:
    from softhca.hardware.trace import Row

NUMBERS = (13, 14, 15, 16, 17)


def add_parser(subparsers: Any) -> None:
    """Add ``trace``."""
    parser = subparsers.add_parser("trace", help="the remote-key manager clock by clock")
    parser.add_argument("--figure", type=int, choices=NUMBERS, required=True, help="which timing diagram")
    parser.add_argument("--vcd", type=Path, metavar="FILE", help="write the waveforms for a viewer (GTKWave)")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the timing diagram")
    add_json_option(parser)
    parser.set_defaults(run_part=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; CommandError when a clock is not as the diagram's table has it."""
    from softhca.hardware.figures import FIGURES
    from softhca.hardware.timing_diagram import draw
    from softhca.hardware.trace import differences, record

    make_empty(args.vcd)
    figure = FIGURES[args.figure]
    rows = record(figure.manager(), figure.stimulus(), args.vcd)
    if args.svg is not None:
        write_text(args.svg, draw(figure.heading, rows, figure.signals))
    if args.json:
        print_json([row.document() for row in rows])
    else:
        columns = [name.removeprefix("mem_") for name in rows[0].document()]
        print_table(figure.heading, columns, [row_cells(row).values() for row in rows])
    found = differences(rows, figure.expected())
    if found:
        raise CommandError(f"figure {figure.number} differs: {'; '.join(found)}")
    return 0


def row_cells(row: Row) -> dict[str, str]:
    """Flags as 0 and 1, data in hexadecimal, a dash where nothing is written or the RQ does nothing."""
    cells = row.document()
    cells["mem_rd_data"], cells["mem_wr_data"] = f"{row.mem_rd_data:07x}", f"{row.mem_wr_data:07x}"
    if not row.mem_we:
        cells["mem_wr_addr"] = cells["mem_wr_data"] = "-"
    if not (row.rq_read or row.rq_write):
        cells["rq_addr"] = "-"
    return {name: str(int(cell) if isinstance(cell, bool) else cell) for name, cell in cells.items()}
