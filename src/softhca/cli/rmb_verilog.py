"""``softhca rmb verilog``: a part of the hardware as Verilog."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from softhca.cli.output import add_json_option, print_json

NAMES = ("remote_key_manager", "fixed_function_manager", "remote_key_memory")


def add_parser(subparsers: Any) -> None:
    """Add ``verilog``."""
    parser = subparsers.add_parser("verilog", help="a part of the hardware as Verilog, or its size")
    parser.add_argument("top", choices=NAMES, help="which part")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write it there")
    parser.add_argument("--size", action="store_true", help="print what yosys makes of it instead")
    add_json_option(parser)
    parser.set_defaults(run_part=run)


def run(args: argparse.Namespace) -> int:
    """Write or print the Verilog, or count its cells."""
    from softhca.hardware.verilog import TOPS, export, size

    text = export(TOPS[args.top](), args.top)
    if args.output is not None:
        args.output.write_text(text, encoding="utf-8")
    elif not args.size:
        print_json({"top": args.top, "verilog": text}) if args.json else print(text, end="")
    if args.size:
        counted = {"top": args.top, **size(text, args.top)}
        told = ", ".join(f"{name.replace('_', '-')} {count}" for name, count in counted.items())
        print_json(counted) if args.json else print(told)
    return 0
