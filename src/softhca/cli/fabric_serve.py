"""``softhca fabric serve``: a fabric for unmodified programs of libibumad; ``fail``, ``restore`` and
``degrade`` change its links while it is served.

Here is what their command lines are; what runs them (`fabric_serving`) is imported when it runs.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from softhca.cli.fabric_routes import ENGINES
from softhca.cli.fabric_topology import FABRIC_VARIABLE, add_partitions, add_topology
from softhca.cli.output import add_json_option
from softhca.fabric.umad_names import DEFAULT_NAME, DEFAULT_PORT, MOST_SESSIONS
from softhca.management.performance_attributes import ERRORS


def add_parser(parts: Any) -> None:
    """Add ``serve``, ``fail``, ``restore`` and ``degrade`` to the parts."""
    parser: argparse.ArgumentParser = parts.add_parser(
        "serve", help="a fabric for opensm, ibnetdiscover and other programs of libibumad, unmodified"
    )
    add_topology(parser)
    add_name(parser)
    parser.add_argument(
        "--listen",
        metavar="ADDRESS[:PORT]",
        help=f"by UDP there and on the {MOST_SESSIONS} ports behind it (port {DEFAULT_PORT}), for anybody who"
        " reaches it, instead of programs of this user on this host",
    )
    parser.add_argument(
        "--manager",
        nargs="?",
        const="",
        metavar="NODE",
        help="let our fabric manager bring it up, from this node or the first host, instead of opensm",
    )
    parser.add_argument("--engine", choices=("auto", *ENGINES), help="the manager's routing engine (auto)")
    parser.add_argument("--lmc", type=int, metavar="N", help="the manager gives each port of a host 2^N LIDs")
    parser.add_argument(
        "--m-key",
        type=_key,
        metavar="KEY",
        help="the manager protects all ports with this M_Key: who has not got it cannot configure them",
    )
    add_partitions(parser)
    parser.add_argument(
        "--capture", type=Path, metavar="FILE.pcapng", help="write the packets that adapters send into FILE"
    )
    parser.add_argument(
        "--addresses",
        metavar="ADDRESS,…",
        help="of hosts, port by port in the topology's order (otherwise an Ethernet's have loopback ones,"
        " others none); on an InfiniBand fabric --manager's subnet administration tells them",
    )
    parser.add_argument("--attended", action="store_true", help=argparse.SUPPRESS)
    add_json_option(parser)
    parser.set_defaults(run_part=_serve)
    for what, line in (
        ("fail", "take the cable of a link of a fabric that is served out"),
        ("restore", "put it in again"),
        ("degrade", "let a port of a fabric that is served count errors, or its link have faults"),
    ):
        part = parts.add_parser(what, help=line)
        part.add_argument("link", metavar="NODE[PORT]", help="one end of the link")
        if what == "degrade":
            part.add_argument(
                "errors", metavar="COUNTER=NUMBER", nargs="*", help=f"of {', '.join(sorted(ERRORS))}"
            )
            part.add_argument(
                "--faults",
                type=_link_faults,
                metavar="SPEC",
                help="what packets of adapters suffer on the link from now on, in both directions, as in "
                "'loss=1%%,delay=100us'; none: nothing any more",
            )
        add_name(part)
        add_json_option(part)
        part.set_defaults(run_part=_change, do=what)


def add_name(parser: argparse.ArgumentParser) -> None:
    """``--name``."""
    parser.add_argument(
        "--name",
        default=os.environ.get(FABRIC_VARIABLE) or DEFAULT_NAME,
        help=f"of the fabric, IBSIM_SOCKNAME of its programs ({FABRIC_VARIABLE}, else {DEFAULT_NAME})",
    )


def _serve(args: argparse.Namespace) -> int:
    from softhca.cli.fabric_serving import serve

    return serve(args)


def _change(args: argparse.Namespace) -> int:
    from softhca.cli.fabric_serving import change

    return change(args)


def _key(text: str) -> int:
    """A 64-bit key that is none of 0, in any base."""
    try:
        key = int(text, 0)
    except ValueError:
        key = 0
    if not 0 < key < 1 << 64:
        raise argparse.ArgumentTypeError(f"{text!r} is no key: expected 1 to 2^64 - 1, as in 0x1234")
    return key


def _link_faults(text: str) -> str:
    """``text`` itself, when it can be read."""
    from softhca.links.faults import FaultsError
    from softhca.runtime.fabric_commands import link_faults

    try:
        link_faults(text)
    except FaultsError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text
