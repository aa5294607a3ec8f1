"""What stands and waits: memory of idle queue pairs, how fast they are made, and an idle adapter."""

from __future__ import annotations

import json
import re
from pathlib import Path

from bench.measure import Absent, Figure, run

QUEUE_PAIRS = 2_000
IDLE_S = 2.0
PROGRAM = Path(__file__).with_name("idle_queue_pairs.py")
IDLE_PROGRAM = Path(__file__).parent.parent / "idle.py"
_ROW = re.compile(r"\| (embedded|process) +\| +([0-9.]+)% +\| +(\d+)")


def idle_queue_pairs(python: str) -> Figure:
    """Bytes of memory of a connected queue pair, without and within its rings, and how many are made a
    second."""
    done = run([python, str(PROGRAM), str(QUEUE_PAIRS)])
    found = json.loads(done.output)
    return Figure(rate_per_s=found["connected_per_s"], extra=found)


def parse_idle(text: str) -> dict[str, float]:
    """Share of a processor and wake-ups by adapter, from the table of ``idle.py``."""
    rows = {name: (float(share) / 100, float(count)) for name, share, count in _ROW.findall(text)}
    if set(rows) != {"embedded", "process"}:
        raise Absent("idle.py printed no table")
    return {f"{name} {what}": value for name, row in rows.items() for what, value in zip(
        ("share", "wakeups"), row, strict=True)}  # fmt: skip


def idle_adapter(python: str) -> Figure:
    """Share of a processor that an open device takes, and how often it wakes up."""
    done = run([python, str(IDLE_PROGRAM), "--seconds", str(IDLE_S)])
    return Figure(extra=parse_idle(done.output))
