"""What is measured between two guests, and by which programs: each row of the table is a `Way`."""

from __future__ import annotations

import ipaddress
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from interop_guest import GuestError, Session
from interop_link import Link, Setting
from interop_peer import Peer
from interop_speed_world import SpeedWorld

MTU_BYTES = 4096
BATCH = 16
TOSSES = 400
PERFTEST_PORT = 18515
PATIENCE_S = 120.0
_LISTENING = f":{PERFTEST_PORT:04X} [0-9A-F:]* 0A"


@dataclass(frozen=True)
class Test:
    """A column: ``kind`` is ``write`` (bandwidth), ``messages`` (their rate) or ``latency`` (half of a round
    trip); perftest and `softhca perf` do ``iterations``, and all keep ``depth`` posted.
    """

    name: str
    kind: str
    size_bytes: int
    iterations: int
    depth: int = 64

    def figure(self, operations: float, elapsed_ns: float) -> float:
        """MB/s or messages a second."""
        rate = operations * 1e9 / elapsed_ns
        return rate * self.size_bytes / 1e6 if self.kind == "write" else rate

    @property
    def unit(self) -> str:
        """What the figures are in."""
        return {"write": "MB/s", "messages": "/s", "latency": "µs"}[self.kind]


TESTS = (
    Test("WRITE, 64 KiB", "write", 65_536, 2000),
    Test("WRITE, 1 MiB", "write", 1 << 20, 150, 16),
    Test("WRITE, 8 B, messages", "messages", 8, 20_000),
    Test("SEND, 8 B, latency p50", "latency", 8, TOSSES),
)


@dataclass(frozen=True)
class Way:
    """A row: a program on a stack.  ``base`` names the row that it is compared with."""

    name: str
    measure: Callable[[Test], float]
    base: str = ""


class PyverbsRuns:
    """`guest/speed.py` in both guests, on one stack, as long as the world lives."""

    def __init__(
        self, peers: Sequence[Peer], addresses: tuple[str, str], version: int, seconds: float
    ) -> None:
        self.seconds = seconds
        self.link = Link(peers[0], peers[1], addresses, Setting(version, MTU_BYTES))
        self.link.add("toss")
        for end in (self.link.requester, self.link.responder):
            end.memory("toss", 64)
            end.ask("receive", name="toss", wr_id=0, sg=[["toss", 0, 64]], count=BATCH)

    def measure(self, test: Test) -> float:
        """One figure."""
        requester, responder = self.link.requester, self.link.responder
        if test.kind == "latency":
            words = {"name": "toss", "sg": [["toss", 0, test.size_bytes]], "count": TOSSES}
            responder.peer.begin("answer", **words)
            samples_ns = requester.ask("latency", **words)["samples_ns"]
            responder.peer.end()
            return float(samples_ns[len(samples_ns) // 2]) / 1000
        requester.memory("from", test.size_bytes, seed=1)
        there = responder.memory("to", test.size_bytes)
        try:
            done = requester.ask(
                "rate", name="qp", opcode="write", sg=[["from", 0, test.size_bytes]], depth=test.depth,
                seconds=self.seconds, rkey=there["rkey"], address=there["address"],
            )  # fmt: skip
            responder.holds("to", 1, test.size_bytes)
        finally:
            requester.ask("forget", name="from")
            responder.ask("forget", name="to")
        return test.figure(done["operations"], done["elapsed_ns"])


def pairs(world: SpeedWorld, listens: Callable[[], Session], asks: Callable[[], Session]) -> str:
    """Start the server, wait until it listens, and run the client; what the client says."""
    server = listens()
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while not world.listening(_LISTENING):
            if time.monotonic() > deadline_s:
                raise GuestError(f"{server.name} in the guest does not listen")
        done = asks().wait(PATIENCE_S)
        if done.status:
            raise GuestError(f"status {done.status}: {done.err or done.out}")
        return done.out
    finally:
        server.kill()


def perftest(world: SpeedWorld, gid_indexes: Sequence[int], test: Test) -> float:
    """Debian's perftest, in C, on SoftRoCE."""
    latency = test.kind == "latency"
    words = [
        "ib_send_lat" if latency else "ib_write_bw", "-d", "rxe0", "-F", "-m", str(MTU_BYTES),
        "-s", str(test.size_bytes), "-n", str(test.iterations),
    ]  # fmt: skip
    words += [] if latency else ["-t", str(test.depth)]
    said = pairs(
        world,
        lambda: world.guests[1].start(*words, "-x", str(gid_indexes[1])),
        lambda: world.guests[0].start(*words, "-x", str(gid_indexes[0]), world.kernel_address(1)),
    )
    row = next(line.split() for line in said.splitlines() if line.split()[:1] == [str(test.size_bytes)])
    if latency:
        return float(row[4])  # t_typical, the median
    return float(row[3]) * 1.048576 if test.kind == "write" else float(row[4]) * 1e6


def our_perf(world: SpeedWorld, test: Test) -> float:
    """``softhca perf`` on softhca."""
    name = "send-lat" if test.kind == "latency" else "write-bw"
    words = ["python3", "-m", "softhca", "perf", name, "--size", str(test.size_bytes), "--json",
             "--iters", str(test.iterations)]  # fmt: skip
    if test.kind != "latency":
        words += ["--tx-depth", str(test.depth), "--post-list", str(test.depth // 4)]
    said = pairs(
        world,
        lambda: world.start_ours(1, [*words, "--listen"], 1),
        lambda: world.start_ours(0, [*words, world.our_address(1, 1)], 1),
    )
    told = json.loads(said)
    if not told["compiled"]:
        raise GuestError("softhca in the guest is not compiled")
    if test.kind == "latency":
        return float(told["latency_us"]["p50"])
    return float(told["bandwidth_bytes_per_s"]) / 1e6 if test.kind == "write" else told["message_rate_per_s"]


def ways(world: SpeedWorld, seconds: float) -> list[Way]:
    """All rows; their programs run in the guests from now on."""
    kernel = world.kernel_peers()
    addresses = (world.kernel_address(0), world.kernel_address(1))
    theirs = PyverbsRuns(kernel, addresses, world.version, seconds)
    ours = PyverbsRuns(
        world.our_peers(), (world.our_address(0), world.our_address(1)), world.version, seconds
    )
    rows = [Way("pyverbs program, SoftRoCE", theirs.measure)]
    rows.append(Way("pyverbs program, softhca", ours.measure, rows[0].name))
    indexes = [_gid_index(peer, address) for peer, address in zip(kernel, addresses, strict=True)]
    in_c = Way("perftest (C), SoftRoCE", lambda test: perftest(world, indexes, test))
    ours_too = Way("softhca perf, softhca", lambda test: our_perf(world, test), in_c.name)
    return [*rows, in_c, ours_too]


def _gid_index(peer: Peer, address: str) -> int:
    text = address if ":" in address else f"::ffff:{address}"
    return peer.gids[str(ipaddress.IPv6Address(text))]
