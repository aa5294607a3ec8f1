"""Runs of ``softhca perf`` for the benchmarks, and how their numbers are written."""

import json
import os
import subprocess
import sys

TIMEOUT_S = 300


def perf(python, test, size_bytes, seconds, *options, **environment):
    """The result of one test between two processes on this machine, or None when it failed (stderr says
    why).
    """
    command = [
        python,
        "-m",
        "softhca",
        "perf",
        test,
        "--size",
        str(size_bytes),
        "--seconds",
        str(seconds),
        "--json",
    ]
    done = subprocess.run(
        [*command, *options], env={**os.environ, **environment}, stdout=subprocess.PIPE, timeout=TIMEOUT_S
    )
    if done.returncode:
        print(f"{' '.join(command[2:])} {' '.join(options)}: status {done.returncode}", file=sys.stderr)
        return None
    return json.loads(done.stdout)


def gigabytes(result):
    """Bandwidth as text."""
    return f"{result['bandwidth_bytes_per_s'] / 1e9:.2f} GB/s" if result else "failed"


def messages(result):
    """Message rate as text."""
    return f"{result['message_rate_per_s'] / 1e3:,.0f} k/s" if result else "failed"


def latencies(result):
    """p50 / p99 as text."""
    return f"{result['latency_us']['p50']:.1f} / {result['latency_us']['p99']:.1f} µs" if result else "failed"


def markdown(columns, rows):
    """A table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
