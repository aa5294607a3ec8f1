"""Programs in C on softhca beside others, one run: perftest between two programs, UCX over TCP, softhca's own
perf, memcpy, what posting and polling cost the program, and an adapter process with many idle programs.

``python3 benchmarks/native.py [--rounds N] [--seconds T]`` prints markdown: medians of rounds, in which all
are measured in turn, and medians of the rounds' ratios, with what is wanted of them.  Needs Debian's perftest
and ucx-utils, and a C compiler with libibverbs-dev; what is absent is a line that says so.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import fabrics, softhca_perf
from bench.measure import RUN_TIMEOUT_S, Absent, free_port, listens
from bench.memory import memcpy
from bench.tables import markdown

MIB = 1 << 20
IDLE_PROGRAMS = 64
IDLE_S = 5.0
TICKS = os.sysconf("SC_CLK_TCK")
SOURCE = Path(__file__).with_name("native_post.c")

RATIOS = (
    ("write, two adapter processes", "perf, embedded, UDP", 0.7, True),
    ("write, two adapter processes", "UCX put over TCP", 2.0, True),
    ("write, one adapter process", "memcpy", 0.6, True),
    ("write, one adapter process", "UCX put over TCP", 2.0, True),
    ("send latency, one adapter process", "perf latency, embedded", 3.0, False),
)
"""One figure, another, what the first shall be of the second, and whether at least (else at most)."""


def parse_bandwidth(text: str) -> float:
    """Bytes a second on average, of ``ib_write_bw``; ValueError where it printed none."""
    found = re.findall(r"^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+[ \t]*$", text, re.MULTILINE)
    if not found:
        raise ValueError(f"no table: {text[-300:]}")
    return float(found[-1]) * MIB


def parse_latency(text: str) -> float:
    """µs one way, the typical ones, of ``ib_send_lat``; ValueError where it printed none."""
    found = re.findall(r"^\s*\d+\s+\d+\s+[\d.]+\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s", text, re.MULTILINE)
    if not found:
        raise ValueError(f"no table: {text[-300:]}")
    return float(found[-1])


def parse_cost(text: str) -> tuple[float, float]:
    """Nanoseconds of a post and of a poll, of ``native_post cost``."""
    found = re.fullmatch(r"post ([\d.]+) poll ([\d.]+)\n", text)
    if found is None:
        raise ValueError(text)
    return float(found[1]), float(found[2])


class AdapterProcess:
    """An adapter process at a device's word, and what its programs are told."""

    def __init__(self, word: str) -> None:
        self.socket = f"@softhca-bench-{os.getpid()}-{time.monotonic_ns()}"
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "softhca.runtime.process_main", f"softhca0={word}", "--stay",
             "--listen", self.socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            raise Absent("no adapter process")

    @property
    def environment(self) -> dict[str, str]:
        """A program's environment."""
        from softhca.native import PATHS_NAME, library

        found = library()
        if found is None:
            raise Absent("the library for programs in C is not built")
        return {**os.environ, "LD_PRELOAD": f"{found} {found.with_name(PATHS_NAME)}",
                "SOFTHCA_DEVICES": f"softhca0=unix:{self.socket}"}  # fmt: skip

    def cpu_s(self) -> float:
        """Processor time so far."""
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / TICKS

    def memory_bytes(self) -> int:
        """Resident, with what is shared."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()


@contextlib.contextmanager
def adapters(*words: str) -> Iterator[list[AdapterProcess]]:
    """Adapter processes, for so long."""
    with contextlib.ExitStack() as stack:
        found = []
        for word in words:
            found.append(AdapterProcess(word))
            stack.callback(found[-1].close)
        yield found


def pair(command: list[str], server: AdapterProcess, client: AdapterProcess) -> str:
    """What perftest's client says."""
    if shutil.which(command[0]) is None:
        raise Absent(f"{command[0]} is not installed (Debian's perftest)")
    port = free_port()
    words = [*command, "-F", "-p", str(port)]
    nothing = subprocess.DEVNULL
    with subprocess.Popen(words, env=server.environment, stdout=nothing, stderr=nothing) as passive:
        try:
            while passive.poll() is None and not any(
                listens(port, Path(f"/proc/net/{name}").read_text()) for name in ("tcp", "tcp6")
            ):
                time.sleep(0.01)
            done = subprocess.run([*words, "127.0.0.1"], env=client.environment, capture_output=True,
                                  text=True, timeout=RUN_TIMEOUT_S)  # fmt: skip
        finally:
            passive.kill()
    if done.returncode:
        raise Absent(f"{' '.join(command)}: {done.stdout[-300:]}{done.stderr[-300:]}")
    return done.stdout


