"""The fabric of ``softhca run --link fabric:TOPOLOGY``: a process serves it, its hosts are the copies."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from softhca.cli.errors import CommandError, UsageError
from softhca.cli.launch import free_loopback_addresses
from softhca.cli.roles import SAME_HOST
from softhca.links.fabric_messages import socket_name
from softhca.runtime.listening_name import is_taken
from softhca.runtime.specification import DeviceSpecificationError, parse

if TYPE_CHECKING:
    from softhca.fabric.topology import Topology

PREFIX = "fabric:"
DEFAULT_NAME = "sim"
"""What libumad2sim's programs look for, too."""
FABRIC_VARIABLE = "SOFTHCA_FABRIC"
"""The name of the fabric whose host a program is."""
END_S = 10.0
"""A fabric's process that does not end within so long is killed."""


class _Links(tuple[str, ...]):
    """The words of ``--link``; the last is the beginning of many."""

    __slots__ = ()

    def __contains__(self, word: object) -> bool:
        return super().__contains__(word) or (isinstance(word, str) and word.startswith(PREFIX))


LINKS = _Links((*SAME_HOST, PREFIX))


@dataclass(frozen=True)
class RunFabric:
    """A fabric that is served under ``name``; ``hosts`` are the names of the copies' nodes, ``manager`` that
    of the node where the manager is: a switch if there is one, so that no host's link takes it away.
    ``ports`` are each host's ports that have a link."""

    name: str
    hosts: tuple[str, ...]
    manager: str
    ports: tuple[tuple[int, ...], ...]

    @property
    def devices(self) -> list[str]:
        """``SOFTHCA_DEVICES`` of each copy: a device with all ports of its host."""
        return [
            "softhca0=" + "+".join(
                f"fabric:{self.name}/{host}" + (f"[{port}]" if len(ports) > 1 else "") for port in ports
            )
            for host, ports in zip(self.hosts, self.ports, strict=True)
        ]  # fmt: skip

    def variables(self, rank: int) -> dict[str, str]:
        """What a copy finds in its environment besides: tools of libibumad are at its host, too."""
        return {FABRIC_VARIABLE: self.name, "IBSIM_SOCKNAME": self.name, "SIM_HOST": self.hosts[rank]}


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
    from softhca.cli.fabric_topology import load_topology

    text = text.removeprefix(PREFIX)
    if not text:
        raise UsageError("which fabric?  --link fabric:TOPOLOGY, as in fabric:fat-tree:radix=4")
    topology = load_topology(text)
    hosts = _linked_hosts(topology)
    if copies > len(hosts):
        raise UsageError(f"{copies} copies, and {text} has {len(hosts)} hosts with a link")
    switches = [topology.nodes[index].name for index in topology.switches]
    found = RunFabric(name or _free_name(), tuple(hosts)[:copies], (switches or list(hosts))[0],
                      tuple(hosts.values())[:copies])  # fmt: skip
    try:
        for device in found.devices:
            parse(device)
    except DeviceSpecificationError as error:
        raise UsageError(str(error).removeprefix("SOFTHCA_DEVICES: ")) from None
    return found


def _linked_hosts(topology: Topology) -> dict[str, tuple[int, ...]]:
    """The hosts that have links, with the ports of these, in the topology's order."""
    found = {}
    for index in topology.end_nodes:
        node = topology.nodes[index]
        ports = tuple(port for port in node.addressed_ports if topology.peer(index, port))
        if ports:
            found[node.name] = ports
    return found


def _free_name() -> str:
    taken = is_taken("@" + socket_name(DEFAULT_NAME)[1:])
    return f"{DEFAULT_NAME}-{os.getpid()}" if taken else DEFAULT_NAME


def addresses(copies: int) -> list[str]:
    """Loopback addresses by which copies may meet beside the fabric."""
    return free_loopback_addresses(copies)


@contextlib.contextmanager
def served(
    fabric: RunFabric,
    topology: str,
    place: Path,
    environment: Mapping[str, str],
    capture: Path | None = None,
    partitions: Path | None = None,
) -> Iterator[None]:
    """While the block runs, the fabric's process does: its manager has brought it up before.  It ends with
    the block, or with this process, whose end of its input closes.  CommandError: it cannot be.
    """
    command = [sys.executable, "-P", "-m", "softhca", "fabric", "serve", topology.removeprefix(PREFIX)]
    command += ["--name", fabric.name, f"--manager={fabric.manager}", "--attended"]
    if capture is not None:
        command += ["--capture", str(capture)]
    if partitions is not None:
        command += ["--partitions", str(partitions)]
    said = place / "fabric"
    with said.open("w") as errors:
        process = subprocess.Popen(
            command, env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            text=True, start_new_session=True,
        )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline() != "ready\n":
            process.wait()
            reason = said.read_text().strip().removeprefix("softhca: ")
            raise CommandError(f"no fabric: {reason or 'its process has ended'}")
        yield
        sys.stderr.write(said.read_text())
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
