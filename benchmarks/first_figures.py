"""Bandwidth, message rate and latency of RDMA between two processes, beside plain TCP in the same run.

``python3 benchmarks/first_figures.py [--interpreted PYTHON] [--seconds T]`` prints a markdown table.  This
interpreter's softhca gives the first column; ``--interpreted`` names a Python whose softhca has no compiled
modules.
"""

import argparse
import platform
import sys

import tcp_baseline
from perf_runs import gigabytes, latencies, markdown, messages, perf

ROWS = (
    ("RDMA WRITE, 64 KiB", "write-bw", "bw", 65536, gigabytes),
    ("RDMA WRITE, 1 MiB", "write-bw", "bw", 1 << 20, gigabytes),
    ("SEND, 64 KiB", "send-bw", "bw", 65536, gigabytes),
    ("RDMA READ, 1 MiB", "read-bw", "bw", 1 << 20, gigabytes),
    ("RDMA WRITE, 8 B, messages", "write-bw", "bw", 8, messages),
    ("RDMA WRITE, 8 B, latency p50 / p99", "write-lat", "lat", 8, latencies),
    ("SEND, 8 B, latency p50 / p99", "send-lat", "lat", 8, latencies),
)


def mode(result):
    """Which modules gave a result."""
    return "compiled" if result and result["compiled"] else "interpreted"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--interpreted", metavar="PYTHON", help="a Python whose softhca is not compiled")
    parser.add_argument("--seconds", type=float, default=2.0, help="a test's length (default %(default)s)")
    args = parser.parse_args()
    pythons = [sys.executable] + ([args.interpreted] if args.interpreted else [])
    rows, modes = [], {}
    for name, test, kind, size_bytes, text in ROWS:
        results = [perf(python, test, size_bytes, args.seconds) for python in pythons]
        modes.update({index: mode(result) for index, result in enumerate(results) if result})
        tcp = tcp_baseline.measure(kind, size_bytes, args.seconds)
        rows.append([name, *(text(result) for result in results), text(tcp)])
        print(f"{name}: done", file=sys.stderr)
    columns = ["test", *(modes.get(index, "failed") for index in range(len(pythons))), "TCP, plain Python"]
    print(markdown(columns, rows))
    print(f"\nPython {platform.python_version()}, {platform.machine()}, {args.seconds:g} s a test")


if __name__ == "__main__":
    main()
