"""``softhca fabric discover``: a fabric manager brings a topology up, by datagrams alone."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softhca.cli.errors import FAILED, UsageError
from softhca.cli.fabric_routes import ENGINES, failed_links
from softhca.cli.fabric_show import save
from softhca.cli.fabric_topology import add_partitions, add_topology, load_partitions, load_topology
from softhca.cli.output import add_json_option, print_json, print_table

if TYPE_CHECKING:
    from softhca.fabric.manager.managed_fabric import ManagedFabric
    from softhca.fabric.manager.manager import FabricManager
    from softhca.fabric.topology import Topology

SECOND_NS = 1_000_000_000


def add_parser(parts: Any) -> None:
    """Add ``discover`` to the parts."""
    parser: argparse.ArgumentParser = parts.add_parser(
        "discover", help="let a fabric manager discover, configure and route a topology in virtual time"
    )
    add_topology(parser)
    parser.add_argument("--at", metavar="NODE", help="where the manager is; default: the first host")
    parser.add_argument("--engine", choices=("auto", *ENGINES), default="auto", help="routing engine")
    parser.add_argument("--lmc", type=int, default=0, metavar="N", help="each port of a host has 2^N LIDs")
    parser.add_argument("--window", type=int, default=32, metavar="N", help="datagrams under way")
    add_partitions(parser)
    parser.add_argument(
        "--fail", action="append", default=[], metavar="NODE[PORT]", help="then let this link fail"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="what was found, in ibnetdiscover's form")
    add_json_option(parser)
    parser.set_defaults(run_part=run)


def run(args: argparse.Namespace) -> int:
    """Bring the fabric up; 1 when hosts do not reach each other by what the manager has written."""
    from softhca.fabric.manager.managed_fabric import ManagedFabric
    from softhca.fabric.manager.manager import ManagerConfig

    topology = load_topology(args.topology)
    at = _place(topology, args.at)
    gone = failed_links(topology, args.fail)
    guid = topology.nodes[at[0]].port_guid(at[1])
    partitions = load_partitions(args.partitions, topology, guid)
    try:
        config = ManagerConfig(
            guid, engine=args.engine, lmc=args.lmc, window=args.window, partitions=partitions
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    managed = ManagedFabric(topology)
    begin = time.perf_counter()
    manager = managed.add(at, config)
    managed.settle()
    seconds = time.perf_counter() - begin
    results = [_result(managed, manager, "up", seconds, managed.datagrams)]
    for link in gone:
        before, begin, sweeps = managed.datagrams, time.perf_counter(), manager.sweeps
        managed.plane.fail(link, managed.now)
        while manager.sweeps == sweeps and managed.now < (60 + 60 * sweeps) * SECOND_NS:
            managed.run_until(managed.now + SECOND_NS // 10)
        seconds = time.perf_counter() - begin
        name = topology.end_text(topology.links[link].end_a)
        results.append(_result(managed, manager, f"{name} failed", seconds, managed.datagrams - before))
    if args.write:
        _write(args.write, manager)
    if args.json:
        print_json({"steps": results, "nodes": _nodes(manager)})
    else:
        _print(args.topology, manager, results)
    return 0 if not results[-1]["hosts_apart"] and not results[-1]["credit_loop"] else FAILED


def _place(topology: Topology, name: str | None) -> tuple[int, int]:
    """The node and port of the manager: a host's first port that is linked, or a switch's port 0."""
    if name is None:
        nodes = [*topology.end_nodes, *topology.switches]
        if not nodes:
            raise UsageError("a topology without nodes")
        node = nodes[0]
    else:
        try:
            node = topology.index(name)
        except KeyError:
            raise UsageError(f"no node is named {name!r}") from None
    found = topology.nodes[node]
    if found.is_switch:
        return node, 0
    linked = [port for port in found.addressed_ports if topology.peer(node, port) is not None]
    return node, linked[0] if linked else 1


def _result(
    managed: ManagedFabric, manager: FabricManager, step: str, seconds: float, datagrams: int
) -> dict[str, Any]:
    from softhca.fabric.verify import credit_loop, reach

    routes = manager.fabric.routes
    found = None if routes is None else reach(routes)
    return {
        "step": step,
        "nodes": len(manager.fabric.nodes),
        "engine": None if routes is None else routes.engine,
        "datagrams": datagrams,
        "seconds": round(seconds, 3),
        "hosts_apart": None if found is None else found.hosts_apart,
        "credit_loop": routes is not None and credit_loop(routes) is not None,
        "problems": list(manager.problems),
    }


def _nodes(manager: FabricManager) -> list[dict[str, Any]]:
    routes = manager.fabric.routes
    if routes is None:
        return []
    ends = routes.graph.endpoints
    nodes = routes.graph.topology.nodes
    rows = zip(ends.node.tolist(), ends.port.tolist(), routes.lids.base.tolist(), strict=True)
    return [
        {
            "name": nodes[node].name,
            "kind": nodes[node].kind.name.lower(),
            "guid": f"{nodes[node].guid:#018x}",
            "port": port,
            "lid": lid,
            "pkeys": [f"{key:#06x}" for key in manager.pkeys_of(nodes[node].port_guid(port))],
        }
        for node, port, lid in rows
    ]


def _write(path: Path, manager: FabricManager) -> None:
    from softhca.fabric.topology_file import write_ibnetdiscover

    routes = manager.fabric.routes
    if routes is None:
        raise UsageError("nothing was found")
    guids = [node.guid for node in routes.graph.topology.nodes]
    save(
        path,
        write_ibnetdiscover(
            routes.graph.topology,
            lambda node, port: (manager.lid_of(guids[node], port), manager.config.lmc if port else 0),
        ),
    )


def _print(name: str, manager: FabricManager, results: list[dict[str, Any]]) -> None:
    columns = ("step", "nodes", "engine", "datagrams", "seconds", "hosts apart", "credit loop")
    rows = [
        (*(row[key] for key in ("step", "nodes", "engine", "datagrams", "seconds", "hosts_apart")),
         "yes" if row["credit_loop"] else "none")
        for row in results
    ]  # fmt: skip
    print_table(name, columns, rows)
    nodes = _nodes(manager)
    if len(nodes) <= 100:
        lids = [(row["name"], row["port"], row["lid"]) for row in nodes]
        print_table("LIDs", ("node", "port", "LID"), lids)
    if results[-1]["problems"]:
        print_table("problems", ("what",), [(text,) for text in results[-1]["problems"]])
