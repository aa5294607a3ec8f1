"""The engine's time: integer nanoseconds of the monotonic clock, the same in every process of this machine.

The engine reads no clock: it is handed the time from here, or from a test's own clock.
"""

from time import monotonic_ns

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000

now_ns = monotonic_ns
