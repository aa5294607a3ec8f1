"""``softhca pingpong --srq``: the test of ibv_srq_pingpong, queue pairs with a shared receive queue.

The client sends on every queue pair; from then on a queue pair sends again when its message has left and one
has come, until so many messages have left and come over all of them as asked.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from softhca.cli.control import ControlConnection
from softhca.cli.errors import CommandError, UsageError
from softhca.cli.pingpong_exchange import (
    NO_DESTINATION,
    SHARED_ENTRIES,
    Destination,
    exchange_all_as_client,
    exchange_all_as_server,
)

if TYPE_CHECKING:
    from softhca.cli.endpoint import Endpoint

MOST_QUEUE_PAIRS = SHARED_ENTRIES - 1
FILL = 0x7B
PAGE_BYTES = 4096

_POLLS_A_CLOCK = 256
_SENT, _RECEIVED = 1, 2


def check(args: argparse.Namespace) -> None:
    """Raises :class:`UsageError` where ``args`` do not go with a shared receive queue."""
    if args.service != "rc":
        raise UsageError("--srq goes with --service rc")
    if args.events:
        raise UsageError("--srq polls: -e does not go with it")
    if args.num_qp > args.rx_depth:
        raise UsageError(f"{args.num_qp} queue pairs need as many receives at least (-r)")


def connect_all(endpoint: Endpoint, control: ControlConnection, args: argparse.Namespace) -> None:
    """Exchange addresses in the program's way and take every queue pair to RTS."""
    from softhca.cli.endpoint import MTU_CODES, Peer

    mine = [Destination(endpoint.lid, link.qp.qp_num, link.psn, endpoint.gid) for link in endpoint.links]

    def make_ready(theirs: list[Destination]) -> None:
        used = [each for each in theirs if each.qpn]
        if len(used) != len(mine) or used != theirs[: len(mine)]:
            raise CommandError(f"the peer has {len(used)} queue pairs, this end {len(mine)} (-q)")
        for index, each in enumerate(used):
            if not any(each.gid):
                raise CommandError("the peer named no GID (ibv_srq_pingpong needs -g INDEX on Ethernet)")
            endpoint.connect(index, Peer(each.qpn, each.psn, each.gid, each.lid), MTU_CODES[args.mtu])

    padded = mine + [NO_DESTINATION] * (SHARED_ENTRIES - len(mine))
    if args.listen:
        exchange_all_as_server(control, padded, make_ready)
    else:
        make_ready(exchange_all_as_client(control, padded))


class SharedPingPong:
    """Sends and receives one message at a time on each queue pair, from and into one buffer."""

    def __init__(self, endpoint: Endpoint, args: argparse.Namespace, size_bytes: int) -> None:
        self.endpoint = endpoint
        self.iterations = args.iters
        self.depth = args.rx_depth
        self.size_bytes = size_bytes
        self.buffer = memoryview(endpoint.memory)[:size_bytes]
        self.buffer[:] = bytes([FILL]) * size_bytes
        self.posted = 0
        self.sent = self.received = 0
        self.numbers = {link.qp.qp_num: index for index, link in enumerate(endpoint.links)}
        self.due = [_RECEIVED] * len(endpoint.links)
        self.requests: list[Any] = []

    def post_receives(self) -> None:
        """Fill the shared receive queue up to its depth."""
        element = self.endpoint.sge(0, self.size_bytes)
        self.endpoint.srq.post_recv(self.endpoint.receive_chain(0, element, self.depth - self.posted))
        self.posted = self.depth

    def bounce(self, first: bool, advance: Any) -> float:
        """All exchanges; ``first``: this end begins.  Returns the seconds that they took.

        Raises :class:`CommandError` for a completion in error, and when nothing completes for the end's
        ``silence_s``.
        """
        from softhca.verbs import enums as e

        endpoint = self.endpoint
        element = endpoint.sge(0, self.size_bytes)
        self.requests = [
            endpoint.send_request(index, e.IBV_WR_SEND, element) for index in range(len(endpoint.links))
        ]
        start_ns = time.perf_counter_ns()
        if first:
            self.buffer[::PAGE_BYTES] = bytes(len(range(0, self.size_bytes, PAGE_BYTES)))
            for index in range(len(self.requests)):
                self._send(index)
        idle, deadline_s = 0, 0.0
        most = len(self.requests)
        while self.sent < self.iterations or self.received < self.iterations:
            received = endpoint.poll(endpoint.receive_cq, most)
            sent = endpoint.poll(endpoint.send_cq, most)
            for completions, what in ((received, _RECEIVED), (sent, _SENT)):
                for completion in completions:
                    self._note(self.numbers[completion.qp_num], what)
            if received or sent:
                idle, deadline_s = 0, 0.0
                advance(self.received)
                continue
            idle += 1
            if idle % _POLLS_A_CLOCK == 0:
                deadline_s = deadline_s or time.monotonic() + endpoint.needs.silence_s
                endpoint.check_silence(deadline_s)
        return (time.perf_counter_ns() - start_ns) / 1e9

    def _note(self, index: int, what: int) -> None:
        """A message of queue pair ``index`` has left or come."""
        if what == _SENT:
            self.sent += 1
        else:
            self.received += 1
            self.posted -= 1
            if self.posted <= len(self.requests):
                self.post_receives()
        self.due[index] &= ~what
        if not self.due[index] and self.sent < self.iterations:
            self._send(index)

    def _send(self, index: int) -> None:
        self.endpoint.links[index].qp.post_send(self.requests[index])
        self.due[index] = _SENT | _RECEIVED

    def valid(self) -> bool:
        """Whether the buffer holds what the client stamps on every page of it; the rest is its own affair."""
        return not any(self.buffer[::PAGE_BYTES])
