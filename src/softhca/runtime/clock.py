"""The engine's time: integer nanoseconds of the monotonic clock, the same in every process of this machine.

The engine reads no clock: it is handed the time from here, or from a test's own clock.
"""

from time import monotonic_ns

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

now_ns = monotonic_ns


def seconds_until(deadline_ns: int | None, now: int) -> float | None:
    """How long to block for ``deadline_ns``: seconds ≥ 0, or None when there is no deadline."""
    if deadline_ns is None:
        return None
    return max(deadline_ns - now, 0) / NS_PER_S
