"""How figures are written: units, and tables in markdown."""

from __future__ import annotations

from collections.abc import Sequence


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def bytes_name(size_bytes: int) -> str:
    """8 B, 64 KiB, 1 MiB."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes} B"


def bandwidth_text(bytes_per_s: float) -> str:
    """In GB/s, or MB/s below a hundredth of that."""
    return f"{bytes_per_s / 1e9:.2f} GB/s" if bytes_per_s >= 1e7 else f"{bytes_per_s / 1e6:.2f} MB/s"


def rate_text(per_s: float) -> str:
    """In thousands a second."""
    return f"{per_s / 1e3:,.0f} k/s" if per_s >= 1e4 else f"{per_s / 1e3:.1f} k/s"


def microseconds_text(value_us: float) -> str:
    """With two digits where they tell something."""
    return f"{value_us:.2f}" if value_us < 10 else f"{value_us:.1f}"


# for results of ``softhca perf``; None is a failed run


def gigabytes(result):
    """Bandwidth as text."""
    return bandwidth_text(result["bandwidth_bytes_per_s"]) if result else "failed"


def latencies(result):
    """p50 / p99 as text."""
    return f"{result['latency_us']['p50']:.1f} / {result['latency_us']['p99']:.1f} µs" if result else "failed"
