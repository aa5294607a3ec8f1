"""``softhca campaign``: many deterministic worlds over all cores; stops at the first broken rule."""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any

from softhca.cli import output
from softhca.cli.errors import UsageError
from softhca.cli.simulate import add_faults_option
from softhca.links.faults import Faults, FaultsError
from softhca.simulation.campaign import run_campaign
from softhca.simulation.runner import ScenarioError, find_scenario
from softhca.simulation.scenarios import SCENARIOS


def add_parser(subparsers: Any) -> None:
    """Add ``campaign``."""
    parser = subparsers.add_parser("campaign", help="run many seeds of the simulated worlds over all cores")
    parser.add_argument(
        "--seeds", type=seed_range, required=True, metavar="A..B", help="seeds A to B, both too"
    )
    parser.add_argument(
        "--scenario",
        nargs="+",
        default=list(SCENARIOS),
        metavar="NAME",
        help=f"of {', '.join(SCENARIOS)}; all",
    )
    parser.add_argument("--jobs", type=jobs_number, default=0, metavar="N", help="processes (one a core)")
    add_faults_option(parser)
    output.add_json_option(parser)


def seed_range(text: str) -> range:
    """``A..B``, both included, or one seed."""
    match = re.fullmatch(r"([0-9]+)(?:\.\.([0-9]+))?", text)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r}: expected A..B with A at most B, as in 1..1000")
    return range(int(match[1]), int(match[2] or match[1]) + 1)


def jobs_number(text: str) -> int:
    """How many processes: 1…1024."""
    if not re.fullmatch(r"[0-9]{1,4}", text) or not 1 <= int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1…1024 processes")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Run the campaign; 1 when a rule was broken, with the command that runs that world again."""
    try:
        names = [find_scenario(name).name for name in dict.fromkeys(args.scenario)]
        Faults.parse(args.faults)
    except (ScenarioError, FaultsError) as error:
        raise UsageError(str(error)) from None
    with output.progress("campaign", len(names) * len(args.seeds)) as advance:
        tally = run_campaign(names, args.seeds, args.faults, args.jobs, advance)
    for failure in tally.failures:
        print(f"{failure.scenario} with seed {failure.seed}: {failure.text}", file=sys.stderr)
        print(f"run it again: {failure.command}", file=sys.stderr)
    document = tally.document()
    if args.json:
        output.print_json(document)
    else:
        rows: list[tuple[str, object]] = list(tally.worlds.items())
        rows += [("packets", tally.packets), ("worlds with a violation", len(tally.failures))]
        output.print_table(f"{document['worlds']} worlds", ("what", "number"), rows)
    return 1 if tally.failures else 0
