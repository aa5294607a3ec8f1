"""``softhca conformance``: compliance statements, the checks that hold them, and their verdicts."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from softhca.cli.errors import FAILED, UsageError
from softhca.cli.output import add_json_option, print_json, print_table, progress

if TYPE_CHECKING:
    from softhca.conformance.report import Verdict
    from softhca.conformance.statements import Statement

SERVICES = ("RC", "RD", "UC", "UD", "raw")
SIDES = ("requester", "responder")
COLUMNS = ("statement", "service", "side", "applies to", "demands", "checks", "verdict")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what ``conformance`` takes to its ``parser``."""
    parser.add_argument("ids", nargs="*", metavar="ID", help="only these statements (C9-184, o9-144 …)")
    parser.add_argument("--service", choices=SERVICES, help="only those of one service")
    parser.add_argument("--side", choices=SIDES, help="only those of one side")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command; UsageError for a statement that there is not."""
    from softhca.conformance.registry import collect
    from softhca.conformance.report import chosen, verdicts

    try:
        statements = [found for found in chosen(args.ids) if _wanted(found, args)]
    except KeyError as error:
        raise UsageError(f"there is no statement {error.args[0]} in the table") from None
    checks = collect()
    with progress("checks", len(checks), wanted=not args.json) as done:
        found = verdicts(statements, checks, done)
    if args.json:
        print_json([verdict.document() for verdict in found])
    else:
        _show(found)
    return 0 if all(verdict.good for verdict in found) else FAILED


def _wanted(statement: Statement, args: argparse.Namespace) -> bool:
    service = args.service is None or args.service in statement.service.split("+")
    return service and (args.side is None or statement.side in (args.side, "both"))


def _readable(name: str) -> str:
    """A check's name in words, which a narrow column can break."""
    return name.replace(".", ": ").replace("_", " ")


def _show(found: list[Verdict]) -> None:
    rows = []
    for verdict in found:
        statement = verdict.statement
        place = statement.id, statement.service, statement.side, statement.applies, statement.text
        rows.append((*place, "\n".join(map(_readable, verdict.tests)), verdict.result))
    good = sum(verdict.good for verdict in found)
    print_table(f"{good} of {len(found)} statements hold or are obsolete", COLUMNS, rows)
    for verdict in found:
        for failure in verdict.failures:
            print(f"{verdict.statement.id} {failure}")
