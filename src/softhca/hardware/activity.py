"""What the parts of the assembled adapter are at in each clock, counted and drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from softhca.hardware import CLOCK_NS
from softhca.hardware.assembler import Program
from softhca.hardware.context_memory import RECEIVE, SEND
from softhca.hardware.microcode_files import microcode_program
from softhca.hardware.subsystem_bench import SubsystemBench

IDLE, WAITS, WORKS = range(3)
"""An engine looks for work; it waits for host memory or a look-up; it works."""
_LOOPS = {
    SEND: ("send", {"idle": 4, "watch": 2}, {"busy": 2, "found_page": 2, "seek": 2, "quits": 2}),
    RECEIVE: ("receive", {"next": 5}, {"busy": 2, "wait": 2, "room": 4}),
}
"""Microcode of each engine; where it looks for work, and where it waits: labels and instructions behind."""
MARGIN, LABELS, LANE, HIGH, WIDTH = 16, 150, 24, 14, 900
ROW, LETTER = 12, 6.1
"""Of the words above the lanes: a row's height, a letter's width."""
STYLE = (
    "text{font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:11px;fill:#222222}"
    ".title{font-size:15px;font-weight:bold}.small{font-size:10px;fill:#5f6b7a}"
    ".works{fill:#1f4e9c}.waits{fill:#e0a94a}.lane{fill:#eef1f5}"
)


class Span(NamedTuple):
    """From clock ``begin`` to before ``end`` a part was in ``state``, `WAITS` or `WORKS`."""

    begin: int
    end: int
    state: int


class Activity:
    """Watches ``bench`` from now on.  ``spans`` of each part, by its name: engines, who asks for host memory,
    the two directions of the link, the remote-key manager's search."""

    def __init__(self, bench: SubsystemBench) -> None:
        self.bench = bench
        adapter = bench.subsystem
        self._signals: dict[str, tuple[Any, ...]] = {
            "SQ engine": (adapter.engines[SEND].address,),
            "RQ engine": (adapter.engines[RECEIVE].address,),
            "SQ payload": (adapter.movers[SEND].bus.valid,),
            "RQ payload": (adapter.movers[RECEIVE].bus.valid,),
            "descriptors": tuple(port.bus.valid for port in adapter.host_ports),
            "look-ups": tuple(table.bus.valid for table in adapter.translations),
            "completions": (adapter.completions.bus.valid,),
            "link out": (adapter.transmit.valid,),
            "link in": (adapter.receive.valid,),
            "key search": (adapter.manager.sq_done,),
        }
        self.spans: dict[str, list[Span]] = {name: [] for name in self._signals}
        self._engines = {
            name: engine_states(engine, adapter.vis)
            for engine, name in ((SEND, "SQ engine"), (RECEIVE, "RQ engine"))
        }
        bench.simulator.add_testbench(self._watch, background=True)

    async def _watch(self, context: Any) -> None:
        signals = [signal for group in self._signals.values() for signal in group]
        async for _, _, *values in context.tick().sample(*signals):
            clock, at = self.bench.clock, 0
            for name, group in self._signals.items():
                here = values[at : at + len(group)]
                at += len(group)
                if name in self._engines:
                    state = self._engines[name].get(here[0], WORKS)
                elif name == "key search":
                    state = IDLE if here[0] else WORKS
                else:
                    state = WORKS if any(here) else IDLE
                if state != IDLE:
                    self._add(self.spans[name], clock, state)

    @staticmethod
    def _add(spans: list[Span], clock: int, state: int) -> None:
        if spans and spans[-1].end == clock and spans[-1].state == state:
            spans[-1] = spans[-1]._replace(end=clock + 1)
        else:
            spans.append(Span(clock, clock + 1, state))

    def clocks(self, begin: int, end: int) -> dict[str, int]:
        """Clocks in which each part was at something, from ``begin`` to before ``end``."""
        return {
            name: sum(max(0, min(span.end, end) - max(span.begin, begin)) for span in spans)
            for name, spans in self.spans.items()
        }


def loaded_program(engine: int, vis: int) -> Program:
    """An engine's program for messages, as it is loaded into an adapter of ``vis`` queue pairs: the size of a
    constant moves the instructions behind it."""
    name, _, _ = _LOOPS[engine]
    return microcode_program(name, {"VIS": vis} if engine == RECEIVE else None)


def engine_states(engine: int, vis: int) -> dict[int, int]:
    """`IDLE` or `WAITS` for the addresses of an engine's program at which it does not work."""
    _, idle, waits = _LOOPS[engine]
    labels = loaded_program(engine, vis).labels
    found = {labels[label] + i: IDLE for label, count in idle.items() for i in range(count)}
    return found | {labels[label] + i: WAITS for label, count in waits.items() for i in range(count)}


def _places(marks: Mapping[str, int], begin: int, scale: float) -> dict[str, tuple[float, int]]:
    """Where each mark's words begin, so that they end in the picture, and their row: the first one in which
    no words before them reach there."""
    found: dict[str, tuple[float, int]] = {}
    ends: list[float] = []
    for words, clock in sorted(marks.items(), key=lambda mark: mark[1]):
        at = max(0.0, min((clock - begin) * scale, WIDTH - LETTER * len(words)))
        row = next((row for row, taken in enumerate(ends) if taken <= at), len(ends))
        ends[row : row + 1] = [at + LETTER * (len(words) + 1)]
        found[words] = at, row
    return found


def draw(spans: Mapping[str, Sequence[Span]], marks: Mapping[str, int], begin: int, end: int) -> str:
    """An SVG of ``spans``, a lane each, from ``begin`` to ``end``; ``marks``: words by the clock they stand
    at.  The same spans give the same picture."""
    scale = WIDTH / max(1, end - begin)
    places = _places(marks, begin, scale)
    head = MARGIN + 36 + ROW * (1 + max((row for _, row in places.values()), default=0))
    height = head + LANE * len(spans) + MARGIN + 14

    def x(clock: int) -> str:
        return f"{MARGIN + LABELS + (min(max(clock, begin), end) - begin) * scale:.1f}"

    title = f"The adapter in gates, {end - begin} clocks ({(end - begin) * CLOCK_NS / 1000:.1f} µs)"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * MARGIN + LABELS + WIDTH}" height="{height}">',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="{MARGIN}" y="{MARGIN + 8}">{escape(title)}</text>',
    ]
    lines += [
        f'<text class="small" x="{MARGIN + LABELS + left:.1f}" y="{MARGIN + 40 + ROW * row}">'
        f"{escape(words)}</text>"
        for words, (left, row) in places.items()
    ]
    for number, (name, each) in enumerate(spans.items()):
        top = head + LANE * number
        lines.append(f'<text x="{MARGIN}" y="{top + 11}">{escape(name)}</text>')
        lines.append(f'<rect class="lane" x="{MARGIN + LABELS}" y="{top}" width="{WIDTH}" height="{HIGH}"/>')
        for span in each:
            if span.end > begin and span.begin < end:
                wide = max(0.4, float(x(span.end)) - float(x(span.begin)))
                look = "waits" if span.state == WAITS else "works"
                lines.append(
                    f'<rect class="{look}" x="{x(span.begin)}" y="{top}" width="{wide:.1f}" height="{HIGH}"/>'
                )
    words = "blue: at work; yellow: waits for host memory or a look-up"
    lines.append(f'<text class="small" x="{MARGIN + LABELS}" y="{height - 10}">{words}</text>')
    return "\n".join([*lines, "</svg>", ""])
