"""The tables of a run, in markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench import plan
from bench.measure import Figure
from bench.rounds import Results
from bench.tables import bandwidth_text, bytes_name, markdown, microseconds_text, rate_text
from bench.targets import bandwidth, median_us, rate, table

PLOTS = {
    "bandwidth": "Bandwidth over the size of a message",
    "latency": "Latency of 8 bytes, one way: median and 99th percentile",
    "rate": "Messages of 8 bytes a second",
    "processor": "Processor time of both sides a gigabyte, messages of 1 MiB",
    "queue-pairs": "8-byte WRITEs a second over so many queue pairs",
}
LATENCY_TESTS = {f"{plan.WRITE}, latency": plan.WRITE, f"{plan.SEND}, latency": plan.SEND}


def percentiles(figure: Figure) -> str:
    """p50 / p99, or the mean of a program that tells no more."""
    if "p50" not in figure.latency_us:
        return f"{microseconds_text(figure.latency_us['mean'])} µs (mean)"
    return " / ".join(microseconds_text(figure.latency_us[name]) for name in ("p50", "p99")) + " µs"


def latency_text(results: Results, key: plan.Key) -> str:
    """Medians over the rounds of p50 and p99."""
    figures = [figure for figure in results.figures.get(key, []) if figure is not None]
    if not figures:
        return ""
    names = figures[0].latency_us
    middle = {name: results.median(key, lambda f, n=name: f.latency_us[n]) or 0.0 for name in names}
    return percentiles(Figure(latency_us=middle))


def value_text(
    results: Results, key: plan.Key, read: Callable[[Figure], float], write: Callable[[float], str]
) -> str:
    """The median by its unit; a dash where there is none."""
    value = results.median(key, read)
    return "–" if not value else write(value)


def series_of(results: Results, *kinds: str) -> list[str]:
    """The series of these kinds, each once, in the order measured."""
    return list(dict.fromkeys(key[1] for key in results.figures if key[0] in kinds))


def sizes_of(results: Results, kind: str) -> list[int]:
    """Sizes (or numbers of queue pairs) of a kind, ascending."""
    return sorted({key[2] for key in results.figures if key[0] == kind})


def modes(results: Results) -> str:
    """softhca compiled and interpreted, side by side."""
    rows = []
    for name, _, size in plan.SOFTHCA_TESTS:
        interpreted = plan.INTERPRETED, name, size
        if name in LATENCY_TESTS:
            compiled = plan.LATENCY, LATENCY_TESTS[name], size
            texts = [latency_text(results, key) or "–" for key in (compiled, interpreted)]
            label = f"{LATENCY_TESTS[name].removeprefix('softhca ')}, {bytes_name(size)}, latency p50 / p99"
        elif size == plan.WORD:
            compiled = plan.RATE, name, size
            texts = [value_text(results, key, rate, rate_text) for key in (compiled, interpreted)]
            label = f"{name.removeprefix('softhca ')}, {bytes_name(size)}, messages"
        else:
            compiled = plan.BANDWIDTH, name, size
            texts = [value_text(results, key, bandwidth, bandwidth_text) for key in (compiled, interpreted)]
            label = f"{name.removeprefix('softhca ')}, {bytes_name(size)}"
        rows.append([label, *texts])
    return markdown(["softhca over UDP", "compiled", "interpreted"], rows)


def over_sizes(results: Results) -> str:
    """Bandwidth of all series by size."""
    sizes = sizes_of(results, plan.BANDWIDTH)
    rows = [
        [series, *(value_text(results, (plan.BANDWIDTH, series, size), bandwidth, bandwidth_text)
                   for size in sizes)]
        for series in series_of(results, plan.BANDWIDTH)
    ]  # fmt: skip
    return markdown(["bandwidth", *(bytes_name(size) for size in sizes)], rows)


def small(results: Results) -> str:
    """Everybody's figures of 8 bytes, and processor time."""
    rows = []
    for series in series_of(results, plan.RATE, plan.LATENCY, plan.COMPLETION):
        word = plan.WORD
        rows.append(
            [
                series,
                value_text(results, (plan.RATE, series, word), rate, rate_text),
                latency_text(results, (plan.LATENCY, series, word)) or "–",
                latency_text(results, (plan.COMPLETION, series, word)) or "–",
                processor_text(results, series),
            ]
        )
    columns = ["8 bytes", "messages", "one way, p50 / p99", "posted to completed, p50 / p99",
               "processor time a GB (1 MiB)"]  # fmt: skip
    return markdown(columns, rows)


