"""UCX and libfabric over TCP: what RDMA-like interfaces give programs in C without RDMA hardware."""

from __future__ import annotations

from bench.measure import Figure, Run, free_port, run

UCX_MIB = 1 << 20
UCX_MESSAGES_PER_S = 200_000
UCX_BYTES_PER_S = 2_000_000_000
LEAST_ITERATIONS = 50
FABRIC_TRIPS_PER_S = 20_000
COUNTS = {"k": 1e3, "m": 1e6, "g": 1e9}


def parse_ucx(text: str) -> tuple[float, float, float, float]:
    """(iterations, percentile asked for in µs, bytes per second, messages per second) of ``ucx_perftest -f``.

    The averages over the whole run; ValueError when there is no such line.
    """
    for line in reversed(text.splitlines()):
        words = line.replace("Final:", "").split()
        try:
            numbers = [float(word) for word in words]
        except ValueError:
            continue
        if len(numbers) == 8:
            return numbers[0], numbers[1], numbers[5] * UCX_MIB, numbers[7]
    raise ValueError("ucx_perftest printed no final line")


def ucx_iterations(size_bytes: int, seconds: float) -> int:
    """About as many as take so long."""
    most = min(UCX_MESSAGES_PER_S, UCX_BYTES_PER_S / size_bytes)
    return max(LEAST_ITERATIONS, int(seconds * most))


def _ucx(test: str, size_bytes: int, iterations: int, rank: float = 50.0) -> Run:
    port = str(free_port())
    return run(
        ["ucx_perftest", "127.0.0.1", "-p", port, "-t", test, "-s", str(size_bytes), "-n", str(iterations),
         "-w", str(max(10, iterations // 10)), "-R", str(rank), "-f"],
        server=["ucx_perftest", "-p", port], port=int(port),
        environment={"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo", "UCX_WARN_UNUSED_ENV_VARS": "n"},
    )  # fmt: skip


def ucx_bandwidth(test: str, size_bytes: int, seconds: float) -> Figure:
    """``tag_bw`` or ``ucp_put_bw``; processor time without that of a short run, the start."""
    few, many = LEAST_ITERATIONS, ucx_iterations(size_bytes, seconds)
    short, long = _ucx(test, size_bytes, few), _ucx(test, size_bytes, many)
    _, _, bandwidth, rate = parse_ucx(long.output)
    moved = 1.1 * (many - few) * size_bytes  # a tenth to warm up
    cpu_s_per_gb = (long.cpu_s - short.cpu_s) * 1e9 / moved if many > 4 * few else 0.0
    return Figure(bandwidth, rate, cpu_s_per_gb=max(cpu_s_per_gb, 0.0))


def ucx_latency(test: str, size_bytes: int, seconds: float) -> Figure:
    """``tag_lat`` or ``ucp_put_lat``, one way."""
    iterations = ucx_iterations(size_bytes, seconds / 2)
    found = {}
    for name, rank in (("p50", 50.0), ("p99", 99.0)):
        found[name] = parse_ucx(_ucx(test, size_bytes, iterations, rank).output)[1]
    return Figure(latency_us=found)


def parse_fi_pingpong(text: str) -> dict[str, float]:
    """The columns of the last line of ``fi_pingpong`` by their names; ValueError when there are none."""
    names: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["bytes"]:
            names = words
        elif names and len(words) == len(names):
            return {name: _number(word) for name, word in zip(names, words, strict=True)}
    raise ValueError("fi_pingpong printed no table")


def _number(word: str) -> float:
    word = word.removeprefix("=").removesuffix("s")
    scale = COUNTS.get(word[-1:].lower(), 1.0)
    return float(word[:-1] if scale > 1 else word) * scale


def fi_pingpong(size_bytes: int, seconds: float) -> Figure:
    """libfabric's ping-pong over its tcp provider, one way, the mean: it tells no percentiles."""
    port = str(free_port())
    options = ["-p", "tcp", "-e", "msg", "-S", str(size_bytes)]
    count = ["-I", str(max(100, int(seconds * FABRIC_TRIPS_PER_S)))]
    done = run(
        ["fi_pingpong", *options, *count, "-P", port, "127.0.0.1"],
        server=["fi_pingpong", *options, *count, "-B", port], port=int(port),
    )  # fmt: skip
    return Figure(latency_us={"mean": parse_fi_pingpong(done.output)["usec/xfer"]})
