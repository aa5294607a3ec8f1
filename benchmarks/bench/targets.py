"""The table "target, must, aim, measured", computed from a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench import plan
from bench.load import BUSY
from bench.measure import Figure
from bench.rounds import Reader, Results
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
    """All rows, with the bounds of the condition that the results were measured in."""
    return [
        *_bandwidths(results),
        _messages(results),
        _latency(results),
        *_same_host(results),
        *_separate(results),
        *_standing(results),
    ]


class _Asked(Results):
    """Has no figure, and keeps which cells it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[Key] = set()

    def values(self, key: Key, read: Reader) -> list[float]:
        self.asked.add(key)
        return []

    def ratios(self, one: Key, other: Key, read: Reader) -> list[float]:
        self.asked |= {one, other}
        return []


def needed() -> frozenset[Key]:
    """The cells that the rows are made of."""
    probe = _Asked()
    targets(probe)
    return frozenset(probe.asked)


class _Row:
    """One row in the making: what was measured, in words, as far as it has been asked for."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.words: list[str] = []

    def value(self, key: Key, read: Reader, write: Callable[[float], str], unit: str = "") -> float | None:
        """The median over the rounds."""
        found = self.results.median(key, read)
        self.words.append(text(found, write, unit))
        return found

    def ratio(self, one: Key, other: Key, read: Reader, name: str = "") -> float | None:
        """The median of the ratios within the rounds; told with the least and the greatest one."""
        found = self.results.ratios(one, other, read)
        middle = self.results.ratio(one, other, read)
        spread = f" ({min(found):.2f} … {max(found):.2f})" if len(found) > 1 else ""
        self.words.append(text(middle, times, name) + spread)
        return middle

    def target(
        self, what: str, must: str, aim: str, musts: tuple[Bound, ...], aims: tuple[Bound, ...]
    ) -> Target:
        return Target(what, must, aim, "; ".join(self.words), musts, aims)


def _bandwidths(results: Results) -> list[Target]:
    found = []
    for size, words in ((plan.KIB16, "16 KiB"), (plan.KIB64, "64 KiB")):
        send, iperf = (_key(plan.BANDWIDTH, series, size) for series in (plan.SEND, plan.IPERF))
        for series, name in ((plan.WRITE, "WRITE"), (plan.READ, "READ")):
            row, key = _Row(results), _key(plan.BANDWIDTH, series, size)
            row.value(key, bandwidth, bandwidth_text)
            to_send = row.ratio(key, send, bandwidth, "SEND")
            to_tcp = row.ratio(key, iperf, bandwidth, "iperf3")
            found.append(
                row.target(f"RC {name} {words}, UDP", "≥ 0.8 × SEND of the same size", "≥ 1.0 × iperf3",
                           (Bound(to_send, 0.8),), (Bound(to_tcp, 1.0),))
            )  # fmt: skip
    row, key = _Row(results), _key(plan.BANDWIDTH, plan.SEND, plan.KIB64)
    row.value(key, bandwidth, bandwidth_text)
    ratio = row.ratio(key, _key(plan.BANDWIDTH, plan.IPERF, plan.KIB64), bandwidth, "iperf3")
    found.append(
        row.target("RC SEND 64 KiB, UDP", "≥ 0.6 × iperf3", "≥ 1.0 × iperf3",
                   (Bound(ratio, 0.6),), (Bound(ratio, 1.0),))
    )  # fmt: skip
    row, key = _Row(results), _key(plan.BANDWIDTH, plan.WRITE, plan.MIB)
    row.value(key, bandwidth, bandwidth_text)
    to_tcp = row.ratio(key, _key(plan.BANDWIDTH, plan.IPERF, plan.MIB), bandwidth, "iperf3")
    to_put = row.ratio(key, _key(plan.BANDWIDTH, plan.UCX_PUT, plan.MIB), bandwidth, "UCX put")
    found.append(
        row.target("RC WRITE 1 MiB, UDP", "≥ 0.95 × iperf3 and ≥ 2 × UCX put", "≥ 1.1 × iperf3",
                   (Bound(to_tcp, 0.95), Bound(to_put, 2.0)), (Bound(to_tcp, 1.1),))
    )  # fmt: skip
    return found


def _messages(results: Results) -> Target:
    row, key = _Row(results), _key(plan.RATE, plan.WRITE, plan.WORD)
    per_s = row.value(key, rate, rate_text)
    ratio = row.ratio(key, _key(plan.RATE, plan.UCX_PUT, plan.WORD), rate, "UCX put")
    return row.target(
        "RC WRITE 8 B, messages, UDP, one queue pair", "≥ 1,000 k/s and ≥ 3 × UCX put", "≥ 2,000 k/s",
        (Bound(per_s, 1e6), Bound(ratio, 3.0)), (Bound(per_s, 2e6),),
    )  # fmt: skip


def _latency(results: Results) -> Target:
    row, key = _Row(results), _key(plan.LATENCY, plan.SEND, plan.WORD)
    row.value(key, median_us, microseconds_text, "µs")
    to_python = row.ratio(key, _key(plan.LATENCY, plan.PYTHON_UDP_SPIN, plan.WORD), median_us, "Python UDP")
    to_ucx = row.ratio(key, _key(plan.LATENCY, plan.UCX_TAG, plan.WORD), median_us, "UCX tag")
    return row.target(
        "RC SEND 8 B one way, both polling, UDP",
        "≤ 1.6 × a spinning Python UDP ping-pong (busy: ≤ 2 ×)", "≤ UCX tag",
        (Bound(to_python, 2.0 if results.condition == BUSY else 1.6, most=True),),
        (Bound(to_ucx, 1.0, most=True),),
    )  # fmt: skip


def _same_host(results: Results) -> list[Target]:
    found = []
    for size, name, must in ((plan.KIB64, "64 KiB", 0.85), (plan.MIB, "1 MiB", 0.8)):
        row, key = _Row(results), _key(plan.BANDWIDTH, plan.SHM_WRITE, size)
        row.value(key, bandwidth, bandwidth_text)
        ratio = row.ratio(key, _key(plan.BANDWIDTH, plan.MEMCPY, size), bandwidth, "memcpy")
        found.append(
            row.target(f"RC WRITE {name}, same host", f"≥ {must:g} × memcpy", "≥ 0.95 × memcpy",
                       (Bound(ratio, must),), (Bound(ratio, 0.95),))
        )  # fmt: skip
    row, key = _Row(results), _key(plan.COMPLETION, plan.SHM_WRITE, plan.WORD)
    row.value(key, median_us, microseconds_text, "µs")
    ratio = row.ratio(key, _key(plan.COMPLETION, plan.MPI, plan.WORD), median_us, "mpi4py")
    found.append(
        row.target("RC WRITE 8 B, same host, posted to completion polled", "≤ 2 × mpi4py put + flush",
                   "≤ mpi4py put + flush", (Bound(ratio, 2.0, most=True),), (Bound(ratio, 1.0, most=True),))
    )  # fmt: skip
    return found


def _separate(results: Results) -> list[Target]:
    """Adapters in processes of their own beside embedded ones."""
    row, key = _Row(results), _key(plan.SEPARATE, plan.WRITE, plan.MIB)
    row.value(key, bandwidth, bandwidth_text)
    moved = row.ratio(key, _key(plan.BANDWIDTH, plan.WRITE, plan.MIB), bandwidth, "embedded")
    write = row.target("RC WRITE 1 MiB, UDP, adapter processes", "≥ 0.7 × embedded", "≥ 1.0 × embedded",
                       (Bound(moved, 0.7),), (Bound(moved, 1.0),))  # fmt: skip
    row, key = _Row(results), _key(plan.SEPARATE, plan.READ, plan.WORD)
    row.value(key, median_us, microseconds_text, "µs")
    took = row.ratio(key, _key(plan.COMPLETION, plan.READ, plan.WORD), median_us, "embedded")
    read = row.target(
        "RC READ 8 B, UDP, adapter processes, posted to completed", "≤ 1.8 × embedded", "≤ 1.0 × embedded",
        (Bound(took, 1.8, most=True),), (Bound(took, 1.0, most=True),),
    )  # fmt: skip
    return [write, read]


def _standing(results: Results) -> list[Target]:
    row = _Row(results)
    one, many = (_key(plan.SCALING, plan.WRITE, count) for count in (1, 10_000))
    growth = row.ratio(one, many, rate)
    scaling = row.target("10,000 queue pairs against 1, cost of a message of 8 B", "≤ 1.15 ×", "≤ 1.05 ×",
                         (Bound(growth, 1.15, most=True),), (Bound(growth, 1.05, most=True),))  # fmt: skip
    queue_pairs = _key(plan.STANDING, "idle queue pairs", 0)
    held = results.median(queue_pairs, lambda figure: figure.extra["bytes"])
    idle = _key(plan.STANDING, "idle adapter", 0)
    shares = [results.median(idle, lambda f, n=n: f.extra[f"{n} share"]) for n in ("embedded", "process")]
    wakes = [results.median(idle, lambda f, n=n: f.extra[f"{n} wakeups"]) for n in ("embedded", "process")]
    share = max((value for value in shares if value is not None), default=None)
    wakeups = max((value for value in wakes if value is not None), default=None)
    return [
        scaling,
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


def table(*conditions: Results) -> str:
    """In markdown, two columns a condition: what was measured in it, and what of the target is reached."""
    columns = ["target", "must", "aim"]
    rows: list[list[str]] = []
    for results in conditions:
        columns += [f"measured, {results.condition}", "reached"]
        for number, target in enumerate(targets(results)):
            if results is conditions[0]:
                rows.append([target.what, target.must, target.aim])
            rows[number] += [target.measured, verdict(target)]
    return markdown(columns, rows)
