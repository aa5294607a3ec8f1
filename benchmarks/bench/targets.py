"""The table "target, must, aim, measured", computed from a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench import plan
from bench.measure import Figure
from bench.rounds import Results
from bench.tables import bandwidth_text, markdown, microseconds_text, rate_text

Key = plan.Key


def bandwidth(figure: Figure) -> float:
    """Bytes a second."""
    return figure.bandwidth_bytes_per_s


def rate(figure: Figure) -> float:
    """Messages a second."""
    return figure.rate_per_s


def median_us(figure: Figure) -> float:
    """The median latency."""
    return figure.latency_us.get("p50", figure.latency_us.get("mean", 0.0))


@dataclass(frozen=True)
class Bound:
    """``measured`` must be at least ``limit``, or at most where ``most``; None where it was not measured."""

    measured: float | None
    limit: float
    most: bool = False

    @property
    def holds(self) -> bool | None:
        """None: not known."""
        if self.measured is None:
            return None
        return self.measured <= self.limit if self.most else self.measured >= self.limit


@dataclass(frozen=True)
class Target:
    """One row: what, what must hold and what is aimed at in words, what was measured, and the bounds."""

    what: str
    must: str
    aim: str
    measured: str
    musts: tuple[Bound, ...]
    aims: tuple[Bound, ...]


def all_of(bounds: tuple[Bound, ...]) -> bool | None:
    """Whether all hold; None when one is not known and none is broken."""
    held = [bound.holds for bound in bounds]
    if False in held:
        return False
    return None if None in held or not held else True


def verdict(target: Target) -> str:
    """``aim``, ``must``, ``missed`` or ``not measured``."""
    if all_of(target.musts) is None:
        return "not measured"
    if all_of(target.musts) is False:
        return "missed"
    return "aim" if all_of(target.aims) else "must"


def text(value: float | None, write: Callable[[float], str], name: str = "") -> str:
    """The value by its unit, with a name behind it; nothing where it was not measured."""
    if value is None:
        return "not measured"
    return f"{write(value)} {name}".strip()


def times(value: float) -> str:
    """A ratio."""
    return f"{value:.2f} ×"


def _key(kind: str, series: str, size: int) -> Key:
    return kind, series, size


def targets(results: Results) -> list[Target]:
    """All rows."""
    return [
        *_bandwidths(results),
        _messages(results),
        _latency(results),
        *_same_host(results),
        *_standing(results),
    ]


def _bandwidths(results: Results) -> list[Target]:
    write, put = _key(plan.BANDWIDTH, plan.WRITE, plan.MIB), _key(plan.BANDWIDTH, plan.UCX_PUT, plan.MIB)
    to_tcp = results.ratio(write, _key(plan.BANDWIDTH, plan.IPERF, plan.MIB), bandwidth)
    to_put = results.ratio(write, put, bandwidth)
    found = [
        Target(
            "RC WRITE 1 MiB, UDP", "≥ 0.7 × iperf3 and ≥ 2 × UCX put", "≥ 1.1 × iperf3",
            f"{text(results.median(write, bandwidth), bandwidth_text)}; {text(to_tcp, times, 'iperf3')}; "
            f"{text(to_put, times, 'UCX put')}",
            (Bound(to_tcp, 0.7), Bound(to_put, 2.0)), (Bound(to_tcp, 1.1),),
        )
    ]  # fmt: skip
    for series, name in ((plan.SEND, "SEND"), (plan.READ, "READ")):
        key = _key(plan.BANDWIDTH, series, plan.KIB64)
        ratio = results.ratio(key, _key(plan.BANDWIDTH, plan.IPERF, plan.KIB64), bandwidth)
        found.append(
            Target(
                f"RC {name} 64 KiB, UDP", "≥ 0.6 × iperf3", "≥ 1.0 × iperf3",
                f"{text(results.median(key, bandwidth), bandwidth_text)}; {text(ratio, times, 'iperf3')}",
                (Bound(ratio, 0.6),), (Bound(ratio, 1.0),),
            )
        )  # fmt: skip
    return found


def _messages(results: Results) -> Target:
    key = _key(plan.RATE, plan.WRITE, plan.WORD)
    per_s = results.median(key, rate)
    ratio = results.ratio(key, _key(plan.RATE, plan.UCX_PUT, plan.WORD), rate)
    return Target(
        "RC WRITE 8 B, messages, UDP, one queue pair", "≥ 1,000 k/s and ≥ 3 × UCX put", "≥ 2,000 k/s",
        f"{text(per_s, rate_text)}; {text(ratio, times, 'UCX put')}",
        (Bound(per_s, 1e6), Bound(ratio, 3.0)), (Bound(per_s, 2e6),),
    )  # fmt: skip


def _latency(results: Results) -> Target:
    key = _key(plan.LATENCY, plan.SEND, plan.WORD)
    one_way = results.median(key, median_us)
    to_python = results.ratio(key, _key(plan.LATENCY, plan.PYTHON_UDP_SPIN, plan.WORD), median_us)
    to_ucx = results.ratio(key, _key(plan.LATENCY, plan.UCX_TAG, plan.WORD), median_us)
    return Target(
        "RC SEND 8 B one way, both polling, UDP", "≤ 2 × a spinning Python UDP ping-pong", "≤ UCX tag",
        f"{text(one_way, microseconds_text, 'µs')}; {text(to_python, times, 'Python UDP')}; "
        f"{text(to_ucx, times, 'UCX tag')}",
        (Bound(to_python, 2.0, most=True),), (Bound(to_ucx, 1.0, most=True),),
    )  # fmt: skip


def _same_host(results: Results) -> list[Target]:
    found = []
    for size, name in ((plan.KIB64, "64 KiB"), (plan.MIB, "1 MiB")):
        key = _key(plan.BANDWIDTH, plan.SHM_WRITE, size)
        ratio = results.ratio(key, _key(plan.BANDWIDTH, plan.MEMCPY, size), bandwidth)
        found.append(
            Target(
                f"RC WRITE {name}, same host", "≥ 0.8 × memcpy", "≥ 0.95 × memcpy",
                f"{text(results.median(key, bandwidth), bandwidth_text)}; {text(ratio, times, 'memcpy')}",
                (Bound(ratio, 0.8),), (Bound(ratio, 0.95),),
            )
        )  # fmt: skip
    key = _key(plan.COMPLETION, plan.SHM_WRITE, plan.WORD)
    took_us = results.median(key, median_us)
    ratio = results.ratio(key, _key(plan.COMPLETION, plan.MPI, plan.WORD), median_us)
    found.append(
        Target(
            "RC WRITE 8 B, same host, posted to completion polled", "≤ 2 µs", "≤ mpi4py put + flush",
            f"{text(took_us, microseconds_text, 'µs')}; {text(ratio, times, 'mpi4py')}",
            (Bound(took_us, 2.0, most=True),), (Bound(ratio, 1.0, most=True),),
        )
    )  # fmt: skip
    return found


def _standing(results: Results) -> list[Target]:
    one, many = (_key(plan.SCALING, plan.WRITE, count) for count in (1, 10_000))
    growth = results.ratio(one, many, rate)
    queue_pairs = _key(plan.STANDING, "idle queue pairs", 0)
    held = results.median(queue_pairs, lambda figure: figure.extra["bytes"])
    idle = _key(plan.STANDING, "idle adapter", 0)
    shares = [results.median(idle, lambda f, n=n: f.extra[f"{n} share"]) for n in ("embedded", "process")]
    wakes = [results.median(idle, lambda f, n=n: f.extra[f"{n} wakeups"]) for n in ("embedded", "process")]
    share = max((value for value in shares if value is not None), default=None)
    wakeups = max((value for value in wakes if value is not None), default=None)
    return [
        Target(
            "10,000 queue pairs against 1, cost of a message of 8 B", "≤ 1.3 ×", "≤ 1.05 ×",
            text(growth, times), (Bound(growth, 1.3, most=True),), (Bound(growth, 1.05, most=True),),
        ),
        Target(
            "memory of an idle queue pair beyond its rings", "≤ 4,096 B", "≤ 4,096 B",
            text(held, lambda value: f"{value:,.0f} B"), (Bound(held, 4096, most=True),),
            (Bound(held, 4096, most=True),),
        ),
        Target(
            "idle adapter", "< 1 % of a core", "0 wake-ups",
            f"{text(share, lambda value: f'{value:.3%}')}; {text(wakeups, lambda value: f'{value:.0f}')} "
            "wake-ups in 2 s",
            (Bound(share, 0.00999, most=True),), (Bound(wakeups, 0, most=True),),
        ),
    ]  # fmt: skip


def table(results: Results) -> str:
    """In markdown."""
    rows = [
        [target.what, target.must, target.aim, target.measured, verdict(target)]
        for target in targets(results)
    ]
    return markdown(["target", "must", "aim", "measured", "reached"], rows)
