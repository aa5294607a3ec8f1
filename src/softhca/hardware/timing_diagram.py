"""Rows of a trace as a timing diagram: one lane a signal, one column a clock, as data sheets draw them.

`draw` is a pure function: the same rows give the same SVG.  A bus is hatched while its value means nothing
(an address without an access), and a read address that stands without a read is grey.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from softhca.hardware import CLOCK_NS
from softhca.hardware.trace import Row

MARGIN, LABELS, CELL = 16, 150, 62
LANE, HIGH, SLANT = 34, 18, 4
HEAD = 66
STYLE = (
    "text{font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:11px;fill:#222222}"
    ".title{font-size:15px;font-weight:bold}.small{font-size:10px;fill:#5f6b7a}.idle{fill:#8a94a0}"
    ".grid{stroke:#d5dae0;stroke-width:1}.wave{stroke:#1f4e9c;stroke-width:1.5;fill:none}"
    ".bus{stroke:#1f4e9c;stroke-width:1.2;fill:#eef3fb}.wait{stroke:#a15c00;fill:#fdf1de}"
    ".none{stroke:#8a94a0;stroke-width:1;fill:url(#none)}"
)
HATCH = (
    '<defs><pattern id="none" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect width="6" height="6" fill="#ffffff"/>'
    '<line x1="0" y1="0" x2="0" y2="6" stroke="#c3cad2" stroke-width="1.5"/></pattern></defs>'
)


class Cell(NamedTuple):
    """A bus in one clock: its text, its look (``bus wait idle none``), the clock since which it stands."""

    words: str
    look: str = "bus"
    since: int = 0


NOTHING = Cell("", "none")


def _waits(row: Row) -> bool:
    """The walk would do something, and the RQ has the port."""
    blocked_clear = row.state.startswith("CLEAR") and row.rq_write
    return blocked_clear or (row.rq_read and (row.sq_start or not row.sq_done))


LABELLED: dict[str, str] = {
    "sq_start": "SQ start",
    "sq_done": "SQ done",
    "state": "state",
    "pd_fail": "PD fail",
    "key_fail": "key fail",
    "vi": "VI",
    "rq_read": "RQ memory read",
    "rq_write": "RQ memory write",
    "rq_addr": "RQ source address",
} | {f"mem_{name}": f"rmb_mem_{name}" for name in ("re", "rd_addr", "rd_data", "we", "wr_addr", "wr_data")}
BUSES: dict[str, Callable[[Row], Cell]] = {
    "state": lambda row: Cell(row.state, "wait" if _waits(row) else "bus"),
    "vi": lambda row: Cell(str(row.vi)),
    "rq_addr": lambda row: Cell(str(row.rq_addr)) if row.rq_read or row.rq_write else NOTHING,
    "mem_rd_addr": lambda row: Cell(str(row.mem_rd_addr), "bus" if row.mem_re else "idle"),
    "mem_rd_data": lambda row: Cell(f"{row.mem_rd_data:07x}"),
    "mem_wr_addr": lambda row: Cell(str(row.mem_wr_addr)) if row.mem_we else NOTHING,
    "mem_wr_data": lambda row: Cell(f"{row.mem_wr_data:07x}") if row.mem_we else NOTHING,
}


def draw(title: str, rows: Sequence[Row], signals: Sequence[str]) -> str:
    """The diagram of ``signals``, fields of `Row`, as SVG."""
    width = 2 * MARGIN + LABELS + CELL * len(rows)
    height = HEAD + LANE * (len(signals) + 1) + 2 * MARGIN
    note = f"a clock is {CLOCK_NS} ns; addresses decimal, data hexadecimal"
    if any(map(_waits, rows)):
        note += "; yellow: the walk waits, for the RQ has the port"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>{HATCH}",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(MARGIN, 24, title, look="title"),
        _text(MARGIN, 42, note, look="small"),
        *_grid(rows, height),
        _text(MARGIN, HEAD + LANE / 2, "clock"),
        _clock(len(rows)),
    ]
    for lane, signal in enumerate(signals, 1):
        top = HEAD + LANE * lane
        parts.append(_text(MARGIN, top + LANE / 2, LABELLED[signal]))
        if signal in BUSES:
            parts += _bus(_cells(rows, signal), top)
        else:
            parts.append(_wave([getattr(row, signal) for row in rows], top))
    return "\n".join([*parts, "</svg>\n"])


def _cells(rows: Sequence[Row], signal: str) -> list[Cell]:
    """The bus ``signal``; data that were read anew begin anew, also when they are the same."""
    cells = [BUSES[signal](row) for row in rows]
    if signal != "mem_rd_data":
        return cells
    since = rows[0].clock
    for column, row in enumerate(rows[:-1], 1):
        since = row.clock + 1 if row.mem_re else since
        cells[column] = cells[column]._replace(since=since)
    cells[0] = cells[0]._replace(since=rows[0].clock)
    return cells


def _left(column: int) -> int:
    return MARGIN + LABELS + CELL * column


def _text(x: float, y: float, words: str, look: str = "", anchor: str = "start") -> str:
    attributes = f' class="{look}"' if look else ""
    attributes += f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:g}" y="{y + 4:g}"{attributes}>{escape(words)}</text>'


def _grid(rows: Sequence[Row], height: int) -> Iterator[str]:
    for column in range(len(rows) + 1):
        x = _left(column)
        yield f'<line class="grid" x1="{x}" y1="{HEAD}" x2="{x}" y2="{height - MARGIN}"/>'
    for column, row in enumerate(rows):
        yield _text(_left(column) + CELL / 2, HEAD - 8, str(row.clock), anchor="middle")


def _levels(top: int) -> tuple[float, float]:
    """Heights of high and low in the lane that begins at ``top``."""
    high = top + (LANE - HIGH) / 2
    return high, high + HIGH


def _clock(columns: int) -> str:
    high, low = _levels(HEAD)
    path = f"M{_left(0)} {low:g}"
    for column in range(columns):
        middle = _left(column) + CELL // 2
        path += f"V{high:g}H{middle}V{low:g}H{_left(column + 1)}"
    return f'<path class="wave" d="{path}"/>'


def _wave(levels: Sequence[bool], top: int) -> str:
    high, low = _levels(top)
    path = f"M{_left(0)} {high if levels[0] else low:g}"
    for column, level in enumerate(levels):
        path += f"V{high if level else low:g}H{_left(column + 1)}"
    return f'<path class="wave" d="{path}"/>'


def _bus(cells: Sequence[Cell], top: int) -> Iterator[str]:
    high, low = _levels(top)
    middle = (high + low) / 2
    begin = 0
    for end in range(1, len(cells) + 1):
        if end < len(cells) and cells[end] == cells[begin]:
            continue
        left, right = _left(begin), _left(end)
        shape = (
            f"M{left} {middle:g}L{left + SLANT} {high:g}H{right - SLANT}L{right} {middle:g}"
            f"L{right - SLANT} {low:g}H{left + SLANT}Z"
        )
        words, look, _ = cells[begin]
        yield f'<path class="{"bus" if look == "idle" else look}" d="{shape}"/>'
        if words:
            yield _text((left + right) / 2, middle, words, "idle" if look == "idle" else "", "middle")
        begin = end