def processor_time(results: Results, series: str) -> float | None:
    """Seconds a gigabyte of both sides, at 1 MiB."""
    for kind in (plan.PROCESSOR, plan.BANDWIDTH):
        key = kind, series, plan.MIB
        if key in results.figures:
            return results.median(key, lambda figure: figure.cpu_s_per_gb)
    return None


def processor_text(results: Results, series: str) -> str:
    """As text; a dash where it is not known."""
    value = processor_time(results, series)
    return f"{value:.3f} s" if value else "–"


def scaling(results: Results) -> str:
    """Messages over queue pairs, and what idle ones take."""
    counts = sizes_of(results, plan.SCALING)
    rows = []
    for count in counts:
        key = plan.SCALING, plan.WRITE, count
        ratio = results.ratio((plan.SCALING, plan.WRITE, 1), key, rate)
        rows.append(
            [f"{count:,}", value_text(results, key, rate, rate_text), f"{ratio:.2f} ×" if ratio else "–"]
        )
    text = markdown(["queue pairs", "8-byte WRITEs", "cost of one, against 1 queue pair"], rows)
    key = plan.STANDING, "idle queue pairs", 0
    held, rings, made = (
        results.median(key, lambda f, n=n: f.extra[n]) for n in ("bytes", "ring_bytes", "connected_per_s")
    )
    if held is None or rings is None or made is None:
        return text
    return (
        f"{text}\n\nA connected queue pair that waits takes {held:,.0f} bytes in application, driver and "
        f"adapter together, and {rings:,.0f} bytes of shared memory for its rings; one process makes and "
        f"connects {made:,.0f} of them a second."
    )


def absences(results: Results) -> list[str]:
    """A line for each series that gave no figure in some cell."""
    found: dict[tuple[str, str], list[plan.Key]] = {}
    for key, why in results.absent.items():
        found.setdefault((key[1], why), []).append(key)
    return [
        f"* {series}: {why} ({', '.join(dict.fromkeys(key[0] for key in keys))})."
        for (series, why), keys in found.items()
    ]


def machine_line(results: Results) -> str:
    """What the figures belong to."""
    words = ", ".join(
        version if name in ("processor", "kernel") else f"{name} {version}"
        for name, version in results.machine.items()
    )
    return (
        f"{words}. Medians of {results.rounds} rounds, each of which runs everything once; ratios are "
        f"medians of the ratios within the rounds, with the least and the greatest one. "
        f"{results.seconds:g} s a test, {results.elapsed_s / 60:.0f} minutes in all."
    )


def conditions_line(results: Results, busy: Results | None) -> str:
    """What ran beside the rounds."""
    words = f"Load average before the quiet rounds: {_loads(results)}."
    if busy is None:
        return words
    return (
        f"{words} Busy: {busy.rounds} more rounds of these rows alone, beside a loop without end pinned to "
        f"each processor, so that whatever is measured has half of one; load average before them: "
        f"{_loads(busy)}."
    )


def _loads(results: Results) -> str:
    return ", ".join(f"{each:.1f}" for each in results.loads) or "not known"


def report(results: Results, plots: Sequence[str] = (), busy: Results | None = None) -> str:
    """All of it; ``busy``: the targets' rows beside busy loops."""
    parts = [
        machine_line(results), "### Targets", conditions_line(results, busy),
        table(*(each for each in (results, busy) if each)), "### Compiled and interpreted", modes(results),
        "### Bandwidth", over_sizes(results), *_pictures(plots, "bandwidth"),
        "### Small messages and processor time", small(results),
        *_pictures(plots, "latency", "rate", "processor"),
        "### Many queue pairs", scaling(results), *_pictures(plots, "queue-pairs"),
    ]  # fmt: skip
    missing = absences(results)
    if missing:
        parts += ["### Not measured", "\n".join(missing)]
    return "\n\n".join(parts)


def _pictures(plots: Sequence[str], *names: str) -> list[str]:
    return [f"![{PLOTS[name]}](performance-{name}.svg)" for name in names if name in plots]


__all__ = ["PLOTS", "median_us", "report"]
