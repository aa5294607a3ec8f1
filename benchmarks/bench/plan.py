"""What is measured: cells, each one figure of one program, named by what the tables and targets look up."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from bench import fabrics, memory, python_sockets, softhca_perf, standing, tcp_tools
from bench.measure import Absent, Figure

KIB16, KIB64, MIB = 1 << 14, 1 << 16, 1 << 20
SIZES = (64, 1 << 10, 1 << 12, KIB16, KIB64, 1 << 18, MIB)
QUICK_SIZES = (KIB64, MIB)
QUEUE_PAIRS = (1, 10, 100, 1_000, 10_000)
QUICK_QUEUE_PAIRS = (1, 10, 100)
WORD = 8

WRITE, READ, SEND = "softhca WRITE", "softhca READ", "softhca SEND"
SHM_WRITE = "softhca WRITE, same host"
SHM_READ = "softhca READ, same host"
IPERF, UCX_TAG, UCX_PUT = "iperf3 (C, TCP)", "UCX tag (C, TCP)", "UCX put (C, TCP)"
MPI, PYTHON_TCP, MEMCPY = "mpi4py (shared memory)", "Python sockets, TCP", "memcpy"
SOCKPERF_TCP, SOCKPERF_UDP = "sockperf (C, TCP)", "sockperf (C, UDP)"
LIBFABRIC = "libfabric (C, TCP)"
PYTHON_TCP_SPIN, PYTHON_UDP_SPIN = "Python sockets, TCP, spinning", "Python sockets, UDP, spinning"

POST_LIST = ("--post-list", "64")
BANDWIDTH, RATE, LATENCY, PROCESSOR = "bandwidth", "rate", "latency", "processor time"
SCALING, STANDING, COMPLETION, INTERPRETED = "queue pairs", "standing", "completion", "interpreted"
SEPARATE = "adapter process"

Key = tuple[str, str, int]
"""(kind, series, size in bytes or number of queue pairs)"""


@dataclass(frozen=True)
class Cell:
    """One figure: ``measure`` gives it, or raises Absent, ValueError or KeyError."""

    key: Key
    measure: Callable[[], Figure]


@dataclass
class Settings:
    """How long and with whom.  ``interpreted``: a Python whose softhca has no compiled modules, or empty.
    ``only``: nothing but these cells is measured, where they are named.
    """

    seconds: float = 0.4
    sizes_bytes: tuple[int, ...] = SIZES
    queue_pairs: tuple[int, ...] = QUEUE_PAIRS
    interpreted: str = ""
    python: str = sys.executable
    only: frozenset[Key] = frozenset()
    mpi_figures: dict[str, Figure] = field(default_factory=dict)


def cells(settings: Settings) -> list[Cell]:
    """All of a round, in the order in which they are measured."""
    found = [
        *_bandwidth(settings), *_rates(settings), *_latencies(settings), *_processor_time(settings),
        *_separate(settings), *_scaling(settings), *_standing(settings), *_interpreted(settings),
    ]  # fmt: skip
    return [cell for cell in found if not settings.only or cell.key in settings.only]


def _softhca(settings: Settings, test: str, size: int, link: str = "udp", options: tuple[str, ...] = ()):
    return partial(softhca_perf.measured, settings.python, test, size, settings.seconds, link, options)


def _mpi(settings: Settings, name: str) -> Callable[[], Figure]:
    """A figure of the round's one MPI run, which `rounds` makes."""

    def look() -> Figure:
        if name not in settings.mpi_figures:
            raise Absent("mpi4py gave no figures")
        return settings.mpi_figures[name]

    return look


def _bandwidth(settings: Settings) -> list[Cell]:
    found = []
    for size in settings.sizes_bytes:
        runs = {
            WRITE: _softhca(settings, "write-bw", size),
            READ: _softhca(settings, "read-bw", size),
            SEND: _softhca(settings, "send-bw", size),
            IPERF: partial(tcp_tools.iperf3, size, settings.seconds),
            UCX_TAG: partial(fabrics.ucx_bandwidth, "tag_bw", size, settings.seconds),
            UCX_PUT: partial(fabrics.ucx_bandwidth, "ucp_put_bw", size, settings.seconds),
            PYTHON_TCP: partial(python_sockets.bandwidth, size, settings.seconds),
            SHM_WRITE: _softhca(settings, "write-bw", size, "shm", POST_LIST),
            SHM_READ: _softhca(settings, "read-bw", size, "shm", POST_LIST),
            MEMCPY: partial(memory.memcpy, size, settings.seconds),
            MPI: _mpi(settings, f"put {size}"),
        }
        found += [Cell((BANDWIDTH, series, size), run) for series, run in runs.items()]
    return found


def _rates(settings: Settings) -> list[Cell]:
    runs = {
        WRITE: _softhca(settings, "write-bw", WORD, "udp", POST_LIST),
        SEND: _softhca(settings, "send-bw", WORD, "udp", POST_LIST),
        "softhca FETCH_ADD": _softhca(settings, "atomic-bw", WORD),
        SHM_WRITE: _softhca(settings, "write-bw", WORD, "shm", POST_LIST),
        UCX_PUT: partial(fabrics.ucx_bandwidth, "ucp_put_bw", WORD, settings.seconds),
        UCX_TAG: partial(fabrics.ucx_bandwidth, "tag_bw", WORD, settings.seconds),
        PYTHON_TCP: partial(python_sockets.bandwidth, WORD, settings.seconds),
        MPI: _mpi(settings, "messages"),
    }
    return [Cell((RATE, series, WORD), run) for series, run in runs.items()]


