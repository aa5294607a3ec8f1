"""``softhca ping``: is the other adapter there, and do bytes come back whole?

The client sends a pattern that differs in every message, the server returns it, the client compares each
byte.  The queue pairs find each other as those of ``ibv_rc_pingpong`` do, which (with ``-g``) can be the
server as well.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from typing import Any

from softhca.cli import output, pingpong
from softhca.cli.errors import CommandError
from softhca.cli.figures import latency_us
from softhca.cli.roles import add_role_options, control_connection

DEFAULT_COUNT = 1000


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what ``ping`` takes to its ``parser``."""
    add_role_options(parser)
    pingpong.add_exchange_options(parser)
    parser.set_defaults(service="rc")
    output.add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Answer one client, or check a server."""
    peer = [argument for argument in pingpong.peer_arguments(args) if argument not in ("--service", "rc")]
    with control_connection(args, ["ping", *peer]) as control:
        with pingpong.open_endpoint(args) as endpoint:
            if args.listen:
                bouncer = pingpong.PingPong(endpoint, args)
                bouncer.post_receives()
                pingpong.connect_ends(endpoint, control, args)
                bouncer.bounce(first=False, advance=int)
                control.part()
                return 0
            pinger = Pinger(endpoint, args)
            pinger.post_receives(args.rx_depth)
            theirs = pingpong.connect_ends(endpoint, control, args)
            with output.progress("ping", args.iters) as advance:
                samples_ns = pinger.ping(advance)
            control.part()
        control.close()
    _print(args, theirs.qpn, samples_ns)
    return 0


class Pinger:
    """The client: sends from one area, receives into another, compares."""

    def __init__(self, endpoint: Any, args: argparse.Namespace) -> None:
        self.endpoint = endpoint
        self.iterations = args.iters
        self.depth = args.rx_depth
        self.size_bytes = pingpong.message_bytes(args)
        memory = memoryview(endpoint.memory)
        self.sent = memory[endpoint.send_area() :][: self.size_bytes]
        self.returned = memory[endpoint.receive_area() :][: self.size_bytes]
        self.wait = endpoint.wait_event if args.events else endpoint.wait

    def post_receives(self, count: int) -> None:
        """Post ``count`` receives into the second area."""
        element = self.endpoint.sge(self.endpoint.receive_area(), self.size_bytes)
        self.endpoint.links[0].qp.post_recv(self.endpoint.receive_chain(0, element, count))

    def ping(self, advance: Any) -> list[int]:
        """All messages; returns the nanoseconds of each.  Raises :class:`CommandError` when data comes back
        wrong.
        """
        from softhca.verbs import enums as e

        qp = self.endpoint.links[0].qp
        request = self.endpoint.send_request(0, e.IBV_WR_SEND, self.endpoint.sge(0, self.size_bytes))
        samples_ns = []
        free = self.depth
        for index in range(self.iterations):
            self.sent[:] = pattern(index, self.size_bytes)
            start_ns = time.perf_counter_ns()
            qp.post_send(request)
            self.wait(self.endpoint.receive_cq)
            samples_ns.append(time.perf_counter_ns() - start_ns)
            self.wait(self.endpoint.send_cq)
            if self.returned != self.sent:
                raise CommandError(f"message {index} came back different, first at byte {self._difference()}")
            free -= 1
            if free <= 1:
                self.post_receives(self.depth - free)
                free = self.depth
            advance(index + 1)
        return samples_ns

    def _difference(self) -> int:
        pairs = zip(self.sent, self.returned, strict=True)
        return next(at for at, (ours, theirs) in enumerate(pairs) if ours != theirs)


def pattern(index: int, length_bytes: int) -> bytes:
    """``length_bytes`` bytes that differ from those of every other ``index``, also page by page."""
    return hashlib.shake_128(index.to_bytes(8, "big")).digest(length_bytes)


def _print(args: argparse.Namespace, qpn: int, samples_ns: list[int]) -> None:
    latency = latency_us(samples_ns)
    size_bytes = pingpong.message_bytes(args)
    if args.json:
        output.print_json(
            {
                "host": args.host or "this machine",
                "qpn": qpn,
                "size_bytes": size_bytes,
                "iterations": args.iters,
                "verified": len(samples_ns),
                "latency_us": latency,
            }
        )
        return
    rows = [("verified", f"{len(samples_ns)} of {args.iters}")]
    rows += [(f"round trip {name}", f"{value:.1f} µs") for name, value in latency.items()]
    output.print_table(f"ping {args.host or 'this machine'}, {size_bytes} bytes", ("what", "value"), rows)
