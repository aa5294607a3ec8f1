"""``softhca abi header|version``: the host interface, for programs in C."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from softhca.cli.errors import CommandError
from softhca.queues.header import header
from softhca.queues.layout import ABI_VERSION


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what ``abi`` takes to its ``parser``."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    made = actions.add_parser("header", help="write the C header")
    made.add_argument("-o", "--output", type=Path, metavar="FILE", help="there, and not to standard output")
    actions.add_parser("version", help="print the number that host and adapter must both have")


def run(args: argparse.Namespace) -> int:
    """Run the command; CommandError when the file cannot be written."""
    if args.action == "version":
        print(ABI_VERSION)
    elif args.output is None:
        sys.stdout.write(header())
    else:
        try:
            args.output.write_text(header())
        except OSError as error:
            raise CommandError(f"{args.output}: {error.strerror}") from error
    return 0
