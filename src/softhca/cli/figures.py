"""Numbers from measurements."""

from __future__ import annotations

from collections.abc import Sequence


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest of the ``ordered`` values that ``percent`` of them do not exceed (nearest rank).

    ValueError when there are none.
    """
    if not ordered:
        raise ValueError("no values")
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(int(rank), 1) - 1]


def latency_us(samples_ns: Sequence[float]) -> dict[str, float]:
    """``min``, ``p50``, ``p99`` and ``max`` in microseconds of ``samples_ns``; zeros when there are none."""
    if not samples_ns:
        return {"min": 0.0, "p50": 0.0, "p99": 0.0, "max": 0.0}
    ordered = sorted(samples_ns)
    return {
        "min": ordered[0] / 1000,
        "p50": percentile(ordered, 50) / 1000,
        "p99": percentile(ordered, 99) / 1000,
        "max": ordered[-1] / 1000,
    }


def compiled() -> bool:
    """Whether the compiled modules are in use."""
    from softhca.machine.primitives import BODY

    return bool(BODY == "compiled")
