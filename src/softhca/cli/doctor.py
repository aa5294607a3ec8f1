"""``softhca doctor``: what of this machine is right for softhca, what costs speed, and how to mend it.

It needs no privilege and changes nothing.  Exit status 1 where something keeps softhca from working.
"""

from __future__ import annotations

import argparse

from softhca.cli import output
from softhca.cli.errors import FAILED
from softhca.cli.output import Styled

MARKS = {"ok": Styled("ok", "green"), "slow": Styled("slow", "yellow"),
         "limited": Styled("limited", "yellow"), "wrong": Styled("WRONG", "red"),
         "unknown": "unknown"}  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what ``doctor`` takes to its ``parser``."""
    parser.description = (
        "Looks at kernel limits, socket buffers, GSO and GRO, MTU, UDP port 4791, ptrace rights, huge pages "
        "and compiled modules.  It needs no privilege and changes nothing.  The exit status is 1 where "
        "something keeps softhca from working; what only costs speed leaves it 0."
    )
    parser.add_argument("-a", "--all", action="store_true", help="show what is right, too, in the table")
    output.add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Look, and report."""
    from softhca.cli.doctor_checks import OK, WRONG, findings
    from softhca.cli.doctor_facts import gather, system

    found = findings(gather())
    works = all(finding.verdict != WRONG for finding in found)
    if args.json:
        checks = [finding.document() for finding in found]
        output.print_json({"works": works, "system": system(), "checks": checks})
        return 0 if works else FAILED
    right = sum(finding.verdict == OK for finding in found)
    shown = [finding for finding in found if args.all or finding.verdict != OK]
    rows = ((finding.name, MARKS[finding.verdict], finding.found, finding.costs, finding.mend)
            for finding in shown)
    title = f"{system()}: {right} of {len(found)} checks are right"
    if shown:
        output.print_table(title, ("what", "is", "found", "costs", "how to mend it"), rows)
    else:
        print(title)
    return 0 if works else FAILED
