"""``softhca pingpong``: the tests of ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong and ibv_srq_pingpong
(`softhca.cli.pingpong_srq`), and able to talk to them.

The client sends first; from then on each end sends when it has received, until both have sent and received so
often as asked.  An end sends from the buffer that it receives into: the server returns what the client sent.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from softhca.cli import output
from softhca.cli.control import ControlConnection
from softhca.cli.errors import CommandError, UsageError
from softhca.cli.numbers import number
from softhca.cli.pingpong_exchange import Destination, exchange_as_client, exchange_as_server
from softhca.cli.pingpong_srq import MOST_QUEUE_PAIRS, SharedPingPong, check, connect_all
from softhca.cli.roles import add_device_options, add_role_options, control_connection
from softhca.wire.grh import Grh

if TYPE_CHECKING:
    from softhca.cli.endpoint import Endpoint, Peer

MTUS_BYTES = (256, 512, 1024, 2048, 4096)
DEFAULT_QUEUE_PAIRS = 16
DEFAULT_SIZES_BYTES = {"rc": 4096, "uc": 4096, "ud": 1024}
FILL = 0x7B  # what the programs fill their buffers with
PAGE_BYTES = 4096

_SEND, _RECEIVE = 2, 1


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what ``pingpong`` takes to its ``parser``."""
    parser.add_argument("--service", choices=("rc", "uc", "ud"), default="rc", help="transport (default rc)")
    add_role_options(parser)
    add_exchange_options(parser)
    parser.add_argument("-c", "--chk", action="store_true", help="validate the received buffer")
    parser.add_argument(
        "--srq", action="store_true", help="ibv_srq_pingpong: queue pairs that share a receive queue"
    )
    parser.add_argument(
        "-q",
        "--num-qp",
        type=number(1, MOST_QUEUE_PAIRS),
        default=None,
        metavar="N",
        help="queue pairs of --srq (default 16)",
    )
    output.add_json_option(parser)


def add_exchange_options(parser: argparse.ArgumentParser) -> None:
    """The options of the ibv_*_pingpong programs that say what is exchanged, on which device."""
    parser.add_argument(
        "-s",
        "--size",
        type=number(1, 1 << 31),
        default=None,
        help="message size in bytes (default 4096; ud: 1024)",
    )
    parser.add_argument(
        "-m", "--mtu", type=int, choices=MTUS_BYTES, default=1024, help="path MTU in bytes (default 1024)"
    )
    parser.add_argument(
        "-r", "--rx-depth", type=number(1, 16384), default=500, help="receives posted at a time (default 500)"
    )
    parser.add_argument(
        "-n", "--iters", type=number(1, 1 << 40), default=1000, help="exchanges (default 1000)"
    )
    parser.add_argument(
        "-e", "--events", action="store_true", help="sleep on completion events (default: poll)"
    )
    add_device_options(parser)


def run(args: argparse.Namespace) -> int:
    """Run one end, or both."""
    if args.num_qp is not None and not args.srq:
        raise UsageError("-q goes with --srq")
    args.num_qp = args.num_qp or DEFAULT_QUEUE_PAIRS
    if args.srq:
        check(args)
    with control_connection(args, ["pingpong", *peer_arguments(args)]) as control:
        with open_endpoint(args) as endpoint:
            bouncer: PingPong | SharedPingPong
            if args.srq:
                bouncer = SharedPingPong(endpoint, args, message_bytes(args))
            else:
                bouncer = PingPong(endpoint, args)
            bouncer.post_receives()
            if args.srq:
                connect_all(endpoint, control, args)
            else:
                connect_ends(endpoint, control, args)
            with output.progress(f"pingpong {args.service}", args.iters, not args.listen) as advance:
                elapsed_s = bouncer.bounce(first=not args.listen, advance=advance)
            valid = bouncer.valid() if args.chk else None
            control.part()
        control.close()
    _print(args, elapsed_s, valid)
    return 0 if valid is not False else 1


def peer_arguments(args: argparse.Namespace) -> list[str]:
    """The arguments of the server that fits a client with ``args``."""
    arguments = [
        "--service",
        args.service,
        "-s",
        str(message_bytes(args)),
        "-m",
        str(args.mtu),
        "-r",
        str(args.rx_depth),
        "-n",
        str(args.iters),
        "-g",
        "0",
        "-l",
        str(args.sl),
        "--silence",
        str(args.silence),
    ]
    if getattr(args, "srq", False):
        arguments += ["--srq", "-q", str(args.num_qp)]
    return arguments + [
        flag for flag, wanted in (("-e", args.events), ("-c", getattr(args, "chk", False))) if wanted
    ]


def message_bytes(args: argparse.Namespace) -> int:
    """The message size that ``args`` ask for."""
    return int(args.size or DEFAULT_SIZES_BYTES[args.service])


def open_endpoint(args: argparse.Namespace) -> Endpoint:
    """The device and queue pair that ``args`` ask for."""
    from softhca.cli.endpoint import Endpoint, Needs

    size_bytes = message_bytes(args)
    grh_bytes = Grh.LENGTH_BYTES if args.service == "ud" else 0
    shared = getattr(args, "srq", False)
    endpoint = Endpoint(
        Needs(
            args.service,
            size_bytes + grh_bytes,
            args.num_qp if shared else 1,
            1 if shared else 0,
            shared_receives=shared,
            send_depth=1,
            receive_depth=args.rx_depth,
            device=args.ib_dev,
            port=args.ib_port,
            gid_index=args.gid_idx,
            service_level=args.sl,
            events=args.events,
            silence_s=args.silence,
        )
    )
    port_mtu_bytes = 128 << endpoint.active_mtu_code
    if args.service == "ud" and size_bytes > port_mtu_bytes:
        endpoint.close()
        raise UsageError(
            f"a datagram of {size_bytes} bytes is larger than the port's MTU of {port_mtu_bytes} bytes"
        )
    return endpoint


