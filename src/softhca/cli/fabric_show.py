"""``softhca fabric show``: what a topology has, as tables, picture or file; of one that is served also what
its links carry, and what is wrong with them.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from softhca.cli.errors import CommandError
from softhca.cli.fabric_topology import YAML_ENDINGS, add_topology, load_topology
from softhca.cli.output import add_json_option, print_json, print_table

if TYPE_CHECKING:
    from softhca.fabric.topology import Topology


def add_parser(parts: Any) -> None:
    """Add ``show`` to the parts."""
    parser: argparse.ArgumentParser = parts.add_parser("show", help="nodes and links of a topology")
    add_topology(parser)
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw it")
    parser.add_argument("--write", type=Path, metavar="FILE", help="in ibnetdiscover's form; .yaml: as YAML")
    parser.add_argument("--links", action="store_true", help="list every link")
    parser.add_argument(
        "--served",
        metavar="NAME",
        help="with the LIDs, loads and errors of the fabric of this topology that is served under NAME",
    )
    add_json_option(parser)
    parser.set_defaults(run_part=run)


class LinkState(NamedTuple):
    """Of a link that is served: bytes of its busier direction, errors that its ends have counted, whether it
    is down."""

    load_bytes: int
    errors: int
    down: bool


class Served(NamedTuple):
    """The state of a fabric that is served: LIDs of nodes (0: none) and states of links, by index."""

    name: str
    lids: list[int]
    links: list[LinkState]


def run(args: argparse.Namespace) -> int:
    """Show the topology."""
    topology = load_topology(args.topology)
    served = None if args.served is None else _served(topology, args.served)
    if args.svg:
        save(args.svg, _picture(args.topology, topology, served))
    if args.write:
        _write(args.write, topology)
    if args.json:
        print_json(document(topology, served))
        return 0
    kinds = Counter(node.kind for node in topology.nodes)
    rows: list[tuple[object, object]] = [(kind.name.lower().replace("_", " "), kinds[kind]) for kind in kinds]
    rows += [(f"links {rate}", count) for rate, count in Counter(map(str, topology.links)).items()]
    print_table(args.topology, ("what", "how many"), rows)
    if args.links:
        print_table("links", ("from", "to", "rate"), link_rows(topology))
    if served is not None:
        _print_served(topology, served, args.links)
    return 0


def _served(topology: Topology, name: str) -> Served:
    """What a served fabric says of itself.  CommandError: nobody serves it, or it is another one."""
    from softhca.runtime.fabric_control import ControlError, ask

    served = Served(name, [], [])
    counts = len(topology.nodes), len(topology.links)
    try:
        while (known := max(len(served.lids), len(served.links))) < max(counts):
            found = ask(name, {"do": "state", "first": known})
            if (found["nodes"], found["links"]) != counts:
                raise CommandError(
                    f"the fabric that is served as {name!r} has {found['nodes']} nodes and "
                    f"{found['links']} links, and the topology {counts[0]} and {counts[1]}",
                    "name the topology that serve was given",
                )
            served.lids.extend(found["lids"])
            served.links.extend(LinkState(*each) for each in found["states"])
    except ControlError as error:
        raise CommandError(str(error)) from None
    return served


def _picture(name: str, topology: Topology, served: Served | None) -> str:
    from softhca.fabric.picture import Shown, draw

    if served is None:
        return draw(topology)
    return draw(topology, Shown(
        lids=lambda node: str(served.lids[node] or ""),
        loads={index: float(each.load_bytes) for index, each in enumerate(served.links)},
        errors={index: each.errors for index, each in enumerate(served.links)},
        gone={index for index, each in enumerate(served.links) if each.down},
        title=f"{name}, served as {served.name}", unit="bytes", legend="bytes over a link",
    ))  # fmt: skip


def _print_served(topology: Topology, served: Served, everything: bool) -> None:
    """The links with errors and those that are down; or all of them."""
    rows = [
        (topology.end_text(link.end_a), topology.end_text(link.end_b), each.load_bytes, each.errors,
         "down" if each.down else "up")
        for link, each in zip(topology.links, served.links, strict=True)
        if everything or each.errors or each.down
    ]  # fmt: skip
    if rows:
        print_table(f"links, served as {served.name}", ("from", "to", "bytes", "errors", "is"), rows)
    else:
        print(f"all links are up, and none has counted errors; {sum(map(bool, served.lids))} nodes have LIDs")


def link_rows(topology: Topology) -> list[tuple[str, str, str]]:
    """Both ends and the rate of each link."""
    return [
        (topology.end_text(link.end_a), topology.end_text(link.end_b), str(link)) for link in topology.links
    ]


def document(topology: Topology, served: Served | None = None) -> dict[str, Any]:
    """The topology as JSON has it."""
    shown: dict[str, Any] = {
        "nodes": [
            {
                "name": node.name,
                "kind": node.kind.name.lower(),
                "guid": f"{node.guid:#018x}",
                "ports": node.port_count,
                "description": node.description,
            }
            for node in topology.nodes
        ],
        "links": [dict(zip(("from", "to", "rate"), row, strict=True)) for row in link_rows(topology)],
    }
    if served is not None:
        for node, lid in zip(shown["nodes"], served.lids, strict=True):
            node["lid"] = lid
        for link, state in zip(shown["links"], served.links, strict=True):
            link |= state._asdict()
    return shown


def save(path: Path, text: str) -> None:
    """Write a file; CommandError: it cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None


def _write(path: Path, topology: Topology) -> None:
    from softhca.fabric.topology_file import write_ibnetdiscover
    from softhca.fabric.topology_yaml import write_yaml

    as_yaml = path.suffix in YAML_ENDINGS
    save(path, write_yaml(topology) if as_yaml else write_ibnetdiscover(topology))
