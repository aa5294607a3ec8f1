"""From which length on a receive of a stream that maps pages costs less than one that copies.

``python3 benchmarks/mapping_crossover.py [--rounds N] [--sizes …] [--link shm|udp] [--json]``.  For each size
a copying and a mapping receive of the same message in turns, each from a process of its own, which has
written it before: so it is not in the caches of the processor that receives it because that one has sent it.
Counted is the processor time of the receiving thread: of the receive alone, which also gives back the pages
that the receive before it had mapped, and of the receive with a read of every byte (CRC-32), since what was
mapped is brought into the page table, and what was copied into the caches, when it is read.  Medians of all
rounds, and of the ratios within the pairs; what others do on the machine lies on both of a pair.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket as kernel
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from typing import Any

SIZES = (4096, 16384, 32768, 65536, 131072, 262144, 524288, 1 << 20, 2 << 20, 4 << 20)
POOL_BYTES = 8 << 20
KINDS = ("copy", "map")
LIMIT_S = 120
"""A sender ends after so long, whatever its receiver does."""


def settings() -> Any:
    """Sends, however short, begin at a page; one notification tells of all of a message."""
    from softhca import sockets

    return sockets.Settings(
        pool_bytes=POOL_BYTES, threshold_bytes=4095, chunk_bytes=POOL_BYTES // 2, in_memory=False
    )


def send(port: int, size: int) -> None:
    """A message for each byte that comes."""
    from softhca import sockets

    signal.alarm(LIMIT_S)
    data = os.urandom(size)
    with sockets.socket() as made:
        made.settings = settings()
        made.connect(("127.0.0.1", port))
        while made.recv(1):
            made.sendall(data)


class Pair:
    """A stream whose other end is a process that sends when it is told; what comes goes into ``target``."""

    def __init__(self, kind: str, size: int, link: str) -> None:
        from softhca import sockets

        with sockets.socket() as server:
            server.settings = settings()
            server.bind(("127.0.0.1", 0))
            server.listen()
            command = [sys.executable, __file__, "--send", str(server.getsockname()[1]), "--sizes", str(size)]
            number = 20 + KINDS.index(kind)
            variables = dict(os.environ, SOFTHCA_DEVICES=device(number, link))
            self.process = subprocess.Popen(command, env=variables)
            self.receiver: Any = server.accept()[0]
        assert self.receiver.stream is not None, "not by RDMA"
        self.kind = kind
        self.size = size
        self.target: Any = sockets.PageBuffer(size) if kind == "map" else bytearray(size)
        self.view = memoryview(self.target)

    def once(self, read: bool) -> float:
        """Receive a message, and ``read`` it; the processor time that this takes, in µs."""
        self.receiver.sendall(b"!")
        self.receiver.recv(1, kernel.MSG_PEEK)  # then it is there
        begun_ns = time.thread_time_ns()
        count = self.receiver.recv_into(self.target)
        if read:
            zlib.crc32(self.view[:count])
        taken_ns = time.thread_time_ns() - begun_ns
        assert count == self.size, f"{count} of {self.size} bytes"
        return taken_ns / 1000

    def close(self) -> None:
        """Close both, and see that it was received as it was to be."""
        receiver = self.receiver.stream.receiver
        copied, mapped = receiver.copied_bytes, receiver.mapped_bytes
        self.view.release()
        self.receiver.close()
        self.process.wait()
        assert (copied == 0) if self.kind == "map" else (mapped == 0), (self.kind, copied, mapped)


def device(number: int, link: str) -> str:
    """Of one process."""
    return f"softhca0=udp:127.0.{os.getpid() % 200}.{number}?same_host={int(link == 'shm')}"


def measure(size: int, rounds: int, link: str) -> dict[str, float]:
    """Medians for messages of ``size`` bytes, in µs; ``alone`` and ``whole``: mapping's by copying's."""
    pairs = {kind: Pair(kind, size, link) for kind in KINDS}
    found: dict[tuple[str, bool], list[float]] = {}
    try:
        for number in range(rounds + 3):
            for read in (False, True):
                for kind in KINDS if number & 1 else KINDS[::-1]:
                    taken = pairs[kind].once(read)
                    if number >= 3:  # the first ones touch new memory
                        found.setdefault((kind, read), []).append(taken)
    finally:
        for each in pairs.values():
            each.close()
    row: dict[str, float] = {"size": size}
    for read, name in ((False, "alone"), (True, "whole")):
        copied, mapped = found["copy", read], found["map", read]
        row[f"copy_{name}"], row[f"map_{name}"] = statistics.median(copied), statistics.median(mapped)
        ratios = (one / max(other, 0.001) for one, other in zip(mapped, copied, strict=True))
        row[name] = statistics.median(ratios)
    return row


def table(rows: list[dict[str, float]]) -> Iterator[str]:
    """As Markdown."""
    yield "| bytes | copying | mapping | × | copying, read | mapping, read | × |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for row in rows:
        alone = f"{row['copy_alone']:.1f} µs | {row['map_alone']:.1f} µs | {row['alone']:.2f}"
        whole = f"{row['copy_whole']:.1f} µs | {row['map_whole']:.1f} µs | {row['whole']:.2f}"
        yield f"| {row['size']:,} | {alone} | {whole} |"


def main() -> None:
    """Measure all sizes, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--link", choices=("shm", "udp"), default="shm")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--send", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.send:
        send(options.send, options.sizes[0])
        return
    os.environ["SOFTHCA_DEVICES"] = device(10, options.link)
    rows = [measure(size, options.rounds, options.link) for size in options.sizes]
    print(json.dumps(rows) if options.json else "\n".join(table(rows)))


if __name__ == "__main__":
    main()
