"""The topology that a command of ``softhca fabric`` is given: a file, or a generator and its parameters."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from softhca.cli.errors import CommandError, UsageError
from softhca.fabric.generators import GENERATORS, generate
from softhca.fabric.topology import Topology, TopologyError

if TYPE_CHECKING:
    from softhca.fabric.ethernet.layout import EthernetTopology
    from softhca.fabric.manager.partitions import Partition

YAML_ENDINGS = (".yaml", ".yml")
FABRIC_VARIABLE = "SOFTHCA_FABRIC"
"""The name of the fabric whose host a program is."""


def add_topology(parser: argparse.ArgumentParser) -> None:
    """``TOPOLOGY``."""
    parser.add_argument(
        "topology",
        metavar="TOPOLOGY",
        help="a file (as ibnetdiscover prints it, or .yaml), or a generator, as in torus:sizes=4x4; "
        f"there are {', '.join(GENERATORS)}",
    )


def load_topology(text: str) -> Topology:
    """As `load_fabric`, of an InfiniBand fabric.  UsageError: it is an Ethernet."""
    found = load_fabric(text)
    if not isinstance(found, Topology):
        raise UsageError(
            f"{text} is an Ethernet, which has no LIDs and no manager",
            "softhca run --link fabric:FILE and softhca fabric serve take it",
        )
    return found


def load_fabric(text: str) -> Topology | EthernetTopology:
    """The fabric, of either kind, of a file or generator.  CommandError: the file cannot be read, is none,
    or has no node; UsageError: the generator cannot make it.
    """
    kind, colon, rest = text.partition(":")
    if kind in GENERATORS and not Path(text).exists():
        try:
            return generate(kind, _parameters(rest) if colon and rest else {})
        except TopologyError as error:
            raise UsageError(str(error)) from None
    from softhca.fabric.ethernet_yaml import read_fabric
    from softhca.fabric.topology_file import MAX_BYTES, read_ibnetdiscover

    path = Path(text)
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    try:
        content = data.decode()
        found = read_fabric(content) if path.suffix in YAML_ENDINGS else read_ibnetdiscover(content)
    except UnicodeDecodeError:
        raise CommandError(f"{path}: no text") from None
    except TopologyError as error:
        raise CommandError(f"{path}: {error}") from None
    if not (found if isinstance(found, Topology) else found.topology).nodes:
        raise CommandError(f"{path}: no node is in it")
    return found


def add_partitions(parser: argparse.ArgumentParser) -> None:
    """``--partitions``."""
    parser.add_argument(
        "--partitions",
        type=Path,
        metavar="FILE",
        help="which ports have which P_Keys, in the form of OpenSM's partitions.conf (docs/fabric.md)",
    )


def linked_ports(topology: Topology) -> dict[str, dict[int, int]]:
    """The hosts that have links, in the topology's order: their ports that have one, with their GUIDs."""
    found = {}
    for index in topology.end_nodes:
        node = topology.nodes[index]
        ports = {port: node.port_guid(port) for port in node.addressed_ports if topology.peer(index, port)}
        if ports:
            found[node.name] = ports
    return found


def load_partitions(path: Path | None, topology: Topology, manager_guid: int) -> tuple[Partition, ...]:
    """The partitions of a file, none without one.  CommandError: it cannot be read or says what cannot be."""
    if path is None:
        return ()
    from softhca.fabric.manager.partition_file import MAX_BYTES as MOST
    from softhca.fabric.manager.partition_file import PartitionFileError, read_partitions

    try:
        with path.open("rb") as stream:
            data = stream.read(MOST + 1)
        if len(data) > MOST:
            raise CommandError(f"{path}: more than {MOST >> 20} MiB")
        return read_partitions(data.decode(), topology, manager_guid)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandError(f"{path}: no text") from None
    except PartitionFileError as error:
        raise CommandError(f"{path}: {error}") from None


def _parameters(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in map(_parameter, text.split(",")):
        if name in found:
            raise UsageError(f"{name} is given twice")
        found[name] = value
    return found


def _parameter(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{text!r} is no parameter: expected NAME=VALUE")
    return name.strip().replace("-", "_"), value.strip()
