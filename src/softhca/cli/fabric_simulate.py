"""``softhca fabric simulate``: traffic and failing links over a switched fabric in virtual time."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softhca.cli import output
from softhca.cli.errors import FAILED, CommandError, UsageError
from softhca.cli.fabric_routes import ENGINES, failed_links, routed
from softhca.cli.fabric_show import save
from softhca.cli.fabric_topology import add_topology, load_topology
from softhca.cli.moments import moment, seed_number
from softhca.cli.numbers import number

if TYPE_CHECKING:
    from softhca.fabric.routing import Routes
    from softhca.fabric.topology import Topology
    from softhca.fabric.traffic import LinkEvent, TrafficRun

STEPS = 200
"""Of the progress bar."""
DRAIN = 4
"""So many times the traffic's own time packets may take to arrive behind it."""
MOST_LINKS = 20
"""Of the table of links: those that carry most."""
PATTERNS = ("uniform", "permutation", "incast")
"""Of `fabric.traffic`, which needs numpy."""
CONTROLS = ("none", "ib", "dcqcn")
MARK_BLOCKS = 64
NOTIFY_PS = 50_000_000
PS_PER_NS = 1000


def add_parser(parts: Any) -> None:
    """Add ``simulate`` to the parts."""
    parser: argparse.ArgumentParser = parts.add_parser(
        "simulate", help="run traffic over a topology in virtual time, with links that fail"
    )
    add_topology(parser)
    parser.add_argument("--pattern", choices=PATTERNS, default="uniform", help="to whom hosts send")
    parser.add_argument(
        "--load", type=_share, default=0.5, metavar="SHARE", help="of its link that each host sends (50%%)"
    )
    parser.add_argument(
        "--message-size", type=number(1, 1 << 24), default=4096, metavar="BYTES", help="default 4096"
    )
    parser.add_argument(
        "--mtu", type=int, choices=(256, 512, 1024, 2048, 4096), default=4096, help="default 4096"
    )
    parser.add_argument("--time", type=moment, default=100_000, metavar="TIME", help="of sending (100us)")
    parser.add_argument("--seed", type=seed_number, default=1, help="decides who sends when and to whom")
    parser.add_argument("--engine", choices=("auto", *ENGINES), default="auto", help="routing engine")
    parser.add_argument(
        "--fail", action="append", default=[], metavar="NODE[PORT]@TIME", help="then this link fails"
    )
    parser.add_argument(
        "--restore", action="append", default=[], metavar="NODE[PORT]@TIME", help="then it is back"
    )
    parser.add_argument(
        "--reroute", type=moment, default=50_000, metavar="TIME", help="so much later routes are new (50us)"
    )
    parser.add_argument(
        "--buffer", type=number(66, 2048), default=512, metavar="BLOCKS",
        help="64-byte blocks of receive buffer of each lane of a port (512)",
    )  # fmt: skip
    parser.add_argument(
        "--congestion", choices=CONTROLS, default="none", help="how senders slow down when packets are marked"
    )
    parser.add_argument(
        "--segments", type=moment, default=0, metavar="TIME", help="switches keep messages whole, for so long"
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw it, links by what they carried")
    output.add_json_option(parser)
    parser.set_defaults(run_part=run)


def _share(text: str) -> float:
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share: expected something like 50%")
    return value


def run(args: argparse.Namespace) -> int:
    """Run the traffic; 1 when packets are left that do not move any more: lanes wait for each other."""
    from softhca.fabric.lids import LidError
    from softhca.fabric.routing_engine import RoutingError
    from softhca.fabric.traffic import TrafficError

    topology = load_topology(args.topology)
    try:
        made, routes = _made(args, topology)
    except TrafficError as error:
        raise UsageError(str(error)) from None
    except (RoutingError, LidError) as error:
        raise CommandError(str(error)) from None
    end_ps = args.time * PS_PER_NS
    stuck = False
    with output.progress("simulating", (1 + DRAIN) * STEPS, not args.json) as advance:
        for step in range(1, (1 + DRAIN) * STEPS + 1):
            made.run(end_ps * step // STEPS)
            advance(step)
            quiet_ps = made.events.now_ps - max(end_ps, made.figures.last_delivery_ps)
            stuck = bool(made.unfinished) and quiet_ps >= end_ps
            if step >= STEPS and (stuck or not made.unfinished):
                break
    document = _document(args, made, routes) | {"stuck": stuck}
    if args.svg:
        save(args.svg, _picture(args, made, routes))
    if args.json:
        output.print_json(document)
    else:
        _print(args, document)
    return FAILED if stuck else 0


def _made(args: argparse.Namespace, topology: Topology) -> tuple[TrafficRun, Routes]:
    from softhca.fabric.graph import Graph
    from softhca.fabric.routing import route
    from softhca.fabric.routing_engine import RoutingError
    from softhca.fabric.switching.congestion import CongestionControl, RateControl, TableControl
    from softhca.fabric.switching.port import PortSettings
    from softhca.fabric.traffic import Traffic, TrafficRun

    routes = routed(topology, args.engine)

    def reroute(gone: frozenset[int]) -> Routes | None:
        graph = Graph(topology.without(gone))
        for engine in dict.fromkeys((routes.engine, "up-down")):
            try:
                return route(graph, engine, routes.lids)
            except RoutingError:
                continue
        return None

    def control(mbps: int) -> CongestionControl:
        return TableControl() if args.congestion == "ib" else RateControl(mbps)

    controlled = args.congestion != "none"
    settings = PortSettings(
        lanes=routes.routing.lanes,
        buffer_blocks=args.buffer,
        segment_timeout_ps=args.segments * PS_PER_NS or None,
        mark_blocks=MARK_BLOCKS if controlled else None,
    )
    traffic = Traffic(
        args.pattern, args.load, args.message_size, args.mtu, args.time * PS_PER_NS, args.seed
    )
    made = TrafficRun(
        topology, routes, traffic, settings=settings, congestion=control if controlled else None,
        events_at=_link_events(topology, args), reroute=reroute, reroute_ps=args.reroute * PS_PER_NS,
    )  # fmt: skip
    return made, routes


def _link_events(topology: Topology, args: argparse.Namespace) -> list[LinkEvent]:
    from softhca.fabric.traffic import LinkEvent

    found = []
    for fails, words in ((True, args.fail), (False, args.restore)):
        for text in words:
            name, _, time = text.rpartition("@")
            try:
                time_ps = moment(time) * PS_PER_NS
            except argparse.ArgumentTypeError as error:
                raise UsageError(f"{text!r}: {error}") from None
            found.append(LinkEvent(time_ps, failed_links(topology, [name])[0], fails))
    return found


def _document(args: argparse.Namespace, made: TrafficRun, routes: Routes) -> dict[str, Any]:
    figures, topology = made.figures, made.topology
    seconds = args.time / 1e9
    loads = made.loads()
    links = [
        {
            "from": topology.end_text(end),
            "to": topology.end_text(topology.peer(*end)),  # type: ignore[arg-type]
            "load": round(load, 4),
            "packets": port.counters.transmitted_packets,
            "marked": port.counters.marked,
            "discarded": port.counters.discarded,
            "waited_us": round(port.counters.waited_ps / 1e6, 3),
        }
        for end, load in loads.items()
        if (port := made.port(end)) is not None
    ]
    return {
        "engine": routes.engine,
        "hosts": len(made.hosts),
        "pattern": args.pattern,
        "load": args.load,
        "message_bytes": args.message_size,
        "seed": args.seed,
        "time_us": args.time / 1000,
        "end_us": round(made.events.now_ps / 1e6, 3),
        "events": made.events.executed,
        "messages": {
            "offered": figures.offered, "held_back": figures.held_back, "delivered": figures.delivered,
            "lost": figures.lost, "unfinished": made.unfinished,
        },
        "packets": {"sent": figures.packets_sent, "delivered": figures.packets_delivered},
        "drops": dict(figures.drops),
        "reroutes": figures.reroutes,
        "unroutable": figures.unroutable,
        "offered_bytes_per_s": round(figures.offered * args.message_size / seconds),
        "throughput_bytes_per_s": round(figures.bytes_in_time / seconds),
        "latency_us": {
            name: round(figures.percentile_ps(share) / 1e6, 3)
            for name, share in (("min", 0.0), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
        },
        "links": links,
    }  # fmt: skip


def _print(args: argparse.Namespace, document: dict[str, Any]) -> None:
    messages, latency = document["messages"], document["latency_us"]
    drops = ", ".join(f"{count} {reason}" for reason, count in document["drops"].items()) or "none"
    rows = [
        ("hosts", document["hosts"]),
        ("engine", document["engine"]),
        ("messages", ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in messages.items())),
        ("offered", output.bytes_text(document["offered_bytes_per_s"]) + "/s"),
        ("delivered in time", output.bytes_text(document["throughput_bytes_per_s"]) + "/s"),
        ("latency in µs", ", ".join(f"{name} {value:g}" for name, value in latency.items())),
        ("packets lost", drops),
        ("routes made anew", document["reroutes"]),
        ("at rest after", f"{document['end_us']:g} µs, {document['events']} events"),
    ]
    output.print_table(f"{args.topology}, {args.pattern} at {args.load:.0%}", ("what", "is"), rows)
    links = sorted(document["links"], key=lambda link: -link["load"])[:MOST_LINKS]
    output.print_table(
        "links that carried most",
        ("from", "to", "load", "packets", "waited µs", "marked", "discarded"),
        [
            (link["from"], link["to"], f"{link['load']:.1%}", link["packets"], link["waited_us"],
             link["marked"], link["discarded"])
            for link in links
        ],
    )  # fmt: skip
    if document["stuck"]:
        output.print_table("stuck", ("what",), [("packets wait for each other in a ring: a credit loop",)])


def _picture(args: argparse.Namespace, made: TrafficRun, routes: Routes) -> str:
    from softhca.fabric.picture import Shown, draw

    loads, topology = made.loads(), made.topology
    percent = {
        index: 100 * max(loads.get(link.end_a, 0.0), loads.get(link.end_b, 0.0))
        for index, link in enumerate(topology.links)
    }
    errors = {
        index: count
        for index, link in enumerate(topology.links)
        if (count := sum(
            port.counters.discarded for end in (link.end_a, link.end_b)
            if (port := made.port(end)) is not None
        ))
    }  # fmt: skip
    gone = {index for index, link in enumerate(topology.links)
            if (port := made.port(link.end_a)) is not None and not port.up}  # fmt: skip
    lids = dict(zip(routes.graph.endpoints.node.tolist(), routes.lids.base.tolist(), strict=True))
    title = f"{args.topology}: {args.pattern} at {args.load:.0%}, {routes.engine}"
    shown = Shown(
        lids=lambda node: str(lids.get(node, "")), loads=percent, errors=errors, gone=gone, title=title,
        unit="% in use", legend="% of a link in use", most=100.0,
    )  # fmt: skip
    return draw(topology, shown)