def cells(seconds: float, one: AdapterProcess, two: AdapterProcess) -> dict[str, Callable[[], float]]:
    """What is measured, by name: bytes a second or µs."""
    count = str(max(500, int(seconds * 1000)))
    write = ["ib_write_bw", "-s", str(MIB), "-n", count]
    many = ["ib_write_bw", "-s", str(MIB), "-n", str(max(2000, int(seconds * 8000)))]
    lat = ["ib_send_lat", "-s", "8", "-n", str(max(1000, int(seconds * 10_000)))]
    perf = softhca_perf.measured
    return {
        "memcpy": lambda: memcpy(MIB, seconds).bandwidth_bytes_per_s,
        "write, one adapter process": lambda: parse_bandwidth(pair(many, one, one)),
        "UCX put over TCP": lambda: fabrics.ucx_bandwidth("ucp_put_bw", MIB, seconds).bandwidth_bytes_per_s,
        "write, two adapter processes": lambda: parse_bandwidth(pair(write, one, two)),
        "perf, embedded, UDP": lambda: perf(sys.executable, "write-bw", MIB, seconds).bandwidth_bytes_per_s,
        "send latency, one adapter process": lambda: parse_latency(pair(lat, one, one)),
        "perf latency, embedded": lambda: perf(sys.executable, "send-lat", 8, seconds).latency_us["p50"],
    }


def measured(rounds: int, seconds: float) -> dict[str, list[float]]:
    """Every cell once a round; a cell that is absent in a round is said on stderr, and NaN."""
    found: dict[str, list[float]] = {}
    for number in range(rounds):
        with adapters("udp:*", "udp:*") as (one, two):
            for name, cell in cells(seconds, one, two).items():
                try:
                    value = cell()
                except (Absent, ValueError, subprocess.TimeoutExpired) as error:
                    print(f"round {number + 1}, {name}: {error}", file=sys.stderr)
                    value = float("nan")
                found.setdefault(name, []).append(value)
    return found


def ratios(found: dict[str, list[float]]) -> list[list[str]]:
    """Rows of the table of ratios: their median, the rounds', and what is wanted."""
    rows = []
    for name, other, wanted, at_least in RATIOS:
        pairs = zip(found.get(name, []), found.get(other, []), strict=False)
        each = [a / b for a, b in pairs if not math.isnan(a / b)]
        if each:
            middle = statistics.median(each)
            good = middle >= wanted if at_least else middle <= wanted
            rows.append([f"{name} / {other}", f"{middle:.2f}", ", ".join(f"{one:.2f}" for one in each),
                         f"{'≥' if at_least else '≤'} {wanted:g}: {'yes' if good else 'no'}"])  # fmt: skip
    return rows


def compiled_client(folder: Path) -> Path:
    """``native_post.c``, linked with the distribution's libibverbs."""
    command = shutil.which("gcc") or shutil.which("cc")
    if command is None or not Path("/usr/include/infiniband/verbs.h").exists():
        raise Absent("no C compiler, or no libibverbs-dev")
    subprocess.run([command, "-O2", str(SOURCE), "-o", str(folder / "native_post"), "-libverbs"], check=True)
    return folder / "native_post"


def own_costs(client: Path, rounds: int) -> tuple[float, float]:
    """Nanoseconds of a post and of a poll, the medians of rounds."""
    with adapters("udp:*") as (one,):
        each = [
            parse_cost(subprocess.run([client, "cost"], env=one.environment, capture_output=True, text=True,
                                      check=True, timeout=RUN_TIMEOUT_S).stdout)
            for _ in range(rounds)
        ]  # fmt: skip
    return statistics.median(a for a, _ in each), statistics.median(b for _, b in each)


def idle(client: Path, count: int) -> tuple[int, int, float]:
    """Resident bytes of an adapter process alone and with so many idle programs, its share of a processor."""
    with adapters("udp:*") as (one,):
        alone, programs = one.memory_bytes(), []
        try:
            for _ in range(count):
                programs.append(subprocess.Popen([client, "hold"], env=one.environment, stdin=subprocess.PIPE,
                                                 stdout=subprocess.PIPE))
                assert programs[-1].stdout is not None
                if programs[-1].stdout.readline() != b"held\n":
                    raise Absent(f"program {len(programs)} was not served")
            time.sleep(1)
            before = one.cpu_s()
            time.sleep(IDLE_S)
            return alone, one.memory_bytes(), (one.cpu_s() - before) / IDLE_S
        finally:
            for each in programs:
                each.send_signal(signal.SIGKILL)
                each.wait()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    found = measured(options.rounds, options.seconds)
    rows = [[name, *(f"{value:.1f} µs" if "latency" in name else f"{value / 1e9:.2f} GB/s"
                     for value in (statistics.median(values), min(values), max(values)))]
            for name, values in found.items()]  # fmt: skip
    print(markdown(["", "median", "least", "most"], rows), end="\n\n")
    print(markdown(["", "median of ratios", "rounds", "wanted"], ratios(found)), end="\n\n")
    try:
        with tempfile.TemporaryDirectory() as folder:
            client = compiled_client(Path(folder))
            post, poll = own_costs(client, options.rounds)
            alone, full, share = idle(client, IDLE_PROGRAMS)
    except Absent as error:
        print(error)
        return 0
    print(f"post of 8 bytes {post:.0f} ns, poll {poll:.0f} ns, together {(post + poll) / 1000:.2f} µs "
          f"(≤ 0.3: {'yes' if post + poll <= 300 else 'no'})")  # fmt: skip
    print(f"adapter process: {alone / MIB:.1f} MiB alone, {full / MIB:.1f} MiB with {IDLE_PROGRAMS} idle "
          f"programs, {share * 100:.1f} % of a processor")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
