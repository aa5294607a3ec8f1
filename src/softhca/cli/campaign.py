"""``softhca campaign``: many deterministic worlds over all cores; stops at the first broken rule."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softhca.cli import output
from softhca.cli.errors import CommandError, UsageError
from softhca.cli.minimised import minimising, print_minimised
from softhca.cli.simulate import add_faults_option
from softhca.links.faults import Faults, FaultsError
from softhca.simulation.scenarios import QUICK, SCENARIOS

if TYPE_CHECKING:
    from softhca.simulation.campaign import Tally


def _usual() -> list[str]:
    """What can run here, and with gates only what is compiled."""
    from softhca.simulation.runner import missing

    names = SCENARIOS if os.environ.get("SOFTHCA_GATES") else QUICK
    return [name for name in names if not missing(SCENARIOS[name])]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what ``campaign`` takes to its ``parser``."""
    parser.add_argument(
        "--seeds", type=seed_range, required=True, metavar="A..B", help="seeds A to B, both too"
    )
    parser.add_argument(
        "--scenario",
        nargs="+",
        metavar="NAME",
        help=f"of {', '.join(SCENARIOS)} (without it: each of these; those with gates only where"
        " SOFTHCA_GATES names compiled ones)",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--jobs", type=jobs_number, default=0, metavar="N", help="processes (one a core)")
    where.add_argument(
        "--dask",
        type=dask_address,
        metavar="ADDRESS",
        help="run on the workers of this Dask scheduler, as in tcp://192.0.2.7:8786 (extra 'cluster')",
    )
    parser.add_argument(
        "--no-minimise",
        dest="minimise",
        action="store_false",
        help="do not look for the fewest faults that break the rule",
    )
    parser.add_argument("--summary", type=Path, metavar="FILE", help="write the JSON document to a file too")
    add_faults_option(parser)
    output.add_json_option(parser)


def seed_range(text: str) -> range:
    """``A..B``, both included, or one seed."""
    match = re.fullmatch(r"([0-9]+)(?:\.\.([0-9]+))?", text)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r}: expected A..B with A at most B, as in 1..1000")
    if int(match[2] or match[1]) - int(match[1]) >= sys.maxsize // 2:
        raise argparse.ArgumentTypeError(f"{text!r}: more seeds than can be counted")
    return range(int(match[1]), int(match[2] or match[1]) + 1)


def jobs_number(text: str) -> int:
    """How many processes: 1…1024."""
    if not re.fullmatch(r"[0-9]{1,4}", text) or not 1 <= int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1…1024 processes")
    return int(text)


def dask_address(text: str) -> str:
    """The address of a Dask scheduler."""
    from softhca.simulation.cluster import AddressError, parse_address

    try:
        return parse_address(text)
    except AddressError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(args: argparse.Namespace) -> int:
    """Run the campaign; 1 when a rule was broken, with the command that runs that world again."""
    from softhca.simulation.campaign import CampaignError
    from softhca.simulation.runner import ScenarioError, find_scenario

    try:
        wanted = args.scenario or _usual()
        names = [find_scenario(name).name for name in dict.fromkeys(wanted)]
        Faults.parse(args.faults)
    except (ScenarioError, FaultsError) as error:
        raise UsageError(str(error)) from None
    try:
        with contextlib.ExitStack() as files:
            summary = files.enter_context(args.summary.open("w", encoding="utf-8")) if args.summary else None
            document = _run(args, names)
            if summary is not None:
                json.dump(document, summary, indent=2)
                summary.write("\n")
    except CampaignError as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        if error.filename is None:
            raise
        raise CommandError(f"{error.filename}: {error.strerror}") from None
    if args.json:
        output.print_json(document)
    else:
        _print(document)
    return 1 if document["failures"] else 0


def _run(args: argparse.Namespace, names: list[str]) -> dict[str, Any]:
    """Run the worlds; what was found, as JSON values.  Failures are told on stderr as well."""
    from softhca.simulation.campaign import Local, run_campaign
    from softhca.simulation.cluster import Cluster
    from softhca.simulation.minimise import minimise

    executor: Any = None
    if args.dask is not None:
        executor = Cluster(args.dask)
    elif args.jobs != 1:
        executor = Local(args.jobs)
    with _progress(len(names) * len(args.seeds)) as advance:
        tally = run_campaign(names, args.seeds, args.faults, executor, advance)
    for at, failure in enumerate(tally.failures):
        print(f"{failure.scenario} with seed {failure.seed}: {failure.text}", file=sys.stderr)
        print(f"run it again: {failure.command}", file=sys.stderr)
        if args.minimise:
            with minimising() as told:
                found = minimise(failure.scenario, failure.seed, args.faults, advance=told)
            print_minimised(found)
            tally.failures[at] = dataclasses.replace(failure, minimised=found)
    return tally.document()


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[Tally], object] | None]:
    """A bar on the terminal: worlds done, worlds a second, time left, violations."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("campaign"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:.0f} worlds/s"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[violations]} violations"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("campaign", total=total, rate=0.0, violations=0)

        def advance(tally: Tally) -> None:
            bar.update(
                task,
                completed=tally.worlds,
                rate=tally.worlds / tally.wall_s,
                violations=len(tally.failures),
            )

        yield advance


def _print(document: dict[str, Any]) -> None:
    columns = "scenario", "worlds", "packets", "packets/s", "wall s"
    fields = "worlds", "packets", "packets_per_s", "wall_s"
    rows = [(name, *(count[field] for field in fields)) for name, count in document["scenarios"].items()]
    rate = round(document["packets"] / document["wall_s"]) if document["wall_s"] else 0
    rows.append(("all", document["worlds"], document["packets"], rate, document["wall_s"]))
    output.print_table(f"{document['worlds']} worlds, {document['violations']} violations", columns, rows)
