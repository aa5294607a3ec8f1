"""What a performance test is: its verb, sizes and queue depths, and what goes together."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from softhca.cli.errors import UsageError
from softhca.wire.grh import Grh

VERBS = ("write", "read", "send", "atomic", "mailbox")
KINDS = ("bw", "lat")
TESTS = tuple(f"{verb}-{kind}" for verb in VERBS for kind in KINDS)
SERVICES = {
    "write": ("rc", "uc"), "read": ("rc",), "send": ("rc", "uc", "ud"), "atomic": ("rc",), "mailbox": ("rc",)
}  # fmt: skip
DEFAULT_BANDWIDTH_BYTES = 65_536
DEFAULT_LATENCY_BYTES = 2
ATOMIC_BYTES = 8
MOST_MAILBOX_BYTES = (1 << 26) - 128
"""What fits the largest slot with its header and any hash."""
MAILBOX_BYTES = 64
DEFAULT_ITERATIONS = 1000
WRITE_BANDWIDTH_ITERATIONS = 5000
TRANSMIT_DEPTH = 128
RECEIVE_DEPTH = 512
BATCH = 16
LISTS = 4
SIGNAL_EVERY = 32
READS = 16
MOST_QUEUE_PAIRS = 16_384
MOST_POSTED = 16_384
MOST_AREAS = 64
DEFAULT_TIMEOUT_CODE = 14
MAX_INLINE_BYTES = 64
MOST_MTU_BYTES = 4096
SAME_OPTIONS = "both ends must be given the same of -a, -b, --reversed, -n and -q"
LARGEST_SIZE_LOG = 23
"""``--all`` runs through the powers of two from 2 to 8 MiB, datagrams up to the path MTU."""


@dataclass(frozen=True)
class Plan:
    """One test.  ``iterations`` a queue pair, or 0: as many as fit into ``seconds``."""

    verb: str
    kind: str
    service: str
    size_bytes: int
    iterations: int
    seconds: float
    queue_pairs: int
    target: str = "poll"
    algorithm: str = "xxh3-128"
    tx_depth: int = 0
    post_list: int = BATCH
    both: bool = False
    reversed: bool = False
    all_sizes: bool = False

    @property
    def test(self) -> str:
        """The name of the test: ``write-bw`` …"""
        return f"{self.verb}-{self.kind}"

    def sizes_bytes(self, mtu_bytes: int) -> list[int]:
        """The message sizes in their order, on a path of ``mtu_bytes``."""
        if not self.all_sizes:
            return [self.size_bytes]
        most = mtu_bytes if self.service == "ud" else 1 << LARGEST_SIZE_LOG
        return [1 << power for power in range(1, LARGEST_SIZE_LOG + 1) if 1 << power <= most]

    @property
    def landing_bytes(self) -> int:
        """What a receive must have room for: a datagram comes with a GRH (or room for one) in front."""
        return self.size_bytes + (Grh.LENGTH_BYTES if self.service == "ud" else 0)

    @property
    def depth(self) -> int:
        """How many work requests a queue pair keeps posted; with many queue pairs fewer, a batch at least."""
        if self.kind != "bw":
            return SIGNAL_EVERY
        if self.tx_depth:
            return self.tx_depth
        batch = self.post_list
        wanted = max(TRANSMIT_DEPTH, LISTS * batch)
        return max(batch, min(wanted, MOST_POSTED // self.queue_pairs) // batch * batch)

    @property
    def receive_depth(self) -> int:
        """How many receives a queue pair keeps posted, where it receives: four times what is sent."""
        if self.kind != "bw":
            return RECEIVE_DEPTH
        return -(-RECEIVE_DEPTH // TRANSMIT_DEPTH * self.depth // BATCH) * BATCH

    @property
    def areas(self) -> int:
        """How many pieces of memory an end has for each direction; many queue pairs share them."""
        return min(self.queue_pairs, MOST_AREAS)

    @property
    def batch(self) -> int:
        """How many work requests are posted, and completed, together."""
        return min(self.post_list, self.depth) if self.kind == "bw" else 1


def plan_of(args: argparse.Namespace) -> Plan:
    """The test that ``args`` ask for.  Raises :class:`UsageError` when they do not go together."""
    verb, kind = args.test.split("-")
    service = args.qp_type.lower()
    if service not in SERVICES[verb]:
        allowed = ", ".join(name.upper() for name in SERVICES[verb])
        raise UsageError(f"{args.test} runs on {allowed} only, not on {args.qp_type}")
    if args.link == "shm" and (service != "rc" or verb == "mailbox"):
        raise UsageError("--link shm carries the verbs of RC queue pairs")
    if args.link == "shm" and getattr(args, "faults", None):
        raise UsageError("--faults act on packets: they go with --link udp, not shm")
    if (kind == "lat" or verb == "mailbox") and args.qps != 1:
        raise UsageError(f"{args.test} uses one queue pair")
    if verb == "atomic" and args.size not in (None, ATOMIC_BYTES):
        raise UsageError("an atomic operation moves 8 bytes")
    _check_ways(args, verb, kind)
    default = {"bw": DEFAULT_BANDWIDTH_BYTES, "lat": DEFAULT_LATENCY_BYTES}[kind]
    if service == "ud":
        default = min(default, 1024)
    if verb == "mailbox":
        default = MAILBOX_BYTES
        if (args.size or 0) > MOST_MAILBOX_BYTES:
            raise UsageError(f"a mailbox takes messages of up to {MOST_MAILBOX_BYTES} bytes")
    size_bytes = ATOMIC_BYTES if verb == "atomic" else args.size or default
    if args.all:
        size_bytes = MOST_MTU_BYTES if service == "ud" else 1 << LARGEST_SIZE_LOG
    iterations = WRITE_BANDWIDTH_ITERATIONS if args.test == "write-bw" else DEFAULT_ITERATIONS
    return Plan(
        verb,
        kind,
        service,
        size_bytes,
        0 if args.seconds else args.iters or iterations,
        args.seconds or 0.0,
        args.qps,
        args.target,
        args.hash,
        args.tx_depth,
        args.post_list,
        args.bidirectional,
        args.reversed,
        args.all,
    )


def _check_ways(args: argparse.Namespace, verb: str, kind: str) -> None:
    """Raises :class:`UsageError` where the test cannot go both ways, the other way, or through all sizes."""
    for given, option in ((args.bidirectional, "-b"), (args.reversed, "--reversed")):
        if given and (kind != "bw" or verb == "mailbox"):
            raise UsageError(f"{option} goes with write-, read-, send- and atomic-bw, not with {args.test}")
    if args.bidirectional and args.reversed:
        raise UsageError("-b and --reversed exclude each other: both directions are the same reversed")
    if args.all and verb in ("atomic", "mailbox"):
        raise UsageError(f"{args.test} has one message size: -a does not go with it")
    if args.all and args.size is not None:
        raise UsageError("-a and -s exclude each other")
    if args.all and args.seconds:
        raise UsageError("-a goes with -n, not with --seconds")
