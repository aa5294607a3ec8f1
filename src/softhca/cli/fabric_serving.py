"""What ``softhca fabric serve`` does, and ``fail``, ``restore`` and ``degrade``: the server of a fabric, and
requests to it.
"""

from __future__ import annotations

import argparse
import errno
import ipaddress
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from softhca.cli.errors import CommandError, UsageError
from softhca.cli.fabric_topology import linked_ports, load_fabric, load_partitions
from softhca.cli.output import print_json, print_table
from softhca.cli.signal_descriptor import read_out, signal_descriptor
from softhca.fabric.ethernet.layout import EthernetTopology
from softhca.fabric.ethernet.plane import EthernetPlane
from softhca.fabric.mad_plane import MadPlane
from softhca.fabric.topology import TopologyError
from softhca.fabric.umad_names import DEFAULT_NAME, DEFAULT_PORT, MOST_SESSIONS
from softhca.fabric.umad_sessions import attachment
from softhca.runtime.fabric_control import ControlError, ask
from softhca.runtime.fabric_loop import FabricLoop
from softhca.runtime.fabric_server import FabricServer
from softhca.wire.route import gid_of

if TYPE_CHECKING:
    from softhca.fabric.manager.managed_fabric import ManagedFabric

LIBRARIES = ("usr/lib/*/umad2sim/libumad2sim.so", "usr/lib*/umad2sim/libumad2sim.so")


class _EndedError(Exception):
    """Somebody wants the server to end."""


