"""``softhca fabric routes``: forwarding tables of a topology, and whether they are right."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softhca.cli.errors import FAILED, CommandError, UsageError
from softhca.cli.fabric_show import save
from softhca.cli.fabric_topology import add_topology, load_topology
from softhca.cli.output import add_json_option, print_json, print_table

if TYPE_CHECKING:
    from softhca.fabric.division import Runner
    from softhca.fabric.routing import Routes
    from softhca.fabric.topology import Topology
    from softhca.fabric.verify import Reachability

ENGINES = ("fat-tree", "up-down", "dimension-order", "min-hop")


def add_parser(parts: Any) -> None:
    """Add ``routes`` to the parts."""
    parser: argparse.ArgumentParser = parts.add_parser(
        "routes", help="route a topology, and look for pairs without a way and for credit loops"
    )
    add_topology(parser)
    parser.add_argument(
        "--engine", choices=("auto", *ENGINES), default="auto", help="auto: the first that can route it"
    )
    parser.add_argument("--lmc", type=int, default=0, metavar="N", help="each port of a host has 2^N LIDs")
    parser.add_argument("--fail", action="append", default=[], metavar="NODE[PORT]", help="without this link")
    parser.add_argument("--trace", metavar="FROM:TO", help="the way between two hosts")
    parser.add_argument("--table", metavar="SWITCH", help="the forwarding table of a switch")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw it, links by how many ways use them")
    parser.add_argument(
        "--dask", type=_dask_address, metavar="ADDRESS",
        help="let the workers of this Dask scheduler route and verify, as in tcp://192.0.2.7:8786 (extra"
        " 'cluster')",
    )  # fmt: skip
    add_json_option(parser)
    parser.set_defaults(run_part=run)


def _dask_address(text: str) -> str:
    """The address of a Dask scheduler."""
    from softhca.simulation.cluster import AddressError, parse_address  # only where one is given

    try:
        return parse_address(text)
    except AddressError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(args: argparse.Namespace) -> int:
    """Route; 1 when hosts do not reach each other, or channels can wait for each other in a ring."""
    if args.dask is None:
        from softhca.fabric.division import LOCAL_RUNNER

        return _run(args, LOCAL_RUNNER)
    from softhca.simulation.campaign import CampaignError
    from softhca.simulation.cluster import Cluster
    from softhca.simulation.cluster_runner import ClusterRunner

    try:
        with Cluster(args.dask) as cluster:
            return _run(args, ClusterRunner(cluster))
    except CampaignError as error:
        raise CommandError(str(error)) from None


def _run(args: argparse.Namespace, runner: Runner) -> int:
    from softhca.fabric.lids import LidError
    from softhca.fabric.routing_engine import RoutingError
    from softhca.fabric.verify import credit_loop, reach

    whole = load_topology(args.topology)
    gone = failed_links(whole, args.fail)
    topology = whole.without(gone)
    try:
        routes = routed(topology, args.engine, args.lmc, runner)
        trace = _trace(routes, args.trace) if args.trace else None
        table = _table(routes, args.table) if args.table else None
    except (RoutingError, LidError) as error:
        raise CommandError(str(error)) from None
    found = reach(routes, runner)
    loop = credit_loop(routes, runner)
    if args.svg:
        save(args.svg, _picture(whole, gone, routes, found))
    if args.json:
        print_json(_document(routes, found, loop, trace, table))
    else:
        _print(args, routes, found, loop, trace)
        if table is not None:
            print_table(f"forwarding table of {args.table}", ("LID", "port"), table)
    return 0 if found.whole and loop is None else FAILED


def routed(topology: Topology, engine: str, lmc: int = 0, runner: Runner | None = None) -> Routes:
    """Routes by an engine; of ``auto`` by the first that can.  ``runner`` does the work (None: here)."""
    from softhca.fabric.division import LOCAL_RUNNER
    from softhca.fabric.graph import Graph
    from softhca.fabric.routing import route
    from softhca.fabric.routing_engine import RoutingError

    graph = Graph(topology)
    if engine != "auto":
        return route(graph, engine, lmc=lmc, runner=runner or LOCAL_RUNNER)
    for name in ("fat-tree", "dimension-order"):
        try:
            return route(graph, name, lmc=lmc, runner=runner or LOCAL_RUNNER)
        except RoutingError:
            continue
    return route(graph, "up-down", lmc=lmc, runner=runner or LOCAL_RUNNER)


def failed_links(topology: Topology, names: list[str]) -> list[int]:
    """The links at these ends; UsageError: there is none."""
    found = []
    for text in names:
        name, _, port = text.removesuffix("]").rpartition("[")
        try:
            link = topology.link_at(topology.index(name), int(port))
        except (KeyError, ValueError):
            link = None
        if link is None:
            raise UsageError(f"no link at {text!r}; expected a node and a port of it, as in s1-0[3]")
        found.append(link)
    return found


def _trace(routes: Routes, text: str) -> list[str]:
    """The ends that a packet leaves by, from a host to another one."""
    topology, graph = routes.graph.topology, routes.graph
    hosts = []
    for name in text.split(":", 1):
        try:
            node = topology.index(name)
        except KeyError:
            raise UsageError(f"no node is named {name!r}") from None
        hosts.append(graph.endpoints.node.tolist().index(node))
    if len(hosts) != 2:
        raise UsageError(f"{text!r} is no way: expected FROM:TO")
    start = int(graph.endpoints.switch[hosts[0]])
    if start < 0:
        raise CommandError(f"{text.split(':')[0]} hangs on no switch")
    way = routes.way(start, int(routes.lids.base[hosts[1]]))
    return [f"{routes.name(switch)}[{port}]" for switch, port in way]


def _picture(whole: Topology, gone: list[int], routes: Routes, found: Reachability) -> str:
    from softhca.fabric.graph import Graph
    from softhca.fabric.picture import Shown, draw, link_loads

    graph = Graph(whole)
    first: dict[int, int] = {}
    for endpoint, node in enumerate(routes.graph.endpoints.node.tolist()):
        first.setdefault(node, endpoint)
    shown = Shown(
        lids=lambda node: str(int(routes.lids.base[first[node]])) if node in first else "",
        loads=link_loads(whole, graph, found.loads),
        gone=frozenset(gone),
        title=f"{len(whole.end_nodes)} hosts, {len(whole.switches)} switches, {routes.engine}",
    )
    return draw(whole, shown, graph)


def _document(
    routes: Routes, found: Reachability, loop: Any, trace: list[str] | None,
    table: list[tuple[int, int]] | None,
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "engine": routes.engine,
        "switches": len(routes.graph),
        "lids": int((routes.lids.owner >= 0).sum()),
        "top_lid": routes.lids.top,
        "hosts_apart": found.hosts_apart,
        "switches_apart": found.switches_apart,
        "most_hops": found.most_hops,
        "virtual_lanes": routes.routing.lanes,
        "credit_loop": None if loop is None else _loop_text(routes, loop),
    }
    if trace is not None:
        document["trace"] = trace
    if table is not None:
        document["table"] = {str(lid): port for lid, port in table}
    return document


def _loop_text(routes: Routes, loop: Any) -> list[str]:
    return [f"{routes.name(switch)}[{port}] VL {lane}" for switch, port, lane in loop]


def _table(routes: Routes, name: str) -> list[tuple[int, int]]:
    topology = routes.graph.topology
    number = {routes.name(switch): switch for switch in range(len(routes.graph))}.get(name)
    if number is None:
        known = any(node.name == name for node in topology.nodes)
        raise UsageError(f"{name} is no switch" if known else f"no node is named {name!r}")
    row = routes.tables[number]
    return [(int(lid), int(row[lid])) for lid in routes.destinations.lid]


def _print(
    args: argparse.Namespace, routes: Routes, found: Reachability, loop: Any, trace: list[str] | None
) -> None:
    linked = routes.graph.peer >= 0
    loads = found.loads[linked]
    rows = [
        ("engine", routes.engine),
        ("switches", len(routes.graph)),
        ("LIDs", f"{int((routes.lids.owner >= 0).sum())}, the highest {routes.lids.top}"),
        ("hosts that do not reach each other", found.hosts_apart),
        ("longest way in links", found.most_hops),
        ("ways over a link between switches", f"{loads.min()} to {loads.max()}" if len(loads) else "–"),
        ("virtual lanes", routes.routing.lanes),
        ("credit loop", "none" if loop is None else " → ".join(_loop_text(routes, loop))),
    ]
    print_table(args.topology, ("what", "is"), rows)
    if trace is not None:
        print_table(f"the way {args.trace}", ("leaves by",), [(end,) for end in trace])