def connect_ends(endpoint: Endpoint, control: ControlConnection, args: argparse.Namespace) -> Peer:
    """Exchange addresses in the programs' way and take the queue pair to RTS."""
    from softhca.cli.endpoint import MTU_CODES, Peer

    link = endpoint.links[0]
    mine = Destination(endpoint.lid, link.qp.qp_num, link.psn, endpoint.gid)

    def make_ready(theirs: Destination) -> None:
        if not any(theirs.gid):
            raise CommandError("the peer named no GID (ibv_*_pingpong needs -g INDEX on Ethernet)")
        endpoint.connect(0, Peer(theirs.qpn, theirs.psn, theirs.gid, theirs.lid), MTU_CODES[args.mtu])

    if args.listen:
        theirs = exchange_as_server(control, mine, make_ready)
    else:
        theirs = exchange_as_client(control, mine)
        make_ready(theirs)
    return Peer(theirs.qpn, theirs.psn, theirs.gid, theirs.lid)


class PingPong:
    """Sends and receives one message at a time from and into one buffer."""

    def __init__(self, endpoint: Endpoint, args: argparse.Namespace) -> None:
        self.endpoint = endpoint
        self.iterations = args.iters
        self.depth = args.rx_depth
        self.size_bytes = message_bytes(args)
        self.grh_bytes = Grh.LENGTH_BYTES if args.service == "ud" else 0
        self.buffer = memoryview(endpoint.memory)[: self.size_bytes + self.grh_bytes]
        self.buffer[:] = bytes([FILL]) * len(self.buffer)
        self.wait = endpoint.wait_event if args.events else endpoint.wait
        self.posted = 0

    @property
    def message(self) -> memoryview:
        """The message in the buffer, without the GRH of a datagram."""
        return self.buffer[self.grh_bytes :]

    def post_receives(self) -> None:
        """Fill the receive queue up to its depth."""
        element = self.endpoint.sge(0, len(self.buffer))
        self.endpoint.links[0].qp.post_recv(self.endpoint.receive_chain(0, element, self.depth - self.posted))
        self.posted = self.depth

    def bounce(self, first: bool, advance: Any) -> float:
        """All exchanges; ``first``: this end begins.  Returns the seconds that they took."""
        from softhca.verbs import enums as e

        qp = self.endpoint.links[0].qp
        request = self.endpoint.send_request(
            0, e.IBV_WR_SEND, self.endpoint.sge(self.grh_bytes, self.size_bytes)
        )
        if first:
            self.message[::PAGE_BYTES] = bytes(len(range(0, self.size_bytes, PAGE_BYTES)))
        start_ns = time.perf_counter_ns()
        sent = received = 0
        if first:
            qp.post_send(request)
            sent = 1
        while received < self.iterations:
            self.wait(self.endpoint.receive_cq)
            received += 1
            self.posted -= 1
            if self.posted <= 1:
                self.post_receives()
            if sent:
                self.wait(self.endpoint.send_cq)
            if sent < self.iterations:
                qp.post_send(request)
                sent += 1
            if not received & 0xFF:
                advance(received)
        if not first:
            self.wait(self.endpoint.send_cq)
        return (time.perf_counter_ns() - start_ns) / 1e9

    def valid(self) -> bool:
        """Whether the buffer holds what the client put into it."""
        stamped = self.message[::PAGE_BYTES]
        return not any(stamped) and self.message[-1] == (FILL if (self.size_bytes - 1) % PAGE_BYTES else 0)


def _print(args: argparse.Namespace, elapsed_s: float, valid: bool | None) -> None:
    size_bytes = message_bytes(args)
    moved_bytes = 2 * size_bytes * args.iters
    result = {
        "service": args.service,
        "size_bytes": size_bytes,
        "iterations": args.iters,
        "bytes": moved_bytes,
        "elapsed_s": elapsed_s,
        "bandwidth_bytes_per_s": moved_bytes / elapsed_s,
        "exchange_us": elapsed_s * 1e6 / args.iters,
        "valid": valid,
    }
    if args.json:
        output.print_json(result)
        return
    rows: Sequence[tuple[str, str]] = [
        ("bytes", f"{moved_bytes}"),
        ("time", f"{elapsed_s:.3f} s"),
        ("bandwidth", f"{output.bytes_text(moved_bytes / elapsed_s)}/s"),
        ("an exchange", f"{elapsed_s * 1e6 / args.iters:.2f} µs"),
        ("data", {None: "not checked", True: "right", False: "WRONG"}[valid]),
    ]
    output.print_table(
        f"pingpong {args.service}, {size_bytes} bytes, {args.iters} exchanges", ("what", "value"), rows
    )


__all__ = [
    "PingPong",
    "add_exchange_options",
    "add_options",
    "connect_ends",
    "open_endpoint",
    "peer_arguments",
    "run",
]
