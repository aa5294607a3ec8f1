"""iperf3 and sockperf: what the kernel's TCP and UDP give programs in C."""

from __future__ import annotations

import json
import re

from bench.measure import Figure, free_port, run

LEAST_SOCKPERF_BYTES = 14
_PERCENTILE = re.compile(r"percentile (\d+\.\d+) = +([0-9.]+)")
_EDGE = re.compile(r"<(MIN|MAX)> observation = +([0-9.]+)")


def parse_iperf3(text: str) -> tuple[float, float]:
    """(bytes per second received, bytes received) of ``iperf3 -J``; ValueError when it tells neither."""
    document = json.loads(text)
    if "error" in document:
        raise ValueError(document["error"])
    received = document["end"]["sum_received"]
    return received["bits_per_second"] / 8, float(received["bytes"])


def iperf3(size_bytes: int, seconds: float) -> Figure:
    """TCP, writes of ``size_bytes``; iperf3 counts whole seconds, one at least."""
    port = free_port()
    done = run(
        ["iperf3", "-J", "-c", "127.0.0.1", "-p", str(port), "-l", str(size_bytes), "-t",
         str(max(1, round(seconds)))],
        server=["iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", str(port)], port=port,
    )  # fmt: skip
    bandwidth, moved_bytes = parse_iperf3(done.output)
    return Figure(bandwidth, bandwidth / size_bytes, cpu_s_per_gb=done.cpu_s * 1e9 / max(moved_bytes, 1))


def parse_sockperf(text: str) -> dict[str, float]:
    """``min p50 p99 max`` in microseconds of ``sockperf ping-pong``; ValueError when they are not there."""
    percentiles = {float(name): float(value) for name, value in _PERCENTILE.findall(text)}
    edges = {name: float(value) for name, value in _EDGE.findall(text)}
    if 50.0 not in percentiles or 99.0 not in percentiles or len(edges) != 2:
        raise ValueError("sockperf printed no percentiles")
    return {"min": edges["MIN"], "p50": percentiles[50.0], "p99": percentiles[99.0], "max": edges["MAX"]}


def sockperf(protocol: str, size_bytes: int, seconds: float) -> Figure:
    """Half a round trip over ``protocol`` tcp or udp, blocking, 14 bytes at least."""
    port = free_port()
    size = ["-m", str(max(LEAST_SOCKPERF_BYTES, size_bytes))]
    place = ["-i", "127.0.0.1", "-p", str(port)]
    kind = ["--tcp"] if protocol == "tcp" else []
    done = run(
        ["sockperf", "ping-pong", *kind, *place, *size, "-t", str(max(1, round(seconds)))],
        server=["sockperf", "server", *kind, *place], port=port,
    )  # fmt: skip
    return Figure(latency_us=parse_sockperf(done.output))
