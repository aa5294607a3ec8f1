"""``softhca fabric``: topologies, routes and pictures of switched fabrics.

Needs the extra ``fabric``; without it every part says so in one line.
"""

from __future__ import annotations

import argparse

from softhca.cli.parts import add_parts, run_part

PARTS = ("fabric_show", "fabric_routes", "fabric_discover", "fabric_serve", "fabric_capture",
         "fabric_simulate")  # fmt: skip
"""Modules of this folder; each adds its own subcommands."""
EXTRA = ("numpy", "scipy", "yaml")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what ``fabric`` takes to its ``parser``: one part of `PARTS` each."""
    add_parts(parser, PARTS)


def run(args: argparse.Namespace) -> int:
    """Run the part that was asked for; UsageError when the extra is not installed."""
    return run_part(args, "fabric", EXTRA)
