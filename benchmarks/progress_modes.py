"""How a passive target is served while its application polls, waits, computes in Python or sleeps.

``python3 benchmarks/progress_modes.py [--seconds T]`` prints a markdown table: RDMA WRITE of 1 MiB
(bandwidth) and RDMA READ of 8 bytes (latency), with the adapter in the application's process and in a process
of its own.
"""

import argparse
import sys

from bench.softhca_perf import perf
from bench.tables import gigabytes, latencies, markdown

TARGETS = {
    "poll": "drives its adapter",
    "idle": "waits in a system call",
    "busy": "computes in Python",
    "asleep": "sleeps by the clock",
}
ADAPTERS = ("embedded", "process")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="a test's length (default %(default)s)")
    args = parser.parse_args()
    rows = []
    for adapter in ADAPTERS:
        for target, words in TARGETS.items():
            options = {"SOFTHCA_ADAPTER": adapter}
            write = perf(sys.executable, "write-bw", 1 << 20, args.seconds, "--target", target, **options)
            read = perf(sys.executable, "read-lat", 8, args.seconds, "--target", target, **options)
            rows.append([adapter, f"{target}: {words}", gigabytes(write), latencies(read)])
            print(f"{adapter}, {target}: done", file=sys.stderr)
    print(markdown(["adapter", "target's application", "WRITE 1 MiB", "READ 8 B, p50 / p99"], rows))


if __name__ == "__main__":
    main()
