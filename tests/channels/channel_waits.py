"""How long tests of channels wait at most, and small channels."""

from __future__ import annotations

import time
from collections.abc import Callable

from machine_speed import limit_s
from softhca.channels import ChannelOptions

LIMIT_S = limit_s(60)
SMALL = ChannelOptions(slots=4, slot_bytes=256, largest_bytes=1 << 20)


def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds; what it looks at is done by other threads."""
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.0005)
