"""Commands of several parts, which are modules of their own and need an extra."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence

from softhca.cli.errors import UsageError


def add_parts(parser: argparse.ArgumentParser, modules: Sequence[str]) -> None:
    """Add the subcommands of ``modules`` of this package to a command's ``parser``."""
    parts = parser.add_subparsers(dest="part", metavar="PART", required=True)
    for name in modules:
        importlib.import_module(f"softhca.cli.{name}").add_parser(parts)


def run_part(args: argparse.Namespace, extra: str, packages: Sequence[str]) -> int:
    """Run the part that was asked for; UsageError where one of the extra's ``packages`` is not installed."""
    try:
        return int(args.run_part(args))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in packages:
            raise
        raise UsageError(f"{error.name} is not installed: pip install 'softhca[{extra}]'") from None
