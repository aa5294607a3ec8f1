"""The same figures as pictures (SVG), with matplotlib: ``pip install softhca[plot]``."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import plan
from bench.measure import Figure
from bench.report import PLOTS, processor_time, series_of, sizes_of
from bench.rounds import Results
from bench.tables import bytes_name
from bench.targets import bandwidth, median_us, rate

OWN, OTHER = "#1f6fb4", "#9aa5b1"
OWN_SAME_HOST = "#0b2e4f"
OTHERS = ("#d9822b", "#3a9b56", "#8e6bbf", "#b0413e", "#6d5a4b", "#5c6670")
STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "softhca", "font.family": "sans-serif", "font.size": 9,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#e6e9ed",
    "axes.axisbelow": True, "figure.constrained_layout.use": True,
}  # fmt: skip


def available() -> bool:
    """Whether matplotlib is there."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(results: Results, folder: Path) -> list[str]:
    """Write ``performance-NAME.svg`` for each plot that has figures; their names.  Nothing without
    matplotlib."""
    if not available():
        return []
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawers: dict[str, Callable[[Any, Results], bool]] = {
        "bandwidth": _bandwidth, "latency": _latency, "rate": _rate, "processor": _processor,
        "queue-pairs": _queue_pairs,
    }  # fmt: skip
    drawn = []
    with pyplot.rc_context(STYLE):
        for name, drawer in drawers.items():
            figure, axes = pyplot.subplots(figsize=(7.5, 4.2))
            axes.set_title(PLOTS[name], loc="left", fontsize=10)
            if drawer(axes, results):
                figure.savefig(folder / f"performance-{name}.svg", metadata={"Date": None})
                drawn.append(name)
            pyplot.close(figure)
    return drawn


def _is_own(series: str) -> bool:
    return series.startswith("softhca")


def _lines(axes: Any, results: Results, kind: str, read: Callable[[Figure], float], scale: float) -> bool:
    drawn = False
    styles = ("-", "--", ":", "-.")
    mine = others = 0
    for series in series_of(results, kind):
        points = [(size, results.median((kind, series, size), read)) for size in sizes_of(results, kind)]
        points = [(size, value / scale) for size, value in points if value]
        if not points:
            continue
        if _is_own(series):
            colour = OWN_SAME_HOST if "same host" in series else OWN
            how = {"color": colour, "linestyle": styles[mine % 4], "linewidth": 2.0, "marker": "o"}
            mine += 1
        else:
            colour = OTHERS[others % len(OTHERS)]
            how = {"color": colour, "linestyle": styles[others % 4], "linewidth": 1.2, "marker": "."}
            others += 1
        axes.plot(*zip(*points, strict=True), label=series, markersize=4, **how)
        drawn = True
    return drawn


def _bandwidth(axes: Any, results: Results) -> bool:
    if not _lines(axes, results, plan.BANDWIDTH, bandwidth, 1e9):
        return False
    sizes = sizes_of(results, plan.BANDWIDTH)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [bytes_name(size) for size in sizes])
    axes.set_ylabel("GB/s")
    axes.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return True


def _bars(axes: Any, rows: list[tuple[str, float, float]], unit: str) -> bool:
    """Horizontal bars; a second value behind the first is drawn lighter."""
    if not rows:
        return False
    rows = sorted(rows, key=lambda row: row[1], reverse=True)
    names = [row[0] for row in rows]
    colours = [OWN if _is_own(name) else OTHER for name in names]
    if any(row[2] for row in rows):
        axes.barh(names, [row[2] for row in rows], color=colours, alpha=0.35)
    axes.barh(names, [row[1] for row in rows], color=colours)
    for place, (_, value, _) in enumerate(rows):
        axes.annotate(f" {value:,.3g}", (value, place), va="center", fontsize=7)
    axes.set_xlabel(unit)
    axes.grid(visible=False, axis="y")
    return True


def _latency(axes: Any, results: Results) -> bool:
    rows = []
    for series in series_of(results, plan.LATENCY):
        key = plan.LATENCY, series, plan.WORD
        middle, high = results.median(key, median_us), results.median(
            key, lambda figure: figure.latency_us.get("p99", 0.0))  # fmt: skip
        if middle:
            rows.append((series, middle, high or 0.0))
    axes.set_xscale("log")
    return _bars(axes, rows, "µs, median; lighter: 99th percentile")


def _rate(axes: Any, results: Results) -> bool:
    rows = []
    for series in series_of(results, plan.RATE):
        value = results.median((plan.RATE, series, plan.WORD), rate)
        if value:
            rows.append((series, value / 1e6, 0.0))
    return _bars(axes, rows, "million messages a second")


def _processor(axes: Any, results: Results) -> bool:
    rows = []
    for series in series_of(results, plan.PROCESSOR, plan.BANDWIDTH):
        value = processor_time(results, series)
        if value:
            rows.append((series, value, 0.0))
    return _bars(axes, rows, "seconds a gigabyte")


def _queue_pairs(axes: Any, results: Results) -> bool:
    if not _lines(axes, results, plan.SCALING, rate, 1e6):
        return False
    counts = sizes_of(results, plan.SCALING)
    axes.set_xscale("log")
    axes.set_xticks(counts, [f"{count:,}" for count in counts])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("queue pairs")
    axes.set_ylabel("million messages a second")
    return True
