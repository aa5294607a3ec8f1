"""The fabric of ``softhca run --link fabric:TOPOLOGY``: a process serves it, its hosts are the copies."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from softhca.cli.errors import UsageError
from softhca.cli.fabric_topology import FABRIC_VARIABLE
from softhca.cli.launch import free_loopback_addresses
from softhca.cli.roles import SAME_HOST
from softhca.cli.served_process import served_process
from softhca.fabric.umad_names import DEFAULT_NAME
from softhca.links.fabric_messages import socket_name
from softhca.runtime.listening_name import is_taken
from softhca.runtime.specification import DeviceSpecificationError, parse

if TYPE_CHECKING:
    from softhca.fabric.ethernet.layout import EthernetTopology
    from softhca.fabric.topology import Topology

PREFIX = "fabric:"


class _Links(tuple[str, ...]):
    """The words of ``--link``; the last is the beginning of many."""

    __slots__ = ()

    def __contains__(self, word: object) -> bool:
        return super().__contains__(word) or (isinstance(word, str) and word.startswith(PREFIX))


LINKS = _Links((*SAME_HOST, PREFIX))


@dataclass(frozen=True)
class RunFabric:
    """A fabric that is served under ``name``; ``hosts`` are the names of the copies' nodes, ``manager`` that
    of the node where the manager is: a switch if there is one, so that no host's link takes it away; an
    Ethernet has none.  ``ports`` are each host's ports that have a link; ``options`` what devices are made
    with."""

    name: str
    hosts: tuple[str, ...]
    manager: str
    ports: tuple[tuple[int, ...], ...]
    is_ethernet: bool = False
    options: str = ""

    @property
    def devices(self) -> list[str]:
        """``SOFTHCA_DEVICES`` of each copy: a device with all ports of its host."""
        return [
            "softhca0=" + "+".join(
                f"fabric:{self.name}/{host}" + (f"[{port}]" if len(ports) > 1 else "") for port in ports
            ) + self.options
            for host, ports in zip(self.hosts, self.ports, strict=True)
        ]  # fmt: skip

    def peers(self) -> tuple[list[str], list[str]]:
        """Addresses by which copies find each other, on loopback, and those of the hosts, port by port: a
        copy's is that of its first port."""
        free = free_loopback_addresses(sum(map(len, self.ports)))
        firsts = [sum(map(len, self.ports[:rank])) for rank in range(len(self.hosts))]
        return [free[first] for first in firsts], free

    def variables(self, rank: int) -> dict[str, str]:
        """What a copy finds in its environment besides: tools of libibumad are at its host, too, where they
        can be."""
        found = {FABRIC_VARIABLE: self.name, "SIM_HOST": self.hosts[rank]}
        return found if self.is_ethernet else found | {"IBSIM_SOCKNAME": self.name}


def plan(text: str, copies: int, environment: Mapping[str, str], name: str = "") -> RunFabric:
    """The fabric of ``--link text`` for so many copies, which get its hosts in order.  UsageError,
    CommandError.

    It is served under ``name``, else the usual one where that is free.
    """
    if environment.get("SOFTHCA_DEVICES", "").strip():
        raise UsageError(
            "--link fabric gives every copy its device: SOFTHCA_DEVICES must not be set",
            "unset SOFTHCA_DEVICES",
        )
    from softhca.cli.fabric_topology import linked_ports, load_fabric
    from softhca.fabric.topology import Topology

    text = text.removeprefix(PREFIX)
    if not text:
        raise UsageError("which fabric?  --link fabric:TOPOLOGY, as in fabric:fat-tree:radix=4")
    loaded = load_fabric(text)
    topology = loaded if isinstance(loaded, Topology) else loaded.topology
    hosts = {name: tuple(ports) for name, ports in linked_ports(topology).items()}
    if copies > len(hosts):
        raise UsageError(f"{copies} copies, and {text} has {len(hosts)} hosts with a link")
    switches = [topology.nodes[index].name for index in topology.switches]
    found = RunFabric(name or _free_name(), tuple(hosts)[:copies], (switches or list(hosts))[0],
                      tuple(hosts.values())[:copies], loaded is not topology, _options(loaded))  # fmt: skip
    try:
        for device in found.devices:
            parse(device)
    except DeviceSpecificationError as error:
        raise UsageError(str(error).removeprefix("SOFTHCA_DEVICES: ")) from None
    return found


def _options(loaded: Topology | EthernetTopology) -> str:
    return "?congestion=dcqcn" if getattr(loaded, "congestion", False) else ""


def _free_name() -> str:
    taken = is_taken("@" + socket_name(DEFAULT_NAME)[1:])
    return f"{DEFAULT_NAME}-{os.getpid()}" if taken else DEFAULT_NAME


@contextlib.contextmanager
def served(
    fabric: RunFabric,
    topology: str,
    place: Path,
    environment: Mapping[str, str],
    capture: Path | None = None,
    partitions: Path | None = None,
    addresses: Sequence[str] = (),
) -> Iterator[None]:
    """While the block runs, the fabric's process does: its manager has brought it up before.  It ends with
    the block, or with this process, whose end of its input closes.  ``addresses``: of the first hosts.
    CommandError: it cannot be.
    """
    words = ["softhca", "fabric", "serve", topology.removeprefix(PREFIX), "--name", fabric.name]
    words += ["--attended"] if fabric.is_ethernet else [f"--manager={fabric.manager}", "--attended"]
    if addresses:
        words += ["--addresses", ",".join(addresses)]
    if capture is not None:
        words += ["--capture", str(capture)]
    if partitions is not None:
        words += ["--partitions", str(partitions)]
    with served_process(words, environment, place / "fabric", "fabric"):
        yield