def serve(args: argparse.Namespace) -> int:
    """Serve the fabric until SIGINT or SIGTERM, where it is attended until the end of its input; 0 then."""
    if args.partitions is not None and args.manager is None:
        raise UsageError("--partitions goes with --manager: another manager has a file of its own")
    chosen = {name: getattr(args, name) for name in ("engine", "lmc", "m_key")}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    if chosen and args.manager is None:
        raise UsageError(f"--{min(chosen).replace('_', '-')} goes with --manager")
    plane = _plane(args)
    start_ns = time.monotonic_ns()
    managed = None
    if args.manager is not None and isinstance(plane, MadPlane):
        managed = _managed(plane, args.manager, args.partitions, _gids(args.addresses), chosen)
    loop = FabricLoop(plane, lambda: time.monotonic_ns() - start_ns, managed)
    server = FabricServer(loop, args.name, _address(args.listen) if args.listen else None)
    before = {each: signal.signal(each, _end) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.open()
        if args.capture is not None:
            server.capture(args.capture)
        if args.attended:
            _attend(loop)
        elif not args.json:
            print(_hint(args.name, server.address, isinstance(plane, EthernetPlane)), flush=True)
        with signal_descriptor() as signals:
            loop.watch(signals, lambda: read_out(signals))
            while True:
                loop.turn()
    except _EndedError:
        pass
    except OSError as error:
        remedy = "take another name: --name" if error.errno == errno.EADDRINUSE else ""
        raise CommandError(f"cannot serve {args.name!r}: {error.strerror}", remedy) from None
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        server.close()
    if not args.attended:
        _report(args, server.counters())
    return 0


def _plane(args: argparse.Namespace) -> MadPlane | EthernetPlane:
    """What carries the packets of the fabric.  UsageError, CommandError."""
    loaded = load_fabric(args.topology)
    if not isinstance(loaded, EthernetTopology):
        if args.addresses and args.manager is None:
            raise UsageError("--addresses goes with --manager: another manager has records of its own")
        return MadPlane(loaded)
    for name in ("manager", "listen", "partitions"):
        if getattr(args, name) is not None:
            raise UsageError(f"--{name} goes with an InfiniBand fabric, and {args.topology} is an Ethernet")
    try:
        return EthernetPlane(loaded, _gids(args.addresses))
    except TopologyError as error:
        raise UsageError(f"--addresses: {error}") from None


def _gids(text: str | None) -> list[bytes]:
    """The addresses of ``--addresses``, in the form of GIDs.  UsageError."""
    return [_gid(each) for each in (text or "").split(",") if each]


def _gid(text: str) -> bytes:
    try:
        address = ipaddress.ip_address(text.strip())
    except ValueError:
        raise UsageError(f"--addresses: {text!r} is no address") from None
    if address.is_multicast or address.is_unspecified:
        raise UsageError(f"--addresses: {text!r} is no host's address")
    return gid_of(address.packed)


def _attend(loop: FabricLoop) -> None:
    """Say when the fabric's manager has brought it up; end with the standard input."""

    def ended() -> None:
        if not os.read(0, 4096):
            raise _EndedError

    loop.watch(0, ended)
    while loop.managed is not None and not all(each.sweeps for each in loop.managed.managers):
        loop.turn()
    print("ready", flush=True)


def _managed(
    plane: MadPlane,
    name: str,
    partitions: Path | None,
    addresses: Sequence[bytes],
    chosen: Mapping[str, Any],
) -> ManagedFabric:
    """The fabric with a manager of ours at the node that is named, else at the first host; ``addresses`` are
    those of the hosts' linked ports, in their order, ``chosen`` further values of its configuration."""
    from softhca.fabric.manager.managed_fabric import ManagedFabric
    from softhca.fabric.manager.manager import ManagerConfig

    end = attachment(plane.topology, name)
    if end is None:
        raise UsageError(f"no node is called {name!r}")
    if plane.topology.peer(*end) is None and not plane.topology.nodes[end.node].is_switch:
        raise UsageError(f"{plane.topology.end_text(end)}, where the manager would be, has no link")
    managed = ManagedFabric(plane.topology, plane)
    guid = plane.topology.nodes[end.node].port_guid(end.port)
    known = load_partitions(partitions, plane.topology, guid)
    guids = [each for ports in linked_ports(plane.topology).values() for each in ports.values()]
    if len(addresses) > len(guids):
        raise UsageError(f"--addresses: {len(addresses)}, and {len(guids)} ports of hosts have a link")
    if len(set(addresses)) < len(addresses):
        raise UsageError("--addresses: two ports would have the same one")
    named = dict(zip(guids, addresses, strict=False))
    try:
        managed.add(end, ManagerConfig(guid, partitions=known, addresses=named, **chosen))
    except ValueError as error:
        raise UsageError(str(error)) from None
    return managed


def _end(number: int, frame: object) -> NoReturn:
    raise _EndedError


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, str(DEFAULT_PORT)
    if not port.isascii() or not port.isdigit() or not 0 < int(port) <= 0xFFFF - MOST_SESSIONS:
        raise UsageError(f"{text!r} is no address: expected ADDRESS[:PORT]")
    return host, int(port)


def _hint(name: str, address: tuple[str, int] | None, is_ethernet: bool) -> str:
    """What a user must say so that a program meets this fabric."""
    if is_ethernet:
        return f"SOFTHCA_DEVICES=softhca0=fabric:{name} softhca devinfo"
    found = [each for pattern in LIBRARIES for each in sorted(Path("/").glob(pattern))]
    where = f"LD_PRELOAD={found[0] if found else 'libumad2sim.so'}"
    if address is not None:
        where += f" IBSIM_SERVER_NAME={address[0]} IBSIM_SERVER_PORT={address[1]}"
    elif name != DEFAULT_NAME:
        where += f" IBSIM_SOCKNAME={name}"
    return f"{where} ibnetdiscover"


def _report(args: argparse.Namespace, document: dict[str, int]) -> None:
    if args.json:
        print_json(document)
    else:
        rows = [(name, count) for name, count in document.items() if count]
        print_table("management datagrams, and packets of adapters", ("what", "how many"), rows, sys.stderr)


def change(args: argparse.Namespace) -> int:
    """Ask the server for it."""
    requests = [{"do": args.do}]
    if args.do == "degrade":
        requests = _degrading(args)
    try:
        for request in requests:
            answer = ask(args.name, request | {"link": args.link})
    except ControlError as error:
        raise CommandError(str(error)) from None
    if args.json:
        print_json(answer)
    elif answer.get("changed", True):
        done = {"fail": "is down", "restore": "is back", "degrade": "is degraded"}[args.do]
        print(f"{' – '.join(answer['link'])} {done}")
    else:
        print(f"{' – '.join(answer['link'])} was so already")
    return 0


def _degrading(args: argparse.Namespace) -> list[dict[str, Any]]:
    requests: list[dict[str, Any]] = []
    if args.errors:
        requests.append({"do": "count", "errors": dict(_errors(each) for each in args.errors)})
    if args.faults is not None:
        requests.append({"do": "faults", "faults": args.faults})
    if not requests:
        raise UsageError("degraded by what?  COUNTER=NUMBER, or --faults SPEC")
    return requests


def _errors(text: str) -> tuple[str, int]:
    name, equals, number = text.partition("=")
    if not equals or not number.isascii() or not number.isdigit() or len(number) > 10:
        raise UsageError(f"{text!r} is no counter and number: expected COUNTER=NUMBER")
    return name.replace("-", "_"), int(number)
