"""RDMA WRITE and READ by size, with packets of one length and as FIRST, MIDDLE, LAST, beside SEND.

    python benchmarks/uniform_bursts.py [--rounds 5] [--seconds 0.3] [--sizes 8192,16384,65536,262144,1048576]

Two processes over UDP on the loopback interface.  Each round measures everything once; what is printed are
medians of the bandwidths and of the ratios within the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
from collections import defaultdict

SIZES = "8192,16384,32768,65536,131072,262144,1048576"


def measure(verb: str, size: int, uniform: bool, seconds: float) -> float:
    """Bandwidth in GB/s.  Raises CalledProcessError when an end fails."""
    options = ["--size", str(size), "--post-list", "16", "--seconds", str(seconds), "--json"]
    command = [sys.executable, "-m", "softhca", "perf", f"{verb}-bw", *options]

    def devices(place: str) -> dict[str, str]:
        text = f"softhca0=udp:{place}?same_host=0&uniform={int(uniform)}"
        return {**os.environ, "SOFTHCA_DEVICES": text}

    with socket.create_server(("127.0.0.1", 0)) as listener:
        number, port = listener.fileno(), str(listener.getsockname()[1])
        server = subprocess.Popen([*command, "--listen", "--listen-fd", str(number)], pass_fds=[number],
                                  env=devices("127.0.0.40"), stdout=subprocess.DEVNULL)
    try:
        client = subprocess.run([*command, "-p", port, "127.0.0.1"], env=devices("127.0.0.41"),
                                stdout=subprocess.PIPE, check=True, timeout=120)
        server.wait(60)
    finally:
        server.kill()
        server.wait()
    return json.loads(client.stdout)["bandwidth_bytes_per_s"] / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--sizes", default=SIZES)
    args = parser.parse_args()
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    sizes = [int(word) for word in args.sizes.split(",")]
    for _ in range(args.rounds):
        for size in sizes:
            for verb, uniform in (("send", True), ("write", False), ("write", True), ("read", False),
                                  ("read", True)):
                name = verb if verb == "send" else f"{verb} {'uniform' if uniform else 'usual'}"
                found[name, size].append(measure(verb, size, uniform, args.seconds))
    print("| bytes | SEND | WRITE | uniform WRITE | READ | uniform READ | "
          "uniform WRITE / SEND | uniform READ / SEND |")
    print("| --- |" + " --- |" * 7)
    for size in sizes:
        columns = [found[name, size] for name in
                   ("send", "write usual", "write uniform", "read usual", "read uniform")]
        cells = [f"{statistics.median(column):.2f} GB/s" for column in columns]
        ratios = [statistics.median(a / b for a, b in zip(column, columns[0], strict=True))
                  for column in (columns[2], columns[4])]
        print(f"| {size:,} | " + " | ".join(cells) + "".join(f" | {ratio:.2f}" for ratio in ratios) + " |")


if __name__ == "__main__":
    main()
