"""Which end of a test this process is: client of HOST, server, or client of a second process of its own."""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
from collections.abc import Iterator, Sequence

from softhca.cli.control import DEFAULT_PORT, ControlConnection, accept, connect, listen
from softhca.cli.errors import UsageError
from softhca.cli.fault_reports import add_faults_option, faults_acting
from softhca.cli.numbers import number, seconds
from softhca.cli.pair import second_process
from softhca.runtime.specification import DeviceSpecificationError, with_same_host

SAME_HOST = {"udp": False, "shm": True}
"""What ``--link`` says of a device's ``same_host``; a command that has no such option leaves it alone."""


def add_role_options(parser: argparse.ArgumentParser) -> None:
    """HOST, ``--listen`` and the control connection's port."""
    parser.add_argument("host", nargs="?", metavar="HOST", help="be the client of the server on HOST")
    parser.add_argument(
        "--listen",
        action="store_true",
        help="be the server, for one client (with neither HOST nor this, both ends run here)",
    )
    parser.add_argument(
        "-p",
        "--port",
        type=number(1, 65535),
        default=DEFAULT_PORT,
        help="TCP port of the control connection (default %(default)s)",
    )
    parser.add_argument("--listen-fd", type=int, default=None, help=argparse.SUPPRESS)


def add_device_options(parser: argparse.ArgumentParser) -> None:
    """Which device, port and GID, as the pingpong programs spell it."""
    parser.add_argument(
        "-d", "--ib-dev", default="", metavar="DEVICE", help="device (default: the first one)"
    )
    parser.add_argument(
        "-i", "--ib-port", type=number(1, 255), default=1, help="port of the device (default 1)"
    )
    parser.add_argument("-g", "--gid-idx", type=number(0, 255), default=0, help="GID index (default 0)")
    parser.add_argument("-l", "--sl", type=number(0, 15), default=0, help="service level (default 0)")
    parser.add_argument(
        "--silence",
        type=seconds,
        default=30.0,
        metavar="SECONDS",
        help="give up when nothing completes for so long (default 30)",
    )
    add_faults_option(parser)


@contextlib.contextmanager
def control_connection(
    args: argparse.Namespace, peer_arguments: Sequence[str]
) -> Iterator[ControlConnection]:
    """The control connection of the role that ``args`` ask for; ``peer_arguments`` start a second process.

    While it is open, the faults that ``args`` ask for act on this process and on the second one.
    """
    with faults_acting(args.command, args.faults), _connection(args, peer_arguments) as control:
        yield control


@contextlib.contextmanager
def _connection(args: argparse.Namespace, peer_arguments: Sequence[str]) -> Iterator[ControlConnection]:
    same_host = SAME_HOST.get(getattr(args, "link", ""))
    if same_host is not None:
        # a value that is wrong is told of where the device is opened
        with contextlib.suppress(DeviceSpecificationError):
            os.environ["SOFTHCA_DEVICES"] = with_same_host(os.environ.get("SOFTHCA_DEVICES", ""), same_host)
    if args.listen:
        if args.host:
            raise UsageError("HOST and --listen exclude each other")
        listener = listen(args.port) if args.listen_fd is None else socket.socket(fileno=args.listen_fd)
        with accept(listener) as control:
            yield control
    elif args.host:
        with connect(args.host, args.port) as control:
            yield control
    elif "=fabric:" in os.environ.get("SOFTHCA_DEVICES", ""):
        raise UsageError("a host of a fabric is one end: --listen in one copy, its address in another")
    else:
        with second_process(peer_arguments, same_host) as control:
            yield control
