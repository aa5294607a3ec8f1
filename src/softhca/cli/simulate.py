"""``softhca simulate``: one deterministic world of adapters in virtual time, with seeded faults."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softhca.cli import output
from softhca.cli.errors import CommandError, UsageError
from softhca.cli.minimised import minimising, print_minimised
from softhca.cli.moments import moment, seed_number
from softhca.links.decisions import Script, parse_decisions
from softhca.links.faults import FaultsError
from softhca.simulation.scenarios import SCENARIOS
from softhca.wire.capture_file import LINKTYPE_INFINIBAND, LINKTYPE_RAW
from softhca.wire.pcapng import PcapngWriter

if TYPE_CHECKING:
    from softhca.simulation.minimise import Minimised
    from softhca.simulation.runner import Outcome

DEFAULT_SCENARIO = "rc-mix"
DEFAULT_SEED = 1


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what ``simulate`` takes to its ``parser``."""
    parser.add_argument(
        "--scenario", default=DEFAULT_SCENARIO, metavar="NAME", help=f"one of {', '.join(SCENARIOS)}"
    )
    parser.add_argument("--seed", type=seed_number, default=DEFAULT_SEED, help="decides all dice")
    add_faults_option(parser)
    parser.add_argument(
        "--only-faults",
        metavar="LIST",
        help="packets suffer this and no dice fall, as in '1>2#17:lost,2>1#4:duplicated+3200ns'",
    )
    parser.add_argument(
        "--minimise", action="store_true", help="if a rule is broken, find the fewest faults that break it"
    )
    parser.add_argument("--capture", type=Path, metavar="FILE", help="write all packets to a pcapng file")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write the trace as JSON lines")
    picture = parser.add_argument_group("picture")
    picture.add_argument("--svg", type=Path, metavar="FILE", help="draw the packet ladder of two queue pairs")
    picture.add_argument("--qp", default="", metavar="A:B", help="which two; default: the world's first")
    picture.add_argument("--svg-from", type=moment, metavar="TIME", help="draw from then on, as in 1.2ms")
    picture.add_argument("--svg-to", type=moment, metavar="TIME", help="draw what was before then")
    output.add_json_option(parser)


def add_faults_option(parser: argparse.ArgumentParser) -> None:
    """``--faults``, on top of the scenario's own ones."""
    parser.add_argument(
        "--faults",
        default="",
        metavar="SPEC",
        help="change the scenario's faults, as in 'loss=1%%,delay=20us'",
    )


def run(args: argparse.Namespace) -> int:
    """Run the world; 1 when a rule was broken in it."""
    from softhca.simulation.ladder import LadderError
    from softhca.simulation.runner import ScenarioError, find_scenario, run_world
    from softhca.simulation.trace import Trace

    if args.svg is None and (args.qp or args.svg_from is not None or args.svg_to is not None):
        raise UsageError("--qp, --svg-from and --svg-to say what --svg draws: expected --svg FILE as well")
    writers: list[Callable[[str], object]] = []
    lines: list[str] = []
    with contextlib.ExitStack() as files:
        try:
            scenario = find_scenario(args.scenario)
            if args.trace:
                writers.append(files.enter_context(args.trace.open("w", encoding="utf-8")).write)
            if args.svg:
                writers.append(lines.append)
            trace = Trace(_to_all(writers))
            tap = None
            if args.capture:
                tap = Capture(files.enter_context(args.capture.open("wb")), scenario.link)
            script = None if args.only_faults is None else Script(parse_decisions(args.only_faults))
            outcome = run_world(args.scenario, args.seed, args.faults, trace, tap, script)
            if args.svg:
                args.svg.write_text(_picture(args, outcome, lines), encoding="utf-8")
        except (ScenarioError, FaultsError, LadderError) as error:
            raise UsageError(str(error)) from None
        except OSError as error:
            if error.filename is None:
                raise
            raise CommandError(f"{error.filename}: {error.strerror}") from None
    found = None
    if args.minimise and outcome.violations:
        from softhca.simulation.minimise import minimise

        with minimising() as advance:
            found = minimise(args.scenario, args.seed, args.faults, args.only_faults, advance=advance)
    _print(args, outcome, found)
    return 1 if outcome.violations else 0


def _to_all(writers: list[Callable[[str], object]]) -> Callable[[str], object] | None:
    """What gives each of ``writers`` a line; None where there are none, for then no line need be made."""
    if len(writers) < 2:
        return writers[0] if writers else None
    return lambda line: [write(line) for write in writers]


def _picture(args: argparse.Namespace, outcome: Outcome, lines: list[str]) -> str:
    """The ladder that was asked for."""
    from softhca.simulation.ladder import FOREVER_NS, draw

    header = outcome.document()
    violations = header.pop("violations")
    header["violations"] = "; ".join(found["text"] for found in violations) or "none"
    if args.only_faults is not None:
        header["only faults"] = args.only_faults
    begin_ns = 0 if args.svg_from is None else args.svg_from
    end_ns = FOREVER_NS if args.svg_to is None else args.svg_to
    return draw(lines, header, args.qp, begin_ns, end_ns)


class Capture:
    """Writes what every adapter of a world sent and received: raw IP, as real links do, or native."""

    def __init__(self, stream: Any, link: str) -> None:
        self._writer = PcapngWriter(stream)
        self._linktype = LINKTYPE_INFINIBAND if link in ("native", "raw") else LINKTYPE_RAW
        self._interfaces: dict[str, int] = {}

    def __call__(self, time_ns: int, event: str, source: int, destination: int, packet: bytes) -> None:
        name = f"adapter {source if event == 'sent' else destination} {event}"
        if name not in self._interfaces:
            self._interfaces[name] = self._writer.add_interface(self._linktype, name)
        self._writer.write(self._interfaces[name], time_ns, packet)


def _print(args: argparse.Namespace, outcome: Outcome, found: Minimised | None) -> None:
    document = outcome.document()
    if args.minimise:
        document["minimised"] = found.document() if found is not None else None
        if outcome.violations:
            print_minimised(found)
    if args.json:
        output.print_json(document)
        return
    rows = [(name, document[name]) for name in document if name not in ("violations", "minimised")]
    rows += [("violation", violation) for violation in outcome.violations]
    output.print_table(f"{SCENARIOS[outcome.scenario].text}", ("what", "value"), rows)