def _latencies(settings: Settings) -> list[Cell]:
    seconds = settings.seconds
    runs = {
        WRITE: _softhca(settings, "write-lat", WORD),
        SEND: _softhca(settings, "send-lat", WORD),
        PYTHON_UDP_SPIN: partial(python_sockets.latency, "udp", WORD, seconds, True),
        SHM_WRITE: _softhca(settings, "write-lat", WORD, "shm"),
        UCX_TAG: partial(fabrics.ucx_latency, "tag_lat", WORD, seconds),
        UCX_PUT: partial(fabrics.ucx_latency, "ucp_put_lat", WORD, seconds),
        LIBFABRIC: partial(fabrics.fi_pingpong, WORD, seconds),
        SOCKPERF_TCP: partial(tcp_tools.sockperf, "tcp", WORD, seconds),
        SOCKPERF_UDP: partial(tcp_tools.sockperf, "udp", WORD, seconds),
        PYTHON_TCP: partial(python_sockets.latency, "tcp", WORD, seconds, False),
        PYTHON_TCP_SPIN: partial(python_sockets.latency, "tcp", WORD, seconds, True),
        MPI: _mpi(settings, "ping-pong"),
    }
    found = [Cell((LATENCY, series, WORD), run) for series, run in runs.items()]
    one = ("--tx-depth", "1")
    complete = {
        WRITE: _softhca(settings, "write-bw", WORD, "udp", one),
        READ: _softhca(settings, "read-bw", WORD, "udp", one),
        "softhca FETCH_ADD": _softhca(settings, "atomic-bw", WORD, "udp", one),
        SHM_WRITE: _softhca(settings, "write-bw", WORD, "shm", one),
        MPI: _mpi(settings, "put+flush"),
    }
    return found + [Cell((COMPLETION, series, WORD), run) for series, run in complete.items()]


def _processor_time(settings: Settings) -> list[Cell]:
    """What the bandwidth runs do not tell: processes that first start for long."""
    seconds = 2.5 * settings.seconds
    return [
        Cell(
            (PROCESSOR, series, MIB),
            partial(softhca_perf.with_processor_time, settings.python, test, MIB, seconds, link),
        )
        for series, test, link in (
            (WRITE, "write-bw", "udp"), (READ, "read-bw", "udp"), (SEND, "send-bw", "udp"),
            (SHM_WRITE, "write-bw", "shm"),
        )
    ]  # fmt: skip


def _separate(settings: Settings) -> list[Cell]:
    """Both ends with adapters in processes of their own."""
    one = ("--tx-depth", "1")
    return [
        Cell(
            (SEPARATE, series, size),
            partial(softhca_perf.measured, settings.python, test, size, settings.seconds, "udp", options,
                    {"SOFTHCA_ADAPTER": "process"}),
        )
        for series, test, size, options in ((WRITE, "write-bw", MIB, ()), (READ, "read-bw", WORD, one))
    ]  # fmt: skip


def _scaling(settings: Settings) -> list[Cell]:
    """WRITEs of 8 bytes in chains of 16, over more and more queue pairs."""
    return [
        Cell(
            (SCALING, WRITE, count),
            partial(
                softhca_perf.measured, settings.python, "write-bw", WORD,
                settings.seconds * (5 if count >= 1000 else 2), "udp", ("--qps", str(count)),
            ),
        )
        for count in settings.queue_pairs
    ]  # fmt: skip


def _standing(settings: Settings) -> list[Cell]:
    return [
        Cell((STANDING, "idle queue pairs", 0), partial(standing.idle_queue_pairs, settings.python)),
        Cell((STANDING, "idle adapter", 0), partial(standing.idle_adapter, settings.python)),
    ]


def _interpreted(settings: Settings) -> list[Cell]:
    """The tests of the table with a column for it."""
    found = []
    for name, test, size in SOFTHCA_TESTS:
        run: Callable[[], Figure] = _no_interpreted
        if settings.interpreted:
            options = POST_LIST if test == "write-bw" and size == WORD else ()
            run = partial(
                softhca_perf.measured, settings.interpreted, test, size, settings.seconds, "udp", options
            )
        found.append(Cell((INTERPRETED, name, size), run))
    return found


def _no_interpreted() -> Figure:
    raise Absent("no interpreted softhca was named (--interpreted)")


SOFTHCA_TESTS = (
    (WRITE, "write-bw", KIB64),
    (WRITE, "write-bw", MIB),
    (READ, "read-bw", KIB64),
    (SEND, "send-bw", KIB64),
    (WRITE, "write-bw", WORD),
    (f"{WRITE}, latency", "write-lat", WORD),
    (f"{SEND}, latency", "send-lat", WORD),
)
"""(series, test, size) measured with interpreted modules, too."""
