"""``softhca fabric show``: what a topology has, as tables, picture or file."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    add_json_option(parser)
    parser.set_defaults(run_part=run)


def run(args: argparse.Namespace) -> int:
    """Show the topology."""
    topology = load_topology(args.topology)
    if args.svg:
        from softhca.fabric.picture import draw

        save(args.svg, draw(topology))
    if args.write:
        _write(args.write, topology)
    if args.json:
        print_json(document(topology))
        return 0
    kinds = Counter(node.kind for node in topology.nodes)
    rows: list[tuple[object, object]] = [(kind.name.lower().replace("_", " "), kinds[kind]) for kind in kinds]
    rows += [(f"links {rate}", count) for rate, count in Counter(map(str, topology.links)).items()]
    print_table(args.topology, ("what", "how many"), rows)
    if args.links:
        print_table("links", ("from", "to", "rate"), link_rows(topology))
    return 0


def link_rows(topology: Topology) -> list[tuple[str, str, str]]:
    """Both ends and the rate of each link."""
    return [
        (topology.end_text(link.end_a), topology.end_text(link.end_b), str(link)) for link in topology.links
    ]


def document(topology: Topology) -> dict[str, Any]:
    """The topology as JSON has it."""
    return {
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
