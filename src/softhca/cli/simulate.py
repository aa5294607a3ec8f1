"""``softhca simulate``: one deterministic world of adapters in virtual time, with seeded faults."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import Any

from softhca.cli import output
from softhca.cli.errors import CommandError, UsageError
from softhca.links.faults import FaultsError
from softhca.links.tap import packet_of
from softhca.simulation.runner import Outcome, ScenarioError, find_scenario, run_world
from softhca.simulation.scenarios import SCENARIOS
from softhca.simulation.trace import Trace
from softhca.simulation.world import gid_of
from softhca.wire.capture_file import LINKTYPE_RAW
from softhca.wire.framing import ROCE_V4, ROCE_V6
from softhca.wire.pcapng import PcapngWriter
from softhca.wire.route import Route

DEFAULT_SCENARIO = "rc-mix"
DEFAULT_SEED = 1


def add_parser(subparsers: Any) -> None:
    """Add ``simulate``."""
    parser = subparsers.add_parser(
        "simulate", help="run one deterministic world of adapters with seeded faults, and check every rule"
    )
    parser.add_argument(
        "--scenario", default=DEFAULT_SCENARIO, metavar="NAME", help=f"one of {', '.join(SCENARIOS)}"
    )
    parser.add_argument("--seed", type=seed_number, default=DEFAULT_SEED, help="decides all dice")
    add_faults_option(parser)
    parser.add_argument("--capture", type=Path, metavar="FILE", help="write all packets to a pcapng file")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write the trace as JSON lines")
    output.add_json_option(parser)


def add_faults_option(parser: argparse.ArgumentParser) -> None:
    """``--faults``, on top of the scenario's own ones."""
    parser.add_argument(
        "--faults",
        default="",
        metavar="SPEC",
        help="change the scenario's faults, as in 'loss=1%%,delay=20us'",
    )


def seed_number(text: str) -> int:
    """A seed: any integer from 0."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no seed: expected an integer from 0")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Run the world; 1 when a rule was broken in it."""
    with contextlib.ExitStack() as files:
        try:
            scenario = find_scenario(args.scenario)
            trace = Trace(
                files.enter_context(args.trace.open("w", encoding="utf-8")).write if args.trace else None
            )
            tap = Capture(files.enter_context(args.capture.open("wb")), scenario.ip) if args.capture else None
            outcome = run_world(args.scenario, args.seed, args.faults, trace, tap)
        except (ScenarioError, FaultsError) as error:
            raise UsageError(str(error)) from None
        except OSError as error:
            if error.filename is None:
                raise
            raise CommandError(f"{error.filename}: {error.strerror}") from None
    _print(args, outcome)
    return 1 if outcome.violations else 0


class Capture:
    """Writes what every adapter of a world sent and received as raw IP, as captures of real links are."""

    def __init__(self, stream: Any, ip: int) -> None:
        self._writer = PcapngWriter(stream)
        self._ip = ip
        self._interfaces: dict[str, int] = {}
        self._routes: dict[tuple[int, int, int], Route] = {}

    def __call__(
        self, time_ns: int, event: str, source: int, destination: int, source_port: int, data: bytes
    ) -> None:
        route = self._routes.get((source, destination, source_port))
        if route is None:
            framing = ROCE_V4 if self._ip == 4 else ROCE_V6
            gids = gid_of(source, self._ip), gid_of(destination, self._ip)
            route = Route(framing, *gids, source_port=source_port)
            self._routes[source, destination, source_port] = route
        name = f"adapter {source if event == 'sent' else destination} {event}"
        if name not in self._interfaces:
            self._interfaces[name] = self._writer.add_interface(LINKTYPE_RAW, name)
        self._writer.write(self._interfaces[name], time_ns, packet_of(route, data))


def _print(args: argparse.Namespace, outcome: Outcome) -> None:
    document = outcome.document()
    if args.json:
        output.print_json(document)
        return
    rows = [(name, value) for name, value in document.items() if name != "violations"]
    rows += [("violation", violation) for violation in outcome.violations]
    output.print_table(f"{SCENARIOS[outcome.scenario].text}", ("what", "value"), rows)
