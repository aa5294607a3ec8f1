"""Runs of ``softhca perf``, between two processes on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping

from bench.measure import Absent, Figure, Run, run

TIMEOUT_S = 300.0
UNSUPPORTED = 2
START_ITERATIONS = 16


def perf(python, test, size_bytes, seconds, *options, **environment):
    """The result of one test, or None when it failed (stderr says why)."""
    command = command_of(python, test, size_bytes, "--seconds", str(seconds), *options)
    done = subprocess.run(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, timeout=TIMEOUT_S
    )
    if done.returncode:
        print(f"{' '.join(command[2:])}: status {done.returncode}", file=sys.stderr)
        return None
    return json.loads(done.stdout)


def command_of(python: str, test: str, size_bytes: int, *options: str) -> list[str]:
    """The command line of one test."""
    return [python, "-m", "softhca", "perf", test, "--size", str(size_bytes), "--json", *options]


def parse(text: str) -> Figure:
    """The figure of ``softhca perf --json``; ValueError or KeyError when it is none."""
    result = json.loads(text)
    latency = {name: float(value) for name, value in result["latency_us"].items()}
    return Figure(
        result["bandwidth_bytes_per_s"],
        result["message_rate_per_s"],
        latency,
        extra={"operations": float(result["iterations"]), "compiled": float(result["compiled"])},
    )


def _run(
    python: str, test: str, size_bytes: int, link: str, *options: str,
    environment: Mapping[str, str] | None = None,
) -> Run:  # fmt: skip
    """Absent when it fails; status 2 says that there is no such link here."""
    done = run(
        command_of(python, test, size_bytes, "--link", link, *options),
        environment=environment,
        statuses=(0, UNSUPPORTED),
        timeout_s=TIMEOUT_S,
    )
    if not done.output.strip():
        raise Absent(f"softhca has no --link {link} here")
    return done


def measured(
    python: str, test: str, size_bytes: int, seconds: float, link: str = "udp",
    options: tuple[str, ...] = (), environment: Mapping[str, str] | None = None,
) -> Figure:  # fmt: skip
    """One test for so many seconds."""
    words = ("--seconds", f"{seconds:g}", *options)
    done = _run(python, test, size_bytes, link, *words, environment=environment)
    figure = parse(done.output)
    if not figure.extra["operations"] or not figure.latency_us["p50"]:
        raise Absent(f"nothing was completed within {seconds:g} s")
    return figure


def with_processor_time(
    python: str, test: str, size_bytes: int, seconds: float, link: str = "udp"
) -> Figure:
    """The same, with the processor time of both processes a gigabyte; that of a start alone is taken off."""
    start = _run(python, test, size_bytes, link, "--iters", str(START_ITERATIONS))
    whole = _run(python, test, size_bytes, link, "--seconds", f"{seconds:g}")
    figure = parse(whole.output)
    moved = (figure.extra["operations"] - START_ITERATIONS) * size_bytes
    figure.cpu_s_per_gb = max(whole.cpu_s - start.cpu_s, 0.0) * 1e9 / max(moved, 1.0)
    return figure
